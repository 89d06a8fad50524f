"""The device functions of kernels that the user writes: checked indices, and elements at them.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from staged.backends.gpu_family.dialect import GpuDialect
from staged.backends.gpu_family.nest.statements import FAILED
from staged.ir.types import DTYPES

_INDEX = """\
// The index, or -1 for one that is out of range, which is reported.
{head}int64_t st_thread_index({record}failed, int site, int64_t index, int64_t extent) {{
    if (index < 0 || index >= extent) {{
        st_fail(failed, ST_DEVICE_INDEX, site, index, extent);
        return -1;
    }}
    return index;
}}
"""
_PLACE = """\
// The place of an element in its array, an axis further; -1 if it has none.
{head}int64_t st_thread_place(int64_t outer, int64_t inner, int64_t extent) {{
    return outer < 0 || inner < 0 ? -1 : outer * extent + inner;
}}
"""
_READ = """\
// What stands there; 0 where there is no such place.
{head}{t} st_thread_read_{dtype}({space}const {t} *array, int64_t place) {{
    return place < 0 ? ({t})0 : array[place];
}}
"""
_READS = {f"thread_read_{dtype}": dtype for dtype in DTYPES.values()}


def thread_function(name: str, dialect: GpuDialect) -> tuple[tuple[str, ...], str] | None:
    """The names that a device function of these needs, and its text; None for another name."""
    head = dialect.function_head
    if name == "thread_index":
        return ("fail",), _INDEX.format(head=head, record=dialect.words.type(FAILED.type))
    if name == "thread_place":
        return (), _PLACE.format(head=head)
    if name not in _READS:
        return None
    dtype, head = _READS[name], head + dialect.overloaded
    each = [_READ.format(head=head, t=dtype.c_name, dtype=dtype, space=space) for space in dialect.array_spaces]
    return (), "\n".join(each)
