"""Inverses and scaled forms of the error function, and the standard normal distribution.

Polynomials are fits of ours by Chebyshev interpolation, f64. The inverse is a function of -log(1 - x^2), after Giles,
Approximating the erfinv function, 2010; the scaled function is one polynomial of (x - 3) / (x + 3), after Shepherd and
Laframboise, 1981.
"""

from __future__ import annotations

import math
from typing import Any

from staged.library.special.polynomials import horner, in_f64
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, exp, log, log1p, minimum, sqrt, square, trunc
from staged.ops.primitive import Sample
from staged.ops.promote import as_float
from staged.ops.public import public

# erfinv(x) / x in w - 3.125, with w = -log(1 - x^2), for w <= 6.25
_INVERSE_NEAR = (
    1.6536545626831027,
    0.24015818242558834,
    -0.006033670871426851,
    -0.0007407025341546431,
    0.00018673420801981186,
    -1.3882523393957483e-05,
    -1.3654691758785656e-06,
    4.23478816822246e-07,
    -2.907039127564132e-08,
    -4.1126604371632185e-09,
    1.051223377050429e-09,
    -5.414303283919504e-11,
    -1.2978805369932565e-11,
    2.6305268312595183e-12,
    -8.07192593899004e-14,
    -4.0020031087558496e-14,
    6.521333511502239e-15,
    -3.94018812230432e-17,
    -1.2215637192404172e-16,
    1.5510787009902526e-17,
    6.075050702072414e-19,
    -3.4734793888538036e-19,
    1.999259988861535e-20,
    3.194015548136271e-21,
    -3.5932028927020693e-22,
)

# the same in sqrt(w) - 3.25, for 2.5 <= sqrt(w) <= 4
_INVERSE_MIDDLE = (
    3.0838856104922208,
    1.0052589676941655,
    0.005370914553555033,
    -0.0037512085082247342,
    0.00249144209795696,
    -0.0016882755354488555,
    0.0009532893415794137,
    -0.0003550378137852452,
    2.4031512865758357e-05,
    6.828711739251955e-05,
    -4.732068066544697e-05,
    1.2465028224217455e-05,
    2.93257845538535e-06,
    -3.985705945648173e-06,
    1.4815977874022539e-06,
    -2.761716223816241e-08,
    -2.4549818963339823e-07,
    1.3158663683192966e-07,
    -2.091453334773126e-08,
    -1.5305397964152548e-08,
    7.680200479077053e-09,
)

# erfinv(x) / x / sqrt(w), for 4 <= sqrt(w) <= 27.5, in what 1 / sqrt(w) is on [-1, 1]
_INVERSE_FAR = (
    0.9812264416084467,
    -0.020430421806538996,
    -0.0019938719758373076,
    0.0013680794625395086,
    -0.0002789162608170812,
    7.482972789171543e-05,
    -2.8893338342867293e-05,
    1.2602780601832196e-05,
    -5.882770167787073e-06,
    2.9214542370770434e-06,
    -1.525671056530813e-06,
    8.277832808566316e-07,
    -4.553644452388103e-07,
    2.662765578386902e-07,
    -1.7571793212015472e-07,
    1.2331527461111855e-07,
    7.229824651649698e-08,
    4.044553678774267e-08,
    -2.2356079264603554e-07,
    4.9666327100675184e-08,
    2.581462510208035e-07,
    -1.7827639131302417e-07,
    -3.3022713310428743e-07,
    3.077582528181551e-07,
    3.05387117564368e-07,
    -2.9139568579960476e-07,
    -1.940983360704236e-07,
    1.7552695471408078e-07,
    7.258756992176809e-08,
    -6.18984620071155e-08,
    -1.2820839800889174e-08,
    1.0310580500276263e-08,
)

# (x + 3) exp(x^2) erfc(x) in (x - 3) / (x + 3), for x >= 0
_SCALED = (
    1.0740069070883398,
    -0.8833944531698836,
    0.5902283571041024,
    -0.31046726190056184,
    0.11952776128726571,
    -0.026827234624709966,
    -0.0012124166268093813,
    0.0030340620054672574,
    -0.000548309694726331,
    -0.00027677788930351106,
    0.0001075614977090451,
    3.0398423921881705e-05,
    -1.747058701476735e-05,
    -4.7502313075737725e-06,
    2.7654103185099284e-06,
    1.0014294992887557e-06,
    -4.0798245829659536e-07,
    -2.3769581319180378e-07,
    4.608561253155146e-08,
    5.4957361232324593e-08,
    -1.0001676849090711e-09,
    -1.1066712172163187e-08,
    -9.71345776632257e-10,
    1.6739940735895342e-09,
    1.6305251390806974e-10,
    -1.3807366412787754e-10,
)


# ---- the inverse -------------------------------------------------------------------------------------

_FIRST, _LAST = 1 / 27.5, 1 / 4


def _inverse_over_x(w: Array) -> Array:
    """erfinv(x) / x, from w = -log(1 - x^2) up to 756."""
    s = sqrt(w)
    is_near, is_far = w <= 6.25, s > 4.0
    near = horner(where(is_near, w, 0.0) - 3.125, _INVERSE_NEAR)
    middle = horner(where(is_near | is_far, 3.25, s) - 3.25, _INVERSE_MIDDLE)
    u = (1.0 / where(is_far, s, 4.0) - 0.5 * (_FIRST + _LAST)) * (2.0 / (_LAST - _FIRST))
    return where(is_near, near, where(is_far, s * horner(u, _INVERSE_FAR), middle))


@composite(
    "erfinv",
    slopes=[lambda t, y, x: t * (0.5 * math.sqrt(math.pi) * exp(square(y)))],
    samples=[Sample(((4, 5),), low=-0.95, high=0.95)],
)
@in_f64
def _erfinv(x: Array) -> Array:
    return x * _inverse_over_x(-log((1.0 - x) * (1.0 + x)))


@public("erfinv", method=True)
def erfinv(x: Any) -> Array:
    """The inverse of `erf`: infinite at -1 and 1, NaN beyond. torch `erfinv`, SciPy `special.erfinv`."""
    return _erfinv(as_float(x))[0]


@composite(
    "ndtri",
    slopes=[lambda t, y, p: t * (math.sqrt(2.0 * math.pi) * exp(0.5 * square(y)))],
    samples=[Sample(((4, 5),), low=0.02, high=0.98)],
)
@in_f64
def _ndtri(p: Array) -> Array:
    return math.sqrt(2.0) * (2.0 * p - 1.0) * _inverse_over_x(-log(4.0 * p * (1.0 - p)))


@public("special.ndtri")
def ndtri(p: Any) -> Array:
    """The number below which the standard normal distribution has the probability p: the inverse of `ndtr`.

    torch and SciPy `special.ndtri`.
    """
    return _ndtri(as_float(p))[0]


# ---- scaled ------------------------------------------------------------------------------------------


def _scaled(x: Array) -> Array:
    """exp(x^2) erfc(x), for x >= 0."""
    w = 1.0 / (x + 3.0)
    return horner(1.0 - 6.0 * w, _SCALED) * w


def _exp_of_square(x: Array, scale: float) -> Array:
    """exp(scale x^2) of x within [0, 40]: the square in two parts, of which the first is exact."""
    coarse = trunc(x * 16.0) * 0.0625
    return exp(square(coarse) * scale) * exp((x - coarse) * (x + coarse) * scale)


@composite("erfcx", slopes=[lambda t, y, x: t * _erfcx_slope_of(x)], samples=[Sample(((4, 5),))])
@in_f64
def _erfcx(x: Array) -> Array:
    size = abs_(x)
    above = _scaled(size)
    return where(x < 0, 2.0 * _exp_of_square(minimum(size, 40.0), 1.0) - above, above)


@in_f64
def _erfcx_slope_of(x: Array) -> Array:
    # Far above 0 the two terms cancel: there by the asymptotic series, whose next term is below 1e-15. The value is
    # computed again: that of an f32 is rounded, and x times its rounding is all that is left of their difference.
    is_far = x > 50.0
    far_x, near_x = where(is_far, x, 50.0), where(is_far, 0.0, x)
    w = 1.0 / square(far_x)
    far = w * horner(w, (-1.0, 1.5, -3.75, 13.125, -59.0625)) * (1.0 / math.sqrt(math.pi))
    near = 2.0 * near_x * _erfcx(near_x)[0] - 2.0 / math.sqrt(math.pi)
    return where(is_far, far, near)


@public("special.erfcx")
def erfcx(x: Any) -> Array:
    """exp(x^2) erfc(x), without overflow above 0. torch and SciPy `special.erfcx`."""
    return _erfcx(as_float(x))[0]


# ---- the normal distribution -------------------------------------------------------------------------


@composite(
    "ndtr",
    slopes=[lambda t, y, x: t * (exp(-0.5 * square(x)) * (1.0 / math.sqrt(2.0 * math.pi)))],
    samples=[Sample(((4, 5),))],
)
@in_f64
def _ndtr(x: Array) -> Array:
    size = abs_(x)
    tail = 0.5 * _exp_of_square(minimum(size, 40.0), -0.5) * _scaled(size * math.sqrt(0.5))
    return where(x < 0, tail, 1.0 - tail)


@public("special.ndtr")
def ndtr(x: Any) -> Array:
    """The probability of the standard normal distribution below x, accurate far below 0. torch `special.ndtr`.

    SciPy `special.ndtr`.
    """
    return _ndtr(as_float(x))[0]


def _log_ndtr_slope(t: Array, y: Array, x: Array) -> Array:
    is_below = x < 0
    below = math.sqrt(2.0 / math.pi) / _erfcx(where(is_below, x, 0.0) * -math.sqrt(0.5))[0]
    above = exp(-0.5 * square(where(is_below, 0.0, x)) - where(is_below, 0.0, y)) * (1.0 / math.sqrt(2.0 * math.pi))
    return t * where(is_below, below, above)


@composite("log_ndtr", slopes=[_log_ndtr_slope], samples=[Sample(((4, 5),))])
@in_f64
def _log_ndtr(x: Array) -> Array:
    size = abs_(x)
    scaled = 0.5 * _scaled(size * math.sqrt(0.5))
    above = log1p(-(_exp_of_square(minimum(size, 40.0), -0.5) * scaled))
    return where(x < 0, log(scaled) - 0.5 * square(size), above)


@public("special.log_ndtr")
def log_ndtr(x: Any) -> Array:
    """The logarithm of `ndtr`, without underflow. torch and SciPy `special.log_ndtr`."""
    return _log_ndtr(as_float(x))[0]
