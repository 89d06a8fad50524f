"""The device functions of kernels that the user writes: checked indices, and atomic operations as C's types need them.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from staged.ir.types import DTYPES, DType, i64

_INDEX = """\
// The index, or -1 for one that is out of range, which is reported.
static __device__ inline int64_t st_thread_index(st_device_failure *failed, int site, int64_t index, int64_t extent) {
    if (index < 0 || index >= extent) {
        st_fail(failed, ST_DEVICE_INDEX, site, index, extent);
        return -1;
    }
    return index;
}
"""
_PLACE = """\
// The place of an element in its array, an axis further; -1 if it has none.
static __device__ inline int64_t st_thread_place(int64_t outer, int64_t inner, int64_t extent) {
    return outer < 0 || inner < 0 ? -1 : outer * extent + inner;
}
"""
_READ = """\
// What stands there; 0 where there is no such place.
static __device__ inline {t} st_thread_read_{dtype}(const {t} *array, int64_t place) {{
    return place < 0 ? ({t})0 : array[place];
}}
"""
_ATOMIC = """\
// Gives what was there before; 0 where there is no such place.
static __device__ inline {t} st_thread_atomic_{op}_{dtype}({t} *array, int64_t place, {t} value) {{
    return place < 0 ? ({t})0 : {call};
}}
"""
_READS = {f"thread_read_{dtype}": dtype for dtype in DTYPES.values()}
_ATOMICS = {f"thread_atomic_{op}_{dtype}": (op, dtype) for op in ("add", "min", "max") for dtype in DTYPES.values()}


def thread_function(name: str) -> tuple[tuple[str, ...], str] | None:
    """The names that a device function of these needs, and its text; None for another name."""
    if name == "thread_index":
        return ("fail",), _INDEX
    if name == "thread_place":
        return (), _PLACE
    if name in _READS:
        return (), _READ.format(t=_READS[name].c_name, dtype=_READS[name])
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
