"""A program with a device of OpenCL: kernels as text that the device's compiler takes, and the host part in C.

Memory of the device is reached by addresses (OpenCL's shared virtual memory), which only kernels and copies follow. The
functions `st_ocl_...` are those of `runtime/opencl/device.c`.

Tested by `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from staged.backends.cpu.kernel_library import KernelLibrary
from staged.backends.gpu.alignment import Alignments
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.kernels import NestKernels
from staged.backends.gpu.thread_kernels import ThreadKernels, begin_launch
from staged.backends.host.body import BodyEmitter
from staged.backends.host.program import ProgramEmitter
from staged.backends.opencl.dialect import OPENCL, OPENCL_GPU
from staged.backends.opencl.structure import OpenClBody
from staged.code.expr import Expr, Items, argument, call, member
from staged.code.kernel_text import KernelText
from staged.code.writer import Names
from staged.errors import UnsupportedError
from staged.ir.buffers import DEVICE_ALIGNMENT, Plan, aligned
from staged.ir.convolutions import contraction_nest
from staged.ir.declaration import prims
from staged.ir.machine import Machine
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.structure import CONTRACTION
from staged.ir.types import CPU, Device
from staged.source import Position


class OpenClKernels:
    """The kernels of a program: for its host in C, for its device in OpenCL C."""

    def __init__(
        self, machine: Machine, names: Names, site: Callable[[Position | None], int], function: Function
    ) -> None:
        names.used |= OPENCL.reserved
        self.host = KernelLibrary(machine, names, site)
        self.nests = NestKernels(names, OPENCL, OPENCL_GPU, site, function.options, Alignments(function))
        self.thread_kernels = ThreadKernels(names, OPENCL, site)

    def kernel(self, op: Op) -> KernelText:
        """The text for an op that is one step. Raises UnsupportedError, with the Python line, for what has none."""
        if op.device == CPU:
            return self.host.kernel(op)
        if op.declared is prims.GPU_FUNC:
            return self.thread_kernels.kernel(op)
        if op.declared is prims.CUSTOM_LAUNCH:
            raise UnsupportedError(
                f"`{op.attrs['function'].name}` has a form for CUDA, and this program is OpenCL's",
                where=op.where,
                hint="the first region is to say so, `with_backend(GPU, using='opencl')`: then it runs on the host",
            )
        name = str(op.attrs.get("name") or "kernel")
        if op.declared is CONTRACTION:
            op = op.replace(attrs={**op.attrs, "nest": contraction_nest(op, name)})
        return self.nests.kernel(op, name)


class OpenClProgram(ProgramEmitter):
    """One program with a device: its kernels, and what it has on the device."""

    backend = "opencl"
    language = "opencl"
    body_class = OpenClBody
    release_comment = "Gives back what the program has on the device; call it before the arena goes."

    def __init__(self, function: Function, machine: Machine, check_nan: bool) -> None:
        def kernels(machine: Machine, names: Names, site: Callable[[Position | None], int]) -> OpenClKernels:
            return OpenClKernels(machine, names, site, function)

        super().__init__(function, machine, kernels, check_nan)
        self.names.used |= {"Device", "gpu", "open_device", "close_device", "kernels", "OCL_CHECK", "wait_for_device"}
        self.names.used |= {"forget_stack"}
        self.on_device: list[GpuKernel] = []
        """The kernels of the device, in the order of their first launch."""
        self.device = next(op.device for op in walk_ops(function.block) if op.device != CPU)

    # ---- launches ----

    def call_kernel(self, structure: BodyEmitter, op: Op, inputs: list[Expr], outputs: list[Expr]) -> None:
        kernel = self.kernels[op]
        if not isinstance(kernel, GpuKernel):
            super().call_kernel(structure, op, inputs, outputs)
            return
        assert isinstance(structure, OpenClBody)
        arguments = [*inputs, *outputs]
        if kernel.launch is None:  # the user's
            given = begin_launch(structure, op, inputs, outputs)
            arguments = [Items(tuple(map(argument, op.attrs["grid"])), "const size_t[]"), *given]
        if 0 in op.attrs["grid"] if kernel.launch is None else kernel.launch.items == 0:
            return  # of no elements
        if kernel.name not in {each.name for each in self.on_device}:
            self.on_device.append(kernel)
        structure.check(op.where, call(self.launcher_name(kernel), "gpu", *arguments))

    @staticmethod
    def launcher_name(kernel: GpuKernel) -> str:
        return f"launch_{kernel.name.removesuffix('_kernel')}"

    # ---- what the program has on the device ----

    def new_structure(self, function: Function, plan: Plan) -> BodyEmitter:
        structure = super().new_structure(function, plan)
        structure.local_names.used |= {"gpu", "m"}
        assert isinstance(structure, OpenClBody)
        structure.failing_devices = (self.device,) if self.kernels_may_fail else ()
        return structure

    @property
    def kernels_may_fail(self) -> bool:
        """Return whether what runs on the device may find that the program must stop."""
        return any(kernel.can_fail for kernel in self.kernels.values() if isinstance(kernel, GpuKernel))

    @property
    def values_bytes(self) -> int:
        """Bytes of the values on the device; the workspace of kernels is behind them."""
        return aligned(self.device_values.get(self.device, 0), DEVICE_ALIGNMENT)

    @property
    def failures_offset(self) -> int:
        """The offset on the device of the record of failures: behind values and workspace."""
        kernels = (kernel for kernel in self.kernels.values() if isinstance(kernel, GpuKernel))
        return self.values_bytes + aligned(max((kernel.workspace_bytes for kernel in kernels), default=0))

    @property
    def memory_bytes(self) -> int:
        return self.failures_offset + (aligned(1) if self.kernels_may_fail else 0)

    def arena_start(self, device: Device) -> Expr:
        return super().arena_start(device) if device == CPU else member("gpu", "memory")

    def device_offset(self) -> int:
        """The offset in the host's arena of the struct of device objects."""
        return super().arena_bytes()

    def arena_bytes(self) -> int:
        return self.device_offset() + aligned(8 * (5 + len(self.kernels)))

    def whole_plan(self) -> Plan:
        return replace(super().whole_plan(), device_bytes={self.device: self.memory_bytes})

    def has_release(self) -> bool:
        return True
