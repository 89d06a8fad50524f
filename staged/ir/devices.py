"""On which device each value of a placed program lives."""

from __future__ import annotations

from staged.ir.nodes import Block, Function, Label, Op, Value
from staged.ir.types import CPU, Device
from staged.ir.views import Loop, is_condition


def value_devices(function: Function) -> dict[Value, Device]:
    """The device of every value after placement: that of the op that makes it, through loops, branches and scopes.

    Placement guarantees that all sources of a carried or yielded value are on one device.
    """
    devices: dict[Value, Device] = dict.fromkeys(function.params, CPU)
    devices.update(zip(function.params, function.param_devices, strict=False))
    targets: dict[Label, tuple[Value, ...]] = {}

    def give(results: tuple[Value, ...], sources: tuple[Value, ...]) -> None:
        for result, source in zip(results, sources, strict=False):
            devices.setdefault(result, devices.get(source, CPU))

    def visit(block: Block, results: tuple[Value, ...]) -> None:
        for op in block.ops:
            visit_op(op)
        end = block.end
        if end.kind == "yield":
            give(results, end.operands)
        elif end.is_of_loop and end.target is not None:
            give(targets[end.target], end.operands)

    def visit_op(op: Op) -> None:
        if "devices" in op.attrs:  # of a call, or of what a frame holds
            devices.update(zip(op.results, op.attrs["devices"], strict=True))
            return
        if op.declared.is_opaque or not op.blocks:
            devices.update(dict.fromkeys(op.results, op.device))
            return
        results = op.results
        if op.declared.is_loop:
            loop = Loop(op)
            for block in op.blocks:
                give(loop.carried_in(block), loop.initial)
            give(results, loop.initial)
            devices.update(dict.fromkeys(loop.indices, CPU))
        label = op.attrs.get("label")
        if isinstance(label, Label):
            targets[label] = results
        for block in op.blocks:
            visit(block, () if is_condition(op, block) else results)

    visit(function.block, ())
    return devices
