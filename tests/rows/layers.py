"""Rows of the layers of `st.nn` that are one function, or hold parameters; recurrent and attention layers have files of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell, Shape
from tests.fuzz.plain.core import FUNCTIONS, Plain, Variable, dtype_of, plain
from tests.rows.draws import dtype_keyword, image, large_image, seeded
from tests.rows.random import normal, uniform
from tests.rows.table import Call, row


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


F32 = np.dtype(np.float32)


def of_function(function: str, *names: str, **renamed: str) -> type[Layer]:
    """The reading of a layer that calls a function with the arguments of its constructor."""

    class Made(Layer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            given = dict(zip(names, args, strict=False)) | kwargs
            self.given = {renamed.get(name, name): value for name, value in given.items()}

        def forward(self, *inputs: Any) -> Any:
            return FUNCTIONS[function](*inputs, **self.given)

    return Made


def _trained(function: str, *names: str) -> type[Layer]:
    """The reading of a layer whose function depends on whether it is trained."""

    class Made(of_function(function, *names)):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            return FUNCTIONS[function](*inputs, training=self.training, **self.given)

    return Made


def made(d: Draw, given: str, dtype: bool = True) -> None:
    """The layer, constructed before the part that is transformed."""
    seeded(d)
    arguments = ", ".join(part for part in (given, dtype_keyword(d) if dtype else "") if part)
    d.setup.append(f"layer = st.{d.name}({arguments})")


def written(d: Draw, shape: Shape, name: str = "weight", percent: int = 35) -> None:
    """A parameter that is written where the layer is called."""
    if d.likely(90 if d.both else percent):
        d.lines.append(f"layer.{name}.value = {d.new(shape, values='nonzero')}")


# ---- activations --------------------------------------------------------------------------------


def _activation(*options: str, ranks: tuple[int, ...] = (0, 1, 2)) -> Call:
    def text(d: Draw) -> str:
        x = d.new(d.shape(ranks=ranks), values="small")
        made(d, d.pick("", *options), dtype=False)
        return f"layer({x})"

    return text


row("nn.ReLU", _activation(), of_function("relu"))
row("nn.Sigmoid", _activation(), of_function("sigmoid"))
row("nn.Tanh", _activation(), of_function("tanh"))
row("nn.SiLU", _activation(), of_function("silu"))
row("nn.Softplus", _activation(), of_function("softplus"))
row("nn.ReLU6", _activation(), of_function("relu6"))
row("nn.Hardsigmoid", _activation(), of_function("hardsigmoid"))
row("nn.Hardswish", _activation(), of_function("hardswish"))
row("nn.Mish", _activation(), of_function("mish"))
row("nn.SELU", _activation(), of_function("selu"))
row("nn.Softsign", _activation(), of_function("softsign"))
row("nn.Tanhshrink", _activation(), of_function("tanhshrink"))
row("nn.LogSigmoid", _activation(), of_function("log_sigmoid"))
row("nn.GELU", _activation("'tanh'", "approximate='none'"), of_function("gelu", "approximate"))
row("nn.ELU", _activation("0.5", "alpha=2.0"), of_function("elu", "alpha"))
row("nn.CELU", _activation("0.5", "alpha=2.0"), of_function("celu", "alpha"))
row("nn.LeakyReLU", _activation("0.2", "negative_slope=0.0"), of_function("leaky_relu", "negative_slope"))
row("nn.Hardtanh", _activation("-0.5, 0.25", "max_val=2.0"), of_function("hardtanh", "min_val", "max_val"))
row("nn.Hardshrink", _activation("0.25", "lambd=1.0"), of_function("hardshrink", "lambd"))
row("nn.Softshrink", _activation("0.25", "lambd=1.0"), of_function("softshrink", "lambd"))
row("nn.Softmin", _activation("0", "dim=-1", ranks=(1, 2, 3)), of_function("softmin", "dim", dim="axis"))
row("nn.Softmax", _activation("0", "dim=-1", ranks=(1, 2, 3)), of_function("softmax", "dim", dim="axis"))
row("nn.LogSoftmax", _activation("0", "dim=-1", ranks=(1, 2, 3)), of_function("log_softmax", "dim", dim="axis"))


def draw(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)), values="small")
    made(d, d.pick("0.25, -1.0", "0.5, value=2.0"), dtype=False)
    return f"layer({x})"


row("nn.Threshold", draw, of_function("threshold", "threshold", "value"))


def draw(d: Draw) -> str:
    x = d.new((d.pick(1, 3), d.pick(2, 4)), values="small")
    made(d, d.pick("", "1", "dim=-1"), dtype=False)
    return f"layer({x})"


row("nn.GLU", draw, of_function("glu", "dim", dim="axis"))


class PReLU(Layer):
    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = F32) -> None:
        self.weight = Variable(Plain(np.full((num_parameters,), init, dtype_of(dtype))))

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["prelu"](x, self.weight.value)


def draw(d: Draw) -> str:
    shape = image(d)
    x, count = d.new(shape, values="nonzero"), d.pick(1, shape[1])
    made(d, f"{count}{d.pick('', ', 0.5')}")
    written(d, (count,))
    return f"layer({x})"


row("nn.PReLU", draw, PReLU)

# ---- dropout, and other layers of a function ------------------------------------------------------


def _of_image(rank: int, *options: str, values: str = "small", at_one: str | None = None) -> Call:
    """A layer without parameters on (N, C, ..)."""

    def text(d: Draw) -> str:
        x = d.new(image(d, 1, rank), values=values)
        made(d, d.pick(*options) if d.kind != "one" or at_one is None else at_one, dtype=False)
        return f"layer({x})"

    return text


@row("nn.Dropout", _activation("0.25", "p=0.0"))
class Dropout(Layer):
    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["dropout"](x, self.p, training=self.training)


for _rank in (1, 2, 3):
    row(f"nn.Dropout{_rank}d", _of_image(_rank, "", "0.25", "p=0.0"), _trained(f"dropout{_rank}d", "p"))
row("nn.AlphaDropout", _of_image(2, "", "0.25"), _trained("alpha_dropout", "p"))
row("nn.FeatureAlphaDropout", _of_image(2, "", "0.25"), _trained("feature_alpha_dropout", "p"))
row("nn.RReLU", _of_image(2, "", "0.0, 0.5", values="nonzero"), _trained("rrelu", "lower", "upper"))


@row("nn.Softmax2d", _of_image(2, ""))
class Softmax2d(Layer):
    def forward(self, x: Any) -> Any:
        return FUNCTIONS["softmax"](x, axis=-3)


@row("nn.UpsamplingBilinear2d", _of_image(2, "scale_factor=2", "(3, 4)"))
class UpsamplingBilinear2d(Layer):
    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        self.given = size, scale_factor

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["interpolate"](x, *self.given, mode="bilinear", align_corners=True)


_SIZES = ("size", "scale_factor", "mode")
_WINDOWS = ("kernel_size", "dilation", "padding", "stride")
row("nn.UpsamplingNearest2d", _of_image(2, "scale_factor=2", "(3, 4)"), of_function("interpolate", *_SIZES[:2]))
row("nn.Upsample", _of_image(2, "scale_factor=2", "4", "(3, 5), mode='bilinear'"), of_function("interpolate", *_SIZES))
row("nn.Unfold", _of_image(2, "1", "1, padding=1"), of_function("unfold", *_WINDOWS))
row(
    "nn.LocalResponseNorm",
    _of_image(2, "2", "3, 0.5, 0.5, 2.0"),
    of_function("local_response_norm", "size", "alpha", "beta", "k"),
)


def _shaped(given: str, *shape: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        x = d.new((0 if d.kind == "empty" else d.pick(1, 2), *shape))
        made(d, given, dtype=False)
        return f"layer({x})"

    return text


row("nn.PixelShuffle", _shaped("2", 8, 3, 2), of_function("pixel_shuffle", "upscale_factor"))
row("nn.PixelUnshuffle", _shaped("2", 2, 4, 6), of_function("pixel_unshuffle", "downscale_factor"))
row("nn.ChannelShuffle", _shaped("3", 6, 2, 2), of_function("channel_shuffle", "groups"))
row("nn.Unflatten", _shaped("1, (2, 3)", 6, 2), of_function("unflatten", "dim", "sizes"))
row("nn.Fold", _shaped("(4, 5), 2", 8, 12), of_function("fold", "output_size", *_WINDOWS))


@row("nn.Identity", _activation("3, unused=4"))
class Identity(Layer):
    def __init__(self, *unused: Any, **unused_too: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x


@row("nn.Flatten", _activation("0", "0, 1", ranks=(2, 3)))
class Flatten(Layer):
    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.dims = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["flatten"](x, *self.dims)


# ---- edges and pooling --------------------------------------------------------------------------

_MODES = {"Reflection": "reflect", "Replication": "edge", "Circular": "wrap"}


def _padding(kind: str, rank: int) -> type[Layer]:
    mode = _MODES.get(kind, "constant")

    class Made(Layer):
        def __init__(self, padding: Any, value: float = 0.0) -> None:
            self.widths = padding if isinstance(padding, tuple) else (padding,) * (2 * rank)
            self.value = value

        def forward(self, x: Any) -> Any:
            array = plain(x).a
            pairs = [(self.widths[2 * a], self.widths[2 * a + 1]) for a in range(rank)][::-1]
            edges = [(0, 0)] * (array.ndim - rank) + pairs
            options = {"constant_values": self.value} if mode == "constant" else {}
            return Plain(np.pad(array, edges, mode=mode, **options))  # type: ignore[call-overload]

    return Made


_POOLS = ("kernel_size", "stride", "padding")
for _rank in (1, 2, 3):
    for _kind in ("Constant", "Zero", "Replication", "Circular", "Reflection"):
        _more = ", 1.5" if _kind == "Constant" else ""
        _given = ("1", str((1, 0) * _rank)) if _kind in ("Reflection", "Circular") else ("1", "2", str((2, 1) * _rank))
        row(f"nn.{_kind}Pad{_rank}d", _of_image(_rank, *(each + _more for each in _given)), _padding(_kind, _rank))
    _pool = _of_image(_rank, "2", "2, 1", "2, stride=2, padding=1, ceil_mode=True", at_one="1")
    row(f"nn.MaxPool{_rank}d", _pool, of_function(f"max_pool{_rank}d", *_POOLS))
    row(f"nn.AvgPool{_rank}d", _pool, of_function(f"avg_pool{_rank}d", *_POOLS))
    _adaptive = _of_image(_rank, "1", str((2, 3, 1)[:_rank]))
    row(f"nn.AdaptiveMaxPool{_rank}d", _adaptive, of_function(f"adaptive_max_pool{_rank}d", "output_size"))
    row(f"nn.AdaptiveAvgPool{_rank}d", _adaptive, of_function(f"adaptive_avg_pool{_rank}d", "output_size"))
    row(
        f"nn.LPPool{_rank}d",
        _of_image(_rank, "2, 2", "3.0, 2, 1", "1, 2, ceil_mode=True", values="positive", at_one="2, 1"),
        of_function(f"lp_pool{_rank}d", "norm_type", "kernel_size", "stride"),
    )


def _unpool(rank: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind in ("scalar", "empty"):
            raise NotACell
        x = d.new((2, 1, *(2,) * rank), values="small")
        places = d.new((2, 1, *(2,) * rank), "i64", "below 1")
        count = 2**rank
        d.arrays[places] = d.numbers.permutation(count * count)[: 2 * count].reshape(d.arrays[places].shape)
        made(d, d.pick("2", "2, stride=2", "2, 2, 0"), dtype=False)
        return f"layer({x}, {places})"

    return text


for _rank in (1, 2, 3):
    row(f"nn.MaxUnpool{_rank}d", _unpool(_rank), of_function(f"max_unpool{_rank}d", *_POOLS))
for _rank in (2, 3):
    row(
        f"nn.FractionalMaxPool{_rank}d",
        _of_image(_rank, "2, output_size=2", "2, output_ratio=0.7", at_one="1, 1"),
        of_function(f"fractional_max_pool{_rank}d", "kernel_size", "output_size"),
    )

# ---- with parameters ----------------------------------------------------------------------------


def _parameter(shape: tuple[int, ...], fan: int, dtype: Any) -> Variable:
    bound = 1.0 / math.sqrt(fan) if fan > 0 else 0.0
    return Variable(uniform(shape, low=-bound, high=bound, dtype=dtype))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    width = min(shape[-1], 67)
    shape = (*shape[:-1], width)
    out = d.pick(1, 3, 5, 0)
    x = d.new(shape, values="small")
    bias = d.pick("", ", bias=False")
    made(d, f"{width}, {out}{bias}")
    written(d, (out, width))
    if not bias:
        written(d, (out,), "bias")
    return f"layer({x})"


@row("nn.Linear", draw)
class Linear(Layer):
    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, dtype: Any = F32) -> None:
        self.weight = _parameter((outputs, inputs), inputs, dtype)
        self.bias = _parameter((outputs,), inputs, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        product = FUNCTIONS["matmul"](x, Plain(self.weight.a.T))
        return product if self.bias is None else FUNCTIONS["add"](product, self.bias.value)


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x = d.new(shape, "i64" if d.is_float else d.dtype, "below 4")
    width = d.pick(1, 3, 16)
    seeded(d)
    d.setup.append(f"layer = st.nn.Embedding(4, {width}{', ' + dtype_keyword(d) if d.is_float else ''})")
    if d.is_float:
        written(d, (4, width), percent=80 if d.smooth else 30)
    return f"layer({x})"


@row("nn.Embedding", draw)
class Embedding(Layer):
    def __init__(self, count: int, width: int, *, dtype: Any = F32) -> None:
        self.weight = Variable(normal((count, width), dtype=dtype))

    def forward(self, x: Any) -> Any:
        return FUNCTIONS["take"](self.weight.value, x, axis=0)


def draw(d: Draw) -> str:
    x = d.new((d.pick(1, 3), d.pick(1, 4)), "i64" if d.is_float else d.dtype, "below 4")
    width, mode = d.pick(1, 3, 16), d.pick("sum", "mean", "max")
    seeded(d)
    padding = d.pick("", ", padding_idx=2", ", include_last_offset=True")
    d.setup.append(
        f"layer = st.nn.EmbeddingBag(4, {width}, mode={mode!r}{padding}{', ' + dtype_keyword(d) if d.is_float else ''})"
    )
    if d.is_float:
        written(d, (4, width), percent=80 if d.smooth else 30)
    return f"layer({x})"


@row("nn.EmbeddingBag", draw)
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


def _held(variable: Any) -> Any:
    return None if variable is None else variable.value


def _convolved(function: str, axes: int, is_transposed: bool = False) -> type[Layer]:
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


def draw(d: Draw) -> str:
    n = min(d.extent(), 67)
    a, b, bias = d.new((n, 3), values="small"), d.new((n, 2), values="small"), d.pick("", ", bias=False")
    made(d, f"3, 2, 4{bias}")
    written(d, (4, 3, 2))
    return f"layer({a}, {b})"


@row("nn.Bilinear", draw)
class Bilinear(Layer):
    def __init__(self, one: int, two: int, outputs: int, bias: bool = True, *, dtype: Any = F32) -> None:
        self.weight = _parameter((outputs, one, two), one, dtype)
        self.bias = _parameter((outputs,), one, dtype) if bias else None

    def forward(self, a: Any, b: Any) -> Any:
        return FUNCTIONS["bilinear"](a, b, self.weight.value, _held(self.bias))


def _convolution(rank: int, is_transposed: bool = False, kernels: tuple[int, ...] = (1, 2), most: int = 4) -> Call:
    def text(d: Draw) -> str:
        groups = d.pick(1, 1, 2)
        shape = (image if most == 4 else large_image)(d, groups, rank)
        if is_transposed:
            shape = (*shape[:2], *(min(extent, most) for extent in shape[2:]))
        x, out = d.new(shape, values="small"), groups * d.pick(1, 2)
        kernel = 1 if d.kind == "one" else d.pick(*kernels)
        rest = d.pick("", ", stride=2", ", bias=False") + ("" if kernel == 1 else d.pick("", ", padding=1"))
        made(d, f"{shape[1]}, {out}, {kernel}{rest}, groups={groups}")
        sizes = (shape[1], out // groups) if is_transposed else (out, shape[1] // groups)
        written(d, (*sizes, *(kernel,) * rank))
        return f"layer({x})"

    return text


row("nn.Conv1d", _convolution(1, kernels=(1, 2, 3), most=5), _convolved("conv1d", 1))
row("nn.Conv2d", _convolution(2, kernels=(1, 2, 3), most=5), _convolved("conv2d", 2))
row("nn.Conv3d", _convolution(3), _convolved("conv3d", 3))
row("nn.ConvTranspose1d", _convolution(1, True), _convolved("conv_transpose1d", 1, True))
row("nn.ConvTranspose2d", _convolution(2, True, (1, 2, 3), 5), _convolved("conv_transpose2d", 2, True))
row("nn.ConvTranspose3d", _convolution(3, True), _convolved("conv_transpose3d", 3, True))
