"""The relations of sizes that a program checks, as an exported header states them.

Tested by `tests/dynamic_sizes/test_exports.py`.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.nodes import Function, Value, walk_ops
from staged.ir.sizes import Extent
from staged.ir.structure import ASSERT
from staged.ir.trips import size_of

_SIGNS = {
    prims.LESS: "<",
    prims.LESS_EQUAL: "<=",
    prims.GREATER: ">",
    prims.GREATER_EQUAL: ">=",
    prims.EQUAL: "==",
    prims.NOT_EQUAL: "!=",
}
"""Comparisons as C and Python write them in a comment."""


def _size(value: Value) -> Extent | None:
    while (op := value.producer) is not None and op.declared is prims.CAST and value.tensor.dtype.is_integer:
        value = op.operands[0]
    return size_of(value)


def relations_of(function: Function) -> tuple[str, ...]:
    """The comparisons of sizes that stop the program if they are false, each with its Python line."""
    found: dict[str, None] = {}
    for each in every_function(function):
        for op in walk_ops(each.block):
            test = op.operands[0].producer if op.declared is ASSERT else None
            if test is not None and test.declared in _SIGNS:
                left, right = map(_size, test.operands)
                if left is not None and right is not None:
                    line = f"  {op.where.short}" if op.where else ""
                    found[f"{left} {_SIGNS[test.declared]} {right}{line}"] = None
    return tuple(found)
