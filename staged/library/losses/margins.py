"""Distances between vectors, and losses that push them, or scores of classes, apart by a margin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from staged.library.elementwise.activations import log_sigmoid, softplus
from staged.library.elementwise.normalization import norm
from staged.library.losses.losses import check_reduction, pair_of, reduced
from staged.library.statistics.cumulative import cumprod
from staged.ops.array import Array
from staged.ops.choice import stop_gradient, where
from staged.ops.elementwise import exp, log, maximum, minimum, sqrt, square
from staged.ops.index import at_labels, take
from staged.ops.promote import (
    as_array,
    as_float,
    cast,
    check_argument,
    check_real,
    dtype_error,
    promoted,
    shape_error,
)
from staged.ops.public import public
from staged.ops.reduction import any_, mean, sum_
from staged.ops.shape import broadcast_arrays, expand_dims, reshape
from staged.ops.source import is_class


def positive_part(x: Array) -> Array:
    """max(x, 0) with slope 1 at 0, as torch's `clamp_min` has; NaN stays NaN."""
    return where(x < 0, 0.0, x)


# ---- distances ------------------------------------------------------------------------------------


@public("cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Array:
    """The cosine of the angle between vectors along `axis`; a norm counts as at least `eps`. torch's function.

    The arrays are broadcast first: the axis is one of both.
    """
    a, b = broadcast_arrays(*promoted(x1, x2, floats=True))
    check_real("cosine_similarity", a, b)
    lengths = [maximum(norm(each, axis=axis, keepdims=True), eps) for each in (a, b)]
    return sum_((a / lengths[0]) * (b / lengths[1]), axis)


@public("pairwise_distance")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Array:
    """The p-norm of x1 - x2 + eps over the last axis. torch `nn.functional.pairwise_distance`."""
    a, b = promoted(x1, x2, floats=True)
    return norm(a - b + eps, ord=p, axis=-1, keepdims=keepdims)


@public("cdist")
def cdist(x1: Any, x2: Any, p: float = 2.0) -> Array:
    """The p-norms of the differences of each row of x1 and each row of x2. torch `cdist`.

    Shapes: x1 (..., n, k), x2 (..., m, k); the result is (..., n, m).
    """
    a, b = promoted(x1, x2, floats=True)
    if a.ndim < 2 or b.ndim < 2:
        raise shape_error(
            f"cdist: operands must have at least 2 axes, got {a.type} and {b.type}", hint="write `x[None]` for one row"
        )
    return norm(expand_dims(a, -2) - expand_dims(b, -3), ord=p, axis=-1)


# ---- of two, or three -----------------------------------------------------------------------------


@public("margin_ranking_loss")
def margin_ranking_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, *, reduction: str = "mean") -> Array:
    """max(0, -target * (x1 - x2) + margin): with target 1 the first is to be the larger. torch's function."""
    check_reduction("margin_ranking_loss", reduction)
    a, b, sign = promoted(x1, x2, target, floats=True)
    return reduced(positive_part(-sign * (a - b) + margin), reduction)


@public("hinge_embedding_loss")
def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, *, reduction: str = "mean") -> Array:
    """x where the target is 1, max(0, margin - x) where it is -1. torch `nn.functional.hinge_embedding_loss`."""
    check_reduction("hinge_embedding_loss", reduction)
    distance, sign = as_float(x), as_array(target)
    far, near = where(sign == 1, 0.0, positive_part(margin - distance)), where(sign == -1, 0.0, distance)
    return reduced(far + near, reduction)


@public("cosine_embedding_loss")
def cosine_embedding_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, *, reduction: str = "mean") -> Array:
    """1 - cos(x1, x2) where the target is 1, max(0, cos - margin) where it is -1. torch's function of this name.

    Shapes: x1 and x2 (N, D), target (N,); or (D,) and ().
    """
    check_reduction("cosine_embedding_loss", reduction)
    a, b = promoted(x1, x2, floats=True)
    sign = as_array(target)
    if a.ndim not in (1, 2) or a.shape != b.shape or sign.shape != a.shape[:-1]:
        raise shape_error(
            f"cosine_embedding_loss takes (N, D), (N, D) and (N,), got {a.type}, {b.type} and {sign.type}", a, b, sign
        )
    tiny = 1e-12
    cosine = sum_(a * b, -1) / sqrt((sum_(square(a), -1) + tiny) * (sum_(square(b), -1) + tiny))
    near, far = where(sign == 1, 1.0 - cosine, 0.0), where(sign == -1, positive_part(cosine - margin), 0.0)
    return reduced(near + far, reduction)


@public("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Array:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), of p-norms over the last axis. torch's function.

    With `swap` the negative's distance is that from the nearer one of anchor and positive. Source: Balntas et al.,
    Learning local feature descriptors with triplets and shallow convolutional neural networks, 2016.
    """

    def distance(a: Any, b: Any) -> Array:
        return pairwise_distance(a, b, p, eps)

    return _triplet("triplet_margin_loss", anchor, positive, negative, distance, margin, swap, reduction)


@public("triplet_margin_with_distance_loss")
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    """`triplet_margin_loss` with any function of two arrays as the distance. torch's function of this name."""
    name = "triplet_margin_with_distance_loss"
    return _triplet(name, anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction)


def _triplet(
    name: str,
    anchor: Any,
    positive: Any,
    negative: Any,
    distance: Callable[[Any, Any], Any],
    margin: float,
    swap: bool,
    reduction: str,
) -> Array:
    check_reduction(name, reduction)
    check_argument(margin > 0, f"{name}: margin is above 0, got {margin}")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(positive_part(margin + near - far), reduction)


# ---- of scores of classes -------------------------------------------------------------------------


def _rows(name: str, x: Any, target: Any, with_axis: bool) -> tuple[Array, Array]:
    """(N, C) scores and labels, (N,) or (N, C); an N of 1 where there is none."""
    scores, labels = as_float(x), as_array(target)
    if not labels.dtype.is_integer:
        raise dtype_error(f"{name} needs integer labels, got {labels.type}", scores, labels)
    wanted = scores.shape if with_axis else scores.shape[:-1]
    if scores.ndim not in (1, 2) or labels.shape != wanted:
        raise shape_error(f"{name} does not fit scores {scores.type} and labels {labels.type}", scores, labels)
    if scores.ndim == 1:
        scores, labels = expand_dims(scores), expand_dims(labels)
    return scores, labels


def _of_rows(losses: Array, x: Any, reduction: str) -> Array:
    return reduced(losses if as_array(x).ndim == 2 else reshape(losses, ()), reduction)


@public("multi_margin_loss")
def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean"
) -> Array:
    """The mean over the other classes i of max(0, margin - x[label] + x[i])^p, over C. torch's function of this name.

    Shapes: x (N, C) and labels (N,), or (C,) and (). `weight` has a factor for each label.
    """
    check_reduction("multi_margin_loss", reduction)
    check_argument(p in (1, 2), f"multi_margin_loss: p is 1 or 2, got {p}")
    scores, labels = _rows("multi_margin_loss", x, target, False)
    own = at_labels(scores, expand_dims(labels, -1))
    gap = positive_part(margin - own + scores)
    gap = square(gap) if p == 2 else gap
    if weight is not None:
        gap = gap * expand_dims(take(cast(as_array(weight), scores.dtype), labels), -1)
    losses = mean(where(is_class(labels, scores.shape[-1]), 0.0, gap), -1)
    return _of_rows(losses, x, reduction)


@public("multilabel_margin_loss")
def multilabel_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Array:
    """The sum over labels j and other classes i of max(0, 1 - x[j] + x[i]), over C. torch's function of this name.

    Shapes: x and target (N, C), or both (C,). A row's labels end before its first negative number.
    """
    check_reduction("multilabel_margin_loss", reduction)
    scores, labels = _rows("multilabel_margin_loss", x, target, True)
    counts = cumprod(cast(labels >= 0, labels.dtype), 1) > 0
    known = where(counts, labels, 0)
    own = at_labels(scores, known)
    hit = is_class(known, scores.shape[-1]) & expand_dims(counts, -1)
    other = ~any_(hit, 1)
    gap = positive_part(1.0 - expand_dims(own, 2) + expand_dims(scores, 1))
    gap = where(expand_dims(counts, 2) & expand_dims(other, 1), gap, 0.0)
    return _of_rows(mean(sum_(gap, 1), -1), x, reduction)


@public("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Array:
    """The mean over classes of the negative log-likelihood of 0 or 1 under sigmoid(x). torch's function of this name.

    Shapes: x and target (.., C); `weight` (C,) has a factor for each class.
    """
    check_reduction("multilabel_soft_margin_loss", reduction)
    scores, wanted = pair_of("multilabel_soft_margin_loss", x, target)
    losses = -(wanted * log_sigmoid(scores) + (1.0 - wanted) * log_sigmoid(-scores))
    if weight is not None:
        losses = losses * cast(as_array(weight), losses.dtype)
    return reduced(mean(losses, -1), reduction)


@public("soft_margin_loss")
def soft_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Array:
    """log(1 + exp(-target * x)), for targets 1 and -1. torch `nn.functional.soft_margin_loss`."""
    check_reduction("soft_margin_loss", reduction)
    scores, sign = pair_of("soft_margin_loss", x, target)
    return reduced(softplus(-sign * scores), reduction)


# ---- of distributions -----------------------------------------------------------------------------


@public("poisson_nll_loss")
def poisson_nll_loss(
    x: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Array:
    """Negative log-likelihood of counts under Poisson distributions of mean exp(x), or of mean x without `log_input`.

    `full` adds Stirling's approximation of log(target!), for targets above 1. torch's function of this name.
    """
    check_reduction("poisson_nll_loss", reduction)
    rate, count = promoted(x, target, floats=True)
    check_real("poisson_nll_loss", rate, count)
    losses = exp(rate) - count * rate if log_input else rate - count * log(rate + eps)
    if full:
        # The logarithm sees no count of 1 or less, whose slope times 0 would be NaN.
        large = where(count > 1, count, 2.0)
        losses = losses + where(count > 1, large * log(large) - large + 0.5 * log(2.0 * math.pi * large), 0.0)
    return reduced(losses, reduction)


@public("gaussian_nll_loss")
def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Array:
    """Negative log-likelihood of targets under normal distributions of mean x and variance `var`. torch's function.

    `var` is a number, has the shape of x, or that with a last axis of 1 or without one; it counts as at least `eps`,
    and has the slope that it would have at `eps`. `full` adds log(2 pi) / 2.
    """
    check_reduction("gaussian_nll_loss", reduction)
    centre, wanted, spread = promoted(x, target, var, floats=True)
    if spread.shape != centre.shape and spread.ndim and spread.shape == centre.shape[:-1]:
        spread = expand_dims(spread, -1)
    elif spread.ndim and spread.shape != centre.shape and spread.shape != (*centre.shape[:-1], 1):
        raise shape_error(f"gaussian_nll_loss: a variance {spread.type} does not fit {centre.type}", centre, spread)
    spread = where(spread < eps, spread + stop_gradient(eps - spread), spread)
    losses = 0.5 * (log(spread) + square(centre - wanted) / spread)
    if full:
        losses = losses + 0.5 * math.log(2.0 * math.pi)
    return reduced(losses, reduction)
