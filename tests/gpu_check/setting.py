"""The setting of a part: the folder of its results, its time limit, and whether it is only rehearsed on the emulated device."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARGIN = 15.0
"""Seconds before its limit by which a part that watches the clock is done, so that it can still say what it came to."""


@dataclass(frozen=True)
class Setting:
    """`folder`: for results and what is built for them. `rehearsed`: on the emulated device, with small sizes."""

    folder: Path
    rehearsed: bool = False
    limit: float = math.inf
    """Seconds after which the part is ended, from when this was made."""
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds that the part still has for its work."""
        return self.began + self.limit - MARGIN - time.monotonic()


@cache
def exclusive() -> bool:
    """Whether the GPU takes one process at a time: its administrator can say so, and others then find no device."""
    try:
        from cuda.bindings import runtime

        attribute = runtime.cudaDeviceAttr.cudaDevAttrComputeMode
        error, mode = runtime.cudaDeviceGetAttribute(attribute, 0)
        return int(error) == 0 and int(mode) != int(runtime.cudaComputeMode.cudaComputeModeDefault)
    except (ImportError, RuntimeError):
        return False


def side_by_side(most: int) -> int:
    """The number of processes that may use the GPU side by side, as many as there are cores and `most` at most."""
    return 1 if exclusive() else min(most, os.cpu_count() or 1)
