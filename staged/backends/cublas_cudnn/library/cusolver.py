"""Cholesky factors by cuSOLVER: real matrices of a fixed size, from a size on.

It has matrices by columns, so the lower triangle by rows is its upper one. The matrices of a batch are factored one
after the other, where our own kernels take a row of all of them: so larger batches are theirs. No device has measured
either bound.

Tested by `tests/backends/cublas_cudnn/test_cusolver.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan, prod

from staged.backends.c_family.writer import Writer
from staged.backends.cublas_cudnn.device import DevicePart, Field, check, check_macro, destroy
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.ir.nodes import Block, Op
from staged.ir.types import TensorType, bound, f32, f64, i32
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.library import FindWay, Way, library_call
from staged.ops.record import RecordContext
from staged.ops.source import iota, tril

CHOLESKY = "cholesky"
POTRF = "cusolver_potrf"
"""The call of a `library` op."""
LEAST, LARGEST = 32, 20_000
"""Columns of the matrices that it is given."""
ROWS_PER_MATRIX = 8
"""A batch has at most one matrix for so many rows."""

_WORDS = """\
// cuSOLVER has no texts for its statuses.
static const char *cusolver_words(cusolverStatus_t status) {
    switch (status) {
    case CUSOLVER_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUSOLVER_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUSOLVER_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed";
    case CUSOLVER_STATUS_ARCH_MISMATCH: return "the device cannot do this";
    case CUSOLVER_STATUS_EXECUTION_FAILED: return "the program failed on the device";
    default: return "an internal operation failed";
    }
}
"""
_CHECK = check_macro(
    "The same for calls of cuSOLVER.", "cusolver", "cusolverStatus_t", "CUSOLVER_STATUS_SUCCESS", "cusolver_words"
)


def forward(op: Op, block: Block) -> Way | None:
    """`cholesky`, where cuSOLVER has it and probably is faster than our own kernels."""
    type = op.operands[0].tensor
    if type.dtype not in (f32, f64) or not all(isinstance(extent, int) for extent in type.shape):
        return None
    *batch, n = (bound(extent) for extent in type.shape[:-1])
    if not LEAST <= n <= LARGEST or not 0 < prod(batch) <= max(1, n // ROWS_PER_MATRIX):
        return None
    return Way(_write)


def _write(context: RecordContext, x: Array) -> Sequence[Array]:
    types = [x.type, TensorType(i32, (*x.shape[:-2], 1, 1))]
    # The other triangle, which it leaves alone, is 0.
    factor, minor = library_call(POTRF, [tril(x)], types, ("factor", "info"))
    n = bound(x.shape[-1])
    # Not positive definite: NaN from there on, which the check of the diagonal finds.
    rows, columns = iota((n, 1), 0), iota((1, n), 1)
    return [where((minor > 0) & (columns >= minor - 1) & (columns <= rows), nan, factor)]


WAYS: Mapping[str, FindWay] = {CHOLESKY: forward}


def handle_part(site: int) -> DevicePart:
    """The handle of cuSOLVER, on the program's stream."""
    return DevicePart(
        (Field("cusolverDnHandle_t cusolver;"),),
        (
            check("CUSOLVER_CHECK", site, "cusolverDnCreate(&gpu->cusolver)"),
            check("CUSOLVER_CHECK", site, "cusolverDnSetStream(gpu->cusolver, gpu->stream)"),
        ),
        destroy("gpu->cusolver", "cusolverDnDestroy(gpu->cusolver)"),
        ("cublas_v2.h", "cusolverDn.h"),
        ("cublas", "cusolver"),  # whose header needs that of cuBLAS
        checks=(_WORDS, _CHECK),
    )


def workspace_part(site: int) -> DevicePart:
    """The memory that its functions work in, one after the other."""
    allocate = check("CUDA_CHECK", site, "cudaMalloc(&gpu->cusolver_workspace, gpu->cusolver_workspace_bytes)")
    return DevicePart(
        (Field("void *cusolver_workspace;"), Field("size_t cusolver_workspace_bytes;", "what the largest call needs")),
        ("if (gpu->cusolver_workspace_bytes > 0) {", f"    {allocate}", "}"),
        ("(void)cudaFree(gpu->cusolver_workspace);",),
        # Only then is it known how much.
        order=2,
        beside=(("workspace of cuSOLVER", None),),
    )


def emit_cholesky(op: Op, name: str, site: int) -> LibraryCall:
    """The call for the factors of a batch."""
    type = op.operands[0].tensor
    *batch, n = (bound(extent) for extent in type.shape[:-1])
    routine = f"cusolverDn{'S' if type.dtype is f32 else 'D'}potrf"
    size = f"potrf_{type.dtype}_{n}"
    asked = f"{routine}_bufferSize(gpu->cusolver, CUBLAS_FILL_MODE_UPPER, {n}, NULL, {n}, &gpu->{size})"
    needed = f"(size_t)gpu->{size} * sizeof({type.dtype.c_name})"
    size_part = DevicePart(
        (Field(f"int {size};", "elements of its workspace"),),
        (
            check("CUSOLVER_CHECK", site, asked),
            f"if (gpu->cusolver_workspace_bytes < {needed}) {{",
            f"    gpu->cusolver_workspace_bytes = {needed};",
            "}",
        ),
        (),
        order=1,
    )

    def body(w: Writer) -> None:
        c_type = type.dtype.c_name
        w.line(f"{c_type} *const workspace = ({c_type} *)gpu->cusolver_workspace;")
        with w.block(f"for (int item = 0; item < {prod(batch)}; ++item)"):
            matrix = f"factor + (int64_t)item * {n * n}"
            arguments = ["CUBLAS_FILL_MODE_UPPER", str(n), matrix, str(n), "workspace", f"gpu->{size}", "info + item"]
            write_call(w, "CUSOLVER_CHECK", f"{routine}(gpu->cusolver", arguments)

    parts = [handle_part(site), size_part, workspace_part(site)]
    comment = f"Cholesky factors of {type.shape}, by {routine} (the lower triangle by rows is the upper one by columns)"
    return whole_call(op, name, ["a"], ["factor", "info"], [comment], body, parts, ((0, 0),))


EMITTERS: Mapping[str, Callable[[Op, str, int], LibraryCall]] = {POTRF: emit_cholesky}
