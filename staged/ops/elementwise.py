"""Elementwise functions of numbers: floats, arithmetic, powers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import ProgramValueError, ProgramZeroDivisionError
from staged.ir.nodes import FAIL, PURE, Attrs, Effect
from staged.ir.types import TensorType, Type, bool_
from staged.ops.array import Array
from staged.ops.choice import ones_of, select, stop_gradient, zeros_of
from staged.ops.declare_elementwise import FLOATS, INEXACT, NUMBERS, Binary, Unary, binary, maths, unary
from staged.ops.number_list import NumberList
from staged.ops.promote import as_array, broadcast, cast, check_known, dtype_error, handle, is_number, promoted
from staged.ops.public import public
from staged.ops.slopes import rest_of_square

# ---- floats ---------------------------------------------------------------------------------------

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


_LOG_2 = math.log(2.0)
_LOG_10 = math.log(10.0)


def _erf(x: np.ndarray[Any, Any]) -> Any:
    return np.frompyfunc(math.erf, 1, 1)(x)


def _erfc(x: np.ndarray[Any, Any]) -> Any:
    return np.frompyfunc(math.erfc, 1, 1)(x)


exp: Unary = maths("exp", np.exp, lambda t, y, x: t * y, doc="e to the power x. Array API `exp`.")
expm1: Unary = maths(
    "expm1", np.expm1, lambda t, y, x: t * exp(x), doc="exp(x) - 1, accurate near 0. Array API `expm1`."
)
log: Unary = maths(
    "log", np.log, lambda t, y, x: t / x, low=0.2, high=3.0, doc="Natural logarithm; -inf at 0, NaN below."
)
log1p: Unary = maths(
    "log1p", np.log1p, lambda t, y, x: t / (x + 1.0), low=-0.6, high=3.0, doc="log(1 + x), accurate near 0."
)
log2: Unary = maths(
    "log2", np.log2, lambda t, y, x: t / (x * _LOG_2), low=0.2, high=3.0, doc="Logarithm to base 2. Array API `log2`."
)
log10: Unary = maths(
    "log10",
    np.log10,
    lambda t, y, x: t / (x * _LOG_10),
    low=0.2,
    high=3.0,
    doc="Logarithm to base 10. Array API `log10`.",
)
sqrt: Unary = maths("sqrt", np.sqrt, lambda t, y, x: t * 0.5 / y, low=0.2, high=3.0, doc="Square root; NaN below 0.")
rsqrt: Unary = maths(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda t, y, x: t * -0.5 * (y / x),
    low=0.2,
    high=3.0,
    doc="1 / sqrt(x). torch `rsqrt`.",
)
sin: Unary = maths("sin", np.sin, lambda t, y, x: t * cos(x), doc="Sine of an angle in radians.", harmless=True)
cos: Unary = maths("cos", np.cos, lambda t, y, x: t * -sin(x), doc="Cosine of an angle in radians.", harmless=True)
tan: Unary = maths(
    "tan", np.tan, lambda t, y, x: t * (y * y + 1.0), low=-1.2, high=1.2, doc="Tangent of an angle in radians."
)
asin: Unary = maths(
    "asin",
    np.arcsin,
    lambda t, y, x: t * rsqrt(rest_of_square(x)),
    low=-0.9,
    high=0.9,
    doc="Inverse sine, in radians; NaN outside [-1, 1].",
    numpy=("arcsin",),
)
acos: Unary = maths(
    "acos",
    np.arccos,
    lambda t, y, x: t * -rsqrt(rest_of_square(x)),
    low=-0.9,
    high=0.9,
    doc="Inverse cosine, in radians; NaN outside [-1, 1].",
    numpy=("arccos",),
)
atan: Unary = maths(
    "atan",
    np.arctan,
    lambda t, y, x: t / (x * x + 1.0),
    doc="Inverse tangent, in radians.",
    harmless=True,
    numpy=("arctan",),
)
sinh: Unary = maths("sinh", np.sinh, lambda t, y, x: t * cosh(x), doc="Hyperbolic sine.")
cosh: Unary = maths("cosh", np.cosh, lambda t, y, x: t * sinh(x), doc="Hyperbolic cosine.")
tanh: Unary = maths("tanh", np.tanh, lambda t, y, x: t * (1.0 - y * y), doc="Hyperbolic tangent.", harmless=True)
erf: Unary = maths(
    "erf",
    _erf,
    lambda t, y, x: t * (_TWO_OVER_SQRT_PI * exp(-(x * x))),
    doc="The error function, 2 / sqrt(pi) times the integral of exp(-u^2) from 0 to x.",
    harmless=True,
)
erfc: Unary = maths(
    "erfc",
    _erfc,
    lambda t, y, x: t * (-_TWO_OVER_SQRT_PI * exp(-(x * x))),
    doc="1 - erf(x), accurate where erf(x) is near 1.",
)
cbrt: Unary = maths(
    "cbrt",
    np.cbrt,
    lambda t, y, x: t / (square(y) * 3.0),
    low=0.2,
    high=3.0,
    doc="The cube root, with the sign of x. NumPy `cbrt`.",
    harmless=True,
)
_KEPT = " Integers and bools stay as they are."
floor: Unary = unary(
    "floor", np.floor, FLOATS, flat=True, whole=True, doc="The largest integer not above x, as a float." + _KEPT
)
ceil: Unary = unary(
    "ceil", np.ceil, FLOATS, flat=True, whole=True, doc="The smallest integer not below x, as a float." + _KEPT
)
trunc: Unary = unary(
    "trunc", np.trunc, FLOATS, flat=True, whole=True, doc="x without its fraction: rounded towards 0." + _KEPT
)
_nearest: Unary = unary(
    "round",
    np.rint,
    FLOATS,
    flat=True,
    whole=True,
    doc="The nearest integer, halves to even (as Python and NumPy)." + _KEPT,
    enter=False,
)


@public("round", method=True, numpy=("around", "rint"))
def round_(x: Any, decimals: int = 0) -> Array:
    """The nearest integer, or number of so many `decimals`, halves to even. NumPy and torch `round`.

    Integers and bools stay as they are, unless `decimals` is negative. With decimals x is scaled, rounded and scaled
    back, as in NumPy: 0.285 becomes 0.28 or 0.29 by what the product rounds to.
    """
    check_known("round", "decimals", decimals)
    if decimals == 0:
        return _nearest(x)
    scale = 10.0 ** abs(int(decimals))
    (array,) = promoted(x)
    if not array.dtype.is_float:
        if decimals > 0:
            return array
        raise dtype_error(
            f"round to tens is of floats, got {array.type}", array, hint="cast it: `st.astype(x, st.f64)`"
        )
    return _nearest(array * scale) / scale if decimals > 0 else _nearest(array / scale) * scale


@public("positive", method=True)
def positive(x: Any) -> Array:
    """x itself: +x. Array API `positive`."""
    return promoted(x)[0]


isnan: Unary = unary("isnan", np.isnan, FLOATS, result=bool_, doc="Whether x is not a number.")
isinf: Unary = unary("isinf", np.isinf, FLOATS, result=bool_, doc="Whether x is an infinity.")
isfinite: Unary = unary("isfinite", np.isfinite, FLOATS, result=bool_, doc="Whether x is neither an infinity nor NaN.")

# ---- numbers --------------------------------------------------------------------------------------

negative: Unary = unary(
    "negative",
    np.negative,
    NUMBERS,
    lambda t, y, x: -t,
    doc="-x; wraps around for integers.",
    harmless=True,
    torch=("neg",),
)
square: Unary = unary("square", np.square, NUMBERS, lambda t, y, x: t * (x * 2.0), doc="x * x.", harmless=True)
abs_: Unary = unary(
    "abs",
    np.abs,
    NUMBERS,
    lambda t, y, x: t * sign(x),
    low=0.3,
    doc="The absolute value. Its derivative at 0 is 0, as in torch.",
    harmless=True,
    numpy=("absolute", "fabs"),
    torch=("absolute",),
)
sign: Unary = unary(
    "sign", np.sign, NUMBERS, flat=True, low=0.3, doc="-1, 0 or 1; NaN for NaN. Its derivative is 0.", vector="floats"
)


def _half(t: Any, mine: Any, other: Any) -> Any:
    """`t` where `mine` wins, half of it at a tie."""
    return select(mine, t, select(other, broadcast(cast(as_array(0.0), t.dtype, t.type.weak), t.shape), t * 0.5))


add: Binary = binary(
    "add", np.add, NUMBERS, [lambda t, y, a, b: t, lambda t, y, a, b: t], doc="a + b.", harmless=True, mixes=True
)
accumulate: Binary = binary(
    "accumulate",
    np.add,
    INEXACT,
    [lambda t, y, a, b: t, lambda t, y, a, b: t],
    doc="The sum of two cotangents: a + b, but a zero of either sign may count as nothing, and terms add up in any "
    "order. "
    "Reverse mode writes it, so that a part which is zero almost everywhere is added where it is not; `simplify` makes "
    "it `add`.",
    enter=False,
    by_parts=True,
)
subtract: Binary = binary(
    "subtract",
    np.subtract,
    NUMBERS,
    [lambda t, y, a, b: t, lambda t, y, a, b: -t],
    mixes=True,
    doc="a - b.",
    harmless=True,
    torch=("sub",),
)
multiply: Binary = binary(
    "multiply",
    np.multiply,
    NUMBERS,
    [lambda t, y, a, b: t * b, lambda t, y, a, b: t * a],
    mixes=True,
    doc="a * b.",
    harmless=True,
    torch=("mul",),
)
divide: Binary = binary(
    "divide",
    np.divide,
    FLOATS,
    [lambda t, y, a, b: t / b, lambda t, y, a, b: -(t * (y / b))],
    mixes=True,
    low=0.5,
    doc="a / b, a float: integers become f32 (Python numbers f64) first. IEEE: 1 / 0 is inf, 0 / 0 is NaN.",
    expensive=True,
    numpy=("true_divide",),
    torch=("div", "true_divide"),
)
maximum: Binary = binary(
    "maximum",
    np.maximum,
    NUMBERS,
    [lambda t, y, a, b: _half(t, a > b, a < b), lambda t, y, a, b: _half(t, b > a, b < a)],
    doc="The larger of a and b; NaN where either is NaN. At a tie each gets half the gradient, as in torch.",
    harmless=True,
)
minimum: Binary = binary(
    "minimum",
    np.minimum,
    NUMBERS,
    [lambda t, y, a, b: _half(t, a < b, a > b), lambda t, y, a, b: _half(t, b < a, b > a)],
    doc="The smaller of a and b; NaN where either is NaN. At a tie each gets half the gradient, as in torch.",
    harmless=True,
)


def _per_square(t: Any, side: Any, a: Any, b: Any) -> Any:
    """t * side / (a^2 + b^2), of sides divided by the longer one first, so that no square leaves the range; 0 at (0,
    0).
    """
    length = stop_gradient(maximum(abs_(a), abs_(b)))
    is_origin = length == 0
    scale = select(is_origin | isinf(length), ones_of(length), length)
    square_ = square(a / scale) + square(b / scale)
    return select(is_origin, zeros_of(t), t * (side / scale / select(is_origin, ones_of(square_), square_) / scale))


atan2: Binary = binary(
    "atan2",
    np.arctan2,
    FLOATS,
    [lambda t, y, a, b: _per_square(t, b, a, b), lambda t, y, a, b: -_per_square(t, a, a, b)],
    low=0.3,
    doc="The angle of the point (b, a), in radians, in (-pi, pi]. Its derivative at (0, 0) is 0, as in torch.",
    expensive=True,
    vector="floats",
    numpy=("arctan2",),
    method=False,
)


def _share(t: Any, y: Any, x: Any, other: Any) -> Any:
    """The share of exp(x) in exp(x) + exp(other), which is exp(y): half if both are the same infinity."""
    mine, others = (exp(select(isinf(y) & (each == y), zeros_of(y), each - y)) for each in (x, other))
    return t * (mine / (mine + others))  # the sum is not 1: y is rounded


logaddexp: Binary = binary(
    "logaddexp",
    np.logaddexp,
    FLOATS,
    [lambda t, y, a, b: _share(t, y, a, b), lambda t, y, a, b: _share(t, y, b, a)],
    doc="log(exp(a) + exp(b)), without overflow. Of two equal infinities each gets half the gradient.",
    expensive=True,
)


def _fails_on_integers(types: Sequence[Type], attrs: Attrs) -> tuple[Effect, ...]:
    last = types[-1]
    return FAIL if isinstance(last, TensorType) and last.dtype.is_integer else PURE


def _integer_division(divide_: Callable[..., Any]) -> Callable[..., Any]:
    def reference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Any:
        if b.dtype.kind in "iu" and not np.all(b):
            raise ProgramZeroDivisionError("integer division or modulo by zero")
        return divide_(a, b)

    return reference


_DIVISION: dict[str, Any] = {"effects": _fails_on_integers, "low": 1.0, "high": 5.0, "vector": "never"}
_DIVISION |= {"expensive": True}
floor_divide: Binary = binary(
    "floor_divide",
    _integer_division(np.floor_divide),
    NUMBERS,
    [None, None],
    doc="a / b rounded down (Python's `//`). Dividing an integer by zero stops the program with the line.",
    **_DIVISION,
)
remainder: Binary = binary(
    "remainder",
    _integer_division(np.remainder),
    NUMBERS,
    [lambda t, y, a, b: t, lambda t, y, a, b: -(t * floor_divide(a, b))],
    doc="a - b * (a // b): the sign is b's (Python's `%`). An integer modulo zero stops the program with the line.",
    numpy=("mod",),
    **_DIVISION,
)


def _power(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Any:
    if b.dtype.kind == "i" and np.any(b < 0):
        raise ProgramValueError("an integer to a negative integer power", hint="use a float base")
    return np.power(a, b)


def _slope_of_base(t: Any, y: Any, a: Any, b: Any) -> Any:
    """t * b * a^(b - 1); 0 for b = 0 also where a^-1 is not finite.

    Only there the base is replaced: elsewhere the slope at b = 0 keeps its own slope by b, which is 1 / a.
    """
    smallest = float(np.finfo(a.dtype.numpy).smallest_normal)
    lost = (b == 0) & ~(abs_(a) >= smallest)
    return t * (b * _general_power(select(lost, ones_of(a), a), b - 1.0))


def _slope_of_exponent(t: Any, y: Any, a: Any, b: Any) -> Any:
    """t * y * log(a); 0 for a = 0 and b >= 0, as in torch: the logarithm sees no 0 there."""
    return t * (y * log(select((a == 0) & (b >= 0), ones_of(a), a)))


_general_power: Binary = binary(
    "pow",
    _power,
    NUMBERS,
    [_slope_of_base, _slope_of_exponent],
    effects=_fails_on_integers,
    low=0.5,
    high=3.0,
    doc="a to the power b.",
    enter=False,
    expensive=True,
    vector="floats",
)


@public("pow", method=True, numpy=("power", "float_power"))
def pow_(a: Any, b: Any) -> Array:
    """a to the power b (Python's `**`), element by element.

    Small static powers become products, square roots or quotients. An integer to a negative integer power that is known
    while staging is a float; one that is not stops the program with the line. Array API `pow`.
    """
    base, power = (promoted(a, b)[0], b.item()) if isinstance(b, np.floating) else (handle(a), handle(b))
    if isinstance(base, NumberList) and is_number(power):
        base = as_array(base)
    if not is_number(power) or isinstance(power, bool | complex) or not isinstance(base, Array) or base.dtype.is_bool:
        return _general_power(base, power)
    if (isinstance(power, float) or power < 0) and not base.dtype.is_inexact:
        (base,) = promoted(base, floats=True)  # before a product of integers could leave their range
    if power == 0:
        return broadcast(cast(as_array(1), base.dtype, base.type.weak), base.shape)
    if power == 1:
        return base
    if power == 2:
        return square(base)
    if power == 3:
        return square(base) * base
    if power == 4:
        return square(square(base))
    if power == 0.5:
        return sqrt(base + 0.0)  # -0.0 + 0.0 is 0.0, whose root is 0.0: so says IEEE of a power, and -0.0 of a root
    if power == -0.5:
        return rsqrt(base + 0.0)
    if power == -1:
        return divide(1.0, base)
    if power == -2:
        return square(divide(1.0, base))  # its slope at 0 is an infinity, as that of a power
    return _general_power(base, power)
