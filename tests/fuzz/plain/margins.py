"""Readings of distances and of losses with margins, as PyTorch's documentation has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.plain.core import Plain, common, part_of, plain, reads
from tests.fuzz.plain.network import _f64, _reduced
from tests.fuzz.plain.sums import wide


def _dtype(*operands: Any) -> Any:
    dtype, weak = common(*operands)
    return wide(Plain(np.zeros((), dtype), weak))[1]


def _norms(x: Any, p: float) -> Any:
    return np.sum(np.abs(x) ** p, axis=-1) ** (1.0 / p)


@reads
def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Plain:
    a, b = np.moveaxis(_f64(x1), axis, -1), np.moveaxis(_f64(x2), axis, -1)
    found = np.sum(a * b, -1) / (np.maximum(_norms(a, 2.0), eps) * np.maximum(_norms(b, 2.0), eps))
    return Plain(found.astype(_dtype(x1, x2)))


@reads
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Plain:
    found = _norms(_f64(x1) - _f64(x2) + eps, p)
    return Plain((found[..., None] if keepdims else found).astype(part_of(_dtype(x1, x2))))


@reads
def margin_ranking_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Plain:
    losses = np.maximum(0.0, -_f64(target) * (_f64(x1) - _f64(x2)) + margin)
    return _reduced(losses, reduction, _dtype(x1, x2, target))


@reads
def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Plain:
    data, sign = _f64(x), plain(target).a
    losses = np.where(sign == 1, data, np.maximum(0.0, margin - data))
    return _reduced(losses, reduction, _dtype(x))


@reads
def cosine_embedding_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Plain:
    a, b, sign = _f64(x1), _f64(x2), plain(target).a
    cosine = np.sum(a * b, -1) / np.sqrt((np.sum(a * a, -1) + 1e-12) * (np.sum(b * b, -1) + 1e-12))
    return _reduced(np.where(sign == 1, 1.0 - cosine, np.maximum(0.0, cosine - margin)), reduction, _dtype(x1, x2))


@reads
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Plain:
    a, b, c = _f64(anchor), _f64(positive), _f64(negative)
    far = _norms(a - c + eps, p)
    if swap:
        far = np.minimum(far, _norms(b - c + eps, p))
    losses = np.maximum(0.0, margin + _norms(a - b + eps, p) - far)
    return _reduced(losses, reduction, part_of(_dtype(anchor, positive, negative)))


@reads
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Plain:
    distance = distance_function or pairwise_distance
    near, far = _f64(distance(anchor, positive)), _f64(distance(anchor, negative))
    if swap:
        far = np.minimum(far, _f64(distance(positive, negative)))
    return _reduced(np.maximum(0.0, margin + near - far), reduction, part_of(_dtype(anchor, positive, negative)))


@reads
def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Plain:
    data, labels = _f64(x), plain(target).a
    rows, marks = np.atleast_2d(data), np.atleast_1d(labels)
    losses = np.zeros(len(rows))
    for n, (row, label) in enumerate(zip(rows, marks, strict=True)):
        factor = 1.0 if weight is None else float(plain(weight).a[label])
        others = [i for i in range(len(row)) if i != label]
        losses[n] = sum(factor * max(0.0, margin - row[label] + row[i]) ** p for i in others) / len(row)
    return _reduced(losses if data.ndim == 2 else losses[0], reduction, _dtype(x))


@reads
def multilabel_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Plain:
    data, labels = _f64(x), plain(target).a
    rows, marks = np.atleast_2d(data), np.atleast_2d(labels)
    losses = np.zeros(len(rows))
    for n, (row, mark) in enumerate(zip(rows, marks, strict=True)):
        own: list[int] = []
        for label in mark:
            if label < 0:
                break
            own.append(int(label))
        others = [i for i in range(len(row)) if i not in own]
        losses[n] = sum(max(0.0, 1.0 - (row[j] - row[i])) for j in own for i in others) / len(row)
    return _reduced(losses if data.ndim == 2 else losses[0], reduction, _dtype(x))


@reads
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Plain:
    data, wanted = _f64(x), _f64(target)
    losses = wanted * np.logaddexp(0.0, -data) + (1.0 - wanted) * np.logaddexp(0.0, data)
    factor = 1.0 if weight is None else _f64(weight)
    with np.errstate(all="ignore"):
        found = np.sum(losses * factor, axis=-1) / np.float64(data.shape[-1])
    return _reduced(found, reduction, _dtype(x, target))


@reads
def soft_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Plain:
    return _reduced(np.logaddexp(0.0, -_f64(target) * _f64(x)), reduction, _dtype(x, target))


@reads
def poisson_nll_loss(
    x: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Plain:
    rate, count = _f64(x), _f64(target)
    with np.errstate(all="ignore"):
        losses = np.exp(rate) - count * rate if log_input else rate - count * np.log(rate + eps)
        if full:
            more = count * np.log(count) - count + 0.5 * np.log(2.0 * math.pi * count)
            losses = losses + np.where(count > 1, more, 0.0)
    return _reduced(losses, reduction, _dtype(x, target))


@reads
def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Plain:
    centre, wanted, spread = _f64(x), _f64(target), _f64(var)
    if spread.ndim and spread.ndim < centre.ndim:
        spread = spread[..., None]
    spread = np.maximum(spread, eps)
    losses = 0.5 * (np.log(spread) + (centre - wanted) ** 2 / spread) + (0.5 * math.log(2.0 * math.pi) if full else 0.0)
    return _reduced(losses, reduction, _dtype(x, target, var))
