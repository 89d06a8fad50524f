"""Rows of the layers of `st.nn` that normalise, recur, attend or contain others, and of their parameters' first values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell, Shape
from tests.fuzz.plain.core import FUNCTIONS, Plain, Variable, dtype_of, plain, widest_of
from tests.rows.draws import dtype_keyword, seeded
from tests.rows.layers import F32, Layer, Linear, _held, _parameter, made, written
from tests.rows.networks import few
from tests.rows.random import uniform
from tests.rows.table import Call, row

# ---- norms --------------------------------------------------------------------------------------


def _norm(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    x = d.new(shape, values="nonzero")
    count = d.chance.randint(1, len(shape))
    given = shape[-count:]
    made(d, f"{given[0] if count == 1 else given!r}{d.pick('', ', eps=0.1', ', 0.1')}")
    written(d, given)
    return f"layer({x})"


class _Affine(Layer):
    """Norms with a weight and a bias."""

    def made(self, shape: tuple[int, ...], has_weight: bool, has_bias: bool, dtype: Any) -> None:
        self.weight = Variable(Plain(np.ones(shape, dtype_of(dtype)))) if has_weight else None
        self.bias = Variable(Plain(np.zeros(shape, dtype_of(dtype)))) if has_bias else None


@row("nn.LayerNorm", _norm)
class LayerNorm(_Affine):
    def __init__(
        self, shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, *, dtype: Any = F32
    ) -> None:
        self.shape, self.eps = (shape,) if isinstance(shape, int) else tuple(shape), eps
        self.made(self.shape, elementwise_affine, elementwise_affine and bias, dtype)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["layer_norm"](x, self.shape, _held(self.weight), _held(self.bias), eps=self.eps)


@row("nn.RMSNorm", _norm)
class RMSNorm(_Affine):
    def __init__(self, shape: Any, eps: Any = None, elementwise_affine: bool = True, *, dtype: Any = F32) -> None:
        self.shape, self.eps = (shape,) if isinstance(shape, int) else tuple(shape), eps
        self.made(self.shape, elementwise_affine, False, dtype)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["rms_norm"](x, self.shape, weight=_held(self.weight), eps=self.eps)


def _channel_norm(ranks: tuple[int, ...]) -> Call:
    def text(d: Draw) -> str:
        name = d.name.rpartition(".")[2]
        rank = d.pick(*ranks)
        shape = few(d, min(rank, 4))
        shape = (*shape, *(2,) * (rank - len(shape)))
        channels = shape[1]
        groups = (
            f"{d.pick(*[g for g in (1, 2, 3, channels) if g and not channels % g] or [1])}, "
            if name == "GroupNorm"
            else ""
        )
        has_weight = not name.startswith("Instance") or d.likely(50)
        options = ", affine=True" if name.startswith("Instance") and has_weight else d.pick("", ", eps=0.1")
        if name.startswith("Batch"):
            options += d.pick("", ", momentum=None", ", momentum=0.5", ", track_running_stats=False")
        x = d.new(shape, values="nonzero")
        made(d, f"{groups}{channels}{options}")
        if has_weight:
            written(d, (channels,))
            written(d, (channels,), "bias")
        if not name.startswith("Batch") or "track" in options:
            return f"layer({x})"
        if d.likely(30):
            d.setup.append("layer.eval()")
        if d.smooth or d.likely(50):
            return f"layer({x})"
        return f"(layer({x}), layer.running_mean.value, layer.running_var.value)"

    return text


@row("nn.GroupNorm", _channel_norm((2, 3, 4)))
class GroupNorm(_Affine):
    def __init__(self, groups: int, channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: Any = F32) -> None:
        self.groups, self.eps = groups, eps
        self.made((channels,), affine, affine, dtype)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["group_norm"](x, self.groups, _held(self.weight), _held(self.bias), eps=self.eps)


class InstanceNorm(_Affine):
    def __init__(self, channels: int, eps: float = 1e-5, *, affine: bool = False, dtype: Any = F32) -> None:
        self.eps = eps
        self.made((channels,), affine, affine, dtype)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["instance_norm"](x, weight=_held(self.weight), bias=_held(self.bias), eps=self.eps)


class BatchNorm(_Affine):
    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: Any = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = F32,
    ) -> None:
        self.eps, self.momentum, self.tracks, self.batches = eps, momentum, track_running_stats, 0
        self.made((channels,), affine, affine, dtype)
        self.running_mean = Variable(Plain(np.zeros(channels, dtype_of(dtype))))
        self.running_var = Variable(Plain(np.ones(channels, dtype_of(dtype))))

    def forward(self, x: Any) -> Any:
        weight, bias = _held(self.weight), _held(self.bias)
        if not self.training and self.tracks:
            mean, var = self.running_mean.value, self.running_var.value
            return FUNCTIONS["batch_norm"](x, mean, var, weight, bias, eps=self.eps)
        y, mean, var = FUNCTIONS["batch_norm_training"](x, weight, bias, eps=self.eps, correction=1)
        if self.training and self.tracks:
            self.batches += 1
            share = 1.0 / self.batches if self.momentum is None else self.momentum
            for running, new in ((self.running_mean, mean), (self.running_var, var)):
                running.value = Plain((1.0 - share) * running.a + share * new.a)
        return y


row("nn.InstanceNorm1d", _channel_norm((3,)), InstanceNorm)
row("nn.InstanceNorm2d", _channel_norm((4,)), InstanceNorm)
row("nn.InstanceNorm3d", _channel_norm((5,)), InstanceNorm)
row("nn.BatchNorm1d", _channel_norm((2, 3)), BatchNorm)
row("nn.BatchNorm2d", _channel_norm((4,)), BatchNorm)
row("nn.BatchNorm3d", _channel_norm((5,)), BatchNorm)
row("nn.SyncBatchNorm", _channel_norm((2, 3, 4, 5)), BatchNorm)

# ---- recurrent layers ---------------------------------------------------------------------------


def _states(d: Draw, name: str, shape: Shape) -> list[str]:
    """Its first value, where one is given."""
    if d.likely(50):
        return []
    if name.startswith("LSTM"):
        return [f"({d.new(shape, values='small')}, {d.new(shape, values='small')})"]
    return [d.new(shape, values="small")]


def _ends(name: str) -> tuple[str, ...]:
    return ("[0]", "[1][0]", "[1][1]") if name == "LSTM" else ("[0]", "[1]")


def _recurrent(gates: int) -> Call:
    def text(d: Draw) -> str:
        name = d.name.rpartition(".")[2]
        if d.kind == "scalar":
            raise NotACell
        t, n, i, h = {"empty": (3, 0, 2, 2), "one": (1, 1, 1, 1), "odd": (3, 5, 3, 7)}.get(d.kind, (3, 2, 7, 15))
        layers, both = d.pick((1, False), (2, False), (1, True))
        rest = (
            d.pick("", ", bias=False")
            + ("" if layers == 1 else ", num_layers=2")
            + (", bidirectional=True" if both else "")
        )
        if name == "RNN":
            rest += d.pick("", ", nonlinearity='relu'")
        shape = d.pick((t, n, i), (t, n, i), (t, i))
        first = len(shape) == 3 and d.likely(30)
        if first:
            shape, rest = (n, t, i), rest + ", batch_first=True"
        made(d, f"{i}, {h}{rest}")
        x = d.new(shape, values="small")
        state = (layers * (2 if both else 1), *((n,) if len(shape) == 3 else ()), h)
        written(d, (gates * h, h), "weight_hh_l0")
        return f"layer({', '.join([x, *_states(d, name, state)])}){d.pick(*_ends(name))}"

    return text


def _recurring(function: str, gates: int) -> type[Layer]:
    class Made(Layer):
        def __init__(
            self,
            inputs: int,
            hidden: int,
            num_layers: int = 1,
            nonlinearity: str = "tanh",
            bias: bool = True,
            batch_first: bool = False,
            bidirectional: bool = False,
            dtype: Any = F32,
        ) -> None:
            self.hidden, self.batch_first, self.rest = hidden, batch_first, {}
            if function == "rnn":
                self.rest["nonlinearity"] = nonlinearity
            self.stack = []
            for number in range(num_layers):
                width = hidden * (2 if bidirectional else 1) if number else inputs
                shapes = [(gates * hidden, width), (gates * hidden, hidden), *([(gates * hidden,)] * 2 if bias else [])]
                ways = (False, True) if bidirectional else (False,)
                self.stack.append([(way, [_parameter(shape, hidden, dtype) for shape in shapes]) for way in ways])
            self.weight_ih_l0, self.weight_hh_l0 = self.stack[0][0][1][:2]

        def forward(self, x: Any, hx: Any = None) -> Any:
            data = plain(x).a
            alone = data.ndim == 2
            data = data[:, None] if alone else np.swapaxes(data, 0, 1) if self.batch_first else data
            parts = [] if hx is None else [plain(h).a for h in (hx if isinstance(hx, tuple) else (hx,))]
            parts = [part[:, None] if alone else part for part in parts]
            ends: list[list[Any]] = []
            for layer in self.stack:
                ys = []
                for way, weights in layer:
                    given = tuple(Plain(part[len(ends)]) for part in parts)
                    state = None if not given else given if function == "lstm" else given[0]
                    y, end = FUNCTIONS[function](
                        Plain(data), state, *(weight.value for weight in weights), reverse=way, **self.rest
                    )
                    ys.append(y.a)
                    ends.append([part.a for part in (end if isinstance(end, tuple) else (end,))])
                data = np.concatenate(ys, axis=2)
            last = [np.stack(kind) for kind in zip(*ends, strict=True)]
            if alone:
                data, last = data[:, 0], [part[:, 0] for part in last]
            elif self.batch_first:
                data = np.swapaxes(data, 0, 1)
            found = [Plain(part) for part in last]
            return Plain(data), tuple(found) if function == "lstm" else found[0]

    return Made


def _cell(gates: int) -> Call:
    def text(d: Draw) -> str:
        name = d.name.rpartition(".")[2]
        if d.kind == "scalar":
            raise NotACell
        n, i, h = {"empty": (0, 2, 2), "one": (1, 1, 1), "odd": (5, 3, 7)}.get(d.kind, (2, 7, 15))
        shape = (n, i) if d.likely(70) else (i,)
        made(d, f"{i}, {h}{d.pick('', ', bias=False')}")
        written(d, (gates * h, i), "weight_ih")
        x = d.new(shape, values="small")
        d.main = x
        called = f"layer({', '.join([x, *_states(d, name, (*shape[:-1], h))])})"
        return called + (d.pick("[0]", "[1]") if name == "LSTMCell" else "")

    return text


def _celled(function: str, gates: int) -> type[Layer]:
    class Made(Layer):
        def __init__(
            self, inputs: int, hidden: int, bias: bool = True, nonlinearity: str = "tanh", *, dtype: Any = F32
        ) -> None:
            shapes = [(gates * hidden, inputs), (gates * hidden, hidden), *([(gates * hidden,)] * 2 if bias else [])]
            self.weights = [_parameter(shape, hidden, dtype) for shape in shapes]
            self.weight_ih, self.weight_hh = self.weights[:2]
            self.rest = {"nonlinearity": nonlinearity} if function == "rnn" else {}

        def forward(self, x: Any, hx: Any = None) -> Any:
            data = plain(x).a
            alone = data.ndim == 1
            parts = [] if hx is None else [plain(h).a for h in (hx if isinstance(hx, tuple) else (hx,))]
            given = tuple(Plain(part[None] if alone else part) for part in parts)
            state = None if not given else given if function == "lstm" else given[0]
            weights = [weight.value for weight in self.weights]
            _, end = FUNCTIONS[function](Plain(data[None, None] if alone else data[None]), state, *weights, **self.rest)
            ends = [Plain(part.a[0] if alone else part.a) for part in (end if isinstance(end, tuple) else (end,))]
            return tuple(ends) if function == "lstm" else ends[0]

    return Made


for _name, _gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    row(f"nn.{_name}", _recurrent(_gates), _recurring(_name.lower(), _gates))
    row(f"nn.{_name}Cell", _cell(_gates), _celled(_name.lower(), _gates))

# ---- attention ----------------------------------------------------------------------------------


def _sequences(d: Draw) -> tuple[int, int, int, int]:
    """The lengths of two sequences, the batch and the features, which two heads share."""
    if d.kind == "scalar":
        raise NotACell
    return {"empty": (3, 4, 0, 4), "one": (1, 1, 1, 4), "odd": (3, 5, 3, 6)}.get(d.kind, (3, 5, 2, 8))


def _xavier(shape: tuple[int, int], dtype: Any) -> Any:
    bound = math.sqrt(6.0 / sum(shape))
    return uniform(shape, low=-bound, high=bound, dtype=dtype)


def draw(d: Draw) -> str:
    rows, cols, n, e = _sequences(d)
    made(d, f"{e}, 2{d.pick('', ', bias=False')}")
    written(d, (3 * e, e), "in_proj_weight")
    x = d.new((rows, n, e), values="small")
    if d.likely(40):
        return f"layer({x}, {x}, {x}){d.pick('[0]', '[1]')}"
    other = d.new((cols, n, e), values="small")
    padding = d.pick("None", f"np.arange({n * cols}).reshape({n}, {cols}) < {cols + 1}")  # one sequence, and an element
    return f"layer({x}, {other}, {other}, {padding}, {d.pick('True)[1]', 'True)[0]', 'False)[0]')}"


@row("nn.MultiheadAttention", draw)
class MultiheadAttention(Layer):
    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True, *, dtype: Any = F32) -> None:
        self.heads = heads
        self.in_proj_weight = Variable(_xavier((3 * width, width), dtype))
        self.out_proj = Linear(width, width, bias, dtype=dtype)
        if bias:
            self.out_proj.bias = None

    def forward(self, query: Any, key: Any, value: Any, padding: Any = None, need_weights: bool = True) -> Any:
        dtype = plain(query).a.dtype
        parts = []
        for x, weight in zip((query, key, value), np.split(widest_of(self.in_proj_weight.a), 3), strict=True):
            y = np.swapaxes(widest_of(plain(x).a) @ weight.T, 0, 1)
            parts.append(np.swapaxes(y.reshape(*y.shape[:2], self.heads, y.shape[2] // self.heads), 1, 2))
        q, k, v = parts
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
        if padding is not None:
            scores = np.where(plain(padding).a[:, None, None, :], -math.inf, scores)
        top = scores.max(axis=-1, keepdims=True)
        shares = np.exp(scores - np.where(top == -math.inf, 0.0, top))
        total = shares.sum(axis=-1, keepdims=True)
        shares = shares / np.where(total == 0, 1.0, total)  # a query that sees no key has no share of any
        y = np.swapaxes(shares @ v, 1, 2)
        joined = Plain(np.swapaxes(y.reshape(*y.shape[:2], y.shape[2] * y.shape[3]), 0, 1).astype(dtype))
        return self.out_proj(joined), Plain(shares.mean(axis=1).astype(dtype)) if need_weights else None


def _transformer(d: Draw) -> str:
    name = d.name.rpartition(".")[2]
    rows, cols, n, e = _sequences(d)
    first = d.pick("", ", norm_first=True")
    common = f"{e}, 2{', 1, 1' if name == 'Transformer' else ''}, 5, 0.0, 'gelu'{first}, {dtype_keyword(d)}"
    seeded(d)
    if name.endswith("coder"):
        d.setup.append(f"layer = st.{d.name}(st.nn.{name}Layer({common}), 2)")
    else:
        d.setup.append(f"layer = st.{d.name}({common})")
    x = d.new((rows, n, e), values="small")
    return f"layer({x})" if "Encoder" in name else f"layer({x}, {d.new((cols, n, e), values='small')})"


class _Layer(Layer):
    crosses = False

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        *,
        norm_first: bool = False,
        dtype: Any = F32,
    ) -> None:
        self.activation, self.norm_first = activation, norm_first
        self.self_attn = MultiheadAttention(width, heads, dtype=dtype)
        if self.crosses:
            self.multihead_attn = MultiheadAttention(width, heads, dtype=dtype)
        self.linear1, self.linear2 = Linear(width, hidden, dtype=dtype), Linear(hidden, width, dtype=dtype)
        self.norms = [LayerNorm(width, dtype=dtype) for _ in range(3 if self.crosses else 2)]

    def forward(self, x: Any, memory: Any = None) -> Any:
        blocks = [lambda x: self.self_attn(x, x, x)[0]]
        if self.crosses:
            blocks.append(lambda x: self.multihead_attn(x, memory, memory)[0])
        blocks.append(lambda x: self.linear2(FUNCTIONS[self.activation](self.linear1(x))))
        for norm, block in zip(self.norms, blocks, strict=True):
            add = FUNCTIONS["add"]
            x = add(x, block(norm(x))) if self.norm_first else norm(add(x, block(x)))
        return x

    def drawn_anew(self, dtype: Any) -> None:
        attention = [self.self_attn, *([self.multihead_attn] if self.crosses else [])]
        matrices = [part for each in attention for part in ((each, "in_proj_weight"), (each.out_proj, "weight"))]
        for held, name in [*matrices, (self.linear1, "weight"), (self.linear2, "weight")]:
            setattr(held, name, Variable(_xavier(getattr(held, name).a.shape, dtype)))


@row("nn.TransformerEncoderLayer", _transformer)
class TransformerEncoderLayer(_Layer):
    pass


@row("nn.TransformerDecoderLayer", _transformer)
class TransformerDecoderLayer(_Layer):
    crosses = True


@row("nn.TransformerEncoder", _transformer)
class Stack(Layer):
    def __init__(self, layer: _Layer, count: int, norm: Any = None) -> None:
        # Copies begin with equal weights, which no call here writes; `Transformer` has one layer of each kind.
        self.layers, self.norm = [layer] * count, norm

    def forward(self, x: Any, *memory: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *memory)
        return x if self.norm is None else self.norm(x)


row("nn.TransformerDecoder", _transformer, Stack)


@row("nn.Transformer", _transformer)
class Transformer(Layer):
    def __init__(
        self, width: int, heads: int, encoders: int, decoders: int, *rest: Any, dtype: Any = F32, **more: Any
    ) -> None:
        norms = [LayerNorm(width, dtype=dtype) for _ in range(2)]
        self.encoder = Stack(TransformerEncoderLayer(width, heads, *rest, dtype=dtype, **more), encoders, norms[0])
        self.decoder = Stack(TransformerDecoderLayer(width, heads, *rest, dtype=dtype, **more), decoders, norms[1])
        for layer in [*self.encoder.layers, *self.decoder.layers]:
            layer.drawn_anew(dtype)

    def forward(self, src: Any, tgt: Any) -> Any:
        return self.decoder(tgt, self.encoder(src))


# ---- containers and parameters ------------------------------------------------------------------


def _container(d: Draw) -> str:
    name = d.name.rpartition(".")[2]
    shape = d.shape(ranks=(1, 2))
    width = min(shape[-1], 67)
    x = d.new((*shape[:-1], width), values="small")
    linear = f"st.nn.Linear({width}, 3, {dtype_keyword(d)})"
    act = d.pick("st.nn.Tanh()", "st.nn.ReLU()", "st.nn.GELU()")
    seeded(d)
    if name == "Sequential":
        rest = d.pick("", f", st.nn.LayerNorm(3, {dtype_keyword(d)})", f", st.nn.Linear(3, 2, {dtype_keyword(d)})")
        d.setup.append(f"layer = st.nn.Sequential({linear}, {act}{rest})")
        return f"layer({x})"
    if name == "ModuleList":
        d.setup.append(f"layer = st.nn.ModuleList([{linear}, {act}])")
        return f"layer[1](layer[0]({x}))"
    d.setup.append(f"layer = st.nn.ModuleDict({{'one': {linear}, 'two': {act}}})")
    return f"layer['two'](layer['one']({x}))"


@row("nn.Sequential", _container)
class Sequential(Layer):
    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def _parameters(d: Draw) -> str:
    name = d.name.rpartition(".")[2]
    shape = d.shape(ranks=(0, 1, 2))
    x = d.new(shape, values="small")
    seeded(d)
    one = f"st.nn.Parameter(st.full({shape!r}, 0.5, {dtype_keyword(d)}))"
    if name == "ParameterList":
        d.setup.append(f"layer = st.nn.ParameterList([{one}, {one}])")
        return f"layer[1].value * {x} + layer[0].value"
    d.setup.append(f"layer = st.nn.ParameterDict({{'one': {one}}})")
    return f"layer['one'].value * {x}"


row("nn.ModuleList", _container, list)
row("nn.ModuleDict", _container, dict)
row("nn.ParameterList", _parameters, list)
row("nn.ParameterDict", _parameters, dict)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, y = d.new(shape, values="small"), d.new(shape, values="small")
    d.lines += [f"p = st.nn.Parameter({x})", f"p.value = {d.pick(y, f'st.where({y} == {y}, {y}, p.value)', 'p.value')}"]
    return f"(p.value, {x})" if d.likely(50) else f"st.where({y} == {x}, p.value, {y})"


row("nn.Parameter", draw, Variable)
