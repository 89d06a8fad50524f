"""Rows of reductions, statistics and running totals: in f64, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell, form
from tests.fuzz.plain.core import (
    FUNCTIONS,
    Plain,
    bare,
    common,
    part_of,
    plain,
    squared,
    together,
    wide,
    widest,
    widest_of,
)
from tests.rows.activations import _log_sum
from tests.rows.draws import rows_of
from tests.rows.readings import f64, floats
from tests.rows.table import Call, row
from tests.rows.torch_calls import along


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _total(x: Any, axis: Any, keepdims: bool, dtype: Any, function: Any) -> Plain:
    array = plain(x)
    if dtype is not None:
        array = FUNCTIONS["astype"](array, dtype)
    wanted = array.dtype if dtype is not None or array.dtype.kind in "fc" else widest(array.dtype)
    if wanted.kind == "b":
        wanted = np.dtype(np.int64)
    inner = wanted if wanted.kind in "iu" else np.result_type(wanted, np.float64)
    with np.errstate(all="ignore"):
        return Plain(function(array.a.astype(inner), axis=_axis(axis), keepdims=keepdims, dtype=inner).astype(wanted))


def _reduction(name: str) -> Call:
    def text(d: Draw) -> str:
        values = (
            ("finite" if d.is_float else "small")
            if name in ("sum", "mean", "var", "std")
            else "small"
            if name == "prod"
            else "any"
        )
        if name == "prod":
            values = "nonzero"
        shape = d.shape(ranks=(0, 1, 2, 3))
        x = d.new(shape, values=values)
        rest = d.axis(len(shape), several=not name.startswith("arg")) + d.keyword("keepdims", True, False, percent=35)
        if name in ("var", "std"):
            rest += d.keyword("correction", 0, 1, 0.5, percent=30)
        # The derivative of a wide product may be no number of the narrow dtype.
        if name == "sum" or (name == "prod" and not d.smooth):
            rest += d.keyword(
                "dtype",
                *(
                    ["st.f64", "st.f32"]
                    if d.is_float
                    else "st.i64 st.i32 st.f64 st.u32 st.u8 st.i8 st.u16 st.u64".split()
                ),
                percent=25,
            )
        return form(d, name, x, rest)

    return text


def _renamed(text: str, name: str) -> str:
    """The same call of another function: `st.sum(x)` and `x.sum()` become `st.nansum(x)`."""
    head, _, rest = text.partition("(")
    owner, _, _ = head.rpartition(".")
    return f"st.{name}({rest}" if owner == "st" else f"st.{name}({owner}{', ' if rest != ')' else ''}{rest}"


def _nanvar(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    count = np.sum(~np.isnan(x), axis, keepdims=keepdims)
    centred = x - np.nansum(x, axis, keepdims=True) / np.sum(~np.isnan(x), axis, keepdims=True)
    return np.nansum(centred * centred, axis, keepdims=keepdims) / np.where(
        count > correction, count - correction, np.nan
    )


def _without_nan(of: str, value: float) -> Callable[..., Plain]:
    def reading(x: Any, *rest: Any, **options: Any) -> Plain:
        array = plain(x)
        if array.dtype.kind == "f":
            array = Plain(np.where(np.isnan(array.a), array.a.dtype.type(value), array.a), array.weak)
        return FUNCTIONS[of](array, *rest, **options)

    return reading


def _whole(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading of a reduction of truth values."""
    return lambda x, axis=None, keepdims=False: Plain(function(plain(x).a != 0, axis=_axis(axis), keepdims=keepdims))


def _largest(function: Callable[..., Any]) -> Callable[..., Plain]:
    return lambda x, axis=None, keepdims=False: Plain(function(plain(x).a, axis=_axis(axis), keepdims=keepdims))


def _place(function: Callable[..., Any]) -> Callable[..., Plain]:
    """The reading of an index along an axis."""

    def reading(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
        return Plain(function(plain(x).a, axis=axis, keepdims=keepdims).astype(np.int64))

    return reading


def _summed(function: Callable[..., Any]) -> Callable[..., Plain]:
    def reading(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Plain:
        return _total(x, axis, keepdims, dtype, function)

    return reading


@row("mean", _reduction("mean"), torch=along("mean"))
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        total = np.sum(array, axis=_axis(axis), keepdims=keepdims)
        count = array.size // total.size if total.size else 1
        return Plain((total / np.float64(count)).astype(dtype))


@row("var", _reduction("var"), torch=along("var", correction=0))
def var(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        centre = np.sum(array, axis=_axis(axis), keepdims=True)
        count = np.float64(array.size // centre.size if centre.size else 1)
        distances = array - centre / count
        total = np.sum(squared(distances), axis=_axis(axis), keepdims=keepdims)
        return Plain((total / np.maximum(count - correction, 0.0)).astype(part_of(dtype)))


@row("std", _reduction("std"), torch=along("std", correction=0))
def std(x: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        return Plain(np.sqrt(var(Plain(array), axis, correction, keepdims).a).astype(part_of(dtype)))


row("sum", _reduction("sum"), _summed(np.sum), torch=along("sum"))
row("prod", _reduction("prod"), _summed(np.prod))
row("max", _reduction("max"), _largest(np.max), torch=along("amax"))
row("min", _reduction("min"), _largest(np.min), torch=along("amin"))
row("any", _reduction("any"), _whole(np.any))
row("all", _reduction("all"), _whole(np.all))
row("argmax", _reduction("argmax"), _place(np.argmax))
row("argmin", _reduction("argmin"), _place(np.argmin))
row("count_nonzero", _reduction("count_nonzero"), _whole(lambda x, **how: np.sum(x, dtype=np.int64, **how)))


def _nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.nansum(x, axis, keepdims=keepdims) / np.sum(~np.isnan(x), axis, keepdims=keepdims)


def _another(of: str) -> Call:
    """The call of the reduction `of`, with this function's name."""
    return lambda d: _renamed(_reduction(of)(d), d.name)


row("nansum", _another("sum"), _without_nan("sum", 0.0))
row("nanprod", _another("prod"), _without_nan("prod", 1.0))
row("nanmean", _another("mean"), floats(_nanmean))
row("nanvar", _another("var"), floats(_nanvar))
row("nanstd", _another("std"), floats(lambda x, *rest, **options: np.sqrt(_nanvar(x, *rest, **options))))


def _beside_mean(name: str) -> Any:
    def reading(x: Any, axis: Any = None, correction: float = 1.0, keepdims: bool = False) -> tuple[Plain, Plain]:
        return FUNCTIONS[name](x, axis, correction, keepdims), mean(x, axis, keepdims)

    return reading


row("var_mean", _another("var"), _beside_mean("var"))
row("std_mean", _another("var"), _beside_mean("std"))


def _of_extremes(d: Draw) -> str:
    if d.dtype == "bool":
        raise NotACell
    shape = d.shape(ranks=(0, 1, 2))
    x = d.new(shape, values="small" if d.name == "ptp" else "any")
    return f"st.{d.name}({x}{d.axis(len(shape), several=d.name != 'aminmax')}{d.keyword('keepdims', True, percent=30)})"


row("nanmax", _of_extremes, _largest(np.fmax.reduce))
row("nanmin", _of_extremes, _largest(np.fmin.reduce))
row("ptp", _of_extremes, lambda x, axis=None, keepdims=False: Plain(np.ptp(plain(x).a, axis, keepdims=keepdims)))
row(
    "aminmax",
    _of_extremes,
    lambda x, *how, **options: tuple(FUNCTIONS[name](x, *how, **options) for name in ("min", "max")),
)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    x, weights = d.new(shape, values="small"), d.new(shape, values="positive")
    return f"st.average({x}{d.axis(len(shape), several=False)}, weights={weights}{d.keyword('keepdims', True)})"


@row("average", draw)
def average(x: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Plain:
    (array, weight), _ = together(x, weights, floats=True)
    inner = widest_of(array), widest_of(weight)
    with np.errstate(all="ignore"):
        sums = [np.sum(x, axis, keepdims=keepdims) for x in (inner[0] * inner[1], inner[1])]
        return Plain((sums[0] / sums[1]).astype(array.dtype))


def _of_rows(d: Draw) -> str:
    if not d.is_float or d.kind not in ("odd", "block"):
        raise NotACell
    rest = d.keyword("correction", 0, 1) if d.name == "cov" else ""
    return f"st.{d.name}({d.new((3, 9), values='positive')}{d.keyword('rowvar', True)}{rest})"


row("cov", _of_rows, floats(lambda x, rowvar=True, correction=1: np.cov(x, rowvar=rowvar, ddof=correction)))
row("corrcoef", _of_rows, floats(lambda x, rowvar=True: np.corrcoef(x, rowvar=rowvar)))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    d.keywords.add("y")
    return f"st.trapezoid({d.new(shape, values='small')}{d.keyword('dx', 0.5)}{d.axis(len(shape), several=False, none=False)})"


row("trapezoid", draw, floats(lambda y, dx=1.0, axis=-1: np.trapezoid(y, dx=dx, axis=axis)))

# ---- norms --------------------------------------------------------------------------------------


@row(
    "logsumexp",
    lambda d: (
        f"st.logsumexp({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}"
        f"{d.axis(len(shape))}{d.keyword('keepdims', True, percent=30)})"
    ),
    torch=along("logsumexp"),
)
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Plain:
    array, dtype = wide(x)
    total = _log_sum(array, _axis(axis))
    return Plain((total if keepdims else np.squeeze(total, _axis(axis))).astype(dtype))


@row(
    "norm",
    lambda d: (
        f"st.norm({d.new(shape := d.shape(ranks=(0, 1, 2)), values='finite' if d.is_float else 'small')}"
        f"{d.axis(len(shape))}{d.keyword('keepdims', True, percent=30)}"
        f"{d.keyword('ord', 1, 2, 3, 0, 0.5, 'np.inf', '-np.inf')})"
    ),
    torch=lambda torch: lambda x, axis=None, keepdims=False, ord=2: torch.linalg.vector_norm(x, ord, axis, keepdims),
)
def norm(x: Any, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Plain:
    array, dtype = wide(x)
    axis, size = _axis(axis), np.abs(array)
    with np.errstate(all="ignore"):
        if ord == 0:
            result = np.sum(array != 0, axis=axis, keepdims=keepdims)
        elif math.isinf(ord):
            result = (np.max if ord > 0 else np.min)(size, axis=axis, keepdims=keepdims)
        else:
            result = np.sum(size ** float(ord), axis=axis, keepdims=keepdims) ** (1.0 / ord)
        return Plain(np.asarray(result).astype(part_of(dtype)))


@row(
    "normalize",
    lambda d: (
        f"st.normalize({d.new(shape := d.shape(ranks=(1, 2)), values='nonzero')}"
        f"{d.axis(len(shape), several=False, none=False)}{d.keyword('eps', 1e-12, 1e-3)})"
    ),
    torch=lambda torch: lambda x, axis=-1, eps=1e-12: torch.nn.functional.normalize(x, dim=axis, eps=eps),
)
def normalize(x: Any, axis: int = -1, eps: float = 1e-12) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        size = np.sqrt(np.sum(squared(array), axis=axis, keepdims=True))
        return Plain((array / np.maximum(size, eps)).astype(dtype))


def _norms(x: Any, p: float) -> Any:
    return np.sum(np.abs(x) ** p, axis=-1) ** (1.0 / p)


def _dtype(*operands: Any) -> Any:
    dtype, weak = common(*operands)
    return wide(Plain(np.zeros((), dtype), weak))[1]


def draw(d: Draw) -> str:
    shape = rows_of(d)
    rest = d.axis(2, several=False, none=False) + d.keyword("eps", 1e-8, 1e-3)
    return f"st.cosine_similarity({d.new(shape, values='nonzero')}, {d.new(shape, values='nonzero')}{rest})"


@row("cosine_similarity", draw)
def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Plain:
    a, b = np.moveaxis(f64(x1), axis, -1), np.moveaxis(f64(x2), axis, -1)
    found = np.sum(a * b, -1) / (np.maximum(_norms(a, 2.0), eps) * np.maximum(_norms(b, 2.0), eps))
    return Plain(found.astype(_dtype(x1, x2)))


def draw(d: Draw) -> str:
    shape = rows_of(d)
    rest = d.keyword("p", 1.0, 2.0, 3.0) + d.keyword("eps", 1e-6, 1e-3) + d.keyword("keepdims", True, False)
    return f"st.pairwise_distance({d.new(shape, values='small')}, {d.new(shape, values='positive')}{rest})"


@row("pairwise_distance", draw)
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Plain:
    found = _norms(f64(x1) - f64(x2) + eps, p)
    return Plain((found[..., None] if keepdims else found).astype(part_of(_dtype(x1, x2))))


def draw(d: Draw) -> str:
    shape = rows_of(d)
    other = (4, *shape[1:])
    return f"st.cdist({d.new(shape, values='small')}, {d.new(other, values='positive')}{d.keyword('p', 1.0, 2.0, 3.0)})"


@row("cdist", draw, torch="cdist")
def cdist(x1: Any, x2: Any, p: float = 2.0) -> Plain:
    found = _norms(f64(x1)[..., :, None, :] - f64(x2)[..., None, :, :], p)
    return Plain(found.astype(part_of(_dtype(x1, x2))))


# ---- running totals ------------------------------------------------------------------------------


def _running(d: Draw) -> str:
    if d.dtype == "bool" and d.name in ("cummax", "cummin"):
        raise NotACell
    shape = d.shape(ranks=(1, 2, 3))
    x = d.new(shape, values="nonzero" if "prod" in d.name else "small" if d.name == "logcumsumexp" else "finite")
    is_numpys = d.name in ("cumsum", "cumprod")
    rest = d.axis(len(shape), several=False, none=is_numpys)
    if d.name.startswith("cumulative"):
        rest += d.keyword("include_initial", True, False)
    if (is_numpys or d.name.startswith("cumulative")) and not (d.smooth and "prod" in d.name):
        rest += d.keyword("dtype", *(["st.f64", "st.f32"] if d.is_float else ["st.i64", "st.f64"]), percent=25)
    return f"st.{d.name}({x}{rest})"


def _accumulated(ufunc: Any) -> Callable[..., Any]:
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

    return reading


def _running_extreme(is_beyond: Any) -> Callable[..., Any]:
    def reading(x: Any, axis: int = -1) -> tuple[Plain, Plain]:
        rows = np.moveaxis(plain(x).a, axis, 0)
        if not len(rows):
            return Plain(plain(x).a), Plain(np.zeros(plain(x).a.shape, np.int64))
        best, at = [rows[0]], [np.zeros(rows.shape[1:], np.int64)]
        for place, line in enumerate(rows[1:], 1):
            wins = np.isnan(line) | is_beyond(line, best[-1]) if line.dtype.kind in "fc" else is_beyond(line, best[-1])
            best.append(np.where(wins, line, best[-1]))
            at.append(np.where(wins, place, at[-1]))
        return Plain(np.moveaxis(np.array(best), 0, axis)), Plain(np.moveaxis(np.array(at), 0, axis))

    return reading


row("cumsum", _running, _accumulated(np.add))
row("cumprod", _running, _accumulated(np.multiply))
row("cumulative_sum", _running, _accumulated(np.add))
row("cumulative_prod", _running, _accumulated(np.multiply))
row("logcumsumexp", _running, floats(lambda x, axis=-1: np.logaddexp.accumulate(x, axis)))
row("cummax", _running, _running_extreme(np.greater_equal))
row("cummin", _running, _running_extreme(np.less_equal))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    rest = d.keyword("n", 0, 1, 2) + d.axis(len(shape), several=False, none=False)
    if d.dtype != "bool":
        rest += d.keyword("prepend", 1) + d.keyword("append", 2)
    return f"st.diff({d.new(shape, values='small')}{rest})"


@row("diff", draw)
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Plain:
    array = plain(x).a
    if n == 0:
        return Plain(array)
    if prepend is not None:
        array = np.insert(array, 0, bare(prepend), axis)
    if append is not None:
        array = np.insert(array, array.shape[axis], bare(append), axis)
    return Plain(np.diff(array, n, axis))
