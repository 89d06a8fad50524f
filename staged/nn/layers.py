"""Layers with torch's names, parameters, defaults, initialisation and layouts."""

from __future__ import annotations

import math
from typing import Any

import staged as st
from staged.nn.module import Module


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _check_dtype(layer: str, x: Any, weight: Any) -> None:
    """Data of another float dtype is refused: promotion would quietly run the whole network in f64."""
    if x.dtype != weight.dtype:
        raise st.DTypeError(
            f"{layer} has {weight.dtype} parameters, its input is {x.dtype}",
            where=st.here(),
            hint=f"cast the data (`st.astype(x, st.{weight.dtype})`, in NumPy `x.astype({weight.dtype.numpy})`), "
            f"or make the layer with `dtype=st.{x.dtype}`",
        )


def _uniform(shape: tuple[int, ...], fan_in: int, dtype: Any) -> Any:
    """A parameter drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in)): torch's default for Linear and Conv2d.

    Source: `torch.nn.init.kaiming_uniform_` with a = sqrt(5), which comes to this bound.
    """
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return st.Variable(st.random.uniform(shape, low=-bound, high=bound, dtype=dtype))


class Linear(Module):
    """`y = x @ weight.T + bias`.

    Shapes: x (..., in_features); weight (out_features, in_features); bias (out_features,); y (..., out_features).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = st.f32) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = _uniform((out_features, in_features), in_features, dtype)
        self.bias = _uniform((out_features,), in_features, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Apply the affine map to the last axis of `x`."""
        _check_dtype("Linear", x, self.weight)
        if not x.shape or x.shape[-1] != self.in_features:
            raise st.ShapeError(
                f"Linear has {self.in_features} input features, its input is {x.shape}",
                where=st.here(),
                hint=f"make it `Linear({x.shape[-1] if x.shape else 1}, {self.out_features})`, or reshape the input",
            )
        y = x @ st.matrix_transpose(self.weight.value)
        return y if self.bias is None else y + self.bias.value


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
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = st.f32,
    ) -> None:
        kernel = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        fan_in = in_channels // groups * kernel[0] * kernel[1]
        self.weight = _uniform((out_channels, in_channels // groups, *kernel), fan_in, dtype)
        self.bias = _uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """Convolve `x` with the weight and add the bias of each output channel."""
        _check_dtype("Conv2d", x, self.weight)
        y = st.conv2d(
            x, self.weight.value, stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups
        )
        if self.bias is None:
            return y
        return y + st.reshape(self.bias.value, (1, -1, 1, 1))


class ReLU(Module):
    """max(x, 0), element by element; its derivative at 0 is 0."""

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.relu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.sigmoid(x)


class Tanh(Module):
    """tanh(x), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.tanh(x)


class GELU(Module):
    """x Phi(x), exactly or by the tanh approximation. Source: Hendrycks and Gimpel, 2016."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.gelu(x, approximate=self.approximate)


class _Pool2d(Module):
    """What pooling layers share: window, stride (the window's by default) and padding."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        self.kernel_size = _pair(kernel_size)
        self.stride = self.kernel_size if stride is None else _pair(stride)
        self.padding = _pair(padding)


class MaxPool2d(_Pool2d):
    """The maximum of each window of (N, C, H, W); ties give their gradient to the first."""

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.max_pool2d(x, self.kernel_size, stride=self.stride, padding=self.padding)


class AvgPool2d(_Pool2d):
    """The mean of each window of (N, C, H, W)."""

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.avg_pool2d(x, self.kernel_size, stride=self.stride, padding=self.padding)


class Flatten(Module):
    """Join the axes from `start_dim` to `end_dim` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Any) -> Any:
        """Apply it."""
        end = self.end_dim % len(x.shape)
        middle = math.prod(x.shape[self.start_dim : end + 1])
        return st.reshape(x, (*x.shape[: self.start_dim], middle, *x.shape[end + 1 :]))


class Dropout(Module):
    """In training, zero each element with probability `p` and scale the others by 1 / (1 - p).

    The mask comes from the program's counter-based generator. Source: Srivastava et al., 2014.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Any) -> Any:
        """Apply it; the identity in evaluation mode."""
        return st.dropout(x, self.p, training=self.training)


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes. Source: Ba, Kiros and Hinton, 2016."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = st.f32,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = st.Variable(st.ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.bias = st.Variable(st.zeros(self.normalized_shape, dtype=dtype)) if elementwise_affine and bias else None

    def forward(self, x: Any) -> Any:
        """Apply it."""
        if self.weight is not None:
            _check_dtype("LayerNorm", x, self.weight)
        weight = None if self.weight is None else self.weight.value
        bias = None if self.bias is None else self.bias.value
        return st.layer_norm(x, self.normalized_shape, weight, bias, eps=self.eps)


class Embedding(Module):
    """Rows of a table, by index; the table starts from N(0, 1) as in torch.

    Shapes: indices (...) integer, 0 <= index < num_embeddings; result (..., embedding_dim).
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = st.f32) -> None:
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.weight = st.Variable(st.random.normal((num_embeddings, embedding_dim), dtype=dtype))

    def forward(self, indices: Any) -> Any:
        """Look up; an index out of range stops the program with the line."""
        return st.take(self.weight.value, indices, axis=0)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return st.softmax(x, axis=self.dim)


class CrossEntropyLoss(Module):
    """Mean negative log-likelihood of integer labels under softmax(logits), in nats."""

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, logits: Any, labels: Any) -> Any:
        """Shapes: logits (batch, classes), labels (batch,) integer."""
        return st.cross_entropy(logits, labels, reduction=self.reduction)


class MSELoss(Module):
    """Mean of the squared differences."""

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.mse_loss(prediction, target, reduction=self.reduction)
