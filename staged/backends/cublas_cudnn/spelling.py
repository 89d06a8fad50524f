"""The functions that CUDA kernels call: the language's own, and the support library's as functions of the device.

Tested by `tests/backends/gpu/test_kernel_text.py` and `tests/backends/cublas_cudnn/test_all_ops.py`.
"""

from __future__ import annotations

from staged.backends.cublas_cudnn.atomics import atomic_function
from staged.backends.cublas_cudnn.failures import FAIL, FAIL_NOT_FINITE
from staged.backends.cublas_cudnn.permutation_text import BLOCK_PERMUTATION
from staged.backends.cublas_cudnn.reductions import reduction_function
from staged.backends.gpu.dialect import DEVICE_MATHS
from staged.backends.gpu.packs import pack_type
from staged.backends.gpu.sorting import block_sort
from staged.code.support.library import Snippet, made_of

CUDA_FUNCTIONS = frozenset(f"{name}{ending}" for name in DEVICE_MATHS.values() for ending in ("", "f"))
"""CUDA's names that kernels call, which no name of theirs may equal."""

_OWN = {
    snippet.name: snippet
    for snippet in (made_of("fail", FAIL), made_of("fail_not_finite", FAIL_NOT_FINITE), BLOCK_PERMUTATION)
}
"""Functions that the host does not have, or otherwise."""


def find_snippet(name: str) -> Snippet | None:
    """The snippet that the device has of its own under this name; None if it has none."""
    own = _OWN.get(name) or pack_type(name)
    own = own or block_sort(name, "threadIdx.x", "blockDim.x", "__syncthreads()")
    return own or reduction_function(name) or atomic_function(name)
