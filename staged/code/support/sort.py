"""Sorting of a row: numbers become keys, integers in the same order, that keep the places that they come from.

`st_sort_f32(values, order, x, n, k, descending, workspace)` has the first k of n elements of x in order, equal ones in
the order of their places: `order` their places, `values`, which may be NULL, the elements. `st_sort_values_f32` lacks
`order`, and sorts the keys alone. The workspace holds the records (key, place) twice and counts of the digits of keys
(`kernels/sorting.py` says its size).

Source: Knuth, The Art of Computer Programming, volume 3, section 5.2.1 (insertion) and 5.2.5 (radix sort from the
lowest digit on).

Tested by `tests/ops/test_sorting.py`.
"""

from __future__ import annotations

import textwrap
from typing import Literal

from staged.code.support.library import Snippet, SupportFunction, headers, made_of
from staged.ir.types import ALL_DTYPES, DType, f32, f64, i32, i64

SortKind = Literal["record", "key"]
"""A sort moves records (key, index) or keys alone."""

# ---- keys -------------------------------------------------------------------------------------------

_FLOAT_KEY = """\
({t} x) {{
    const union {{
        {t} value;
        int{bits}_t bits;
    }} given = {{x}};
    if (x != x) {{
        return INT{bits}_MAX;
    }}
    if (x == 0) {{
        return 0;
    }}
    return given.bits < 0 ? given.bits ^ INT{bits}_MAX : given.bits;
}}
"""
_FLOAT_COMMENT = """\
// An integer that is as large beside others as x is beside other numbers: NaN is the largest, -0.0 equals 0.0.
"""


def key_dtype(dtype: DType) -> DType:
    """The signed integers that keys of such elements are."""
    return i64 if dtype.size == 8 else i32


def _key(dtype: DType) -> Snippet:
    t, key = dtype.c_name, key_dtype(dtype)
    text, comment = f"({t} x) {{\n    return {'' if dtype is key else f'({key.c_name})'}x;\n}}\n", ""
    if dtype.kind == "u" and dtype.size == key.size:
        text = f"({t} x) {{\n    return ({key.c_name})(x ^ {hex(1 << 8 * dtype.size - 1)}u);\n}}\n"
    if dtype.is_float:
        text, comment = _FLOAT_KEY.format(t=t, bits=8 * dtype.size), _FLOAT_COMMENT
    return made_of(f"sort_key_{dtype}", SupportFunction(key.c_name, f"st_sort_key_{dtype}", text, comment=comment))


_VALUE = """\
(int{bits}_t key) {{
    const union {{
        int{bits}_t bits;
        {t} value;
    }} given = {{key < 0 ? key ^ INT{bits}_MAX : key}};
    return given.value;
}}
"""


def _value(dtype: DType) -> Snippet:
    text = _VALUE.format(t=dtype.c_name, bits=8 * dtype.size)
    comment = "// The number that has this key; 0.0 for that of both zeros.\n"
    function = SupportFunction(dtype.c_name, f"st_sort_value_{dtype}", text, comment=comment)
    return made_of(f"sort_value_{dtype}", function)


# ---- records ----------------------------------------------------------------------------------------

_RECORD = """\
// An element of a row that is sorted: its key, and its place in the row.
typedef struct {{
    uint{w}_t key;
    uint32_t place;
}} st_record_{w};
"""
# `st_{what}s` are sorted of type {r}: records (key, place), or keys alone; `{key}` is behind one to have its key.
_DIGITS = """\
// Keeps those of n {what}s that may be among the first k, as the leading digits of their keys say; gives their number.
static inline int64_t st_nearest_{what}s_{w}({r} *given, int64_t n, int64_t k, uint32_t *counts) {{
    uint{w}_t leading = 0;
    int64_t before = 0;
    for (int shift = {w} - 8; shift >= 0 && n > 2 * k && n > 64; shift -= 8) {{
        memset(counts, 0, 256 * sizeof(uint32_t));
        for (int64_t i = 0; i < n; ++i) {{
            counts[given[i]{key} >> shift & 255] += shift == {w} - 8 || given[i]{key} >> shift >> 8 == leading;
        }}
        int digit = 0;
        for (; before + counts[digit] < k; ++digit) {{
            before += counts[digit];
        }}
        leading = leading << 8 | (uint{w}_t)digit;
        int64_t kept = 0;
        for (int64_t i = 0; i < n; ++i) {{
            if (given[i]{key} >> shift <= leading) {{
                given[kept++] = given[i];
            }}
        }}
        n = kept;
    }}
    return n;
}}

// Sorts by insertion; false where that takes more than so many moves, with some of the work done.
static inline bool st_insert_{what}s_{w}({r} *given, int64_t n, int64_t moves) {{
    for (int64_t i = 1; i < n; ++i) {{
        const {r} moved = given[i];
        int64_t place = i;
        for (; place > 0 && given[place - 1]{key} > moved{key}; --place) {{
            given[place] = given[place - 1];
        }}
        given[place] = moved;
        moves -= i - place;
        if (moves < 0) {{
            return false;
        }}
    }}
    return true;
}}

// Sorts {what}s by their keys, equal ones stay in their order; the result is in either array. Goes by the digits of the
// keys, the highest last: first by as many as tell most of n numbers apart, and the rest by insertion; by all where
// that takes long.
static inline {r} *st_sort_{what}s_{w}({r} *from, {r} *to, int64_t n, uint32_t *counts) {{
    if (n <= 32) {{
        (void)st_insert_{what}s_{w}(from, n, INT64_MAX);
        return from;
    }}
    uint{w}_t any = 0;
    for (int64_t i = 0; i < n; ++i) {{
        any |= from[i]{key};
    }}
    int width = 0, needed = 10;
    for (; width < {w} && any >> width != 0; ++width) {{
    }}
    for (int64_t left = n; left > 0; left >>= 1) {{
        ++needed;
    }}
    const int most = n < 512 ? 8 : 11, digits = (width + most - 1) / most;
    const int bits = digits > 0 ? (width + digits - 1) / digits : 1, leading = (needed + bits - 1) / bits;
    const uint{w}_t mask = ((uint{w}_t)1 << bits) - 1;
    for (int first = digits > leading ? digits - leading : 0;; first = 0) {{
        memset(counts, 0, (sizeof(uint32_t) * (size_t)digits) << bits);
        for (int64_t i = 0; i < n; ++i) {{
            for (int digit = first; digit < digits; ++digit) {{
                ++counts[((size_t)digit << bits) + (size_t)(from[i]{key} >> digit * bits & mask)];
            }}
        }}
        for (int digit = first; digit < digits; ++digit) {{
            const int shift = digit * bits;
            uint32_t *const places = counts + ((size_t)digit << bits);
            if (places[from[0]{key} >> shift & mask] == n) {{
                continue;  // all keys have the same digit
            }}
            uint32_t place = 0;
            for (size_t value = 0; value <= mask; ++value) {{
                const uint32_t count = places[value];
                places[value] = place;
                place += count;
            }}
            for (int64_t i = 0; i < n; ++i) {{
                to[places[from[i]{key} >> shift & mask]++] = from[i];
            }}
            {r} *const sorted = to;
            to = from;
            from = sorted;
        }}
        if (first == 0 || st_insert_{what}s_{w}(from, n, 4 * n)) {{
            return from;
        }}
    }}
}}
"""

# ---- rows -------------------------------------------------------------------------------------------

_COMMENTS = {
    "record": "// The first k of n elements in order, and their places; equal elements in the order of their places.",
    "key": "// The first k of n elements in order.",
}
_HEAD = """\
{comment}
static inline void st_sort_{dtype}({given}const {t} *x, int64_t n, int64_t k, bool descending,
                               void *workspace) {{
"""
_FLOATS = """\
    const uint{w}_t flip = descending ? INT{w}_MAX : (uint{w}_t)INT{w}_MAX + 1;
"""
_EXTREMES = """\
    {t} lowest = n > 0 ? x[0] : 0, highest = lowest;  // keys are distances from the first in order: often short
    for (int64_t i = 0; i < n; ++i) {{
        lowest = x[i] < lowest ? x[i] : lowest;
        highest = x[i] > highest ? x[i] : highest;
    }}
"""
_ROW = """\
    {r} *const given = ({r} *)workspace;
    uint32_t *const counts = (uint32_t *)(given + 2 * n);
    for (int64_t i = 0; i < n; ++i) {{
        given[i]{key} = {made};
{place}    }}
    const int64_t left = k < n ? st_nearest_{what}s_{w}(given, n, k, counts) : n;
    const {r} *const sorted = st_sort_{what}s_{w}(given, given + n, left, counts);
"""
_PLACES = """\
    for (int64_t i = 0; i < k; ++i) {{
        order[i] = sorted[i].place;
    }}
    for (int64_t i = 0; values != NULL && i < k; ++i) {{
        values[i] = x[sorted[i].place];
    }}
"""
_VALUES = """\
    for (int64_t i = 0; i < k; ++i) {{
        values[i] = {back};
    }}
"""
# The keys of -0.0 and 0.0 are equal: which of them it was, and in which order, only x knows.
_ZEROS = """\
    int64_t zeros = 0;
    while (zeros < k && values[zeros] != 0) {{
        ++zeros;
    }}
    for (int64_t i = 0; zeros < k && i < n; ++i) {{
        if (x[i] == 0) {{
            values[zeros++] = x[i];  // -0.0 and 0.0 are equal: they stay in their order
        }}
    }}
"""
_INCLUDES = headers("stdbool", "stddef", "stdint")


def _part(dtype: DType, what: SortKind, w: int) -> str:
    """The statements that sort the elements of a row by keys of so many bits."""
    t, u = dtype.c_name, f"uint{8 * key_dtype(dtype).size}_t"
    if dtype.is_float:
        made = f"(uint{w}_t)st_sort_key_{dtype}(x[i]) ^ flip"
        back = f"st_sort_value_{dtype}((int{w}_t)(sorted[i] ^ flip))"
    else:
        made = f"(uint{w}_t)(descending ? ({u})highest - ({u})x[i] : ({u})x[i] - ({u})lowest)"
        back = f"({t})(descending ? ({u})highest - sorted[i] : ({u})lowest + sorted[i])"
    words = {"t": t, "w": w, "what": what, "made": made, "back": back, "key": ".key", "r": f"st_record_{w}"}
    words["place"] = "        given[i].place = (uint32_t)i;\n"
    if what == "key":
        words |= {"key": "", "r": f"uint{w}_t", "place": ""}
    zeros = _ZEROS if dtype.is_float else ""
    return (_ROW + (_PLACES if what == "record" else _VALUES + zeros)).format(**words)


def _sort(dtype: DType, what: SortKind) -> Snippet:
    w, name = 8 * key_dtype(dtype).size, f"sort_{dtype}" if what == "record" else f"sort_values_{dtype}"
    given = f"{dtype.c_name} *values, " + ("int64_t *order, " if what == "record" else "")
    head = _HEAD.format(comment=_COMMENTS[what], dtype=name.removeprefix("sort_"), given=given, t=dtype.c_name)
    needs = [f"sort_{what}s_{w}"]
    if dtype.is_float:
        body = _FLOATS.format(w=w) + _part(dtype, what, w)
        needs += [f"sort_key_{dtype}"] + ([f"sort_value_{dtype}"] if what == "key" else [])
    elif w == 32:
        body = _EXTREMES.format(t=dtype.c_name) + _part(dtype, what, w)
    else:
        ways = [textwrap.indent(_part(dtype, what, each), "    ") for each in (32, 64)]
        needs.insert(0, f"sort_{what}s_32")
        test = "(uint64_t)highest - (uint64_t)lowest <= UINT32_MAX"
        body = _EXTREMES.format(t=dtype.c_name) + f"    if ({test}) {{\n{ways[0]}    }} else {{\n{ways[1]}    }}\n"
    return Snippet(name, f"{head}{body}}}\n", tuple(needs), _INCLUDES)


def _digits(what: SortKind, w: int) -> Snippet:
    is_record = what == "record"
    words = {"r": f"st_record_{w}" if is_record else f"uint{w}_t", "key": ".key" if is_record else ""}
    text = (_RECORD.format(w=w) + "\n" if is_record else "") + _DIGITS.format(w=w, what=what, **words)
    return Snippet(f"sort_{what}s_{w}", text, (), (*_INCLUDES, *headers("string")))


SORTS = {f"{name}_{dtype}": dtype for dtype in ALL_DTYPES for name in ("sort", "sort_values")}
"""The dtype of the elements, by the name of the snippet that sorts them."""

_KINDS: tuple[SortKind, ...] = ("record", "key")

SNIPPETS = (
    *(_key(dtype) for dtype in ALL_DTYPES),
    *(_value(dtype) for dtype in (f32, f64)),
    *(_digits(what, w) for what in _KINDS for w in (32, 64)),
    *(_sort(dtype, what) for what in _KINDS for dtype in ALL_DTYPES),
)
