"""Dot products of i8, summed up in i32: the step of a vector, as each machine has it.

Tested by `tests/backends/c_family/test_contraction_dots.py`.
"""

from __future__ import annotations

from staged.backends.c_family.support.library import Snippet
from staged.backends.c_family.support.vectors import vector_snippet

_STEP = """\
// Each lane of `total` takes in some of the products of `x` and `y`, whose lanes are four times as many. There is an
// instruction for an x without signs: the caller gives x ^ ST_DOT_SIGN then, and takes off what that adds.
#if defined(__GNUC__) && !defined(__clang__) && ST_VECTOR_BYTES == 64 && defined(__AVX512VNNI__)
#define ST_DOT_BYTES(total, x, y) __builtin_ia32_vpdpbusd_v16si(total, x, y)
#elif defined(__GNUC__) && !defined(__clang__) && ST_VECTOR_BYTES == 32 \\
    && (defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__)))
#define ST_DOT_BYTES(total, x, y) __builtin_ia32_vpdpbusd_v8si(total, x, y)
#elif defined(__GNUC__) && !defined(__clang__) && ST_VECTOR_BYTES == 64 && defined(__AVX512BW__)
#define ST_DOT_PAIRS(x, y) __builtin_ia32_pmaddwd512_mask(x, y, (i32v){0}, (uint16_t)-1)
#elif defined(__GNUC__) && !defined(__clang__) && ST_VECTOR_BYTES == 32 && defined(__AVX2__)
#define ST_DOT_PAIRS(x, y) __builtin_ia32_pmaddwd256(x, y)
#elif defined(__GNUC__) && !defined(__clang__) && ST_VECTOR_BYTES == 16 && defined(__SSE2__)
#define ST_DOT_PAIRS(x, y) __builtin_ia32_pmaddwd128(x, y)
#endif
#ifdef ST_DOT_BYTES
#define ST_DOT_SIGN -128
#else
#define ST_DOT_SIGN 0
#endif

static inline __attribute__((always_inline)) void st_dot_i8(u32v *total, const i8v *x, const i8v *y) {
#if defined(ST_DOT_BYTES)
    *total = (u32v)ST_DOT_BYTES((i32v)*total, (i32v)*x, (i32v)*y);
#elif defined(ST_DOT_PAIRS)
    typedef int8_t half __attribute__((vector_size(ST_VECTOR_BYTES / 2)));
    half a[2], b[2];
    memcpy(a, x, sizeof a);
    memcpy(b, y, sizeof b);
    for (int i = 0; i < 2; ++i) {
        *total += (u32v)ST_DOT_PAIRS(__builtin_convertvector(a[i], i16v), __builtin_convertvector(b[i], i16v));
    }
#else
    typedef int8_t quarter __attribute__((vector_size(ST_VECTOR_BYTES / 4)));
    quarter a[4], b[4];
    memcpy(a, x, sizeof a);
    memcpy(b, y, sizeof b);
    for (int i = 0; i < 4; ++i) {
        *total += (u32v)(__builtin_convertvector(a[i], i32v) * __builtin_convertvector(b[i], i32v));
    }
#endif
}

// A mask of the last `count` lanes.
static inline __attribute__((always_inline)) void st_last_i8(i8v *mask, int count) {
    int8_t lanes[2 * ST_VECTOR_BYTES] = {0};
    memset(lanes + ST_VECTOR_BYTES, -1, ST_VECTOR_BYTES);
    memcpy(mask, lanes + count, sizeof *mask);
}
"""

SNIPPETS = (
    Snippet(
        "dot_i8",
        _STEP,
        needs=tuple(vector_snippet(dtype) for dtype in ("i8", "i16", "i32", "u32")),
        includes=("#include <stdint.h>", "#include <string.h>"),
    ),
)
