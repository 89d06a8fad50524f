"""How a part is run: where it leaves things, how long it may take, and whether it is only rehearsed on the emulated device."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
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
