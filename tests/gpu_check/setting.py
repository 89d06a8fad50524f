"""How a part is run: where it leaves things, and whether it is only rehearsed on the emulated device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Setting:
    """`folder`: for results and what is built for them. `rehearsed`: on the emulated device, with small sizes."""

    folder: Path
    rehearsed: bool = False
