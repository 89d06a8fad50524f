"""The functions that CUDA kernels call: the language's own, and the support library's as functions of the device.

Tested by `tests/backends/gpu_family/test_kernel_text.py` and `tests/backends/cublas_cudnn/test_all_ops.py`.
"""

from __future__ import annotations

from staged.backends.cublas_cudnn import permutation_text
from staged.backends.cublas_cudnn.atomics import atomic_function
from staged.backends.cublas_cudnn.failures import FAIL, FAIL_NOT_FINITE
from staged.backends.cublas_cudnn.reductions import reduction_function, wins_function
from staged.backends.gpu_family.dialect import DEVICE_MATHS
from staged.backends.gpu_family.packs import pack_type
from staged.backends.gpu_family.permutations import SNIPPET

CUDA_FUNCTIONS = frozenset(f"{name}{ending}" for name in DEVICE_MATHS.values() for ending in ("", "f"))
"""CUDA's names that kernels call, which no name of theirs may equal."""

_OWN: dict[str, tuple[tuple[str, ...], str]] = {
    "fail": ((), FAIL),
    "fail_not_finite": ((), FAIL_NOT_FINITE),
    SNIPPET: (permutation_text.NEEDS, permutation_text.TEXT),
}
"""Device functions that the host does not have, under the names of its snippets: which they call, and their text."""


def find_function(name: str) -> tuple[tuple[str, ...], str] | None:
    """(names of functions that it calls, text) of a function of the device alone; None if `name` is none."""
    if name in _OWN:
        return _OWN[name]
    if (text_of_type := pack_type(name) or wins_function(name)) is not None:
        return (), text_of_type
    return reduction_function(name) or atomic_function(name)
