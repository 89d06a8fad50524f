"""Atomic operations of kernels that the user writes, as C's types need them.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, SupportFunction, made_of
from staged.ir.types import ALL_DTYPES, DType, i64

_ATOMIC = """\
({t} *array, int64_t place, {t} value) {{
    return place < 0 ? ({t})0 : {call};
}}
"""
_COMMENT = "// Gives what was there before; 0 where there is no such place.\n"
_ATOMICS = {f"thread_atomic_{op}_{dtype}": (op, dtype) for op in ("add", "min", "max") for dtype in ALL_DTYPES}


def atomic_function(name: str) -> Snippet | None:
    """A device function of these; None for another name."""
    if name not in _ATOMICS:
        return None
    op, dtype = _ATOMICS[name]
    definition = _ATOMIC.format(t=dtype.c_name, call=_atomic_call(op, dtype))
    return made_of(name, SupportFunction(dtype.c_name, f"st_{name}", definition, comment=_COMMENT))


def _atomic_call(op: str, dtype: DType) -> str:
    function = f"atomic{op.capitalize()}"
    if dtype is not i64:
        return f"{function}(array + place, value)"
    # CUDA adds unsigned ones alone, and knows `long long` where int64_t may be `long`.
    wide = {"add": "unsigned long long", "min": "long long", "max": "long long"}[op]
    return f"(int64_t){function}(({wide} *)(void *)(array + place), ({wide})value)"
