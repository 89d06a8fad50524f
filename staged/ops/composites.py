"""Activations, normalisations and losses, written in primitives; with their own derivatives where these are better.

The derivatives are written to fuse: elementwise around row sums, a comparison with a counter in place of a one-hot
matrix or a scatter. Residuals that a derivative needs are further results of the composite, dropped if nobody asks.
"""

from __future__ import annotations

import math
from typing import Any

from staged.ir.types import Shape, TensorType, f32, shape_text
from staged.ops.array import Array
from staged.ops.composite import composite
from staged.ops.elementwise import (
    abs_,
    erf,
    exp,
    expm1,
    isfinite,
    log,
    log1p,
    maximum,
    rsqrt,
    select,
    square,
    tanh,
    where,
)
from staged.ops.index import take_along_axis
from staged.ops.promote import (
    as_array,
    axes_of,
    axis_of,
    broadcast,
    cast,
    constant,
    dtype_error,
    is_number,
    promoted,
    public,
    shape_error,
    together,
)
from staged.ops.random import bernoulli
from staged.ops.reduction import extent_of, max_, mean, sum_
from staged.ops.shape import expand_dims, reshape
from staged.ops.source import is_class, zeros_like


def _float(x: Any, name: str) -> Array:
    (array,) = promoted(x, name=name, floats=True)
    return array


# ---- activations ----------------------------------------------------------------------------------


@composite("relu", vjp=lambda ct, y, x: [where(y <= 0, 0.0, ct)])
def _relu(x: Array) -> Array:
    # This way round NaN stays NaN, and the derivative at 0 is 0.
    return where(x <= 0, 0.0, x)


@public("relu")
def relu(x: Any) -> Array:
    """max(x, 0), element by element; NaN stays NaN. Its derivative at 0 is 0, as in torch."""
    array = as_array(x)
    return _relu(array)[0] if array.dtype.is_float else maximum(array, 0)


@public("leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Array:
    """x where x > 0, `negative_slope * x` elsewhere. torch `nn.functional.leaky_relu`."""
    array = _float(x, "leaky_relu")
    return where(array > 0, array, array * negative_slope)


@composite("sigmoid", vjp=lambda ct, y, x: [ct * (y * (1.0 - y))])
def _sigmoid(x: Array) -> Array:
    # exp overflows to inf for very negative x, and 1 / inf is the 0 that is wanted.
    return 1.0 / (exp(-x) + 1.0)


@public("sigmoid")
def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x)), element by element; no overflow for any x."""
    return _sigmoid(_float(x, "sigmoid"))[0]


@public("log_sigmoid")
def log_sigmoid(x: Any) -> Array:
    """log(sigmoid(x)), accurate for any x: -log(1 + exp(-x))."""
    return -softplus(-_float(x, "log_sigmoid"))


@composite("softplus", vjp=lambda ct, y, x: [ct * (1.0 / (exp(-x) + 1.0))])
def _softplus(x: Array) -> Array:
    return log1p(exp(-abs_(x))) + select(x > 0, x, x * 0.0)


@public("softplus")
def softplus(x: Any) -> Array:
    """log(1 + exp(x)), element by element; no overflow for any finite x."""
    return _softplus(_float(x, "softplus"))[0]


def _silu_vjp(ct: Array, y: Array, x: Array) -> list[Array]:
    s = 1.0 / (exp(-x) + 1.0)
    return [ct * (s * (x * (1.0 - s) + 1.0))]


@composite("silu", vjp=_silu_vjp)
def _silu(x: Array) -> Array:
    return x / (exp(-x) + 1.0)


@public("silu")
def silu(x: Any) -> Array:
    """x * sigmoid(x). Source: Elfwing, Uchibe and Doya, 2018 (also known as swish)."""
    return _silu(_float(x, "silu"))[0]


_SQRT_HALF = math.sqrt(0.5)
_NORMAL_PEAK = 1.0 / math.sqrt(2.0 * math.pi)
_GELU_SCALE = math.sqrt(2.0 / math.pi)
_GELU_CUBE = 0.044715


def _gelu_vjp(ct: Array, y: Array, x: Array, approximate: str) -> list[Array]:
    if approximate == "tanh":
        t = tanh(_GELU_SCALE * (x + _GELU_CUBE * (x * square(x))))
        inner = _GELU_SCALE * (3.0 * _GELU_CUBE * square(x) + 1.0)
        return [ct * (0.5 * (t + 1.0) + 0.5 * x * (1.0 - square(t)) * inner)]
    below = 0.5 * (erf(x * _SQRT_HALF) + 1.0)
    return [ct * (below + x * (_NORMAL_PEAK * exp(-0.5 * square(x))))]


@composite("gelu", vjp=_gelu_vjp)
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
    return _gelu(_float(x, "gelu"), approximate=approximate)[0]


@public("elu")
def elu(x: Any, alpha: float = 1.0) -> Array:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere. Source: Clevert, Unterthiner and Hochreiter, 2016."""
    array = _float(x, "elu")
    # The exponential sees no positive x: an inf that is not chosen would still make the gradient NaN.
    return where(array > 0, array, alpha * expm1(where(array > 0, 0.0, array)))


# ---- softmax and its kin --------------------------------------------------------------------------


def _softmax_vjp(ct: Array, y: Array, x: Array, axis: int) -> list[Array]:
    return [y * (ct - sum_(ct * y, axis, keepdims=True))]


@composite("softmax", vjp=_softmax_vjp)
def _softmax(x: Array, *, axis: int) -> Array:
    e = exp(x - max_(x, axis, keepdims=True))
    return e / sum_(e, axis, keepdims=True)


@public("softmax")
def softmax(x: Any, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`. The maximum is subtracted first, so large finite inputs do not overflow."""
    array = _float(x, "softmax")
    return _softmax(array, axis=axis_of(axis, array.ndim, "softmax"))[0]


def _log_softmax_vjp(ct: Array, y: Array, x: Array, axis: int) -> list[Array]:
    return [ct - exp(y) * sum_(ct, axis, keepdims=True)]


@composite("log_softmax", vjp=_log_softmax_vjp)
def _log_softmax(x: Array, *, axis: int) -> Array:
    shifted = x - max_(x, axis, keepdims=True)
    return shifted - log(sum_(exp(shifted), axis, keepdims=True))


@public("log_softmax")
def log_softmax(x: Any, axis: int = -1) -> Array:
    """log(softmax(x)) along `axis`, without taking the logarithm of a rounded-off probability."""
    array = _float(x, "log_softmax")
    return _log_softmax(array, axis=axis_of(axis, array.ndim, "log_softmax"))[0]


def _spread(y: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """A reduced array with extents of 1 where the axes were."""
    return reshape(y, tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)))


def _finite_peak(x: Array, axes: tuple[int, ...]) -> Array:
    """The maximum, or 0 where it is infinite: -inf - -inf would be NaN."""
    peak = max_(x, axes, keepdims=True)
    return where(isfinite(peak), peak, 0.0)


def _logsumexp_vjp(ct: Array, y: Array, x: Array, axes: tuple[int, ...]) -> list[Array]:
    top = _spread(y, x.shape, axes)
    return [_spread(ct, x.shape, axes) * exp(x - where(isfinite(top), top, 0.0))]


@composite("logsumexp", vjp=_logsumexp_vjp)
def _logsumexp(x: Array, *, axes: tuple[int, ...]) -> Array:
    peak = _finite_peak(x, axes)
    return log(sum_(exp(x - peak), axes)) + reshape(peak, tuple(e for a, e in enumerate(x.shape) if a not in axes))


@public("logsumexp")
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over `axis`, without overflow; -inf of nothing but -inf."""
    array = _float(x, "logsumexp")
    axes = axes_of(axis, array.ndim, "logsumexp")
    if not axes:
        return array
    result = _logsumexp(array, axes=axes)[0]
    return _spread(result, array.shape, axes) if keepdims else result


# ---- losses ---------------------------------------------------------------------------------------

_REDUCTIONS = ("mean", "sum", "none")


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise shape_error(f'{name}: reduction is "mean", "sum" or "none", got {reduction!r}')


def _reduced(losses: Array, reduction: str) -> Array:
    if reduction == "mean":
        return mean(losses)
    return sum_(losses) if reduction == "sum" else losses


def _check_labels(name: str, scores: Array, labels: Array) -> None:
    """Raise where (N, C) scores and (N,) integer labels do not belong together."""
    if not labels.dtype.is_integer:
        raise dtype_error(
            f"{name} needs integer labels, got {labels.type}", scores, labels, hint="cast them: `st.astype(y, st.i32)`"
        )
    if scores.ndim < 1 or labels.shape != scores.shape[:-1]:
        raise shape_error(
            f"{name} needs one label per row of scores, got {scores.type} and {labels.type}",
            scores,
            labels,
            hint=f"the labels are {shape_text(scores.shape[:-1])} if classes are the last axis",
        )


def _never_negative(labels: Array, classes: Any) -> Array:
    """Labels for a read that must not wrap: a negative one becomes `classes`, which is out of range, too."""
    if labels.dtype.kind == "u" or not isinstance(classes, int):
        return labels
    return where(labels < 0, constant(classes, TensorType(labels.dtype)), labels)


def _picked(scores: Array, labels: Array) -> Array:
    """scores[.., label]; a label out of range stops the program."""
    column = expand_dims(_never_negative(labels, scores.shape[-1]), -1)
    return reshape(take_along_axis(scores, column, -1), labels.shape)


def _row_cotangent(ct: Array, scores: Array, reduction: str) -> Array:
    """The cotangent of each row's loss, as a column."""
    rows = scores.shape[:-1]
    if reduction == "mean" and rows:
        ct = ct / extent_of(scores, range(len(rows)), scores.dtype)
    return expand_dims(broadcast(ct, rows), -1)


def _cross_entropy_vjp(cts: Any, results: Any, logits: Array, labels: Array, reduction: str) -> list[Array | None]:
    ct, ct_total = cts
    p = exp(logits - expand_dims(results[1], -1))
    d_logits = None
    if ct is not None:
        hit = is_class(labels, logits.shape[-1])
        d_logits = (p - cast(hit, logits.dtype)) * _row_cotangent(ct, logits, reduction)
    if ct_total is not None:
        through = p * expand_dims(ct_total, -1)
        d_logits = through if d_logits is None else d_logits + through
    return [d_logits, None]


@composite("cross_entropy", vjp=_cross_entropy_vjp)
def _cross_entropy(logits: Array, labels: Array, *, reduction: str) -> tuple[Array, ...]:
    axes = (logits.ndim - 1,)
    peak = _finite_peak(logits, axes)
    total = log(sum_(exp(logits - peak), -1)) + reshape(peak, logits.shape[:-1])
    return _reduced(total - _picked(logits, labels), reduction), total


@public("cross_entropy")
def cross_entropy(logits: Any, labels: Any, reduction: str = "mean") -> Array:
    """Negative log-likelihood of `labels` under softmax(logits), in nats. torch `nn.functional.cross_entropy`.

    Shapes: logits (N, C) float, or (..., C); labels (N,), or (...), integers, 0 <= label < C. Returns () of the logits'
    dtype, or one loss per row for `reduction="none"`.
    Numerics: subtracts each row's maximum first, so large finite logits do not overflow.
    Raises: ShapeError or DTypeError while staging where the two do not belong together; a label out of range stops the
    program when it runs.
    Source: Goodfellow, Bengio and Courville, Deep Learning, section 6.2.2.3.
    """
    _check_reduction("cross_entropy", reduction)
    scores, targets = _float(logits, "cross_entropy"), as_array(labels)
    _check_labels("cross_entropy", scores, targets)
    return _cross_entropy(scores, targets, reduction=reduction)[0]


def _nll_vjp(ct: Array, y: Array, log_probs: Array, labels: Array, reduction: str) -> list[Array | None]:
    column = broadcast(_row_cotangent(ct, log_probs, reduction), log_probs.shape)
    return [select(is_class(labels, log_probs.shape[-1]), -column, zeros_like(column)), None]


@composite("nll_loss", vjp=_nll_vjp)
def _nll_loss(log_probs: Array, labels: Array, *, reduction: str) -> Array:
    return _reduced(-_picked(log_probs, labels), reduction)


@public("nll_loss")
def nll_loss(log_probs: Any, labels: Any, reduction: str = "mean") -> Array:
    """Minus the log-probability of each label: (N, C) and (N,) to (). torch `nn.functional.nll_loss`.

    A label out of range stops the program when it runs.
    """
    _check_reduction("nll_loss", reduction)
    scores, targets = _float(log_probs, "nll_loss"), as_array(labels)
    _check_labels("nll_loss", scores, targets)
    return _nll_loss(scores, targets, reduction=reduction)[0]


def _pair_of(name: str, prediction: Any, target: Any) -> tuple[Array, Array]:
    first, second = as_array(prediction), as_array(target)
    if first.shape != second.shape:
        raise shape_error(
            f"{name} needs a target of the shape of the prediction, got {first.type} and {second.type}",
            first,
            second,
            hint="reshape one of them: broadcasting here is almost always a mistake",
        )
    left, right = together(first, second, name=name, floats=True)
    return left, right


@public("mse_loss")
def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Array:
    """The mean (or sum, or each) of the squared differences. torch `nn.functional.mse_loss`."""
    _check_reduction("mse_loss", reduction)
    left, right = _pair_of("mse_loss", prediction, target)
    return _reduced(square(left - right), reduction)


@public("l1_loss")
def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> Array:
    """The mean (or sum, or each) of the absolute differences. torch `nn.functional.l1_loss`."""
    _check_reduction("l1_loss", reduction)
    left, right = _pair_of("l1_loss", prediction, target)
    return _reduced(abs_(left - right), reduction)


@public("huber_loss")
def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Array:
    """Squared differences up to `delta`, straight lines beyond. torch `nn.functional.huber_loss`."""
    _check_reduction("huber_loss", reduction)
    left, right = _pair_of("huber_loss", prediction, target)
    size = abs_(left - right)
    return _reduced(where(size < delta, 0.5 * square(left - right), delta * (size - 0.5 * delta)), reduction)


@public("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(logits: Any, target: Any, reduction: str = "mean") -> Array:
    """Negative log-likelihood of targets in [0, 1] under sigmoid(logits), without overflow. torch's function."""
    _check_reduction("binary_cross_entropy_with_logits", reduction)
    left, right = _pair_of("binary_cross_entropy_with_logits", logits, target)
    return _reduced(softplus(left) - left * right, reduction)


# ---- layer norm -----------------------------------------------------------------------------------


def _layer_norm_vjp(cts: Any, results: Any, x: Array, *affine: Array, axes: Any, eps: float, parts: str) -> list[Any]:
    ct, ct_mean, ct_rstd = cts
    _, centre, scale = results
    kept = tuple(range(axes[0]))
    n = extent_of(x, axes, x.dtype)
    rstd = _spread(scale, x.shape, axes)
    xhat = (x - _spread(centre, x.shape, axes)) * rstd
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
        part = broadcast(_spread(ct_mean / n, x.shape, axes), x.shape)
        d_x = part if d_x is None else d_x + part
    if ct_rstd is not None:
        # rstd = (var + eps)^(-1/2), so its derivative in x is -rstd^3 (x - mean) / n.
        part = -xhat * square(rstd) * _spread(ct_rstd / n, x.shape, axes)
        d_x = part if d_x is None else d_x + part
    return [d_x, *d_affine]


@composite("layer_norm", vjp=_layer_norm_vjp)
def _layer_norm(x: Array, *affine: Array, axes: Any, eps: float, parts: str) -> tuple[Array, ...]:
    centre = mean(x, axes)
    centred = x - _spread(centre, x.shape, axes)
    rstd = rsqrt(mean(square(centred), axes) + eps)
    y = centred * _spread(rstd, x.shape, axes)
    if "w" in parts:
        y = y * affine[0]
    if "b" in parts:
        y = y + affine[-1]
    return y, centre, rstd


@public("layer_norm")
def layer_norm(
    x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes. torch `nn.functional.layer_norm`.

    Shapes: x (..., *normalized_shape); weight and bias normalized_shape; by default the last axis alone.
    Source: Ba, Kiros and Hinton, Layer normalization, 2016.
    """
    array = _float(x, "layer_norm")
    if normalized_shape is None:
        normalized_shape = array.shape[-1:]
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or array.shape[array.ndim - len(shape) :] != shape:
        raise shape_error(
            f"layer_norm over {shape_text(shape)} does not fit {array.type}",
            array,
            hint="normalized_shape is the shape of the last axes of x",
        )
    axes = tuple(range(array.ndim - len(shape), array.ndim))
    affine, parts = [], ""
    for letter, what, value in (("w", "weight", weight), ("b", "bias", bias)):
        if value is None:
            continue
        part = as_array(value)
        if part.shape != shape:
            raise shape_error(f"layer_norm: the {what} is {shape_text(shape)}, got {part.type}", array, part)
        affine.append(cast(part, array.dtype))
        parts += letter
    return _layer_norm(array, *affine, axes=axes, eps=eps, parts=parts)[0]


# ---- dropout --------------------------------------------------------------------------------------


@public("dropout")
def dropout(x: Any, p: Any = 0.5, training: Any = True) -> Array:
    """In training, zero each element with probability `p` and scale the others by 1 / (1 - p); else x as it is.

    `training` may be a staged bool: then both are in the program. The mask comes from the program's counter-based
    generator. Source: Srivastava et al., Dropout, 2014.
    """
    array = _float(x, "dropout")
    if is_number(p) and not 0 <= p <= 1:
        raise shape_error(f"dropout: a probability is between 0 and 1, got {p}")
    if (is_number(training) and not training) or (is_number(p) and p == 0):
        return array
    if is_number(p) and p == 1:
        dropped = zeros_like(array)
    else:
        keep = bernoulli(1.0 - cast(p, f32) if isinstance(p, Array) else 1.0 - p, array.shape)
        scale = 1.0 / (1.0 - p)
        dropped = select(keep, array * scale, zeros_like(array))
    return dropped if is_number(training) else where(training, dropped, array)


# ---- small helpers --------------------------------------------------------------------------------


@public("normalize")
def normalize(x: Any, axis: int = -1, eps: float = 1e-12) -> Array:
    """x divided by its 2-norm along `axis`, at least `eps`. torch `nn.functional.normalize`."""
    array = _float(x, "normalize")
    return array / maximum(norm(array, axis, keepdims=True), eps)


@public("norm")
def norm(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The 2-norm over `axis` (None: all of them); its derivative at 0 is 0."""
    array = _float(x, "norm")
    total = sum_(square(array), axis, keepdims)
    # The square root sees no 0: its derivative there is inf, and inf * 0 would be NaN.
    safe = where(total > 0, total, 1.0)
    return where(total > 0, safe**0.5, total)
