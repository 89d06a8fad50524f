"""cuSOLVER on a device: its handle, and the memory that its functions work in.

Tested by `tests/backends/cublas_cudnn/test_cusolver.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.device import DevicePart, Field, check, check_macro, destroy
from staged.ir.types import DType

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


def handle_part(site: int, deterministic: bool) -> DevicePart:
    """The handle of cuSOLVER, on the program's stream. If `deterministic`, results have the same bits each time."""
    mode = "CUSOLVER_DETERMINISTIC_RESULTS" if deterministic else "CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS"
    return DevicePart(
        (Field("cusolverDnHandle_t cusolver;"),),
        (
            check("CUSOLVER_CHECK", site, "cusolverDnCreate(&gpu->cusolver)"),
            check("CUSOLVER_CHECK", site, "cusolverDnSetStream(gpu->cusolver, gpu->stream)"),
            check("CUSOLVER_CHECK", site, f"cusolverDnSetDeterministicMode(gpu->cusolver, {mode})"),
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


def size_part(site: int, size: str, routine: str, arguments: Sequence[str], dtype: DType) -> DevicePart:
    """The field `size`, the elements of workspace that a routine needs for arguments of these sizes."""
    asked = f"{routine}_bufferSize(gpu->cusolver, {', '.join(arguments)}, &gpu->{size})"
    needed = f"(size_t)gpu->{size} * sizeof({dtype.c_name})"
    return DevicePart(
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
