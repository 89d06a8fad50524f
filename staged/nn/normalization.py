"""Normalisation layers."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.call.api import plain_number
from staged.nn.module import Module
from staged.nn.parameters import Parameter, check_dtype, check_sizes
from staged.nn.ranks import Family


def _value(variable: Any) -> Any:
    return None if variable is None else variable.value


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes. Source: Ba, Kiros and Hinton, 2016."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(st.ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.bias = Parameter(st.zeros(self.normalized_shape, dtype=dtype)) if elementwise_affine and bias else None

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        affine = f"elementwise_affine={self.weight is not None}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"

    def forward(self, x: Any) -> Any:
        """Normalise the last axes, of shape `normalized_shape`."""
        if self.weight is not None:
            check_dtype("LayerNorm", x, self.weight)
        return st.layer_norm(x, self.normalized_shape, _value(self.weight), _value(self.bias), eps=self.eps)


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes. Source: Zhang and Sennrich, 2019."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = st.f32,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(st.ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"

    def forward(self, x: Any) -> Any:
        """Normalise the last axes, of shape `normalized_shape`."""
        if self.weight is not None:
            check_dtype("RMSNorm", x, self.weight)
        return st.rms_norm(x, self.normalized_shape, _value(self.weight), eps=self.eps)


class _ChannelNorm(Family):
    """Base of norms with a weight and a bias per channel."""

    def __init__(self, channels: int, eps: float, affine: bool, dtype: Any) -> None:
        self.eps = eps
        self.weight = Parameter(st.ones((channels,), dtype=dtype)) if affine else None
        self.bias = Parameter(st.zeros((channels,), dtype=dtype)) if affine else None

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        affine = f"affine={self.weight is not None}, bias={self.bias is not None}"
        return f"{self.sizes()}, eps={self.eps}{self.following()}, {affine}{self.tracking()}"

    def sizes(self) -> str:
        """The sizes given to the constructor."""
        raise TypeError(f"{type(self).__name__} has no sizes()")

    def following(self) -> str:
        """The momentum in `repr`, if the norm has running statistics."""
        return ""

    def tracking(self) -> str:
        """Return whether it has running statistics, where the kind of norm may have them."""
        return ""

    def check(self, x: Any, channels: int, ndims: tuple[int, ...]) -> None:
        """Refuse input of another dtype, number of axes or number of channels."""
        name = type(self).__name__
        if self.weight is not None:
            check_dtype(name, x, self.weight)
        if ndims and len(x.shape) not in ndims:
            axes = " or ".join(map(str, ndims))
            raise st.ShapeError(f"{name} takes input of {axes} axes, its input is {x.shape}", where=st.here())
        if len(x.shape) < 2 or x.shape[1] != channels:
            raise st.ShapeError(
                f"{name} has {channels} channels, its input is {x.shape}",
                where=st.here(),
                hint="axis 1 of the input holds the channels",
            )


class GroupNorm(_ChannelNorm):
    """Each sample's channels, in groups, normalised to mean 0 and variance 1. Source: Wu and He, 2018."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: Any = st.f32
    ) -> None:
        check_sizes("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise st.ShapeError(
                f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups",
                where=st.here(),
                hint="the number of groups comes first",
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        super().__init__(num_channels, eps, affine, dtype)

    def sizes(self) -> str:
        """Groups and channels."""
        return f"{self.num_groups}, {self.num_channels}"

    def forward(self, x: Any) -> Any:
        """Normalise an input of shape (N, C, ...)."""
        self.check(x, self.num_channels, ())
        return st.group_norm(x, self.num_groups, _value(self.weight), _value(self.bias), eps=self.eps)


class _StatisticsNorm(_ChannelNorm):
    """Base of norms with running statistics: `running_mean`, `running_var` and `num_batches_tracked`, as in torch."""

    ndims: tuple[int, ...] = ()
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track: bool, dtype: Any
    ) -> None:
        self.num_features = num_features
        self.momentum = momentum
        self.track_running_stats = track
        super().__init__(num_features, eps, affine, dtype)
        mean, var = st.zeros((num_features,), dtype=dtype), st.ones((num_features,), dtype=dtype)
        start = {"running_mean": mean, "running_var": var, "num_batches_tracked": st.asarray(0, dtype=st.i64)}
        for name, value in start.items():
            self.register_buffer(name, st.Variable(value) if track else None)

    def sizes(self) -> str:
        """The number of channels."""
        return str(self.num_features)

    def following(self) -> str:
        """The momentum of the running statistics, as `repr` shows it."""
        return f", momentum={self.momentum}"

    def tracking(self) -> str:
        """Return whether it has running statistics."""
        return f", track_running_stats={self.track_running_stats}"

    def follow(self, mean: Any, var: Any) -> None:
        """Move the running statistics towards those of a batch by `momentum`, or to the mean of all batches without
        one.
        """
        tracked = self.num_batches_tracked
        tracked.value = tracked.value + 1
        dtype = self.running_mean.dtype
        factor: Any = 1.0 / st.astype(tracked.value, dtype) if self.momentum is None else plain_number(self.momentum)
        if isinstance(factor, st.Array):  # one of another precision leaves the statistics theirs
            factor = st.astype(factor, dtype)
        for running, new in ((self.running_mean, mean), (self.running_var, var)):
            running.value = running.value * (1.0 - factor) + st.stop_gradient(new) * factor


class _BatchNorm(_StatisticsNorm):
    """Normalise each channel to mean 0 and variance 1: over the batch in training, by the running statistics in
    evaluation.

    `running_mean` and `running_var` (unbiased) follow the batches by `momentum`. They are buffers: saved in the
    `state_dict`, not trained. Source: Ioffe and Szegedy, 2015.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = st.f32,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Any) -> Any:
        """Normalise an input of shape (N, C, ...)."""
        self.check(x, self.num_features, self.ndims)
        weight, bias = _value(self.weight), _value(self.bias)
        if not self.training and self.running_mean is not None:
            mean, var = self.running_mean.value, self.running_var.value
            return st.batch_norm(x, mean, var, weight, bias, eps=self.eps)
        y, mean, var = self.of_batch(x, weight, bias)
        if self.training and self.track_running_stats and self.running_mean is not None:
            self.follow(mean, var)
        return y

    def of_batch(self, x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
        """The normalised input, and the mean and the unbiased variance of the batch."""
        return st.batch_norm_training(x, weight, bias, eps=self.eps, correction=1)


class BatchNorm1d(_BatchNorm, ndims=(2, 3)):
    """Batch norm of (N, C) or (N, C, L)."""


class BatchNorm2d(_BatchNorm, ndims=(4,)):
    """Batch norm of (N, C, H, W)."""


class BatchNorm3d(_BatchNorm, ndims=(5,)):
    """Batch norm of (N, C, D, H, W)."""


class SyncBatchNorm(_BatchNorm):
    """Batch norm of (N, C, ...) over the rows of all ranks, as torch's `nn.SyncBatchNorm`.

    The mean and the variance are those of the whole batch, by `st.all_reduce`, and so is the derivative. On one rank it
    is `BatchNorm1d`, `BatchNorm2d` or `BatchNorm3d`. The other batch norms have statistics of one rank: in training on
    local inputs, they raise an error.
    """

    def of_batch(self, x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
        """The normalised input, and the mean and the unbiased variance of the batch of all ranks."""
        axes = (0, *range(2, len(x.shape)))
        centre = st.all_reduce(st.mean(x, axes), "mean")
        per_channel = (1, -1, *(1,) * (len(x.shape) - 2))
        var = st.all_reduce(st.mean(st.square(x - st.reshape(centre, per_channel)), axes), "mean")
        y = st.batch_norm(x, centre, var, weight, bias, eps=self.eps)
        count = st.ranks() * (x.size // x.shape[1])
        return y, centre, var * (st.astype(count, var.dtype) / st.astype(count - 1, var.dtype))


class _InstanceNorm(_StatisticsNorm):
    """Each channel of each sample normalised to mean 0 and variance 1; with `track_running_stats` by the running
    statistics in evaluation.

    Source: Ulyanov, Vedaldi and Lempitsky, 2016.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        dtype: Any = st.f32,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Any) -> Any:
        """Normalise an input of shape (N, C, ...)."""
        self.check(x, self.num_features, self.ndims)
        weight, bias = _value(self.weight), _value(self.bias)
        if not self.training and self.running_mean is not None:
            mean, var = self.running_mean.value, self.running_var.value
            return st.batch_norm(x, mean, var, weight, bias, eps=self.eps)
        y = st.instance_norm(x, weight=weight, bias=bias, eps=self.eps)
        if self.training and self.track_running_stats and self.running_mean is not None:
            self.follow_samples(x)
        return y

    def follow_samples(self, x: Any) -> None:
        """Move the running statistics towards the means over the samples, by `momentum`: by 0 without one, as torch,
        which does not count batches here.
        """
        axes = tuple(range(2, x.ndim))
        factor = 0.0 if self.momentum is None else plain_number(self.momentum)
        of_samples = st.mean(x, axis=axes), st.var(x, axis=axes, correction=1)
        for running, new in zip((self.running_mean, self.running_var), of_samples, strict=True):
            seen = st.stop_gradient(st.mean(new, axis=0))
            running.value = running.value * (1.0 - factor) + seen * factor


class InstanceNorm1d(_InstanceNorm, ndims=(3,)):
    """Instance norm of (N, C, L)."""


class InstanceNorm2d(_InstanceNorm, ndims=(4,)):
    """Instance norm of (N, C, H, W)."""


class InstanceNorm3d(_InstanceNorm, ndims=(5,)):
    """Instance norm of (N, C, D, H, W)."""
