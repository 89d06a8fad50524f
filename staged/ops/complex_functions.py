"""Mathematical functions of complex numbers, by functions of their real and imaginary parts.

Each is a composite with its slope, which says its derivative for every mode: the slope of a holomorphic function is
complex, and its vjp multiplies by the conjugate (`primitive.diagonal`). Accuracy: a few units in the last place of the
result's absolute value, for finite arguments whose intermediate values stay in the range; branch cuts are C's and
NumPy's, and continuous from the side of the zero's sign. Of Annex G, the results of infinite and NaN arguments are not
promised.

Sources: Kahan, Branch Cuts for Complex Elementary Functions (1987); C99, Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from staged.ir.types import f32
from staged.ops.array import Array
from staged.ops.choice import select, zeros_of
from staged.ops.complex_numbers import Form, complex_form, join, parts
from staged.ops.composite import COMPOSITES, composite
from staged.ops.context import COMPLEX_FORMS
from staged.ops.elementwise import (
    abs_,
    atan2,
    cos,
    cosh,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    minimum,
    sin,
    sinh,
    sqrt,
    square,
    tan,
)
from staged.ops.primitive import PRIMITIVES, Slope
from staged.ops.special import asinh, copysign, hypot, signbit

_LOG_2 = math.log(2.0)
_LOG_10 = math.log(10.0)


def _holomorphic(name: str, *slopes: Slope) -> Callable[[Form], Form]:
    """Enter the form of the op `name`: a composite with these complex slopes."""

    def enter(body: Form) -> Form:
        whole = composite(f"complex_{name}", slopes=slopes, takes_complex=True)(body)

        def form(*operands: Array) -> Array:
            (result,) = whole(*operands)
            return result

        COMPLEX_FORMS[PRIMITIVES[name] if name in PRIMITIVES else COMPOSITES[name]] = form
        return form

    return enter


@_holomorphic("exp", lambda t, y, z: t * y)
def _exp(z: Array) -> Array:
    a, b = parts(z)
    size = exp(a)
    return join(size * cos(b), select(b == 0, b, size * sin(b)))


@_holomorphic("expm1", lambda t, y, z: t * (y + 1.0))
def _expm1(z: Array) -> Array:
    a, b = parts(z)
    half = sin(b * 0.5)
    return join(expm1(a) * cos(b) - 2.0 * (half * half), select(b == 0, b, exp(a) * sin(b)))


@_holomorphic("log", lambda t, y, z: t / z)
def _log(z: Array) -> Array:
    a, b = parts(z)
    longer, shorter = maximum(abs_(a), abs_(b)), minimum(abs_(a), abs_(b))
    # Near the unit circle the logarithm of the length would have no correct digit.
    near = (longer > 0.5) & (longer < 2.0)
    close = select(near, longer, zeros_of(longer) + 1.0)
    size = select(near, log1p((close - 1.0) * (close + 1.0) + shorter * shorter) * 0.5, log(hypot(a, b)))
    return join(size, atan2(b, a))


@_holomorphic("log1p", lambda t, y, z: t / (z + 1.0))
def _log1p(z: Array) -> Array:
    a, b = parts(z)
    small = (abs_(a) < 0.5) & (abs_(b) < 0.5)
    inner = select(small, a * (a + 2.0) + b * b, zeros_of(a))
    return join(select(small, log1p(inner) * 0.5, log(hypot(a + 1.0, b))), atan2(b, a + 1.0))


@complex_form("log2")
def _log2(z: Array) -> Array:
    return log(z) * (1.0 / _LOG_2)


@complex_form("log10")
def _log10(z: Array) -> Array:
    return log(z) * (1.0 / _LOG_10)


@_holomorphic("sqrt", lambda t, y, z: t * 0.5 / y)
def _sqrt(z: Array) -> Array:
    """The root with a real part of at least 0."""
    a, b = parts(z)
    longer = maximum(abs_(a), abs_(b))
    # A quarter of large numbers, four times small ones: their lengths are in the range, and their roots twice or half.
    large, small = longer > 1.0, longer < 1.0
    factor = select(large, zeros_of(a) + 0.25, select(small, zeros_of(a) + 4.0, zeros_of(a) + 1.0))
    back = select(large, zeros_of(a) + 2.0, select(small, zeros_of(a) + 0.5, zeros_of(a) + 1.0))
    root = sqrt((abs_(a * factor) + hypot(a * factor, b * factor)) * 0.5)
    at_zero = root == 0
    other = select(at_zero, abs_(b), abs_(b * factor) * 0.5 / select(at_zero, root + 1.0, root))
    left = signbit(a) & ~at_zero
    return join(select(left, other, root) * back, copysign(select(left, root, other) * back, b))


@complex_form("rsqrt")
def _rsqrt(z: Array) -> Array:
    return 1.0 / sqrt(z)


@complex_form("pow")
def _pow(z: Array, w: Array) -> Array:
    """exp(w log z); 0 to the power of a positive real part is 0, and anything to the power 0 is 1."""
    at_zero, none = z == 0, w == 0
    found = exp(w * log(select(at_zero, zeros_of(z) + 1.0, z)))
    real = parts(w)[0]
    undefined = select(real > 0, zeros_of(real), zeros_of(real) + math.nan)
    found = select(at_zero, join(undefined, undefined), found)
    return select(none, zeros_of(z) + 1.0, found)


# ---- trigonometric and hyperbolic -----------------------------------------------------------------


@_holomorphic("sin", lambda t, y, z: t * cos(z))
def _sin(z: Array) -> Array:
    a, b = parts(z)
    return join(sin(a) * cosh(b), cos(a) * sinh(b))


@_holomorphic("cos", lambda t, y, z: t * -sin(z))
def _cos(z: Array) -> Array:
    a, b = parts(z)
    return join(cos(a) * cosh(b), -(sin(a) * sinh(b)))


@_holomorphic("sinh", lambda t, y, z: t * cosh(z))
def _sinh(z: Array) -> Array:
    a, b = parts(z)
    return join(sinh(a) * cos(b), cosh(a) * sin(b))


@_holomorphic("cosh", lambda t, y, z: t * sinh(z))
def _cosh(z: Array) -> Array:
    a, b = parts(z)
    return join(cosh(a) * cos(b), sinh(a) * sin(b))


def _tanh_parts(a: Array, b: Array) -> tuple[Array, Array]:
    """The parts of tanh(a + ib), by Kahan; far out, where a hyperbolic sine leaves the range, by its limit."""
    far = abs_(a) > (9.0 if a.dtype is f32 else 20.0)
    inner = select(far, zeros_of(a), a)
    slope, rise = tan(b), sinh(inner)
    beta = square(slope) + 1.0
    below = beta * square(rise) + 1.0
    re = beta * cosh(inner) * rise / below
    small = 4.0 * (sin(b) * cos(b)) * exp(-2.0 * abs_(a))
    return select(far, copysign(zeros_of(a) + 1.0, a), re), select(far, small, slope / below)


@_holomorphic("tanh", lambda t, y, z: t * (1.0 - y * y))
def _tanh(z: Array) -> Array:
    return join(*_tanh_parts(*parts(z)))


@_holomorphic("tan", lambda t, y, z: t * (y * y + 1.0))
def _tan(z: Array) -> Array:
    a, b = parts(z)
    re, im = _tanh_parts(-b, a)
    return join(im, -re)


# ---- their inverses -------------------------------------------------------------------------------


def _asin_parts(a: Array, b: Array) -> tuple[Array, Array]:
    (c, d), (e, f) = parts(sqrt(join(1.0 - a, -b))), parts(sqrt(join(1.0 + a, b)))
    return atan2(a, c * e - d * f), asinh(c * f - d * e)


@_holomorphic("asin", lambda t, y, z: t / (sqrt(1.0 - z) * sqrt(1.0 + z)))
def _asin(z: Array) -> Array:
    return join(*_asin_parts(*parts(z)))


@_holomorphic("asinh", lambda t, y, z: t / (sqrt(1.0 - 1j * z) * sqrt(1.0 + 1j * z)))
def _asinh(z: Array) -> Array:
    a, b = parts(z)
    re, im = _asin_parts(-b, a)
    return join(im, -re)


@_holomorphic("acos", lambda t, y, z: -(t / (sqrt(1.0 - z) * sqrt(1.0 + z))))
def _acos(z: Array) -> Array:
    a, b = parts(z)
    (c, d), (e, f) = parts(sqrt(join(1.0 - a, -b))), parts(sqrt(join(1.0 + a, b)))
    return join(2.0 * atan2(c, e), asinh(e * d - f * c))


@_holomorphic("acosh", lambda t, y, z: t / (sqrt(z - 1.0) * sqrt(z + 1.0)))
def _acosh(z: Array) -> Array:
    a, b = parts(z)
    (c, d), (e, f) = parts(sqrt(join(a - 1.0, b))), parts(sqrt(join(a + 1.0, b)))
    return join(asinh(c * e + d * f), 2.0 * atan2(d, e))


def _atanh_parts(a: Array, b: Array) -> tuple[Array, Array]:
    size = abs_(a)
    rest = 1.0 - size
    re = 0.25 * log1p(4.0 * size / (rest * rest + b * b))
    return copysign(re, a), 0.5 * atan2(2.0 * b, rest * (1.0 + size) - b * b)


@_holomorphic("atanh", lambda t, y, z: t / ((1.0 - z) * (1.0 + z)))
def _atanh(z: Array) -> Array:
    return join(*_atanh_parts(*parts(z)))


@_holomorphic("atan", lambda t, y, z: t / (z * z + 1.0))
def _atan(z: Array) -> Array:
    a, b = parts(z)
    re, im = _atanh_parts(-b, a)
    return join(im, -re)
