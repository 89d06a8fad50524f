"""On which device each value of a placed program lives."""

from __future__ import annotations

from staged.ir.nodes import Block, Function, Label, Op, Value
from staged.ir.storage import OPAQUE
from staged.ir.types import CPU, Device


def value_devices(function: Function) -> dict[Value, Device]:
    """The device of every value after placement: that of the op that makes it, through loops, branches and scopes.

    Placement has made sure that what a loop carries, or a branch yields, always comes from one device.
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
        elif end.kind in ("break", "continue") and end.target is not None:
            give(targets[end.target], end.operands)

    def visit_op(op: Op) -> None:
        if "devices" in op.attrs:  # of a call, or of what a frame holds
            devices.update(zip(op.results, op.attrs["devices"], strict=True))
            return
        if op.name in OPAQUE or not op.blocks:
            devices.update(dict.fromkeys(op.results, op.device))
            return
        results = op.results
        if op.name in ("for", "while"):
            skip = 3 if op.name == "for" else 0
            for block in op.blocks:
                give(block.params[skip // 3 :], op.operands[skip:])
            give(results, op.operands[skip:])
            devices.update(dict.fromkeys(op.blocks[-1].params[: skip // 3], CPU))
        label = op.attrs.get("label")
        if isinstance(label, Label):
            targets[label] = results
        for number, block in enumerate(op.blocks):
            is_condition = op.name == "while" and number == 0
            visit(block, () if is_condition else results)

    visit(function.block, ())
    return devices
