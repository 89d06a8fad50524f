"""`st.Array["N <= 512", 784]`: the annotation of an argument whose axes have declared sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ArrayAnnotation:
    """The declared sizes of the axes of an array."""

    axes: tuple[Any, ...]
