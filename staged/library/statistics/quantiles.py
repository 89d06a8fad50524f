"""Medians and quantiles along axes, of all elements or of those that are no NaN.

Tested by `tests/ops/test_quantiles.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from staged.ir.types import f64, i64
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.choice import where
from staged.ops.comparisons import clip
from staged.ops.elementwise import ceil, floor, isinf, isnan, remainder, round_
from staged.ops.index import take_along_axis
from staged.ops.joining import stack
from staged.ops.promote import as_float, axes_of, cast, check_argument, check_known
from staged.ops.public import internal, public
from staged.ops.reduction import any_, sum_
from staged.ops.shape import permute_dims, reshape, slice_axis
from staged.ops.sorting import Sorted, along, ordered, taken
from staged.ops.source import full

# ---- places among sorted elements -------------------------------------------------------------------

_NUMPYS = SimpleNamespace(floor=np.floor, ceil=np.ceil, rint=np.rint, where=np.where, remainder=np.remainder)
_OURS = SimpleNamespace(floor=floor, ceil=ceil, rint=round_, where=where, remainder=remainder)

_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}


def _closest(n: Any, q: Any, f: Any) -> Any:
    place = n * q - 1.5
    low = f.floor(place)
    return f.where((place == low) & (f.remainder(low, 2.0) == 1.0), low, low + 1.0)


_DISCRETE: dict[str, Callable[..., Any]] = {
    "lower": lambda n, q, f: f.floor((n - 1) * q),
    "higher": lambda n, q, f: f.ceil((n - 1) * q),
    "midpoint": lambda n, q, f: 0.5 * (f.floor((n - 1) * q) + f.ceil((n - 1) * q)),
    "nearest": lambda n, q, f: f.rint((n - 1) * q),
    "inverted_cdf": lambda n, q, f: f.ceil(n * q) - 1.0,
    "averaged_inverted_cdf": lambda n, q, f: f.where(n * q == f.floor(n * q), n * q - 0.5, f.floor(n * q)),
    "closest_observation": _closest,
}
METHODS_OF_QUANTILES = (*_DISCRETE, *_CONTINUOUS)


def _place(n: Any, q: float, method: str, f: Any) -> Any:
    """The place of a quantile among n sorted elements, from 0, between two of them where it is no integer.

    `f` has the functions of n's kind of number.
    Source: Hyndman and Fan, Sample quantiles in statistical packages, The American Statistician, 1996.
    """
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        return n * q + (alpha + q * (1.0 - alpha - beta)) - 1.0
    return _DISCRETE[method](n, q, f)


def _between(low: Array, high: Array, share: Any) -> Array:
    """The number so far between two; either, where they are equal or it is all of one: infinities too."""
    mixed = where(share < 0.5, low + (high - low) * share, high - (high - low) * (1.0 - share))
    mixed = where(share == 0.5, _middle(low, high), mixed)
    return where((share == 0) | _equal_infinities(low, high), low, mixed)


def _middle(low: Array, high: Array) -> Array:
    """The mean of two numbers: an infinite one if they are not both finite.

    The sum of large numbers overflows. Half of the smallest number is 0.
    """
    is_small = (low > -1.0) & (high < 1.0)
    found: Array = where(is_small, (low + high) * 0.5, low * 0.5 + high * 0.5)
    return found


def _equal_infinities(low: Array, high: Array) -> Array:
    """The places where a difference is NaN.

    Two equal numbers are mixed as others are: both have a part in the derivative.
    """
    is_so: Array = (low == high) & isinf(low)
    return is_so


# ---- rows -------------------------------------------------------------------------------------------


def _rows(name: str, x: Any, axis: Any) -> tuple[Array, tuple[Any, ...], tuple[Any, ...]]:
    """Floats with the axes of a quantile as the last one; the shape of the others, and with 1 for each axis."""
    array = as_float(x)
    axes = axes_of(axis, array.ndim, name)
    others = tuple(place for place in range(array.ndim) if place not in axes)
    n = math.prod(array.shape[place] for place in axes)
    check_sizes(n > 0, f"{name} of no elements has no value, got {array.type}", array)
    shape = tuple(array.shape[place] for place in others)
    kept = tuple(1 if place in axes else extent for place, extent in enumerate(array.shape))
    return reshape(permute_dims(array, (*others, *axes)), (*shape, n)), shape, kept


def _known(name: str, q: Any) -> np.ndarray[Any, Any]:
    check_known(name, "q", q)
    known = np.asarray(q, np.float64)
    check_argument(known.ndim < 2, f"{name}: q is a number or a vector, got {known.ndim} dimensions")
    check_argument(bool(((known >= 0) & (known <= 1)).all()), f"{name}: quantiles are from 0 to 1, got {q!r}")
    return known


def _quantile(name: str, x: Any, q: Any, axis: Any, keepdims: bool, method: str, skips_nan: bool) -> Array:
    check_argument(method in METHODS_OF_QUANTILES, f"{name}: there is no method {method!r}: {METHODS_OF_QUANTILES}")
    known = _known(name, q)
    rows, shape, kept = _rows(name, x, axis)
    find = _of_numbers if skips_nan else _of_all
    found = [reshape(each, kept if keepdims else shape) for each in find(rows, known.reshape(-1), method)]
    if not found:
        return full((0, *(kept if keepdims else shape)), 0, rows.dtype)
    return found[0] if known.ndim == 0 else stack(found, 0)


def _of_all(rows: Array, q: np.ndarray[Any, Any], method: str) -> list[Array]:
    """The quantiles of each row, NaN where it has one: of elements whose places are known while staging."""
    last, n = rows.ndim - 1, rows.shape[-1]
    if not isinstance(n, int):
        is_nan = any_(isnan(rows), -1)
        return [where(is_nan, math.nan, each) for each in _of_numbers(rows, q, method)]
    places = [min(max(float(_place(float(n), float(each), method, _NUMPYS)), 0.0), n - 1.0) for each in q]
    needed = max((math.ceil(place) for place in places), default=0) + 1
    values = ordered(rows, last, k=needed).values
    is_nan = any_(isnan(rows), -1)
    found = []
    for place in places:
        low, high = (slice_axis(values, last, at, at + 1)[..., 0] for at in (math.floor(place), math.ceil(place)))
        share = place - math.floor(place)
        mixed = low if not share else _mixed(low, high, share)
        found.append(where(is_nan, math.nan, mixed))
    return found


def _mixed(low: Array, high: Array, share: float) -> Array:
    if share == 0.5:
        mixed = _middle(low, high)
    else:
        mixed = low + (high - low) * share if share < 0.5 else high - (high - low) * (1.0 - share)
    return where(_equal_infinities(low, high), low, mixed)


def _of_numbers(rows: Array, q: np.ndarray[Any, Any], method: str) -> list[Array]:
    """The quantiles of what is no NaN in each row; NaN where all are."""
    values = ordered(rows, rows.ndim - 1).values  # NaN are the last
    count = sum_(cast(~isnan(rows), f64), -1, True)
    found = []
    for each in q:
        place = clip(_place(count, float(each), method, _OURS), 0.0, clip(count - 1.0, 0.0, None))
        low = floor(place)
        below, above = (take_along_axis(values, cast(at, i64), -1) for at in (low, ceil(place)))
        found.append(_between(below, above, cast(place - low, rows.dtype))[..., 0])
    return found


# ---- public -----------------------------------------------------------------------------------------


@public("quantile", method=True)
def quantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """The value below which a share `q` of the elements over `axis` lies. NumPy and torch `quantile`.

    `q`, a number or a vector from 0 to 1, is known while staging; the axis of a vector comes first. NaN where there is
    a NaN. `method` is one of NumPy's thirteen; torch's word for it is `interpolation`.
    """
    return _quantile("quantile", x, q, axis, keepdims, method, False)


@public("nanquantile", method=True)
def nanquantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`quantile` of what is no NaN; NaN where all are. NumPy and torch `nanquantile`."""
    return _quantile("nanquantile", x, q, axis, keepdims, method, True)


@public("percentile")
def percentile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`quantile` of `q` in percent. NumPy `percentile`."""
    check_known("percentile", "q", q)
    return _quantile("percentile", x, np.asarray(q, np.float64) / 100.0, axis, keepdims, method, False)


@public("nanpercentile")
def nanpercentile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`nanquantile` of `q` in percent. NumPy `nanpercentile`."""
    check_known("nanpercentile", "q", q)
    return _quantile("nanpercentile", x, np.asarray(q, np.float64) / 100.0, axis, keepdims, method, True)


@public("median", method=True)
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The middle element over `axis`, or the mean of the two. NumPy `median`; with `dim`, torch's pair.

    NaN where there is a NaN. torch's takes the lower of two: `(values, indices)` of that.
    """
    return _quantile("median", x, 0.5, axis, keepdims, "linear", False)


@public("nanmedian", method=True)
def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`median` of what is no NaN; NaN where all are. NumPy `nanmedian`; with `dim` refused, as torch's is the lower."""
    return _quantile("nanmedian", x, 0.5, axis, keepdims, "linear", True)


@internal("lower_median")
def lower_median(x: Any, axis: int = -1, keepdims: bool = False) -> Sorted:
    """torch's `median` along a `dim`: the lower of two middle elements, or the first NaN, and its place."""
    array, axis = along("median", x, axis)
    n = array.shape[axis]
    check_sizes(n > 0, f"median of no elements has no value, got {array.type}", array)
    pair = ordered(array, axis)
    found = taken(pair, axis, (n - 1) // 2, True)
    if array.dtype.is_float:
        values, places = found
        first_nan = sum_(cast(~isnan(array), i64), axis, True)
        has_nan = first_nan < n
        where_nan = take_along_axis(pair.indices, clip(first_nan, 0, n - 1), axis)
        found = Sorted(where(has_nan, math.nan, values), where(has_nan, where_nan, places))
    return found if keepdims else taken(found, axis, 0, False)
