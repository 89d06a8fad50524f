"""The device functions of kernels that the user writes: checked indices, and atomic operations as C's types need them."""

from __future__ import annotations

import re

from staged.ir.types import DTYPES

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
_NAME = re.compile(r"thread_(read|atomic_add|atomic_min|atomic_max)_(\w+)")


def thread_function(name: str) -> tuple[tuple[str, ...], str] | None:
    """The names that a device function of these needs, and its text; None for another name."""
    if name == "thread_index":
        return ("fail",), _INDEX
    if name == "thread_place":
        return (), _PLACE
    found = _NAME.fullmatch(name)
    if found is None or found[2] not in DTYPES:
        return None
    c_type = DTYPES[found[2]].c_name
    if found[1] == "read":
        return (), _READ.format(t=c_type, dtype=found[2])
    op = found[1].removeprefix("atomic_")
    return (), _ATOMIC.format(t=c_type, op=op, dtype=found[2], call=_atomic_call(op, found[2]))


def _atomic_call(op: str, dtype: str) -> str:
    function = f"atomic{op.capitalize()}"
    if dtype != "i64":
        return f"{function}(array + place, value)"
    # CUDA adds unsigned ones alone, and knows `long long` where int64_t may be `long`.
    wide = "unsigned long long" if op == "add" else "long long"
    return f"(int64_t){function}(({wide} *)(void *)(array + place), ({wide})value)"
