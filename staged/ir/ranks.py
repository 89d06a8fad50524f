"""The ops of a program that exchange arrays with other ranks, or depend on their number.

Tested by `tests/ranks/test_exports.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.nodes import Function, Op, walk_ops
from staged.source import Position


def collectives(program: Function) -> Iterator[Op]:
    """The collectives of a program and of its functions, and the ops that return the rank or the number of ranks."""
    for function in every_function(program):
        yield from (op for op in walk_ops(function.block) if op.declared.kind == "collective")


def has_ranks(program: Function) -> bool:
    """Return whether a program has collectives, asks for its rank, or has local arguments or Variables."""
    if program.local_params or any(variable.local for variable in program.variables):
        return True
    ops = (op for each in every_function(program) for op in walk_ops(each.block))
    return any(op.declared.kind == "collective" or op.declared is prims.VARY for op in ops)


def ranks_of_sizes(program: Function) -> tuple[int, Position | None] | None:
    """The number of ranks on which sizes of a program depend, and the first line that depends on it."""
    return next(((op.attrs["ranks"], op.where) for op in collectives(program) if "ranks" in op.attrs), None)
