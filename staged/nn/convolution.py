"""Convolution layers."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import check_dtype, pair, uniform


def check_groups(layer: str, in_channels: int, out_channels: int, groups: int) -> None:
    """Channels divide into groups, or a ShapeError says so where the layer is made."""
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise st.ShapeError(
            f"{layer}: {in_channels} input and {out_channels} output channels do not divide into {groups} groups",
            where=st.here(),
        )


class Conv2d(Module):
    """2-D cross-correlation over (batch, channels, height, width), as torch computes it.

    Shapes: x (N, in_channels, H, W); weight (out_channels, in_channels / groups, kH, kW); bias (out_channels,).
    """

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
        dtype: Any = st.f32,
    ) -> None:
        check_groups("Conv2d", in_channels, out_channels, groups)
        kernel = pair(kernel_size)
        self.stride = pair(stride)
        self.padding = padding if isinstance(padding, str) else pair(padding)
        self.dilation = pair(dilation)
        self.groups = groups
        fan_in = in_channels // groups * kernel[0] * kernel[1]
        self.weight = uniform((out_channels, in_channels // groups, *kernel), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        check_dtype("Conv2d", x, self.weight)
        y = st.conv2d(
            x, self.weight.value, stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups
        )
        if self.bias is None:
            return y
        return y + st.reshape(self.bias.value, (1, -1, 1, 1))


class Conv1d(Module):
    """1-D cross-correlation over (batch, channels, length).

    Shapes: x (N, in_channels, L); weight (out_channels, in_channels / groups, K); bias (out_channels,).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = st.f32,
    ) -> None:
        check_groups("Conv1d", in_channels, out_channels, groups)
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        fan_in = in_channels // groups * kernel_size
        self.weight = uniform((out_channels, in_channels // groups, kernel_size), fan_in, dtype)
        self.bias = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        check_dtype("Conv1d", x, self.weight)
        bias = None if self.bias is None else self.bias.value
        return st.conv1d(x, self.weight.value, bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose2d(Module):
    """The transpose of `Conv2d`, which spreads each element of (N, C, H, W) by the kernel.

    Shapes: x (N, in_channels, H, W); weight (in_channels, out_channels / groups, kH, kW); bias (out_channels,).
    """

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
        dtype: Any = st.f32,
    ) -> None:
        check_groups("ConvTranspose2d", in_channels, out_channels, groups)
        kernel = pair(kernel_size)
        self.stride = pair(stride)
        self.padding = pair(padding)
        self.output_padding = pair(output_padding)
        self.groups = groups
        self.dilation = pair(dilation)
        # torch counts the fan-in of the transposed weight: its axis 1.
        fan_in = out_channels // groups * kernel[0] * kernel[1]
        self.weight = uniform((in_channels, out_channels // groups, *kernel), fan_in, dtype)
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
