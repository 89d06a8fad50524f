"""Handles whose elements are on a device (`sequences.py`).

Tested by `tests/backends/cublas_cudnn/test_second_derivatives.py`.
"""

from __future__ import annotations

from staged.backends.cublas_cudnn.sequences import adder
from staged.backends.cublas_cudnn.structure import CudaBody
from staged.backends.host.body import FRAMES, placed
from staged.backends.host.counts import signed
from staged.backends.host.handles import Handles
from staged.code.expr import Argument, Expr, call
from staged.ir.nodes import Op, Value
from staged.ir.types import CPU, SequenceType, TensorType


class DeviceHandles(Handles):
    """Emits handles whose elements are on a device."""

    def __init__(self, body: CudaBody) -> None:
        super().__init__(body)
        self.device = body

    def sequence_call(self, name: str, value: Value, *arguments: Argument) -> Expr:
        device = self.device.home_of_elements(value)
        assert isinstance(value.type, SequenceType)
        is_outer = isinstance(value.type.element, SequenceType)
        if device == CPU or (is_outer and name in ("make", "take")):
            return super().sequence_call(name, value, *arguments)
        self.device.need("sequence", "frames")
        self.device.use(device)
        self.device.sequence_texts.calls.add(name)
        frames = (FRAMES,) if name in ("zeros", "copy") else ()
        site = self.device.site_of(self.device.last_where)
        return call(f"st_device_sequence_{name}", "gpu", "host", site, *frames, *arguments)

    def slot(self, op: Op, result: Value, type: TensorType) -> Expr:
        slot = super().slot(op, result, type)
        return placed(slot, self.device.home_of_elements(result))

    def add_numbers(self, op: Op, target: Expr, source: Expr, type: TensorType) -> None:
        device = self.device.homes.get(op.result, CPU)
        if device == CPU:
            super().add_numbers(op, target, source, type)
            return
        self.device.use(device)
        self.device.sequence_texts.adds(type.dtype, nested=False)
        add = call(f"launch_{adder(type.dtype)}", "gpu", target, source, signed(self.device.count(type)))
        self.device.code.do("CUDA_CHECK", self.device.site_of(op.where), add)

    def add_sequences(self, op: Op, target: Expr, source: Expr, type: SequenceType) -> None:
        device = self.device.home_of_elements(op.result)
        if device == CPU:
            super().add_sequences(op, target, source, type)
            return
        depth, _, element = self.innermost(type)
        assert isinstance(element, TensorType)
        self.device.use(device)
        self.device.sequence_texts.adds(element.dtype, nested=True)
        given = "gpu", "host", self.device.site_of(op.where), target, source, depth, element.size
        self.device.try_(call(f"st_device_sequence_add_{element.dtype}", *given))
