"""Padding layers: `padding` is one width for every side, or two for the last axis, two for the one before it, .."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module


class _Padding(Module):
    """Base of padding layers: widths around the last axes of (N, C, ..) or (C, ..)."""

    axes: int
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


class _Zero(_Padding):
    pass


class _Reflection(_Padding):
    mode = "reflect"


class _Replication(_Padding):
    mode = "replicate"


class _Circular(_Padding):
    mode = "circular"


class ConstantPad1d(_Constant):
    """A number around (N, C, L)."""

    axes = 1


class ConstantPad2d(_Constant):
    """A number around (N, C, H, W)."""

    axes = 2


class ConstantPad3d(_Constant):
    """A number around (N, C, D, H, W)."""

    axes = 3


class ZeroPad1d(_Zero):
    """Zeros around (N, C, L)."""

    axes = 1


class ZeroPad2d(_Zero):
    """Zeros around (N, C, H, W)."""

    axes = 2


class ZeroPad3d(_Zero):
    """Zeros around (N, C, D, H, W)."""

    axes = 3


class ReflectionPad1d(_Reflection):
    """The elements beside the edges of (N, C, L), mirrored."""

    axes = 1


class ReflectionPad2d(_Reflection):
    """The elements beside the edges of (N, C, H, W), mirrored."""

    axes = 2


class ReflectionPad3d(_Reflection):
    """The elements beside the edges of (N, C, D, H, W), mirrored."""

    axes = 3


class ReplicationPad1d(_Replication):
    """The elements at the edges of (N, C, L), repeated."""

    axes = 1


class ReplicationPad2d(_Replication):
    """The elements at the edges of (N, C, H, W), repeated."""

    axes = 2


class ReplicationPad3d(_Replication):
    """The elements at the edges of (N, C, D, H, W), repeated."""

    axes = 3


class CircularPad1d(_Circular):
    """The elements of (N, C, L) from the other side."""

    axes = 1


class CircularPad2d(_Circular):
    """The elements of (N, C, H, W) from the other side."""

    axes = 2


class CircularPad3d(_Circular):
    """The elements of (N, C, D, H, W) from the other side."""

    axes = 3
