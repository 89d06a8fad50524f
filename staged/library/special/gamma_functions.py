"""The logarithm of the gamma function and its derivatives, of any sign and size.

Near 0 a recurrence leads to an interval of length 1, where a polynomial holds; far from 0 there is Stirling's series;
below 0 the reflection. Polynomials are fits of ours by Chebyshev interpolation, f64. Source of the formulas: NIST
Digital Library of Mathematical Functions, 5.4, 5.5, 5.11, 5.15 and 25.11 (Euler-Maclaurin).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staged.library.special.polynomials import horner, in_f64
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import logical_or
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, cos, floor, log, log1p, maximum, minimum, round_, sin, square
from staged.ops.primitive import Sample
from staged.ops.promote import as_float, check_argument, check_known, together
from staged.ops.public import public

# lgamma(2 + f) / f for |f| <= 1/2
_GAMMA_NEAR = (
    0.42278433509846713,
    0.32246703342411326,
    -0.0673523010531981,
    0.02058080842778038,
    -0.0073855510286719986,
    0.002890510331034267,
    -0.0011927539118428156,
    0.0005096695154115458,
    -0.00022315475400520507,
    9.945767355819498e-05,
    -4.49263133791557e-05,
    2.0505590755833454e-05,
    -9.438715099211532e-06,
    4.38470440459836e-06,
    -2.0439048107029907e-06,
    9.200527894968101e-07,
    -4.3252393445604814e-07,
    2.78740805211359e-07,
    -1.3219945666117874e-07,
)

# B(2k) / (2k (2k - 1)), for the logarithm; B(2k) / 2k, for its derivative; B(2k) / (2k)!, for sums
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
    854513 / 138, -236364091 / 2730,
)  # fmt: skip
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1))
_STIRLING_SLOPE = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:9], 1))
_EULER_MACLAURIN = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1))

# psi(x) / (x - root) in x - 3/2, for 1 <= x <= 2
_DIGAMMA_NEAR = (
    0.9510558760318328,
    -0.4236274212814606,
    0.24054248424078697,
    -0.14840492305388092,
    0.09498872445289039,
    -0.06192213327548831,
    0.040760833940846085,
    -0.026975796659787055,
    0.017907248317313294,
    -0.011908220105959716,
    0.007927021796868154,
    -0.005279937255532708,
    0.003518106563802472,
    -0.0023454947397380833,
    0.0015633696313653504,
    -0.0010364584817312839,
    0.0006909255761282986,
    -0.00048595039220036254,
    0.00032395945401345196,
    -0.00014480643368061614,
    9.653646261410062e-05,
    -0.0001782188548855923,
    0.00011881232908510335,
)

_ROOT = (1.4616321449683622, 9.549995429965697e-17)
"""The zero of psi above 0, in two parts."""


# ---- the logarithm of gamma --------------------------------------------------------------------------


def _correction(x: Array) -> Array:
    """The error of Stirling's formula: lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2, for x >= 8."""
    w = 1.0 / x
    return horner(square(w), _STIRLING) * w


@in_f64
def _log_gamma(x: Array) -> Array:
    size = abs_(x)
    is_reflected = x < -0.5
    z = where(is_reflected, size, x)
    is_far = z >= 8.5
    y = where(is_far, 2.0, z)
    # lgamma(y) = lgamma(2 + f) plus or minus the logarithm of a product, for -1/2 <= y < 8.5
    f = y - floor(y - 0.5) - 1.0
    product = where(y < 0.5, y * (y + 1.0), where(y < 1.5, y, 1.0))
    for k in range(1, 7):
        product = product * where(y >= k + 1.5, y - float(k), 1.0)
    logarithm = log(where(is_far, z, abs_(product)))
    near = f * horner(f, _GAMMA_NEAR) + where(y < 1.5, -logarithm, logarithm)
    far = (z - 0.5) * (logarithm - 1.0) + (_correction(where(is_far, z, 8.5)) + 0.5 * (math.log(2.0 * math.pi) - 1.0))
    above = where(is_far, far, near)
    # |gamma(x) gamma(-x)| = pi / |x sin(pi x)|
    sine = abs_(sin((size - round_(size)) * math.pi))
    is_pole = logical_or(sine == 0, size == math.inf)
    below = math.log(math.pi) - log(size * where(is_pole, 1.0, sine)) - above
    return where(is_reflected, where(is_pole, math.inf, below), above)


def _lgamma_slope(t: Array, y: Array, x: Array) -> Array:
    return t * digamma(x)


@composite("lgamma", slopes=[_lgamma_slope], samples=[Sample(((4, 5),), low=-3.7, high=4.0)])
def _lgamma(x: Array) -> Array:
    return _log_gamma(x)


@public("lgamma", method=True)
def lgamma(x: Any) -> Array:
    """log |gamma(x)|; infinity at 0, -1, -2, ... torch `lgamma`, SciPy `special.gammaln`."""
    return _lgamma(as_float(x))[0]


@public("mvlgamma", method=True)
def mvlgamma(x: Any, p: int) -> Array:
    """The logarithm of the gamma function of p dimensions, for x > (p - 1) / 2. torch `mvlgamma`.

    SciPy `special.multigammaln`.
    """
    check_known("mvlgamma", "p", p)
    check_argument(isinstance(p, int | np.integer) and p >= 1, f"mvlgamma: p is a number of dimensions, got {p!r}")
    array = as_float(x)
    total = array * 0.0 + 0.25 * p * (p - 1) * math.log(math.pi)
    for j in range(p):
        total = total + lgamma(array - 0.5 * j)
    return total


def _betaln_slope(t: Array, y: Array, a: Array, b: Array) -> Array:
    return t * (digamma(a) - digamma(a + b))


@composite(
    "betaln",
    slopes=[_betaln_slope, lambda t, y, a, b: _betaln_slope(t, y, b, a)],
    samples=[Sample(((4, 5), (4, 5)), low=0.3, high=12.0)],
)
@in_f64
def _betaln(a: Array, b: Array) -> Array:
    less, more = minimum(a, b), maximum(a, b)
    is_far, are_far = more >= 8.5, less >= 8.5
    m, n = where(is_far, more, 8.5), where(are_far, less, 8.5)
    total = m + less
    # With both by Stirling's formula; with the larger one; with none. No large numbers cancel.
    gap = _correction(m) - _correction(where(is_far, total, 8.5))
    ends = n * log(n / (m + n)) - 0.5 * log(n) + (0.5 * math.log(2.0 * math.pi) + _correction(n))
    both = ends - (m - 0.5) * log1p(n / m) + gap
    one = _log_gamma(less) - (m - 0.5) * log1p(less / m) - less * log(where(is_far, total, 8.5)) + less + gap
    none = _log_gamma(less) + _log_gamma(more) - _log_gamma(less + more)
    near = where(less == 0.0, math.inf, where(is_far, one, none))
    return where(more == math.inf, -math.inf, where(are_far, both, near))


@public("special.betaln", numpy=None)
def betaln(a: Any, b: Any) -> Array:
    """log |B(a, b)| of positive numbers, B(a, b) = gamma(a) gamma(b) / gamma(a + b). SciPy `special.betaln`."""
    return _betaln(*together(a, b, name="special.betaln", floats=True))[0]


# ---- its derivatives ---------------------------------------------------------------------------------


def _digamma_slope(t: Array, y: Array, x: Array) -> Array:
    return t * polygamma(1, x)


@composite("digamma", slopes=[_digamma_slope], samples=[Sample(((4, 5),), low=-3.7, high=4.0)])
@in_f64
def _digamma(x: Array) -> Array:
    is_reflected = x < 0
    z = where(is_reflected, 1.0 - x, x)
    is_far = z >= 8.0
    y = where(is_far, 1.5, z)
    base = y - floor(y) + 1.0
    numerator, denominator = base * 0.0, base * 0.0 + 1.0
    for k in range(1, 7):  # the sum of 1 / (y - k), where y - k is at least 1, with one division
        is_there = y >= k + 1.0
        factor = where(is_there, y - float(k), 1.0)
        numerator = numerator * factor + where(is_there, denominator, 0.0)
        denominator = denominator * factor
    at_base = horner(base - 1.5, _DIGAMMA_NEAR) * ((base - _ROOT[0]) - _ROOT[1])
    below_one = y < 1
    near = at_base + where(below_one, -1.0, numerator) / where(below_one, y, denominator)
    far_z = where(is_far, z, 8.0)
    w = 1.0 / square(far_z)
    far = log(far_z) - 0.5 / far_z - horner(w, _STIRLING_SLOPE) * w
    above = where(is_far, far, near)
    angle = (x - round_(x)) * math.pi
    is_pole = angle == 0
    below = above - math.pi * cos(angle) / where(is_pole, 1.0, sin(angle))
    return where(is_reflected, where(is_pole, math.nan, below), above)


@public("digamma", method=True)
def digamma(x: Any) -> Array:
    """The derivative of log |gamma(x)|: -infinity at 0, NaN at -1, -2, ... torch `digamma`, SciPy `special.psi`."""
    return _digamma(as_float(x))[0]


def _power(x: Array, n: int) -> Array:
    """x^n for n >= 1, by squares."""
    found, factor = None, x
    while n:
        if n & 1:
            found = factor if found is None else found * factor
        n >>= 1
        factor = square(factor) if n else factor
    assert found is not None
    return found


def _cotangent_slope(n: int) -> list[float]:
    """The polynomial of cot(u) that is its derivative of order n: each is -(1 + c^2) times the slope of the last."""
    polynomial = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(polynomial)][1:]
        polynomial = [-a - b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return polynomial


def _polygamma_slope(t: Array, y: Array, x: Array, n: int) -> Array:
    return t * polygamma(n + 1, x)


@composite(
    "polygamma",
    slopes=[_polygamma_slope],
    samples=[Sample(((4, 5),), {"n": n}, low=-1.7, high=4.0) for n in (1, 2)],
)
@in_f64
def _polygamma(x: Array, n: int) -> Array:
    is_reflected = x < 0
    z = where(is_reflected, 1.0 - x, x)
    # The sum of (z + k)^-s over all k >= 0, by Euler and Maclaurin from the N-th on.
    s, count = n + 1, 10 + n
    last = z + float(count)
    w = 1.0 / last
    factor, terms = 1.0, []
    for k, coefficient in enumerate(_EULER_MACLAURIN, 1):
        factor *= s if k == 1 else (s + 2 * k - 3) * (s + 2 * k - 2)
        terms.append(coefficient * factor)
    power = _power(w, s)
    total = horner(square(w), terms) * (power * w) + 0.5 * power
    for k in reversed(range(count)):
        total = total + _power(1.0 / (z + float(k)), s)
    above = (total + _power(w, n) * (1.0 / n)) * math.factorial(n)  # far from 0 the rest is much smaller
    rest = x - round_(x)
    cotangent = cos(rest * math.pi) / sin(rest * math.pi)
    reflection = horner(cotangent, _cotangent_slope(n)) * math.pi ** (n + 1)
    # above is (-1)^(n + 1) times the polygamma function of z
    return where(is_reflected, -above - reflection, above if n % 2 else -above)


@public("polygamma")
def polygamma(n: int, x: Any) -> Array:
    """The derivative of order n, known while staging, of `digamma`. torch and SciPy `special.polygamma`."""
    check_known("polygamma", "n", n)
    check_argument(isinstance(n, int | np.integer) and n >= 0, f"polygamma: n is an order, from 0 on, got {n!r}")
    return digamma(x) if n == 0 else _polygamma(as_float(x), n=int(n))[0]
