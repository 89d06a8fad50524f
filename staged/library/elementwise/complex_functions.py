"""Mathematical functions of complex numbers, by functions of their real and imaginary parts.

Each is a composite with its slope, which says its derivative for every mode: the slope of a holomorphic function is
complex, and its vjp multiplies by the conjugate (`primitive.diagonal`). Accuracy: a few units in the last place of the
result's absolute value, for finite arguments whose intermediate values stay in the range; branch cuts are C's and
NumPy's, and continuous from the side of the zero's sign. Results of infinities and NaN are those of C's Annex G and of
the Array API, chosen by selects, so that kernels stay free of branches.

Sources: Kahan, Branch Cuts for Complex Elementary Functions (1987); C99, Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from staged.ir.declaration import prims
from staged.ir.types import f16, f32
from staged.library.elementwise.complex_numbers import Form, complex_form, join, parts
from staged.library.special.elementary import acosh_op, asinh, asinh_op, atanh_op, hypot, signbit
from staged.ops.array import Array
from staged.ops.choice import ones_of, select, zeros_of
from staged.ops.composite import Composite, composite
from staged.ops.context import COMPLEX_FORMS
from staged.ops.elementwise import (
    abs_,
    atan2,
    cos,
    cosh,
    exp,
    expm1,
    isfinite,
    isinf,
    log,
    log1p,
    maximum,
    minimum,
    sin,
    sinh,
    sqrt,
    square,
)
from staged.ops.primitive import Primitive, Slope
from staged.ops.promote import cast

_LOG_2 = math.log(2.0)
_LOG_10 = math.log(10.0)


def _holomorphic(op: Primitive | Composite, *slopes: Slope) -> Callable[[Form], Form]:
    """Enter the form of an op: a composite with these complex slopes."""

    def enter(body: Form) -> Form:
        whole = composite(f"complex_{op.name}", slopes=slopes, takes_complex=True)(body)

        def form(*operands: Array) -> Array:
            (result,) = whole(*operands)
            return result

        COMPLEX_FORMS[op] = form
        return form

    return enter


def _signed(size: Array, of: Array) -> Array:
    """A number that is not negative, with the sign of another one."""
    return select(signbit(of), -size, size)


def _constant(x: Array, value: float) -> Array:
    """`value` at each element of `x`, in its dtype."""
    return zeros_of(x) + value


def _turn(a: Array, b: Array) -> Array:
    """The angle b of exp(a + ib). An infinite length is without a direction if b is no number: then 0."""
    return select(isinf(a) & ~isfinite(b), zeros_of(b), b)


@_holomorphic(prims.EXP, lambda t, y, z: t * y)
def _exp(z: Array) -> Array:
    a, b = parts(z)
    size, turn = exp(a), _turn(a, b)
    return join(size * cos(turn), select(b == 0, b, size * sin(turn)))


@_holomorphic(prims.EXPM1, lambda t, y, z: t * exp(z))
def _expm1(z: Array) -> Array:
    a, b = parts(z)
    turn = _turn(a, b)
    half = sin(turn * 0.5)
    re = expm1(a) * cos(turn) - 2.0 * (half * half) + 0.0  # the Array API's result of -0 + 0i is 0
    return join(re, select(b == 0, b, exp(a) * sin(turn)))


def _pieces(x: Array) -> tuple[Array, Array]:
    """x = high + low, where products of two pieces are exact (but low * low). Kept by compilers that fuse a * b + c."""
    high = cast(cast(x, f16 if x.dtype is f32 else f32), x.dtype, x.type.weak)
    return high, x - high


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its error. Source: Knuth, The Art of Computer Programming, volume 2, 4.2.2."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _excess(x: Array, y: Array) -> Array:
    """(1 + x)^2 + y^2 - 1, also where almost all of it cancels."""
    (x1, x2), (y1, y2) = _pieces(x), _pieces(y)
    total, first = _two_sum(2.0 * x, y1 * y1)
    total, second = _two_sum(total, x1 * x1)
    small, third = _two_sum(2.0 * y1 * y2, 2.0 * x1 * x2)
    return (total + small) + ((y2 * y2 + x2 * x2 + third) + (first + second))


def _log_length(a: Array, b: Array, above: Array | None = None) -> Array:
    """log |a + ib|, to the last digits near the unit circle, too. `above` is a - 1, known better than a itself."""
    longer, shorter = maximum(abs_(a), abs_(b)), minimum(abs_(a), abs_(b))
    near = (longer > 0.5) & (longer < 2.0)
    rest = longer - 1.0
    if above is not None:
        right = above > -0.5
        rest, shorter = select(right, above, rest), select(right, abs_(b), shorter)
    flat = zeros_of(a)
    found = _excess(select(near, rest, flat), select(near, shorter, flat))
    return select(near, log1p(found) * 0.5, log(hypot(a, b)))


@_holomorphic(prims.LOG, lambda t, y, z: t / z)
def _log(z: Array) -> Array:
    a, b = parts(z)
    return join(_log_length(a, b), atan2(b, a))


@_holomorphic(prims.LOG1P, lambda t, y, z: t / (z + 1.0))
def _log1p(z: Array) -> Array:
    a, b = parts(z)
    return join(_log_length(a + 1.0, b, a), atan2(b, a + 1.0))


@complex_form(prims.LOG2)
def _log2(z: Array) -> Array:
    return log(z) * (1.0 / _LOG_2)


@complex_form(prims.LOG10)
def _log10(z: Array) -> Array:
    return log(z) * (1.0 / _LOG_10)


@_holomorphic(prims.SQRT, lambda t, y, z: t * 0.5 / y)
def _sqrt(z: Array) -> Array:
    """The root with a real part of at least 0."""
    a, b = parts(z)
    longer = maximum(abs_(a), abs_(b))
    # A quarter of large numbers, four times small ones: their lengths are in the range, and their roots twice or half.
    large, small = longer > 1.0, longer < 1.0
    factor = select(large, zeros_of(a) + 0.25, select(small, zeros_of(a) + 4.0, zeros_of(a) + 1.0))
    back = select(large, zeros_of(a) + 2.0, select(small, zeros_of(a) + 0.5, zeros_of(a) + 1.0))
    root = sqrt((abs_(a * factor) + hypot(a * factor, b * factor)) * 0.5)
    at_zero, endless = root == 0, isinf(b)
    other = select(at_zero | endless, abs_(b), abs_(b * factor) * 0.5 / select(at_zero, root + 1.0, root))
    root = select(endless, other, root)
    left = signbit(a) & ~at_zero
    return join(select(left, other, root) * back, _signed(select(left, root, other) * back, b))


@complex_form(prims.RSQRT)
def _rsqrt(z: Array) -> Array:
    return 1.0 / sqrt(z)


@complex_form(prims.POW)
def _pow(z: Array, w: Array) -> Array:
    """exp(w log z); 0 to the power of a positive real part is 0, and anything to the power 0 is 1."""
    at_zero = z == 0
    found = exp(w * log(select(at_zero, zeros_of(z) + 1.0, z)))
    real = parts(w)[0]
    undefined = select(real > 0, zeros_of(real), zeros_of(real) + math.nan)
    found = select(at_zero, join(undefined, undefined), found)
    # Of other numbers the power 0 is exp(0), which keeps its slope.
    re, im = parts(z)
    is_number = isfinite(re) & isfinite(im) & ~at_zero
    return select((w == 0) & ~is_number, zeros_of(z) + 1.0, found)


# ---- trigonometric and hyperbolic -----------------------------------------------------------------


# For an odd function G with real coefficients, F(z) = -i G(iz) is G(b + ia) with its parts exchanged: sine and sinh,
# tangent and tanh, and their inverses.


def _sinh_parts(a: Array, b: Array) -> tuple[Array, Array]:
    # Where b is no number, the real part is still known if sinh(a) is 0 or infinite.
    known = ~isfinite(b) & ((a == 0) | isinf(a))
    return sinh(a) * select(known, ones_of(b), cos(b)), select(b == 0, b, cosh(a) * sin(b))


def _cosh_parts(a: Array, b: Array) -> tuple[Array, Array]:
    re = cosh(a) * select(isinf(a) & ~isfinite(b), ones_of(b), cos(b))
    # Zero also where the other factor is infinite or NaN.
    flat = (b == 0) | ((a == 0) & ~isfinite(b))
    return re, select(flat, select(signbit(a) == signbit(b), zeros_of(a), -zeros_of(a)), sinh(a) * sin(b))


@_holomorphic(prims.SIN, lambda t, y, z: t * cos(z))
def _sin(z: Array) -> Array:
    a, b = parts(z)
    re, im = _sinh_parts(b, a)
    return join(im, re)


@_holomorphic(prims.COS, lambda t, y, z: t * -sin(z))
def _cos(z: Array) -> Array:
    a, b = parts(z)
    re, im = _cosh_parts(b, a)
    return join(re, -im)


@_holomorphic(prims.SINH, lambda t, y, z: t * cosh(z))
def _sinh(z: Array) -> Array:
    return join(*_sinh_parts(*parts(z)))


@_holomorphic(prims.COSH, lambda t, y, z: t * sinh(z))
def _cosh(z: Array) -> Array:
    return join(*_cosh_parts(*parts(z)))


def _tanh_parts(a: Array, b: Array) -> tuple[Array, Array]:
    """The parts of tanh(a + ib), by Kahan; far out, where a hyperbolic sine leaves the range, by its limit."""
    far, ended = abs_(a) > (9.0 if a.dtype is f32 else 20.0), isinf(a)
    inner = select(far, zeros_of(a), a)
    sine, cosine, rise = sin(b), cos(b), sinh(inner)
    slope = sine / cosine
    beta = square(slope) + 1.0
    below = beta * square(rise) + 1.0
    limit = select(isfinite(b) | ended, ones_of(a), _constant(a, math.nan))
    re = select(far, _signed(limit, a), beta * cosh(inner) * rise / below)
    im = select(far, 4.0 * (sine * cosine) * exp(-2.0 * abs_(a)), slope / below)
    # The Array API gives the zero at infinity the sign of b; C gives it that of sin(2b).
    return select(a == 0, a, re), select(ended | (b == 0), _signed(zeros_of(b), b), im)


def _tanh_slope(t: Array, y: Array, z: Array) -> Array:
    small = exp(-2.0 * select(parts(z)[0] < 0, -z, z))
    return t * (4.0 * small / square(small + 1.0))


@_holomorphic(prims.TANH, _tanh_slope)
def _tanh(z: Array) -> Array:
    return join(*_tanh_parts(*parts(z)))


@_holomorphic(prims.TAN, lambda t, y, z: _tanh_slope(t, y, z * 1j))
def _tan(z: Array) -> Array:
    a, b = parts(z)
    re, im = _tanh_parts(b, a)
    return join(im, re)


# ---- their inverses -------------------------------------------------------------------------------


def _arcs(a: Array, b: Array) -> tuple[Array, Array]:
    """x >= 0 and y: asin(z) = atan2(a, x) + i asinh(y), acos(z) = atan2(x, a) - i asinh(y)."""
    (c, d), (e, f) = parts(sqrt(join(1.0 - a, -b))), parts(sqrt(join(1.0 + a, b)))
    limit = 1e4 if a.dtype is f32 else 1e8  # there, 1 is below the last digit of the square of z
    far = (abs_(a) > limit) | (abs_(b) > limit)
    x = select(far, abs_(b), c * e - d * f)
    # On the imaginary axis each x > 0 does, also where b is NaN.
    return select(a == 0, ones_of(x), x), select(far, _signed(hypot(a, b), b), c * f - d * e)


def _asin_parts(a: Array, b: Array) -> tuple[Array, Array]:
    x, y = _arcs(a, b)
    return atan2(a, x), asinh(y)


def _acos_parts(a: Array, b: Array) -> tuple[Array, Array]:
    x, y = _arcs(a, b)
    return atan2(x, a), -asinh(y)


@_holomorphic(prims.ASIN, lambda t, y, z: t / (sqrt(1.0 - z) * sqrt(1.0 + z)))
def _asin(z: Array) -> Array:
    return join(*_asin_parts(*parts(z)))


@_holomorphic(asinh_op, lambda t, y, z: t / (sqrt(1.0 - 1j * z) * sqrt(1.0 + 1j * z)))
def _asinh(z: Array) -> Array:
    a, b = parts(z)
    re, im = _asin_parts(b, a)
    return join(im, re)


@_holomorphic(prims.ACOS, lambda t, y, z: -(t / (sqrt(1.0 - z) * sqrt(1.0 + z))))
def _acos(z: Array) -> Array:
    return join(*_acos_parts(*parts(z)))


@_holomorphic(acosh_op, lambda t, y, z: t / (sqrt(z - 1.0) * sqrt(z + 1.0)))
def _acosh(z: Array) -> Array:
    a, b = parts(z)
    re, im = _acos_parts(a, b)
    return join(abs_(im), _signed(re, b))


def _atanh_parts(a: Array, b: Array) -> tuple[Array, Array]:
    size, height = abs_(a), abs_(b)
    rest = 1.0 - size
    length = hypot(rest, b)
    # So near to 1 that the square of the distance may leave the range, log1p(q) is twice log1p of q's root.
    near = length < (1e-10 if a.dtype is f32 else 1e-20)
    ratio = select(near, _constant(a, 2.0), 4.0 * (size / length)) / length
    ratio = select((a == 0) | isinf(a) | isinf(b), zeros_of(a), ratio)
    re = select(near, _constant(a, 0.5), _constant(a, 0.25)) * log1p(ratio)
    # So far out that the angle is a right one, whatever the squares are.
    limit = 1e10 if a.dtype is f32 else 1e20
    is_far = (size > limit) | (height > limit) & ((a == a) | isinf(b))
    below = select(is_far, _constant(a, -math.inf), rest * (1.0 + size) - b * b)
    return _signed(re, a), 0.5 * atan2(select(height > limit, _signed(ones_of(b), b), 2.0 * b), below)


@_holomorphic(atanh_op, lambda t, y, z: t / ((1.0 - z) * (1.0 + z)))
def _atanh(z: Array) -> Array:
    return join(*_atanh_parts(*parts(z)))


@_holomorphic(prims.ATAN, lambda t, y, z: t / (z * z + 1.0))
def _atan(z: Array) -> Array:
    a, b = parts(z)
    re, im = _atanh_parts(b, a)
    return join(im, re)
