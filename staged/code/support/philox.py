"""Philox4x32-10 in C: the numbers of `staged/library/draws/philox.py`, one at a time and as whole vectors.

Scalar functions take (seed, stream, counter, element) as int64_t: `st_random_bits`, `st_uniform_f32`, `st_uniform_f64`,
`st_normal_f32`, `st_normal_f64`, and `st_bernoulli` with the probability before the element. The vector functions
`st_random_bits_u32v`, `st_uniform_f32v`, ..., `st_bernoulli_i32v` (a mask) make the elements from `element` on: through
whole blocks of the generator where `element` starts one (a multiple of 4, of 2 for f64), else one by one; the bits are
the same. `st_permutation(order, n, seed, stream, counter)` fills an array.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, 2011.
"""

from __future__ import annotations

import math

import numpy as np

from staged.code.support.library import Snippet, SupportFunction, headers, made_of
from staged.code.support.variety import FORMATS

_PHILOX = SupportFunction(
    "void",
    "st_philox4x32",
    """\
(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
        const uint64_t first = (uint64_t)c0 * 0xd2511f53u, second = (uint64_t)c2 * 0xcd9e8d57u;
        c0 = (uint32_t)(second >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)second;
        c2 = (uint32_t)(first >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)first;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
""",
    comment="// Philox4x32-10: four random words from a counter and a key.\n",
)
_BLOCK = SupportFunction(
    "void",
    "st_random_block",
    """\
(uint32_t out[4], int64_t seed, int64_t stream, int64_t counter, int64_t block) {
    const uint32_t state[4] = {(uint32_t)(uint64_t)block, (uint32_t)(uint64_t)stream, (uint32_t)(uint64_t)counter,
                               (uint32_t)((uint64_t)counter >> 32)};
    const uint32_t key[2] = {(uint32_t)(uint64_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    st_philox4x32(out, state, key);
}
""",
    calls=("st_philox4x32",),
    comment="// Words 4 * block .. 4 * block + 3 of a random op.\n",
)

_BITS = SupportFunction(
    "uint32_t",
    "st_random_bits",
    """\
(int64_t seed, int64_t stream, int64_t counter, int64_t element) {
    uint32_t words[4];
    st_random_block(words, seed, stream, counter, element >> 2);
    return words[element & 3];
}
""",
    calls=("st_random_block",),
)

_UNIFORM_F32 = SupportFunction(
    "float",
    "st_uniform_f32",
    """\
(int64_t seed, int64_t stream, int64_t counter, int64_t element) {
    return (float)(st_random_bits(seed, stream, counter, element) >> 8) * 0x1p-24f;
}
""",
    calls=("st_random_bits",),
    comment="// Evenly spread over [0, 1).\n",
)

_UNIT_F64 = SupportFunction(
    "double",
    "st_unit_f64",
    """\
(uint32_t high, uint32_t low) {
    return (double)(high >> 5) * 0x1p-27 + (double)(low >> 6) * 0x1p-53;
}
""",
    comment="// 53 bits of two words, in [0, 1).\n",
)
_UNIFORM_F64 = SupportFunction(
    "double",
    "st_uniform_f64",
    """\
(int64_t seed, int64_t stream, int64_t counter, int64_t element) {
    uint32_t words[4];
    st_random_block(words, seed, stream, counter, element >> 1);
    return st_unit_f64(words[2 * (element & 1)], words[2 * (element & 1) + 1]);
}
""",
    calls=("st_random_block", "st_unit_f64"),
    comment="// Evenly spread over [0, 1).\n",
)

_BERNOULLI = SupportFunction(
    "bool",
    "st_bernoulli",
    """\
(int64_t seed, int64_t stream, int64_t counter, float p, int64_t element) {
    return st_uniform_f32(seed, stream, counter, element) < p;
}
""",
    calls=("st_uniform_f32",),
    comment="// True with probability p.\n",
)

_PERMUTATION = SupportFunction(
    "void",
    "st_permutation",
    """\
(int64_t *order, int64_t n, int64_t seed, int64_t stream, int64_t counter) {
    for (int64_t i = 0; i < n; ++i) {
        order[i] = i;
    }
    uint32_t words[4] = {0};
    int64_t block = -1;
    for (int64_t i = n - 1; i > 0; --i) {
        if (i >> 2 != block) {
            block = i >> 2;
            st_random_block(words, seed, stream, counter, block);
        }
        const int64_t j = (int64_t)((uint64_t)words[i & 3] * ((uint64_t)i + 1) >> 32);
        const int64_t moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}
""",
    calls=("st_random_block",),
    comment="// 0 .. n - 1 in random order: Fisher-Yates from the end.\n",
)

_PAIRS = """\
// Lanes of 64 bits in pairs: the same pair everywhere, the number of each pair, and indices that exchange or repeat.
#if ST_VECTOR_BYTES == 16
#define ST_PAIRS(a, b) a, b
#define ST_PAIR_NUMBERS 0, 0
#define ST_EXCHANGED 1, 0
#define ST_EVEN_TWICE 0, 0
#define ST_ODD_TWICE 1, 1
#elif ST_VECTOR_BYTES == 32
#define ST_PAIRS(a, b) a, b, a, b
#define ST_PAIR_NUMBERS 0, 0, 1, 0
#define ST_EXCHANGED 1, 0, 3, 2
#define ST_EVEN_TWICE 0, 0, 2, 2
#define ST_ODD_TWICE 1, 1, 3, 3
#elif ST_VECTOR_BYTES == 64
#define ST_PAIRS(a, b) a, b, a, b, a, b, a, b
#define ST_PAIR_NUMBERS 0, 0, 1, 0, 2, 0, 3, 0
#define ST_EXCHANGED 1, 0, 3, 2, 5, 4, 7, 6
#define ST_EVEN_TWICE 0, 0, 2, 2, 4, 4, 6, 6
#define ST_ODD_TWICE 1, 1, 3, 3, 5, 5, 7, 7
#else
#error "vectors have 16, 32 or 64 bytes"
#endif
#if defined(__clang__)
#define ST_PERMUTE_U64V(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define ST_PERMUTE_U64V(x, ...) __builtin_shuffle(x, (u64v){__VA_ARGS__})
#endif

// x * y for 64-bit lanes below 2**32. gcc does not see by itself that one instruction is enough.
#if defined(__clang__) || !defined(__SSE2__)
#define ST_WIDE_PRODUCT(x, y) ((x) * (y))
#elif ST_VECTOR_BYTES == 16
#define ST_WIDE_PRODUCT(x, y) ((u64v)__builtin_ia32_pmuludq128((i32v)(x), (i32v)(y)))
#elif ST_VECTOR_BYTES == 32 && defined(__AVX2__)
#define ST_WIDE_PRODUCT(x, y) ((u64v)__builtin_ia32_pmuludq256((i32v)(x), (i32v)(y)))
#elif ST_VECTOR_BYTES == 64 && defined(__AVX512F__)
typedef long long st_i64v __attribute__((vector_size(64)));
#define ST_WIDE_PRODUCT(x, y) ((u64v)__builtin_ia32_pmuludq512_mask((i32v)(x), (i32v)(y), (st_i64v){0}, 255))
#else
#define ST_WIDE_PRODUCT(x, y) ((x) * (y))
#endif
"""

_BITS_VECTOR = """\
// As many words as a vector has lanes, from word `element` on. A pair of 64-bit lanes holds the state of one block: a
// its words 0 and 2, which are multiplied, b its words 1 and 3.
static inline __attribute__((always_inline))
u32v st_random_bits_u32v(int64_t seed, int64_t stream, int64_t counter, int64_t element) {
    if ((element & 3) != 0) {
        u32v words;
        for (int i = 0; i < ST_VECTOR_BYTES / 4; ++i) {
            words[i] = st_random_bits(seed, stream, counter, element + i);
        }
        return words;
    }
    const uint64_t low = 0xffffffffu, key = (uint64_t)seed, count = (uint64_t)counter;
    const u64v multiplier = {ST_PAIRS(0xd2511f53u, 0xcd9e8d57u)}, step = {ST_PAIRS(0x9e3779b9u, 0xbb67ae85u)};
    const uint64_t block = (uint64_t)(element >> 2);
    u64v a = {ST_PAIRS(block, count & low)};
    a = (a + (u64v){ST_PAIR_NUMBERS}) & low;
    u64v b = {ST_PAIRS((uint64_t)stream & low, count >> 32)};
    u64v k = {ST_PAIRS(key & low, key >> 32)};
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const u64v product = ST_WIDE_PRODUCT(a, multiplier);
        const u64v other = ST_PERMUTE_U64V(product, ST_EXCHANGED);
        a = (other >> 32) ^ b ^ k;
        b = other & low;
        k = (k + step) & low;
    }
    return (u32v)(a | b << 32);
}
"""

_UNIFORM_F32_VECTOR = """\
static inline __attribute__((always_inline))
f32v st_uniform_f32v(int64_t seed, int64_t stream, int64_t counter, int64_t element) {
    const u32v words = st_random_bits_u32v(seed, stream, counter, element);
    return __builtin_convertvector((i32v)(words >> 8), f32v) * 0x1p-24f;
}
"""

# Integers below 2**52 become floats by putting them into the fraction of 2**52: few machines convert 64-bit lanes.
_UNIFORM_F64_VECTOR = """\
static inline __attribute__((always_inline))
f64v st_uniform_f64v(int64_t seed, int64_t stream, int64_t counter, int64_t element) {
    const u32v words = st_random_bits_u32v(seed, stream, counter, 2 * element);
    const u64v pairs = (u64v)words, offset = (u64v){0} + UINT64_C(0x4330000000000000);
    const f64v high = (f64v)((pairs & 0xffffffffu) >> 5 | offset) - 0x1p52;
    const f64v low = (f64v)(pairs >> 38 | offset) - 0x1p52;
    return high * 0x1p-27 + low * 0x1p-53;
}
"""

_BERNOULLI_VECTOR = """\
// A mask: -1 with probability p, else 0.
static inline __attribute__((always_inline))
i32v st_bernoulli_i32v(int64_t seed, int64_t stream, int64_t counter, float p, int64_t element) {
    return st_uniform_f32v(seed, stream, counter, element) < p;
}
"""


_NORMAL_COMMENT = """\
// Normally distributed (Box and Muller): elements 2p and 2p + 1 are the two coordinates of one random point.
"""


def _normal(dtype: str) -> SupportFunction:
    """Box and Muller's method, as the reference does it."""
    f = FORMATS[dtype]
    t, s = f.c_name, f.function_suffix
    turn = f"{np.float32(2 * math.pi)}f" if dtype == "f32" else repr(2 * math.pi)
    draw = {
        "f32": """\
    st_random_block(words, seed, stream, counter, element >> 2);
    const uint32_t *pair = words + (element & 2);
    const float u = (float)((pair[0] >> 8) + 1) * 0x1p-24f, v = (float)(pair[1] >> 8) * 0x1p-24f;
""",
        "f64": """\
    st_random_block(words, seed, stream, counter, element >> 1);
    const double u = st_unit_f64(words[0], words[1]) + 0x1p-53, v = st_unit_f64(words[2], words[3]);
""",
    }[dtype]
    unit = ("st_unit_f64",) if dtype == "f64" else ()
    definition = f"""\
(int64_t seed, int64_t stream, int64_t counter, int64_t element) {{
    uint32_t words[4];
{draw}    const {t} radius = __builtin_sqrt{s}(-2.0{s} * st_log_{dtype}(u));
    const {t} angle = {turn} * v;
    return radius * ((element & 1) == 0 ? st_cos_{dtype}(angle) : st_sin_{dtype}(angle));
}}
"""
    maths = (f"__builtin_sqrt{s}", *(f"st_{name}_{dtype}" for name in ("log", "cos", "sin")))
    return SupportFunction(t, f"st_normal_{dtype}", definition, ("st_random_block", *unit, *maths), _NORMAL_COMMENT)


def _normal_vector(dtype: str) -> str:
    f = FORMATS[dtype]
    s, v, bits = f.function_suffix, f"{dtype}v", f.bits
    turn = f"{np.float32(2 * math.pi)}f" if dtype == "f32" else repr(2 * math.pi)
    draw = {
        "f32": """\
    const u32v words = st_random_bits_u32v(seed, stream, counter, element);
    const u64v pairs = (u64v)words, first = pairs & 0xffffffffu, second = pairs >> 32;
    const u32v first_twice = (u32v)(first | first << 32), second_twice = (u32v)(second | second << 32);
    const f32v u = __builtin_convertvector((i32v)((first_twice >> 8) + 1u), f32v) * 0x1p-24f;
    const f32v v = __builtin_convertvector((i32v)(second_twice >> 8), f32v) * 0x1p-24f;
    const i32v odd = (i32v)((u64v){0} + UINT64_C(0xffffffff00000000));
""",
        "f64": """\
    const f64v both = st_uniform_f64v(seed, stream, counter, element);
    const f64v u = (f64v)ST_PERMUTE_U64V((u64v)both, ST_EVEN_TWICE) + 0x1p-53;
    const f64v v = (f64v)ST_PERMUTE_U64V((u64v)both, ST_ODD_TWICE);
    const i64v odd = {ST_PAIRS(0, -1)};
""",
    }[dtype]
    return f"""\
static inline __attribute__((always_inline))
{v} st_normal_{v}(int64_t seed, int64_t stream, int64_t counter, int64_t element) {{
    if ((element & 1) != 0) {{  // starts in the middle of a pair
        {v} normal;
        for (int i = 0; i < ST_VECTOR_BYTES / {bits // 8}; ++i) {{
            normal[i] = st_normal_{dtype}(seed, stream, counter, element + i);
        }}
        return normal;
    }}
{draw}    const {v} radius = st_sqrt_{v}(st_log_{v}(u) * -2.0{s});
    const {v} angle = v * {turn};
    return radius * st_select_{v}(odd, st_sin_{v}(angle), st_cos_{v}(angle));
}}
"""


_INTEGERS = headers("stdbool", "stdint")
_WORD_VECTORS = ("vector_u32", "vector_u64")

SNIPPETS = (
    made_of("philox", _PHILOX, _BLOCK, includes=_INTEGERS),
    made_of("st_random_bits", _BITS, needs=("philox",)),
    made_of("st_uniform_f32", _UNIFORM_F32, needs=("st_random_bits",)),
    made_of("st_uniform_f64", _UNIT_F64, _UNIFORM_F64, needs=("philox",)),
    made_of("st_bernoulli", _BERNOULLI, needs=("st_uniform_f32",)),
    made_of("st_permutation", _PERMUTATION, needs=("philox",)),
    made_of("st_normal_f32", _normal("f32"), needs=("philox", "st_log_f32", "st_sin_f32", "st_cos_f32")),
    made_of("st_normal_f64", _normal("f64"), needs=("st_uniform_f64", "st_log_f64", "st_sin_f64", "st_cos_f64")),
    Snippet("pairs", _PAIRS, ("vector_i32", "vector_u64")),
    Snippet("st_random_bits_u32v", _BITS_VECTOR, ("vectors_by_value", "st_random_bits", "pairs", *_WORD_VECTORS)),
    Snippet("st_uniform_f32v", _UNIFORM_F32_VECTOR, ("st_random_bits_u32v", "vector_f32", "vector_i32")),
    Snippet("st_uniform_f64v", _UNIFORM_F64_VECTOR, ("st_random_bits_u32v", "vector_f64")),
    Snippet("st_bernoulli_i32v", _BERNOULLI_VECTOR, ("st_uniform_f32v",)),
    *(
        Snippet(
            f"st_normal_{dtype}v",
            _normal_vector(dtype),
            (
                f"st_normal_{dtype}",
                "st_random_bits_u32v" if dtype == "f32" else "st_uniform_f64v",
                *(f"st_{name}_{dtype}v" for name in ("log", "sin", "cos", "sqrt")),
            ),
        )
        for dtype in FORMATS
    ),
)
