"""Pooling layers."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.parameters import check_sizes
from staged.nn.ranks import Ranked


class _Pool(Ranked):
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
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        check_sizes(type(self).__name__, dilation=dilation)
        self.dilation = dilation
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        """(N, C, ...) to (N, C, windows along each axis); with `return_indices` the indices too."""
        options = {"dilation": self.dilation, "ceil_mode": self.ceil_mode, "return_indices": self.return_indices}
        return self.function(x, self.kernel_size, self.stride, self.padding, **options)


class MaxPool1d(_MaxPool, function=st.max_pool1d):
    """The maximum of each window of (N, C, L); the first of equal maxima receives the gradient."""


class MaxPool2d(_MaxPool, function=st.max_pool2d):
    """The maximum of each window of (N, C, H, W); the first of equal maxima receives the gradient."""


class MaxPool3d(_MaxPool, function=st.max_pool3d):
    """The maximum of each window of (N, C, D, H, W); the first of equal maxima receives the gradient."""


class _AvgPool(_Pool):
    _shown = ("kernel_size", "stride", "padding")

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

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the function after the input."""
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad

    def forward(self, x: Any) -> Any:
        """(N, C, ...) to (N, C, windows along each axis)."""
        return self.function(x, *self.arguments())


class _AvgPoolOfPlanes(_AvgPool):
    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the function after the input."""
        return *super().arguments(), self.divisor_override


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L)."""

    function = staticmethod(st.avg_pool1d)

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        sizes = {"kernel_size": self.kernel_size, "stride": self.stride, "padding": self.padding}
        return ", ".join(f"{name}={(size,) if isinstance(size, int) else size}" for name, size in sizes.items())


class AvgPool2d(_AvgPoolOfPlanes, function=st.avg_pool2d):
    """The mean of each window of (N, C, H, W); with `divisor_override` its sum, divided by that."""


class AvgPool3d(_AvgPoolOfPlanes, function=st.avg_pool3d):
    """The mean of each window of (N, C, D, H, W); with `divisor_override` its sum, divided by that."""


class _Adaptive(Ranked):
    _shown = ("output_size",)

    def __init__(self, output_size: int | tuple[int | None, ...]) -> None:
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        """(N, C, ...) to (N, C, *output_size)."""
        return self.function(x, self.output_size)


class AdaptiveAvgPool1d(_Adaptive, function=st.adaptive_avg_pool1d):
    """Average pooling of (N, C, L) to `output_size` elements, with windows spread evenly over the line."""


class AdaptiveAvgPool2d(_Adaptive, function=st.adaptive_avg_pool2d):
    """Average pooling of (N, C, H, W) to `output_size`, with windows spread evenly over the image."""


class AdaptiveAvgPool3d(_Adaptive, function=st.adaptive_avg_pool3d):
    """Average pooling of (N, C, D, H, W) to `output_size`, with windows spread evenly over the volume."""


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: int | tuple[int | None, ...], return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        """(N, C, ...) to (N, C, *output_size); with `return_indices` the indices too."""
        return self.function(x, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax, function=st.adaptive_max_pool1d):
    """Maximum pooling of (N, C, L) to `output_size` elements, with windows spread evenly over the line."""


class AdaptiveMaxPool2d(_AdaptiveMax, function=st.adaptive_max_pool2d):
    """Maximum pooling of (N, C, H, W) to `output_size`, with windows spread evenly over the image."""


class AdaptiveMaxPool3d(_AdaptiveMax, function=st.adaptive_max_pool3d):
    """Maximum pooling of (N, C, D, H, W) to `output_size`, with windows spread evenly over the volume."""


class _LPPool(Ranked):
    """Base of pools of norms: the power, the window and its stride."""

    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        ceil_mode: bool = False,
    ) -> None:
        check_sizes(type(self).__name__, kernel_size=kernel_size, stride=1 if stride is None else stride)
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, x: Any) -> Any:
        """(N, C, ...) to (N, C, windows along each axis)."""
        return self.function(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool, function=st.lp_pool1d):
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, L)."""


class LPPool2d(_LPPool, function=st.lp_pool2d):
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, H, W)."""


class LPPool3d(_LPPool, function=st.lp_pool3d):
    """The `norm_type`-th root of the sum of so high powers of each window of (N, C, D, H, W)."""


class _FractionalMaxPool(Ranked):
    """Base of pools with windows at pseudo-random distances."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        output_size: int | tuple[int, ...] | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        layer = type(self).__name__
        check_sizes(layer, kernel_size=kernel_size)
        if (output_size is None) == (output_ratio is None):
            raise st.ArgumentError(f"{layer} needs either output_size or output_ratio", where=st.here())
        self.kernel_size = self.per_axis(kernel_size)
        self.output_size = None if output_size is None else self.per_axis(output_size)
        self.output_ratio = None if output_ratio is None else self.per_axis(output_ratio)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, x: Any) -> Any:
        """(N, C, ...) to (N, C, *output_size); with `return_indices` the indices too."""
        samples = None if self._random_samples is None else self._random_samples.value
        return self.function(x, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, samples)


class FractionalMaxPool2d(_FractionalMaxPool, axes=2, function=st.fractional_max_pool2d):
    """The maximum of windows of (N, C, H, W) at pseudo-random distances. Source: Graham, 2014."""


class FractionalMaxPool3d(_FractionalMaxPool, axes=3, function=st.fractional_max_pool3d):
    """The maximum of windows of (N, C, D, H, W) at pseudo-random distances. Source: Graham, 2014."""


class _MaxUnpool(Ranked):
    """Base of inverses of maximum pools: window, stride (the window by default) and padding."""

    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
    ) -> None:
        layer = type(self).__name__
        check_sizes(layer, kernel_size=kernel_size, stride=1 if stride is None else stride)
        check_sizes(layer, 0, padding=padding)
        self.kernel_size = self.per_axis(kernel_size)
        self.stride = self.kernel_size if stride is None else self.per_axis(stride)
        self.padding = self.per_axis(padding)

    def forward(self, x: Any, indices: Any, output_size: Any = None) -> Any:
        """Both (N, C, windows along each axis), to (N, C, ...), or to `output_size`."""
        return self.function(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool, axes=1, function=st.max_unpool1d):
    """The maxima of `MaxPool1d` put back where they were, zeros elsewhere."""


class MaxUnpool2d(_MaxUnpool, axes=2, function=st.max_unpool2d):
    """The maxima of `MaxPool2d` put back where they were, zeros elsewhere."""


class MaxUnpool3d(_MaxUnpool, axes=3, function=st.max_unpool3d):
    """The maxima of `MaxPool3d` put back where they were, zeros elsewhere."""
