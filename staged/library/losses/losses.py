"""Losses: distances between predictions and targets, written in primitives; with their own derivatives where better.

Every one takes `reduction`: "mean" over all elements (or rows), "sum", or "none" for one loss each. Derivatives compare
labels with a counter: there is no one-hot matrix, and no scatter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staged.errors import ArgumentError
from staged.ir.types import shape_text
from staged.library.elementwise.activations import finite_peak, log_softmax, softplus
from staged.ops.array import Array
from staged.ops.choice import select, stop_gradient, where
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, exp, log, maximum, square
from staged.ops.index import at_labels
from staged.ops.primitive import Sample
from staged.ops.promote import (
    as_array,
    as_float,
    axis_of,
    broadcast,
    broadcast_shapes,
    cast,
    check_argument,
    check_real,
    dtype_error,
    handle,
    is_number,
    shape_error,
    together,
    type_of,
)
from staged.ops.public import public
from staged.ops.reduction import extent_of, mean, sum_
from staged.ops.shape import expand_dims, moveaxis, reshape
from staged.ops.source import full, is_class, zeros_like
from staged.source import here

_REDUCTIONS = ("mean", "sum", "none")
_ROWS = ((4, 5), np.array([0, 4, 2, 2], np.int32))
"""Operands of a sample: a row of logits per label."""


def check_reduction(name: str, reduction: str) -> None:
    """Raise for a reduction that there is not."""
    if reduction not in _REDUCTIONS:
        raise ArgumentError(f'{name}: reduction is "mean", "sum" or "none", got {reduction!r}', where=here())


def reduced(losses: Array, reduction: str) -> Array:
    """The mean or the sum of the losses, or these themselves."""
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
            hint=f"the labels are {shape_text(scores.shape[:-1])} if classes are the last axis; `axis` names another",
        )


def _class_axis(name: str, scores: Array, labels: Array, axis: int | None, is_shares: bool = False) -> int:
    """The axis of the classes. Raise where it is not given, and the last one and torch's, 1, fit the labels alike."""
    if axis is not None:
        return axis
    shape = scores.shape
    if len(shape) > 2 and (is_shares or labels.shape == shape[:-1] == (shape[0], *shape[2:])):
        raise shape_error(
            f"{name}: {labels.type} fit {scores.type} with the classes in axis 1, as torch has them, and in the last",
            scores,
            labels,
            hint="say which: `axis=1` or `axis=-1`",
        )
    return -1


def _classes_last(name: str, scores: Array, axis: int) -> Array:
    """Scores with their classes in the last axis."""
    return moveaxis(scores, axis_of(axis, scores.ndim, name), -1) if axis != -1 else scores


def _picked(scores: Array, labels: Array) -> Array:
    """scores[.., label]; a label out of range stops the program."""
    return reshape(at_labels(scores, expand_dims(labels, -1)), labels.shape)


def _row_cotangent(ct: Array, scores: Array, reduction: str) -> Array:
    """The cotangent of each row's loss, as a column."""
    rows = scores.shape[:-1]
    if reduction == "mean" and rows:
        ct = ct / extent_of(scores, range(len(rows)), scores.dtype)
    return expand_dims(broadcast(ct, rows), -1)


def _probabilities(logits: Array, results: Any) -> Array:
    _, log_sum, peak = results
    return exp(logits - expand_dims(peak, -1) - expand_dims(log_sum, -1))


def _cross_entropy_vjp(cts: Any, results: Any, logits: Array, labels: Array, reduction: str) -> list[Array | None]:
    ct, ct_log_sum, _ = cts
    p = _probabilities(logits, results)
    d_logits = None
    if ct is not None:
        hit = is_class(labels, logits.shape[-1])
        d_logits = (p - cast(hit, logits.dtype)) * _row_cotangent(ct, logits, reduction)
    if ct_log_sum is not None:
        through = p * expand_dims(ct_log_sum, -1)
        d_logits = through if d_logits is None else d_logits + through
    return [d_logits, None]


def _cross_entropy_jvp(tangents: Any, results: Any, operands: Any, reduction: str) -> tuple[Array, Array, Array]:
    t, (logits, labels) = tangents[0], operands
    t_log_sum = sum_(_probabilities(logits, results) * t, -1)
    return reduced(t_log_sum - _picked(t, labels), reduction), t_log_sum, zeros_like(results[2])


@composite(
    "cross_entropy", vjp=_cross_entropy_vjp, jvp=_cross_entropy_jvp, samples=[Sample(_ROWS, {"reduction": "mean"})]
)
def _cross_entropy(logits: Array, labels: Array, *, reduction: str) -> tuple[Array, ...]:
    """The loss; then, by row, log(sum(exp(logits - peak))) and the peak, a constant to derivatives.

    The two are apart, and the peak leaves the picked logit first: a sum with large logits would round off the
    probabilities.
    """
    peak = stop_gradient(finite_peak(logits, (logits.ndim - 1,)))
    log_sum = log(sum_(exp(logits - peak), -1))
    top = reshape(peak, logits.shape[:-1])
    score = _picked(logits, labels) - top
    return reduced(log_sum - score, reduction), log_sum, top


@public("cross_entropy")
def cross_entropy(
    logits: Any,
    labels: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Array:
    """Negative log-likelihood of `labels` under softmax(logits), in nats. torch `nn.functional.cross_entropy`.

    Shapes: logits (N, C) float, or (..., C); labels (N,), or (...), integers, 0 <= label < C, or floats of the shape
    of the logits, a share for each class; weight (C,), a factor for each class. `axis` is that of the classes: the last
    one if it is not given, 1 for images (N, C, H, W), as torch has them; where the shapes allow both, it must be given.
    Returns () of the logits' dtype, or one loss per row for `reduction="none"`. Rows labelled `ignore_index` do not
    count; the mean is over the weights of the others (NaN where there are none). `label_smoothing` spreads that share
    of each label evenly over all classes. Numerics: subtracts each row's maximum first, so large finite logits do not
    overflow. Raises: ShapeError or DTypeError while staging if the operands do not fit together; a label out of range
    stops the program when it runs. Source: Goodfellow, Bengio and Courville, Deep Learning, section 6.2.2.3.
    """
    check_reduction("cross_entropy", reduction)
    given, targets = as_float(logits), as_array(labels)
    is_shares = targets.dtype.is_float and targets.shape == given.shape
    axis = _class_axis("cross_entropy", given, targets, axis, is_shares)
    scores = _classes_last("cross_entropy", given, axis)
    if not is_shares:
        _check_labels("cross_entropy", scores, targets)
    if is_number(label_smoothing) and not 0.0 <= label_smoothing <= 1.0:
        raise shape_error(f"cross_entropy: label_smoothing is between 0 and 1, got {label_smoothing}")
    if is_shares:
        check_argument(ignore_index is None, "cross_entropy: shares of classes have no label that is ignored")
        both = together(handle(logits), handle(labels), name="cross_entropy", floats=True)
        scores, shares = (_classes_last("cross_entropy", each, axis) for each in both)
        return _of_shares(log_softmax(scores), shares, reduction, weight, label_smoothing)
    if weight is None and ignore_index is None and is_number(label_smoothing) and label_smoothing == 0.0:
        return _cross_entropy(scores, targets, reduction=reduction)[0]
    log_probs = log_softmax(scores)
    return _weighted("cross_entropy", log_probs, targets, reduction, weight, ignore_index, label_smoothing)


def _weighted(
    name: str, log_probs: Array, labels: Array, reduction: str, weight: Any, ignored: Any, smoothing: Any
) -> Array:
    """The losses of rows that count differently: by the weight of their class, or not at all."""
    factors = _factors(name, log_probs, weight)
    counts = None if ignored is None else labels != ignored
    known = labels if counts is None else where(counts, labels, 0)
    losses = -_picked(log_probs, known)
    shares = full(labels.shape, 1.0, log_probs.dtype)
    if factors is not None:
        shares = reshape(at_labels(factors, reshape(known, (-1,))), known.shape)
        losses = losses * shares
    if not is_number(smoothing) or smoothing != 0.0:
        spread_out = -sum_(log_probs if factors is None else log_probs * factors, -1) / extent_of(
            log_probs, (log_probs.ndim - 1,), log_probs.dtype
        )
        losses = losses * (1.0 - smoothing) + spread_out * smoothing
    if counts is not None:
        losses, shares = where(counts, losses, 0.0), where(counts, shares, 0.0)
    return sum_(losses) / sum_(shares) if reduction == "mean" else reduced(losses, reduction)


def _factors(name: str, log_probs: Array, weight: Any) -> Array | None:
    """The weights of the classes, where there are any."""
    classes = log_probs.shape[-1]
    if isinstance(weight, str):
        message = f"{name} takes the weight of each class third, got {weight!r}"
        raise ArgumentError(message, where=here(), hint=f"`reduction={weight!r}`")
    if weight is None:
        return None
    factors = as_array(weight, log_probs.dtype)
    if factors.shape != (classes,):
        raise shape_error(f"{name} takes one weight per class, ({classes},), got {factors.type}", log_probs, factors)
    return factors


def _of_shares(log_probs: Array, shares: Array, reduction: str, weight: Any, smoothing: Any) -> Array:
    """The cross entropy of rows of shares; its mean is over the rows, whatever they weigh, as in torch."""
    factors = _factors("cross_entropy", log_probs, weight)
    if not is_number(smoothing) or smoothing != 0.0:
        even = smoothing / extent_of(log_probs, (log_probs.ndim - 1,), log_probs.dtype)
        shares = shares * (1.0 - smoothing) + even
    terms = shares * log_probs
    return reduced(-sum_(terms if factors is None else terms * factors, -1), reduction)


def _nll_vjp(ct: Array, y: Array, log_probs: Array, labels: Array, reduction: str) -> list[Array | None]:
    column = broadcast(_row_cotangent(ct, log_probs, reduction), log_probs.shape)
    return [select(is_class(labels, log_probs.shape[-1]), -column, zeros_like(column)), None]


def _nll_jvp(tangents: Any, y: Array, operands: Any, reduction: str) -> Array:
    return reduced(-_picked(tangents[0], operands[1]), reduction)


@composite("nll_loss", vjp=_nll_vjp, jvp=_nll_jvp, samples=[Sample(_ROWS, {"reduction": "sum"})])
def _nll_loss(log_probs: Array, labels: Array, *, reduction: str) -> Array:
    return reduced(-_picked(log_probs, labels), reduction)


@public("nll_loss")
def nll_loss(
    log_probs: Any,
    labels: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    axis: int | None = None,
) -> Array:
    """Minus the log-probability of each label: (N, C) and (N,) to (). torch `nn.functional.nll_loss`.

    `weight`, `ignore_index` and `axis` as in `cross_entropy`. A label out of range stops the program when it runs.
    """
    check_reduction("nll_loss", reduction)
    given, targets = as_float(log_probs), as_array(labels)
    scores = _classes_last("nll_loss", given, _class_axis("nll_loss", given, targets, axis))
    _check_labels("nll_loss", scores, targets)
    if weight is None and ignore_index is None:
        return _nll_loss(scores, targets, reduction=reduction)[0]
    return _weighted("nll_loss", scores, targets, reduction, weight, ignore_index, 0.0)


def pair_of(name: str, prediction: Any, target: Any) -> tuple[Array, Array]:
    """Both as floats of one dtype; raise where their shapes differ."""
    first, second = handle(prediction), handle(target)
    if type_of(first).shape != type_of(second).shape:
        raise shape_error(
            f"{name} needs a target of the shape of the prediction, got {type_of(first)} and {type_of(second)}",
            first,
            second,
            hint="reshape one of them: broadcasting here is almost always a mistake",
        )
    left, right = together(first, second, name=name, floats=True)
    check_real(name, left, right)
    return left, right


@public("mse_loss")
def mse_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Array:
    """The mean (or sum, or each) of the squared differences. torch `nn.functional.mse_loss`."""
    check_reduction("mse_loss", reduction)
    left, right = pair_of("mse_loss", prediction, target)
    return reduced(square(left - right), reduction)


@public("l1_loss")
def l1_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Array:
    """The mean (or sum, or each) of the absolute differences. torch `nn.functional.l1_loss`."""
    check_reduction("l1_loss", reduction)
    left, right = pair_of("l1_loss", prediction, target)
    return reduced(abs_(left - right), reduction)


@public("huber_loss")
def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Array:
    """Half the squared differences up to `delta`, linear beyond. torch `nn.functional.huber_loss`."""
    check_reduction("huber_loss", reduction)
    check_argument(not is_number(delta) or delta > 0, f"huber_loss: delta is above 0, got {delta}")
    left, right = pair_of("huber_loss", prediction, target)
    size = abs_(left - right)
    return reduced(where(size < delta, 0.5 * square(left - right), delta * (size - 0.5 * delta)), reduction)


@public("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    logits: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Array:
    """Negative log-likelihood of targets in [0, 1] under sigmoid(logits), without overflow. torch's function.

    `weight` is a factor of each loss, `pos_weight` one of what targets of 1 add; both broadcast to the logits. The mean
    is over all elements, whatever they weigh.
    """
    name = "binary_cross_entropy_with_logits"
    check_reduction(name, reduction)
    left, right = pair_of(name, logits, target)
    # Not softplus(left) - left * right, which cancels where a large logit is right.
    positive = None if pos_weight is None else (_factor_of(name, "pos_weight", pos_weight, left) - 1.0) * right + 1.0
    losses = (1.0 - right) * left + (softplus(-left) if positive is None else positive * softplus(-left))
    return reduced(_weighed(name, losses, weight), reduction)


def _factor_of(name: str, what: str, value: Any, losses: Array) -> Array:
    """Factors of the dtype of the losses that broadcast to them."""
    if isinstance(value, str):
        message = f"{name} takes the weight of each loss third, got {value!r}"
        raise ArgumentError(message, where=here(), hint=f"`reduction={value!r}`")
    factors = as_array(value, losses.dtype)
    if broadcast_shapes(factors.shape, losses.shape) != losses.shape:
        raise shape_error(f"{name}: {what} {factors.type} does not broadcast to {losses.type}", factors, losses)
    return factors


def _weighed(name: str, losses: Array, weight: Any) -> Array:
    return losses if weight is None else losses * _factor_of(name, "weight", weight, losses)


@public("smooth_l1_loss")
def smooth_l1_loss(prediction: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> Array:
    """`huber_loss` divided by `beta`: near 0 a parabola, beyond `beta` a line of slope 1. torch's function of this
    name.
    """
    check_reduction("smooth_l1_loss", reduction)
    check_argument(not is_number(beta) or beta >= 0, f"smooth_l1_loss: beta is at least 0, got {beta}")
    left, right = pair_of("smooth_l1_loss", prediction, target)
    size = abs_(left - right)
    if is_number(beta) and beta == 0:
        return reduced(size, reduction)
    return reduced(where(size < beta, 0.5 * square(left - right) / beta, size - 0.5 * beta), reduction)


@public("binary_cross_entropy")
def binary_cross_entropy(probabilities: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Array:
    """Negative log-likelihood of targets in [0, 1] under probabilities; logarithms stop at -100. torch's function.

    `weight` is a factor of each loss, which broadcasts; the mean is over all elements, whatever they weigh.
    `binary_cross_entropy_with_logits` is more accurate where the probabilities come from a sigmoid.
    """
    check_reduction("binary_cross_entropy", reduction)
    left, right = pair_of("binary_cross_entropy", probabilities, target)
    losses = _weighed("binary_cross_entropy", _binary_cross_entropy(left, right)[0], weight)
    return reduced(losses, reduction)


def _log_from(p: Array) -> Array:
    """log(p), -100 where p is 0 or nearly; NaN where p is not a probability."""
    lost = abs_(p) <= math.exp(-100.0)
    return where(lost, -100.0, log(where(lost, 1.0, p)))


def _slope_of_probability(t: Array, y: Array, p: Array, target: Array) -> Array:
    """(p - target) / (p (1 - p)), at most 1e12: torch's bound, with which wrong probabilities can still change."""
    return t * ((p - target) / maximum(p * (1.0 - p), 1e-12))


@composite(
    "binary_cross_entropy",
    slopes=[_slope_of_probability, lambda t, y, p, target: t * (_log_from(1.0 - p) - _log_from(p))],
    samples=[Sample(((4, 5), (4, 5)), low=0.1, high=0.9)],
)
def _binary_cross_entropy(p: Array, target: Array) -> Array:
    return -(target * _log_from(p) + (1.0 - target) * _log_from(1.0 - p))


@public("kl_div")
def kl_div(log_probs: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Array:
    """target * (log(target) - log_probs), of probabilities or (`log_target`) their logarithms. torch
    `functional.kl_div`.

    `reduction="batchmean"` is the divergence itself: the sum over all but the first axis.
    """
    if reduction != "batchmean":
        check_reduction("kl_div", reduction)
    left, right = pair_of("kl_div", log_probs, target)
    if log_target:
        losses = exp(right) * (right - left)
    else:
        # 0 log 0 is 0; the logarithm sees no 0, whose derivative would be NaN.
        losses = right * log(where(right == 0, 1.0, right)) - right * left
    if reduction == "batchmean":
        return sum_(losses) / extent_of(losses, (0,), losses.dtype) if losses.ndim else losses
    return reduced(losses, reduction)
