"""The base of layers of lines (N, C, L), images (N, C, H, W) and volumes (N, C, D, H, W)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import staged as st
from staged.nn.module import Module


class Family(Module):
    """Base of layers that differ in attributes, given as keywords: `class Conv1d(_Conv, axes=1)`."""

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__()
        for name, value in attributes.items():
            setattr(cls, name, staticmethod(value) if callable(value) else value)


class Ranked(Family):
    """Base of layers along `axes` axes after the channels, which call `function`."""

    axes: int
    function: Callable[..., Any]

    def per_axis(self, size: Any) -> tuple[Any, ...]:
        """One size for each axis."""
        if not isinstance(size, tuple | list):
            return (size,) * self.axes
        if len(size) != self.axes:
            raise st.ShapeError(
                f"{type(self).__name__} has {self.axes} axes to slide along, got sizes {size}", where=st.here()
            )
        return tuple(size)
