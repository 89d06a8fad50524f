"""Kernels that run in place of a library which does not support an operation on the device.

The program asks the library when it opens the device. A field of `Device` keeps the answer, and the function of the
call reads the field:

    static int h(const Device *gpu, st_host *host, int site, const float *a, const float *b, ..., float *c) {
        const float alpha = 1.0f;
        const float beta = 0.0f;
        if (gpu->product_..._is_missing) {  // cublasLt does not support it here
            CUBLAS_CHECK(site, cublasSgemm(...));
            CUDA_CHECK(site, launch_h_epilogue(gpu, bias, c));
            return ST_OK;
        }
        CUBLASLT_CHECK(site, cublasLtMatmul(...));
        return ST_OK;
    }

So calls, graphs and functions are the same in both cases. `st_note` tells the caller.

Tested by `tests/backends/cublas_cudnn/test_alternatives.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from staged.backends.cublas_cudnn.launches import launcher_of
from staged.backends.cublas_cudnn.library.call import write_call
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.kernels import NestKernels
from staged.code.writer import Names, Writer
from staged.ir.declaration import Declaration
from staged.ir.loops import Compute, Local, Nest, Operand, Statement
from staged.ir.nodes import Block, End, Op, Value
from staged.ir.structure import KERNEL, LIBRARY
from staged.ir.types import TensorType

IS_MISSING = "is_missing"
"""The end of the name of a field of `Device`: whether the library does not support the operation."""


class KernelsInstead:
    """Writes launches of such kernels, with the kernels and launchers that the program has anyway."""

    def __init__(self, nests: NestKernels, names: Names, launchers: dict[str, str]) -> None:
        self.nests = nests
        self.names = names
        self.launchers = launchers
        self.of_call: list[GpuKernel] = []
        """The kernels of the call that is being written."""

    def taken(self) -> tuple[GpuKernel, ...]:
        """Return the kernels since the last time."""
        found, self.of_call = tuple(dict.fromkeys(self.of_call)), []
        return found

    def launch_nest(
        self, w: Writer, op: Op, nest: Nest, operands: Sequence[Value], arguments: Sequence[str], type: TensorType
    ) -> None:
        """Write the launch of a nest, of these operands, with a result of this type."""
        attrs = {"name": nest.name, "fused": "", "nest": nest}
        block = op.blocks[0] if op.blocks else Block((), (), End("yield", (Value(type),)))
        self.launch(w, op, KERNEL, operands, [type], attrs, arguments, [block])

    def launch_call(
        self, w: Writer, op: Op, name: str, operands: Sequence[Value], types: Sequence[TensorType],
        arguments: Sequence[str], **attrs: Any,
    ) -> None:  # fmt: skip
        """Write the launch of a kernel of the program's own that is the `library` op called `name`."""
        self.launch(w, op, LIBRARY, operands, types, {**op.attrs, **attrs, "call": name, "name": name}, arguments)

    def launch(
        self, w: Writer, op: Op, declared: Declaration, operands: Sequence[Value], types: Sequence[TensorType],
        attrs: Mapping[str, Any], arguments: Sequence[str], blocks: Sequence[Block] = (),
    ) -> None:  # fmt: skip
        """Write the launch of the kernel of an op that is made for it, on the device and the line of `op`."""
        made = Op(declared, operands, types, attrs=attrs, blocks=blocks, device=op.device, where=op.where)
        kernel = self.nests.kernel(made, attrs["name"])
        self.of_call.append(kernel)
        write_call(w, "CUDA_CHECK", f"{launcher_of(kernel, self.launchers, self.names)}(gpu", arguments)


@contextmanager
def where_missing(w: Writer, condition: str, library: str, otherwise: str = "") -> Iterator[None]:
    """The lines that a call runs if `condition` holds: the library does not support the operation."""
    with w.block(f"if ({condition})"):
        w.comment(f"{library} does not support it on this device{otherwise}.")
        yield
        w.line("return ST_OK;")


def computed(body: list[Statement], op: Declaration, *operands: Operand) -> Local:
    """The result of an op, whose statement is added to `body`."""
    target = Local(op.name, operands[0].dtype)
    body.append(Compute(target, op, operands, {}))
    return target
