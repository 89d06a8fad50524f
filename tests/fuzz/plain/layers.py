"""Readings of `st.nn`: layers as PyTorch's documentation describes them, over the readings of functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.plain.chance import normal, permutation, uniform
from tests.fuzz.plain.core import FUNCTIONS, Plain, Variable, plain, widest_of
from tests.fuzz.plain.elementwise import dtype_of
from tests.fuzz.plain.more_layers import more_layers
from tests.fuzz.plain.optimisers import full_like

F32 = np.dtype(np.float32)


class Layer:
    """The base of layers."""

    training = True

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def eval(self) -> Layer:
        self.training = False
        return self

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError(type(self).__name__)


def _of_function(function: str, *names: str, **renamed: str) -> type[Layer]:
    """A layer that calls a function with what it was made with."""

    class Made(Layer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            given = dict(zip(names, args, strict=False)) | kwargs
            self.given = {renamed.get(name, name): value for name, value in given.items()}

        def forward(self, *inputs: Any) -> Any:
            return FUNCTIONS[function](*inputs, **self.given)

    return Made


def _parameter(shape: tuple[int, ...], fan: int, dtype: Any) -> Variable:
    bound = 1.0 / math.sqrt(fan) if fan > 0 else 0.0
    return Variable(uniform(shape, low=-bound, high=bound, dtype=dtype))


def _held(variable: Any) -> Any:
    return None if variable is None else variable.value


class Linear(Layer):
    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, dtype: Any = F32) -> None:
        self.weight = _parameter((outputs, inputs), inputs, dtype)
        self.bias = _parameter((outputs,), inputs, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        product = FUNCTIONS["matmul"](x, Plain(self.weight.a.T))
        return product if self.bias is None else FUNCTIONS["add"](product, self.bias.value)


class Embedding(Layer):
    def __init__(self, count: int, width: int, *, dtype: Any = F32) -> None:
        self.weight = Variable(normal((count, width), dtype=dtype))

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["take"](self.weight.value, x, axis=0)


class EmbeddingBag(Layer):
    def __init__(
        self, count: int, width: int, *, mode: str = "mean", include_last_offset: bool = False, padding_idx: Any = None,
        dtype: Any = F32,
    ) -> None:  # fmt: skip
        self.options = {"mode": mode, "include_last_offset": include_last_offset, "padding_idx": padding_idx}
        table = normal((count, width), dtype=dtype)
        if padding_idx is not None:
            table = FUNCTIONS["set_item"](table, padding_idx, 0.0)
        self.weight = Variable(table)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["embedding_bag"](x, self.weight.value, **self.options)


class Flatten(Layer):
    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.dims = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["flatten"](x, *self.dims)


class Dropout(Layer):
    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["dropout"](x, self.p, training=self.training)


def _convolution(function: str, axes: int, is_transposed: bool = False) -> type[Layer]:
    rest = ("output_padding", "groups", "bias", "dilation") if is_transposed else ("dilation", "groups", "bias")
    names = ("stride", "padding", *rest)

    class Made(Layer):
        def __init__(self, inputs: int, outputs: int, kernel: Any, *args: Any, dtype: Any = F32, **kwargs: Any) -> None:
            self.given = dict(zip(names, args, strict=False)) | kwargs
            groups = self.given.get("groups", 1)
            sizes = tuple(kernel) if isinstance(kernel, tuple) else (kernel,) * axes
            shape = (inputs, outputs // groups, *sizes) if is_transposed else (outputs, inputs // groups, *sizes)
            fan = math.prod(shape[1:])
            has_bias = self.given.pop("bias", True)
            self.weight = _parameter(shape, fan, dtype)
            self.bias = _parameter((outputs,), fan, dtype) if has_bias else None

        def forward(self, x: Any) -> Any:
            return FUNCTIONS[function](x, self.weight.value, _held(self.bias), **self.given)

    return Made


class _Affine(Layer):
    """Norms with a weight and a bias."""

    def made(self, shape: tuple[int, ...], has_weight: bool, has_bias: bool, dtype: Any) -> None:
        self.weight = Variable(Plain(np.ones(shape, dtype_of(dtype)))) if has_weight else None
        self.bias = Variable(Plain(np.zeros(shape, dtype_of(dtype)))) if has_bias else None


class LayerNorm(_Affine):
    def __init__(
        self, shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, *, dtype: Any = F32
    ) -> None:
        self.shape, self.eps = (shape,) if isinstance(shape, int) else tuple(shape), eps
        self.made(self.shape, elementwise_affine, elementwise_affine and bias, dtype)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["layer_norm"](x, self.shape, _held(self.weight), _held(self.bias), eps=self.eps)


class RMSNorm(_Affine):
    def __init__(self, shape: Any, eps: Any = None, elementwise_affine: bool = True, *, dtype: Any = F32) -> None:
        self.shape, self.eps = (shape,) if isinstance(shape, int) else tuple(shape), eps
        self.made(self.shape, elementwise_affine, False, dtype)

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["rms_norm"](x, self.shape, weight=_held(self.weight), eps=self.eps)


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


# ---- recurrent layers ---------------------------------------------------------------------------


def _recurrent(function: str, gates: int) -> type[Layer]:
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


def _cell(function: str, gates: int) -> type[Layer]:
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


# ---- containers ---------------------------------------------------------------------------------


class Sequential(Layer):
    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Identity(Layer):
    def __init__(self, *unused: Any, **unused_too: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x


# ---- first values -------------------------------------------------------------------------------

GAINS = {"linear": 1.0, "conv2d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    return GAINS[nonlinearity]


def _fans(tensor: Any) -> tuple[int, int]:
    return math.prod(tensor.shape[1:]), tensor.shape[0] * math.prod(tensor.shape[2:])


def _write(tensor: Any, value: Any) -> Any:
    tensor.value = value
    return tensor


def _scale(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(max(_fans(tensor)[mode == "fan_out"], 1))


def _even(tensor: Any, low: float, high: float) -> Any:
    return _write(tensor, uniform(tensor.shape, low=low, high=high, dtype=tensor.dtype))


def _spread(tensor: Any, mean: float, std: float) -> Any:
    return _write(tensor, normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype))


def _kaiming_uniform(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    bound = math.sqrt(3.0) * _scale(tensor, a, mode, nonlinearity)
    return _even(tensor, -bound, bound)


def _xavier_uniform(tensor: Any, gain: float = 1.0) -> Any:
    bound = gain * math.sqrt(6.0 / max(sum(_fans(tensor)), 1))
    return _even(tensor, -bound, bound)


def _truncated(tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Any:
    """The inverse of the distribution's share between the ends."""
    from statistics import NormalDist

    known = NormalDist(mean, std)
    low, high = known.cdf(a), known.cdf(b)
    share = widest_of(uniform(tensor.shape, low=2.0 * low - 1.0, high=2.0 * high - 1.0, dtype=tensor.dtype).a)
    found = [known.inv_cdf(min(max((s + 1.0) / 2.0, 1e-300), 1.0 - 1e-16)) for s in share.reshape(-1)]
    return _write(tensor, Plain(np.clip(np.array(found).reshape(tensor.shape), a, b)))


def _orthogonal(tensor: Any, gain: float = 1.0) -> Any:
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    if not rows * columns:
        return tensor
    q, r = np.linalg.qr(normal((max(rows, columns), min(rows, columns)), dtype=tensor.dtype).a.astype(np.float64))
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return _write(tensor, Plain(gain * (q if rows >= columns else q.T).reshape(tensor.shape)))


def _sparse(tensor: Any, sparsity: float, std: float = 0.01) -> Any:
    rows, columns = tensor.shape
    kept = np.array([permutation(rows).a for _ in range(columns)]).reshape(columns, rows).T >= math.ceil(sparsity * rows)
    return _write(tensor, Plain(np.where(kept, normal((rows, columns), std=std, dtype=tensor.dtype).a, 0.0)))


def _dirac(tensor: Any, groups: int = 1) -> Any:
    shape = tensor.shape
    found = np.zeros(shape)
    for row in range(shape[0]):
        channel = row % (shape[0] // groups)
        if channel < shape[1]:
            found[(row, channel, *(extent // 2 for extent in shape[2:]))] = 1.0
    return _write(tensor, Plain(found))


FIRST_VALUES: dict[str, Callable[..., Any]] = {
    "uniform_": lambda tensor, a=0.0, b=1.0: _even(tensor, a, b),
    "normal_": lambda tensor, mean=0.0, std=1.0: _spread(tensor, mean, std),
    "constant_": lambda tensor, val: _write(tensor, full_like(tensor, val)),
    "zeros_": lambda tensor: _write(tensor, full_like(tensor, 0)),
    "ones_": lambda tensor: _write(tensor, full_like(tensor, 1)),
    "eye_": lambda tensor: _write(tensor, Plain(np.eye(*tensor.shape))),
    "xavier_uniform_": _xavier_uniform,
    "xavier_normal_": lambda tensor, gain=1.0: _spread(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(_fans(tensor)), 1))),
    "kaiming_uniform_": _kaiming_uniform,
    "kaiming_normal_": lambda tensor, a=0, mode="fan_in", nonlinearity="leaky_relu": _spread(
        tensor, 0.0, _scale(tensor, a, mode, nonlinearity)
    ),
    "trunc_normal_": _truncated,
    "calculate_gain": calculate_gain,
    "dirac_": _dirac,
    "orthogonal_": _orthogonal,
    "sparse_": _sparse,
}


@cache
def layers() -> SimpleNamespace:
    """The stand-in for `st.nn`."""
    pooling = ("kernel_size", "stride", "padding", "ceil_mode")
    found: dict[str, Any] = {
        "init": SimpleNamespace(**FIRST_VALUES),
        "Parameter": Variable,
        "Linear": Linear,
        "Embedding": Embedding,
        "EmbeddingBag": EmbeddingBag,
        "Dropout": Dropout,
        "Flatten": Flatten,
        "Identity": Identity,
        "Sequential": Sequential,
        "ModuleList": list,
        "ModuleDict": dict,
        "LayerNorm": LayerNorm,
        "RMSNorm": RMSNorm,
        "GroupNorm": GroupNorm,
        "ReLU": _of_function("relu"),
        "Sigmoid": _of_function("sigmoid"),
        "Tanh": _of_function("tanh"),
        "SiLU": _of_function("silu"),
        "Softplus": _of_function("softplus"),
        "GELU": _of_function("gelu", "approximate"),
        "ELU": _of_function("elu", "alpha"),
        "LeakyReLU": _of_function("leaky_relu", "negative_slope"),
        "ReLU6": _of_function("relu6"),
        "Hardsigmoid": _of_function("hardsigmoid"),
        "Hardswish": _of_function("hardswish"),
        "Mish": _of_function("mish"),
        "SELU": _of_function("selu"),
        "Softsign": _of_function("softsign"),
        "Tanhshrink": _of_function("tanhshrink"),
        "LogSigmoid": _of_function("log_sigmoid"),
        "Hardtanh": _of_function("hardtanh", "min_val", "max_val"),
        "Hardshrink": _of_function("hardshrink", "lambd"),
        "Softshrink": _of_function("softshrink", "lambd"),
        "CELU": _of_function("celu", "alpha"),
        "Threshold": _of_function("threshold", "threshold", "value"),
        "Softmin": _of_function("softmin", "dim", dim="axis"),
        "GLU": _of_function("glu", "dim", dim="axis"),
        "Softmax": _of_function("softmax", "dim", dim="axis"),
        "LogSoftmax": _of_function("log_softmax", "dim", dim="axis"),
        "AdaptiveAvgPool2d": _of_function("adaptive_avg_pool2d", "output_size"),
        "AdaptiveMaxPool2d": _of_function("adaptive_max_pool2d", "output_size"),
        "Conv1d": _convolution("conv1d", 1),
        "Conv2d": _convolution("conv2d", 2),
        "ConvTranspose2d": _convolution("conv_transpose2d", 2, True),
        "CTCLoss": _of_function("ctc_loss", "blank"),
        "CrossEntropyLoss": _of_function("cross_entropy"),
        "NLLLoss": _of_function("nll_loss"),
        "MSELoss": _of_function("mse_loss"),
        "L1Loss": _of_function("l1_loss"),
        "HuberLoss": _of_function("huber_loss"),
        "SmoothL1Loss": _of_function("smooth_l1_loss"),
        "BCELoss": _of_function("binary_cross_entropy"),
        "BCEWithLogitsLoss": _of_function("binary_cross_entropy_with_logits"),
        "KLDivLoss": _of_function("kl_div"),
    }
    for rank in ("1d", "2d"):
        found[f"MaxPool{rank}"] = _of_function(f"max_pool{rank}", "kernel_size", "stride", "padding", "dilation")
        found[f"AvgPool{rank}"] = _of_function(f"avg_pool{rank}", *pooling, "count_include_pad")
    for rank in ("1d", "2d", "3d"):
        found |= {f"BatchNorm{rank}": BatchNorm, f"InstanceNorm{rank}": InstanceNorm}
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn", 1)):
        found |= {name.upper(): _recurrent(name, gates), f"{name.upper()}Cell": _cell(name, gates)}
    found |= more_layers(Layer, _of_function, _parameter, _convolution, Linear)
    return SimpleNamespace(**found)
