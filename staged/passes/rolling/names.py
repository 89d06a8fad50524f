"""Names that all layers have.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from staged.ir.names import LibraryName
from staged.ir.nodes import Value

_WORDS = re.compile(r"[^._]+|[._]")


def common_name(names: Sequence[str]) -> str:
    """The name of equal things of all layers: `blocks.attn.weight` for `blocks.block0.attn.weight`, `...block1...`."""
    words = [_WORDS.findall(name) for name in names]
    if any(len(each) != len(words[0]) for each in words):
        return names[0]
    kept: list[str] = []
    for row in zip(*words, strict=True):
        if all(word == row[0] for word in row):
            if not (row[0] in "._" and (not kept or kept[-1] in "._")):
                kept.append(row[0])
    while kept and kept[-1] in "._":
        kept.pop()
    return "".join(kept) or names[0]


def common_hint(row: Sequence[Value]) -> str:
    """The hint of a value that all layers have."""
    hints = [value.hint for value in row]
    name = common_name(hints)
    if all(isinstance(hint, LibraryName) for hint in hints):
        return LibraryName(name, common_name([hint.layer for hint in hints if isinstance(hint, LibraryName)]))
    return type(hints[0])(name)
