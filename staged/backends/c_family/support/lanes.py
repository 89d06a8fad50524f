"""Vectors with a given number of lanes, beside the machine's own width, and what is left of a vector in the end."""

from __future__ import annotations

from staged.backends.c_family.support.library import Snippet
from staged.backends.c_family.support.vectors import WIDTHS, vector_snippet

_ITEMS = {
    "f32": ("float", 4), "f64": ("double", 8), "i8": ("int8_t", 1), "i32": ("int32_t", 4), "i64": ("int64_t", 8),
    "u8": ("uint8_t", 1), "u32": ("uint32_t", 4), "u64": ("uint64_t", 8),
}  # fmt: skip
_LANES = (2, 4, 8, 16, 32, 64)


def lanes_snippet(dtype: str, lanes: int) -> str:
    """The snippet with `<dtype>x<lanes>` and `<dtype>x<lanes>_u`."""
    return f"vector_{dtype}x{lanes}"


def reduce_snippet(op: str, dtype: str) -> str:
    """The snippet with `st_<op>_<dtype>v`: one number from all lanes of a vector (op: sum, max, min)."""
    return f"st_{op}_{dtype}v"


def _typedefs(dtype: str, lanes: int) -> str:
    c_name, size = _ITEMS[dtype]
    return (
        f"typedef {c_name} {dtype}x{lanes} __attribute__((vector_size({size * lanes})));\n"
        f"typedef {c_name} {dtype}x{lanes}_u __attribute__((vector_size({size * lanes}), aligned({size}), may_alias));\n"
    )


def _combined(op: str, dtype: str, a: str, b: str) -> str:
    if op == "sum":
        if dtype[0] == "i":
            c_name = _ITEMS[dtype][0]
            return f"({c_name})((u{c_name}){a} + (u{c_name}){b})"
        return f"{a} + {b}"
    sign = ">" if op == "max" else "<"
    nan = f" || {a} != {a}" if dtype[0] == "f" else ""
    return f"{a} {sign} {b}{nan} ? {a} : {b}"


def _reduce(op: str, dtype: str) -> str:
    c_name, size = _ITEMS[dtype]
    what = {"sum": "sum", "max": "largest", "min": "smallest"}[op]
    nan = "; NaN if one is" if op != "sum" and dtype[0] == "f" else ""
    return f"""\
// The {what} of all lanes, by halves: always in the same order{nan}.
__attribute__((unused)) static inline {c_name} st_{op}_{dtype}v(const {dtype}v *x) {{
    {c_name} lanes[ST_VECTOR_BYTES / {size}];
    memcpy(lanes, x, sizeof lanes);
    #pragma GCC unroll 4
    for (int half = ST_VECTOR_BYTES / {2 * size}; half > 0; half /= 2) {{
        #pragma GCC unroll 8
        for (int i = 0; i < half; ++i) {{
            lanes[i] = {_combined(op, dtype, "lanes[i]", "lanes[i + half]")};
        }}
    }}
    return lanes[0];
}}
""".replace("    #pragma", "#pragma").replace("    #pragma", "#pragma")


def _float_sum(dtype: str) -> str:
    """Half by half in narrower vectors: the compiler keeps them in registers."""
    c_name, size = _ITEMS[dtype]
    lines = [
        "// The sum of all lanes, by halves: always in the same order.",
        f"__attribute__((unused)) static inline {c_name} st_sum_{dtype}v(const {dtype}v *x) {{",
    ]
    for number, width in enumerate(sorted(WIDTHS, reverse=True)):
        lines.append(f"#{'if' if number == 0 else 'elif'} ST_VECTOR_BYTES == {width}")
        lanes = width // size
        source, last = "x", width
        step = 0
        while lanes > 2:
            lanes //= 2
            last //= 2
            low, high = f"low_{step}", f"high_{step}"
            lines += [
                f"    {dtype}x{lanes} {low}, {high};",
                f"    memcpy(&{low}, {source}, {last});",
                f"    memcpy(&{high}, (const char *){source} + {last}, {last});",
                f"    {low} += {high};",
            ]
            source = f"&{low}"
            step += 1
        if step:
            lines.append(f"    return low_{step - 1}[0] + low_{step - 1}[1];")
        else:
            lines.append("    return (*x)[0] + (*x)[1];")
    return "\n".join([*lines, "#endif", "}", ""])


_INCLUDES = ("#include <stdint.h>", "#include <string.h>")


def _reduce_snippets() -> list[Snippet]:
    found = []
    for dtype in ("f32", "f64", "i32", "i64", "u32"):
        for op in ("sum", "max", "min"):
            needs: tuple[str, ...] = (vector_snippet(dtype),)
            text = _reduce(op, dtype)
            if op == "sum" and dtype[0] == "f":
                text = _float_sum(dtype)
                needs += tuple(lanes_snippet(dtype, lanes) for lanes in (2, 4, 8) if lanes <= 32 // _ITEMS[dtype][1])
            found.append(Snippet(reduce_snippet(op, dtype), text, needs, _INCLUDES))
    return found


SHUFFLE = """\
// Lanes of `x` followed by lanes of `y`, picked by constant indices.
#if defined(__clang__)
#define ST_SHUFFLE(index_type, x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define ST_SHUFFLE(index_type, x, y, ...) __builtin_shuffle(x, y, (index_type){__VA_ARGS__})
#endif
"""

SNIPPETS = (
    Snippet("shuffle", SHUFFLE),
    *(
        Snippet(lanes_snippet(dtype, lanes), _typedefs(dtype, lanes), includes=("#include <stdint.h>",))
        for dtype in _ITEMS
        for lanes in _LANES
    ),
    *_reduce_snippets(),
)
