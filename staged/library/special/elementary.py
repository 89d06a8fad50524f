"""Functions of one element, or of one of each operand, written in the primitives of `elementwise`.

Their derivatives are those of what they are made of. Where a formula has none at a point that is not chosen, it sees
another point there, so that the derivative stays finite.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from staged.ir.types import f32
from staged.library.special.polynomials import horner
from staged.ops.array import Array
from staged.ops.choice import stop_gradient, where
from staged.ops.comparisons import clip, equal, less, logical_and, logical_or
from staged.ops.composite import composite
from staged.ops.elementwise import (
    abs_,
    add,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    logaddexp,
    maximum,
    pow_,
    remainder,
    rsqrt,
    sin,
    sqrt,
    square,
    trunc,
)
from staged.ops.primitive import Sample
from staged.ops.promote import as_array, as_float, cast, check_real, is_number, promoted, together
from staged.ops.public import public
from staged.ops.reduction import all_
from staged.ops.wide_numbers import comparable, settled

_LOG_2 = math.log(2.0)


def _large(x: Array) -> Array:
    """Whether 1 is nothing beside the square of `x`, which may leave the range."""
    return x > 1.0 / float(np.finfo(x.dtype.numpy).eps)


# ---- powers, logarithms and angles ----------------------------------------------------------------


@public("exp2", method=True)
def exp2(x: Any) -> Array:
    """2 to the power x, element by element. NumPy and torch `exp2`."""
    return pow_(2.0, as_float(x))


@public("reciprocal", method=True)
def reciprocal(x: Any) -> Array:
    """1 / x, element by element, a float. Array API `reciprocal`."""
    return 1.0 / as_float(x)


@public("logaddexp2", method=True)
def logaddexp2(a: Any, b: Any) -> Array:
    """log2(2^a + 2^b), without overflow. NumPy and torch `logaddexp2`."""
    left, right = together(a, b, name="logaddexp2", floats=True)
    return logaddexp(left * _LOG_2, right * _LOG_2) * (1.0 / _LOG_2)


@public("xlogy", method=True)
def xlogy(x: Any, y: Any) -> Array:
    """x * log(y), and 0 where x is 0 (NaN where y is). torch `xlogy`, SciPy `special.xlogy`."""
    left, right = together(x, y, name="xlogy", floats=True)
    unused = logical_and(left == 0, logical_or(right <= 0, right == math.inf))
    return where(unused, 0.0, left * log(where(unused, 1.0, right)))


@public("special.xlog1py")
def xlog1py(x: Any, y: Any) -> Array:
    """x * log(1 + y), and 0 where x is 0 (NaN where y is). torch and SciPy `special.xlog1py`."""
    left, right = together(x, y, name="special.xlog1py", floats=True)
    unused = logical_and(left == 0, logical_or(right <= -1, right == math.inf))
    return where(unused, 0.0, left * log1p(where(unused, 0.0, right)))


@public("special.entr")
def entr(x: Any) -> Array:
    """-x * log(x), 0 at 0 and -infinity below: what an event adds to the entropy. torch and SciPy `special.entr`."""
    return _entr(as_float(x))[0]


@composite("entr", slopes=[lambda t, y, x: t * (-log(x) - 1.0)], samples=[Sample(((4, 5),), low=0.2, high=2.0)])
def _entr(x: Array) -> Array:
    inside = x > 0
    kept = where(inside, x, 1.0)
    return where(inside, -kept * log(kept), where(x < 0, -math.inf, x * 0.0))


@public("logit", method=True)
def logit(x: Any, eps: float | None = None) -> Array:
    """log(x / (1 - x)), the inverse of `sigmoid`; with `eps`, `x` is kept within [eps, 1 - eps]. torch `logit`."""
    array = as_float(x)
    array = array if eps is None else clip(array, eps, 1.0 - eps)
    return log(array / (1.0 - array))


@public("deg2rad", method=True, numpy=("radians",))
def deg2rad(x: Any) -> Array:
    """An angle in degrees as radians. NumPy and torch `deg2rad`."""
    return as_float(x) * (math.pi / 180.0)


@public("rad2deg", method=True, numpy=("degrees",))
def rad2deg(x: Any) -> Array:
    """An angle in radians as degrees. NumPy and torch `rad2deg`."""
    return as_float(x) * (180.0 / math.pi)


_SINC = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(11))
"""sin(x) / x in x^2, for |x| <= 1."""


@public("sinc", method=True)
def sinc(x: Any) -> Array:
    """sin(pi x) / (pi x), and 1 at 0. NumPy and torch `sinc`."""
    angle = as_float(x) * math.pi
    # Near 0 by its series, so that derivatives of every order are right there.
    is_near = abs_(angle) < 1.0
    near, far = square(where(is_near, angle, 0.0)), where(is_near, 1.0, angle)
    return where(is_near, horner(near, _SINC), sin(far) / far)


@public("hypot", method=True)
def hypot(a: Any, b: Any) -> Array:
    """sqrt(a^2 + b^2), without overflow; an infinity where either is one. Its derivative at (0, 0) is 0.

    Array API `hypot`.
    """
    left, right = together(a, b, name="hypot", floats=True)
    check_real("hypot", left, right)
    longer = stop_gradient(maximum(abs_(left), abs_(right)))
    at_zero, endless = longer == 0, logical_or(isinf(left), isinf(right))
    scale = where(logical_or(at_zero, endless), 1.0, longer)
    length = square(left / scale) + square(right / scale)
    return where(endless, math.inf, where(at_zero, 0.0, scale * sqrt(where(at_zero, 1.0, length))))


# ---- inverse hyperbolic functions -----------------------------------------------------------------


def _asinh_slope(t: Array, y: Array, x: Array) -> Array:
    size = abs_(x)
    large = _large(size)
    return t * where(large, 1.0 / where(large, size, 1.0), rsqrt(square(where(large, 1.0, size)) + 1.0))


@composite("asinh", slopes=[_asinh_slope], samples=[Sample(((4, 5),))])
def asinh_op(x: Array) -> Array:
    size = abs_(x)
    large = _large(size)
    near = where(large, 1.0, size)
    rest = square(near) / (sqrt(square(near) + 1.0) + 1.0)
    found = where(large, log(size) + _LOG_2, log1p(near + rest))
    return where(x == 0, x, where(x < 0, -found, found))


@public("asinh", method=True, numpy=("arcsinh",), torch=("arcsinh",))
def asinh(x: Any) -> Array:
    """Inverse hyperbolic sine. Array API `asinh`."""
    return asinh_op(as_float(x))[0]


@composite(
    "acosh",
    slopes=[lambda t, y, x: t * (rsqrt(x - 1.0) * rsqrt(x + 1.0))],
    samples=[Sample(((4, 5),), low=1.2, high=4.0)],
)
def acosh_op(x: Array) -> Array:
    large = _large(x)
    above = where(large, 1.0, x) - 1.0
    return where(large, log(x) + _LOG_2, log1p(above + sqrt(above) * sqrt(above + 2.0)))


@public("acosh", method=True, numpy=("arccosh",), torch=("arccosh",))
def acosh(x: Any) -> Array:
    """Inverse hyperbolic cosine; NaN below 1. Array API `acosh`."""
    return acosh_op(as_float(x))[0]


@composite(
    "atanh",
    slopes=[lambda t, y, x: t / ((1.0 - x) * (x + 1.0))],
    samples=[Sample(((4, 5),), low=-0.9, high=0.9)],
)
def atanh_op(x: Array) -> Array:
    return 0.5 * (log1p(x) - log1p(-x))


@public("atanh", method=True, numpy=("arctanh",), torch=("arctanh",))
def atanh(x: Any) -> Array:
    """Inverse hyperbolic tangent; NaN outside of [-1, 1]. Array API `atanh`."""
    return atanh_op(as_float(x))[0]


# ---- parts and signs ------------------------------------------------------------------------------


@public("frac", method=True)
def frac(x: Any) -> Array:
    """x - trunc(x), the fraction with the sign of x. torch `frac`."""
    array = as_float(x)
    return array - trunc(array)


@public("fmod", method=True)
def fmod(a: Any, b: Any) -> Array:
    """The remainder of a / b rounded towards 0, exactly: its sign is a's (C's `fmod`). NumPy and torch `fmod`.

    An integer modulo zero stops the program with the line.
    """
    left, right = together(a, b, name="fmod")
    if not left.dtype.is_float:
        rest = remainder(left, right)  # which has the sign of b
        return where(logical_and(rest != 0, (rest < 0) != (left < 0)), rest - right, rest)
    below = signbit(left)
    size = remainder(where(below, -left, left), abs_(right))
    return where(below, -size, size)


@public("signbit", method=True)
def signbit(x: Any) -> Array:
    """Whether x is below 0, or is -0.0. Array API `signbit`, where the sign of NaN counts too: here it has none."""
    array = as_array(x)
    if not array.dtype.is_float:
        return less(array, 0)
    at_zero = array == 0
    return logical_or(array < 0, logical_and(at_zero, 1.0 / where(at_zero, array, 1.0) < 0))


@public("copysign", method=True)
def copysign(a: Any, b: Any) -> Array:
    """The size of `a` with the sign of `b`, where -0.0 is negative and NaN is not. Array API `copysign`."""
    left, right = together(a, b, name="copysign", floats=True)
    signed = where(signbit(left) == signbit(right), left, -left)
    return where(left == 0, stop_gradient(signed), signed)  # as in torch, the derivative at 0 is 0


@public("nextafter", method=True)
def nextafter(a: Any, b: Any) -> Array:
    """The float after `a` in the direction of `b`. Array API `nextafter`.

    Source: Rump, Zimmermann, Boldo and Melquiond, Computing predecessor and successor in rounding to nearest, 2009.
    """
    left, right = together(a, b, name="nextafter", floats=True)
    check_real("nextafter", left, right)
    dtype = left.dtype
    limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    left, right = (cast(each, f32) if dtype.is_half else each for each in (left, right))
    # A bit more than half the distance of neighbours, which rounds to all of it. Small numbers are made large first.
    small, scale = float(limits.tiny) * 2.0**60, 2.0**60
    size, upwards = abs_(left), cast(where(left < right, 1, -1), left.dtype)
    larger = where(size < small, left * scale, left)
    moved = larger + upwards * abs_(larger) * (float(limits.epsneg) * (1.0 + 2.0 * float(limits.epsneg)))
    moved = where(size < small, moved / scale, moved)
    moved = where(size < 2.0 * float(limits.tiny), left + upwards * float(limits.smallest_subnormal), moved)
    moved = where(size == math.inf, upwards * -float(limits.max), moved)
    is_nan = logical_or(isnan(left), isnan(right))
    return cast(where(is_nan, math.nan, where(left == right, right, moved)), dtype)


@public("heaviside", method=True)
def heaviside(x: Any, values: Any) -> Array:
    """0 below 0, 1 above 0, `values` at 0; NaN for NaN. NumPy and torch `heaviside`. Its derivative by x is 0."""
    left, right = together(x, values, name="heaviside")
    return where(left == 0, right, where(left < 0, 0, where(left > 0, 1, stop_gradient(left))))


@public("fmax", method=True)
def fmax(a: Any, b: Any) -> Array:
    """The larger of a and b, the other one where one is NaN. NumPy and torch `fmax`."""
    left, right = together(a, b, name="fmax")
    return _not_nan(left, right, left >= right)


@public("fmin", method=True)
def fmin(a: Any, b: Any) -> Array:
    """The smaller of a and b, the other one where one is NaN. NumPy and torch `fmin`."""
    left, right = together(a, b, name="fmin")
    return _not_nan(left, right, left <= right)


def _not_nan(left: Array, right: Array, is_left: Array) -> Array:
    """The chosen one, the left one of ties; as in torch, it has all of the derivative."""
    return where(logical_or(is_left, isnan(right)) if left.dtype.is_float else is_left, left, right)


@public("nan_to_num", method=True)
def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    """`x` with numbers for NaN and the infinities: by default 0 and the ends of the range. NumPy `nan_to_num`."""
    array = as_array(x)
    check_real("nan_to_num", array)
    if not array.dtype.is_float:
        return array
    top = float(np.finfo(array.dtype.numpy).max)
    kept = where(array == math.inf, top if posinf is None else posinf, where(isnan(array), nan, array))
    return where(array == -math.inf, -top if neginf is None else neginf, kept)


# ---- sums with weights ----------------------------------------------------------------------------


@public("lerp", method=True)
def lerp(a: Any, b: Any, weight: Any) -> Array:
    """a + weight * (b - a): `a` at weight 0 and `b` at weight 1, both exactly. torch `lerp`."""
    a, b, weight = settled(a, b, weight)
    left, right = together(a, b, name="lerp", floats=True)
    span = right - left
    if is_number(weight):
        number: Array = left + span * weight if abs(weight) < 0.5 else right - span * (1.0 - weight)
        return number
    return where(abs_(weight) < 0.5, left + span * weight, right - span * (1.0 - as_float(weight)))


@public("addcmul", method=True)
def addcmul(x: Any, a: Any, b: Any, *, value: float = 1) -> Array:
    """x + value * a * b, element by element. torch `addcmul`."""
    x, a, b = settled(x, a, b)
    product = as_array(a) * b
    return add(x, product if is_number(value) and value == 1 else product * value)


@public("addcdiv", method=True)
def addcdiv(x: Any, a: Any, b: Any, *, value: float = 1) -> Array:
    """x + value * a / b, element by element. torch `addcdiv`."""
    x, a, b = settled(x, a, b)
    quotient = as_array(a) / b
    return add(x, quotient if is_number(value) and value == 1 else quotient * value)


# ---- nearly equal ---------------------------------------------------------------------------------


@public("isclose", method=True)
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether |a - b| <= atol + rtol * |b|, element by element; infinities are close to themselves. NumPy `isclose`."""
    left, right = together(a, b, name="isclose", floats=True)
    near = logical_and(isfinite(right), abs_(left - right) <= abs_(right) * rtol + atol)
    found = logical_or(near, equal(left, right))
    return logical_or(found, logical_and(isnan(left), isnan(right))) if equal_nan else found


@public("allclose", method=True)
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether all elements are close as `isclose` says: one bool. NumPy and torch `allclose`."""
    return all_(isclose(a, b, rtol, atol, equal_nan))


@public("array_equal")
def array_equal(a: Any, b: Any) -> Array:
    """Whether both have one shape and equal elements: one bool. NumPy `array_equal`, torch `equal`."""
    left, right = promoted(*comparable(a, b))
    return all_(equal(left, right)) if left.shape == right.shape else as_array(False)
