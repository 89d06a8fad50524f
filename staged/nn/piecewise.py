"""Activations as layers that are lines in pieces, shrink, or gate; those with exponentials are in `activation.py`."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.activation import AlongAxis, InPlace
from staged.nn.module import Module
from staged.nn.parameters import check_inplace


class ReLU6(InPlace):
    """min(max(x, 0), 6), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.relu6(x)


class Hardsigmoid(InPlace):
    """min(max(x / 6 + 1/2, 0), 1), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.hardsigmoid(x)


class Hardswish(InPlace):
    """x * hardsigmoid(x), element by element. Source: Howard et al., Searching for MobileNetV3, 2019."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.hardswish(x)


class Mish(InPlace):
    """x * tanh(softplus(x)), element by element. Source: Misra, 2020."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.mish(x)


class SELU(InPlace):
    """ELU with the scales that keep mean 0 and variance 1. Source: Klambauer et al., 2017."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.selu(x)


class Softsign(Module):
    """x / (1 + |x|), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.tanhshrink(x)


class LogSigmoid(Module):
    """log(sigmoid(x)), element by element."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.log_sigmoid(x)


class Hardtanh(Module):
    """min(max(x, min_val), max_val), element by element."""

    _shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        check_inplace("Hardtanh", inplace)
        if not min_val < max_val:
            raise st.ArgumentError(f"Hardtanh: min_val is below max_val, got {min_val}, {max_val}", where=st.here())
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.hardtanh(x, self.min_val, self.max_val)


class _Shrink(Module):
    """Base of layers that set what is at most `lambd` from 0 to 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The constructor's argument, as `repr` shows it."""
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """x where |x| > lambd, 0 elsewhere."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.hardshrink(x, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by `lambd`, and 0 where |x| <= lambd."""

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.softshrink(x, self.lambd)


class CELU(Module):
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0), element by element. Source: Barron, 2017."""

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        check_inplace("CELU", inplace)
        self.alpha = alpha

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.celu(x, self.alpha)


class Threshold(Module):
    """x where x > threshold, `value` elsewhere."""

    _shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        check_inplace("Threshold", inplace)
        self.threshold, self.value = threshold, value

    def forward(self, x: Any) -> Any:
        """Apply to each element; the result has the shape and dtype of `x`."""
        return st.threshold(x, self.threshold, self.value)


class Softmin(AlongAxis):
    """exp(-x) / sum(exp(-x)) along `dim`."""

    def forward(self, x: Any) -> Any:
        """Apply along `dim`; the result has the shape and dtype of `x`."""
        return st.softmin(x, axis=self.dim)


class GLU(AlongAxis):
    """The first half along `dim` times the sigmoid of the second. Source: Dauphin et al., 2017."""

    def forward(self, x: Any) -> Any:
        """Apply along `dim`, which is halved."""
        return st.glu(x, axis=self.dim)
