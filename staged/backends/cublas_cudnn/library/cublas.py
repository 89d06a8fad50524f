"""Matrix products by cuBLAS.

cuBLAS knows column-major matrices alone. A row-major (m, k) is the same memory as a column-major (k, m), its transpose,
and (A B)^T = B^T A^T: so the operands change places, transposes become flags, and nothing is copied.

| product                    | call                                        |
|----------------------------|---------------------------------------------|
| (m, k) @ (k, n)            | gemm                                        |
| (b, m, k) @ (b, k, n)      | gemmStridedBatched                          |
| a vector on one side       | gemv, gemvStridedBatched                    |
| a vector on both           | dot, whose result stays on the device       |

    c = alpha * product + beta * c

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from staged.backends.cublas_cudnn.device import DevicePart, Field, check, check_macro, destroy
from staged.backends.cublas_cudnn.library.call import (
    LibraryCall,
    library_call,
    scale_of,
    size_text,
    unused,
    write_call,
    write_zeros,
)
from staged.backends.cublas_cudnn.library.form import Form
from staged.code.writer import Writer
from staged.errors import UnsupportedError
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.sizes import Dim, Extent
from staged.ir.sizes import product as product_of
from staged.ir.types import bound

WORKSPACE_BYTES = "CUBLAS_WORKSPACE_BYTES"
"""The name of the size, in the text, of the memory that cuBLAS may use."""
_NBYTES = 4 << 20
_WORKSPACE = f"""\
// Memory that products work in. The program's own, so that cuBLAS allocates none: not in a loop, nor in a graph.
#define {WORKSPACE_BYTES} {_NBYTES}
"""
LARGEST = 2**31 - 1
"""Sizes are of type int."""

CHECK = check_macro(
    "The same for calls of cuBLAS.", "cublas", "cublasStatus_t", "CUBLAS_STATUS_SUCCESS", "cublasGetStatusString"
)


def workspace_part(site: int) -> DevicePart:
    """The memory that cuBLAS and cublasLt work in, one call after the other."""
    return DevicePart(
        (Field("void *cublas_workspace;"),),
        (check("CUDA_CHECK", site, f"cudaMalloc(&gpu->cublas_workspace, {WORKSPACE_BYTES})"),),
        ("(void)cudaFree(gpu->cublas_workspace);",),
        checks=(_WORKSPACE,),
        beside=(("workspace of cuBLAS", _NBYTES),),
    )


def handle_part(site: int, options: DeviceOptions) -> DevicePart:
    """The handle of cuBLAS, on the program's stream and with its workspace."""
    # f32 stays f32 unless a program says otherwise.
    math = [check("CUBLAS_CHECK", site, "cublasSetMathMode(gpu->cublas, CUBLAS_TF32_TENSOR_OP_MATH)")]
    workspace = f"cublasSetWorkspace(gpu->cublas, gpu->cublas_workspace, {WORKSPACE_BYTES})"
    return DevicePart(
        (Field("cublasHandle_t cublas;"),),
        (
            check("CUBLAS_CHECK", site, "cublasCreate(&gpu->cublas)"),
            check("CUBLAS_CHECK", site, "cublasSetStream(gpu->cublas, gpu->stream)"),
            check("CUBLAS_CHECK", site, workspace),
            *(math if options.tf32 else []),
        ),
        destroy("gpu->cublas", "cublasDestroy(gpu->cublas)"),
        ("cublas_v2.h",),
        ("cublas",),
        checks=(CHECK,),
    )


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product: c (batch, m, n) = a (batch, m, k) @ b (batch, k, n), of which a flag says it is stored
    transposed.
    """

    batch: Extent
    m: Extent
    n: Extent
    k: Extent
    transpose_a: bool
    transpose_b: bool
    letter: str
    """cuBLAS's letter for the dtype: S or D."""

    @staticmethod
    def of(op: Op) -> Product:
        """The product of a contraction op. Raises UnsupportedError for sizes that no `int` holds."""
        a, b = (operand.tensor.shape for operand in op.operands[:2])
        transpose_a, transpose_b = (bool(op.attrs.get(f"transpose_{name}", False)) for name in "ab")
        m, k = (a[-1], a[-2]) if transpose_a else (a[-2], a[-1])
        n = b[-2] if transpose_b else b[-1]
        batch = product_of(a[:-2])
        if max(map(bound, (batch, m, n, k))) > LARGEST:
            raise UnsupportedError(
                f"cuBLAS takes sizes up to {LARGEST:,}, got {op.operands[0].type} @ {op.operands[1].type}",
                where=op.where,
                hint="split the product into several",
            )
        letter = {"f32": "S", "f64": "D"}[op.operands[0].tensor.dtype.name]
        return Product(batch, m, n, k, transpose_a, transpose_b, letter)

    @property
    def is_static(self) -> bool:
        """Return whether all of its sizes are numbers."""
        return all(isinstance(extent, int) for extent in (self.batch, self.m, self.n, self.k))

    @property
    def name(self) -> str:
        """The routine that computes it."""
        if self.is_dot:
            return f"cublas{self.letter}dot"
        kind = "gemv" if self.has_vector else "gemm"
        return f"cublas{self.letter}{kind}{'StridedBatched' if self.batch != 1 else ''}"

    @property
    def has_vector(self) -> bool:
        """Return whether a side of the product is a vector."""
        return 1 in (self.m, self.n)

    @property
    def is_dot(self) -> bool:
        """Return whether both are, once."""
        return self.m == self.n == self.batch == 1

    def __str__(self) -> str:
        def side(rows: str, columns: str, is_turned: bool) -> str:
            batch = f"{self.batch}, " if self.batch != 1 else ""
            return f"({batch}{columns}, {rows}) transposed" if is_turned else f"({batch}{rows}, {columns})"

        m, n, k = map(str, (self.m, self.n, self.k))
        return f"{side(m, k, self.transpose_a)} @ {side(k, n, self.transpose_b)}"

    # ---- arguments ----

    def size(self, name: str) -> str:
        """An extent as C."""
        extent = getattr(self, name)
        text = size_text(extent)
        return text if isinstance(extent, int) else f"(int){text}" if isinstance(extent, Dim) else f"(int)({text})"

    def flag(self, is_turned: bool) -> str:
        return "CUBLAS_OP_T" if is_turned else "CUBLAS_OP_N"

    def gemm(self) -> list[str]:
        """The arguments of (strided batched) gemm: as columns go, b is (n, k) and a is (k, m)."""
        strides = (self.k * self.n, self.m * self.k, self.m * self.n) if self.batch != 1 else None
        return [
            self.flag(self.transpose_b), self.flag(self.transpose_a), *map(self.size, "nmk"), "&alpha",
            *self.matrix("b", self.k if self.transpose_b else self.n, strides and strides[0]),
            *self.matrix("a", self.m if self.transpose_a else self.k, strides and strides[1]), "&beta",
            *self.matrix("c", self.n, strides and strides[2]),
            *([self.size("batch")] if strides else []),
        ]  # fmt: skip

    def gemv(self) -> list[str]:
        """The arguments of (strided batched) gemv: the matrix is the operand that is not a vector."""
        if self.n == 1:
            # c = A b. A row-major A (m, k) is column-major (k, m): the flag means its transpose.
            flag, rows, columns = not self.transpose_a, "k", "m"
            matrix, vector, out = "a", "b", self.m
            if self.transpose_a:
                rows, columns = "m", "k"
        else:
            # c = B^T a.
            flag, rows, columns = self.transpose_b, "n", "k"
            matrix, vector, out = "b", "a", self.n
            if self.transpose_b:
                rows, columns = "k", "n"
        batched = self.batch != 1
        leading, across = getattr(self, rows), getattr(self, columns)
        return [
            self.flag(flag), self.size(rows), self.size(columns), "&alpha",
            *self.matrix(matrix, leading, leading * across if batched else None),
            *self.matrix(vector, 1, self.k if batched else None), "&beta",
            *self.matrix("c", 1, out if batched else None),
            *([self.size("batch")] if batched else []),
        ]  # fmt: skip

    def matrix(self, name: str, leading: Extent, stride: Extent | None) -> list[str]:
        """A matrix (or vector) with its leading dimension (or step), and the distance of those of a batch."""
        step = max(leading, 1) if isinstance(leading, int) else leading  # nothing is called for a size of 0
        found = [name, str(step) if isinstance(step, int) else f"(int)({size_text(step)})"]
        return found if stride is None else [*found, size_text(stride)]


def emit_product(op: Op, name: str, site: int, form: Form, options: DeviceOptions) -> LibraryCall:
    """The call for a matrix product of floats whose epilogue is linear."""
    product = Product.of(op)
    dtype = op.operands[0].tensor.dtype
    c_type = dtype.c_name
    alpha, beta = scale_of(form.alpha, dtype), scale_of(form.beta, dtype)
    is_empty = 0 in (product.batch, product.m, product.n)

    def made(name: str, reads_numbers: bool) -> LibraryCall:
        def body(w: Writer) -> None:
            if is_empty:
                unused(w, "a", "b")
                write_zeros(w, op)  # of no elements
                return
            write_empty(w, op, product, form)
            if product.is_dot and form == Form():
                # The result stays on the device: the host has no use for it.
                with numbers_on_device(w):
                    w.line(f"CUBLAS_CHECK(site, {product.name}(gpu->cublas, {product.size('k')}, a, 1, b, 1, c));")
                return
            if reads_numbers:
                with numbers_on_device(w):
                    write_product(w, product, numbers=("alpha", "beta"))
                return
            w.line(f"const {c_type} alpha = {alpha};")
            w.line(f"const {c_type} beta = {beta};")
            write_product(w, product)

        parts = [workspace_part(site), handle_part(site, options)]
        return library_call(op, name, form, [f"{product}, by {product.name}"], body, parts, reads_numbers)

    call = made(name, False)
    if is_empty or not (form.alpha.params or form.beta.params):
        return call
    return replace(call, factors=(alpha, beta), reading=lambda name: made(name, True))


def write_empty(w: Writer, op: Op, product: Product, form: Form) -> None:
    """The end of a call whose sizes the program finds, if one of them is 0."""
    results = [size_text(each) for each in (product.batch, product.m, product.n) if not isinstance(each, int)]
    if results:
        with w.block(f"if ({' || '.join(f'{each} == 0' for each in results)})"):
            w.line("return ST_OK;")
    if not isinstance(product.k, int):
        with w.block(f"if ({size_text(product.k)} == 0)"):
            if form.addend is None:
                write_zeros(w, op)  # sums of nothing
            w.line("return ST_OK;")


def write_product(w: Writer, product: Product, numbers: tuple[str, str] = ("&alpha", "&beta")) -> None:
    """The call for `c = alpha * product + beta * c`, with the addresses of these numbers."""
    arguments = product.gemv() if product.has_vector else product.gemm()
    given = dict(zip(("&alpha", "&beta"), numbers, strict=True))
    routine = product.name.replace("dot", "gemv")
    write_call(w, "CUBLAS_CHECK", f"{routine}(gpu->cublas", [given.get(each, each) for each in arguments])


@contextmanager
def numbers_on_device(w: Writer) -> Iterator[None]:
    """Lines whose calls of cuBLAS read and write numbers there."""
    w.line("CUBLAS_CHECK(site, cublasSetPointerMode(gpu->cublas, CUBLAS_POINTER_MODE_DEVICE));")
    yield
    w.line("CUBLAS_CHECK(site, cublasSetPointerMode(gpu->cublas, CUBLAS_POINTER_MODE_HOST));")
