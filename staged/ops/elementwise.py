"""Elementwise ops: one result element from the operands' elements at the same place.

The primitives take operands of one type (shape, dtype, weakness); the public functions promote and broadcast first.
Since the derivative is diagonal, one rule per operand, linear in `t`, serves as vjp (t: cotangent) and jvp (t:
tangent).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ProgramValueError, ProgramZeroDivisionError, ShapeError
from staged.ir.nodes import FAIL, PURE, Attrs, Effect
from staged.ir.types import (
    ALL_DTYPES,
    INTEGER_DTYPES,
    NUMBER_DTYPES,
    DType,
    TensorType,
    Type,
    bool_,
    f32,
    f64,
    i32,
    i64,
)
from staged.ops.array import Array
from staged.ops.choice import ones_of, select, stop_gradient, where, zeros_of
from staged.ops.context import bind
from staged.ops.number_list import NumberList
from staged.ops.primitive import BadSample, Sample, Slope, diagonal, primitive
from staged.ops.promote import (
    as_array,
    broadcast,
    cast,
    check_known,
    dtype_error,
    handle,
    is_number,
    promoted,
    together,
    type_of,
)
from staged.ops.public import public
from staged.ops.slopes import rest_of_square
from staged.ops.wide_numbers import comparable, reached

Unary = Callable[[Any], Array]
Binary = Callable[[Any, Any], Array]

FLOATS = ("f",)
INEXACT = ("f", "c")
INTEGERS = ("i", "u")
NUMBERS = ("f", "i", "u")
BOOLS = ("b",)
ANY = ("f", "i", "u", "b")

_WORDS = {FLOATS: "floats", INTEGERS: "integers", NUMBERS: "numbers", BOOLS: "bools", ANY: "any dtype"}
_WORDS[INEXACT] = _WORDS[FLOATS]
_SAMPLE_DTYPES = {
    **dict.fromkeys((FLOATS, INEXACT), (f32, f64)),
    INTEGERS: INTEGER_DTYPES,
    NUMBERS: NUMBER_DTYPES,
    BOOLS: (bool_,),
    ANY: ALL_DTYPES,
}
_DTYPE_HINT = {
    **dict.fromkeys((FLOATS, INEXACT), "cast it: `st.astype(x, st.f32)`"),
    INTEGERS: "cast it: `st.astype(x, st.i64)`",
    NUMBERS: "cast it: `st.astype(x, st.i64)` or `st.astype(x, st.f32)`",
    BOOLS: "compare first: `x != 0`",
    ANY: None,
}


# ---- declaring ------------------------------------------------------------------------------------


def elementwise(name: str, kinds: tuple[str, ...], result: DType | None = None) -> Callable[..., TensorType]:
    """The type rule: operands of one type, of the `kinds` the op takes; the result has that type, or dtype `result`."""

    def infer(*types: TensorType) -> TensorType:
        first = types[0]
        for other in types[1:]:
            if other.shape != first.shape:
                raise ShapeError(
                    f"{name} needs operands of one shape, got {first} and {other}",
                    hint="extents must be equal, or 1; `st.broadcast_to(x, shape)` repeats an array",
                )
            if other.dtype is not first.dtype or other.weak != first.weak:
                raise DTypeError(
                    f"{name} needs operands of one dtype, got {first} and {other}", hint="cast one of them"
                )
        if first.dtype.kind not in kinds:
            raise DTypeError(f"{name} takes {_WORDS[kinds]}, got {first}", hint=_DTYPE_HINT[kinds])
        return first if result is None else TensorType(result, first.shape, first.weak)

    return infer


_NO_FLOAT_RESULT = "its result is not a float"


def _refused(name: str, kinds: tuple[str, ...], count: int) -> list[BadSample]:
    bad = []
    for dtype, kind in ((f32, "f"), (i64, "i"), (bool_, "b")):
        if kind not in kinds:
            bad.append(BadSample((TensorType(dtype, (3,)),) * count, DTypeError, f"{name} takes {_WORDS[kinds]}"))
            break
    if count > 1:
        good = next(dtype for dtype in (f32, i64, bool_) if dtype.kind in kinds)
        other = next(dtype for dtype in (f64, i32, i64) if dtype is not good)
        shapes = (TensorType(good, (2, 3)), TensorType(good, (3, 2)))
        bad.append(BadSample((*shapes[:1], *shapes[1:] * (count - 1)), ShapeError, "operands of one shape"))
        bad.append(BadSample((TensorType(good, (3,)), TensorType(other, (3,))), DTypeError, "operands of one dtype"))
    return bad


def _unary(
    name: str,
    reference: Callable[..., Any],
    kinds: tuple[str, ...],
    slope: Slope | None = None,
    *,
    doc: str,
    result: DType | None = None,
    flat: bool = False,
    whole: bool = False,
    low: float = -2.0,
    high: float = 2.0,
    harmless: bool = False,
    enter: bool = True,
    numpy: Sequence[str] = (),
    torch: Sequence[str] = (),
    **traits: Any,
) -> Unary:
    """Declare a unary op; the public function. `flat`: the derivative is zero wherever it exists.

    A flat op is harmless, and so is a test, whose result is a bool. `whole`: integers and bools stay as they are.
    """
    differentiable = slope is not None or flat
    op = primitive(
        name=name,
        kind="elementwise",
        harmless=harmless or flat or result is bool_,
        **traits,
        infer=elementwise(name, kinds, result),
        reference=lambda x: np.asarray(reference(x), dtype=result.numpy if result else x.dtype),
        samples=[Sample((shape,), low=low, high=high, dtypes=_SAMPLE_DTYPES[kinds]) for shape in ((2, 3), (), (0, 4))],
        bad=_refused(name, kinds, 1),
        doc=doc,
        why_not_differentiable="" if differentiable else _NO_FLOAT_RESULT,
        **(diagonal([slope]) if differentiable else {}),
    )

    def function(x: Any) -> Array:
        (array,) = promoted(x, floats=kinds == FLOATS and not whole)
        return array if whole and not array.dtype.is_inexact else bind(op, [array])

    function.__doc__ = doc
    return public(name, method=True, numpy=numpy, torch=torch)(function) if enter else function


def _maths(name: str, reference: Callable[..., Any], slope: Slope, **fields: Any) -> Unary:
    """Declare a function of the mathematical library: of floats, and expensive."""
    return _unary(name, reference, FLOATS, slope, expensive=True, **fields)


def _binary(
    name: str,
    reference: Callable[..., Any],
    kinds: tuple[str, ...],
    slopes: Sequence[Slope | None] | None = None,
    *,
    doc: str,
    result: DType | None = None,
    effects: Any = PURE,
    low: float = -2.0,
    high: float = 2.0,
    why: str = _NO_FLOAT_RESULT,
    enter: bool = True,
    mixes: bool = False,
    method: bool = True,
    by_value: bool = False,
    numpy: Sequence[str] = (),
    torch: Sequence[str] = (),
    **traits: Any,
) -> Binary:
    """Declare a binary op; the public function, which promotes and broadcasts.

    With `mixes` a real operand beside a complex one stays real. With `by_value` Python integers beside narrower ones
    are taken as they are, and need not fit these.
    """
    op = primitive(
        name=name,
        kind="elementwise",
        **traits,
        infer=elementwise(name, kinds, result),
        reference=lambda a, b: np.asarray(reference(a, b), dtype=result.numpy if result else a.dtype),
        effects=effects,
        samples=[
            Sample((shape, shape), low=low, high=high, dtypes=_SAMPLE_DTYPES[kinds]) for shape in ((2, 3), (), (0, 4))
        ],
        bad=_refused(name, kinds, 2),
        doc=doc,
        why_not_differentiable="" if slopes is not None else why,
        **(diagonal(slopes) if slopes is not None else {}),
    )

    def function(a: Any, b: Any) -> Array:
        if by_value:
            a, b = comparable(a, b)
        return bind(op, together(a, b, name=name, floats=kinds == FLOATS, mixes=mixes))

    function.__doc__ = doc
    return public(name, method=method, numpy=numpy, torch=torch)(function) if enter else function


# ---- floats ---------------------------------------------------------------------------------------

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


_LOG_2 = math.log(2.0)
_LOG_10 = math.log(10.0)


def _erf(x: np.ndarray[Any, Any]) -> Any:
    return np.frompyfunc(math.erf, 1, 1)(x)


def _erfc(x: np.ndarray[Any, Any]) -> Any:
    return np.frompyfunc(math.erfc, 1, 1)(x)


exp: Unary = _maths("exp", np.exp, lambda t, y, x: t * y, doc="e to the power x. Array API `exp`.")
expm1: Unary = _maths(
    "expm1", np.expm1, lambda t, y, x: t * exp(x), doc="exp(x) - 1, accurate near 0. Array API `expm1`."
)
log: Unary = _maths(
    "log", np.log, lambda t, y, x: t / x, low=0.2, high=3.0, doc="Natural logarithm; -inf at 0, NaN below."
)
log1p: Unary = _maths(
    "log1p", np.log1p, lambda t, y, x: t / (x + 1.0), low=-0.6, high=3.0, doc="log(1 + x), accurate near 0."
)
log2: Unary = _maths(
    "log2", np.log2, lambda t, y, x: t / (x * _LOG_2), low=0.2, high=3.0, doc="Logarithm to base 2. Array API `log2`."
)
log10: Unary = _maths(
    "log10",
    np.log10,
    lambda t, y, x: t / (x * _LOG_10),
    low=0.2,
    high=3.0,
    doc="Logarithm to base 10. Array API `log10`.",
)
sqrt: Unary = _maths("sqrt", np.sqrt, lambda t, y, x: t * 0.5 / y, low=0.2, high=3.0, doc="Square root; NaN below 0.")
rsqrt: Unary = _maths(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda t, y, x: t * -0.5 * (y / x),
    low=0.2,
    high=3.0,
    doc="1 / sqrt(x). torch `rsqrt`.",
)
sin: Unary = _maths("sin", np.sin, lambda t, y, x: t * cos(x), doc="Sine of an angle in radians.", harmless=True)
cos: Unary = _maths("cos", np.cos, lambda t, y, x: t * -sin(x), doc="Cosine of an angle in radians.", harmless=True)
tan: Unary = _maths(
    "tan", np.tan, lambda t, y, x: t * (y * y + 1.0), low=-1.2, high=1.2, doc="Tangent of an angle in radians."
)
asin: Unary = _maths(
    "asin",
    np.arcsin,
    lambda t, y, x: t * rsqrt(rest_of_square(x)),
    low=-0.9,
    high=0.9,
    doc="Inverse sine, in radians; NaN outside [-1, 1].",
    numpy=("arcsin",),
)
acos: Unary = _maths(
    "acos",
    np.arccos,
    lambda t, y, x: t * -rsqrt(rest_of_square(x)),
    low=-0.9,
    high=0.9,
    doc="Inverse cosine, in radians; NaN outside [-1, 1].",
    numpy=("arccos",),
)
atan: Unary = _maths(
    "atan",
    np.arctan,
    lambda t, y, x: t / (x * x + 1.0),
    doc="Inverse tangent, in radians.",
    harmless=True,
    numpy=("arctan",),
)
sinh: Unary = _maths("sinh", np.sinh, lambda t, y, x: t * cosh(x), doc="Hyperbolic sine.")
cosh: Unary = _maths("cosh", np.cosh, lambda t, y, x: t * sinh(x), doc="Hyperbolic cosine.")
tanh: Unary = _maths("tanh", np.tanh, lambda t, y, x: t * (1.0 - y * y), doc="Hyperbolic tangent.", harmless=True)
erf: Unary = _maths(
    "erf",
    _erf,
    lambda t, y, x: t * (_TWO_OVER_SQRT_PI * exp(-(x * x))),
    doc="The error function, 2 / sqrt(pi) times the integral of exp(-u^2) from 0 to x.",
    harmless=True,
)
erfc: Unary = _maths(
    "erfc",
    _erfc,
    lambda t, y, x: t * (-_TWO_OVER_SQRT_PI * exp(-(x * x))),
    doc="1 - erf(x), accurate where erf(x) is near 1.",
)
cbrt: Unary = _maths(
    "cbrt",
    np.cbrt,
    lambda t, y, x: t / (square(y) * 3.0),
    low=0.2,
    high=3.0,
    doc="The cube root, with the sign of x. NumPy `cbrt`.",
    harmless=True,
)
_KEPT = " Integers and bools stay as they are."
floor: Unary = _unary(
    "floor", np.floor, FLOATS, flat=True, whole=True, doc="The largest integer not above x, as a float." + _KEPT
)
ceil: Unary = _unary(
    "ceil", np.ceil, FLOATS, flat=True, whole=True, doc="The smallest integer not below x, as a float." + _KEPT
)
trunc: Unary = _unary(
    "trunc", np.trunc, FLOATS, flat=True, whole=True, doc="x without its fraction: rounded towards 0." + _KEPT
)
_nearest: Unary = _unary(
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


isnan: Unary = _unary("isnan", np.isnan, FLOATS, result=bool_, doc="Whether x is not a number.")
isinf: Unary = _unary("isinf", np.isinf, FLOATS, result=bool_, doc="Whether x is an infinity.")
isfinite: Unary = _unary("isfinite", np.isfinite, FLOATS, result=bool_, doc="Whether x is neither an infinity nor NaN.")

# ---- numbers --------------------------------------------------------------------------------------

negative: Unary = _unary(
    "negative",
    np.negative,
    NUMBERS,
    lambda t, y, x: -t,
    doc="-x; wraps around for integers.",
    harmless=True,
    torch=("neg",),
)
square: Unary = _unary("square", np.square, NUMBERS, lambda t, y, x: t * (x * 2.0), doc="x * x.", harmless=True)
abs_: Unary = _unary(
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
sign: Unary = _unary(
    "sign", np.sign, NUMBERS, flat=True, low=0.3, doc="-1, 0 or 1; NaN for NaN. Its derivative is 0.", vector="floats"
)


def _half(t: Any, mine: Any, other: Any) -> Any:
    """`t` where `mine` wins, half of it at a tie."""
    return select(mine, t, select(other, broadcast(cast(as_array(0.0), t.dtype, t.type.weak), t.shape), t * 0.5))


add: Binary = _binary(
    "add", np.add, NUMBERS, [lambda t, y, a, b: t, lambda t, y, a, b: t], doc="a + b.", harmless=True, mixes=True
)
accumulate: Binary = _binary(
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
subtract: Binary = _binary(
    "subtract",
    np.subtract,
    NUMBERS,
    [lambda t, y, a, b: t, lambda t, y, a, b: -t],
    mixes=True,
    doc="a - b.",
    harmless=True,
    torch=("sub",),
)
multiply: Binary = _binary(
    "multiply",
    np.multiply,
    NUMBERS,
    [lambda t, y, a, b: t * b, lambda t, y, a, b: t * a],
    mixes=True,
    doc="a * b.",
    harmless=True,
    torch=("mul",),
)
divide: Binary = _binary(
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
maximum: Binary = _binary(
    "maximum",
    np.maximum,
    NUMBERS,
    [lambda t, y, a, b: _half(t, a > b, a < b), lambda t, y, a, b: _half(t, b > a, b < a)],
    doc="The larger of a and b; NaN where either is NaN. At a tie each gets half the gradient, as in torch.",
    harmless=True,
)
minimum: Binary = _binary(
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


atan2: Binary = _binary(
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


logaddexp: Binary = _binary(
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
floor_divide: Binary = _binary(
    "floor_divide",
    _integer_division(np.floor_divide),
    NUMBERS,
    [None, None],
    doc="a / b rounded down (Python's `//`). Dividing an integer by zero stops the program with the line.",
    **_DIVISION,
)
remainder: Binary = _binary(
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
    lost = (b == 0) & logical_not(abs_(a) >= smallest)
    return t * (b * _general_power(select(lost, ones_of(a), a), b - 1.0))


def _slope_of_exponent(t: Any, y: Any, a: Any, b: Any) -> Any:
    """t * y * log(a); 0 for a = 0 and b >= 0, as in torch: the logarithm sees no 0 there."""
    return t * (y * log(select((a == 0) & (b >= 0), ones_of(a), a)))


_general_power: Binary = _binary(
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


# ---- comparisons ----------------------------------------------------------------------------------


def _compare(name: str, reference: Callable[..., Any], doc: str, word: str) -> Binary:
    doc = f"{doc} element by element; a bool array."
    return _binary(name, reference, ANY, doc=doc, result=bool_, harmless=True, by_value=True, torch=(word,))


equal: Binary = _compare("equal", np.equal, "a == b", "eq")
not_equal: Binary = _compare("not_equal", np.not_equal, "a != b", "ne")
less: Binary = _compare("less", np.less, "a < b", "lt")
less_equal: Binary = _compare("less_equal", np.less_equal, "a <= b", "le")
greater: Binary = _compare("greater", np.greater, "a > b", "gt")
greater_equal: Binary = _compare("greater_equal", np.greater_equal, "a >= b", "ge")

# ---- bools and bits -------------------------------------------------------------------------------


def _truth(x: Any) -> Any:
    """`x` as bools: numbers are true where they are not 0, as in Python."""
    x = handle(x)
    if not is_number(x):
        x = as_array(x)
    if isinstance(x, Array) and not x.dtype.is_bool:
        return not_equal(x, 0)
    return bool(x) if is_number(x) else x


def _logical(name: str, reference: Callable[..., Any], doc: str) -> Binary:
    strict = _binary(name, reference, BOOLS, doc=doc, enter=False, harmless=True)

    def function(a: Any, b: Any) -> Array:
        return strict(_truth(a), _truth(b))

    function.__doc__ = doc
    return public(name, method=True)(function)


logical_and: Binary = _logical("logical_and", np.logical_and, "Whether both are true, element by element.")
logical_or: Binary = _logical("logical_or", np.logical_or, "Whether one or both are true, element by element.")
logical_xor: Binary = _logical("logical_xor", np.logical_xor, "Whether exactly one is true, element by element.")
_strict_not: Unary = _unary("logical_not", np.logical_not, BOOLS, doc="Whether x is false.", enter=False, harmless=True)


@public("logical_not", method=True)
def logical_not(x: Any) -> Array:
    """Return whether x is false, element by element; numbers are true where they are not 0."""
    return _strict_not(_truth(x))


def _bitwise(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    on_bools: Binary | None,
    numpy: Sequence[str] = (),
    **traits: Any,
) -> Binary:
    strict = _binary(name, reference, INTEGERS, doc=doc, enter=False, low=0, high=7, **traits)

    def function(a: Any, b: Any) -> Array:
        left, right = handle(a), handle(b)
        if on_bools is not None and type_of(left).dtype.is_bool and type_of(right).dtype.is_bool:
            return on_bools(left, right)
        return strict(left, right)

    function.__doc__ = doc
    return public(name, numpy=numpy)(function)


bitwise_and: Binary = _bitwise(
    "bitwise_and", np.bitwise_and, "a & b, bit by bit; the logical and of bools.", logical_and, harmless=True
)
bitwise_or: Binary = _bitwise(
    "bitwise_or", np.bitwise_or, "a | b, bit by bit; the logical or of bools.", logical_or, harmless=True
)
bitwise_xor: Binary = _bitwise(
    "bitwise_xor", np.bitwise_xor, "a ^ b, bit by bit; the logical xor of bools.", logical_xor, harmless=True
)
bitwise_left_shift: Binary = _bitwise(
    "bitwise_left_shift",
    np.left_shift,
    "a << b; bits shifted out are lost. 0 <= b < the number of bits.",
    None,
    vector="never",
    numpy=("left_shift",),
)
bitwise_right_shift: Binary = _bitwise(
    "bitwise_right_shift",
    np.right_shift,
    "a >> b, keeping the sign. 0 <= b < the number of bits.",
    None,
    vector="never",
    numpy=("right_shift",),
)
_strict_invert: Unary = _unary(
    "bitwise_invert", np.invert, INTEGERS, doc="~x, bit by bit.", low=0, high=7, enter=False, harmless=True
)


@public("bitwise_invert", numpy=("invert",))
def bitwise_invert(x: Any) -> Array:
    """~x, bit by bit; the logical not of bools."""
    array = handle(x)
    return logical_not(array) if type_of(array).dtype.is_bool else _strict_invert(array)


# ---- limits ---------------------------------------------------------------------------------------


@public("clip", method=True, torch=("clamp",))
def clip(x: Any, min: Any = None, max: Any = None) -> Array:
    """`x` kept within [min, max]; None leaves a side open. Array API `clip`.

    Where `min` is above `max`, every element is `max`, and NaN at a bound that is NaN, as in NumPy and torch. Python
    integers beyond all numbers of x's dtype bound nothing. At a bound the gradient is passed on, beyond it is 0, as in
    torch.
    """
    kept = as_array(x)
    # Not minimum(maximum(x)), which would split the gradient at a bound. NaN compares false and so stays NaN.
    for bound, is_beyond in ((min, less), (max, greater)):
        if bound is not None:
            limit = reached(bound, kept, is_beyond is greater)
            outside = is_beyond(kept, limit)
            if math.isnan(limit) if is_number(limit) else type_of(limit).dtype.is_float:
                outside = logical_or(outside, isnan(limit))
            kept = where(outside, limit, kept)
    return kept
