"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import check_dtype, check_option, check_sizes, pair, uniform


class _Convolution(Module):
    """Base of the convolutions: checks of constructor arguments and inputs, and printing."""

    axes: int
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
        """Raises: ArgumentError for sizes that there are not, ShapeError where channels do not divide into groups."""
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

    def per_axis(self, size: Any) -> tuple[int, ...]:
        """One size for each axis of the kernel."""
        if isinstance(size, int):
            return (size,) * self.axes
        if len(size) != self.axes:
            raise st.ShapeError(
                f"{type(self).__name__} has {self.axes} axes to slide along, got sizes {size}", where=st.here()
            )
        return tuple(size)

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


class Conv2d(_Convolution):
    """2-D cross-correlation over (batch, channels, height, width), as torch computes it.

    Shapes: x (N, in_channels, H, W); weight (out_channels, in_channels / groups, kH, kW); bias (out_channels,).
    """

    axes = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform((out_channels, in_channels // groups, *self.kernel_size), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        check_dtype("Conv2d", x, self.weight)
        bias = None if self.bias is None else self.bias.value
        x, padding = self.padded(x)
        return st.conv2d(x, self.weight.value, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Convolution):
    """1-D cross-correlation over (batch, channels, length).

    Shapes: x (N, in_channels, L); weight (out_channels, in_channels / groups, K); bias (out_channels,).
    """

    axes = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: int | tuple[int] | str = 0,
        dilation: int | tuple[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform((out_channels, in_channels // groups, *self.kernel_size), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        check_dtype("Conv1d", x, self.weight)
        bias = None if self.bias is None else self.bias.value
        x, padding = self.padded(x)
        padding = padding if isinstance(padding, str) else padding[0]
        return st.conv1d(x, self.weight.value, bias, self.stride[0], padding, self.dilation[0], self.groups)


class ConvTranspose2d(_Convolution):
    """The transpose of `Conv2d`, which spreads each element of (N, C, H, W) by the kernel.

    Shapes: x (N, in_channels, H, W); weight (in_channels, out_channels / groups, kH, kW); bias (out_channels,).
    """

    axes = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        output_padding: int | tuple[int, int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, int] = 1,
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        check_sizes("ConvTranspose2d", 0, output_padding=output_padding)
        self.output_padding = pair(output_padding)
        # torch counts the fan-in of the transposed weight: its axis 1.
        fan_in = out_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform((in_channels, out_channels // groups, *self.kernel_size), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Spread `x` by the weight and add the bias of each output channel."""
        check_dtype("ConvTranspose2d", x, self.weight)
        return st.conv_transpose2d(
            x,
            self.weight.value,
            None if self.bias is None else self.bias.value,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )


class Conv3d(_Convolution):
    """3-D cross-correlation over (batch, channels, depth, height, width).

    Shapes: x (N, in_channels, D, H, W); weight (out_channels, in_channels / groups, kD, kH, kW); bias (out_channels,).
    """

    axes = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int, int],
        stride: int | tuple[int, int, int] = 1,
        padding: int | tuple[int, int, int] | str = 0,
        dilation: int | tuple[int, int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform((out_channels, in_channels // groups, *self.kernel_size), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        check_dtype("Conv3d", x, self.weight)
        bias = None if self.bias is None else self.bias.value
        x, padding = self.padded(x)
        return st.conv3d(x, self.weight.value, bias, self.stride, padding, self.dilation, self.groups)


class _Transposed(_Convolution):
    """Base of transposed convolutions of lines and volumes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        *,
        dtype: Any = st.f32,
    ) -> None:
        layer = type(self).__name__
        check_sizes(layer, 0, padding=padding, output_padding=output_padding)
        self.check(in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        self.output_padding = self.per_axis(output_padding)
        # torch counts the fan-in of the transposed weight: its axis 1.
        fan_in = out_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform((in_channels, out_channels // groups, *self.kernel_size), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def arguments(self, x: Any) -> tuple[Any, ...]:
        """The arguments of the function, of an input of the weights' dtype."""
        check_dtype(type(self).__name__, x, self.weight)
        bias = None if self.bias is None else self.bias.value
        sizes = self.stride, self.padding, self.output_padding, self.groups, self.dilation
        return x, self.weight.value, bias, *sizes


class ConvTranspose1d(_Transposed):
    """The transpose of `Conv1d`, which spreads each element of (N, C, L) by the kernel.

    Shapes: x (N, in_channels, L); weight (in_channels, out_channels / groups, K); bias (out_channels,).
    """

    axes = 1

    def forward(self, x: Any) -> Any:
        """Spread `x` by the weight and add the bias of each output channel."""
        return st.conv_transpose1d(*self.arguments(x))


class ConvTranspose3d(_Transposed):
    """The transpose of `Conv3d`, which spreads each element of (N, C, D, H, W) by the kernel.

    Shapes: x (N, in_channels, D, H, W); weight (in_channels, out_channels / groups, kD, kH, kW); bias (out_channels,).
    """

    axes = 3

    def forward(self, x: Any) -> Any:
        """Spread `x` by the weight and add the bias of each output channel."""
        return st.conv_transpose3d(*self.arguments(x))
