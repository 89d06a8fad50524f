"""Functions of networks that treat each channel, or pairs of features, apart: slopes, dropped channels, neighbours."""

from __future__ import annotations

import math
from typing import Any

from staged.library.draws.random import bernoulli, shared_axis, uniform
from staged.ops.array import Array
from staged.ops.choice import select, where
from staged.ops.contraction import matmul
from staged.ops.elementwise import pow_, square
from staged.ops.promote import (
    as_array,
    as_float,
    broadcast,
    cast,
    check_argument,
    check_known,
    check_real,
    is_number,
    promoted,
    shape_error,
    whole,
)
from staged.ops.public import Option, public
from staged.ops.reduction import sum_
from staged.ops.shape import expand_dims, pad, reshape, slice_axis, swapaxes
from staged.ops.source import zeros_like


@public("prelu")
def prelu(x: Any, weight: Any) -> Array:
    """x where x > 0, `weight * x` elsewhere, of one weight or one for each channel (axis 1). torch's function.

    Source: He et al., Delving deep into rectifiers, 2015.
    """
    array, slope = promoted(x, weight, floats=True)
    if slope.ndim > 1 or (slope.ndim and slope.shape[0] != 1 and (array.ndim < 2 or slope.shape[0] != array.shape[1])):
        raise shape_error(
            f"prelu needs one weight, or one for each channel of {array.type}, got {slope.type}", array, slope
        )
    if slope.ndim and slope.shape[0] != 1:
        slope = reshape(slope, (-1, *[1] * (array.ndim - 2)))
    elif slope.ndim:
        slope = reshape(slope, ())
    return where(array > 0, array, array * slope)


@public("rrelu")
def rrelu(
    x: Any,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    *,
    generator: Any = None,
) -> Array:
    """x where x > 0, elsewhere x times a slope: in training drawn from U(lower, upper), else their mean.

    torch `nn.functional.rrelu`. Source: Xu et al., Empirical evaluation of rectified activations, 2015.
    """
    array = as_float(x)
    check_argument(lower <= upper, f"rrelu: lower is at most upper, got {lower}, {upper}")
    slope: Any = 0.5 * (lower + upper)
    if training:
        slope = uniform(array.shape, low=lower, high=upper, dtype=array.dtype, generator=generator)
    return where(array > 0, array, array * slope)


@public("local_response_norm")
def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Array:
    """x / (k + alpha * m)^beta, of the mean m of squares over `size` neighbouring channels (axis 1), zeros beyond them.

    torch `nn.functional.local_response_norm`. Source: Krizhevsky, Sutskever and Hinton, 2012.
    """
    array = as_float(x)
    check_real("local_response_norm", array)
    size = whole(size)
    check_argument(isinstance(size, int) and size > 0, f"local_response_norm: size is an int above 0, got {size!r}")
    if array.ndim < 3:
        raise shape_error(f"local_response_norm needs an input of (N, C, ..), got {array.type}", array)
    around = [(0, 0), (size // 2, (size - 1) // 2), *[(0, 0)] * (array.ndim - 2)]
    wide, channels = pad(square(array), around), array.shape[1]
    total = slice_axis(wide, 1, 0, channels)
    for place in range(1, size):
        total = total + slice_axis(wide, 1, place, place + channels)
    return array / pow_(total * (alpha / size) + k, beta)


@public("bilinear")
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None) -> Array:
    """y[.., o] = sum over i, j of x1[.., i] * weight[o, i, j] * x2[.., j], and the bias. torch's function.

    Shapes: x1 (.., I), x2 (.., J), weight (O, I, J), bias (O,); result (.., O).
    """
    a, b, w = promoted(x1, x2, weight, floats=True)
    if w.ndim != 3 or not a.ndim or a.shape[:-1] != b.shape[:-1] or (a.shape[-1], b.shape[-1]) != w.shape[1:]:
        raise shape_error(f"bilinear does not fit {a.type}, {b.type} and a weight {w.type}", a, b, w)
    outputs, left, right = w.shape
    flat, other = reshape(a, (-1, left)), reshape(b, (-1, right))
    # One product of matrices, with the outputs beside x2's features: (rows, I) @ (I, O * J).
    beside = matmul(flat, reshape(swapaxes(w, 0, 1), (left, -1)))
    y = sum_(reshape(beside, (-1, outputs, right)) * expand_dims(other, 1), -1)
    y = reshape(y, (*a.shape[:-1], outputs))
    return y if bias is None else y + cast(as_array(bias), y.dtype)


# ---- dropped channels -----------------------------------------------------------------------------


def _channel_dropout(
    name: str, x: Any, p: Any, training: Any, ranks: tuple[int, int], generator: Any, shard: int | None
) -> Array:
    array = as_float(x)
    _check_probability(name, p)
    if array.ndim not in ranks:
        raise shape_error(f"{name} needs an input of {ranks[1]} axes, or {ranks[0]} without a batch, got {array.type}")
    # torch takes three axes for (N, C, L) in two dimensions, and counts no batch in the others.
    lead = 2 if array.ndim == ranks[1] or name == "dropout2d" else 1
    return _dropped(name, array, p, training, lead, generator, shard)


def _dropped(name: str, array: Array, p: Any, training: Any, lead: int, generator: Any, shard: int | None) -> Array:
    if (is_number(training) and not training) or p == 0:
        return array
    if p == 1:
        return zeros_like(array)
    keep = _kept(name, array, p, lead, generator, shard)
    scaled = array * cast(keep, array.dtype) * (1.0 / (1.0 - p))
    return scaled if is_number(training) else where(training, scaled, array)


def _kept(name: str, array: Array, p: Any, lead: int, generator: Any, shard: int | None) -> Array:
    """A mask of one bool for all elements behind the first `lead` axes, of which ranks may share one."""
    axis = shared_axis(name, shard, array.ndim)
    if axis is not None and axis >= lead:
        raise shape_error(f"{name}: ranks share an axis of rows or channels, got `shard={shard}`", hint="`shard=0`")
    return bernoulli(1.0 - p, (*array.shape[:lead], *[1] * (array.ndim - lead)), generator=generator, shard=axis)


def _check_probability(name: str, p: Any) -> None:
    check_known(name, "p", p)
    check_argument(0 <= p <= 1, f"{name}: a probability is between 0 and 1, got {p}")


@public("dropout1d")
def dropout1d(
    x: Any, p: float = 0.5, training: Option = True, *, generator: Any = None, shard: int | None = None
) -> Array:
    """In training, zero each channel of (N, C, L) or (C, L) with probability `p`; scale the others by 1 / (1 - p).

    `shard` is that of `dropout`, for rows or channels. torch `nn.functional.dropout1d`.
    Source: Tompson et al., Efficient object localization, 2015.
    """
    return _channel_dropout("dropout1d", x, p, training, (2, 3), generator, shard)


@public("dropout2d")
def dropout2d(
    x: Any, p: float = 0.5, training: Option = True, *, generator: Any = None, shard: int | None = None
) -> Array:
    """In training, zero each channel of (N, C, H, W) or (N, C, L) with probability `p`; see `dropout1d`."""
    return _channel_dropout("dropout2d", x, p, training, (3, 4), generator, shard)


@public("dropout3d")
def dropout3d(
    x: Any, p: float = 0.5, training: Option = True, *, generator: Any = None, shard: int | None = None
) -> Array:
    """In training, zero each channel of (N, C, D, H, W) or (C, D, H, W) with probability `p`; see `dropout1d`."""
    return _channel_dropout("dropout3d", x, p, training, (4, 5), generator, shard)


_SATURATION = -1.7580993408473766
"""-scale * alpha of SELU: its limit far below 0."""


def _alpha_dropped(
    name: str, x: Any, p: Any, training: Any, lead: int | None, generator: Any, shard: int | None
) -> Array:
    array = as_float(x)
    _check_probability(name, p)
    if lead is not None and array.ndim < lead:
        raise shape_error(f"{name} needs an input of (N, C, ..), got {array.type}", array)
    if not training or p == 0:
        return array
    if p == 1:
        return zeros_like(array)
    keep = _kept(name, array, p, array.ndim if lead is None else lead, generator, shard)
    scale = 1.0 / math.sqrt((_SATURATION**2 * p + 1.0) * (1.0 - p))
    kept = array * scale - _SATURATION * p * scale
    return select(
        broadcast(keep, array.shape),
        kept,
        zeros_like(array) + _SATURATION * scale * (1.0 - p),
    )


@public("alpha_dropout")
def alpha_dropout(
    x: Any, p: float = 0.5, training: bool = False, *, generator: Any = None, shard: int | None = None
) -> Array:
    """Dropout that keeps mean 0 and variance 1 behind SELU: what is dropped gets SELU's limit. torch's function.

    `shard` is that of `dropout`. Source: Klambauer et al., Self-normalizing neural networks, 2017.
    """
    return _alpha_dropped("alpha_dropout", x, p, training, None, generator, shard)


@public("feature_alpha_dropout")
def feature_alpha_dropout(
    x: Any, p: float = 0.5, training: bool = False, *, generator: Any = None, shard: int | None = None
) -> Array:
    """`alpha_dropout` of whole channels of (N, C, ..). torch `nn.functional.feature_alpha_dropout`.

    `shard` is that of `dropout`, for rows or channels.
    """
    return _alpha_dropped("feature_alpha_dropout", x, p, training, 2, generator, shard)
