"""Activations, softmax and dropout, written in primitives; with their own derivatives where these are better.

The derivatives are written to fuse: elementwise around row sums. Residuals that a derivative needs are further results
of the composite, dropped if unused. Losses and normalisations are in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from staged.ir.types import Shape, f32
from staged.library.draws.random import bernoulli, check_parameters
from staged.ops.array import Array
from staged.ops.choice import select, where
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, erf, exp, expm1, isfinite, log, log1p, maximum, sign, square, tanh
from staged.ops.primitive import Sample, next_axes, next_axis
from staged.ops.promote import (
    as_array,
    as_float,
    axes_of,
    axis_of,
    cast,
    check_dtype,
    check_real,
    is_number,
    shape_error,
)
from staged.ops.public import Option, public
from staged.ops.reduction import peak, sum_
from staged.ops.shape import reshape, slice_axis
from staged.ops.source import zeros_like

# ---- activations ----------------------------------------------------------------------------------


@composite("relu", slopes=[lambda t, y, x: where(y <= 0, 0.0, t)], harmless=True, samples=[Sample(((4, 5),))])
def _relu(x: Array) -> Array:
    # This way round NaN stays NaN, and the derivative at 0 is 0.
    return where(x <= 0, 0.0, x)


@public("relu", method=True)
def relu(x: Any) -> Array:
    """max(x, 0), element by element; NaN stays NaN. Its derivative at 0 is 0, as in torch."""
    array = as_array(x)
    return _relu(array)[0] if array.dtype.is_float else maximum(array, 0)


@public("leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Array:
    """x where x > 0, `negative_slope * x` elsewhere. torch `nn.functional.leaky_relu`."""
    array = as_float(x)
    return where(array > 0, array, array * negative_slope)


@composite("sigmoid", slopes=[lambda t, y, x: t * (y * (1.0 - y))], harmless=True, samples=[Sample(((4, 5),))])
def _sigmoid(x: Array) -> Array:
    # exp overflows to inf for very negative x, and 1 / inf is the 0 that is wanted.
    return 1.0 / (exp(-x) + 1.0)


@public("sigmoid", method=True)
def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x)), element by element; no overflow for any x."""
    return _sigmoid(as_float(x))[0]


@public("log_sigmoid")
def log_sigmoid(x: Any) -> Array:
    """log(sigmoid(x)), accurate for any x: -log(1 + exp(-x))."""
    return -softplus(-as_float(x))


@composite("softplus", slopes=[lambda t, y, x: t * sigmoid(x)], harmless=True, samples=[Sample(((4, 5),))])
def _softplus(x: Array) -> Array:
    return log1p(exp(-abs_(x))) + where(x > 0, x, 0.0)


@public("softplus")
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta x)) / beta, element by element; no overflow for any finite x. torch `nn.functional.softplus`.

    Where beta x is above `threshold` it is x itself, which at 20 is all but exact.
    """
    array = as_float(x)
    scaled = array if is_number(beta) and beta == 1.0 else array * beta
    found = _softplus(scaled)[0]
    found = found if scaled is array else found / beta
    return found if is_number(threshold) and threshold == 20.0 else where(scaled > threshold, array, found)


def _silu_slope(t: Array, y: Array, x: Array) -> Array:
    s = sigmoid(x)
    return t * (s * (x * (1.0 - s) + 1.0))


@composite("silu", slopes=[_silu_slope], samples=[Sample(((4, 5),))])
def _silu(x: Array) -> Array:
    return x / (exp(-x) + 1.0)


@public("silu")
def silu(x: Any) -> Array:
    """x * sigmoid(x). Source: Elfwing, Uchibe and Doya, 2018 (also known as swish)."""
    return _silu(as_float(x))[0]


_SQRT_HALF = math.sqrt(0.5)
_NORMAL_PEAK = 1.0 / math.sqrt(2.0 * math.pi)
_GELU_SCALE = math.sqrt(2.0 / math.pi)
_GELU_CUBE = 0.044715


def _gelu_slope(t: Array, y: Array, x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        curve = tanh(_GELU_SCALE * (x + _GELU_CUBE * (x * square(x))))
        inner = _GELU_SCALE * (3.0 * _GELU_CUBE * square(x) + 1.0)
        return t * (0.5 * (curve + 1.0) + 0.5 * x * (1.0 - square(curve)) * inner)
    below = 0.5 * (erf(x * _SQRT_HALF) + 1.0)
    return t * (below + x * (_NORMAL_PEAK * exp(-0.5 * square(x))))


@composite("gelu", slopes=[_gelu_slope], samples=[Sample(((4, 5),), {"approximate": way}) for way in ("none", "tanh")])
def _gelu(x: Array, *, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (tanh(_GELU_SCALE * (x + _GELU_CUBE * (x * square(x)))) + 1.0)
    return 0.5 * x * (erf(x * _SQRT_HALF) + 1.0)


@public("gelu")
def gelu(x: Any, approximate: str = "none") -> Array:
    """x times the normal distribution's probability below x; `approximate="tanh"` uses the tanh formula.

    Source: Hendrycks and Gimpel, Gaussian error linear units, 2016.
    """
    if approximate not in ("none", "tanh"):
        raise shape_error(f'gelu: approximate is "none" or "tanh", got {approximate!r}')
    return _gelu(as_float(x), approximate=approximate)[0]


@public("elu")
def elu(x: Any, alpha: float = 1.0) -> Array:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere. Source: Clevert, Unterthiner and Hochreiter, 2016."""
    array = as_float(x)
    # The exponential sees no positive x: an inf that is not chosen would still make the gradient NaN.
    return where(array > 0, array, alpha * expm1(where(array > 0, 0.0, array)))


def _between(x: Array, low: float, high: float, below: Any, above: Any, inside: Array) -> Array:
    """`inside` where low < x < high; NaN stays NaN."""
    return where(x <= low, below, where(x >= high, above, inside))


@public("hardtanh")
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """`x` kept within [min_val, max_val]; at a bound the gradient is 0, as in torch `nn.functional.hardtanh`."""
    array = as_float(x)
    return _between(array, min_val, max_val, min_val, max_val, array)


@public("relu6")
def relu6(x: Any) -> Array:
    """min(max(x, 0), 6). torch `nn.functional.relu6`."""
    return hardtanh(x, 0.0, 6.0)


@public("hardsigmoid")
def hardsigmoid(x: Any) -> Array:
    """x / 6 + 1 / 2, kept within [0, 1]. torch `nn.functional.hardsigmoid`."""
    array = as_float(x)
    return _between(array, -3.0, 3.0, 0.0, 1.0, array * (1.0 / 6.0) + 0.5)


@public("hardswish")
def hardswish(x: Any) -> Array:
    """x * hardsigmoid(x). Source: Howard et al., MobileNetV3, 2019."""
    array = as_float(x)
    return _between(array, -3.0, 3.0, 0.0, array, array * (array + 3.0) * (1.0 / 6.0))


@public("mish")
def mish(x: Any) -> Array:
    """x * tanh(softplus(x)). Source: Misra, 2019."""
    array = as_float(x)
    return array * tanh(softplus(array))


@public("celu")
def celu(x: Any, alpha: float = 1.0) -> Array:
    """x where x > 0, alpha * (exp(x / alpha) - 1) elsewhere. Source: Barron, 2017."""
    array = as_float(x)
    return where(array > 0, array, alpha * expm1(where(array > 0, 0.0, array) * (1.0 / alpha)))


@public("selu")
def selu(x: Any) -> Array:
    """scale * elu(x, alpha), with the constants that keep mean 0 and variance 1. Source: Klambauer et al., 2017."""
    return elu(x, 1.6732632423543772) * 1.0507009873554805


def _softsign_slope(t: Array, y: Array, x: Array) -> Array:
    size = abs_(x) + 1.0
    return t / size / size


@composite("softsign", slopes=[_softsign_slope], harmless=True, samples=[Sample(((4, 5),))])
def _softsign(x: Array) -> Array:
    return x / (abs_(x) + 1.0)


@public("softsign")
def softsign(x: Any) -> Array:
    """x / (1 + |x|). torch `nn.functional.softsign`."""
    array = as_float(x)
    return array / (abs_(array) + 1.0) if array.dtype.is_complex else _softsign(array)[0]


@composite(
    "tanhshrink",
    slopes=[lambda t, y, x: t * square(tanh(x))],
    takes_complex=True,
    harmless=True,
    samples=[Sample(((4, 5),))],
)
def _tanhshrink(x: Array) -> Array:
    return x - tanh(x)


@public("tanhshrink")
def tanhshrink(x: Any) -> Array:
    """x - tanh(x). torch `nn.functional.tanhshrink`."""
    return _tanhshrink(as_float(x))[0]


@public("hardshrink")
def hardshrink(x: Any, lambd: float = 0.5) -> Array:
    """x, but 0 where |x| <= `lambd`. torch `nn.functional.hardshrink`."""
    array = as_float(x)
    check_real("hardshrink", array)
    return where(abs_(array) <= lambd, 0.0, array)


@public("softshrink")
def softshrink(x: Any, lambd: float = 0.5) -> Array:
    """x moved towards 0 by `lambd`, 0 where |x| <= `lambd`. torch `nn.functional.softshrink`."""
    array = as_float(x)
    check_real("softshrink", array)
    return where(abs_(array) <= lambd, 0.0, array - sign(array) * lambd)


@public("threshold")
def threshold(x: Any, threshold: float, value: float) -> Array:
    """x where x > `threshold`, `value` elsewhere; NaN stays NaN. torch `nn.functional.threshold`."""
    array = as_array(x)
    return where(array <= threshold, value, array)


@public("glu")
def glu(x: Any, axis: int = -1) -> Array:
    """a * sigmoid(b), of the two halves a and b of `x` along `axis`. Source: Dauphin et al., 2017."""
    array = as_float(x)
    along = axis_of(axis, array.ndim, "glu")
    extent = array.shape[along]
    if extent % 2 != 0:
        raise shape_error(f"glu halves axis {axis}, got {array.type}", array, hint="its extent is an even number")
    half = extent // 2
    return slice_axis(array, along, 0, half) * sigmoid(slice_axis(array, along, half, extent))


# ---- softmax and its kin --------------------------------------------------------------------------


def _softmax_vjp(ct: Array, y: Array, x: Array, axis: int) -> list[Array]:
    return [y * (ct - sum_(ct * y, axis, keepdims=True))]


# Its Jacobian is symmetric.
@composite(
    "softmax",
    vjp=_softmax_vjp,
    jvp=lambda ts, y, xs, axis: _softmax_vjp(ts[0], y, xs[0], axis)[0],
    shift=next_axis,
    samples=[Sample(((4, 5),), {"axis": 1})],
)
def _softmax(x: Array, *, axis: int) -> Array:
    e = exp(x - peak(x, (axis,)))
    return e / sum_(e, axis, keepdims=True)


@public("softmax", method=True)
def softmax(x: Any, axis: int = -1, *, dtype: Any = None) -> Array:
    """exp(x) / sum(exp(x)) along `axis`. The maximum is subtracted first, so large finite inputs do not overflow.

    `x` is cast to `dtype` first, where that is given. A single number counts as a row of one, as in torch.
    """
    return _of_rows(_softmax, "softmax", x, axis, dtype)


@public("softmin")
def softmin(x: Any, axis: int = -1, *, dtype: Any = None) -> Array:
    """softmax(-x) along `axis`. torch `nn.functional.softmin`."""
    return softmax(-as_float(x), axis, dtype=dtype)


def _of_rows(op: Any, name: str, x: Any, axis: int, dtype: Any) -> Array:
    array = as_float(x) if dtype is None else cast(as_array(x), check_dtype(dtype))
    if not array.ndim and axis in (0, -1):
        return reshape(op(reshape(array, (1,)), axis=0)[0], ())
    result: Array = op(array, axis=axis_of(axis, array.ndim, name))[0]
    return result


def _log_softmax_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], axis: int) -> Array:
    t: Array = tangents[0]
    return t - sum_(exp(y) * t, axis, keepdims=True)


@composite(
    "log_softmax",
    vjp=lambda ct, y, x, axis: [ct - exp(y) * sum_(ct, axis, keepdims=True)],
    jvp=_log_softmax_jvp,
    shift=next_axis,
    samples=[Sample(((4, 5),), {"axis": 0})],
)
def _log_softmax(x: Array, *, axis: int) -> Array:
    shifted = x - peak(x, (axis,))
    return shifted - log(sum_(exp(shifted), axis, keepdims=True))


@public("log_softmax", method=True)
def log_softmax(x: Any, axis: int = -1, *, dtype: Any = None) -> Array:
    """log(softmax(x)) along `axis`, without taking the logarithm of a rounded-off probability."""
    return _of_rows(_log_softmax, "log_softmax", x, axis, dtype)


def spread(y: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """A reduced array with extents of 1 where the axes were."""
    return reshape(y, tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)))


def finite_peak(x: Array, axes: tuple[int, ...]) -> Array:
    """The maximum, or 0 where it is infinite: -inf - -inf would be NaN."""
    top = peak(x, axes)
    shift = where(isfinite(top), top, 0.0)
    return shift


def _shares(y: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """The share of each element in the sum of exponentials; 0 if all are -inf."""
    top = spread(y, x.shape, axes)
    terms = exp(x - where(top == -math.inf, 0.0, top))
    total = spread(sum_(terms, axes), x.shape, axes)  # not 1: y is rounded, by more than 1 if it is large
    return terms / where(total == 0.0, 1.0, total)


@composite(
    "logsumexp",
    vjp=lambda ct, y, x, axes: [spread(ct, x.shape, axes) * _shares(y, x, axes)],
    jvp=lambda tangents, y, operands, axes: sum_(tangents[0] * _shares(y, operands[0], axes), axes),
    shift=next_axes,
    samples=[Sample(((4, 5),), {"axes": (0,)})],
)
def _logsumexp(x: Array, *, axes: tuple[int, ...]) -> Array:
    top = finite_peak(x, axes)
    return log(sum_(exp(x - top), axes)) + reshape(top, tuple(e for a, e in enumerate(x.shape) if a not in axes))


@public("logsumexp", method=True)
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over `axis`, without overflow; -inf if all elements are -inf."""
    array = as_float(x)
    axes = axes_of(axis, array.ndim, "logsumexp")
    if not axes and not array.dtype.is_complex:
        return array
    result = _logsumexp(array, axes=axes)[0]
    return spread(result, array.shape, axes) if keepdims else result


# ---- dropout --------------------------------------------------------------------------------------


@public("dropout")
def dropout(
    x: Any, p: Option = 0.5, training: Option = True, *, generator: Any = None, shard: int | None = None
) -> Array:
    """In training, zero each element with probability `p` and scale the others by 1 / (1 - p); else x as it is.

    `training` may be a staged bool: then both are in the program. The mask comes from `generator`, by default
    that of the thread. With `shard`, an axis of the local array `x`, the ranks share a mask along that axis. Rows of
    sharded `st.batches` do not need it. Source: Srivastava et al., Dropout, 2014.
    """
    array = as_float(x)
    if is_number(p) and not 0 <= p <= 1:
        raise shape_error(f"dropout: a probability is between 0 and 1, got {p}")
    if (is_number(training) and not training) or (is_number(p) and p == 0):
        return array
    if is_number(p) and p == 1:
        dropped = zeros_like(array)
    else:
        check_parameters(lambda p: (p >= 0) & (p <= 1), "dropout: a probability is between 0 and 1", p)
        keep = bernoulli(
            1.0 - cast(p, f32) if isinstance(p, Array) else 1.0 - p, array.shape, generator=generator, shard=shard
        )
        scale = cast(1.0 / (1.0 - p), array.dtype) if isinstance(p, Array) else 1.0 / (1.0 - p)
        dropped = select(keep, array * scale, zeros_like(array))
    return dropped if is_number(training) else where(training, dropped, array)
