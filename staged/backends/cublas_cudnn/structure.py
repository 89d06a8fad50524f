"""The structure of a program with a device: that of C, and copies between the two memories."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from staged.backends.c_family.expr import Expr, Member, Name, Prefix
from staged.backends.c_family.structure import StructureEmitter
from staged.errors import UnsupportedError
from staged.ir.buffers import Buffer, Stack
from staged.ir.nodes import End, Op
from staged.ir.order import is_tensor
from staged.ir.types import CPU, TensorType

DEVICE_BUFFERS = "d"
"""The struct of the device's buffers in the text; the host's is `m`."""


class CudaStructureEmitter(StructureEmitter):
    """Emits the body of one function of the host."""

    backend = "cublas_cudnn"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local_names.used |= {DEVICE_BUFFERS, "m", "gpu", "base", "buffers", "device_buffers"}
        self.device_views: set[str] = set()

    def field(self, buffer: Buffer | Stack) -> Expr:
        if isinstance(buffer, Buffer) and buffer.kind == "arena" and buffer.device != CPU:
            return Member(Name(DEVICE_BUFFERS), self.fields[buffer])
        return super().field(buffer)

    def is_on_device(self, pointer: Expr) -> bool:
        """Whether an expression points into the device's memory."""
        match = re.match(r"\(*(\w+)(?:->(\w+))?", str(pointer))
        assert match is not None
        if match[1] == "args":
            return match[2] in self.device_arguments
        return match[1] in self.device_views or (match[1] == DEVICE_BUFFERS and match[2] is not None)

    @cached_property
    def device_arguments(self) -> set[str]:
        """The fields of the arguments that point into a device's memory."""
        pinned = ("input", "variable")
        return {self.fields[b] for b in self.plan.buffers if b.kind in pinned and b.device != CPU}

    def check(self, op: Op | End, call: str) -> None:
        """A checked CUDA call."""
        self.w.line(f"CUDA_CHECK({self.site_of(op.where)}, {call});")

    def emit_view(self, op: Op) -> None:
        super().emit_view(op)
        pointer = self.pointers[op.result]
        if isinstance(pointer, Name) and op.device != CPU:
            self.device_views.add(pointer.text)

    def emit_sequence_get(self, op: Op) -> None:
        super().emit_sequence_get(op)
        pointer = self.pointers.get(op.result)
        if isinstance(pointer, Name) and op.device != CPU:
            self.device_views.add(pointer.text)

    def pushed(self, stack: Stack, source: Expr, item_bytes: str, type: TensorType) -> str:
        if stack.device == CPU:
            return super().pushed(stack, source, item_bytes, type)
        assert self.is_on_device(source), "placement makes every crossing a copy of its own"
        return f"st_device_stack_push(gpu, host, {self.site_of(stack.where)}, {self.field(stack)}, {source}, {item_bytes})"

    def emit_kernel_call(self, op: Op) -> None:
        if self.check_nan and op.device != CPU:
            raise UnsupportedError(
                "`check_nan` does not look into GPU regions yet", where=op.where, hint="stage it without `check_nan`"
            )
        super().emit_kernel_call(op)

    # ---- copies ----

    def emit_copy(self, op: Op) -> None:
        """A value crosses between host and device."""
        (value,) = op.operands
        result, source = op.result, self.pointer(value)
        self.where(op.where)
        to_host = op.device == CPU
        self.w.comment(f"{op.attrs['what']}: {'to the host' if to_host else 'to the device'} ({op.attrs['why']})")
        if is_tensor(result):
            target = self.pointer(result)
        else:
            local = self.name(result.hint)
            self.w.line(f"{self.c_type(result)} {local};")
            self.scalars[result] = Name(local)
            target = Prefix("&", Name(local))
        self.copy_between(op, target, source, value.tensor, "DeviceToHost" if to_host else "HostToDevice")
        if to_host and value.tensor.size:
            self.check(op, "cudaStreamSynchronize(gpu->stream)")

    def copy_between(self, op: Op | End, target: Expr, source: Expr, type: TensorType, direction: str) -> None:
        if type.size:
            count = f"{type.size} * " if type.size != 1 else ""
            size = f"{count}sizeof({type.dtype.c_name})"
            self.check(op, f"cudaMemcpyAsync({target}, {source}, {size}, cudaMemcpy{direction}, gpu->stream)")

    def copy(self, target: Expr, source: Expr, type: TensorType) -> None:
        if not self.is_on_device(target):
            super().copy(target, source, type)
            return
        assert self.is_on_device(source), "placement makes every crossing a copy of its own"
        size = f"{type.size} * sizeof({type.dtype.c_name})"
        self.w.line(
            f"CUDA_CHECK({self.site_of(self.last_where)}, "
            f"cudaMemcpyAsync({target}, {source}, {size}, cudaMemcpyDeviceToDevice, gpu->stream));"
        )

    def before_return(self, end: End) -> None:
        self.check(end, "cudaStreamSynchronize(gpu->stream)")
