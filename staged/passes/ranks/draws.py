"""Random draws that local values use.

The generator is replicated, so each rank would draw the same numbers. If axis 0 of a draw is the batch axis, a rank
draws its rows instead: the number of its first element is the number of elements on the ranks before it. The numbers of
all ranks together are those of one rank. A draw that is equal for all rows of a batch stays replicated.

Tested by `tests/ranks/test_batches_of_shards.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Function, Op, Value, walk_op
from staged.ir.sizes import Extent, exact_quotient, product
from staged.ir.structure import CALL, COMPOSITE
from staged.ir.types import Shape, TensorType
from staged.ir.views import Call, Loop
from staged.ops.composite import COMPOSITES
from staged.ops.context import use_context
from staged.ops.dimension import size_number
from staged.ops.ranks import rank
from staged.ops.record import RecordContext
from staged.passes.ranks.errors import Cause, batch_of_rank, equal_draws


def draws_inside(op: Op) -> bool:
    """Return whether a composite draws random numbers."""
    return op.declared is COMPOSITE and any(inner.declared.kind == "random" for inner in walk_op(op))


def draws_in(value: Value, is_first: bool = True) -> dict[Op, bool]:
    """The draws from which a value is computed element by element, each with whether its axis 0 is that of the value.

    Draws that are repeated along axis 0 are left out: they are equal for all rows.
    """
    op = value.producer
    if op is None or not isinstance(value.type, TensorType) or not value.tensor.shape:
        return {}
    declared = op.declared
    if declared.kind == "random":
        return {} if op.attrs.get("first") else {op: is_first}
    if declared is prims.BROADCAST_TO:
        source = op.operands[0].tensor.shape
        keeps = bool(source) and op.attrs["axes"][0] == 0 and source[0] == value.tensor.shape[0]
        return draws_in(op.operands[0], is_first) if keeps or not is_first else {}
    if declared is prims.PERMUTE:
        return draws_in(op.operands[0], is_first and op.attrs["axes"][0] == 0)
    if declared is prims.SLICE:
        return draws_in(op.operands[0], is_first and op.operands[0].tensor.shape[0] == value.tensor.shape[0])
    found: dict[Op, bool] = {}
    if declared.kind == "elementwise" or declared in (prims.CAST, prims.RESHAPE) or declared is COMPOSITE:
        for operand in op.operands:
            found.update(draws_in(operand, is_first))
    return found


def elements_of(op: Op) -> Shape:
    """The shape of what a draw numbers: elements, or of attention the matrices of queries."""
    return op.operands[0].tensor.shape[:-2] if op.declared is COMPOSITE else op.result.tensor.shape


def has_rows(op: Op, rows: Extent | None) -> bool:
    """Return whether axis 0 of a draw may be that of a batch, of which a rank has `rows` rows."""
    shape = elements_of(op)
    return rows is not None and bool(shape) and exact_quotient(shape[0], rows) is not None


class Draws:
    """The local values of a program, of which the draws that each rank draws its rows of are found here."""

    def __init__(self, program: Function) -> None:
        self.local: dict[Value, Cause] = {}
        self.functions = {function.name: function for function in program.functions}
        self.drawn: dict[Op, Cause] = {}
        """The draws of which each rank draws its rows."""
        self.is_changing = True
        self.is_checking = False

    def note(self, value: Value, cause: Cause | None) -> None:
        """The value is local if there is a cause."""
        if cause is not None and value not in self.local:
            self.local[value] = cause
            self.is_changing = True

    def draws(self, op: Op) -> None:
        """Draws that an op uses with local values, or that have local parameters, are of the rows of each rank."""
        if op.declared.is_loop or op.declared is CALL:
            params = Loop(op).carried if op.declared.is_loop else self.functions[Call(op).function].params
            for value, param in zip(op.operands[len(op.operands) - len(params) :], params, strict=True):
                if param in self.local:
                    self.joins(value, self.local[param])
            return
        local = [self.local[value] for value in op.operands if value in self.local]
        if not local or op.attrs.get("first"):
            return
        cause = next((each for each in local if each.rows is not None), local[0])
        if self.is_checking and op.declared is COMPOSITE and op.attrs["name"] == "batch_norm_training":
            raise batch_of_rank(op, cause)
        if op.declared.kind == "random" or draws_inside(op):
            self.draw(op, cause)
        elif op.declared.kind == "elementwise" or op.declared is prims.CONCAT:
            for value in op.operands:
                self.joins(value, cause)

    def joins(self, value: Value, cause: Cause) -> None:
        """Elements of a value are used with elements of a local value, or instead of them."""
        if value not in self.local:
            for draw, is_first in draws_in(value).items():
                self.draw(draw, cause if is_first else replace(cause, rows=None))

    def draw(self, op: Op, cause: Cause) -> None:
        """Each rank draws its rows, if the draw has the rows of a batch."""
        if op in self.drawn:
            return
        if has_rows(op, cause.rows):
            self.drawn[op] = cause
            self.is_changing = True
            for result in op.results:
                self.note(result, Cause("it is drawn for the rows of each rank", op.where, rows=cause.rows))
        elif self.is_checking:
            raise equal_draws(op, elements_of(op), cause)


def with_first(op: Op, operands: Sequence[Value], builder: Builder) -> Sequence[Value]:
    """Record a draw of the rows of this rank."""
    context = RecordContext(builder, locate=lambda: op.where)
    with use_context(context):
        first = rank() * size_number(product(elements_of(op)))
        if op.declared is COMPOSITE:
            attrs = dict(op.attrs)
            name = attrs.pop("name")
            given = [*map(context.handle, operands), first]
            return [context.value_of(x) for x in COMPOSITES[name](*given, **{**attrs, "parts": f"{attrs['parts']}f"})]
        return builder.append(
            op.replace(operands=[*operands, context.value_of(first)], attrs={**op.attrs, "first": True})
        ).results
