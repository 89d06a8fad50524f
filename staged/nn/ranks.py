"""The base of layers of lines (N, C, L), images (N, C, H, W) and volumes (N, C, D, H, W)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import staged as st
from staged.nn.module import Module


class Ranked(Module):
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
