"""Normalisations over layers, batches and groups of channels, and norms; with their own derivatives where these are
better.

The derivatives are written to fuse: elementwise around sums over the axes that were normalised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.ir.sizes import Size, exact_quotient, surely
from staged.ir.types import Shape, TensorType, f64, i64, shape_text
from staged.library.elementwise.activations import spread
from staged.ops.array import Array
from staged.ops.checks import stop_unless
from staged.ops.choice import stop_gradient, where
from staged.ops.composite import composite
from staged.ops.dimension import as_extent
from staged.ops.elementwise import abs_, isinf, maximum, rsqrt, sqrt, square
from staged.ops.primitive import Sample, next_axes
from staged.ops.promote import (
    as_float,
    axes_of,
    broadcast,
    cast,
    check_argument,
    check_known,
    constant,
    dtype_error,
    handle,
    is_number,
    promoted,
    shape_error,
    type_of,
    whole,
)
from staged.ops.public import Option, public
from staged.ops.reduction import count_nonzero, extent_of, freedom_of, max_, mean, min_, sum_
from staged.ops.shape import flatten, reshape, squeeze

# ---- operands -------------------------------------------------------------------------------------


def _last_axes(name: str, x: Array, shape: Any) -> tuple[Shape, tuple[int, ...]]:
    """The shape that is normalised over, by default that of the last axis, and its axes."""
    if shape is None:
        shape = x.shape[-1:]
    given = (shape,) if as_extent(shape) is not None else tuple(shape)
    shape = x.shape[x.ndim - len(given) :]
    if not given or shape != tuple(map(as_extent, given)):
        raise shape_error(
            f"{name} over {shape_text(given)} does not fit {x.type}",
            x,
            hint="normalized_shape is the shape of the last axes of x",
        )
    return shape, tuple(range(x.ndim - len(shape), x.ndim))


def _fitting(name: str, what: str, shape: Shape, x: Array, value: Any) -> Array:
    """A parameter as an array of x's dtype, which has its values; a ShapeError where it has another shape."""
    joined, part = promoted(x, value)
    if joined.dtype is not x.dtype:
        hint = f"cast one of them: `st.astype(x, st.{joined.dtype})`, or the {what}, which rounds it"
        raise dtype_error(f"{name}: the {what} is {type_of(handle(value))} for {x.type}", x, part, hint=hint)
    if part.shape != shape:
        raise shape_error(f"{name}: the {what} is {shape_text(shape)}, got {part.type}", x, part)
    return part


def _affine(name: str, x: Array, shape: Shape, weight: Any, bias: Any) -> tuple[list[Array], str]:
    """The weight and the bias, those that there are, and which: a string of `w` and `b`."""
    given = [(letter, what, v) for letter, what, v in (("w", "weight", weight), ("b", "bias", bias)) if v is not None]
    return [_fitting(name, what, shape, x, v) for _, what, v in given], "".join(letter for letter, _, _ in given)


# ---- layer norm -----------------------------------------------------------------------------------


def _layer_norm_vjp(cts: Any, results: Any, x: Array, *affine: Array, axes: Any, eps: float, parts: str) -> list[Any]:
    ct, ct_mean, ct_rstd = cts
    _, centre, scale = results
    kept = tuple(range(axes[0]))
    n = extent_of(x, axes, x.dtype)
    rstd = spread(scale, x.shape, axes)
    xhat = (x - spread(centre, x.shape, axes)) * rstd
    d_x: Any = None
    d_affine: list[Any] = []
    if ct is not None:
        g = ct * affine[0] if "w" in parts else ct
        along = sum_(g * xhat, axes, keepdims=True) / n
        d_x = rstd * (g - sum_(g, axes, keepdims=True) / n - xhat * along)
        if "w" in parts:
            d_affine.append(sum_(ct * xhat, kept) if kept else ct * xhat)
        if "b" in parts:
            d_affine.append(sum_(ct, kept) if kept else ct)
    else:
        d_affine = [None] * len(parts)
    if ct_mean is not None:
        part = broadcast(spread(ct_mean / n, x.shape, axes), x.shape)
        d_x = part if d_x is None else d_x + part
    if ct_rstd is not None:
        # rstd = (var + eps)^(-1/2), so its derivative in x is -rstd^3 (x - mean) / n.
        part = -xhat * square(rstd) * spread(ct_rstd / n, x.shape, axes)
        d_x = part if d_x is None else d_x + part
    return [d_x, *d_affine]


@composite(
    "layer_norm",
    vjp=_layer_norm_vjp,
    shift=next_axes,
    samples=[Sample(((4, 5), (5,), (5,)), {"axes": (1,), "eps": 1e-5, "parts": "wb"})],
)
def _layer_norm(x: Array, *affine: Array, axes: Any, eps: float, parts: str) -> tuple[Array, ...]:
    centre = mean(x, axes)
    centred = x - spread(centre, x.shape, axes)
    rstd = rsqrt(mean(square(centred), axes) + eps)
    y = centred * spread(rstd, x.shape, axes)
    if "w" in parts:
        y = y * affine[0]
    if "b" in parts:
        y = y + affine[-1]
    return y, centre, rstd


@public("layer_norm")
def layer_norm(x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes. torch `nn.functional.layer_norm`.

    Shapes: x (..., *normalized_shape); weight and bias normalized_shape; by default the last axis alone.
    Source: Ba, Kiros and Hinton, Layer normalization, 2016.
    """
    array = as_float(x)
    shape, axes = _last_axes("layer_norm", array, normalized_shape)
    affine, parts = _affine("layer_norm", array, shape, weight, bias)
    return _layer_norm(array, *affine, axes=axes, eps=eps, parts=parts)[0]


# ---- root mean square -----------------------------------------------------------------------------


def _rms_norm_vjp(cts: Any, results: Any, x: Array, *weight: Array, axes: Any, eps: float) -> list[Any]:
    ct, ct_rstd = cts
    n = extent_of(x, axes, x.dtype)
    rstd = spread(results[1], x.shape, axes)
    xhat = x * rstd
    kept = tuple(range(axes[0]))
    d_x: Any = None
    d_weight: Any = None
    if ct is not None:
        g = ct * weight[0] if weight else ct
        d_x = rstd * (g - xhat * (sum_(g * xhat, axes, keepdims=True) / n))
        d_weight = sum_(ct * xhat, kept) if kept else ct * xhat
    if ct_rstd is not None:
        # rstd = (mean of squares + eps)^(-1/2), so its derivative in x is -rstd^3 x / n.
        part = -xhat * square(rstd) * spread(ct_rstd / n, x.shape, axes)
        d_x = part if d_x is None else d_x + part
    return [d_x, d_weight] if weight else [d_x]


@composite(
    "rms_norm",
    vjp=_rms_norm_vjp,
    shift=next_axes,
    samples=[Sample(((4, 5), (5,)), {"axes": (1,), "eps": 1e-5})],
)
def _rms_norm(x: Array, *weight: Array, axes: Any, eps: float) -> tuple[Array, ...]:
    rstd = rsqrt(mean(square(x), axes) + eps)
    y = x * spread(rstd, x.shape, axes)
    return (y * weight[0] if weight else y), rstd


@public("rms_norm")
def rms_norm(x: Any, normalized_shape: Any = None, weight: Any = None, eps: float | None = None) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes. torch `nn.functional.rms_norm`.

    Shapes as in `layer_norm`; `eps` defaults to the dtype's machine epsilon.
    Source: Zhang and Sennrich, Root mean square layer normalization, 2019.
    """
    array = as_float(x)
    shape, axes = _last_axes("rms_norm", array, normalized_shape)
    affine, _ = _affine("rms_norm", array, shape, weight, None)
    small = float(np.finfo(array.dtype.numpy).eps) if eps is None else eps
    return _rms_norm(array, *affine, axes=axes, eps=small)[0]


# ---- batch norm -----------------------------------------------------------------------------------


def _per_channel(y: Array, ndim: int) -> Array:
    """(C,) -> (1, C, 1, ...), to meet arrays with the channels along axis 1."""
    return reshape(y, (1, -1, *(1,) * (ndim - 2)))


def _samples(x: Array) -> tuple[int, ...]:
    """The axes that batch norm takes its statistics over: all but the channels."""
    return (0, *range(2, x.ndim))


def _scaled(centred: Array, rstd: Array, affine: Sequence[Array], parts: str) -> Array:
    """centred * rstd * weight + bias, with the factors of a channel multiplied first."""
    scale = rstd * affine[0] if "w" in parts else rstd
    y = centred * _per_channel(scale, centred.ndim)
    return y + _per_channel(affine[-1], y.ndim) if "b" in parts else y


@composite(
    "batch_norm_inference",
    samples=[Sample(((4, 5), (5,), (5,), (5,), (5,)), {"eps": 1e-5, "parts": "wb"}, low=0.2, high=2.0)],
)
def _batch_norm_inference(x: Array, centre: Array, variance: Array, *affine: Array, eps: float, parts: str) -> Array:
    return _scaled(x - _per_channel(centre, x.ndim), rsqrt(variance + eps), affine, parts)


@composite("batch_norm_backward")
def _batch_norm_backward(
    ct: Array, x: Array, centre: Array, variance: Array, *weight: Array, eps: float
) -> tuple[Array, ...]:
    """The cotangents of x, weight and bias; those of the statistics, which depend on x, are in x's."""
    axes = _samples(x)
    n = extent_of(x, axes, x.dtype)
    rstd = rsqrt(variance + eps)
    xhat = (x - _per_channel(centre, x.ndim)) * _per_channel(rstd, x.ndim)
    along, total = sum_(ct * xhat, axes), sum_(ct, axes)
    scale = rstd * weight[0] if weight else rstd
    inner = ct - _per_channel(total / n, x.ndim) - xhat * _per_channel(along / n, x.ndim)
    return inner * _per_channel(scale, x.ndim), along, total


def _batch_norm_vjp(cts: Any, results: Any, x: Array, *affine: Array, eps: float, parts: str) -> list[Any]:
    ct, ct_centre, ct_variance = cts
    _, centre, variance = results
    n = extent_of(x, _samples(x), x.dtype)
    d_x: Any = None
    d_affine: list[Any] = [None] * len(parts)
    if ct is not None:
        d_x, *found = _batch_norm_backward(ct, x, centre, variance, *affine[: "w" in parts], eps=eps)
        d_affine = [found["wb".index(letter)] for letter in parts]
    if ct_centre is not None:
        part = broadcast(_per_channel(ct_centre / n, x.ndim), x.shape)
        d_x = part if d_x is None else d_x + part
    if ct_variance is not None:
        part = (x - _per_channel(centre, x.ndim)) * _per_channel(ct_variance * 2.0 / n, x.ndim)
        d_x = part if d_x is None else d_x + part
    return [d_x, *d_affine]


@composite(
    "batch_norm_training", vjp=_batch_norm_vjp, samples=[Sample(((4, 5), (5,), (5,)), {"eps": 1e-5, "parts": "wb"})]
)
def _batch_norm_training(x: Array, *affine: Array, eps: float, parts: str) -> tuple[Array, ...]:
    axes = _samples(x)
    centre = mean(x, axes)
    centred = x - _per_channel(centre, x.ndim)
    variance = mean(square(centred), axes)
    return _scaled(centred, rsqrt(variance + eps), affine, parts), centre, variance


def _channels(name: str, x: Array) -> tuple[Any]:
    if x.ndim < 2:
        raise shape_error(f"{name} needs an input of (N, C, ...), got {x.type}", x, hint="axis 1 holds the channels")
    return (x.shape[1],)


@public("batch_norm")
def batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, with given statistics: for inference.

    Shapes: x (N, C, ...); the others (C,). torch `nn.functional.batch_norm` with `training=False`; `nn.BatchNorm2d`
    keeps the statistics. Source: Ioffe and Szegedy, Batch normalization, 2015.
    """
    array = as_float(x)
    check_known("batch_norm", "eps", eps)
    check_argument(eps >= 0, f"batch_norm: eps is at least 0, got {eps}")
    shape = _channels("batch_norm", array)
    statistics = [_fitting("batch_norm", what, shape, array, v) for what, v in (("mean", mean), ("variance", var))]
    affine, parts = _affine("batch_norm", array, shape, weight, bias)
    return _batch_norm_inference(array, *statistics, *affine, eps=eps, parts=parts)[0]


def _check_several(name: str, x: Array, axes: Sequence[int], hint: str) -> None:
    """Check that there is not one element over `axes`: now, or when the program runs if a size is symbolic."""
    message = f"{name} needs more than one element per channel"
    if all(x.shape[axis] == 1 for axis in axes):
        raise shape_error(f"{message}, got {x.type}", x, hint=hint)
    if all(isinstance(x.shape[axis], Size) or x.shape[axis] == 1 for axis in axes):
        stop_unless(extent_of(x, axes, i64) != 1, message)


@public("batch_norm_training")
def batch_norm_training(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5, correction: float = 0.0
) -> tuple[Array, Array, Array]:
    """Batch norm with the statistics of x, for training: returns (y, mean, var).

    Shapes: x (N, C, ...); weight, bias, mean and var (C,). y is normalised by the variance over n, the number of
    elements of a channel; the returned variance is over n - `correction` (torch's running statistics have 1). The
    gradient goes through the statistics. Raises ShapeError where a channel has one element: it has no variance. Source:
    Ioffe and Szegedy, Batch normalization, 2015.
    """
    array = as_float(x)
    check_known("batch_norm_training", "eps", eps)
    check_argument(eps > 0, f"batch_norm_training: eps is above 0, got {eps}")
    shape = _channels("batch_norm_training", array)
    _check_several("batch_norm_training", array, _samples(array), "use a larger batch, or evaluation mode")
    affine, parts = _affine("batch_norm_training", array, shape, weight, bias)
    y, centre, variance = _batch_norm_training(array, *affine, eps=eps, parts=parts)
    if correction:
        n = extent_of(array, _samples(array), array.dtype)
        rest = freedom_of(array, _samples(array), array.dtype, correction)
        variance = variance * (math.inf if isinstance(rest, float) and not rest else n / rest)
    return y, centre, variance


# ---- groups of channels ---------------------------------------------------------------------------


@public("group_norm")
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Array:
    """Each sample's channels, in groups, normalised to mean 0 and variance 1. torch `nn.functional.group_norm`.

    Shapes: x (N, C, ...), C a multiple of `num_groups`; weight and bias (C,).
    Source: Wu and He, Group normalization, 2018.
    """
    array = as_float(x)
    return _group_norm("group_norm", array, num_groups, weight, bias, eps)


def _group_norm(name: str, x: Array, groups: int, weight: Any, bias: Any, eps: float) -> Array:
    (channels,) = shape = _channels(name, x)
    groups = whole(groups)
    if not isinstance(groups, int | Size) or surely(lambda: groups < 1) or exact_quotient(channels, groups) is None:
        raise shape_error(f"{name}: {channels} channels do not divide into {groups} groups", x)
    affine, parts = _affine(name, x, shape, weight, bias)
    rows = flatten(x, 1)
    rows = reshape(rows, (x.shape[0], groups, exact_quotient(rows.shape[1], groups)))
    y = reshape(_layer_norm(rows, axes=(2,), eps=eps, parts="")[0], x.shape)
    if "w" in parts:
        y = y * _per_channel(affine[0], x.ndim)
    return y + _per_channel(affine[-1], x.ndim) if "b" in parts else y


@public("instance_norm")
def instance_norm(x: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Array:
    """Each channel of each sample normalised to mean 0 and variance 1. torch `nn.functional.instance_norm`.

    Shapes: x (N, C, ...) with more than one element per channel; weight and bias (C,).
    Source: Ulyanov, Vedaldi and Lempitsky, Instance normalization, 2016.
    """
    array = as_float(x)
    (channels,) = _channels("instance_norm", array)
    _check_several("instance_norm", array, range(2, array.ndim), "the axes after the channels hold the elements")
    return _group_norm("instance_norm", array, channels, weight, bias, eps)


# ---- norms ----------------------------------------------------------------------------------------


@public("normalize")
def normalize(x: Any, p: float = 2.0, axis: int | None = None, eps: float = 1e-12) -> Array:
    """x divided by its p-norm along `axis` (by default 1, or the only one), at least `eps`. torch
    `nn.functional.normalize`.
    """
    array = as_float(x)
    if axis is None:
        axis = 0 if array.ndim == 1 else 1
    return array / maximum(norm(array, p, axis, keepdims=True), eps)


def _euclid_vjp(ct: Array, y: Array, x: Array, axes: tuple[int, ...]) -> list[Array]:
    return [broadcast(ct, x.shape) * _direction(x, y)]


def _euclid_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axes: tuple[int, ...]) -> Array:
    return sum_(tangents[0] * _direction(operands[0], y), axes, keepdims=True)


def _direction(x: Array, y: Array) -> Array:
    """x / y, and 0 if the norm y is 0."""
    is_zero = y == 0
    return where(broadcast(is_zero, x.shape), 0.0, x / broadcast(where(is_zero, 1.0, y), x.shape))


@composite("euclid", vjp=_euclid_vjp, jvp=_euclid_jvp, shift=next_axes, samples=[Sample(((4, 5),), {"axes": (1,)})])
def _euclid(x: Array, *, axes: tuple[int, ...]) -> Array:
    """The root of the sum of squares, which are neither infinite nor 0 by rounding. Source: Blue, 1978."""
    if x.dtype is not f64:
        return cast(sqrt(sum_(square(cast(x, f64)), axes, keepdims=True)), x.dtype)
    total = sum_(square(x), axes, keepdims=True)
    usual, down, up = (constant(number, TensorType(f64)) for number in (1.0, 1e-200, 1e200))
    scale = where(total > 1e-270, where(total < math.inf, usual, down), up)
    return sqrt(sum_(square(x * broadcast(scale, x.shape)), axes, keepdims=True)) / scale


@public("norm", method=True)
def norm(x: Any, ord: Option = 2, axis: Any = None, keepdims: bool = False) -> Array:
    """The `ord`-norm over `axis` (None: all of them, an int or a tuple). NumPy and torch `linalg.norm` of vectors.

    1 sums absolute values, 2 is Euclid's, `inf` and `-inf` are the largest and the smallest absolute value, 0 counts
    the elements that are not 0, any other number p is sum(abs(x)^p)^(1/p). Derivatives follow torch: 0 at 0, ties share
    evenly.
    """
    array = as_float(x)
    if array.dtype.is_complex:
        array = abs_(array)
    ord = 2 if isinstance(ord, str) and ord == "fro" else whole(ord)
    if not is_number(ord):
        raise shape_error(f"norm: ord is a number known while staging, got {ord!r}", hint="1, 2, float('inf')")
    if ord == 0:
        return cast(count_nonzero(array, axis, keepdims), array.dtype)
    if ord == 1:
        return sum_(abs_(array), axis, keepdims)
    if math.isinf(ord):
        return (max_ if ord > 0 else min_)(abs_(array), axis, keepdims)
    if ord == 2:
        axes = axes_of(axis, array.ndim, "norm")
        found = _euclid(array, axes=axes)[0]
        return found if keepdims else squeeze(found, axes)
    size = abs_(array)
    if ord < 1:
        # The derivative of a power below 1 is inf at 0; the value of a negative one, too.
        powers = where(size == 0, 0.0 if ord > 0 else math.inf, where(size == 0, 1.0, size) ** ord)
    else:
        powers = size**ord
    total = sum_(powers, axis, keepdims)
    # At 0 and inf the root's slope may be inf; the norm's own is 0 there. NaN is neither, and goes through.
    edge = (total == 0) | isinf(total)
    return where(edge, stop_gradient(total if ord > 0 else 1.0 / total), where(edge, 1.0, total) ** (1.0 / ord))
