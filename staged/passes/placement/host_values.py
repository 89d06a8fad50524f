"""The values of a device that the host copies in any case, so that it does not copy parts of them again.

Tested by `tests/passes/placement/test_host_values.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain

from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.nodes import Block, Function, Op, Value, walk_blocks
from staged.ir.structure import CALL, VARIABLE_WRITE
from staged.ir.types import CPU, Device, TensorType

Values = frozenset[Value]


class HostValues:
    """The values that the host prints, saves or computes with, and the ops on them that can run on the host.

    Exact: only the device of an op changes. The values in `read_on_device` stay on the device.
    """

    def __init__(self, program: Function, read_on_device: Collection[Value]) -> None:
        self.read_on_device = read_on_device
        self.pieces = _pieces_of_what_the_host_values(program)
        self.around: dict[Op, Values] = {}
        """By op, the values that the host prints or saves in its block, or in a block around it."""
        self.below: dict[Op, Values] = {}
        """By op that decides in its block, the values that the host prints or saves in blocks inside as well."""
        for function in every_function(program):
            self._visit(function.block, frozenset())

    def runs_here(self, op: Op, device_of: Callable[[Value], Device]) -> bool:
        """Return whether an op on numbers, or a view, runs on the host because the host has its operands."""
        if op in self.pieces:
            return True
        if any(result in self.read_on_device for result in op.results):
            return False
        around = self.around.get(op, frozenset())
        missing = {value for value in op.operands if device_of(value) != CPU and value not in around}
        if op.declared.is_view and not _is_number(op.operands[0]):
            return op.operands[0] not in missing
        return not missing or len(missing) == 1 and missing <= self.below.get(op, frozenset())

    def why(self, op: Op, device: Device) -> str:
        """The reason of a copy for an op of a region that runs on the host; empty for other ops."""
        if device != CPU or op.device == CPU or not (op.declared.is_view or op.declared.kind == "elementwise"):
            return ""
        return "decision" if op in self.below else "print" if op in self.around else ""

    def _visit(self, block: Block, outer: Values) -> Values:
        """Note the ops of a block. Returns the values that the host prints or saves in it and in blocks inside."""
        here = outer | frozenset(
            chain.from_iterable(op.operands for op in block.ops if any(effect.kind == "io" for effect in op.effects))
        )
        inside = here
        decided: set[Value] = set()
        for op in block.ops:
            if op.declared.is_opaque:
                continue
            for inner in op.blocks:
                inside |= self._visit(inner, here)
            if op.declared.is_control and not op.declared.is_loop:
                decided.update(op.operands)
        for op in block.ops:
            if op.declared.is_view or op.declared.kind == "elementwise":
                if here:
                    self.around[op] = here
                if inside and decided.intersection(op.results):
                    self.below[op] = inside
        return inside


def _is_number(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape


def _is_where_others_are(op: Op) -> bool:
    """Return whether an op outside of a region runs on the device of its operands."""
    declared = op.declared
    if declared.is_control or declared.is_of_sequences or declared.is_view or declared is CALL or declared.is_of_frames:
        return True
    return declared in (VARIABLE_WRITE, prims.TO_DEVICE)


def _pieces_of_what_the_host_values(program: Function) -> set[Op]:
    """The views outside of regions whose arrays the host copies as a whole in the same block, for its own computation
    or as results. One copy is enough.
    """
    found: set[Op] = set()
    for function in every_function(program):
        for block in walk_blocks(function.block):
            taken: set[Value] = set()
            for op in block.ops:
                if op.device == CPU and not _is_where_others_are(op):
                    taken.update(() if op.effects else op.operands)
            if block.end.kind == "return" and function is program and not program.options.keeps_results:
                taken.update(block.end.operands)
            wanted = set(taken)
            for op in reversed(block.ops):
                if op.declared.is_view and op.device == CPU and op.result in wanted:
                    wanted.add(op.operands[0])
                    if op.operands[0] in taken:
                        found.add(op)
    return found
