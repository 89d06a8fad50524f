"""Readings of convolutions, pooling, recurrent layers and losses: loops over windows and steps, in f64, rounded once."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tests.fuzz.plain.chance import bernoulli
from tests.fuzz.plain.core import FUNCTIONS, Plain, bare, common, plain, reads, widest_of
from tests.fuzz.plain.sums import wide


def _two(x: Any) -> tuple[int, int]:
    return tuple(int(v) for v in x) if isinstance(x, tuple | list) else (int(x), int(x))  # type: ignore[return-value]


def _f64(x: Any) -> Any:
    return widest_of(plain(x).a)


def _float(*operands: Any) -> Any:
    return common(*(x for x in operands if x is not None))[0]


# ---- convolution --------------------------------------------------------------------------------


@reads
def conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Plain:
    array, kernel, dtype = _f64(x), _f64(weight), _float(x, weight, bias)
    single = array.ndim == 3
    if single:
        array = array[None]
    (sh, sw), (dh, dw) = _two(stride), _two(dilation)
    out, _, kh, kw = kernel.shape
    if isinstance(padding, str):
        if padding == "valid":
            widths = ((0, 0), (0, 0))
        else:
            around = [(n - 1) * d for n, d in ((kh, dh), (kw, dw))]
            widths = tuple((total // 2, total - total // 2) for total in around)  # type: ignore[assignment]
    else:
        ph, pw = _two(padding)
        widths = ((ph, ph), (pw, pw))
    array = np.pad(array, ((0, 0), (0, 0), *widths))
    oh = (array.shape[2] - dh * (kh - 1) - 1) // sh + 1
    ow = (array.shape[3] - dw * (kw - 1) - 1) // sw + 1
    result = np.zeros((len(array), out, oh, ow))
    share, made = array.shape[1] // groups, out // groups
    for group, i, j in itertools.product(range(groups), range(kh), range(kw)):
        part = array[:, group * share : (group + 1) * share, i * dh :, j * dw :][
            :, :, : (oh - 1) * sh + 1 : sh, : (ow - 1) * sw + 1 : sw
        ]
        rows = slice(group * made, (group + 1) * made)
        result[:, rows] += np.einsum("nchw,oc->nohw", part, kernel[rows, :, i, j])
    if bias is not None:
        result = result + _f64(bias)[:, None, None]
    return Plain((result[0] if single else result).astype(dtype))


@reads
def conv1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Plain:
    def one(v: Any) -> int:
        return int(v[0]) if isinstance(v, tuple | list) else int(v)

    array, kernel = plain(x), plain(weight)
    rows = Plain(array.a[..., None, :])
    around = padding if isinstance(padding, str) else (0, one(padding))
    result = conv2d(rows, Plain(kernel.a[:, :, None, :]), bias, (1, one(stride)), around, (1, one(dilation)), groups)
    return Plain(result.a[..., 0, :])


@reads
def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Plain:
    array, kernel, dtype = _f64(x), _f64(weight), _float(x, weight, bias)
    single = array.ndim == 3
    if single:
        array = array[None]
    (sh, sw), (ph, pw), (eh, ew), (dh, dw) = _two(stride), _two(padding), _two(output_padding), _two(dilation)
    channels, made, kh, kw = kernel.shape
    n, _, h, w = array.shape
    oh = (h - 1) * sh - 2 * ph + dh * (kh - 1) + eh + 1
    ow = (w - 1) * sw - 2 * pw + dw * (kw - 1) + ew + 1
    full = np.zeros((n, made * groups, oh + 2 * ph + h * sh, ow + 2 * pw + w * sw))
    share = channels // groups
    for group, i, j, a, b in itertools.product(range(groups), range(h), range(w), range(kh), range(kw)):
        part = (
            array[:, group * share : (group + 1) * share, i, j] @ kernel[group * share : (group + 1) * share, :, a, b]
        )
        full[:, group * made : (group + 1) * made, i * sh + a * dh, j * sw + b * dw] += part
    result = full[:, :, ph : ph + oh, pw : pw + ow]
    if bias is not None:
        result = result + _f64(bias)[:, None, None]
    return Plain((result[0] if single else result).astype(dtype))


# ---- pooling ------------------------------------------------------------------------------------


def _windows(extent: int, size: int, step: int, around: int, ceil: bool) -> list[tuple[int, int]]:
    """First and last place (without) of each window, in the padded axis."""
    rest = extent + 2 * around - size
    count = (math.ceil(rest / step) if ceil else rest // step) + 1
    if ceil and (count - 1) * step >= extent + around:
        count -= 1
    return [(k * step, min(k * step + size, extent + 2 * around)) for k in range(count)]


def _pool(
    x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any = None
) -> Any:
    data = widest_of(plain(x).a)
    (kh, kw), (ph, pw) = _two(kernel_size), _two(padding)
    sh, sw = (kh, kw) if stride is None else _two(stride)
    h, w = data.shape[-2:]
    rows, columns = _windows(h, kh, sh, ph, ceil_mode), _windows(w, kw, sw, pw, ceil_mode)
    result = np.zeros((*data.shape[:-2], len(rows), len(columns)), data.dtype)
    for (i, (top, bottom)), (j, (left, right)) in itertools.product(enumerate(rows), enumerate(columns)):
        inside = data[..., max(top - ph, 0) : min(bottom - ph, h), max(left - pw, 0) : min(right - pw, w)]
        count = (bottom - top) * (right - left) if include else inside.shape[-1] * inside.shape[-2]
        count = count if divisor is None else divisor
        with np.errstate(all="ignore"):
            result[..., i, j] = np.sum(inside, axis=(-2, -1)) / np.float64(count)
    return result


@reads
def avg_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Plain:
    _, dtype = wide(x)
    found = _pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return Plain(found.astype(dtype))


def _flat(v: Any) -> Any:
    return None if v is None else int(v[0]) if isinstance(v, tuple | list) else int(v)


@reads
def avg_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Plain:
    step = _flat(kernel_size) if stride is None else _flat(stride)
    _, dtype = wide(x)
    rows = Plain(plain(x).a[..., None, :])
    found = _pool(rows, (1, _flat(kernel_size)), (1, step), (0, _flat(padding)), ceil_mode, count_include_pad)
    return Plain(found[..., 0, :].astype(dtype))


def _adaptive(x: Any, output_size: Any, largest: bool) -> Any:
    array = plain(x).a
    data = array if largest else widest_of(array)
    h, w = data.shape[-2:]
    oh, ow = (
        h if a is None else a for a in (output_size if isinstance(output_size, tuple | list) else (output_size,) * 2)
    )
    result = np.zeros((*data.shape[:-2], oh, ow), data.dtype)
    for i, j in itertools.product(range(oh), range(ow)):
        part = data[..., i * h // oh : -(-(i + 1) * h // oh), j * w // ow : -(-(j + 1) * w // ow)]
        result[..., i, j] = np.max(part, axis=(-2, -1)) if largest else np.mean(part, axis=(-2, -1))
    return result


@reads
def adaptive_avg_pool2d(x: Any, output_size: Any) -> Plain:
    return Plain(_adaptive(x, output_size, False).astype(wide(x)[1]))


@reads
def adaptive_max_pool2d(x: Any, output_size: Any) -> Plain:
    return Plain(_adaptive(x, output_size, True))


# ---- recurrent layers ---------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _steps(x: Any, reverse: bool) -> Any:
    return reversed(range(len(x))) if reverse else range(len(x))


def _start(state: Any, x: Any, hidden: int) -> Any:
    return np.zeros((x.shape[1], hidden)) if state is None else _f64(state)


@reads
def lstm(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, reverse: bool = False) -> Any:
    data, dtype, a, b = _f64(x), plain(x).dtype, _f64(w_ih), _f64(w_hh)
    h, c = (_start(part, data, b.shape[1]) for part in ((None, None) if state is None else state))
    ys = np.zeros((len(data), *h.shape))
    for t in _steps(data, reverse):
        gates = data[t] @ a.T + h @ b.T + sum(_f64(bias) for bias in (b_ih, b_hh) if bias is not None)
        i, f, g, o = np.split(gates, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        ys[t] = h
    return Plain(ys.astype(dtype)), (Plain(h.astype(dtype)), Plain(c.astype(dtype)))


@reads
def gru(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, reverse: bool = False) -> Any:
    data, dtype, a, b = _f64(x), plain(x).dtype, _f64(w_ih), _f64(w_hh)
    h = _start(state, data, b.shape[1])
    ys = np.zeros((len(data), *h.shape))
    for t in _steps(data, reverse):
        given = np.split(data[t] @ a.T + (0.0 if b_ih is None else _f64(b_ih)), 3, axis=1)
        kept = np.split(h @ b.T + (0.0 if b_hh is None else _f64(b_hh)), 3, axis=1)
        r, z = _sigmoid(given[0] + kept[0]), _sigmoid(given[1] + kept[1])
        h = (1.0 - z) * np.tanh(given[2] + r * kept[2]) + z * h
        ys[t] = h
    return Plain(ys.astype(dtype)), Plain(h.astype(dtype))


@reads
def rnn(
    x: Any,
    state: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> Any:
    data, dtype, a, b = _f64(x), plain(x).dtype, _f64(w_ih), _f64(w_hh)
    h = _start(state, data, b.shape[1])
    ys = np.zeros((len(data), *h.shape))
    for t in _steps(data, reverse):
        whole = data[t] @ a.T + h @ b.T + sum(_f64(bias) for bias in (b_ih, b_hh) if bias is not None)
        h = np.tanh(whole) if nonlinearity == "tanh" else np.maximum(whole, 0.0)
        ys[t] = h
    return Plain(ys.astype(dtype)), Plain(h.astype(dtype))


# ---- losses -------------------------------------------------------------------------------------


def _reduced(losses: Any, reduction: str, dtype: Any) -> Plain:
    with np.errstate(all="ignore"):
        if reduction == "mean":
            losses = np.sum(losses) / np.float64(losses.size)
        elif reduction == "sum":
            losses = np.sum(losses)
        return Plain(np.asarray(losses).astype(dtype))


def _pair(a: Any, b: Any) -> tuple[Any, Any, Any]:
    dtype, weak = common(a, b)
    return _f64(a), _f64(b), wide(Plain(np.zeros((), dtype), weak))[1]


@reads
def nll_loss(
    log_probs: Any,
    labels: Any,
    reduction: str = "mean",
    weight: Any = None,
    ignore_index: Any = None,
    axis: int = -1,
) -> Plain:
    array, dtype = wide(log_probs)
    return _of_classes(np.moveaxis(array, axis, -1), dtype, plain(labels).a, reduction, weight, ignore_index, 0.0)


@reads
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
    return _of_classes(log_probs, dtype, plain(labels).a, reduction, weight, ignore_index, label_smoothing)


def _of_classes(
    log_probs: Any, dtype: Any, labels: Any, reduction: str, weight: Any, ignored: Any, smoothing: float
) -> Plain:
    classes = log_probs.shape[-1]
    factors = np.ones(classes) if weight is None else _f64(weight)
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
    return _reduced(losses, reduction, dtype)


@reads
def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Plain:
    a, b, dtype = _pair(prediction, target)
    return _reduced((a - b) ** 2, reduction, dtype)


@reads
def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> Plain:
    a, b, dtype = _pair(prediction, target)
    return _reduced(np.abs(a - b), reduction, dtype)


@reads
def huber_loss(prediction: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Plain:
    a, b, dtype = _pair(prediction, target)
    size = np.abs(a - b)
    return _reduced(np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta)), reduction, dtype)


@reads
def smooth_l1_loss(prediction: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Plain:
    a, b, dtype = _pair(prediction, target)
    size = np.abs(a - b)
    if beta == 0:
        return _reduced(size, reduction, dtype)
    return _reduced(np.where(size < beta, 0.5 * size**2 / beta, size - 0.5 * beta), reduction, dtype)


@reads
def binary_cross_entropy_with_logits(
    logits: Any, target: Any, reduction: str = "mean", pos_weight: Any = None
) -> Plain:
    """A target of 1 adds -log(sigmoid(a)), by the weight; one of 0 adds -log(sigmoid(-a)) = a - log(sigmoid(a))."""
    a, b, dtype = _pair(logits, target)
    factor = 1.0 if pos_weight is None else _f64(pos_weight)
    rest = np.log1p(np.exp(-np.abs(a)))
    is_one, is_zero = np.maximum(-a, 0.0) + rest, np.maximum(a, 0.0) + rest
    return _reduced(factor * b * is_one + (1.0 - b) * is_zero, reduction, dtype)


@reads
def binary_cross_entropy(probabilities: Any, target: Any, reduction: str = "mean") -> Plain:
    a, b, dtype = _pair(probabilities, target)
    with np.errstate(all="ignore"):
        return _reduced(
            -(b * np.maximum(np.log(a), -100.0) + (1.0 - b) * np.maximum(np.log1p(-a), -100.0)), reduction, dtype
        )


@reads
def kl_div(log_probs: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Plain:
    a, b, dtype = _pair(log_probs, target)
    with np.errstate(all="ignore"):
        losses = (
            np.exp(b) * (b - a) if log_target else np.where(b > 0, b * np.log(np.where(b > 0, b, 1.0)), 0.0) - b * a
        )
        if reduction == "batchmean":
            return Plain((np.sum(losses) / np.float64(losses.shape[0] if losses.ndim else 1)).astype(dtype))
    return _reduced(losses, reduction, dtype)


@reads
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
    return _reduced(losses, reduction, dtype)


@reads
def dropout(x: Any, p: Any = 0.5, training: Any = True) -> Plain:
    array, dtype = plain(x).a.astype(wide(x)[1]), wide(x)[1]
    if training and p not in (0.0, 0):
        if p in (1.0, 1):
            return Plain(np.zeros(array.shape, dtype))
        keeps = bernoulli(1.0 - p, array.shape).a
        return Plain(np.where(keeps, array * (1.0 / (1.0 - p)), 0.0).astype(dtype))
    return Plain(array)


__all__ = ["FUNCTIONS", "bare"]
