"""Readings of functions that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, HALVES, Plain, Precision, plain, reads, together, widest_of


def _exact(name: str, function: Callable[..., Any], floats: bool = False, arity: int = 1) -> None:
    """A function that NumPy computes in the operands' dtype."""

    def reading(*operands: Any) -> Plain:
        arrays, weak = together(*operands, floats=floats)
        with np.errstate(all="ignore"):
            return Plain(function(*arrays), weak)

    FUNCTIONS[name] = reading


def _smooth(name: str, function: Callable[..., Any]) -> None:
    """A function of floats, computed in f64 and rounded once."""

    def reading(*operands: Any) -> Plain:
        arrays, weak = together(*operands, floats=True)
        with np.errstate(all="ignore"):
            return Plain(np.asarray(function(*map(widest_of, arrays))).astype(arrays[0].dtype), weak)

    FUNCTIONS[name] = reading


def _erfc(x: Any) -> Any:
    return np.vectorize(math.erfc, otypes=[float])(x) if x.size else x


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x) if x.size else x


for _name, _function in vars(np).items():
    # Functions of floats alone by NumPy's own names: `exp`, `log1p`, `logaddexp`.
    if isinstance(_function, np.ufunc) and _function.__name__ == _name and all(types[0] in "efdgFDGO" for types in _function.types):
        _smooth(_name, _function)

for _name, _function in {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": _erf,
    "erfc": _erfc,
    "atan2": np.arctan2,
    "sigmoid": lambda x: np.where(
        x >= 0, 1.0 / (1.0 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1.0 + np.exp(-np.abs(x)))
    ),
    "log_sigmoid": lambda x: np.where(x < 0, x, 0.0) - np.log1p(np.exp(-np.abs(x))),
    "softplus": lambda x: np.where(x > 0, x, 0.0) + np.log1p(np.exp(-np.abs(x))),
}.items():
    _smooth(_name, _function)

for _name, _function in {
    "sqrt": np.sqrt,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "divide": np.divide,
}.items():
    _exact(_name, _function, floats=True)


for _name, _function in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}.items():
    _exact(_name, lambda x, function=_function: function(x) if x.dtype.kind == "f" else x)
_exact("positive", lambda x: x)


def _integer_sign(x: Any) -> Any:
    return np.sign(x)


def _equal(a: Any, b: Any) -> Any:
    found = np.equal(a, b)
    if Precision.equalities is not None and a.dtype.kind == "f":
        Precision.equalities.append(found)
    return found


def _maximum(a: Any, b: Any) -> Any:
    return np.maximum(a, b)


for _name, _function in {
    "negative": lambda x: np.negative(x) if x.dtype.kind != "b" else _refuse(),
    "square": lambda x: x * x,
    "abs": np.abs,
    "sign": np.sign,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "bitwise_invert": np.invert,
}.items():
    _exact(_name, _function)


def _comparison(name: str, function: Callable[..., Any]) -> None:
    """A comparison: Python integers beside narrower ones are compared as they are."""

    def reading(*operands: Any) -> Plain:
        arrays = [plain(x) for x in operands]
        if all(x.dtype.kind in "iu" for x in arrays) and len({x.weak for x in arrays}) > 1:
            return Plain(function(*(x.a.astype(object) for x in arrays)).astype(bool))
        given, weak = together(*operands)
        return Plain(function(*given), weak)

    FUNCTIONS[name] = reading


for _name, _function in {
    "equal": _equal,
    "not_equal": lambda a, b: np.logical_not(_equal(a, b)),
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}.items():
    _comparison(_name, _function)


def _refuse() -> Any:
    raise TypeError("numbers")


@reads
def pow(a: Any, b: Any) -> Plain:
    (x, y), weak = together(a, b)
    if x.dtype.kind == "b":
        x, y = x.astype(np.int64), y.astype(np.int64)
    with np.errstate(all="ignore"):
        if x.dtype.kind in "fc":
            return Plain(np.power(widest_of(x), widest_of(y)).astype(x.dtype), weak)
        return Plain(np.power(x, y), weak)


def _logical(name: str, function: Callable[..., Any]) -> None:
    def reading(*operands: Any) -> Plain:
        arrays = [plain(x) for x in operands]
        return Plain(function(*(x.a != 0 for x in arrays)), all(x.weak for x in arrays))

    FUNCTIONS[name] = reading


for _name, _function in {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
}.items():
    _logical(_name, _function)


@reads
def where(condition: Any, a: Any, b: Any) -> Plain:
    (x, y), weak = together(a, b)
    chosen = plain(condition).a != 0
    result = Plain(np.where(chosen, x, y), weak and chosen.ndim == 0)
    if weak and chosen.ndim and x.dtype == np.float64:
        return Plain(result.a.astype(Precision.single))
    return result


def dtype_of(dtype: Any) -> Any:
    """The dtype meant, where f32 may stand for another."""
    found = np.dtype(dtype)
    if found in HALVES and (Precision.half or Precision.is_wide):
        return np.dtype(np.float32) if Precision.half else Precision.single
    return {"float32": Precision.single, "complex64": np.result_type(Precision.single, np.complex64)}.get(found.name, found)


@reads
def astype(x: Any, dtype: Any) -> Plain:
    with np.errstate(all="ignore"):
        array, wanted = plain(x).a, dtype_of(dtype)
        return Plain((array != 0) if wanted.kind == "b" else array.astype(wanted))


@reads
def clip(x: Any, min: Any = None, max: Any = None) -> Plain:
    result = plain(x)
    if min is not None:
        result = FUNCTIONS["maximum"](result, min)
    return result if max is None else FUNCTIONS["minimum"](result, max)


@reads
def stop_gradient(x: Any) -> Plain:
    return plain(x)


@reads
def relu(x: Any) -> Plain:
    array = plain(x)
    if array.dtype.kind == "b":
        return Plain(array.a.astype(np.int64))
    return Plain(np.where(np.isnan(array.a) | (array.a > 0), array.a, np.zeros((), array.dtype)), array.weak)


@reads
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Plain:
    return FUNCTIONS["where"](plain(x) > 0, x, FUNCTIONS["multiply"](x, float(negative_slope)))


@reads
def elu(x: Any, alpha: float = 1.0) -> Plain:
    inner = FUNCTIONS["multiply"](FUNCTIONS["expm1"](FUNCTIONS["where"](plain(x) > 0, 0, x)), float(alpha))
    return FUNCTIONS["where"](plain(x) > 0, x, inner)


@reads
def silu(x: Any) -> Plain:
    (array,), weak = together(x, floats=True)
    wide = widest_of(array)
    with np.errstate(all="ignore"):
        small = np.exp(-np.abs(wide))
        gate = np.where(wide >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
        return Plain((wide * gate).astype(array.dtype), weak)


@reads
def gelu(x: Any, approximate: str = "none") -> Plain:
    (array,), weak = together(x, floats=True)
    wide = widest_of(array)
    with np.errstate(all="ignore"):
        if approximate == "tanh":
            gate = 0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide**3)))
        else:
            gate = 0.5 * _erfc(-wide / math.sqrt(2.0))
        return Plain((wide * gate).astype(array.dtype), weak)
