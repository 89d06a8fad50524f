"""Sums, means and extremes that leave NaN out, differences along an axis, averages and covariances."""

from __future__ import annotations

import math
from typing import Any

from staged.library.linalg.diagonals import diagonal
from staged.library.statistics.products import prod as prod_
from staged.ops.array import Array
from staged.ops.assumptions import assume_not_one
from staged.ops.choice import where
from staged.ops.comparisons import clip, not_equal
from staged.ops.contraction import matmul
from staged.ops.elementwise import divide, isnan, maximum, sqrt, square
from staged.ops.joining import concat
from staged.ops.promote import (
    as_array,
    as_float,
    axis_of,
    broadcast,
    cast,
    check_known,
    check_real,
    promoted,
    shape_error,
)
from staged.ops.public import public
from staged.ops.reduction import all_, freedom_of, max_, mean, min_, std, sum_, var
from staged.ops.shape import expand_dims, reshape, slice_axis, swapaxes
from staged.ops.wide_numbers import settled

# ---- without NaN ----------------------------------------------------------------------------------


def _filled(x: Any, value: float) -> Array:
    array = as_array(x)
    return where(isnan(array), value, array) if array.dtype.is_float else array


def _present(x: Array, axis: Any, keepdims: bool) -> Array:
    """The number of elements that are no NaN, as floats."""
    return sum_(cast(~isnan(x), x.dtype), axis, keepdims)


@public("nansum", method=True)
def nansum(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Array:
    """The sum over `axis` of what is no NaN. NumPy and torch `nansum`; dtypes as in `sum`."""
    return sum_(_filled(x, 0.0), axis, keepdims, dtype)


@public("nanprod")
def nanprod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Array:
    """The product over `axis` of what is no NaN. NumPy `nanprod`; dtypes as in `prod`."""
    return prod_(_filled(x, 1.0), axis, keepdims, dtype)


@public("nanmean", method=True)
def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean over `axis` of what is no NaN; NaN where all are. NumPy and torch `nanmean`."""
    array = as_float(x)
    return nansum(array, axis, keepdims) / _present(array, axis, keepdims)


@public("nanvar")
def nanvar(x: Any, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over `axis` of what is no NaN, divided by their number - `correction`. NumPy `nanvar`.

    NaN where that divisor is not above 0.
    """
    array = as_float(x)
    centred = where(isnan(array), 0.0, array - nanmean(array, axis, keepdims=True))
    freedom = _present(array, axis, keepdims) - correction
    return sum_(square(centred), axis, keepdims) / where(freedom > 0, freedom, math.nan)


@public("nanstd")
def nanstd(x: Any, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The square root of `nanvar`, with the same arguments; the derivative at 0 is 0. NumPy `nanstd`."""
    spread = nanvar(x, axis, correction=correction, keepdims=keepdims)
    still = spread == 0
    return where(still, 0.0, sqrt(where(still, 1.0, spread)))


@public("nanmax")
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest element over `axis` that is no NaN; NaN where all are. NumPy `nanmax`."""
    found = max_(_filled(x, -math.inf), axis, keepdims)
    return _or_nan(x, found, axis, keepdims)


@public("nanmin")
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis` that is no NaN; NaN where all are. NumPy `nanmin`."""
    found = min_(_filled(x, math.inf), axis, keepdims)
    return _or_nan(x, found, axis, keepdims)


def _or_nan(x: Any, found: Array, axis: Any, keepdims: bool) -> Array:
    array = as_array(x)
    return where(all_(isnan(array), axis, keepdims), math.nan, found) if array.dtype.is_float else found


# ---- ranges, averages, differences ----------------------------------------------------------------


@public("ptp")
def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest less the smallest element over `axis`. NumPy `ptp`."""
    array = as_array(x)
    return max_(array, axis, keepdims) - min_(array, axis, keepdims)


@public("aminmax", method=True)
def aminmax(x: Any, axis: Any = None, keepdims: bool = False) -> tuple[Array, Array]:
    """The smallest and the largest element over `axis`. torch `aminmax`."""
    array = as_array(x)
    return min_(array, axis, keepdims), max_(array, axis, keepdims)


@public("var_mean")
def var_mean(x: Any, axis: Any = None, *, correction: float = 1.0, keepdims: bool = False) -> tuple[Array, Array]:
    """`var` and `mean` over `axis`, with torch's `correction` of 1. torch `var_mean`."""
    array = as_float(x)
    return var(array, axis, correction=correction, keepdims=keepdims), mean(array, axis, keepdims)


@public("std_mean")
def std_mean(x: Any, axis: Any = None, *, correction: float = 1.0, keepdims: bool = False) -> tuple[Array, Array]:
    """`std` and `mean` over `axis`, with torch's `correction` of 1. torch `std_mean`."""
    array = as_float(x)
    return std(array, axis, correction=correction, keepdims=keepdims), mean(array, axis, keepdims)


@public("average")
def average(x: Any, axis: int | None = None, weights: Any = None, keepdims: bool = False) -> Array:
    """The sum of `weights * x` over `axis`, divided by that of `weights`; the mean without them. NumPy `average`.

    Weights have the shape of `x`, or are a vector along `axis`.
    """
    array = as_float(x)
    if weights is None:
        return mean(array, axis, keepdims)
    array, weight = promoted(array, weights)
    if weight.shape != array.shape:
        if axis is None or weight.ndim != 1 or weight.shape[0] != array.shape[axis_of(axis, array.ndim, "average")]:
            raise shape_error(f"average: weights {weight.type} do not fit {array.type}", array, weight)
        where_ = axis_of(axis, array.ndim, "average")
        shape = tuple(extent if place == where_ else 1 for place, extent in enumerate(array.shape))
        weight = broadcast(reshape(weight, shape), array.shape)
    return sum_(array * weight, axis, keepdims) / sum_(weight, axis, keepdims)


@public("diff", method=True)
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """The differences of neighbours along `axis`, taken `n` times; of bools whether they differ. Array API `diff`.

    `prepend` and `append` are put before and after `x` first: arrays, or numbers for one element.
    """
    array = as_array(x)
    check_known("diff", "n", n)
    along = axis_of(axis, array.ndim, "diff")
    if n < 0:
        raise shape_error(f"diff is taken at least 0 times, got {n}", array)
    if not n:
        return array
    parts = promoted(*(part for part in (prepend, array, append) if part is not None))
    array = concat([_beside(part, array, along) for part in parts], along) if len(parts) > 1 else array
    for _ in range(n):
        extent = array.shape[along]
        if extent == 0:
            return array
        after, before = slice_axis(array, along, 1, extent), slice_axis(array, along, 0, extent - 1)
        array = not_equal(after, before) if array.dtype.is_bool else after - before
    return array


def _beside(part: Array, x: Array, axis: int) -> Array:
    return part if part.ndim else broadcast(part, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))


@public("trapezoid", torch=("trapz",))
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    """The integral of `y` along `axis` by the trapezoidal rule, at the points `x` or `dx` apart. NumPy `trapezoid`."""
    y, x = (y, None) if x is None else settled(y, x)
    array = as_float(y)
    along = axis_of(axis, array.ndim, "trapezoid")
    extent = array.shape[along]
    if extent == 0:
        return sum_(array, along)
    middle = (slice_axis(array, along, 1, extent) + slice_axis(array, along, 0, extent - 1)) * 0.5
    if x is None:
        return sum_(middle * dx, along)
    points = as_array(x)
    steps = diff(points, axis=-1 if points.ndim == 1 else along)
    if points.ndim == 1:
        steps = reshape(steps, tuple(steps.shape[0] if place == along else 1 for place in range(array.ndim)))
    return sum_(middle * steps, along)


# ---- covariance -----------------------------------------------------------------------------------


@public("cov", method=True)
def cov(x: Any, rowvar: bool = True, *, correction: float = 1.0, fweights: Any = None, aweights: Any = None) -> Array:
    """The covariances of the rows of `x` (of its columns without `rowvar`): (m, n) -> (m, m). NumPy and torch `cov`.

    Sums of products of distances to the means, over n - `correction`. A single row's result is its variance, a number.
    Observations count `fweights` (integers) times, and are weighed by `aweights`, each of shape (n,): the divisor is
    then sum(w) - `correction` * sum(w * aweights) / sum(w), for w = fweights * aweights, as in NumPy and torch.
    """
    x, aweights = (x, None) if aweights is None else settled(x, aweights)
    array = as_float(x)
    check_real("cov", array)
    if array.ndim > 2:
        raise shape_error(f"cov takes a matrix or a vector, got {array.type}", array)
    rows = array if array.ndim == 2 else reshape(array, (1, -1))
    rows = rows if rowvar or array.ndim < 2 else swapaxes(rows, 0, 1)
    if fweights is None and aweights is None:
        centred = rows - mean(rows, 1, keepdims=True)
        freedom = freedom_of(rows, (1,), rows.dtype, correction)
        found = divide(matmul(centred, swapaxes(centred, 0, 1)), freedom)
    else:
        found = _weighed_cov(rows, correction, fweights, aweights)
    assume_not_one(rows.shape[:1])
    return reshape(found, ()) if rows.shape[0] == 1 else found


def _weighed_cov(rows: Array, correction: float, fweights: Any, aweights: Any) -> Array:
    given = [cast(as_array(one), rows.dtype) for one in (fweights, aweights) if one is not None]
    weights = given[0] if len(given) == 1 else given[0] * given[1]
    if weights.shape != rows.shape[1:]:
        raise shape_error(f"cov: weights {weights.type} are not one for each observation of {rows.type}", weights, rows)
    total = sum_(weights)
    lost = correction if aweights is None else correction * sum_(weights * given[-1]) / total
    centred = rows - expand_dims(matmul(rows, weights) / total, 1)
    return matmul(centred * weights, swapaxes(centred, 0, 1)) / maximum(total - lost, 0.0)


@public("corrcoef", method=True)
def corrcoef(x: Any, rowvar: bool = True) -> Array:
    """The correlations of the rows of `x` (of its columns without `rowvar`), within [-1, 1]. NumPy `corrcoef`."""
    found = cov(x, rowvar)
    if not found.ndim:
        return found / found
    spread = sqrt(diagonal(found))
    return clip(found / expand_dims(spread, 1) / expand_dims(spread, 0), -1.0, 1.0)
