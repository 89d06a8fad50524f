"""The sequences that loops collect, iteration by iteration, and their reads: in an array or on a stack of their own
(`residuals.py`), or as handles (`handles.py`).

Tested by `tests/backends/native/test_histories.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from staged.backends.host.body import BodyEmitter, placed
from staged.backends.host.handles import Handles
from staged.backends.host.residuals import Residuals
from staged.code.expr import Conditional, Expr, Infix, Literal, Member, Name
from staged.code.tree import If
from staged.code.types import INDEX, Space, constants, pointer, scalar
from staged.ir.buffers import Stack
from staged.ir.names import name_of
from staged.ir.nodes import Op, Value
from staged.ir.sizes import bounds_of
from staged.ir.storage import is_tensor
from staged.ir.structure import VARIABLE_READ
from staged.ir.trips import iteration_counters
from staged.ir.views import Loop


class Sequences:
    """Emits collected sequences and their reads, each in its own way."""

    def __init__(self, body: BodyEmitter, handles: Handles) -> None:
        self.body = body
        self.handles = handles
        self.residuals = Residuals(body)

    def of(self, sequence: Value) -> Residuals | Handles:
        """The way of a sequence."""
        return self.handles if self.body.is_handle(sequence) else self.residuals

    def begin_trips(self, op: Op, position: Expr | None) -> Name | None:
        """Prepare the storage of a loop. Returns the counter that each iteration must increment, or None.

        An array has one element per iteration. Its index is a carried value that counts the iterations. Without one
        it is the `position`, if the index shows that and no handle needs it after the loop, else a new counter.
        """
        loop = Loop(op)
        collected, counter = loop.collected, None
        handles = [result for result in collected if self.body.is_handle(result)]
        if any(not isinstance(self.body.plan.sequences.get(result), Stack) for result in collected):
            counters = () if loop.by_index else iteration_counters(loop)
            if counters:
                position = self.body.scalars[loop.carried[counters[0]]]
            elif position is None or (handles and not loop.by_index):
                position = counter = self.body.changing("trip", INDEX, Literal("0"))
            self.body.loop_trip[op] = position
        for result in collected:
            self.body.bases[result] = self.of(result).base(result)
        for result in handles:
            self.handles.begin(result)
        for param, value in zip(loop.carried, loop.initial, strict=True):
            if not self.body.plan.is_copied(param):
                self.begin_carried(param, value)
        return counter

    def begin_carried(self, param: Value, initial: Value) -> None:
        """An initial value is in the first slot of a chain, or is the first of the addresses that a loop carries."""
        chain, origin = self.body.plan.chained.get(param), self.body.pointer(initial)
        if chain is None:
            name, type = param.hint or name_of(initial), constants(param.tensor.dtype)
            self.body.pointers[param] = self.body.changing(name, type, origin)
            return
        slot = self.residuals.first_slot(chain.sequence, param.tensor)
        if slot != origin:
            self.body.copy(slot, origin, param.tensor)
        if bounds_of(chain.trips)[0] < 1:
            with self.body.code.nested() as inner:
                self.body.copy(self.body.pointer(chain.final), origin, param.tensor)
            self.body.code.add(If(Infix("==", self.body.extent(chain.trips), Literal("0")), tuple(inner)))

    def pass_on(self, pairs: Iterable[tuple[Value, Value]]) -> None:
        """At the end of an iteration: the addresses that the next one begins with, by the loop's parameters."""
        for param, value in pairs:
            if param in self.body.plan.addressed:
                self.body.assign(self.body.pointer(param), self.body.pointer(value))

    def begin_iteration(self, op: Op) -> None:
        """At the start of an iteration: the slots in which it makes what it keeps."""
        for result in Loop(op).collected:
            buffer = self.body.plan.kept.get(result)
            if buffer is not None:
                slot = self.of(result).slot(op, result, buffer.type)
                if not isinstance(slot, Member):
                    name = self.body.kept_name(buffer.name)
                    slot = self.body.declared(name, pointer(scalar(buffer.type.dtype), Space.GLOBAL), slot)
                self.body.places[buffer] = placed(slot, buffer.device)
        for param in Loop(op).carried:
            chain = self.body.plan.chained.get(param)
            if chain is not None:
                trip = self.body.loop_trip[op]
                is_inside = Infix("<", trip, self.body.extent(chain.trips - 1))
                slot = self.residuals.slot(op, chain.sequence, chain.next.type, further=1)
                place = Conditional(is_inside, slot, self.body.pointer(chain.final))
                name = self.body.name(chain.next.name)
                type = pointer(scalar(chain.next.type.dtype), Space.GLOBAL)
                self.body.places[chain.next] = placed(self.body.declared(name, type, place), chain.next.device)

    def collect(self, op: Op, values: tuple[Value, ...]) -> None:
        """Keep this iteration's values."""
        if not values:
            return
        for result, value in zip(op.results[-len(values) :], values, strict=True):
            self.of(result).collect(op, result, value)
        self.residuals.push_numbers()

    def finish(self, op: Op) -> None:
        """After a loop: handles know how long what it has collected is."""
        for result in Loop(op).collected:
            if self.body.is_handle(result):
                self.handles.finish(op, result)

    def emit_absent(self, op: Op) -> None:
        """Write nothing: the value is unused."""

    def emit_sequence_empty(self, op: Op) -> None:
        """A sequence of no elements."""
        self.of(op.result).empty(op)

    def emit_sequence_get(self, op: Op) -> None:
        """An element of a sequence."""
        read = op.operands[0].made_by(VARIABLE_READ)
        if read is None:
            self.of(op.operands[0]).get(op)
            return
        assert read not in self.body.plan.copied_reads, "a family is written while its values are needed"
        place = self.body.member(read.attrs["variable"], op.operands[1])
        if is_tensor(op.result):
            self.body.pointers[op.result] = place
        else:
            self.body.declare(op.result, place)
