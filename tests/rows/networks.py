"""Rows of norms with parameters, attention and recurrent functions: in f64, rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import Plain, plain, wide
from tests.rows.draws import image
from tests.rows.readings import f64
from tests.rows.table import Call, row


def _weights(d: Draw, count: tuple[int, ...], names: tuple[str, ...] = ("weight", "bias")) -> str:
    text = ""
    for name in names:
        if d.likely(90 if d.both else 50):
            d.keywords.add(name)
            text += f", {name}={d.new(count, values='nonzero')}"
    return text


def _standard(array: Any, axes: tuple[int, ...], eps: float) -> Any:
    with np.errstate(all="ignore"):
        count = math.prod(array.shape[axis] for axis in axes)
        centred = array - np.sum(array, axis=axes, keepdims=True) / np.float64(count)
        return centred / np.sqrt(np.sum(centred * centred, axis=axes, keepdims=True) / np.float64(count) + eps)


def _last(array: Any, shape: Any) -> tuple[int, ...]:
    count = 1 if shape is None or isinstance(shape, int) else len(shape)
    return tuple(range(array.ndim - count, array.ndim))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    if shape[-1] == 1 and d.smooth:
        pass
    x = d.new(shape, values="small")
    count = d.chance.randint(1, len(shape))
    d.keywords.add("normalized_shape")
    given = shape[-count:]
    if count == 1 and d.likely(60):
        text = d.pick("", f", {given[0]}")
    else:
        text = f", {given!r}"
    return f"st.layer_norm({x}{text}{_weights(d, given if text else shape[-1:])}{d.keyword('eps', 1e-5, 0.1)})"


@row("layer_norm", draw)
def layer_norm(x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    result = _standard(array, _last(array, normalized_shape), eps)
    result = result if weight is None else result * f64(weight)
    return Plain((result if bias is None else result + f64(bias)).astype(dtype))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    x = d.new(shape, values="nonzero")
    given = shape[-d.chance.randint(1, len(shape)) :]
    text = d.pick("", f", normalized_shape={given!r}")
    return f"st.rms_norm({x}{text}{_weights(d, given if text else shape[-1:], ('weight',))}{d.keyword('eps', 1e-5, 0.1, None)})"


@row("rms_norm", draw)
def rms_norm(x: Any, normalized_shape: Any = None, weight: Any = None, eps: Any = None) -> Plain:
    array, dtype = wide(x)
    axes = _last(array, normalized_shape)
    small = np.finfo(dtype).eps if eps is None else eps
    with np.errstate(all="ignore"):
        count = math.prod(array.shape[axis] for axis in axes)
        result = array / np.sqrt(np.sum(array * array, axis=axes, keepdims=True) / np.float64(count) + small)
    return Plain((result if weight is None else result * f64(weight)).astype(dtype))


def few(d: Draw, rank: int) -> tuple[int, ...]:
    """A shape for what is costly: a block is one of some hundred elements."""
    if d.kind == "block" and rank >= 3:
        return {3: (5, 8, 33), 4: (2, 4, 13, 12)}[rank]
    shape = d.shape(rank)
    return tuple(min(extent, 67) for extent in shape)


def _channel(x: Any, ndim: int) -> Any:
    return f64(x).reshape((1, -1, *(1,) * (ndim - 2)))


def _affine(result: Any, weight: Any, bias: Any) -> Any:
    result = result if weight is None else result * _channel(weight, result.ndim)
    return result if bias is None else result + _channel(bias, result.ndim)


def draw(d: Draw) -> str:
    shape = few(d, d.pick(2, 3, 4))
    x = d.new(shape, values="small")
    mean, var = d.new(shape[1:2], values="small"), d.new(shape[1:2], values="positive")
    return f"st.batch_norm({x}, {mean}, {var}{_weights(d, shape[1:2])}{d.keyword('eps', 1e-5, 0.1)})"


@row("batch_norm", draw)
def batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    with np.errstate(all="ignore"):
        result = (array - _channel(mean, array.ndim)) / np.sqrt(_channel(var, array.ndim) + eps)
    return Plain(_affine(result, weight, bias).astype(dtype))


def draw(d: Draw) -> str:
    shape = few(d, d.pick(2, 3, 4))
    x = d.new(shape, values="nonzero")
    rest = d.keyword("eps", 1e-5, 0.1) + d.keyword("correction", 0, 1, percent=30)
    return f"st.batch_norm_training({x}{_weights(d, shape[1:2])}{rest})"


@row("batch_norm_training", draw)
def batch_norm_training(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, correction: float = 0.0
) -> tuple[Plain, Plain, Plain]:
    array, dtype = wide(x)
    axes = (0, *range(2, array.ndim))
    with np.errstate(all="ignore"):
        count = np.float64(math.prod(array.shape[axis] for axis in axes))
        centre = np.sum(array, axis=axes) / count
        spread = np.sum((array - _channel(Plain(centre), array.ndim)) ** 2, axis=axes)
        result = (array - _channel(Plain(centre), array.ndim)) / np.sqrt(
            _channel(Plain(spread / count), array.ndim) + eps
        )
        return (
            Plain(_affine(result, weight, bias).astype(dtype)),
            Plain(centre.astype(dtype)),
            Plain((spread / np.maximum(count - correction, 0.0)).astype(dtype)),
        )


def draw(d: Draw) -> str:
    shape = few(d, d.pick(2, 3, 4))
    groups = d.pick(*[g for g in (1, 2, 3, 4, shape[1]) if g and not shape[1] % g] or [1])
    return f"st.group_norm({d.new(shape, values='nonzero')}, {groups}{_weights(d, shape[1:2])}{d.keyword('eps', 1e-5, 0.1)})"


@row("group_norm", draw)
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    size = array.shape[1] // num_groups * math.prod(array.shape[2:])
    groups = _standard(array.reshape(array.shape[0], num_groups, size), (2,), eps)
    return Plain(_affine(groups.reshape(array.shape), weight, bias).astype(dtype))


def draw(d: Draw) -> str:
    shape = few(d, d.pick(3, 4))
    return f"st.instance_norm({d.new(shape, values='nonzero')}{_weights(d, shape[1:2])}{d.keyword('eps', 1e-5, 0.1)})"


@row("instance_norm", draw)
def instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Plain:
    array, dtype = wide(x)
    return Plain(_affine(_standard(array, tuple(range(2, array.ndim)), eps), weight, bias).astype(dtype))


def draw(d: Draw) -> str:
    d.keywords.add("size")
    rest = d.keyword("alpha", 0.5) + d.keyword("beta", 0.5, 1.0) + d.keyword("k", 2.0)
    return f"st.local_response_norm({d.new(image(d), values='nonzero')}, {d.pick(1, 2, 3)}{rest})"


@row("local_response_norm", draw)
def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Plain:
    data, dtype = wide(x)
    total = np.zeros(data.shape)
    for c in range(data.shape[1]):
        total[:, c] = np.sum(data[:, max(c - size // 2, 0) : c + (size - 1) // 2 + 1] ** 2, axis=1)
    return Plain((data / (k + alpha * total / size) ** beta).astype(dtype))


def draw(d: Draw) -> str:
    if d.kind == "scalar":
        raise NotACell
    heads, rows, cols, width, wide = {
        "empty": d.pick((2, 0, 3, 2, 2), (0, 2, 3, 2, 1), (2, 3, 0, 2, 2)),
        "one": (1, 1, 1, 1, 1),
        "vector": (2, 7, 15, 4, 3),
        "odd": (4, 5, 9, 3, 7),
        "block": (2, 17, 33, 16, 5),
    }[d.kind]
    groups = 2 if heads % 2 == 0 and heads and d.likely(20) else 1
    d.keywords |= {"attn_mask", "enable_gqa", "is_causal", "scale", "query"}
    k, v = ((heads // groups, cols, extent) for extent in (width, wide))
    text = f"{d.new((heads, rows, width), values='small')}, {d.new(k, values='small')}, {d.new(v, values='small')}"
    if d.likely(30):
        text += f", {d.new(d.pick((rows, cols), (heads, 1, cols), (rows, 1)), values='small')}"
    text += d.keyword("is_causal", True, percent=40) + d.keyword("scale", 0.5, 1.0)
    text += d.keyword("dropout_p", 0.0, 1.0, percent=30) + d.keyword("generator", None, percent=40)
    return f"st.scaled_dot_product_attention({text}{', enable_gqa=True' if groups == 2 else ''})"


@row("scaled_dot_product_attention", draw)
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
    generator: Any = None,
) -> Plain:
    (q, dtype), (k, _), (v, _) = wide(query), wide(key), wide(value)
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    with np.errstate(all="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(np.float64(q.shape[-1])) if scale is None else scale)
        if attn_mask is not None:
            mask = plain(attn_mask).a
            scores = np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + mask
        if is_causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        shares = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
        total = np.sum(shares, axis=-1, keepdims=True)
        if dropout_p == 1:
            shares = shares * 0.0
        return Plain((shares / np.where(total == 0, 1.0, total) @ v).astype(dtype))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(2, 3))
    x = d.new((*shape[:-1], 2 * min(shape[-1], 9)), values="small")
    d.keywords |= {"positions"}
    places = d.pick("", f", st.arange({shape[-2]}) * 3")
    return f"st.rotary({x}{places}{d.keyword('base', 100.0)}{d.keyword('interleaved', True)})"


@row("rotary", draw)
def rotary(x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False) -> Plain:
    array, dtype = wide(x)
    half = array.shape[-1] // 2
    at = np.arange(array.shape[-2]) if positions is None else plain(positions).a
    turn = np.exp(1j * at[:, None] * float(base) ** (-np.arange(half) / (half or 1)))
    first, second = (np.s_[..., 0::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., :half], np.s_[..., half:])
    result = np.empty_like(array)
    result[first] = array[first] * turn.real - array[second] * turn.imag
    result[second] = array[first] * turn.imag + array[second] * turn.real
    return Plain(result.astype(dtype))


def draw(d: Draw) -> str:
    if d.dtype not in ("f32", "f64") or d.kind == "scalar":
        raise NotACell
    d.keywords |= {"heads", "queries", "keys"}
    x = d.new((heads := d.pick(1, 2, 3, 6), 4, 5), values="small")
    return f"{x} + st.alibi({heads}, 4, 5, dtype=st.{d.dtype})"


@row("alibi", draw)
def alibi(heads: int, queries: int, keys: int, dtype: Any = np.float32) -> Plain:
    def slopes(count: int) -> list[float]:
        if count & (count - 1) == 0:
            return [2 ** (-8 * (n + 1) / count) for n in range(count)]
        lower = 1 << (count.bit_length() - 1)
        return slopes(lower) + slopes(2 * lower)[0::2][: count - lower]

    distance = np.abs(np.arange(queries)[:, None] - np.arange(keys))
    return Plain((-np.array(slopes(heads))[:, None, None] * distance).astype(dtype))


def _recurrent(gates: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        t, n, i, h = {
            "empty": d.pick((3, 0, 2, 2), (0, 2, 3, 2)),
            "one": (1, 1, 1, 1),
            "vector": (3, 2, 7, 15),
            "odd": (3, 5, 3, 7),
            "block": (3, 4, 17, 19),
        }[d.kind]
        x = d.new((t, n, i), values="small")
        if d.likely(30):
            state = "None"
        elif d.name == "lstm":
            state = f"({d.new((n, h), values='small')}, {d.new((n, h), values='small')})"
        else:
            state = d.new((n, h), values="small")
        d.keywords |= {"state", "b_ih", "b_hh"}
        rest = f", {d.new((gates * h, i), values='unit')}, {d.new((gates * h, h), values='unit')}"
        if d.likely(60):
            rest += f", {d.new((gates * h,), values='unit')}, {d.new((gates * h,), values='unit')}"
        rest += d.keyword("reverse", True, False)
        if t and n:
            rest += d.keyword("lengths", [d.pick(*range(1, t + 1)) for _ in range(n)])
        if d.name == "rnn":
            rest += d.keyword("nonlinearity", repr("tanh"), repr("relu"))
        last = d.pick("[0]", "[1][0]", "[1][1]") if d.name == "lstm" else d.pick("[0]", "[1]")
        return f"st.{d.name}({x}, {state}{rest}){last}"

    return text


def _start(state: Any, x: Any, hidden: int) -> Any:
    return np.zeros((x.shape[1], hidden)) if state is None else f64(state)


def _steps(x: Any, reverse: bool) -> Any:
    return reversed(range(len(x))) if reverse else range(len(x))


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _with_lengths(layer: Call) -> Call:
    """A layer that also reads padded sequences: each one alone, up to its length."""

    def read(x: Any, state: Any, *weights: Any, lengths: Any = None, **options: Any) -> Any:
        if lengths is None:
            return layer(x, state, *weights, **options)
        data, ys, ends = plain(x).a, [], []
        for n, length in enumerate(lengths):
            one = slice(n, n + 1)
            parts = tuple(Plain(plain(part).a[one]) for part in (state if isinstance(state, tuple) else (state,)) if part is not None)
            own = None if not parts else parts if isinstance(state, tuple) else parts[0]
            y, end = layer(Plain(data[:length, one]), own, *weights, **options)
            ys.append(np.pad(y.a, [(0, len(data) - length), (0, 0), (0, 0)]))
            ends.append(end if isinstance(end, tuple) else (end,))
        last = tuple(Plain(np.concatenate([part.a for part in kind])) for kind in zip(*ends, strict=True))
        return Plain(np.concatenate(ys, axis=1)), last if len(last) > 1 else last[0]

    return read


@row("lstm", _recurrent(4))
@_with_lengths
def lstm(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, reverse: bool = False) -> Any:
    data, dtype, a, b = f64(x), plain(x).dtype, f64(w_ih), f64(w_hh)
    h, c = (_start(part, data, b.shape[1]) for part in ((None, None) if state is None else state))
    ys = np.zeros((len(data), *h.shape))
    for t in _steps(data, reverse):
        gates = data[t] @ a.T + h @ b.T + sum(f64(bias) for bias in (b_ih, b_hh) if bias is not None)
        i, f, g, o = np.split(gates, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        ys[t] = h
    return Plain(ys.astype(dtype)), (Plain(h.astype(dtype)), Plain(c.astype(dtype)))


@row("gru", _recurrent(3))
@_with_lengths
def gru(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, reverse: bool = False) -> Any:
    data, dtype, a, b = f64(x), plain(x).dtype, f64(w_ih), f64(w_hh)
    h = _start(state, data, b.shape[1])
    ys = np.zeros((len(data), *h.shape))
    for t in _steps(data, reverse):
        given = np.split(data[t] @ a.T + (0.0 if b_ih is None else f64(b_ih)), 3, axis=1)
        kept = np.split(h @ b.T + (0.0 if b_hh is None else f64(b_hh)), 3, axis=1)
        r, z = _sigmoid(given[0] + kept[0]), _sigmoid(given[1] + kept[1])
        h = (1.0 - z) * np.tanh(given[2] + r * kept[2]) + z * h
        ys[t] = h
    return Plain(ys.astype(dtype)), Plain(h.astype(dtype))


@row("rnn", _recurrent(1))
@_with_lengths
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
    data, dtype, a, b = f64(x), plain(x).dtype, f64(w_ih), f64(w_hh)
    h = _start(state, data, b.shape[1])
    ys = np.zeros((len(data), *h.shape))
    for t in _steps(data, reverse):
        whole = data[t] @ a.T + h @ b.T + sum(f64(bias) for bias in (b_ih, b_hh) if bias is not None)
        h = np.tanh(whole) if nonlinearity == "tanh" else np.maximum(whole, 0.0)
        ys[t] = h
    return Plain(ys.astype(dtype)), Plain(h.astype(dtype))
