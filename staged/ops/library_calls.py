"""Calls of a back end's libraries as ops, which a back end writes in place of ops that a library does as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staged.ir.nodes import Block, Op, Value
from staged.ir.structure import LIBRARY
from staged.ir.types import TensorType, dims_of
from staged.ops.array import Array
from staged.ops.context import current_context
from staged.ops.record import RecordContext


@dataclass(frozen=True, slots=True)
class Way:
    """The way in which a library does an op: `write(context, *operands)` records the replacement and returns its
    results.

    Its operands are the op's own, then those of `also_takes`, which are made before the op.
    """

    write: Callable[..., Sequence[Array]]
    also_takes: tuple[Value, ...] = ()


def is_sized(op: Op) -> bool:
    """Return whether the program finds a size of an operand or a result."""
    return any(dims_of(value.type) for value in (*op.operands, *op.results))


FindWay = Callable[[Op, Block], Way | None]
"""Returns the way for an op of a block, or None. It is called for each op of a function, in order."""


def library_call(
    name: str, operands: Sequence[Array], types: Sequence[TensorType], hints: Sequence[str] = (), **attrs: Any
) -> tuple[Array, ...]:
    """Record one call: an op `library` whose attr `call` is the back end's name for it.

    It reads its operands and writes all of its results, used or not. Only a back end writes such ops, while it lowers a
    program: they have no derivative and no meaning for NumPy. `hints` are names for people, one for each result, where
    the user has none. An attr `partly_made` has the numbers of results of which some elements are undefined: these are
    unused, and NaN checks skip them.
    """
    context = current_context()
    assert isinstance(context, RecordContext), "calls of libraries are recorded by a pass"
    values = [context.value_of(operand) for operand in operands]
    where = context.locate()
    op = Op(LIBRARY, values, types, attrs={"call": name, **attrs}, device=context.builder.device, where=where)
    for result, hint in zip(op.results, hints, strict=bool(hints)):
        result.hint = hint
    return context.emit(op)
