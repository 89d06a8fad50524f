"""Equality of kernels: texts that differ only in comments, line breaks and the names that they declare."""

from __future__ import annotations

import re
from collections.abc import Callable

_TYPES = r"(?:float|double|bool|void|(?:unsigned )?(?:char|int)|u?int\d+_t|[fiu]\d+(?:v|x\d+)|st_device_\w+)"
_DECLARED = re.compile(rf"\b{_TYPES} \*?(?:(?:const|restrict|__restrict__|__launch_bounds__\(\d+\)|ST_\w+) )*(\w+)")
"""The declaration of a parameter, a local, a table or a function."""
# Members of structs are nobody's own: `threadIdx.x`, `a->x`.
_NAME = re.compile(r"(?<![.>\w])[A-Za-z_]\w*")


def shape_of(text: str) -> tuple[str, Callable[[str], str]]:
    """The text with its own names numbered in the order in which they appear,
    and what does the same to what calls it."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    own = set(_DECLARED.findall("\n".join(lines)))
    numbers: dict[str, str] = {}

    def renamed(word: re.Match[str]) -> str:
        if word[0] in own:
            numbers.setdefault(word[0], f"${len(numbers)}")
        return numbers.get(word[0], word[0])

    def numbered(text: str) -> str:
        return _NAME.sub(renamed, text)

    return numbered(" ".join(" ".join(lines).split())), numbered
