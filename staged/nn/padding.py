"""Padding layers: `padding` is one width for every side, or two for the last axis, two for the one before it, .."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.ranks import Ranked


class _Padding(Ranked):
    """Base of padding layers: widths around the last axes of (N, C, ..) or (C, ..)."""

    mode = "constant"

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        widths = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(widths) != 2 * self.axes or not all(isinstance(width, int) for width in widths):
            raise st.ArgumentError(
                f"{type(self).__name__}: padding is an int or {2 * self.axes} of them, got {padding!r}", where=st.here()
            )
        self.padding = widths

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return str(self.padding)

    def forward(self, x: Any) -> Any:
        """Return `x` with elements around its last axes; a negative width cuts elements off."""
        layer = type(self).__name__
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise st.ShapeError(
                f"{layer} pads {self.axes} axes of (N, C, ..) or (C, ..), got {x.shape}", where=st.here()
            )
        return st.pad(x, pad=self.padding, mode=self.mode, value=getattr(self, "value", 0))


class _Constant(_Padding):
    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_Constant, axes=1):
    """A number around (N, C, L)."""


class ConstantPad2d(_Constant, axes=2):
    """A number around (N, C, H, W)."""


class ConstantPad3d(_Constant, axes=3):
    """A number around (N, C, D, H, W)."""


class ZeroPad1d(_Padding, axes=1):
    """Zeros around (N, C, L)."""


class ZeroPad2d(_Padding, axes=2):
    """Zeros around (N, C, H, W)."""


class ZeroPad3d(_Padding, axes=3):
    """Zeros around (N, C, D, H, W)."""


class ReflectionPad1d(_Padding, axes=1, mode="reflect"):
    """The elements beside the edges of (N, C, L), mirrored."""


class ReflectionPad2d(_Padding, axes=2, mode="reflect"):
    """The elements beside the edges of (N, C, H, W), mirrored."""


class ReflectionPad3d(_Padding, axes=3, mode="reflect"):
    """The elements beside the edges of (N, C, D, H, W), mirrored."""


class ReplicationPad1d(_Padding, axes=1, mode="replicate"):
    """The elements at the edges of (N, C, L), repeated."""


class ReplicationPad2d(_Padding, axes=2, mode="replicate"):
    """The elements at the edges of (N, C, H, W), repeated."""


class ReplicationPad3d(_Padding, axes=3, mode="replicate"):
    """The elements at the edges of (N, C, D, H, W), repeated."""


class CircularPad1d(_Padding, axes=1, mode="circular"):
    """The elements of (N, C, L) from the other side."""


class CircularPad2d(_Padding, axes=2, mode="circular"):
    """The elements of (N, C, H, W) from the other side."""


class CircularPad3d(_Padding, axes=3, mode="circular"):
    """The elements of (N, C, D, H, W) from the other side."""
