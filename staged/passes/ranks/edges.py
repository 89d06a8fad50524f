"""The parameters and results of a program that may differ between ranks, for the folder that `export` writes.

Tested by `tests/ranks/test_exports.py`.
"""

from __future__ import annotations

from staged.ir.nodes import Function
from staged.ir.storage import structural_blocks
from staged.passes.ranks.vary import local_values


def local_edges(program: Function) -> frozenset[tuple[str, int | str]]:
    """The local arguments ("input", number), results ("output", number) and Variables ("variable", name)."""
    local = local_values(program)
    found: set[tuple[str, int | str]] = {("variable", each.name) for each in program.variables if each.local}
    found |= {("input", number) for number, param in enumerate(program.params) if param in local}
    for block in structural_blocks(program.block):
        if block.end.kind == "return":
            found |= {("output", number) for number, value in enumerate(block.end.operands) if value in local}
    return frozenset(found)
