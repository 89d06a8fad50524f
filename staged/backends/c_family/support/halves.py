"""f16 and bf16, which programs hold as their bits: conversions from and to f32, and from f64, each rounded once.

To nearest, to the even one of two that are equally near; a number beyond the largest becomes an infinity, and NaN stays
NaN. Where the compiler has an f16 type and the machine its instructions, the host's functions use these.

Tested by `tests/backends/support/test_halves.py`.
"""

from __future__ import annotations

from staged.backends.c_family.support.library import Snippet, SupportFunction, made_of

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
    function = SupportFunction(
        result, f"st_{name}", text, ("st_bits_f32", "st_real_f32", *calls), comment=f"// {comment}\n"
    )
    needs = ("bits_f32", *(call.removeprefix("st_") for call in calls))
    return made_of(name, function, needs=needs, includes=("#include <math.h>", "#include <stdint.h>"))


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
        for half in ("f16", "bf16")
    ),
)  # fmt: skip
