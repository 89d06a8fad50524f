"""Atomic operations of kernels that the user writes, as C's types need them.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from staged.ir.types import DTYPES, DType, i64

_ATOMIC = """\
// Gives what was there before; 0 where there is no such place.
static __device__ inline {t} st_thread_atomic_{op}_{dtype}({t} *array, int64_t place, {t} value) {{
    return place < 0 ? ({t})0 : {call};
}}
"""
_ATOMICS = {f"thread_atomic_{op}_{dtype}": (op, dtype) for op in ("add", "min", "max") for dtype in DTYPES.values()}


def atomic_function(name: str) -> tuple[tuple[str, ...], str] | None:
    """The names that a device function of these needs, and its text; None for another name."""
    if name not in _ATOMICS:
        return None
    op, dtype = _ATOMICS[name]
    return (), _ATOMIC.format(t=dtype.c_name, op=op, dtype=dtype, call=_atomic_call(op, dtype))


def _atomic_call(op: str, dtype: DType) -> str:
    function = f"atomic{op.capitalize()}"
    if dtype is not i64:
        return f"{function}(array + place, value)"
    # CUDA adds unsigned ones alone, and knows `long long` where int64_t may be `long`.
    wide = "unsigned long long" if op == "add" else "long long"
    return f"(int64_t){function}(({wide} *)(void *)(array + place), ({wide})value)"
