"""The kernels that a program has for loop nests: one for each kernel op, equal ones once."""

from __future__ import annotations

from dataclasses import replace

from staged.backends.gpu.alignment import Alignments
from staged.backends.gpu.attention.ways import KERNELS
from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.nest.kernel import emit_kernel
from staged.code.expr import Expr
from staged.code.kernel_text import Site
from staged.code.shape import shape_of
from staged.code.writer import Names
from staged.ir.machine import Gpu
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.structure import LIBRARY


class NestKernels:
    """Writes each distinct kernel once, whatever lines it comes from."""

    def __init__(
        self,
        names: Names,
        dialect: GpuDialect,
        gpu: Gpu,
        site: Site,
        options: DeviceOptions,
        alignments: Alignments,
    ) -> None:
        self.names = names
        self.dialect = dialect
        self.gpu = gpu
        self.site = site
        self.options = options
        self.alignments = alignments
        self.known: dict[object, GpuKernel] = {}
        """Kernels by what they do."""

    def kernel(self, op: Op, name: str) -> GpuKernel:
        """The kernel of an op with a nest, or of one that is not written as a nest."""
        # With a suffix of its own: a kernel's name is visible to the linker, where libraries have plain names.
        chosen = self.names.fresh(name, "_kernel")
        if op.declared is LIBRARY:
            made = KERNELS[op.attrs["call"]](op, chosen, self.gpu, self.dialect)
        else:
            alignment = self.alignments.of_arrays(op)
            made = emit_kernel(op, chosen, self.gpu, self.dialect, self.site, self.options, alignment)
        first = self.known.setdefault(_shape_of(made, self.dialect), made)
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


def _shape_of(kernel: GpuKernel, dialect: GpuDialect) -> object:
    """The identity of a kernel: all but comments and its own names, and the launch."""
    assert kernel.code is not None and kernel.launch is not None
    shape, numbered = shape_of(kernel.code, dialect)

    def number(expr: Expr | None) -> str:
        return "" if expr is None else numbered(expr)

    types = tuple(c_type for c_type, _ in kernel.parameters)
    copies = tuple(tuple(map(number, (copy.target, copy.source, copy.size))) for copy in kernel.copies)
    counts = number(kernel.launch.count), number(kernel.launch.grid)
    launch = replace(kernel.launch, how="", count=None, grid=None)
    return shape, types, launch, counts, copies, kernel.workspace_bytes
