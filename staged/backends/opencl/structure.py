"""The structure of a program with a device of OpenCL: that of C, and copies between the two memories.

Tested by `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from typing import Any

from staged.backends.gpu.addresses import device_of
from staged.backends.gpu.crossings import begin_copy, device_push
from staged.backends.gpu.failures import read_records
from staged.backends.host.body import BodyEmitter
from staged.code.expr import Expr, Place, Prefix, call, member
from staged.code.types import word
from staged.ir.buffers import Buffer, Stack
from staged.ir.nodes import End, Op, Value
from staged.ir.types import CPU, Device, TensorType
from staged.source import Position

DEVICE = member("gpu", "device")


class OpenClBody(BodyEmitter):
    """Emits the body of one function of the host."""

    backend = "opencl"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.failing_devices: tuple[Device, ...] = ()
        """The devices whose kernels' reports are read wherever the program waits for them."""

    def field(self, buffer: Buffer | Stack) -> Expr:
        found = super().field(buffer)
        on_host = buffer.device == CPU or isinstance(buffer, Stack)  # whose head is the host's
        return found if on_host or isinstance(found, Place) else Place(found, buffer.device)

    def check(self, where: Position | None, checked: Expr) -> None:
        """A checked call of what reaches the device."""
        self.code.do("OCL_CHECK", self.site_of(where), checked)

    def emit_copy(self, op: Op) -> None:
        """A value crosses between host and device."""
        target, source = begin_copy(self, op, "the host" if op.device == CPU else "the device")
        self.check(op.where, self.copied(target, source, op.operands[0].tensor))
        if op.device == CPU:
            self.look_for_failures(op)

    def look_for_failures(self, op: Op | End) -> None:
        """Stop the program if a kernel has reported something by now."""
        if self.failing_devices:
            read_records(self, op, self.failing_devices)

    def copied(self, target: Expr, source: Expr, type: TensorType) -> Expr:
        return call("st_ocl_copy", DEVICE, target, source, self.nbytes(type))

    def copy(self, target: Expr, source: Expr, type: TensorType) -> None:
        if device_of(target) == CPU:
            super().copy(target, source, type)
        elif type.size:
            self.check(self.last_where, self.copied(target, source, type))

    def emit_finite_check(self, result: Value, made: Value, pointer: Expr) -> None:
        """The host reads an array of the device in its place."""
        if device_of(pointer) == CPU:
            super().emit_finite_check(result, made, pointer)
        elif result.tensor.dtype.is_float and result.tensor.size:
            self.check(self.last_where, call("st_ocl_map", DEVICE, pointer, self.nbytes(result.tensor)))
            is_finite = self.local("is_finite", word("bool"), self.finite_check(result, made, pointer))
            self.check(self.last_where, call("st_ocl_unmap", DEVICE, pointer))
            self.leave_if(Prefix("!", is_finite))

    def pushed(self, stack: Stack, source: Expr, item_bytes: Expr, type: TensorType) -> Expr:
        if stack.device == CPU:
            return super().pushed(stack, source, item_bytes, type)
        return device_push(self, stack, source, item_bytes, type)

    def before_return(self, end: End) -> None:
        self.check(end.where, call("st_ocl_finish", DEVICE))
        self.look_for_failures(end)
