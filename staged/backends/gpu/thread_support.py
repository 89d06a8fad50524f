"""The device functions of kernels that the user writes: checked indices, and elements at them.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.nest.statements import FAILED
from staged.code.support.library import Snippet, SupportFunction, made_of
from staged.ir.types import ALL_DTYPES

_INDEX = """\
({record}failed, int site, int64_t index, int64_t extent) {{
    if (index < 0 || index >= extent) {{
        st_fail(failed, ST_DEVICE_INDEX, site, index, extent);
        return -1;
    }}
    return index;
}}
"""
_INDEX_COMMENT = "// The index, or -1 for one that is out of range, which is reported.\n"
_PLACE = """\
(int64_t outer, int64_t inner, int64_t extent) {
    return outer < 0 || inner < 0 ? -1 : outer * extent + inner;
}
"""
_PLACE_COMMENT = "// The place of an element in its array, an axis further; -1 if it has none.\n"
_READ = """\
({space}const {t} *array, int64_t place) {{
    return place < 0 ? ({t})0 : array[place];
}}
"""
_READ_COMMENT = "// What stands there; 0 where there is no such place.\n"
_READS = {f"thread_read_{dtype}": dtype for dtype in ALL_DTYPES}


def thread_function(name: str, dialect: GpuDialect) -> Snippet | None:
    """A device function of these; None for another name."""
    if name == "thread_index":
        definition = _INDEX.format(record=dialect.words.type(FAILED.type))
        index = SupportFunction("int64_t", "st_thread_index", definition, ("st_fail",), _INDEX_COMMENT)
        return made_of(name, index, needs=("fail",))
    if name == "thread_place":
        return made_of(name, SupportFunction("int64_t", "st_thread_place", _PLACE, comment=_PLACE_COMMENT))
    if name not in _READS:
        return None
    t = _READS[name].c_name
    definitions = [_READ.format(t=t, space=space) for space in dialect.array_spaces]
    reads = [SupportFunction(t, f"st_{name}", d, comment=_READ_COMMENT, is_overloaded=True) for d in definitions]
    return made_of(name, *reads)
