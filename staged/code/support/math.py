"""Maths of f32 and f64, for single numbers and for vectors: snippets `st_<function>_<f32|f64|f32v|f64v>`.

The functions of numbers and of vectors are made from one body, so the tail of a loop gives the same bits as its
vectors. Polynomials are minimax fits (Remez) of ours; argument reductions follow Muller, Elementary Functions:
Algorithms and Implementation, chapters 9 and 11. Errors are in units in the last place (ulp) and hold with and without
fused multiply-add; infinities, NaN and signed zeros are those of IEEE 754 and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from staged.code.support.library import Snippet, headers, made_of
from staged.code.support.variety import FORMATS, VARIETIES, Variety, bits_snippet

# (exp(r) - 1 - r) / r**2 for |r| <= ln(2)/2
_EXP = {
    "f32": (0.5, 0.16666667, 0.041666463, 0.008333286, 0.0013933755, 0.00019907698),
    "f64": (
        0.5,
        0.1666666666666667,
        0.041666666666666685,
        0.008333333333326068,
        0.0013888888888874268,
        0.00019841269875052302,
        2.4801587347650762e-05,
        2.7557255107218044e-06,
        2.7557252611969293e-07,
        2.5105338632856224e-08,
        2.092169087403673e-09,
    ),
}
# ln(2) in two parts: a multiple of the first by an exponent is exact
_LN2 = {"f32": (0.69314575, 1.4286068e-06), "f64": (0.6931471805601177, -1.7239444525614835e-13)}
# Beyond these exp is 0 or infinity, and so are the scale factors' exponents.
# At the lower ends, where -infinity is held too, both factors of 2**n are 0: products that underflow take 100 cycles.
_EXP_RANGE = {"f32": (-176.0, 89.0), "f64": (-1418.0, 710.0)}
# Below these exp rounds to 0.
_EXP_ZERO = {"f32": -104.0, "f64": -746.0}
_EXPM1_LOW = {"f32": -18.0, "f64": -38.0}

# f32: (log(1+f) - f + f**2/2) / f**3; f64: (2 atanh(s) - 2s) / s**3 in s**2, for 1+f in [sqrt(1/2), sqrt(2)]
_LOG = {
    "f32": (
        0.33333334,
        -0.2499999,
        0.19999973,
        -0.16667998,
        0.1428848,
        -0.1245237,
        0.11004131,
        -0.10600391,
        0.10715027,
        -0.06528591,
    ),
    "f64": (
        0.6666666666666666,
        0.4000000000000089,
        0.2857142857079696,
        0.22222222393108196,
        0.18181795501098985,
        0.1538624681383094,
        0.13268592928292988,
        0.13088419058335887,
    ),
}
_SQRT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}

# (tanh(x)/x - 1) / x**2 in x**2, for |x| <= 0.625
_TANH = (-0.33333334, 0.13333304, -0.05395944, 0.021770094, -0.008347031, 0.0022955453)

# erf(x)/x - 1 in x**2, for |x| <= 0.92
_ERF = {
    "f32": (0.12837917, -0.37612635, 0.11283703, -0.026859796, 0.0052019525, -0.000815254, 8.409542e-05),
    "f64": (
        0.1283791670955126,
        -0.37612638903183754,
        0.11283791670955085,
        -0.026866170645120462,
        0.005223977625295762,
        -0.0008548327011619417,
        0.00012055332367682466,
        -1.4925628972812278e-05,
        1.6461603576144029e-06,
        -1.6357438816399943e-07,
        1.4713176699851282e-08,
        -1.160280224079709e-09,
        6.390602982426186e-11,
    ),
}
# log(1 - erf(x)), in x for f32 and in x - 1 for f64, up to where erf rounds to 1
_ERFC = {
    "f32": (
        0.00017324605,
        -1.1295081,
        -0.6333602,
        -0.10826586,
        0.025110476,
        -0.0041677565,
        0.0004337989,
        -2.1039205e-05,
    ),
    "f64": (
        -1.8496055099332482,
        -2.6389675142347913,
        -0.8431072563584852,
        -0.04156109804652433,
        0.010033825434247612,
        -0.0019779030207230743,
        0.00023732470904828584,
        2.6270340149115337e-05,
        -2.714090552434306e-05,
        9.57663157838835e-06,
        -2.017057487327123e-06,
        1.0015913922679306e-07,
        1.3000731036674157e-07,
        -7.07872746944418e-08,
        2.309819243011037e-08,
        -5.532265855933257e-09,
        1.002976814915607e-09,
        -1.3496452661879376e-10,
        1.2740195892476612e-11,
        -7.520684623728402e-13,
        2.083884348260808e-14,
    ),
}
_ERF_END = {"f32": 4.0, "f64": 6.0}

# (sin(r)/r - 1) / r**2 and (cos(r) - 1 + r**2/2) / r**4 in r**2, for |r| <= pi/4
_SIN = {
    "f32": (-0.16666667, 0.008333332, -0.00019840086, 2.724968e-06),
    "f64": (
        -0.16666666666666666,
        0.008333333333333331,
        -0.0001984126984126504,
        2.7557319219321193e-06,
        -2.505210622615107e-08,
        1.6058530614241135e-10,
        -7.58663756504162e-13,
    ),
}
_COS = {
    "f32": (0.041666668, -0.0013888888, 2.4800598e-05, -2.7300746e-07),
    "f64": (
        0.041666666666666664,
        -0.0013888888888888887,
        2.4801587301584635e-05,
        -2.755731922139274e-07,
        2.087675578755182e-09,
        -1.147046032497704e-11,
        4.745838575098175e-14,
    ),
}
# pi/2 in three parts: multiples of the first two up to the bound on the quotient are exact
_HALF_PI = {
    "f32": (1.5708008, -4.454516e-06, 6.0771006e-11),
    "f64": (1.5707963267941523, 7.443547480488527e-13, -1.9034889620193266e-25),
}
_TURN_LIMIT = {"f32": 400.0, "f64": 6400.0}


def _with_sign_of_x(v: Variety, value: str) -> str:
    return v.real(f"{v.bits(value)} | ({v.bits('x')} & {v.word(v.format.sign_bit)})")


def _held(v: Variety, low: float, high: float) -> str:
    """Lines up to `z`, x held inside [low, high]."""
    return f"""\
const {v.M} above = x > {v.number(high)}, below = x < {v.number(low)};
{v.T} z = {v.select("above", v.splat(high), "x")};
z = {v.select("below", v.splat(low), "z")};
"""


def _reduce_exp(v: Variety, held: str) -> str:
    """Lines up to `p`: `held` makes z of x, t carries n = round(z / ln 2), and z = n * ln 2 + r."""
    d = v.format.dtype
    ln2_high, ln2_low = _LN2[d]
    rounder = v.number(v.format.rounder)
    return f"""\
{held}const {v.T} t = {v.fma("z", v.number(1 / math.log(2)), rounder)};  // n is in the low bits of t
const {v.T} n = t - {rounder};
const {v.T} r_high = {v.fma("n", v.number(-ln2_high), "z")};
const {v.T} r = {v.fma("n", v.number(-ln2_low), "r_high")};
{v.horner("p", "r", _EXP[d])}
"""


def _exp(v: Variety) -> str:
    f = v.format
    low, high = _EXP_RANGE[f.dtype]
    held = _held(v, low, high)
    scaled = f"""\
// 2**n in two factors, so that results near 0 and near overflow round once
const {v.U} k = {v.bits("t")} - {v.word(f.rounder_bits - 2 * f.bias)};
const {v.U} half = k >> 1;
const {v.T} y = e * {v.real(f"half << {f.fraction_bits}")} * {v.real(f"(k - half) << {f.fraction_bits}")};
"""
    if v.lanes == 0:
        # gcc's masks of 16 lanes are signed in some built-in functions, unsigned in others.
        letter, mask = ("s", "short") if f.dtype == "f32" else ("d", "unsigned char")
        every, ones = ("-1", "0xffff") if f.dtype == "f32" else ("0xff", "0xff")
        held = _with_avx512(
            f"const {v.T} z = __builtin_ia32_minp{letter}512_mask({v.splat(high)}, x, x, {every}, 4);\n",
            held,
        )
        zero = v.splat(_EXP_ZERO[f.dtype])
        scaled = _with_avx512(
            f"""\
// e * 2**n in one instruction, left out where it is 0: underflow takes 100 cycles; 5 is "not less"
const {mask} some = ({mask})__builtin_ia32_cmpp{letter}512_mask(x, {zero}, 5, {ones}, 4);
const {v.T} y = __builtin_ia32_scalefp{letter}512_mask(e, n, ({v.T}){{0}}, some, 4);
""",
            scaled,
        )
    return _reduce_exp(v, held) + f"const {v.T} e = {v.fma('r * r', 'p', 'r')} + {v.number(1.0)};\n{scaled}"


def _with_avx512(own: str, other: str) -> str:
    """Lines for the machine's vectors by instructions of AVX-512, under gcc's names, or the others."""
    return f"#if ST_VECTOR_BYTES == 64 && defined(__AVX512F__) && !defined(__clang__)\n{own}#else\n{other}#endif\n"


def _expm1(v: Variety) -> str:
    f = v.format
    low, high = _EXPM1_LOW[f.dtype], _EXP_RANGE[f.dtype][1]
    one = v.number(1.0)
    return (
        _reduce_exp(v, _held(v, low, high))
        + f"""\
const {v.T} r_low = {v.fma("n", v.number(-_LN2[f.dtype][1]), "r_high - r")};  // what rounding took from r
const {v.T} q = r + {v.fma("r * r", "p", "r_low")};  // exp(r) - 1
const {v.M} last = n > {v.number(f.bias + 0.5)};  // 2**n is infinite where the result is not
const {v.T} m = {v.select("last", f"t - {one}", "t")};
const {v.T} scale = {v.real(f"({v.bits('m')} - {v.word(f.rounder_bits - f.bias)}) << {f.fraction_bits}")};
const {v.T} s = {v.fma("scale", "q", f"scale - {one}")};
const {v.T} u = {v.select("last", "s + s", "s")};
const {v.T} y = {_with_sign_of_x(v, "u")};
"""
    )


def _log_of_parts(v: Variety) -> str:
    """Lines from f and n to `w` = log(1 + f) + n * ln 2."""
    d = v.format.dtype
    ln2_high, ln2_low = (v.number(part) for part in _LN2[d])
    head = f"const {v.T} g = {v.fma('n', ln2_low, 'f')};\n"
    if d == "f32":
        return (
            head
            + v.horner("p", "f", _LOG[d])
            + f"""
p = {v.fma("p", "f", "-0.5f")};
{v.T} w = {v.fma("n", ln2_high, v.fma("f * f", "p", "g"))};
"""
        )
    return (
        head
        + f"const {v.T} s = f / (f + 2.0);\nconst {v.T} z = s * s;\n"
        + v.horner("p", "z", _LOG[d])
        + f"""
p = {v.fma("-z", "p", "f")};
{v.T} w = {v.fma("n", ln2_high, v.fma("-s", "p", "g"))};
"""
    )


def _log_specials(v: Variety, x: str, pole: float) -> str:
    """Lines from `w` to `y`: infinity and NaN stay, -infinity at the pole, NaN before it."""
    return f"""\
const {v.M} finite = {x} < {v.pattern(v.infinity)}, pole = {x} == {v.number(pole)}, outside = {x} < {v.number(pole)};
w = {v.select("finite", "w", x)};
w = {v.select("pole", v.pattern(v.infinity | v.format.sign_bit), "w")};
{v.T} y = {v.select("outside", v.pattern(v.quiet_nan), "w")};
"""


def _split_exponent(v: Variety, x: str) -> str:
    """Lines from `x` to k (biased exponent) and m in [sqrt(1/2), sqrt(2)): x = m * 2**(k - bias)."""
    f = v.format
    root = _SQRT_HALF[f.dtype]
    return f"""\
const {v.U} u = {v.bits(x)} + {v.word((f.bias << f.fraction_bits) - root)};
const {v.U} k = u >> {f.fraction_bits};
const {v.T} m = {v.real(f"(u & {v.word((1 << f.fraction_bits) - 1)}) + {v.word(root)}")};
"""


def _log(v: Variety) -> str:
    f = v.format
    lift = v.number(2.0**f.fraction_bits)
    offset = f.rounder + f.bias
    return (
        f"""\
const {v.M} tiny = x < {f.least_normal};
const {v.T} lifted = {v.select("tiny", f"x * {lift}", "x")};
"""
        + _split_exponent(v, "lifted")
        + f"""\
const {v.T} n = {v.real(f"k + {v.word(f.rounder_bits)}")}
    - ({v.select("tiny", v.splat(offset + f.fraction_bits), v.splat(offset))});
const {v.T} f = m - {v.number(1.0)};
"""
        + _log_of_parts(v)
        + _log_specials(v, "x", 0.0)
    )


def _log1p(v: Variety) -> str:
    f = v.format
    one = v.number(1.0)
    return (
        f"""\
const {v.T} sum = x + {one};
const {v.T} kept = sum - x;
const {v.T} lost = (x - (sum - kept)) + ({one} - kept);  // sum + lost is 1 + x exactly
"""
        + _split_exponent(v, "sum")
        + f"""\
const {v.T} n = {v.real(f"k + {v.word(f.rounder_bits)}")} - {v.number(f.rounder + f.bias)};
const {v.M} matters = x < {v.number(2.0 ** (f.fraction_bits + 2))};
const {v.T} rest = lost * {v.real(f"({v.word(2 * f.bias)} - k) << {f.fraction_bits}")};
const {v.T} f = (m - {one}) + ({v.select("matters", "rest", v.splat(0.0))});
"""
        + _log_of_parts(v)
        + _log_specials(v, "x", -1.0)
        + f"""\
const {v.M} zero = x == {v.number(0.0)};
y = {v.select("zero", "x", "y")};  // -0 stays -0
"""
    )


def _tanh(v: Variety) -> str:
    if v.format.dtype == "f64":
        return f"""\
const {v.T} a = {v.magnitude("x")};
const {v.M} one = a > 20.0;
{v.T} b = {v.select("one", v.splat(20.0), "a")};
b = b + b;
{v.call("expm1", "e", "b")}
const {v.T} q = e / (e + 2.0);
const {v.T} y = {_with_sign_of_x(v, "q")};
"""
    return f"""\
const {v.T} a = {v.magnitude("x")};
const {v.M} one = a > 10.0f, small = a < 0.625f;
{v.T} b = {v.select("one", v.splat(10.0), "a")};
b = b + b;
{v.call("exp", "e", "b")}
const {v.T} large = 1.0f - 2.0f / (e + 1.0f);
// 1 - 2 / (...) has few good digits near 0
const {v.T} z = a * a;
{v.horner("p", "z", _TANH)}
p = {v.fma("a", "z * p", "a")};
const {v.T} q = {v.select("small", "p", "large")};
const {v.T} y = {_with_sign_of_x(v, "q")};
"""


def _erf(v: Variety) -> str:
    d = v.format.dtype
    end = _ERF_END[d]
    shifted = "b" if d == "f32" else "c"
    shift = "" if d == "f32" else f"const {v.T} c = b - 1.0;\n"
    return (
        f"""\
const {v.T} a = {v.magnitude("x")};
const {v.M} one = a > {v.number(end)}, small = a < {v.number(0.92)};
const {v.T} z = a * a;
{v.horner("p", "z", _ERF[d])}
p = {v.fma("a", "p", "a")};
const {v.T} b = {v.select("one", v.splat(end), "a")};
"""
        + shift
        + f"""\
{v.horner("g", shifted, _ERFC[d])}
{v.call("exp", "e", "g")}
const {v.T} large = {v.number(1.0)} - e;
const {v.T} q = {v.select("small", "p", "large")};
const {v.T} y = {_with_sign_of_x(v, "q")};
"""
    )


def _turn(v: Variety, is_sine: bool) -> str:
    f = v.format
    d = f.dtype
    first, second, third = (v.number(-part) for part in _HALF_PI[d])
    rounder, one = v.number(f.rounder), v.number(1.0)
    top = f.bits - 2
    if is_sine:
        pick = v.select("odd", "c", "s")
        sign = f"((quarter & 2u) << {top}) ^ ({v.bits('x')} & {v.word(f.sign_bit)})"
        name = "sin"
    else:
        pick = v.select("odd", "s", "c")
        sign = f"((quarter + 1u) & 2u) << {top}"
        name = "cos"
    libm = f"{name}{f.function_suffix}"
    body = f"""\
const {v.T} a = {v.magnitude("x")};
const {v.M} far = a > {v.number(_TURN_LIMIT[d])};  // a quotient too large for three parts of pi/2
const {v.T} t = {v.fma("a", v.number(2 / math.pi), rounder)};
const {v.U} quarter = {v.bits("t")};  // the quadrant is in its low bits
const {v.T} n = t - {rounder};
const {v.T} r_high = {v.fma("n", first, "a")};
const {v.T} r = {v.fma("n", second, "r_high")};
const {v.T} r_low = {v.fma("n", third, v.fma("n", second, "r_high - r"))};  // what rounding took from r
const {v.T} z = r * r;
{v.horner("s", "z", _SIN[d])}
s = r + {v.fma("r", "z * s", "r_low")};
{v.horner("c", "z", _COS[d])}
c = {v.fma("c", "z", v.number(-0.5))};
c = {v.fma(v.fma("c", "r", "-r_low"), "r", one)};
const {v.M} odd = (quarter & 1u) != 0u;
const {v.T} w = {pick};
{v.T} y = {v.real(f"{v.bits('w')} ^ ({sign})")};
"""
    if not v.is_vector:
        return body + f"if (far) {{\n    y = {libm}(x);\n}}\n"
    return (
        body
        + f"""\
if (__builtin_expect({v.calling(f"st_any_{v.M}")}(far), 0)) {{
    for (int i = 0; i < (int)(sizeof y / sizeof y[0]); ++i) {{
        y[i] = far[i] ? {libm}(x[i]) : y[i];
    }}
}}
"""
    )


def _nearest(v: Variety) -> str:
    """Lines to `near`: |x| rounded to an integer, halves to even, and `a` = |x|."""
    rounder = v.number(2.0**v.format.fraction_bits)
    return f"""\
const {v.T} a = {v.magnitude("x")};
const {v.M} has_fraction = a < {rounder};
const {v.T} near = (a + {rounder}) - {rounder};
"""


def _round(v: Variety) -> str:
    return (
        _nearest(v)
        + f"""\
const {v.T} w = {v.select("has_fraction", "near", "a")};
const {v.T} y = {_with_sign_of_x(v, "w")};
"""
    )


def _trunc(v: Variety) -> str:
    return (
        _nearest(v)
        + f"""\
const {v.M} over = near > a;
const {v.T} cut = {v.select("over", f"near - {v.number(1.0)}", "near")};
const {v.T} w = {v.select("has_fraction", "cut", "a")};
const {v.T} y = {_with_sign_of_x(v, "w")};
"""
    )


def _floor(v: Variety) -> str:
    return (
        _nearest(v)
        + f"""\
const {v.T} w = {_with_sign_of_x(v, "near")};
const {v.M} over = w > x;
const {v.T} cut = {v.select("over", f"w - {v.number(1.0)}", "w")};
const {v.T} y = {v.select("has_fraction", "cut", "x")};
"""
    )


def _ceil(v: Variety) -> str:
    return (
        _nearest(v)
        + f"""\
const {v.T} w = {_with_sign_of_x(v, "near")};
const {v.M} under = w < x;
{v.T} up = {v.select("under", f"w + {v.number(1.0)}", "w")};
up = {_with_sign_of_x(v, "up")};  // -0.5 rounds up to -0
const {v.T} y = {v.select("has_fraction", "up", "x")};
"""
    )


def _lanes(v: Variety, expression: str) -> str:
    """`expression` in x (and z) for each number. It begins as x:
    gcc 12 does not see that the loop writes every number."""
    if not v.is_vector:
        return f"const {v.T} y = {expression.replace('[i]', '')};\n"
    return f"""\
{v.T} y = x;
#pragma GCC unroll 16
for (int i = 0; i < (int)(sizeof y / sizeof y[0]); ++i) {{
    y[i] = {expression};
}}
"""


def _libm(name: str, arguments: str = "x[i]") -> Callable[[Variety], str]:
    return lambda v: _lanes(v, f"{name}{v.format.function_suffix}({arguments})")


def _sqrt(v: Variety) -> str:
    """By the one instruction that takes those of a vector: without a vectoriser no loop over the lanes becomes it."""
    if not v.is_vector:
        return f"const {v.T} y = {v.root('x')};\n"
    if v.lanes:
        holds = f"defined({'__AVX512F__' if v.lanes * v.format.bits == 512 else '__AVX__'})"
    else:
        holds = "(ST_VECTOR_BYTES == 64 && defined(__AVX512F__)) || (ST_VECTOR_BYTES < 64 && defined(__AVX__))"
    instruction = "vsqrtps" if v.format.bits == 32 else "vsqrtpd"
    return f"""\
{v.T} y = x;
#if {holds}
__asm__("{instruction} %1, %0" : "=v"(y) : "v"(x));
#else
#pragma GCC unroll 16
for (int i = 0; i < (int)(sizeof y / sizeof y[0]); ++i) {{
    y[i] = {v.root("x[i]")};
}}
#endif
"""


def _rsqrt(v: Variety) -> str:
    if not v.is_vector:
        return f"const {v.T} y = {v.number(1.0)} / {v.root('x')};\n"
    return _sqrt(v) + f"y = {v.number(1.0)} / y;\n"


def _extreme(comparison: str) -> Callable[[Variety], str]:
    def body(v: Variety) -> str:
        return f"""\
const {v.M} first = (x {comparison} z) | (x != x);
const {v.T} y = {v.select("first", "x", "z")};
"""

    return body


def _logaddexp(v: Variety) -> str:
    return f"""\
const {v.M} above = x > z, same = x == z;
const {v.T} top = {v.select("above", "x", "z")}, gap = x - z;
const {v.T} g = -{v.magnitude("gap")};
{v.call("exp", "e", "g")}
{v.call("log1p", "rest", "e")}
const {v.T} apart = top + rest;
const {v.T} twice = x + {v.number(math.log(2.0))};  // also of two infinities, which have no gap
const {v.T} y = {v.select("same", "twice", "apart")};
"""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library: its name in `st_<name>_<dtype>`, what it says of itself, its body."""

    name: str
    comment: str | Mapping[str, str]
    """Of all dtypes, or by dtype."""
    body: Callable[[Variety], str]
    arguments: tuple[str, ...] = ("x",)
    uses_libm: bool = False

    def snippet(self, v: Variety) -> Snippet:
        v = replace(v, called=[])
        comment = self.comment if isinstance(self.comment, str) else self.comment[v.format.dtype]
        function = v.function(self.name, comment, self.body(v), self.arguments)
        others = {f"st_any_{v.M}": f"any_{v.M}", v.fma_function: v.fma_function}
        others |= {name: name for name in function.calls if name in _SNIPPET_NAMES}
        needs = (*v.base_snippets, *(others[name] for name in function.calls if name in others))
        includes = headers("math") if self.uses_libm else ()
        return made_of(function.name, function, needs=needs, includes=includes)


FUNCTIONS = (
    Function("exp", "exp(x) = 2**n * exp(r), |r| <= ln(2)/2", _exp),
    Function("expm1", "exp(x) - 1 = (2**n - 1) + 2**n * (exp(r) - 1), exact near 0", _expm1),
    Function("log", "log(x) = n * ln 2 + log(m), m in [sqrt(1/2), sqrt(2))", _log),
    Function("log1p", "log(1 + x), exact near 0", _log1p),
    Function("erf", "erf(x): a polynomial near 0, else 1 - exp(a polynomial)", _erf),
    Function("sin", "sin(x) from x = n * pi/2 + r", lambda v: _turn(v, is_sine=True), uses_libm=True),
    Function("cos", "cos(x) from x = n * pi/2 + r", lambda v: _turn(v, is_sine=False), uses_libm=True),
    Function("floor", "the largest integer <= x", _floor),
    Function("ceil", "the smallest integer >= x", _ceil),
    Function("round", "the nearest integer, halves to even", _round),
    Function("trunc", "the integer part", _trunc),
    Function("sqrt", "the square root", _sqrt),
    Function("rsqrt", "1 / sqrt(x)", _rsqrt),
    Function("maximum", "the larger one; NaN if one is", _extreme(">"), arguments=("x", "z")),
    Function("minimum", "the smaller one; NaN if one is", _extreme("<"), arguments=("x", "z")),
    *(
        Function(name, f"{name}(x)", _libm(name), uses_libm=True)
        for name in ("tan", "asin", "acos", "atan", "sinh", "cosh", "erfc", "cbrt", "log2", "log10")
    ),
    Function("logaddexp", "log(exp(x) + exp(z)) without overflow", _logaddexp, arguments=("x", "z")),
    Function("pow", "x to the power z", _libm("pow", "x[i], z[i]"), arguments=("x", "z"), uses_libm=True),
    Function(
        "atan2", "the angle of the point (z, x)", _libm("atan2", "x[i], z[i]"), arguments=("x", "z"), uses_libm=True
    ),
    Function(
        "tanh",
        {
            "f32": "tanh(x): a polynomial near 0, else 1 - 2 / (exp(2x) + 1)",
            "f64": "tanh(x) = e / (e + 2) with e = exp(2x) - 1",
        },
        _tanh,
    ),
)
"""Elementwise ops of floats that are functions of our own: `st_exp_f32(x)`, and `st_exp_f32v(x)` on vectors."""
FUNCTION_NAMES = frozenset(function.name for function in FUNCTIONS)
_SNIPPET_NAMES = frozenset(f"st_{name}_{v.suffix}" for name in FUNCTION_NAMES for v in VARIETIES)


def function_snippet(name: str, type: str) -> str:
    """The snippet, and the C function, for `name` on numbers (`f32`) or vectors (`f32v`, `f32x8`) of this type."""
    return f"st_{name}_{type}"


SNIPPETS = (
    *(bits_snippet(format) for format in FORMATS.values()),
    *(function.snippet(v) for function in FUNCTIONS for v in VARIETIES),
)
