"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

import staged as st
from staged.nn.parameters import check_dtype, check_option, check_sizes, uniform
from staged.nn.ranks import Ranked

Sizes = TypeVar("Sizes", bound=tuple[int, ...])


class _Convolution(Ranked, Generic[Sizes]):
    """Base of the convolutions: checks of constructor arguments and inputs, parameters, and printing."""

    padding: Any
    padding_mode = "zeros"

    def check(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        padding_mode: str = "zeros",
    ) -> None:
        """Raise ArgumentError for sizes below 1, and ShapeError if channels do not divide into groups."""
        layer = type(self).__name__
        check_sizes(layer, in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size)
        check_sizes(layer, stride=stride, dilation=dilation)
        if isinstance(padding, str):
            check_option(layer, "padding", padding, ("valid", "same"))
        else:
            check_sizes(layer, 0, padding=padding)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise st.ShapeError(
                f"{layer}: {in_channels} input and {out_channels} output channels do not divide into {groups} groups",
                where=st.here(),
            )
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, self.per_axis(kernel_size)
        self.stride, self.dilation, self.groups = self.per_axis(stride), self.per_axis(dilation), groups
        self.padding = padding if isinstance(padding, str) else self.per_axis(padding)
        check_option(layer, "padding_mode", padding_mode, ("zeros", "reflect", "replicate", "circular"))
        if padding_mode != "zeros" and padding == "same" and self.stride != (1,) * self.axes:
            raise st.ShapeError(f'{layer}: padding="same" needs a stride of 1, got {self.stride}', where=st.here())
        self.padding_mode = padding_mode

    def padded(self, x: Any) -> tuple[Any, Any]:
        """The input and the zeros that the convolution pads it with; elements of the input itself are put around it
        here.
        """
        if self.padding_mode == "zeros" or self.padding == "valid":
            return x, self.padding
        widths: list[int] = []  # of the last axis first
        for axis in reversed(range(self.axes)):
            around = self.dilation[axis] * (self.kernel_size[axis] - 1)
            both = (around // 2, around - around // 2) if self.padding == "same" else (self.padding[axis],) * 2
            widths += both
        return st.pad(x, pad=widths, mode=self.padding_mode), (0,) * self.axes

    def extra_repr(self) -> str:
        """The sizes, and each option that differs from its default, as `repr` shows them."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        zeros, ones = (0,) * self.axes, (1,) * self.axes
        parts += [f"padding={self.padding}"] if self.padding != zeros else []
        parts += [f"dilation={self.dilation}"] if self.dilation != ones else []
        output_padding = getattr(self, "output_padding", zeros)
        parts += [f"output_padding={output_padding}"] if output_padding != zeros else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if getattr(self, "bias", None) is None else []
        parts += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(parts)

    def parameters_of(self, rows: int, columns: int, bias: bool, dtype: Any) -> None:
        """Draw the weight (rows, columns / groups, *kernel_size), whose axis 1 gives the fan-in, and the bias."""
        shape = rows, columns // self.groups, *self.kernel_size
        fan_in = math.prod(shape[1:])
        self.weight = uniform(shape, fan_in, dtype)
        self.bias = uniform((self.out_channels,), fan_in, dtype) if bias else None

    def operands(self, x: Any) -> tuple[Any, Any]:
        """The weight, and the bias or None, for an input of their dtype."""
        check_dtype(type(self).__name__, x, self.weight)
        return self.weight.value, None if self.bias is None else self.bias.value


class _Conv(_Convolution[Sizes]):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sizes,
        stride: int | Sizes = 1,
        padding: int | Sizes | str = 0,
        dilation: int | Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.parameters_of(out_channels, in_channels, bias, dtype)

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        weight, bias = self.operands(x)
        x, padding = self.padded(x)
        return self.function(x, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv[tuple[int]], axes=1, function=st.conv1d):
    """1-D cross-correlation over (batch, channels, length).

    Shapes: x (N, in_channels, L); weight (out_channels, in_channels / groups, K); bias (out_channels,).
    """


class Conv2d(_Conv[tuple[int, int]], axes=2, function=st.conv2d):
    """2-D cross-correlation over (batch, channels, height, width), as torch computes it.

    Shapes: x (N, in_channels, H, W); weight (out_channels, in_channels / groups, kH, kW); bias (out_channels,).
    """


class Conv3d(_Conv[tuple[int, int, int]], axes=3, function=st.conv3d):
    """3-D cross-correlation over (batch, channels, depth, height, width).

    Shapes: x (N, in_channels, D, H, W); weight (out_channels, in_channels / groups, kD, kH, kW); bias (out_channels,).
    """


class _Transposed(_Convolution[Sizes]):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sizes,
        stride: int | Sizes = 1,
        padding: int | Sizes = 0,
        output_padding: int | Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sizes = 1,
        *,
        dtype: Any = st.f32,
    ) -> None:
        check_sizes(type(self).__name__, 0, padding=padding, output_padding=output_padding)
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        self.output_padding = self.per_axis(output_padding)
        self.parameters_of(in_channels, out_channels, bias, dtype)

    def forward(self, x: Any) -> Any:
        """Spread `x` by the weight and add the bias of each output channel."""
        sizes = self.stride, self.padding, self.output_padding, self.groups, self.dilation
        return self.function(x, *self.operands(x), *sizes)


class ConvTranspose1d(_Transposed[tuple[int]], axes=1, function=st.conv_transpose1d):
    """The transpose of `Conv1d`, which spreads each element of (N, C, L) by the kernel.

    Shapes: x (N, in_channels, L); weight (in_channels, out_channels / groups, K); bias (out_channels,).
    """


class ConvTranspose2d(_Transposed[tuple[int, int]], axes=2, function=st.conv_transpose2d):
    """The transpose of `Conv2d`, which spreads each element of (N, C, H, W) by the kernel.

    Shapes: x (N, in_channels, H, W); weight (in_channels, out_channels / groups, kH, kW); bias (out_channels,).
    """


class ConvTranspose3d(_Transposed[tuple[int, int, int]], axes=3, function=st.conv_transpose3d):
    """The transpose of `Conv3d`, which spreads each element of (N, C, D, H, W) by the kernel.

    Shapes: x (N, in_channels, D, H, W); weight (in_channels, out_channels / groups, kD, kH, kW); bias (out_channels,).
    """
