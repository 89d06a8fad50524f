"""Rows of losses, as PyTorch's documentation defines them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import Plain, part_of, plain, wide
from tests.rows.draws import rows_of, signs
from tests.rows.readings import f64, pair, reduced
from tests.rows.reductions import _dtype, _norms, pairwise_distance
from tests.rows.table import Call, row
from tests.rows.torch_calls import of_labels


def reduction(d: Draw) -> str:
    return d.keyword("reduction", repr("mean"), repr("sum"), repr("none"), percent=60)


def _of_classes(d: Draw) -> str:
    shape = d.shape(2)
    if d.kind == "block":
        shape = d.pick((33, 37), (1031, 3))
    elif d.kind == "empty":
        shape = (0, 3)
    rows, classes = shape
    rest, at = reduction(d), 1
    if d.likely(40):
        d.keywords.add("axis")
        shape, at = d.pick((shape, 1), ((classes, rows), 0), ((rows, classes, 2), 1), ((rows, 2, classes), 2))
        rest += f", axis={d.pick(at, at - len(shape))}"
    x = d.new(shape, values="small")
    if d.likely(35):
        d.keywords.add("weight")
        rest += f", weight={d.new((classes,), values='positive')}"
    rest += d.keyword("ignore_index", 0, 1, -100, percent=35)
    if d.name == "cross_entropy":
        rest += d.keyword("label_smoothing", 0.0, 0.1, 1.0, percent=35)
    limit = min(classes, 100)
    labels = d.new((*shape[:at], *shape[at + 1 :]), d.pick("i64", "i32", "u8"), f"below {limit}")
    return f"st.{d.name}({x}, {labels}{rest})"


def _of_labels(
    log_probs: Any, dtype: Any, labels: Any, reduction: str, weight: Any, ignored: Any, smoothing: float
) -> Plain:
    classes = log_probs.shape[-1]
    factors = np.ones(classes) if weight is None else f64(weight)
    counts = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    known = np.where(counts, labels, 0).astype(np.int64)
    shares = factors[known]
    losses = -np.take_along_axis(log_probs, known[..., None], -1)[..., 0] * shares
    if smoothing:
        losses = (1.0 - smoothing) * losses - smoothing / classes * np.sum(log_probs * factors, axis=-1)
    losses, shares = np.where(counts, losses, 0.0), np.where(counts, shares, 0.0)
    if reduction == "mean":
        with np.errstate(all="ignore"):
            return Plain((np.sum(losses) / np.sum(shares)).astype(dtype))
    return reduced(losses, reduction, dtype)


@row("nll_loss", _of_classes, torch=of_labels("nll_loss"))
def nll_loss(
    log_probs: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: Any = None,
    axis: int = -1,
) -> Plain:
    array, dtype = wide(log_probs)
    return _of_labels(np.moveaxis(array, axis, -1), dtype, plain(labels).a, reduction, weight, ignore_index, 0.0)


@row("cross_entropy", _of_classes, torch=of_labels("cross_entropy"))
def cross_entropy(
    logits: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: Any = None,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Plain:
    array, dtype = wide(logits)
    array = np.moveaxis(array, axis, -1)
    with np.errstate(all="ignore"):
        top = np.max(array, axis=-1, keepdims=True, initial=-np.inf)
        log_probs = array - top - np.log(np.sum(np.exp(array - top), axis=-1, keepdims=True))
    return _of_labels(log_probs, dtype, plain(labels).a, reduction, weight, ignore_index, label_smoothing)


def _paired(first: str, second: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        rest = reduction(d)
        if d.name == "huber_loss":
            rest += d.keyword("delta", 0.5, 1.0, 2.0)
        if d.name == "smooth_l1_loss":
            rest += d.keyword("beta", 0.5, 1.0, 2.0)
        x, y = d.new(shape, values=first), d.new(shape, values=second)
        if d.name == "binary_cross_entropy_with_logits" and d.likely(40):
            d.keywords.add("pos_weight")
            rest += f", pos_weight={d.new(d.pick(shape, shape[-1:], ()), values='positive')}"
        return f"st.{d.name}({x}, {y}{rest})"

    return text


@row("mse_loss", _paired("small", "small"), torch="nn.functional.mse_loss")
def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Plain:
    a, b, dtype = pair(prediction, target)
    return reduced((a - b) ** 2, reduction, dtype)


@row("l1_loss", _paired("small", "small"), torch="nn.functional.l1_loss")
def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> Plain:
    a, b, dtype = pair(prediction, target)
    return reduced(np.abs(a - b), reduction, dtype)


@row("huber_loss", _paired("small", "small"), torch="nn.functional.huber_loss")
def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Plain:
    a, b, dtype = pair(prediction, target)
    size = np.abs(a - b)
    return reduced(np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta)), reduction, dtype)


@row("smooth_l1_loss", _paired("small", "small"), torch="nn.functional.smooth_l1_loss")
def smooth_l1_loss(prediction: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Plain:
    a, b, dtype = pair(prediction, target)
    size = np.abs(a - b)
    if beta == 0:
        return reduced(size, reduction, dtype)
    return reduced(np.where(size < beta, 0.5 * size**2 / beta, size - 0.5 * beta), reduction, dtype)


@row(
    "binary_cross_entropy_with_logits",
    _paired("small", "prob"),
    torch="nn.functional.binary_cross_entropy_with_logits",
)
def binary_cross_entropy_with_logits(
    logits: Any, target: Any, reduction: str = "mean", pos_weight: Any = None
) -> Plain:
    """A target of 1 adds -log(sigmoid(a)), by the weight; one of 0 adds -log(sigmoid(-a)) = a - log(sigmoid(a))."""
    a, b, dtype = pair(logits, target)
    factor = 1.0 if pos_weight is None else f64(pos_weight)
    rest = np.log1p(np.exp(-np.abs(a)))
    is_one, is_zero = np.maximum(-a, 0.0) + rest, np.maximum(a, 0.0) + rest
    return reduced(factor * b * is_one + (1.0 - b) * is_zero, reduction, dtype)


@row("binary_cross_entropy", _paired("prob", "prob"), torch="nn.functional.binary_cross_entropy")
def binary_cross_entropy(probabilities: Any, target: Any, reduction: str = "mean") -> Plain:
    a, b, dtype = pair(probabilities, target)
    with np.errstate(all="ignore"):
        return reduced(
            -(b * np.maximum(np.log(a), -100.0) + (1.0 - b) * np.maximum(np.log1p(-a), -100.0)), reduction, dtype
        )


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    rest = d.keyword("reduction", *map(repr, ("mean", "sum", "none", "batchmean")))
    if d.likely(30):
        d.keywords.add("log_target")
        return f"st.kl_div({d.new(shape, values='small')}, {d.new(shape, values='small')}{rest}, log_target=True)"
    return f"st.kl_div({d.new(shape, values='small')}, {d.new(shape, values='prob')}{rest})"


@row("kl_div", draw, torch="nn.functional.kl_div")
def kl_div(log_probs: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Plain:
    a, b, dtype = pair(log_probs, target)
    with np.errstate(all="ignore"):
        losses = (
            np.exp(b) * (b - a) if log_target else np.where(b > 0, b * np.log(np.where(b > 0, b, 1.0)), 0.0) - b * a
        )
        if reduction == "batchmean":
            return Plain((np.sum(losses) / np.float64(losses.shape[0] if losses.ndim else 1)).astype(dtype))
    return reduced(losses, reduction, dtype)


def draw(d: Draw) -> str:
    if d.kind in ("scalar",):
        raise NotACell
    t, n, c, s = {
        "empty": (4, 0, 3, 2),
        "one": (1, 1, 2, 1),
        "vector": (7, 2, 15, 3),
        "odd": (5, 3, 5, 2),
        "block": (9, 5, 33, 4),
    }[d.kind]
    x = d.new((t, n, c), values="unit")
    if d.likely(60):
        x = f"st.log_softmax({x})"
    blank = d.pick(0, c - 1)
    labels = d.new((n, s), d.pick("i64", "i32"), f"below {c - 1}")
    if blank == 0:
        labels = f"({labels} + 1)"
    steps = d.new((n,), "i64", f"below {t}")
    sizes = d.new((n,), "i64", f"below {s + 1}")
    rest = d.keyword("reduction", *map(repr, ("mean", "sum", "none"))) + d.keyword("zero_infinity", True, False)
    d.keywords.add("blank")
    return f"st.ctc_loss({x}, {labels}, {steps} + 1, {sizes}, blank={blank}{rest})"


@row("ctc_loss", draw)
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Plain:
    """Each alignment's probability, summed by the usual recursion over the labels with blanks between them."""
    array, dtype = wide(log_probs)
    labels, steps, sizes = plain(targets).a, plain(input_lengths).a, plain(target_lengths).a
    losses = np.zeros(array.shape[1])
    with np.errstate(all="ignore"):
        for n in range(array.shape[1]):
            extended = [blank]
            for label in labels[n, : int(sizes[n])]:
                extended += [int(label), blank]
            alpha = np.full(len(extended), -np.inf)
            alpha[:2] = [array[0, n, label] for label in extended[:2]]
            for t in range(1, int(steps[n])):
                before = alpha.copy()
                for s, label in enumerate(extended):
                    ways = [before[s]] + ([before[s - 1]] if s else [])
                    if s > 1 and label not in (blank, extended[s - 2]):
                        ways.append(before[s - 2])
                    alpha[s] = np.logaddexp.reduce(ways) + array[t, n, label]
            losses[n] = -np.logaddexp.reduce(alpha[-2:]) if int(steps[n]) else (0.0 if len(extended) == 1 else np.inf)
    if zero_infinity:
        losses = np.where(np.isinf(losses), 0.0, losses)
    if reduction == "mean":
        losses = losses / np.maximum(sizes, 1)
    return reduced(losses, reduction, dtype)


# ---- with margins -------------------------------------------------------------------------------


@row(
    "margin_ranking_loss",
    lambda d: (
        f"st.margin_ranking_loss({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}, "
        f"{signs(d, shape)}{d.keyword('margin', 0.5)}{reduction(d)})"
    ),
)
def margin_ranking_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Plain:
    losses = np.maximum(0.0, -f64(target) * (f64(x1) - f64(x2)) + margin)
    return reduced(losses, reduction, _dtype(x1, x2, target))


@row(
    "hinge_embedding_loss",
    lambda d: (
        f"st.hinge_embedding_loss({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {signs(d, shape)}"
        f"{d.keyword('margin', 0.5, 2.0)}{reduction(d)})"
    ),
)
def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Plain:
    data, sign = f64(x), plain(target).a
    losses = np.where(sign == 1, data, np.maximum(0.0, margin - data))
    return reduced(losses, reduction, _dtype(x))


@row(
    "cosine_embedding_loss",
    lambda d: (
        f"st.cosine_embedding_loss({d.new(shape := rows_of(d), values='nonzero')}, {d.new(shape, values='nonzero')}, "
        f"{signs(d, shape[:1])}{d.keyword('margin', 0.25, -0.5)}{reduction(d)})"
    ),
)
def cosine_embedding_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Plain:
    a, b, sign = f64(x1), f64(x2), plain(target).a
    cosine = np.sum(a * b, -1) / np.sqrt((np.sum(a * a, -1) + 1e-12) * (np.sum(b * b, -1) + 1e-12))
    return reduced(np.where(sign == 1, 1.0 - cosine, np.maximum(0.0, cosine - margin)), reduction, _dtype(x1, x2))


def _triplets(d: Draw) -> str:
    shape = rows_of(d)
    rest = d.keyword("margin", 0.5, 2.0) + d.keyword("swap", True, False) + reduction(d)
    if d.name == "triplet_margin_loss":
        rest += d.keyword("p", 2.0, 3.0) + d.keyword("eps", 1e-6, 1e-3)
    else:
        rest += d.keyword("distance_function", "lambda a, b: st.sum((a - b) ** 2, -1)")
    arrays = ", ".join(d.new(shape, values=values) for values in ("small", "positive", "nonzero"))
    return f"st.{d.name}({arrays}{rest})"


@row("triplet_margin_loss", _triplets)
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
    a, b, c = f64(anchor), f64(positive), f64(negative)
    far = _norms(a - c + eps, p)
    if swap:
        far = np.minimum(far, _norms(b - c + eps, p))
    losses = np.maximum(0.0, margin + _norms(a - b + eps, p) - far)
    return reduced(losses, reduction, part_of(_dtype(anchor, positive, negative)))


@row("triplet_margin_with_distance_loss", _triplets)
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
    near, far = f64(distance(anchor, positive)), f64(distance(anchor, negative))
    if swap:
        far = np.minimum(far, f64(distance(positive, negative)))
    return reduced(np.maximum(0.0, margin + near - far), reduction, part_of(_dtype(anchor, positive, negative)))


def draw(d: Draw) -> str:
    shape = rows_of(d)
    x = d.new(shape, values="small")
    rest = d.keyword("p", 1, 2) + d.keyword("margin", 0.5, 2.0) + reduction(d)
    if d.likely(30):
        d.keywords.add("weight")
        rest += f", weight={d.new(shape[1:], values='positive')}"
    return f"st.multi_margin_loss({x}, {d.new(shape[:1], 'i64', f'below {shape[1]}')}{rest})"


@row("multi_margin_loss", draw)
def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Plain:
    data, labels = f64(x), plain(target).a
    rows, marks = np.atleast_2d(data), np.atleast_1d(labels)
    losses = np.zeros(len(rows))
    for n, (line, label) in enumerate(zip(rows, marks, strict=True)):
        factor = 1.0 if weight is None else float(plain(weight).a[label])
        others = [i for i in range(len(line)) if i != label]
        losses[n] = sum(factor * max(0.0, margin - line[label] + line[i]) ** p for i in others) / len(line)
    return reduced(losses if data.ndim == 2 else losses[0], reduction, _dtype(x))


def draw(d: Draw) -> str:
    shape = rows_of(d)
    labels = d.new(shape, "i64", f"below {shape[1] + 1}")
    d.main = ""
    return f"st.multilabel_margin_loss({d.new(shape, values='small')}, {labels} - 1{reduction(d)})"


@row("multilabel_margin_loss", draw)
def multilabel_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Plain:
    data, labels = f64(x), plain(target).a
    rows, marks = np.atleast_2d(data), np.atleast_2d(labels)
    losses = np.zeros(len(rows))
    for n, (line, mark) in enumerate(zip(rows, marks, strict=True)):
        own: list[int] = []
        for label in mark:
            if label < 0:
                break
            own.append(int(label))
        others = [i for i in range(len(line)) if i not in own]
        losses[n] = sum(max(0.0, 1.0 - (line[j] - line[i])) for j in own for i in others) / len(line)
    return reduced(losses if data.ndim == 2 else losses[0], reduction, _dtype(x))


def draw(d: Draw) -> str:
    shape = rows_of(d)
    x, y, rest = d.new(shape, values="small"), d.new(shape, values="prob"), reduction(d)
    if d.likely(30):
        d.keywords.add("weight")
        rest += f", weight={d.new(shape[1:], values='positive')}"
    return f"st.multilabel_soft_margin_loss({x}, {y}{rest})"


@row("multilabel_soft_margin_loss", draw)
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Plain:
    data, wanted = f64(x), f64(target)
    losses = wanted * np.logaddexp(0.0, -data) + (1.0 - wanted) * np.logaddexp(0.0, data)
    factor = 1.0 if weight is None else f64(weight)
    with np.errstate(all="ignore"):
        found = np.sum(losses * factor, axis=-1) / np.float64(data.shape[-1])
    return reduced(found, reduction, _dtype(x, target))


@row(
    "soft_margin_loss",
    lambda d: (
        f"st.soft_margin_loss({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {signs(d, shape)}{reduction(d)})"
    ),
)
def soft_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Plain:
    return reduced(np.logaddexp(0.0, -f64(target) * f64(x)), reduction, _dtype(x, target))


def draw(d: Draw) -> str:
    shape, is_log = d.shape(ranks=(0, 1, 2)), d.likely(60)
    x = d.new(shape, values="unit" if is_log else "positive")
    d.keywords.add("log_input")
    rest = f", log_input={is_log}" + d.keyword("full", True, False) + d.keyword("eps", 1e-8, 1e-3) + reduction(d)
    return f"st.poisson_nll_loss({x}, {d.new(shape, values='positive')}{rest})"


@row("poisson_nll_loss", draw)
def poisson_nll_loss(
    x: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Plain:
    rate, count = f64(x), f64(target)
    with np.errstate(all="ignore"):
        losses = np.exp(rate) - count * rate if log_input else rate - count * np.log(rate + eps)
        if full:
            more = count * np.log(count) - count + 0.5 * np.log(2.0 * math.pi * count)
            losses = losses + np.where(count > 1, more, 0.0)
    return reduced(losses, reduction, _dtype(x, target))


def draw(d: Draw) -> str:
    shape = rows_of(d)
    a, b = d.new(shape, values="small"), d.new(shape, values="small")
    spread = d.pick("0.5", d.new(d.pick(shape, shape[:1], (shape[0], 1)), values="positive"))
    rest = d.keyword("full", True, False) + d.keyword("eps", 1e-6, 1e-3) + reduction(d)
    return f"st.gaussian_nll_loss({a}, {b}, {spread}{rest})"


@row("gaussian_nll_loss", draw)
def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Plain:
    centre, wanted, spread = f64(x), f64(target), f64(var)
    if spread.ndim and spread.ndim < centre.ndim:
        spread = spread[..., None]
    spread = np.maximum(spread, eps)
    losses = 0.5 * (np.log(spread) + (centre - wanted) ** 2 / spread) + (0.5 * math.log(2.0 * math.pi) if full else 0.0)
    return reduced(losses, reduction, _dtype(x, target, var))
