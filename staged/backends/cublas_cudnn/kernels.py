"""The kernels of a program: one for each kernel op, equal ones once; calls of libraries where these do the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staged.backends.c_family.code.shape import shape_of
from staged.backends.c_family.expr import Expr
from staged.backends.c_family.kernel_text import KernelText, Site
from staged.backends.c_family.writer import Names
from staged.backends.cublas_cudnn.dialect import CUDA
from staged.backends.cublas_cudnn.host_kernels import HostKernels
from staged.backends.cublas_cudnn.library.contraction import Contractions
from staged.backends.gpu_family.kernel_text import GpuKernel
from staged.backends.gpu_family.nest.kernel import emit_kernel
from staged.backends.gpu_family.thread_kernels import ThreadKernels
from staged.ir.declaration import prims
from staged.ir.machine import Gpu, Machine
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.products import product_nest
from staged.ir.structure import CONTRACTION, LIBRARY
from staged.ir.types import CPU


class CudaLibrary:
    """Emits each kernel of a program: for its host in C, for its device in CUDA or as a call of a library."""

    def __init__(self, machine: Machine, names: Names, site: Site, options: DeviceOptions, gpu: Gpu) -> None:
        self.machine = machine
        self.gpu = gpu
        self.names = names
        self.options = options
        self.names.used |= CUDA.reserved
        self.site = site
        self.contractions = Contractions(names, site, options)
        self.host = HostKernels(machine, names, site)
        self.thread_kernels = ThreadKernels(names, CUDA, site)
        self.known: dict[object, GpuKernel] = {}
        """Kernels by what they do: equal ones are compiled once, whatever lines they come from."""

    def kernel(self, op: Op) -> KernelText:
        """The text for an op that is one step. Raises UnsupportedError, with the Python line, for what has none."""
        if op.declared is prims.GPU_FUNC:
            return self.thread_kernels.kernel(op)
        if op.declared is LIBRARY:
            return self.contractions.whole(op)
        name = str(op.attrs.get("name") or "kernel")
        if op.device == CPU:
            return self.host.kernel(op)
        if op.declared is CONTRACTION:
            call = self.contractions.call(op, name)
            if call is not None:
                return call
            op = op.replace(attrs={**op.attrs, "nest": product_nest(op, name)})
        # With a suffix of its own: a kernel's name is visible to the linker, where libraries have plain names.
        chosen = self.names.fresh(name, "_kernel")
        made = emit_kernel(op, chosen, self.gpu, CUDA, self.site, self.options)
        first = self.known.setdefault(_shape_of(made), made)
        if first is made:
            return made
        self.names.used.discard(chosen)
        return replace(
            made,
            name=first.name,
            text=first.text,
            parameters=first.parameters,
            launch=first.launch,
            copies=first.copies,
            code=first.code,
        )


def _shape_of(kernel: GpuKernel) -> object:
    """What two kernels must share to be one: all but comments and names of their own, and the launch."""
    assert kernel.code is not None and kernel.launch is not None
    shape, numbered = shape_of(kernel.code, CUDA)

    def number(expr: Expr | None) -> str:
        return "" if expr is None else numbered(expr)

    types = tuple(c_type for c_type, _ in kernel.parameters)
    copies = tuple(tuple(map(number, (copy.target, copy.source, copy.size))) for copy in kernel.copies)
    counts = number(kernel.launch.count), number(kernel.launch.grid)
    launch = replace(kernel.launch, how="", count=None, grid=None)
    return shape, types, launch, counts, copies, kernel.workspace_bytes


def needs_of(kernels: Sequence[KernelText]) -> frozenset[str]:
    """The support functions that the device's kernels use."""
    return frozenset(name for kernel in kernels if isinstance(kernel, GpuKernel) for name in kernel.snippets)
