"""The structure of a program with a device: its addresses say in whose memory they are.

Tested by `tests/backends/cublas_cudnn/test_programs.py` and `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from staged.backends.c_family.expr import Expr, Literal, Name, Place, call
from staged.backends.c_family.structure import StructureEmitter
from staged.backends.gpu_family.addresses import device_of
from staged.ir.buffers import Stack
from staged.ir.nodes import Op
from staged.ir.types import CPU, Device, TensorType


class DeviceStructureEmitter(StructureEmitter):
    """Emits the body of a function of the host whose values are on the host or on devices."""

    def use(self, device: Device) -> None:
        """The calls that follow are for `device`."""

    def emit_view(self, op: Op) -> None:
        super().emit_view(op)
        self.note_place(op)

    def emit_sequence_get(self, op: Op) -> None:
        super().emit_sequence_get(op)
        self.note_place(op)

    def note_place(self, op: Op) -> None:
        """The address of the op's result is one of its device."""
        pointer = self.pointers.get(op.result)
        if isinstance(pointer, Name) and op.device != CPU:
            self.pointers[op.result] = Place(pointer, op.device)

    def begin_iteration(self, op: Op) -> None:
        super().begin_iteration(op)
        for buffer in filter(None, map(self.plan.kept.get, op.results)):
            if buffer.device != CPU:
                self.places[buffer] = Place(self.places[buffer], buffer.device)

    def pushed(self, stack: Stack, source: Expr, item_bytes: Expr, type: TensorType) -> Expr:
        if stack.device == CPU:
            return super().pushed(stack, source, item_bytes, type)
        assert device_of(source) == stack.device, "placement makes every crossing a copy of its own"
        self.settle()
        self.use(stack.device)
        item = "gpu", "host", self.site_of(stack.where), self.field(stack), source, item_bytes
        if isinstance(self.count(type), Literal):
            return call("st_device_stack_push", *item)
        return call("st_device_stack_push_part", *item, self.nbytes(type))
