"""Placement, second part: which values are used on another device, and where each of them is copied.

Tested by `tests/passes/placement/test_place.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from staged.ir.declaration import prims
from staged.ir.nodes import Block, End, Function, Op, Value
from staged.ir.structure import (
    ASSERT,
    CALLBACK,
    PRINT,
    PROGRESS_END,
    PROGRESS_START,
    PROGRESS_UPDATE,
    RAISE,
    SAVE,
    VARIABLE_WRITE,
)
from staged.ir.types import CPU, Device, SequenceType
from staged.ir.views import Loop, is_condition
from staged.passes.placement.devices import (
    Placement,
    is_number,
    is_passing,
)
from staged.source import Position


@dataclass(frozen=True, slots=True)
class _Step:
    """One level on the way to a use: the op number `index` of `block`; `in_loop`: the block is a loop's."""

    block: Block
    index: int
    in_loop: bool


@dataclass(slots=True)
class PlannedCopy:
    """A value that is used on another device, with all its uses there."""

    value: Value
    device: Device
    why: str
    where: Position | None
    uses: list[tuple[_Step, ...]] = field(default_factory=list)
    name: str = ""
    """The use of the value, if it has no name of its own: the Variable that it is written to."""


class PlannedCopies:
    """Every copy that a function needs, and the op before which it is made.

    `returned` are values for its results, on the devices that these are returned on; None if the host receives them
    all.
    """

    def __init__(self, function: Function, placement: Placement, returned: tuple[Value, ...] | None) -> None:
        self.placement = placement
        self.returned = returned
        self.found: dict[tuple[Value, Device], PlannedCopy] = {}
        self.depth: dict[Value, int] = {}
        self.params = set(function.params) if function is placement.program else set()
        self.is_program = function is placement.program
        self.visit(function.block, (), (), False)
        self.before: dict[tuple[Block, int], list[PlannedCopy]] = {}
        for planned in self.found.values():
            self.before.setdefault(self.position(planned), []).append(planned)

    def visit(self, block: Block, path: tuple[_Step, ...], targets: tuple[Value, ...], in_loop: bool) -> None:
        self.depth.update(dict.fromkeys(block.params, len(path)))
        for index, op in enumerate(block.ops):
            here = (*path, _Step(block, index, in_loop))
            self.visit_op(op, here)
            self.depth.update(dict.fromkeys(op.results, len(path)))
        end, here = block.end, (*path, _Step(block, len(block.ops), in_loop))
        if end.kind == "yield":
            self.meet(targets, end, here)
        elif end.target is not None:
            self.meet(self.placement.targets[end.target], end, here)
        elif self.returned is not None:
            for operand, result in zip(end.operands, self.returned, strict=False):
                why = "result" if self.is_program and self.placement.of(result) == CPU else "value"
                self.use(operand, self.placement.of(result), why, end.where, here)
        else:
            for operand in end.operands:
                self.use(operand, CPU, "result", end.where, here)

    def meet(self, targets: tuple[Value, ...], end: End, here: tuple[_Step, ...]) -> None:
        """The operands of an end become `targets`; those without one decide a `while`."""
        for number, operand in enumerate(end.operands):
            target = targets[number] if number < len(targets) else None
            device = self.placement.of(target) if target is not None else CPU
            self.use(operand, device, "value" if target is not None else "decision", end.where, here)

    def visit_op(self, op: Op, here: tuple[_Step, ...]) -> None:
        if is_passing(op):
            for operand, taken in zip(op.operands, self.placement.taken_by(op), strict=False):
                self.use(operand, self.placement.of(taken), "value", op.where, here)
            return
        if not op.declared.is_control:
            if op in self.placement.runs_on:
                why = self.placement.host.why(op, self.placement.runs_on[op])
                for number, operand in enumerate(op.operands):
                    device = operand_device(op, number, self.placement.runs_on[op])
                    name = op.attrs["variable"].name if op.declared is VARIABLE_WRITE else ""
                    self.use(operand, device, why or _why(op, number), op.where, here, name)
            return
        if op.declared.is_loop:
            loop = Loop(op)
            for operand in loop.bounds:
                self.use(operand, CPU, "decision", op.where, here)
            for param, operand in zip(loop.carried, loop.initial, strict=True):
                self.use(operand, self.placement.of(param), "value", op.where, here)
        else:
            for operand in op.operands:
                self.use(operand, CPU, "decision", op.where, here)
        for block in op.blocks:
            self.visit(block, here, () if is_condition(op, block) else op.results, op.declared.is_loop)

    def use(
        self, value: Value, device: Device, why: str, where: Position | None, here: tuple[_Step, ...], name: str = ""
    ) -> None:
        home = self.placement.of(value)
        if value in self.placement.constants or home == device or isinstance(value.type, SequenceType):
            return
        if is_number(value) and home == CPU:
            return  # kernels take it by value
        planned = self.found.get((value, device))
        if planned is None:
            if device != CPU:
                why = self.what_it_is(value)
            planned = self.found[value, device] = PlannedCopy(value, device, why, where, name=name)
        planned.uses.append(here)

    def what_it_is(self, value: Value) -> str:
        if value in self.params:
            return "input"
        producer = value.producer.name if value.producer is not None else ""
        return {"variable_read": "variable", "constant": "constant"}.get(producer, "value")

    def position(self, planned: PlannedCopy) -> tuple[Block, int]:
        """Before the first op that leads to a use, in the innermost block around all uses, outside of needless loops.

        Exact: a copy moves in front of a loop only where the value is made outside of it; into a branch only where
        all uses are in it.
        """
        first = planned.uses[0]
        made_at = self.depth[planned.value]
        level = made_at
        while (
            all(len(use) > level + 1 and use[level + 1].block is first[level + 1].block for use in planned.uses)
            and not first[level + 1].in_loop
        ):
            level += 1
        return first[level].block, min(use[level].index for use in planned.uses)


def operand_device(op: Op, number: int, device: Device) -> Device:
    """The device on which an op takes an operand: its own, but some numbers are the host's."""
    return CPU if op.declared.takes_host_numbers and is_number(op.operands[number]) else device


def _why(op: Op, number: int) -> str:
    if op.declared in (PRINT, PROGRESS_START, PROGRESS_UPDATE, PROGRESS_END):
        return "print"
    if op.declared is RAISE:
        return "message"
    if op.declared in (SAVE, CALLBACK):
        return op.name
    decides = op.declared in (ASSERT, prims.INDEX_CHECK, prims.DIM)
    if decides or op.declared.kind != "launch" and operand_device(op, number, op.device) != op.device:
        return "decision"
    return {"variable_write": "variable", "to_device": "to"}.get(op.name, "value")
