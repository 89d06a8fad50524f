"""Readings of functions that are a few others: element by element, of diagonals, without NaN, of differences and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, bare, complex_of, plain, reads, together, widest_of
from tests.fuzz.plain.elementwise import _exact, _smooth, dtype_of
from tests.fuzz.plain.moves import _joined
from tests.fuzz.plain.sums import _product, wide, widest


def _softplus(x: Any) -> Any:
    return np.where(x > 0, x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _xlogy(x: Any, y: Any) -> Any:
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y))


for _name, _function in {
    "exp2": np.exp2,
    "reciprocal": lambda x: 1.0 / x,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
    "sinc": np.sinc,
    "frac": lambda x: x - np.trunc(x),
    "hypot": np.hypot,
    "logaddexp2": np.logaddexp2,
    "copysign": lambda x, y: np.copysign(x, np.where(np.isnan(y), 1.0, y)),
    "xlogy": _xlogy,
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "hardsigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hardswish": lambda x: np.where(x < -3.0, 0.0, np.where(x > 3.0, x, x * (x + 3.0) / 6.0)),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.where(x > 0, 0.0, x))),
}.items():
    _smooth(_name, _function)


# ---- complex numbers ------------------------------------------------------------------------------


def _angle(x: Any) -> Any:
    """The argument; 0 of -0.0 as in torch, where NumPy has pi."""
    return np.angle(x) if x.dtype.kind == "c" else np.where(np.isnan(x), x, np.where(x < 0, math.pi, 0.0))


def _of_parts(function: Callable[[Any, Any], Any]) -> Callable[..., Plain]:
    def reading(a: Any, b: Any) -> Plain:
        arrays, _ = together(a, b, floats=True)
        return Plain(np.asarray(function(*arrays), complex_of(arrays[0].dtype)))

    return reading


FUNCTIONS["complex"] = _of_parts(lambda a, b: a + 1j * b)
FUNCTIONS["polar"] = _of_parts(lambda a, b: a * np.cos(b) + 1j * (a * np.sin(b)))
_exact("view_as_real", lambda z: np.stack([z.real, z.imag], -1))
FUNCTIONS["view_as_complex"] = lambda x: FUNCTIONS["complex"](x[..., 0], x[..., 1])
FUNCTIONS["is_complex"] = lambda x: Plain(np.iscomplexobj(bare(x)))
_exact("real", np.real)
_exact("imag", np.imag)
_exact("conj", lambda z: np.conj(z) if z.dtype.kind == "c" else z)
_exact("angle", lambda x: _angle(x).astype(x.real.dtype), floats=True)


# ---- special functions ----------------------------------------------------------------------------


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: np.vectorize(function, otypes=[float])(x) if x.size else x


def _lgamma(x: float) -> float:
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _polygamma(n: int, x: float) -> float:
    """The sum of (-1)^(n + 1) n! / (x + k)^(n + 1), its rest by an integral; `digamma` with the logarithm in its place."""
    if math.isnan(x) or x == -math.inf:
        return math.nan
    if x == math.inf:
        return 0.0 if n else math.inf
    if x <= 0 and x == math.floor(x):
        if n == 0:
            return math.copysign(math.inf, -math.copysign(1.0, x)) if x == 0 else math.nan
        return math.inf if n % 2 else -math.inf
    count = 40 + max(0, int(-x))
    y = x + count
    sign, factor = (-1.0) ** (n + 1), math.factorial(n)
    head = sum(1.0 / (x + k) ** (n + 1) for k in range(count))
    if n == 0:
        return math.log(y) - 0.5 / y - 1.0 / (12.0 * y**2) + 1.0 / (120.0 * y**4) - head
    s = n + 1
    rest = y**-n / n + 0.5 * y**-s + s * y ** (-s - 1) / 12.0 - s * (s + 1) * (s + 2) * y ** (-s - 3) / 720.0
    return sign * factor * (head + rest)


def _erfinv(y: float) -> float:
    """By bisection of the error function."""
    if not -1.0 < y < 1.0:
        return math.copysign(math.inf, y) if abs(y) == 1.0 else math.nan
    low, high = 0.0, 6.5
    for _ in range(200):
        middle = 0.5 * (low + high)
        is_below = math.erf(middle) < abs(y) if abs(y) < 0.5 else math.erfc(middle) > 1.0 - abs(y)
        low, high = (middle, high) if is_below else (low, middle)
    return math.copysign(0.5 * (low + high), y)


def _i0(x: float) -> float:
    """By its series."""
    if math.isnan(x) or abs(x) > 700.0:
        return x if math.isnan(x) else math.inf
    term = total = 1.0
    for k in range(1, 1200):
        term *= (0.5 * x / k) ** 2
        total += term
    return total


for _name, _function in {
    "lgamma": _each(_lgamma),
    "digamma": _each(lambda x: _polygamma(0, x)),
    "erfinv": _each(_erfinv),
    "i0": _each(_i0),
    "cbrt": lambda x: np.copysign(np.abs(x) ** (1.0 / 3.0), x),
}.items():
    _smooth(_name, _function)


def _next(x: Any, y: Any) -> Any:
    FUNCTIONS["equal"](x, y)  # where they are equal the result is y, which decides the derivative
    return np.nextafter(x, y)


_exact("nextafter", _next, floats=True)
for _name in ("gcd", "lcm"):
    _exact(_name, getattr(np, _name))


@reads
def polygamma(n: int, x: Any) -> Plain:
    _smooth("_polygamma_of", _each(lambda value: _polygamma(n, value)))
    return FUNCTIONS.pop("_polygamma_of")(x)


@reads
def mvlgamma(x: Any, p: int) -> Plain:
    own = _each(lambda v: p * (p - 1) / 4.0 * math.log(math.pi) + sum(_lgamma(v - j / 2.0) for j in range(p)))
    _smooth("_mvlgamma_of", own)
    return FUNCTIONS.pop("_mvlgamma_of")(x)


def _spaced(numpys: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, dtype=np.float32, **options: Plain(numpys(*args, **options).astype(dtype_of(dtype)))


FUNCTIONS["logspace"], FUNCTIONS["geomspace"] = _spaced(np.logspace), _spaced(np.geomspace)


def _one_of(x: Any) -> Any:
    """1 in the dtype of `x`; as an i64 if that is bool."""
    return np.int64(1) if x.dtype.kind == "b" else x.dtype.type(1)


def _signbit(x: Any) -> Any:
    return np.signbit(x) & (x == x)


for _name, _function in {
    "fmod": np.fmod,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "heaviside": lambda x, y: (
        np.where(x == 0, y, np.where(x < 0, x.dtype.type(0), np.where(x > 0, x.dtype.type(1), x))) * _one_of(x)
    ),
    "signbit": _signbit,
}.items():
    _exact(_name, _function)


@reads
def nan_to_num(x: Any, **options: float) -> Plain:
    array = plain(x)
    return Plain(np.nan_to_num(array.a, **options), array.weak)


def _close(a: Any, b: Any, **options: Any) -> tuple[Any, bool]:
    (x, y), weak = together(a, b, floats=True)
    with np.errstate(all="ignore"):
        return np.isclose(x, y, **options), weak


FUNCTIONS["isclose"] = lambda a, b, **options: Plain(*_close(a, b, **options))
FUNCTIONS["allclose"] = lambda a, b, **options: Plain(np.all(_close(a, b, **options)[0]))


@reads
def array_equal(a: Any, b: Any) -> Plain:
    (x, y), _ = together(a, b)
    return Plain(np.asarray(np.array_equal(x, y)))


def _floats(name: str, function: Callable[..., Any]) -> None:
    """A function of one array and numbers, computed in f64."""

    def reading(x: Any, *rest: Any, **options: Any) -> Plain:
        array, dtype = wide(x)
        with np.errstate(all="ignore"):
            return Plain(np.asarray(function(array, *rest, **options)).astype(dtype))

    FUNCTIONS[name] = reading


def _logit(x: Any, eps: Any = None) -> Any:
    x = x if eps is None else np.clip(x, eps, 1.0 - eps)
    return np.log(x / (1.0 - x))


def _glu(x: Any, axis: int = -1) -> Any:
    a, b = np.split(x, 2, axis)
    return a / (1.0 + np.exp(-b))


def _softmin(x: Any, axis: int = -1) -> Any:
    return np.exp(np.min(x, axis, keepdims=True, initial=np.inf) - x) / np.sum(
        np.exp(np.min(x, axis, keepdims=True, initial=np.inf) - x), axis, keepdims=True
    )


def _nanvar(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    count = np.sum(~np.isnan(x), axis, keepdims=keepdims)
    centred = x - np.nansum(x, axis, keepdims=True) / np.sum(~np.isnan(x), axis, keepdims=True)
    return np.nansum(centred * centred, axis, keepdims=keepdims) / np.where(count > correction, count - correction, np.nan)


for _name, _function in {
    "logit": _logit,
    "celu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0.0, x) / alpha)),
    "hardshrink": lambda x, lambd=0.5: np.where(np.abs(x) <= lambd, 0.0, x),
    "softshrink": lambda x, lambd=0.5: np.where(np.abs(x) <= lambd, 0.0, x - np.sign(x) * lambd),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val),
    "glu": _glu,
    "softmin": _softmin,
    "nanmean": lambda x, axis=None, keepdims=False: (
        np.nansum(x, axis, keepdims=keepdims) / np.sum(~np.isnan(x), axis, keepdims=keepdims)
    ),
    "nanvar": _nanvar,
    "nanstd": lambda x, *rest, **options: np.sqrt(_nanvar(x, *rest, **options)),
    "trapezoid": lambda y, dx=1.0, axis=-1: np.trapezoid(y, dx=dx, axis=axis),
    "cov": lambda x, rowvar=True, correction=1: np.cov(x, rowvar=rowvar, ddof=correction),
    "corrcoef": lambda x, rowvar=True: np.corrcoef(x, rowvar=rowvar),
}.items():
    _floats(_name, _function)


@reads
def threshold(x: Any, threshold: float, value: float) -> Plain:
    return FUNCTIONS["where"](plain(x) <= threshold, value, x)


@reads
def lerp(a: Any, b: Any, weight: Any) -> Plain:
    (x, y, w), _ = together(a, b, weight, floats=True)
    return Plain((x + widest_of(w) * (widest_of(y) - x)).astype(x.dtype))


@reads
def addcmul(x: Any, a: Any, b: Any, value: float = 1) -> Plain:
    return plain(x) + plain(a) * b * value


@reads
def addcdiv(x: Any, a: Any, b: Any, value: float = 1) -> Plain:
    return plain(x) + plain(a) / b * value


# ---- reductions ---------------------------------------------------------------------------------


def _without_nan(name: str, of: str, value: float) -> None:
    def reading(x: Any, *rest: Any, **options: Any) -> Plain:
        array = plain(x)
        if array.dtype.kind == "f":
            array = Plain(np.where(np.isnan(array.a), array.a.dtype.type(value), array.a), array.weak)
        return FUNCTIONS[of](array, *rest, **options)

    FUNCTIONS[name] = reading


_without_nan("nansum", "sum", 0.0)
_without_nan("nanprod", "prod", 1.0)


def _extreme(function: Any) -> Any:
    def reading(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
        return Plain(function(plain(x).a, axis=axis, keepdims=keepdims))

    return reading


for _name, _ufunc in {"nanmax": np.fmax, "nanmin": np.fmin}.items():
    FUNCTIONS[_name] = _extreme(_ufunc.reduce)
FUNCTIONS["ptp"] = lambda x, axis=None, keepdims=False: Plain(np.ptp(plain(x).a, axis, keepdims=keepdims))
FUNCTIONS["aminmax"] = lambda x, axis=None, keepdims=False: (
    FUNCTIONS["min"](x, axis, keepdims),
    FUNCTIONS["max"](x, axis, keepdims),
)


def _beside_mean(name: str) -> Any:
    def reading(x: Any, axis: Any = None, correction: float = 1.0, keepdims: bool = False) -> tuple[Plain, Plain]:
        return FUNCTIONS[name](x, axis, correction, keepdims), FUNCTIONS["mean"](x, axis, keepdims)

    return reading


for _name in ("var", "std"):
    FUNCTIONS[f"{_name}_mean"] = _beside_mean(_name)


@reads
def average(x: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Plain:
    (array, weight), _ = together(x, weights, floats=True)
    inner = widest_of(array), widest_of(weight)
    with np.errstate(all="ignore"):
        sums = [np.sum(x, axis, keepdims=keepdims) for x in (inner[0] * inner[1], inner[1])]
        return Plain((sums[0] / sums[1]).astype(array.dtype))


# ---- shapes, diagonals, differences -------------------------------------------------------------


def _moved(name: str, function: Callable[..., Any]) -> None:
    FUNCTIONS[name] = lambda x, *rest, **options: Plain(np.array(function(plain(x).a, *rest, **options)))


for _name in ("fliplr", "flipud", "rot90", "atleast_1d", "atleast_2d", "atleast_3d", "diagonal", "diag", "diagflat"):
    _moved(_name, getattr(np, _name))
for _name in ("hstack", "vstack", "dstack", "column_stack"):
    FUNCTIONS[_name] = lambda arrays, name=_name: Plain(vars(np)[name](_joined(arrays)))
FUNCTIONS["trace"] = lambda x, **options: FUNCTIONS["sum"](FUNCTIONS["diagonal"](x, **options), -1)


@reads
def block_diag(*arrays: Any) -> Plain:
    blocks = [np.atleast_2d(x) for x in _joined(arrays)]
    result = np.zeros(np.sum([x.shape for x in blocks], axis=0), blocks[0].dtype)
    row = column = 0
    for block in blocks:
        result[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return Plain(result)


@reads
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Plain:
    array = plain(x).a
    if n == 0:
        return Plain(array)
    if prepend is not None:
        array = np.insert(array, 0, bare(prepend), axis)
    if append is not None:
        array = np.insert(array, array.shape[axis], bare(append), axis)
    return Plain(np.diff(array, n, axis))


# ---- products -----------------------------------------------------------------------------------

for _name, _function in {
    "inner": np.inner,
    "kron": np.kron,
    "mv": np.matmul,
}.items():
    FUNCTIONS[_name] = lambda a, b, function=_function: _product(function, a, b)


@reads
def cross(a: Any, b: Any, axis: int = -1) -> Plain:
    return _product(lambda x, y: np.cross(x, y, axis=axis), a, b)


@reads
def addmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Plain:
    return plain(x) * beta + FUNCTIONS["matmul"](a, b) * alpha


@reads
def addr(x: Any, a: Any, b: Any, beta: Any = 1) -> Plain:
    return plain(x) * beta + FUNCTIONS["outer"](a, b)


@reads
def einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Plain:
    arrays, _ = together(*operands)
    dtype = arrays[0].dtype
    inner = np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype
    return Plain(np.array(np.einsum(subscripts, *(x.astype(inner) for x in arrays), optimize=optimize)).astype(dtype))


# ---- running totals -------------------------------------------------------------------------------


def _running(name: str, ufunc: Any) -> None:
    def reading(x: Any, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Plain:
        array = plain(x)
        if dtype is not None:
            array = FUNCTIONS["astype"](array, dtype)
        wanted = array.dtype if dtype is not None or array.dtype.kind in "fc" else widest(array.dtype)
        rows, along = (array.a.reshape(-1), 0) if axis is None else (array.a, axis)
        with np.errstate(all="ignore"):
            inner = np.result_type(wanted, np.float64) if wanted.kind in "fc" else wanted
            found = ufunc.accumulate(rows.astype(inner), along).astype(wanted)
        if include_initial:
            first = np.full_like(np.sum(found, along, found.dtype, keepdims=True), ufunc.identity)
            found = np.concatenate([first, found], along)
        return Plain(found)

    FUNCTIONS[name] = reading


for _name, _ufunc in {"sum": np.add, "prod": np.multiply}.items():
    _running(f"cum{_name}", _ufunc)
    _running(f"cumulative_{_name}", _ufunc)


@reads
def logcumsumexp(x: Any, axis: int = -1) -> Plain:
    rows, dtype = wide(x)
    return Plain(np.logaddexp.accumulate(rows, axis).astype(dtype))


def _running_extreme(name: str, is_beyond: Any) -> None:
    def reading(x: Any, axis: int = -1) -> tuple[Plain, Plain]:
        rows = np.moveaxis(plain(x).a, axis, 0)
        if not len(rows):
            return Plain(plain(x).a), Plain(np.zeros(plain(x).a.shape, np.int64))
        best, at = [rows[0]], [np.zeros(rows.shape[1:], np.int64)]
        for place, row in enumerate(rows[1:], 1):
            wins = np.isnan(row) | is_beyond(row, best[-1]) if row.dtype.kind in "fc" else is_beyond(row, best[-1])
            best.append(np.where(wins, row, best[-1]))
            at.append(np.where(wins, place, at[-1]))
        return Plain(np.moveaxis(np.array(best), 0, axis)), Plain(np.moveaxis(np.array(at), 0, axis))

    FUNCTIONS[name] = reading


_running_extreme("cummax", np.greater_equal)
_running_extreme("cummin", np.less_equal)


# ---- places and counts ------------------------------------------------------------------------------


@reads
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, right: bool = False) -> Plain:
    (keys, values), _ = together(a, v)
    order = None if sorter is None else plain(sorter).a
    return Plain(np.asarray(np.searchsorted(keys, values, "right" if right else side, order)).astype(np.int64))


FUNCTIONS["bucketize"] = lambda x, boundaries, right=False: FUNCTIONS["searchsorted"](boundaries, x, right=right)
FUNCTIONS["digitize"] = lambda x, bins, right=False: FUNCTIONS["searchsorted"](bins, x, right=not right)


@reads
def isin(x: Any, test: Any, invert: bool = False) -> Plain:
    (left, right), _ = together(x, test)
    return Plain(np.asarray(np.isin(left, right, invert=invert)))


@reads
def bincount(x: Any, weights: Any = None, *, length: int) -> Plain:
    values = plain(x).a
    parts = np.ones(len(values), np.int64) if weights is None else plain(weights).a
    total = np.zeros(length, np.int64 if parts.dtype.kind == "b" else parts.dtype)
    for value, part in zip(values, parts, strict=True):
        if 0 <= value < length:
            total[value] += part
    return Plain(total)


@reads
def histogram(x: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool = False) -> tuple[Plain, Plain]:
    values = plain(x).a
    heavy = None if weights is None else plain(weights).a
    with np.errstate(invalid="ignore"):
        counts, edges = np.histogram(values, bins, range, density, heavy)
    dtype = values.dtype if density else np.int64 if heavy is None else heavy.dtype
    return Plain(counts.astype(dtype)), Plain(edges.astype(values.dtype))


def _up_to(found: Any, size: int, fill_value: Any) -> Any:
    rest = np.full(size - len(found[:size]), fill_value, found.dtype)
    return np.concatenate([found[:size], rest])


@reads
def nonzero(x: Any, *, size: int, fill_value: int = 0) -> tuple[Plain, ...]:
    return tuple(Plain(_up_to(places, size, fill_value)) for places in np.nonzero(plain(x).a))


@reads
def masked_select(x: Any, mask: Any, *, size: int, fill_value: Any = 0) -> Plain:
    return Plain(_up_to(plain(x).a[plain(mask).a], size, fill_value))


@reads
def tensor_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Plain]:
    return [Plain(part) for part in np.array_split(plain(x).a, indices_or_sections, axis)]


@reads
def addbmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Plain:
    return plain(x) * beta + FUNCTIONS["einsum"]("kij,kjl->il", a, b) * alpha


FUNCTIONS["vdot"] = lambda a, b: _product(np.vdot, a, b)


@reads
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Plain:
    rows = plain(x).a
    n = rows.shape[-1] + abs(offset)
    found = np.zeros((*rows.shape[:-1], n, n), rows.dtype)
    places = np.arange(rows.shape[-1])
    found[..., places + max(-offset, 0), places + max(offset, 0)] = rows
    return Plain(np.moveaxis(found, (-2, -1), (dim1, dim2)))


def _written(x: Any, axis: int, indices: Any, rows: Any) -> Plain:
    values = np.moveaxis(plain(x).a.copy(), axis, 0)
    for place, row in zip(plain(indices).a, np.moveaxis(np.broadcast_to(rows, plain(x).a[:3].shape), axis, 0), strict=True):
        values[place] = row
    return Plain(np.moveaxis(values, 0, axis))


FUNCTIONS["index_copy"] = lambda x, axis, indices, source: _written(x, axis, indices, plain(source).a)
FUNCTIONS["index_fill"] = lambda x, axis, indices, value: _written(x, axis, indices, np.asarray(value).astype(plain(x).a.dtype))


@reads
def flatnonzero(x: Any, size: int, fill_value: int = 0) -> Plain:
    found = np.flatnonzero(plain(x).a)
    return Plain(np.concatenate([found, np.full(size, fill_value)])[:size].astype(np.int64))


@reads
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Plain:
    values = plain(x).a
    return Plain(np.interp(widest_of(values), xp, plain(fp).a, left, right, period).astype(values.dtype))


FUNCTIONS["index_select"] = lambda x, axis, indices: Plain(np.take(plain(x).a, plain(indices).a, axis))


@reads
def index_add(x: Any, axis: int, indices: Any, source: Any, alpha: Any = 1) -> Plain:
    total, parts = plain(x).a.copy(), (plain(source) * alpha).a
    np.add.at(total, (slice(None),) * axis + (plain(indices).a,), parts.astype(total.dtype))
    return Plain(total)


# ---- scatters with reductions -----------------------------------------------------------------------

_COMBINED = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _combined(x: Any, where: Any, u: Any, reduce: str, own: bool) -> Plain:
    """x with each update taken in at its place, one after another; sums of floats in their own dtype."""
    values, held = plain(x).a.copy(), plain(u).a
    count = np.zeros(values.shape, np.int64)
    np.add.at(count, where, 1)
    if not own:
        extreme = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        low, high = (-np.inf, np.inf) if extreme is None else (extreme.min, extreme.max)
        values[count > 0] = {"prod": 1, "amax": low, "amin": high}.get(reduce, 0)
    with np.errstate(all="ignore"):
        _COMBINED[reduce].at(values, where, held)
        if reduce == "mean":
            count = np.maximum(count + own, 1).astype(values.dtype)
            values = values / count if values.dtype.kind in "fc" else values // count
    return Plain(values)


@reads
def scatter_reduce(x: Any, axis: int, indices: Any, src: Any, reduce: str, include_self: bool = True) -> Plain:
    places = plain(indices).a
    return _combined(x, (places, np.broadcast_to(np.arange(places.shape[1]), places.shape)), src, reduce, include_self)


@reads
def index_reduce(x: Any, axis: int, indices: Any, source: Any, reduce: str, include_self: bool = True) -> Plain:
    return _combined(x, (slice(None), plain(indices).a), source, reduce, include_self)


def _segment(name: str) -> Callable[..., Plain]:
    def segments(data: Any, segment_ids: Any, num_segments: int) -> Plain:
        rows, ids = plain(data).a, plain(segment_ids).a
        is_inside = (ids >= 0) & (ids < num_segments)
        start = Plain(np.zeros((num_segments, *rows.shape[1:]), rows.dtype))
        reduce = {"max": "amax", "min": "amin"}.get(name, name)
        if name in ("prod", "max", "min"):
            ends = np.iinfo(rows.dtype) if rows.dtype.kind in "iu" else None
            low, high = (-np.inf, np.inf) if ends is None else (ends.min, ends.max)
            start = Plain(np.full_like(start.a, {"prod": 1, "max": low, "min": high}[name]))
        return _combined(start, (ids[is_inside],), Plain(rows[is_inside]), reduce, name != "mean")

    return segments


for _name in ("sum", "prod", "max", "min", "mean"):
    FUNCTIONS[f"segment_{_name}"] = _segment(_name)


@reads
def embedding_bag(
    x: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Plain:
    places, table = plain(x).a, plain(weight).a
    shares = np.ones(places.shape, table.dtype) if per_sample_weights is None else plain(per_sample_weights).a
    if offsets is None:
        bags = [(row, share) for row, share in zip(places, shares, strict=True)]
    else:
        ends = [*offsets, *([] if include_last_offset else [len(places)])]
        bags = [(places[a:b], shares[a:b]) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    found = np.zeros((len(bags), table.shape[1]), table.dtype)
    for total, (row, share) in zip(found, bags, strict=True):
        kept = row != (-1 if padding_idx is None else padding_idx % len(table))
        rows = table[row[kept]] * share[kept, None]
        if len(rows):
            total[:] = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows, 0)
    return Plain(found)
