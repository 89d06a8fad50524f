"""Layers with weights of eight bits, for inference: `staged.quantize` makes them of trained ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import staged as st
from staged.eager_mode.context import is_plain
from staged.errors import article
from staged.nn.attention import MultiheadAttention
from staged.nn.convolution import Conv1d, Conv2d
from staged.nn.layers import Linear
from staged.nn.module import Module
from staged.nn.parameters import check_dtype
from staged.quantization import MOST, in_i8, rows_in_i8, sums_in


class _Quantized(Module):
    """Base of the layers: `qweight` (i8), `weight_scale` (one per output channel), `bias`, and `input_scale` if static.

    They are buffers: nothing of them is trained.
    """

    def __init__(self, layer: Any, input_scale: float | None, path: str) -> None:
        self.layer, self.sizes = type(layer).__name__, layer.extra_repr()
        weight = np.asarray(layer.weight.saved())
        dtype = layer.weight.dtype
        if not np.isfinite(weight.astype(np.float64)).all():
            raise st.ArgumentError(f"quantize: the weight of `{path}` has NaN or infinite elements", where=st.here())
        self.sums = sums_in(math.prod(weight.shape[1:]))
        integers, scales = rows_in_i8(weight.astype(np.float32) if dtype.is_half else weight)
        parts = {"qweight": self.stored(integers), "weight_scale": scales.astype(dtype.numpy)}
        if layer.bias is not None:
            parts["bias"] = np.asarray(layer.bias.saved())
        if input_scale is not None:
            parts["input_scale"] = np.asarray(input_scale, dtype.numpy)
        prefix = layer.weight.name.removesuffix("weight")
        for name in ("qweight", "weight_scale", "bias", "input_scale"):
            given = parts.get(name)
            self.register_buffer(name, None if given is None else st.Variable(given, name=prefix + name))

    def stored(self, integers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The integers of the weight in the layout of `qweight`."""
        return integers

    def extra_repr(self) -> str:
        """The arguments of the layer that it was made of, and how inputs are quantised."""
        return f"{self.sizes}, input={'dynamic' if self.input_scale is None else 'static'}"

    def integers(self, x: Any) -> tuple[Any, Any]:
        """(the input in i8, a scale of the result for each output channel)."""
        check_dtype(self.layer, x, self.weight_scale)
        q, scale = in_i8(x, None if self.input_scale is None else self.input_scale.value)
        return q, scale * self.weight_scale.value

    def scaled(self, sums: Any, scale: Any) -> Any:
        """The sums of products of integers, whose last axis is the output channel, as floats with the bias."""
        y = st.astype(sums, scale.dtype) * scale
        return y if self.bias is None else y + self.bias.value


class QuantizedLinear(_Quantized):
    """`Linear` with a weight of i8, products of integers summed up in i32, and inputs quantised per array.

    Shapes: x (..., in_features); qweight (out_features, in_features) i8; weight_scale, bias (out_features,).
    """

    def forward(self, x: Any) -> Any:
        """Apply the affine map to the last axis of `x`."""
        q, scale = self.integers(x)
        if not x.shape or x.shape[-1] != self.qweight.shape[1]:
            raise st.ShapeError(
                f"Linear has {self.qweight.shape[1]} input features, its input is {x.shape}", where=st.here()
            )
        weight = st.matrix_transpose(self.qweight.value)
        return self.scaled(st.matmul(q, weight, dtype=self.sums), scale)


class QuantizedConv2d(_Quantized):
    """`Conv2d` with a weight of i8: each window is a row of a product of integers, summed up in i32.

    Shapes: x (N, C, H, W) or (C, H, W); qweight (O, kH, kW, C / groups) i8, channels last, so that a tap of a window is
    one run of bytes; weight_scale, bias (O,).
    """

    def __init__(self, layer: Any, input_scale: float | None, path: str) -> None:
        super().__init__(layer, input_scale, path)
        self.stride, self.dilation, self.groups = layer.stride, layer.dilation, layer.groups
        self.padding = layer.padding

    def stored(self, integers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The integers, channels last."""
        return np.ascontiguousarray(np.moveaxis(integers, 1, -1))

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        return self.convolved(x, self.qweight.value, self.stride, self.padding, self.dilation)

    def convolved(self, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> Any:
        """The convolution of images with a weight (O, kH, kW, C / groups) of i8."""
        (outputs, *kernel, per_group), groups = _sizes(self.layer, weight), self.groups
        taps = math.prod(kernel)
        if x.ndim not in (3, 4) or x.shape[-3] != per_group * groups:
            raise st.ShapeError(
                f"{self.layer} has {per_group * groups} input channels, its input is {x.shape}", where=st.here()
            )
        batched = x.ndim == 4
        q, scale = self.integers(x if batched else x[None])
        edges = _edges(kernel, padding, dilation)
        image = st.pad(st.permute_dims(q, (0, 2, 3, 1)), ((0, 0), *edges, (0, 0)))
        samples, *sizes, channels = _sizes(self.layer, image)
        counts = [
            (size - apart * (count - 1) - 1) // step + 1
            for size, apart, count, step in zip(sizes, dilation, kernel, stride, strict=True)
        ]
        if min(counts) < 1:
            raise st.ShapeError(
                f"{self.layer}: the kernel {tuple(kernel)} is larger than the padded input {x.shape}", where=st.here()
            )
        rows, columns = (
            st.expand_dims(st.arange(count) * step, 1) + st.arange(width) * apart
            for count, step, width, apart in zip(counts, stride, kernel, dilation, strict=True)
        )
        # By window row, window column, row of the kernel, column of the kernel.
        pixel = st.reshape(rows * sizes[1], (counts[0], 1, kernel[0], 1)) + st.reshape(
            columns, (1, counts[1], 1, kernel[1])
        )
        pixels = st.reshape(image, (samples, sizes[0] * sizes[1], channels))
        windows = st.take(pixels, st.reshape(pixel, (-1,)), axis=1)
        if groups == 1:
            windows = st.reshape(windows, (samples * math.prod(counts), taps * channels))
            matrix = st.reshape(weight, (outputs, taps * channels))
            sums = st.matmul(windows, st.matrix_transpose(matrix), dtype=self.sums)
        else:
            shape = (samples * math.prod(counts), taps, groups, per_group)
            windows = st.permute_dims(st.reshape(windows, shape), (2, 0, 1, 3))
            windows = st.reshape(windows, (groups, shape[0], taps * per_group))
            matrix = st.reshape(weight, (groups, outputs // groups, taps * per_group))
            sums = st.matmul(windows, st.matrix_transpose(matrix), dtype=self.sums)
            sums = st.reshape(st.permute_dims(sums, (1, 0, 2)), (shape[0], outputs))
        y = st.reshape(self.scaled(sums, scale), (samples, *counts, outputs))
        y = st.permute_dims(y, (0, 3, 1, 2))
        return y if batched else y[0]


class QuantizedConv1d(QuantizedConv2d):
    """`Conv1d` with a weight of i8, as `QuantizedConv2d` on images of one row; qweight is (O, K, C / groups)."""

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        padding = self.padding if isinstance(self.padding, str) else (0, *self.padding)
        weight = st.expand_dims(self.qweight.value, 1)
        y = self.convolved(st.expand_dims(x, -2), weight, (1, *self.stride), padding, (1, *self.dilation))
        return st.squeeze(y, -2)


def _sizes(layer: str, x: Any) -> list[int]:
    """The extents of an array. Raises: ShapeError if one is known only when the program runs."""
    if not all(isinstance(extent, int) for extent in x.shape):
        raise st.ShapeError(
            f"{layer} with a weight of i8 needs sizes fixed while staging, its input is {x.shape}", where=st.here()
        )
    return list(x.shape)


def _edges(kernel: Any, padding: Any, dilation: Any) -> list[tuple[int, int]]:
    """The zeros before and after each axis; "same" has one more after than before, as torch has it."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        reaches = [apart * (taps - 1) for apart, taps in zip(dilation, kernel, strict=True)]
        return [(reach // 2, reach - reach // 2) for reach in reaches]
    return [(edge, edge) for edge in padding]


KINDS: dict[type[Module], Callable[[Any, float | None, str], Module]] = {
    Linear: QuantizedLinear,
    Conv1d: QuantizedConv1d,
    Conv2d: QuantizedConv2d,
}
"""The class that a layer becomes, by its own; a class derived from one of them may have another `forward`."""
WHOLE = (MultiheadAttention,)
"""Layers that read the weights of their parts."""


class _Watched(Module):
    """A layer that keeps the largest size of an element that it was given."""

    def __init__(self, layer: Module, path: str) -> None:
        self.layer, self.path, self.largest = layer, path, -1.0

    def forward(self, x: Any) -> Any:
        """The layer's result."""
        size = np.max(np.abs(np.asarray(x, np.float64)), initial=0.0)
        self.largest = float(np.maximum(self.largest, size))  # keeps a NaN, which `max` would lose
        return self.layer(x)


def quantize(model: Any, calibration_data: Iterable[Any] | None = None, dtype: Any = st.i8) -> Any:
    """A copy of a trained model for inference whose `Linear`, `Conv1d` and `Conv2d` have weights of eight bits.

    A weight becomes `qweight`, i8, symmetric, with a `weight_scale` for each output channel. The input of such a layer
    is quantised where it arrives: by its own largest element, or by an `input_scale` that is the largest one of
    `calibration_data`, batches that the model is called with (a tuple is several arguments). Products of the integers
    are summed up exactly, in i32. The `state_dict` has these names in place of `weight`. The copy is in evaluation mode
    and keeps all other layers, those inside of `MultiheadAttention` and classes derived from the three among them; a
    gradient through a quantised layer is refused.

    Raises: DTypeError for another dtype, ArgumentError if there is nothing to quantise, a weight or a batch has NaN or
    infinite elements, or a layer is not called by any batch. Source: Jacob et al., 2018; Krishnamoorthi, 2018.
    """
    if not is_plain():
        raise st.StagingError("`st.quantize` is called in plain Python: it reads the weights", where=st.here())
    if st.dtype_of(dtype) != st.i8:
        raise st.DTypeError(f"quantize: weights are quantised to i8, got {dtype!r}", where=st.here())
    if not isinstance(model, Module):
        raise st.ArgumentError(f"quantize takes an nn.Module, got {article(type(model).__name__)}", where=st.here())
    held = Module()
    _put(held, "model", copy.deepcopy(model).eval())
    places = list(_places(held))
    if not places:
        kinds = ", ".join(f"`{kind.__name__}`" for kind in KINDS)
        raise st.ArgumentError(f"quantize: {type(model).__name__} has no layer of {kinds}", where=st.here())
    scales: dict[str, float | None] = {}
    if calibration_data is not None:
        scales = _input_scales(held, places, calibration_data)
    made: dict[int, Module] = {}
    for holder, name, path in places:
        layer = holder.__dict__[name]
        if id(layer) not in made:
            made[id(layer)] = KINDS[type(layer)](layer, scales.get(path), path)
        _put(holder, name, made[id(layer)])
    return held.model


def _places(held: Module) -> Iterator[tuple[Module, str, str]]:
    """(holder, name in it, path) of each layer that is quantised."""
    for place, module in held._places():
        if isinstance(module, WHOLE):
            continue
        for name, child in module._submodules():
            if type(child) in KINDS:
                yield module, name, f"{place}{name}".removeprefix("model.")


def _put(holder: Module, name: str, module: Module) -> None:
    """Hold a module in the place of another: its Variables have their names already."""
    object.__setattr__(holder, name, module)


def _input_scales(
    held: Module, places: list[tuple[Module, str, str]], batches: Iterable[Any]
) -> dict[str, float | None]:
    """The scale of the input of each layer, by path, of the model's calls with the batches."""
    watched: dict[int, _Watched] = {}
    for holder, name, path in places:
        layer = holder.__dict__[name]
        _put(holder, name, watched.setdefault(id(layer), _Watched(layer, path)))
    for batch in batches:
        held.model(*(batch if isinstance(batch, tuple) else (batch,)))
    found: dict[str, float | None] = {}
    for holder, name, path in places:
        seen = holder.__dict__[name]
        if seen.largest < 0:
            raise st.ArgumentError(
                f"quantize: no batch of calibration_data reaches `{path}`",
                where=st.here(),
                hint="give batches as the model is called with, one for each argument in a tuple",
            )
        if not math.isfinite(seen.largest):
            raise st.ArgumentError(
                f"quantize: with calibration_data, the input of `{path}` has NaN or infinite elements", where=st.here()
            )
        found[path] = seen.largest / MOST or 1.0
        _put(holder, name, seen.layer)
    return found
