"""Calls of a back end's libraries as ops: what a back end writes in place of an op that a library does in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staged.ir.nodes import Block, Op, Value
from staged.ir.structure import LIBRARY
from staged.ir.types import TensorType
from staged.ops.array import Array
from staged.ops.context import current_context
from staged.ops.record import RecordContext


@dataclass(frozen=True, slots=True)
class Way:
    """How a library makes an op: `write(context, *operands)` records what stands for it, and gives a handle for each result.

    After the op's own operands it is given those of `also_takes`, which are made before the op.
    """

    write: Callable[..., Sequence[Array]]
    also_takes: tuple[Value, ...] = ()


FindWay = Callable[[Op, Block], Way | None]
"""The way for an op of a block, None where no library makes it. It is asked for each op of a function, in order."""


def library_call(
    name: str, operands: Sequence[Array], types: Sequence[TensorType], hints: Sequence[str] = (), **attrs: Any
) -> tuple[Array, ...]:
    """Record one call: an op `library` whose attr `call` is the name that the back end knows it by.

    It reads its operands and makes all of its results, whether or not anybody wants them. A back end alone writes such
    ops, while it lowers a program: they have no derivative and no meaning for NumPy. `hints` are names for people, one for
    each result, where the user has none. An attr `partly_made` has the numbers of results of which some elements are whatever
    was there: nobody reads these, and a program that looks for NaN does not.
    """
    context = current_context()
    assert isinstance(context, RecordContext), "calls of libraries are recorded by a pass"
    values = [context.value_of(operand) for operand in operands]
    where = context.locate()
    op = Op(LIBRARY, values, types, attrs={"call": name, **attrs}, device=context.builder.device, where=where)
    for result, hint in zip(op.results, hints, strict=bool(hints)):
        result.hint = hint
    return context.emit(op)
