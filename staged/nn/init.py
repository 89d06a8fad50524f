"""Initial values of parameters, with the names and formulas of `torch.nn.init`. Each writes and returns a Variable."""

from __future__ import annotations

import math
from typing import Any

import staged as st
from staged.nn.parameters import check_option

_GAINS = {"linear": 1.0, "identity": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}
_GAINS |= dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1.0)


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0) -> Any:
    """Draw from U(a, b)."""
    return _write(tensor, st.random.uniform(tensor.shape, low=a, high=b, dtype=tensor.dtype))


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Draw from N(mean, std^2)."""
    return _write(tensor, st.random.normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype))


def trunc_normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Any:
    """Draw from N(mean, std^2), truncated to [a, b), as `st.random.truncated_normal`."""
    drawn = st.random.truncated_normal(tensor.shape, low=a, high=b, mean=mean, std=std, dtype=tensor.dtype)
    return _write(tensor, drawn)


def constant_(tensor: Any, val: float) -> Any:
    """Fill with one number."""
    return _write(tensor, st.full(tensor.shape, val, dtype=tensor.dtype))


def zeros_(tensor: Any) -> Any:
    """Fill with 0."""
    return constant_(tensor, 0)


def ones_(tensor: Any) -> Any:
    """Fill with 1."""
    return constant_(tensor, 1)


def eye_(tensor: Any) -> Any:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if len(tensor.shape) != 2:
        raise st.ShapeError(f"eye_ takes a matrix, got {tensor.shape}", where=st.here())
    return _write(tensor, st.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype))


def xavier_uniform_(tensor: Any, gain: float = 1.0) -> Any:
    """Draw from U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio, 2010."""
    bound = gain * math.sqrt(6.0 / max(sum(_fans(tensor)), 1))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Any, gain: float = 1.0) -> Any:
    """Draw from N(0, gain^2 2 / (fan_in + fan_out)). Source: Glorot and Bengio, 2010."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(_fans(tensor)), 1)))


def kaiming_uniform_(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    """Draw from U(-b, b), b = gain sqrt(3 / fan). Source: He et al., 2015."""
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    """Draw from N(0, gain^2 / fan). Source: He et al., 2015."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Fill a convolution's weight so that it keeps its input: 1 at the middle tap from a channel to itself."""
    shape = tensor.shape
    if len(shape) not in (3, 4, 5):
        raise st.ShapeError(f"dirac_ takes the weight of a convolution, of 3 to 5 axes, got {shape}", where=st.here())
    if groups < 1 or shape[0] % groups:
        raise st.ShapeError(f"dirac_: {shape[0]} output channels do not divide into {groups} groups", where=st.here())
    rows = st.arange(shape[0])
    per_group = max(shape[0] // groups, 1)
    hit = (rows % per_group)[:, None] == st.arange(shape[1])
    for extent in shape[2:]:
        hit = hit[..., None] & (st.arange(extent) == extent // 2)
    return _write(tensor, st.astype(hit, tensor.dtype))


def orthogonal_(tensor: Any, gain: float = 1) -> Any:
    """Fill a matrix (of the first axis and all others) with orthonormal rows or columns times `gain`.

    Source: Saxe, McClelland and Ganguli, Exact solutions to the nonlinear dynamics of learning, 2013.
    """
    shape = tensor.shape
    if len(shape) < 2:
        raise st.ShapeError(f"orthogonal_ takes a weight of at least 2 axes, got {shape}", where=st.here())
    rows, columns = shape[0], math.prod(shape[1:])
    if not rows * columns:
        return tensor
    dtype = st.f64 if tensor.dtype == st.f64 else st.f32
    drawn = st.random.normal((max(rows, columns), min(rows, columns)), dtype=dtype)
    q, r = st.linalg.qr(drawn)
    # The sign of R's diagonal makes the distribution uniform.
    q = q * st.where(st.diagonal(r) < 0, -1.0, 1.0)
    made = gain * st.reshape(q if rows >= columns else st.matrix_transpose(q), shape)
    return _write(tensor, st.astype(made, tensor.dtype))


def sparse_(tensor: Any, sparsity: float, std: float = 0.01) -> Any:
    """Draw a matrix from N(0, std^2), and set the share `sparsity` of each column to 0. Source: Martens, 2010."""
    if len(tensor.shape) != 2:
        raise st.ShapeError(f"sparse_ takes a matrix, got {tensor.shape}", where=st.here())
    if not 0 <= sparsity <= 1:
        raise st.ArgumentError(f"sparse_: a share is between 0 and 1, got {sparsity}", where=st.here())
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    orders = [st.random.permutation(rows) for _ in range(columns)]
    kept = st.stack(orders, 1) >= zeros if columns else st.zeros((rows, 0), dtype=st.bool_)
    drawn = st.random.normal((rows, columns), std=std, dtype=tensor.dtype)
    return _write(tensor, st.where(kept, drawn, 0.0))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of a layer's output constant through `nonlinearity`; `param` is the negative
    slope of `leaky_relu`.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    check_option("calculate_gain", "nonlinearity", nonlinearity, (*_GAINS, "leaky_relu"))
    return _GAINS[nonlinearity]


def _kaiming(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    check_option("kaiming", "mode", mode, ("fan_in", "fan_out"))
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))  # a fan of 0 is of a tensor that has no elements


def _fans(tensor: Any) -> tuple[int, int]:
    """(fan in, fan out): the number of inputs of each output, and of outputs of each input."""
    shape = tensor.shape
    if len(shape) < 2:
        raise st.ShapeError(f"a fan needs a weight of at least 2 axes, got {shape}", where=st.here())
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _write(tensor: Any, value: Any) -> Any:
    if not isinstance(tensor, st.Variable):
        raise st.DTypeError(f"nn.init writes Variables, got {type(tensor).__name__}", where=st.here())
    tensor.value = value
    return tensor
