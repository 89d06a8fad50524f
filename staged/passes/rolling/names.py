"""Names that all layers have.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from staged.ir.names import LibraryName
from staged.ir.nodes import Op, Value

_WORDS = re.compile(r"[^._]+|[._]")
_NUMBER = re.compile(r"\d+")


def common_name(names: Sequence[str]) -> str:
    """The name of equal things of all layers: `blocks.attn.weight` for `blocks.block0.attn.weight`, `...block1...`."""
    words = [_WORDS.findall(name) for name in dict.fromkeys(names)]
    if any(len(each) != len(words[0]) for each in words):
        return names[0]
    kept: list[str] = []
    for row in zip(*words, strict=True):
        if row.count(row[0]) == len(row):
            if not (row[0] in "._" and (not kept or kept[-1] in "._")):
                kept.append(row[0])
    while kept and kept[-1] in "._":
        kept.pop()
    return "".join(kept) or names[0]


def layer_name(names: Sequence[str]) -> tuple[str, int, str] | None:
    """The name of the layers with these names: the number of the first, and what is before and after the number.

    Of `blocks.block2.fc` and `blocks.block3.fc` it is `blocks[2]`, of `linear0` and `linear1` it is `linear0`.
    """
    rows = [row for row in zip(*[name.split(".") for name in names], strict=False) if len(set(row)) > 1]
    ends = [re.search(r"\d+$", word) for word in rows[0]] if len(rows) == 1 else []
    numbers = [int(end.group()) for end in ends if end is not None]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(names))):
        return None
    path, dot, _ = names[0].partition("." + rows[0][0])
    return (f"{path}[", numbers[0], "]") if dot else (_NUMBER.sub("", rows[0][0]), numbers[0], "")


def common_hint(row: Sequence[Value]) -> str:
    """The hint of a value that all layers have."""
    hints = [value.hint for value in row]
    name = common_name(hints)
    if all(isinstance(hint, LibraryName) for hint in hints):
        return LibraryName(name, common_name([hint.layer for hint in hints if isinstance(hint, LibraryName)]))
    return type(hints[0])(name)


def numbered(op: Op) -> tuple[str, tuple[int, ...]]:
    """The name of an op's Variable or layer, without its numbers, and the numbers; an empty name without such a name.

    The last number is that of equal names: `w`, `w_2`, `w_3`.
    """
    variable = op.attrs.get("variable")
    return _numbered(variable.name if variable is not None else op.where.part if op.where is not None else "")


@lru_cache(4096)
def _numbered(name: str) -> tuple[str, tuple[int, ...]]:
    if not name:
        return "", ()
    if not re.search(r"_\d+$", name):
        name += "_1"
    return _NUMBER.sub("#", name), tuple(map(int, _NUMBER.findall(name)))
