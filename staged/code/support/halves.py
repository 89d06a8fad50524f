"""f16 and bf16, which programs hold as their bits: conversions from and to f32, and from f64, each rounded once.

To nearest, to the even one of two that are equally near; a number beyond the largest becomes an infinity, and NaN stays
NaN. Where the compiler has an f16 type and the machine its instructions, the host's functions use these.

Tested by `tests/backends/support/test_halves.py`.
"""

from __future__ import annotations

import re

from staged.code.support.lanes import lanes_snippet
from staged.code.support.library import Snippet, SupportFunction, headers, made_of
from staged.code.support.vectors import INLINE
from staged.ir.types import HALF_DTYPES

_FROM_F16 = """\
(uint16_t x) {
#if defined(__F16C__) && !defined(__clang__)
    typedef short st_halves __attribute__((vector_size(16)));
    return __builtin_ia32_vcvtph2ps((st_halves){(short)x})[0];
#else
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7fffu;
    if (rest >= 0x7c00u) {
        return st_real_f32(sign | 0x7f800000u | rest << 13);
    }
    // The exponent is 112 too small; multiplied, so that subnormal numbers become normal ones.
    return st_real_f32(sign | st_bits_f32(st_real_f32(rest << 13) * 0x1p112f));
#endif
}
"""
_TO_F16 = """\
(float x) {
#if defined(__F16C__) && !defined(__clang__)
    typedef float st_floats __attribute__((vector_size(16)));
    return (uint16_t)__builtin_ia32_vcvtps2ph((st_floats){x}, 0)[0];
#else
    const uint32_t word = st_bits_f32(x), sign = word >> 16 & 0x8000u, rest = word & 0x7fffffffu;
    if (rest >= 0x47800000u) {
        return (uint16_t)(sign | (rest > 0x7f800000u ? 0x7e00u : 0x7c00u));
    }
    if (rest < 0x38800000u) {  // subnormal: the addition rounds, and leaves the result in the low bits
        return (uint16_t)(sign | (st_bits_f32(st_real_f32(rest) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
#endif
}
"""
_FROM_BF16 = """\
(uint16_t x) {
    return st_real_f32((uint32_t)x << 16);
}
"""
_TO_BF16 = """\
(float x) {
    const uint32_t word = st_bits_f32(x);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(word >> 16 | 0x40u);
    }
    return (uint16_t)((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}
"""
_FROM_F64 = """\
(double x) {
    const float near = (float)x;
    uint32_t word = st_bits_f32(near);
    if ((double)near != x && x == x) {
        const uint32_t past = fabs((double)near) > fabs(x);
        word = (word - past) | 1u;
    }
    return FUNCTION(st_real_f32(word));
}
"""


def _snippet(name: str, comment: str, result: str, text: str, *calls: str) -> Snippet:
    called = tuple(each for each in ("st_bits_f32", "st_real_f32", *calls) if f"{each}(" in text)
    function = SupportFunction(result, f"st_{name}", text, called, comment=f"// {comment}\n")
    needs = ("bits_f32", *(call.removeprefix("st_") for call in calls))
    return made_of(name, function, needs=needs, includes=headers("math", "stdint"))


_VECTORS = {
    "f32_from_f16": """\
    const U word = __builtin_convertvector(x, U), sign = (word & 0x8000u) << 16, rest = (word & 0x7fffu) << 13;
    const U special = (U)(rest >= 0x0f800000u) & 0x7f800000u;
    return (F)(sign | special | (U)((F)rest * 0x1p112f));
""",
    "f16_from_f32": """\
    const U word = (U)x, sign = word >> 16 & 0x8000u, rest = word & 0x7fffffffu;
    const U normal = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
    const U subnormal = (U)((F)rest + 0.5f) - 0x3f000000u;
    const U special = ((U)(rest > 0x7f800000u) & 0x200u) | 0x7c00u;
    const U is_small = (U)(rest < 0x38800000u), is_large = (U)(rest >= 0x47800000u);
    const U finite = (is_small & subnormal) | (~is_small & normal);
    return __builtin_convertvector(sign | (is_large & special) | (~is_large & finite), H);
""",
    "f32_from_bf16": """\
    return (F)(__builtin_convertvector(x, U) << 16);
""",
    "bf16_from_f32": """\
    const U word = (U)x, is_nan = (U)((word & 0x7fffffffu) > 0x7f800000u);
    const U rounded = (word + 0x7fffu + (word >> 16 & 1u)) >> 16;
    return __builtin_convertvector((is_nan & (word >> 16 | 0x40u)) | (~is_nan & rounded), H);
""",
}
"""The same on vectors: F of f32, U of their bits, H and S of the halves' bits. All cases are computed, masks choose."""
_INSTRUCTIONS = {
    (16, "f32_from_f16"): ("__AVX512F__", "(F)__builtin_ia32_vcvtph2ps512_mask((S)x, (F){0}, -1, 4)"),
    (16, "f16_from_f32"): ("__AVX512F__", "(H)__builtin_ia32_vcvtps2ph512_mask(x, 0, (S){0}, 0xffff)"),
    (8, "f32_from_f16"): ("__F16C__", "(F)__builtin_ia32_vcvtph2ps256((S)x)"),
    (8, "f16_from_f32"): ("__F16C__", "(H)__builtin_ia32_vcvtps2ph256(x, 0)"),
    # gcc 12 takes four instructions to widen sixteen u16 by itself.
    (16, "f32_from_bf16"): ("__AVX512F__", "(F)((U)__builtin_ia32_pmovzxwd512_mask((S)x, (I){0}, 0xffff) << 16)"),
}
"""By number of lanes and name: where the machine has it as one instruction, or two, by gcc's names for these."""
_BUT_FOR_SUBNORMALS = {
    (16, "bf16_from_f32"): (
        "defined(__AVX512BF16__) && defined(__AVX512DQ__)",
        "__builtin_ia32_fpclassps512_mask(x, 0x20, 0xffff)",
        "(H)__builtin_ia32_cvtneps2bf16_v16sf(x)",
    ),
    (8, "bf16_from_f32"): (
        "defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__AVX512VL__)",
        "__builtin_ia32_fpclassps256_mask(x, 0x20, 0xff)",
        "(H)__builtin_ia32_cvtneps2bf16_v8sf(x)",
    ),
}
"""Likewise, where the instruction takes subnormal numbers for zeros: the features, the mask of such lanes, and it."""
LANES = (2, 4, 8, 16)


def vector_function(name: str, lanes: int) -> str:
    """The snippet and the function on vectors of so many lanes: `f32_from_f16_x8`."""
    return f"{name}_x{lanes}"


def _vector_snippet(name: str, lanes: int) -> Snippet:
    widens = name.startswith("f32")
    source, target = ("H", "F") if widens else ("F", "H")
    body = _VECTORS[name]
    if (lanes, name) in _INSTRUCTIONS:
        feature, one = _INSTRUCTIONS[lanes, name]
        body = f"#if defined({feature}) && !defined(__clang__)\n    return {one};\n#else\n{body}#endif\n"
    if (lanes, name) in _BUT_FOR_SUBNORMALS:
        features, some, one = _BUT_FOR_SUBNORMALS[lanes, name]
        fast = f"    if ({some} == 0) {{  // no lane is subnormal\n        return {one};\n    }}\n"
        body = f"#if {features} && !defined(__clang__)\n{fast}#endif\n{body}"
    for letter, dtype in (("F", "f32"), ("U", "u32"), ("I", "i32"), ("H", "u16"), ("S", "i16")):
        body = re.sub(rf"\b{letter}\b", f"{dtype}x{lanes}", body)
        source, target = source.replace(letter, f"{dtype}x{lanes}"), target.replace(letter, f"{dtype}x{lanes}")
    text = (
        f"// `st_{name}` on each lane.\n{INLINE}{target} st_{vector_function(name, lanes)}({source} x) {{\n{body}}}\n"
    )
    types = (lanes_snippet(dtype, lanes) for dtype in ("f32", "i16", "u16", "i32", "u32"))
    return Snippet(vector_function(name, lanes), text, ("vectors_by_value", *types))


_ROUNDED = "to nearest, the even one of two that are equally near."
_TWICE = "The same of an f64: first to the f32 beside it whose last bit is 1, so that rounding twice is rounding once."

SNIPPETS = (
    _snippet("f32_from_f16", "The number that the bits of an f16 mean.", "float", _FROM_F16),
    _snippet("f16_from_f32", f"The bits of an f16: {_ROUNDED}", "uint16_t", _TO_F16),
    _snippet("f32_from_bf16", "The number that the bits of a bf16 mean.", "float", _FROM_BF16),
    _snippet("bf16_from_f32", f"The bits of a bf16: {_ROUNDED}", "uint16_t", _TO_BF16),
    *(
        _snippet(
            f"{half}_from_f64", _TWICE, "uint16_t",
            _FROM_F64.replace("FUNCTION", f"st_{half}_from_f32"), f"st_{half}_from_f32",
        )
        for half in HALF_DTYPES
    ),
    *(_vector_snippet(name, lanes) for name in _VECTORS for lanes in LANES),
)  # fmt: skip
