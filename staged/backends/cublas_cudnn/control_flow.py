"""The control flow of a program with a device: that of C, with the launches of a loop's iteration gathered to runs.

Tested by `tests/backends/cublas_cudnn/test_graphs.py` and `tests/backends/cublas_cudnn/test_functions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.backends.cublas_cudnn.handles import DeviceHandles
from staged.backends.cublas_cudnn.runs import runs_of
from staged.backends.cublas_cudnn.structure import CudaBody
from staged.backends.host.calls import Signature
from staged.backends.host.loops import LoopFrame
from staged.backends.host.structure import ControlFlow
from staged.code.expr import Name
from staged.code.tree import ForAny
from staged.ir.nodes import Block, Op, Value
from staged.ir.structure import CALL, COPY
from staged.ir.types import CPU, Device


class CudaControlFlow(ControlFlow):
    """Emits the whole body of one function of the host."""

    def __init__(self, body: CudaBody, signatures: Mapping[str, Signature]) -> None:
        super().__init__(body, signatures, DeviceHandles(body))
        self.cuda = body
        self.of_layers = [False]
        """For each open loop, whether its iterations are layers: a library then has other weights in each of them."""

    def op(self, op: Op, block: Block) -> None:
        self.cuda.is_idle = False
        super().op(op, block)
        if op.blocks and not op.declared.is_opaque or op.declared is CALL:
            self.cuda.current = None
        if op.declared is not COPY:
            self.cuda.is_idle = False  # it may have waited on one of its ways only

    def block(self, block: Block) -> None:
        """The ops of a block. A run that reaches its end takes what the end copies, too."""
        cuda = self.cuda
        cuda.current = None  # it may be reached in several ways
        following = zip(block.ops, block.ops[1:], strict=False)
        cuda.waits_later |= {
            op for op, later in following if (source := _comes_from(op)) and source == _comes_from(later)
        }
        is_iteration = cuda.graphs is not None and cuda.c_loops and not cuda.around and not self.of_layers[-1]
        runs = runs_of(block, cuda.kernels, cuda.plan) if is_iteration else []
        starts, stops = {run.start for run in runs}, {run.stop for run in runs}
        for number, op in enumerate(block.ops):
            if number in stops:
                cuda.settle()
            if number in starts:
                cuda.steps = []
            self.op(op, block)

    # ---- loops inside of a run: they are captured, and nothing stops them ----

    def enter(self, op: Op, carried: tuple[Value, ...], counter: Name | None = None) -> LoopFrame:
        if self.cuda.steps is not None:
            self.cuda.open_loop()
        self.of_layers.append("layer" in op.attrs)
        return super().enter(op, carried, counter)

    def leave(self, op: Op, frame: LoopFrame) -> None:
        self.of_layers.pop()
        super().leave(op, frame)

    def poll(self, op: Op) -> None:
        if self.cuda.steps is None:
            super().poll(op)

    def add_loop(self, op: Op, loop: ForAny) -> None:
        if self.cuda.steps is None:
            super().add_loop(op, loop)
        else:
            self.cuda.note_loop(op, loop)

    def end(self, block: Block, owner: Op | None) -> None:
        if block.end.kind != "yield":
            self.body.settle()
        super().end(block, owner)
        self.body.settle()


def _comes_from(op: Op) -> Device | None:
    """The device of which an op is a copy to the host, of something that has elements."""
    if op.declared is not COPY or op.device != CPU or not op.operands[0].tensor.size:
        return None
    source: Device = op.attrs["source"]
    return source
