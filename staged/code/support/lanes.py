"""Vectors with a given number of lanes, beside the machine's own width, and what is left of a vector in the end.

Tested by `tests/backends/support/test_math.py`, `tests/backends/support/test_parts.py` and
`tests/backends/host/test_integers_in_kernels.py`.
"""

from __future__ import annotations

from staged.code.operators import ARITHMETIC, EXTREMES
from staged.code.support.library import Snippet, headers
from staged.code.support.vectors import ANY_INCLUDES, WIDTHS, any_text, select_text, vector_snippet
from staged.ir.declaration import Declaration, reductions
from staged.ir.types import NUMBER_DTYPES

_ITEMS = {dtype.name: (dtype.c_name, dtype.size) for dtype in NUMBER_DTYPES}
_LANES = (2, 4, 8, 16, 32, 64)

# f32 beside 64-bit numbers has as many lanes as they do: half of its own vector. Functions on vectors exist for these
# too.
HALVES = tuple(width // 8 for width in WIDTHS)


def lanes_snippet(dtype: str, lanes: int) -> str:
    """The snippet with `<dtype>x<lanes>` and `<dtype>x<lanes>_u`."""
    return f"vector_{dtype}x{lanes}"


def reduce_snippet(op: str, type: str, vectors: int = 1) -> str:
    """The snippet with `st_<op>_<type>`: one number from all lanes of a vector of this type (op: sum, max, min).

    `st_<op>4_<type>` reduces 4 vectors.
    """
    return f"st_{op}{vectors if vectors > 1 else ''}_{type}"


def part_snippet(type: str) -> str:
    """The snippet with `st_load_<type>`, `st_store_<type>` and `st_add_to_<type>`."""
    return f"part_{type}"


def _part(type: str, dtype: str, vector: str, lanes: int = 0) -> Snippet:
    """The snippet of a vector type: with masks if the machine has instructions for them, else lane by lane."""
    (item, size), family = _ITEMS[dtype], type.removeprefix(dtype)
    widths = [width for width in ([size * lanes] if lanes else WIDTHS) if width in WIDTHS and size >= 4]
    load = store = ""
    features = {64: ["__AVX512F__"]}
    # Clang declares the narrow ones with other types.
    narrow = ["__AVX512VL__) && !defined(__clang__", "__AVX__"] if lanes else ["__AVX__"]
    for width, feature in ((each, feature) for each in widths for feature in features.get(each, narrow)):
        known = "" if lanes else f"ST_VECTOR_BYTES == {width} && "
        case = f"#{'el' * bool(load)}if {known}defined({feature})\n"
        loaded, stored = _masked(size, width, family, feature.startswith("__AVX512"))
        load, store = f"{load}{case}    return ({type}){loaded};\n", f"{store}{case}    {stored};\n"
    otherwise, end = ("#else\n", "#endif\n") if widths else ("", "")
    count = lanes or f"ST_VECTOR_BYTES / {size}"
    each = f"#pragma GCC unroll 64\n    for (int i = 0; i < {count} - 1; ++i) {{\n        if (i < count) {{"
    head = "static inline __attribute__((always_inline, unused))"
    text = f"""\
// The first `count` items at an address, or all lanes if `count` is larger. The other lanes are 0.
{head} {type} st_load_{type}(const void *from, int64_t count) {{
    if (count >= {count}) {{
        return *(const {type}_u *)from;
    }}
{load}{otherwise}    {type} x = {{0}};
    {each}
            x[i] = ((const {item} *)from)[i];
        }}
    }}
    return x;
{end}}}

// Stores the first `count` lanes, or all if `count` is larger.
{head} void st_store_{type}(void *to, int64_t count, {type} x) {{
    if (count >= {count}) {{
        *({type}_u *)to = x;
        return;
    }}
{store}{otherwise}    {each}
            (({item} *)to)[i] = x[i];
        }}
    }}
{end}}}

// Adds the first `count` lanes to the items at an address, or all if `count` is larger.
{head} void st_add_to_{type}(void *to, int64_t count, {type} x) {{
    st_store_{type}(to, count, st_load_{type}(to, count) + x);
}}
"""
    kinds = [f"{kind}{8 * size}" for kind in "fi"] if widths else []
    needs = (lanes_snippet(kind, lanes) if lanes else vector_snippet(kind) for kind in kinds)
    return Snippet(part_snippet(type), text, ("vectors_by_value", vector, *needs), _INCLUDES)


def _masked(size: int, width: int, family: str, has_mask_registers: bool) -> tuple[str, str]:
    """The calls that load and store the first `count` lanes of a vector of `width` bytes.

    AMD's processors need 12 cycles or more for a store whose mask is a vector.
    """
    real, count, word = f"f{8 * size}{family}", width // size, "ps" if size == 4 else "pd"
    if has_mask_registers:
        name, first = f"u{word}{8 * width}_mask", f"(uint{max(count, 8)}_t)((1 << count) - 1)"
        item = "float" if size == 4 else "double"
        load, store = (
            f"load{name}((const {item} *)from, ({real}){{0}}, {first})",
            f"store{name}(({item} *)to, ({real})x, {first})",
        )
    else:
        name, lanes = f"{word}{'256' * (width == 32)}", ", ".join(map(str, range(count)))
        first = f"(i{8 * size}{family}){{{lanes}}} < (int{8 * size}_t)count"
        load, store = (
            f"maskload{name}((const {real} *)from, {first})",
            f"maskstore{name}(({real} *)to, {first}, ({real})x)",
        )
    return f"__builtin_ia32_{load}", f"__builtin_ia32_{store}"


def _typedefs(dtype: str, lanes: int) -> str:
    c_name, size = _ITEMS[dtype]
    return (
        f"typedef {c_name} {dtype}x{lanes} __attribute__((vector_size({size * lanes})));\n"
        f"typedef {c_name} {dtype}x{lanes}_u "
        f"__attribute__((vector_size({size * lanes}), aligned({size}), may_alias));\n"
    )


def _combined(combine: str, dtype: str, a: str, b: str) -> str:
    """One number from two."""
    if combine in EXTREMES:
        nan = f" || {a} != {a}" if dtype[0] == "f" else ""
        return f"{a} {EXTREMES[combine]} {b}{nan} ? {a} : {b}"
    sign = ARITHMETIC[combine]
    c_name, size = _ITEMS[dtype]
    if dtype[0] == "i":
        return f"({c_name})((u{c_name}){a} {sign} (u{c_name}){b})"
    return f"({c_name})({a} {sign} {b})" if size < 4 else f"{a} {sign} {b}"


def _combine_vectors(combine: str, dtype: str, lanes: int, low: str, high: str) -> list[str]:
    """low = low and high, lane by lane."""
    bits = 8 * _ITEMS[dtype][1]
    type, mask, unsigned = f"{dtype}x{lanes}", f"i{bits}x{lanes}", f"u{bits}x{lanes}"
    if combine not in EXTREMES:
        sign = ARITHMETIC[combine]
        if dtype[0] == "i":
            return [f"    {low} = ({type})(({unsigned}){low} {sign} ({unsigned}){high});"]
        return [f"    {low} {sign}= {high};"]
    sign = EXTREMES[combine]
    wins = f"({low} {sign} {high}) | ({low} != {low})" if dtype[0] == "f" else f"{low} {sign} {high}"
    return [
        f"    const {mask} wins_{lanes} = {wins};",
        f"    {low} = ({type})((wins_{lanes} & ({mask}){low}) | (~wins_{lanes} & ({mask}){high}));",
    ]


def _reduce(op: Declaration, combine: str, dtype: str) -> str:
    """Half by half in narrower vectors: the compiler keeps them in registers."""
    c_name, size = _ITEMS[dtype]
    nan = "; NaN if one is" if op.is_extreme and dtype[0] == "f" else ""
    lines = [
        f"// The {op.noun or op.name} of all lanes, by halves: always in the same order{nan}.",
        f"__attribute__((unused)) static inline {c_name} st_{op.name}_{dtype}v(const {dtype}v *x) {{",
    ]
    for number, width in enumerate(sorted(WIDTHS, reverse=True)):
        lines.append(f"#{'if' if number == 0 else 'elif'} ST_VECTOR_BYTES == {width}")
        lanes, source, last, name = width // size, "x", width, "(*x)"
        while lanes > 2:
            lanes, last = lanes // 2, last // 2
            low, high = f"low_{lanes}", f"high_{lanes}"
            lines += [
                f"    {dtype}x{lanes} {low}, {high};",
                f"    memcpy(&{low}, {source}, {last});",
                f"    memcpy(&{high}, (const char *){source} + {last}, {last});",
                *_combine_vectors(combine, dtype, lanes, low, high),
            ]
            source, name = f"&{low}", low
        lines.append(f"    return {_combined(combine, dtype, f'{name}[0]', f'{name}[1]')};")
    return "\n".join([*lines, "#endif", "}", ""])


_INCLUDES = headers("stdint", "string")


def _reduce_snippets() -> list[Snippet]:
    found = []
    for dtype in _ITEMS:
        for op in reductions():
            if op.vector == "never" or op.combine is None or op.combine.name not in {**ARITHMETIC, **EXTREMES}:
                continue
            size = _ITEMS[dtype][1]
            families = {dtype, f"i{8 * size}", f"u{8 * size}"}
            halves = tuple(lanes_snippet(d, n) for d in sorted(families) for n in _LANES if n <= 32 // size)
            needs = (vector_snippet(dtype), *halves)
            text = _reduce(op, op.combine.name, dtype)
            found.append(Snippet(reduce_snippet(op.name, f"{dtype}v"), text, needs, _INCLUDES))
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
    *(_part(f"{dtype}v", dtype, vector_snippet(dtype)) for dtype in _ITEMS),
    *(_part(f"{dtype}x{lanes}", dtype, lanes_snippet(dtype, lanes), lanes) for dtype in _ITEMS for lanes in _LANES),
    *(
        Snippet(lanes_snippet(dtype, lanes), _typedefs(dtype, lanes), includes=headers("stdint"))
        for dtype in _ITEMS
        for lanes in _LANES
    ),
    *_reduce_snippets(),
    *(
        Snippet(
            f"select_f32x{lanes}",
            select_text(f"f32x{lanes}", f"i32x{lanes}"),
            needs=("vectors_by_value", lanes_snippet("f32", lanes), lanes_snippet("i32", lanes)),
        )
        for lanes in HALVES
    ),
    *(
        Snippet(
            f"any_i32x{lanes}",
            any_text(f"i32x{lanes}"),
            ("vectors_by_value", lanes_snippet("i32", lanes)),
            ANY_INCLUDES,
        )
        for lanes in HALVES
    ),
)
