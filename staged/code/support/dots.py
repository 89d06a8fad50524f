"""Dot products of i8, summed up in i32: the step of a vector, as each machine has it.

Tested by `tests/backends/host/test_contraction_dots.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.code.support.vectors import vector_snippet

_STEP = """\
// Each lane of `total` takes in the products of the four bytes of `x` and `y` in its place. There is an instruction for
// an x without signs: the caller gives x ^ ST_DOT_SIGN then, and takes off what that adds.
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
    // The first and the third byte of four, and the second and the fourth, as i16.
    const i16v first = (i16v)((u16v)*x << 8) >> 8, second = (i16v)*x >> 8;
    *total += (u32v)ST_DOT_PAIRS(first, (i16v)((u16v)*y << 8) >> 8);
    *total += (u32v)ST_DOT_PAIRS(second, (i16v)*y >> 8);
#else
    const u32v a = (u32v)*x, b = (u32v)*y;
    for (int shift = 0; shift < 32; shift += 8) {
        *total += (u32v)(((i32v)(a << shift) >> 24) * ((i32v)(b << shift) >> 24));
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

_INTERLEAVE = """\
typedef int8_t st_16_bytes __attribute__((vector_size(16)));
typedef int16_t st_8_pairs __attribute__((vector_size(16)));
typedef st_16_bytes st_16_bytes_u __attribute__((aligned(1), may_alias));
#if defined(__clang__)
#define ST_INTERLEAVE(type, x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define ST_INTERLEAVE(type, x, y, ...) __builtin_shuffle(x, y, (type){__VA_ARGS__})
#endif

// target[4 * j + i] = source[i * stride + j] for the four rows and sixteen columns of a block.
static inline __attribute__((always_inline)) void st_interleave_block_i8(const int8_t *source, int64_t stride,
        int8_t *target) {
    st_16_bytes row[4];
    st_8_pairs low[2], high[2];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
        row[i] = *(const st_16_bytes_u *)(source + i * stride);
    }
#pragma GCC unroll 2
    for (int64_t i = 0; i < 2; ++i) {
        low[i] = (st_8_pairs)ST_INTERLEAVE(
            st_16_bytes, row[2 * i], row[2 * i + 1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        high[i] = (st_8_pairs)ST_INTERLEAVE(
            st_16_bytes, row[2 * i], row[2 * i + 1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    *(st_16_bytes_u *)target = (st_16_bytes)ST_INTERLEAVE(st_8_pairs, low[0], low[1], 0, 8, 1, 9, 2, 10, 3, 11);
    *(st_16_bytes_u *)(target + 16) =
        (st_16_bytes)ST_INTERLEAVE(st_8_pairs, low[0], low[1], 4, 12, 5, 13, 6, 14, 7, 15);
    *(st_16_bytes_u *)(target + 32) =
        (st_16_bytes)ST_INTERLEAVE(st_8_pairs, high[0], high[1], 0, 8, 1, 9, 2, 10, 3, 11);
    *(st_16_bytes_u *)(target + 48) =
        (st_16_bytes)ST_INTERLEAVE(st_8_pairs, high[0], high[1], 4, 12, 5, 13, 6, 14, 7, 15);
}

// The same for some of the rows and columns of a block; the rows that there are not are zeros.
static inline __attribute__((always_inline)) void st_interleave_i8(const int8_t *source, int64_t stride, int64_t rows,
        int64_t columns, int8_t *target) {
    if (rows == 4 && columns == 16) {
        st_interleave_block_i8(source, stride, target);
        return;
    }
    int8_t block[64] = {0}, turned[64];
    for (int64_t i = 0; i < rows; ++i) {
        memcpy(block + 16 * i, source + i * stride, (size_t)columns);
    }
    st_interleave_block_i8(block, 16, turned);
    memcpy(target, turned, (size_t)(4 * columns));
}
"""

SNIPPETS = (
    Snippet("interleave_i8", _INTERLEAVE, includes=headers("stdint", "string")),
    Snippet(
        "dot_i8",
        _STEP,
        needs=tuple(vector_snippet(dtype) for dtype in ("i8", "i16", "u16", "i32", "u32")),
        includes=headers("stdint", "string"),
    ),
)
