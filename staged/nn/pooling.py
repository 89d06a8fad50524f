"""Pooling layers."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import check_sizes


class _Pool(Module):
    """Base of pooling layers: window, stride (the window by default) and padding."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None,
        padding: int | tuple[int, ...],
        ceil_mode: bool,
    ) -> None:
        layer = type(self).__name__
        check_sizes(layer, kernel_size=kernel_size, stride=kernel_size if stride is None else stride)
        check_sizes(layer, 0, padding=padding)
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode


class _MaxPool(_Pool):
    # torch has `dilation` and `return_indices` between `padding` and `ceil_mode`.
    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        *,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        window = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return f"{window}, dilation=1, ceil_mode={self.ceil_mode}"


class MaxPool2d(_MaxPool):
    """The maximum of each window of (N, C, H, W); the first of equal maxima receives the gradient."""

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) to (N, C, windows along H, windows along W)."""
        return st.max_pool2d(x, self.kernel_size, self.stride, self.padding, ceil_mode=self.ceil_mode)


class MaxPool1d(_MaxPool):
    """The maximum of each window of (N, C, L); the first of equal maxima receives the gradient."""

    def forward(self, x: Any) -> Any:
        """(N, C, L) to (N, C, windows along L)."""
        return st.max_pool1d(x, self.kernel_size, self.stride, self.padding, ceil_mode=self.ceil_mode)


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W)."""

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) to (N, C, windows along H, windows along W)."""
        return st.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L)."""

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        sizes = {"kernel_size": self.kernel_size, "stride": self.stride, "padding": self.padding}
        return ", ".join(f"{name}={(size,) if isinstance(size, int) else size}" for name, size in sizes.items())

    def forward(self, x: Any) -> Any:
        """(N, C, L) to (N, C, windows along L)."""
        return st.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _Adaptive(Module):
    def __init__(self, output_size: int | tuple[int | None, int | None]) -> None:
        self.output_size = output_size

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool2d(_Adaptive):
    """Average pooling of (N, C, H, W) to `output_size`, with windows spread evenly over the image."""

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) to (N, C, *output_size)."""
        return st.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveMaxPool2d(_Adaptive):
    """Maximum pooling of (N, C, H, W) to `output_size`, which must divide (H, W)."""

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) to (N, C, *output_size)."""
        return st.adaptive_max_pool2d(x, self.output_size)
