"""Layers that trade channels for resolution, resize, or treat channels and pairs of features."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import Parameter, check_dtype, check_inplace, check_probability, check_sizes, uniform


class PixelShuffle(Module):
    """Channels traded for resolution: (.., C * r^2, H, W) to (.., C, H * r, W * r). Source: Shi et al., 2016."""

    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        check_sizes("PixelShuffle", upscale_factor=upscale_factor)
        self.upscale_factor = upscale_factor

    def forward(self, x: Any) -> Any:
        """(.., C * r^2, H, W) to (.., C, H * r, W * r)."""
        return st.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """The inverse of `PixelShuffle`: (.., C, H * r, W * r) to (.., C * r^2, H, W)."""

    _shown = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        check_sizes("PixelUnshuffle", downscale_factor=downscale_factor)
        self.downscale_factor = downscale_factor

    def forward(self, x: Any) -> Any:
        """(.., C, H * r, W * r) to (.., C * r^2, H, W)."""
        return st.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(Module):
    """The channels of (N, C, ..) dealt out anew over groups. Source: Zhang et al., ShuffleNet, 2018."""

    _shown = ("groups",)

    def __init__(self, groups: int) -> None:
        check_sizes("ChannelShuffle", groups=groups)
        self.groups = groups

    def forward(self, x: Any) -> Any:
        """(N, C, ..) to the same shape."""
        return st.channel_shuffle(x, self.groups)


class Unflatten(Module):
    """One axis divided into several."""

    _shown = ("dim", "unflattened_size")

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        if not isinstance(dim, int):
            raise st.ArgumentError(
                f"Unflatten: axes have no names here, got {dim!r}", where=st.here(), hint="name the axis by its number"
            )
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, x: Any) -> Any:
        """Return `x` with the axis divided."""
        return st.unflatten(x, self.dim, self.unflattened_size)


class Unfold(Module):
    """Each window of images as a column: (N, C, H, W) to (N, C * kH * kW, windows)."""

    _shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        dilation: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        stride: int | tuple[int, int] = 1,
    ) -> None:
        check_sizes("Unfold", kernel_size=kernel_size, dilation=dilation, stride=stride)
        check_sizes("Unfold", 0, padding=padding)
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) to (N, C * kH * kW, windows)."""
        return st.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """The transpose of `Unfold`: columns added up where their windows are."""

    _shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self,
        output_size: int | tuple[int, int],
        kernel_size: int | tuple[int, int],
        dilation: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        stride: int | tuple[int, int] = 1,
    ) -> None:
        check_sizes("Fold", output_size=output_size, kernel_size=kernel_size, dilation=dilation, stride=stride)
        check_sizes("Fold", 0, padding=padding)
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, x: Any) -> Any:
        """(N, C * kH * kW, windows) to (N, C, *output_size)."""
        return st.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Upsample(Module):
    """(N, C, ..) at another `size`, or at `scale_factor` times its own; see `st.interpolate`."""

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.scale_factor: Any = None
        if isinstance(scale_factor, tuple | list):
            self.scale_factor = tuple(map(float, scale_factor))
        elif scale_factor is not None:
            self.scale_factor = float(scale_factor)
        self.recompute_scale_factor = recompute_scale_factor

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        given = f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None else f"size={self.size!r}"
        return f"{given}, mode={self.mode!r}"

    def forward(self, x: Any) -> Any:
        """(N, C, ..) to (N, C, *size)."""
        return st.interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )


class UpsamplingNearest2d(Upsample):
    """(N, C, H, W) at another size by its nearest elements."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """(N, C, H, W) at another size by lines between its elements, of which the corners stay."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class LocalResponseNorm(Module):
    """x / (k + alpha * m)^beta, of the mean m of squares of neighbouring channels. Source: Krizhevsky, 2012."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        check_sizes("LocalResponseNorm", size=size)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"

    def forward(self, x: Any) -> Any:
        """(N, C, ..) to the same shape."""
        return st.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


class PReLU(Module):
    """x where x > 0, a weight times x elsewhere: one weight, or one for each channel. Source: He et al., 2015."""

    _shown = ("num_parameters",)

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = st.f32) -> None:
        check_sizes("PReLU", num_parameters=num_parameters)
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(st.full((num_parameters,), init, dtype=dtype))

    def forward(self, x: Any) -> Any:
        """Apply to each element; the channels are axis 1."""
        check_dtype("PReLU", x, self.weight)
        return st.prelu(x, self.weight.value)


class RReLU(Module):
    """x where x > 0, elsewhere x times a slope drawn from U(lower, upper) in training. Source: Xu et al., 2015."""

    _shown = ("lower", "upper")

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False, *, generator: Any = None
    ) -> None:
        check_inplace("RReLU", inplace)
        self.lower, self.upper, self.generator = lower, upper, generator

    def forward(self, x: Any) -> Any:
        """Apply to each element; in evaluation the slope is (lower + upper) / 2."""
        return st.rrelu(x, self.lower, self.upper, self.training, generator=self.generator)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W), at every place."""

    def forward(self, x: Any) -> Any:
        """The result has the shape of `x`, and sums to 1 along the channels."""
        if x.ndim not in (3, 4):
            raise st.ShapeError(f"Softmax2d takes (N, C, H, W) or (C, H, W), got {x.shape}", where=st.here())
        return st.softmax(x, -3)


class Bilinear(Module):
    """y = x1^T A x2 + b, with a matrix A for each output.

    Shapes: x1 (.., in1_features), x2 (.., in2_features); weight (out_features, in1_features, in2_features).
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, *, dtype: Any = st.f32
    ) -> None:
        check_sizes("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = uniform((out_features, in1_features, in2_features), in1_features, dtype)
        self.bias = uniform((out_features,), in1_features, dtype) if bias else None

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        inputs = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{inputs}, out_features={self.out_features}, bias={self.bias is not None}"

    def forward(self, x1: Any, x2: Any) -> Any:
        """Map both inputs, whose leading axes are the same."""
        check_dtype("Bilinear", x1, self.weight)
        return st.bilinear(x1, x2, self.weight.value, None if self.bias is None else self.bias.value)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along `dim`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x1: Any, x2: Any) -> Any:
        """Both of the same shape; the result lacks `dim`."""
        return st.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps over the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Any, x2: Any) -> Any:
        """Both (.., D); the result is (..), or (.., 1) with `keepdim`."""
        return st.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


# ---- dropped channels -----------------------------------------------------------------------------


class _Dropout(Module):
    """Base of dropout layers: a probability, and torch's `inplace`, which is refused."""

    def __init__(self, p: float = 0.5, inplace: bool = False, *, generator: Any = None) -> None:
        check_probability(type(self).__name__, p)
        check_inplace(type(self).__name__, inplace)
        self.p, self.generator = p, generator

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them; `inplace` is always False."""
        return f"p={self.p}, inplace=False"


class Dropout1d(_Dropout):
    """In training, zero each channel of (N, C, L) with probability `p`. Source: Tompson et al., 2015."""

    def forward(self, x: Any) -> Any:
        """Drop channels in training; return `x` unchanged in evaluation."""
        return st.dropout1d(x, self.p, self.training, generator=self.generator)


class Dropout2d(_Dropout):
    """In training, zero each channel of (N, C, H, W) with probability `p`. Source: Tompson et al., 2015."""

    def forward(self, x: Any) -> Any:
        """Drop channels in training; return `x` unchanged in evaluation."""
        return st.dropout2d(x, self.p, self.training, generator=self.generator)


class Dropout3d(_Dropout):
    """In training, zero each channel of (N, C, D, H, W) with probability `p`. Source: Tompson et al., 2015."""

    def forward(self, x: Any) -> Any:
        """Drop channels in training; return `x` unchanged in evaluation."""
        return st.dropout3d(x, self.p, self.training, generator=self.generator)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1 behind SELU. Source: Klambauer et al., 2017."""

    def forward(self, x: Any) -> Any:
        """Drop elements in training; return `x` unchanged in evaluation."""
        return st.alpha_dropout(x, self.p, self.training, generator=self.generator)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels of (N, C, ..)."""

    def forward(self, x: Any) -> Any:
        """Drop channels in training; return `x` unchanged in evaluation."""
        return st.feature_alpha_dropout(x, self.p, self.training, generator=self.generator)
