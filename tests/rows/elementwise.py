"""Rows of functions of numbers, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, form
from tests.fuzz.plain.core import FUNCTIONS, Plain, Precision, bare, complex_of, dtype_of, plain, together, widest_of
from tests.rows.draws import binary, noted, second, unary
from tests.rows.readings import exact, smooth
from tests.rows.table import Call, row


def _refuse() -> Any:
    raise TypeError("numbers")


def _comparison(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading of a comparison: Python integers next to narrower ones are compared as they are."""

    def reading(*operands: Any) -> Plain:
        arrays = [plain(x) for x in operands]
        if all(x.dtype.kind in "iu" for x in arrays) and len({x.weak for x in arrays}) > 1:
            return Plain(function(*(x.a.astype(object) for x in arrays)).astype(bool))
        given, weak = together(*operands)
        return Plain(function(*given), weak)

    return reading


def _logical(function: Callable[..., Any]) -> Callable[..., Plain]:
    def reading(*operands: Any) -> Plain:
        arrays = [plain(x) for x in operands]
        return Plain(function(*(x.a != 0 for x in arrays)), all(x.weak for x in arrays))

    return reading


def _whole(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading of a rounding, which leaves integers as they are."""
    return exact(lambda x: function(x) if x.dtype.kind == "f" else x)


row("exp", unary("small"), smooth(np.exp), torch="exp")
row("exp2", unary("small"), smooth(np.exp2))
row("expm1", unary("small"), smooth(np.expm1), torch="expm1")
row("log", unary("positive"), smooth(np.log), torch="log")
row("log1p", unary("positive"), smooth(np.log1p), torch="log1p")
row("log2", unary("positive"), smooth(np.log2), torch="log2")
row("log10", unary("positive"), smooth(np.log10), torch="log10")
row("sqrt", unary("positive"), exact(np.sqrt, floats=True), torch="sqrt")
row("rsqrt", unary("positive"), smooth(lambda x: 1.0 / np.sqrt(x)), torch="rsqrt")
row("reciprocal", unary("nonzero"), smooth(lambda x: 1.0 / x))
row("square", unary(), exact(lambda x: x * x), torch="square")
# Beyond some size the trigonometry of f32 is that of another number.
row("sin", unary("finite", "no huge"), smooth(np.sin), torch="sin")
row("cos", unary("finite", "no huge"), smooth(np.cos), torch="cos")
row("tan", unary("small", "no huge"), smooth(np.tan), torch="tan")
row("asin", unary("unit"), smooth(np.arcsin), torch="asin")
row("acos", unary("unit"), smooth(np.arccos), torch="acos")
row("atan", unary(), smooth(np.arctan), torch="atan")
row("sinh", unary("small"), smooth(np.sinh), torch="sinh")
row("cosh", unary("small"), smooth(np.cosh), torch="cosh")
row("tanh", unary("saturating"), smooth(np.tanh), torch="tanh")
row("asinh", unary("finite"), smooth(np.arcsinh))
row("acosh", unary("above 1"), smooth(np.arccosh))
row("atanh", unary("unit"), smooth(np.arctanh))
row("deg2rad", unary("finite"), smooth(lambda x: x * (math.pi / 180)))
row("rad2deg", unary("finite"), smooth(lambda x: x * (180 / math.pi)))
row("sinc", lambda d: f"st.sinc({d.new(d.shape(ranks=(0, 1, 2)), values='small')})", smooth(np.sinc))
row("floor", unary(), _whole(np.floor))
row("ceil", unary(), _whole(np.ceil))
row("trunc", unary(), _whole(np.trunc))
row("round", unary(), _whole(np.rint))
row("frac", unary(), smooth(lambda x: x - np.trunc(x)))
row("isnan", unary(), exact(np.isnan, floats=True))
row("isinf", unary(), exact(np.isinf, floats=True))
row("isfinite", unary(), exact(np.isfinite, floats=True))
row("signbit", unary(), exact(lambda x: np.signbit(x) & (x == x)))
row("positive", unary(), exact(lambda x: x))
row("negative", unary(), exact(lambda x: np.negative(x) if x.dtype.kind != "b" else _refuse()), torch="negative")
row("abs", unary(), exact(np.abs), torch="abs")
row("sign", unary(), exact(np.sign), torch="sign")
row("stop_gradient", unary(), plain)
row("bitwise_invert", unary(), exact(np.invert))
row("logical_not", unary(), _logical(np.logical_not))


# ---- of two operands ----------------------------------------------------------------------------


def _equal(a: Any, b: Any) -> Any:
    found = np.equal(a, b)
    if Precision.equalities is not None and a.dtype.kind == "f":
        Precision.equalities.append(found)
    return found


def _next(x: Any, y: Any) -> Any:
    FUNCTIONS["equal"](x, y)  # if they are equal, the result is y, which decides the derivative
    return np.nextafter(x, y)


def _with_sign(x: Any, y: Any) -> Any:
    _equal(x, x.dtype.type(0))  # at 0 the derivative is 0, also of copysign(x, x)
    return np.copysign(x, np.where(np.isnan(y), 1.0, y))


def _one_of(x: Any) -> Any:
    """1 in the dtype of `x`; as an i64 if that is bool."""
    return np.int64(1) if x.dtype.kind == "b" else x.dtype.type(1)


def _heaviside(x: Any, y: Any) -> Any:
    return np.where(x == 0, y, np.where(x < 0, x.dtype.type(0), np.where(x > 0, x.dtype.type(1), x))) * _one_of(x)


row("add", binary(), exact(np.add), torch="add")
row("subtract", binary(), exact(np.subtract), torch="subtract")
row("multiply", binary(), exact(np.multiply), torch="multiply")
row("divide", binary("nonzero"), exact(np.divide, floats=True), torch="divide")
row("floor_divide", binary("nonzero"), exact(np.floor_divide))
row("remainder", binary("nonzero"), exact(np.remainder))
row("fmod", binary("nonzero"), exact(np.fmod))
row("maximum", binary(), exact(np.maximum), torch="maximum")
row("minimum", binary(), exact(np.minimum), torch="minimum")
row("fmax", binary(), exact(np.fmax))
row("fmin", binary(), exact(np.fmin))
row("logaddexp", binary(), smooth(np.logaddexp))
row("logaddexp2", binary(), smooth(np.logaddexp2))
row("hypot", binary(), smooth(np.hypot))
row("copysign", binary(), smooth(_with_sign))
row("nextafter", binary(), exact(_next, floats=True))
row("heaviside", noted(binary(), "values"), exact(_heaviside))
row("gcd", binary(), exact(np.gcd))
row("lcm", binary(), exact(np.lcm))
row("bitwise_and", binary(), exact(np.bitwise_and))
row("bitwise_or", binary(), exact(np.bitwise_or))
row("bitwise_xor", binary(), exact(np.bitwise_xor))
row("bitwise_left_shift", binary(), exact(np.left_shift))
row("bitwise_right_shift", binary(), exact(np.right_shift))
row("logical_and", binary(), _logical(np.logical_and))
row("logical_or", binary(), _logical(np.logical_or))
row("logical_xor", binary(), _logical(np.logical_xor))
row("equal", binary(), _comparison(_equal))
row("not_equal", binary(), _comparison(lambda a, b: np.logical_not(_equal(a, b))))
row("less", binary(), _comparison(np.less))
row("less_equal", binary(), _comparison(np.less_equal))
row("greater", binary(), _comparison(np.greater))
row("greater_equal", binary(), _comparison(np.greater_equal))


@row("pow", binary(), torch="pow")
def pow_(a: Any, b: Any) -> Plain:
    (x, y), weak = together(a, b)
    if x.dtype.kind == "b":
        x, y = x.astype(np.int64), y.astype(np.int64)
    with np.errstate(all="ignore"):
        if x.dtype.kind in "fc":
            return Plain(np.power(widest_of(x), widest_of(y)).astype(x.dtype), weak)
        return Plain(np.power(x, y), weak)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    return f"st.atan2({d.new(shape)}, {d.new(shape, values='nonzero' if d.smooth and d.likely(60) else 'any')})"


row("atan2", draw, smooth(np.arctan2), torch="atan2")


def _close(a: Any, b: Any, **options: Any) -> tuple[Any, bool]:
    (x, y), weak = together(a, b, floats=True)
    with np.errstate(all="ignore"):
        return np.isclose(x, y, **options), weak


def _within(d: Draw) -> str:
    return f"{binary()(d)[:-1]}{d.keyword('rtol', 1e-3)}{d.keyword('atol', 0.1)}{d.keyword('equal_nan', True)})"


row("isclose", _within, lambda a, b, **options: Plain(*_close(a, b, **options)))
row("allclose", _within, lambda a, b, **options: Plain(np.all(_close(a, b, **options)[0])))


@row("array_equal", lambda d: f"st.array_equal({d.new(shape := d.shape(ranks=(1, 2)))}, {d.new(shape)})")
def array_equal(a: Any, b: Any) -> Plain:
    (x, y), _ = together(a, b)
    return Plain(np.asarray(np.array_equal(x, y)))


# ---- of several ---------------------------------------------------------------------------------


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2, 3))
    x = d.new(shape)
    condition = d.new(shape, "bool")
    return f"st.where({condition}, {x}, {second(d, shape, 'any')})"


@row("where", draw, torch="where")
def where(condition: Any, a: Any, b: Any) -> Plain:
    (x, y), weak = together(a, b)
    chosen = plain(condition).a != 0
    result = Plain(np.where(chosen, x, y), weak and chosen.ndim == 0)
    if weak and chosen.ndim and x.dtype == np.float64:
        return Plain(result.a.astype(Precision.single))
    return result


def draw(d: Draw) -> str:
    wanted = d.pick("bool_", "u8", "i8", "u16", "i16", "i32", "u32", "i64", "u64", "f32", "f64")
    # What does not fit has no single answer.
    values = "positive" if d.is_float and wanted != "bool_" and wanted[0] != "f" else "any"
    x = d.new(d.shape(ranks=(0, 1, 2)), values="small" if d.is_float and wanted in ("i32", "i64") else values)
    return form(d, "astype", x, f", st.{wanted}")


@row("astype", draw)
def astype(x: Any, dtype: Any) -> Plain:
    with np.errstate(all="ignore"):
        array, wanted = plain(x).a, dtype_of(dtype)
        return Plain((array != 0) if wanted.kind == "b" else array.astype(wanted))


def draw(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)))
    low, high = (("-1.5", "0.0", "-0.0"), ("2.0", "0.5", "1.0")) if d.is_float else (("0", "1"), ("3", "5", "100"))
    form_ = d.chance.randrange(4)
    d.keywords |= {"min", "max"}
    return form(
        d,
        "clip",
        x,
        [
            f", {d.pick(*low)}, {d.pick(*high)}",
            f", min={d.pick(*low)}",
            f", max={d.pick(*high)}",
            f", None, {d.pick(*high)}",
        ][form_],
    )


@row("clip", draw, torch=lambda torch: lambda x, min=None, max=None: torch.clamp(x, min, max))
def clip(x: Any, min: Any = None, max: Any = None) -> Plain:
    result = plain(x)
    if min is not None:
        result = FUNCTIONS["maximum"](result, min)
    return result if max is None else FUNCTIONS["minimum"](result, max)


@row(
    "nan_to_num",
    lambda d: (
        f"st.nan_to_num({d.new(d.shape(ranks=(0, 1, 2)))}"
        + (d.keyword("nan", 1.5) + d.keyword("posinf", 7.0) + d.keyword("neginf", -7.0) if d.is_float else "")
        + ")"
    ),
)
def nan_to_num(x: Any, **options: float) -> Plain:
    array = plain(x)
    return Plain(np.nan_to_num(array.a, **options), array.weak)


@row(
    "lerp",
    lambda d: (
        f"st.lerp({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}, "
        f"{d.pick(0.25, 0.75, d.new(shape, values='prob'))})"
    ),
)
def lerp(a: Any, b: Any, weight: Any) -> Plain:
    (x, y, w), _ = together(a, b, weight, floats=True)
    return Plain((x + widest_of(w) * (widest_of(y) - x)).astype(x.dtype))


def _addcmul(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, a, b = d.new(shape, values="small"), d.new(shape, values="small"), d.new(shape, values="nonzero")
    return f"st.{d.name}({x}, {a}, {b}{d.keyword('value', 2, 1)})"


row("addcmul", _addcmul, lambda x, a, b, value=1: plain(x) + plain(a) * b * value)
row("addcdiv", _addcmul, lambda x, a, b, value=1: plain(x) + plain(a) / b * value)


# ---- complex numbers ------------------------------------------------------------------------------


def _angle(x: Any) -> Any:
    """The argument; 0 of -0.0 as in torch. NumPy has pi."""
    return np.angle(x) if x.dtype.kind == "c" else np.where(np.isnan(x), x, np.where(x < 0, math.pi, 0.0))


def _of_parts(function: Callable[[Any, Any], Any]) -> Callable[..., Plain]:
    def reading(a: Any, b: Any) -> Plain:
        arrays, _ = together(a, b, floats=True)
        return Plain(np.asarray(function(*arrays), complex_of(arrays[0].dtype)))

    return reading


def _from_parts(*keywords: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        d.keywords |= set(keywords)
        name = d.name.replace("view_as_real", "complex")
        return f"st.view_as_real(st.{name}({d.new(shape, values='small')}, {d.new(shape, values='small')}))"

    return text


row("conj", unary(), exact(lambda z: np.conj(z) if z.dtype.kind == "c" else z), torch="conj")
row("real", unary(), exact(np.real), torch="real")
row("imag", unary(), exact(np.imag), torch="imag")
row("angle", unary(), exact(lambda x: _angle(x).astype(x.real.dtype), floats=True))
row("complex", _from_parts("real", "imag"), _of_parts(lambda a, b: a + 1j * b))
row("polar", _from_parts("abs", "angle"), _of_parts(lambda a, b: a * np.cos(b) + 1j * (a * np.sin(b))))
row("view_as_real", _from_parts(), exact(lambda z: np.stack([z.real, z.imag], -1)))
row(
    "view_as_complex",
    lambda d: f"st.view_as_real(st.conj(st.view_as_complex({d.new((*d.shape(ranks=(0, 1, 2)), 2), values='small')})))",
    lambda x: FUNCTIONS["complex"](x[..., 0], x[..., 1]),
)
row(
    "is_complex",
    lambda d: f"st.where(st.is_complex({d.new(d.shape(ranks=(0, 1, 2)))}), 1, 2)",
    lambda x: Plain(np.iscomplexobj(bare(x))),
)
