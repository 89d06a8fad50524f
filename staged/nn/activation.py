"""Activations as layers."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import check_inplace, check_option


class InPlace(Module):
    """Base of layers whose only argument, `inplace` of torch, is not supported."""

    def __init__(self, inplace: bool = False) -> None:
        check_inplace(type(self).__name__, inplace)


class AlongAxis(Module):
    """Base of layers along an axis."""

    _shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim


class ReLU(InPlace):
    """max(x, 0), element by element; its derivative at 0 is 0."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.relu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.sigmoid(x)


class Tanh(Module):
    """tanh(x), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.tanh(x)


class GELU(Module):
    """x Phi(x), exactly or by the tanh approximation. Source: Hendrycks and Gimpel, 2016."""

    _shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        check_option("GELU", "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.gelu(x, approximate=self.approximate)


class Softmax(AlongAxis):
    """exp(x) / sum(exp(x)) along `dim`."""

    def forward(self, x: Any) -> Any:
        """Apply along `dim`; the result has the shape and dtype of `x`."""
        return st.softmax(x, axis=self.dim)


class LogSoftmax(AlongAxis):
    """log(softmax(x)) along `dim`."""

    def forward(self, x: Any) -> Any:
        """Apply along `dim`; the result has the shape and dtype of `x`."""
        return st.log_softmax(x, axis=self.dim)


class LeakyReLU(Module):
    """x where x > 0, `negative_slope * x` elsewhere."""

    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        check_inplace("LeakyReLU", inplace)
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.leaky_relu(x, self.negative_slope)


class ELU(Module):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere. Source: Clevert, Unterthiner and Hochreiter, 2016."""

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        check_inplace("ELU", inplace)
        self.alpha = alpha

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.elu(x, self.alpha)


class SiLU(InPlace):
    """x * sigmoid(x). Source: Elfwing, Uchibe and Doya, 2018 (also known as swish)."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.silu(x)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta, element by element; x itself where beta x is above `threshold`."""

    _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = beta
        self.threshold = threshold

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.softplus(x, self.beta, self.threshold)
