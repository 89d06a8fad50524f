"""Vector types: one set for everything that a program computes with, whatever wrote it.

Tested by `tests/backends/support/test_math.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.ir.types import NUMBER_DTYPES, DType

INLINE = "static inline __attribute__((always_inline)) "
"""The head of a function of vectors."""
_BY_VALUE = """\
// Vectors are arguments and results of functions that are always inlined. Compilers warn of the ABI of other functions.
#pragma GCC diagnostic ignored "-Wpsabi"
"""

# Vectors of this many bytes have a snippet that sets the width of a program.
WIDTHS = (16, 32, 64)


def width_snippet(vector_bytes: int) -> str:
    """The snippet that fixes the size of every vector: a program that uses vectors requires exactly one.

    It is the `vector_bytes` of the `Machine`, so that the same support text serves each of them.
    """
    assert vector_bytes in WIDTHS, f"no vectors of {vector_bytes} bytes"
    return f"vector_bytes_{vector_bytes}"


def vector_snippet(dtype: str) -> str:
    """The snippet with `<dtype>v`, a vector in registers, and `<dtype>v_u`,
    the same in memory at any item's address."""
    return f"vector_{dtype}"


def _types(dtype: DType) -> str:
    return (
        f"typedef {dtype.c_name} {dtype.name}v __attribute__((vector_size(ST_VECTOR_BYTES)));\n"
        f"typedef {dtype.c_name} {dtype.name}v_u "
        f"__attribute__((vector_size(ST_VECTOR_BYTES), aligned({dtype.size}), may_alias));\n"
    )


def select_text(name: str, mask: str) -> str:
    """The function `st_select_<name>` for a vector type and the type of its comparisons."""
    return f"""\
// Lane by lane `m ? a : b`, where `m` comes from a comparison. With exclusive or, gcc leaves the computation of a and b
// alone; a plain mask it would pull into their last addition, at the cost of fusing it.
{INLINE}{name} st_select_{name}({mask} m, {name} a, {name} b) {{
    return ({name})(((({mask})a ^ ({mask})b) & m) ^ ({mask})b);
}}
"""


def any_text(name: str) -> str:
    """The function `st_any_<name>` for the type of a comparison."""
    return f"""\
// Whether a mask holds in some lane.
{INLINE}bool st_any_{name}({name} mask) {{
    uint64_t words[sizeof mask / 8], any = 0;
    memcpy(words, &mask, sizeof words);
    for (int i = 0; i < (int)(sizeof mask / 8); ++i) {{
        any |= words[i];
    }}
    return any != 0;
}}
"""


ANY_INCLUDES = headers("stdbool", "stdint", "string")

SNIPPETS = (
    Snippet("vectors_by_value", _BY_VALUE),
    *(Snippet(width_snippet(width), "", includes=(f"#define ST_VECTOR_BYTES {width}",)) for width in WIDTHS),
    *(Snippet(vector_snippet(dtype.name), _types(dtype), includes=headers("stdint")) for dtype in NUMBER_DTYPES),
    *(
        Snippet(
            f"select_{dtype.name}v",
            select_text(f"{dtype.name}v", f"i{8 * dtype.size}v"),
            needs=("vectors_by_value", vector_snippet(dtype.name), vector_snippet(f"i{8 * dtype.size}")),
        )
        for dtype in NUMBER_DTYPES
        if dtype.size >= 4
    ),
    *(
        Snippet(
            f"any_{mask}v",
            any_text(f"{mask}v"),
            needs=("vectors_by_value", vector_snippet(mask)),
            includes=ANY_INCLUDES,
        )
        for mask in ("i32", "i64")
    ),
)
