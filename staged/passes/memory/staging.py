"""Temporaries for values that are passed on into each other's places at once.

Tested by `tests/passes/memory/test_plan.py`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from staged.ir.buffers import Buffer
from staged.ir.nodes import Block, End, Function, Value
from staged.ir.storage import is_tensor, root_of, structural_blocks, structural_ops
from staged.ir.types import CPU, Device
from staged.ir.views import Loop
from staged.passes.memory.liveness import Liveness


def staging_buffers(
    function: Function,
    live: Liveness,
    place: Mapping[Value, Buffer],
    outputs: Sequence[Buffer | None],
    devices: Mapping[Value, Device],
    chained: Container[Value] = (),
) -> dict[tuple[object, int], Buffer]:
    """`a, b = b, a`: a temporary for each operand of an end whose buffer that end writes to, by the end and the
    operand's number.

    `place` has the buffer of each value, `outputs` that of each result of the function. No end writes to
    the parameters that are `chained`.
    """
    staging: dict[tuple[object, int], Buffer] = {}

    def stage(block: Block, end: End, index: int, like: Value) -> None:
        type, position = like.tensor, live.block_end[block]
        buffer = Buffer(f"{like.hint or 't'}_next", type, "arena", type.nbytes, purpose="temporary")
        buffer.intervals = [(position, position)]
        buffer.device = devices.get(like, CPU)
        staging[end, index] = buffer

    for block in structural_blocks(function.block):
        if block.end.kind != "return":
            continue
        sources = [place.get(root_of(operand)) if is_tensor(operand) else None for operand in block.end.operands]
        # The places of results that are copied there: what another result has yet to be read from is taken aside.
        written = {output for output, source in zip(outputs, sources, strict=True) if output and source is not output}
        for index, (operand, source) in enumerate(zip(block.end.operands, sources, strict=True)):
            if source in written and source is not outputs[index]:
                stage(block, block.end, index, operand)
    for op in structural_ops(function.block):
        if not op.declared.is_loop:
            continue
        loop = Loop(op)
        targets = {place[param] for param in loop.carried if param in place and param not in chained}
        for block, end in loop.ends():
            for index, param in enumerate(loop.carried):
                if param not in place or param in chained:
                    continue
                source = place.get(root_of(end.operands[index]))
                if source is not None and source is not place[param] and source in targets:
                    stage(block, end, index, param)
    return staging
