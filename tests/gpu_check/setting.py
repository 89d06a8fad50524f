"""The setting of a part: its folders, its time limit, and whether it only rehearses on the emulated device."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PREPARED = ROOT / ".gpu-check"
"""The folder that `--prepare` builds, and that travels to the machine with the device."""
REHEARSAL = ROOT / ".pytest_cache" / "gpu-check"
"""The same for the emulated device. It stays on this machine."""
MARGIN = 3.0
"""Seconds between the end of a part's work and its limit: the part writes its result in them."""


@dataclass(frozen=True)
class Setting:
    """The folders and the time of a part.

    `folder`: the results; each file there is one of `parts.PARTS`. `rehearsed`: on the emulated device, with small sizes.
    """

    folder: Path
    rehearsed: bool = False
    whole: bool = False
    """With `rehearsed`: all tests of the suite, not a sample."""
    limit: float = math.inf
    """Seconds after which the part is ended, from the moment when this object is created."""
    earlier: Path | None = None
    """The results of an earlier run: a part runs again only what failed, or did not run, there."""
    began: float = field(default_factory=time.monotonic)

    @property
    def prepared(self) -> Path:
        """The folder that `--prepare` built."""
        return REHEARSAL if self.rehearsed else PREPARED

    @property
    def scratch(self) -> Path:
        """A folder for logs and builds, which stays on the machine."""
        folder = self.prepared / "scratch"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def left(self) -> float:
        """Seconds that remain for the part's work."""
        return self.began + self.limit - MARGIN - time.monotonic()


@cache
def exclusive() -> bool:
    """Whether the GPU accepts one process at a time: its administrator can set that, and other processes find no device."""
    try:
        from cuda.bindings import runtime

        attribute = runtime.cudaDeviceAttr.cudaDevAttrComputeMode
        error, mode = runtime.cudaDeviceGetAttribute(attribute, 0)
        return int(error) == 0 and int(mode) != int(runtime.cudaComputeMode.cudaComputeModeDefault)
    except (ImportError, RuntimeError):
        return False


def side_by_side(most: int) -> int:
    """The number of processes that use the GPU at the same time: the number of cores, `most` at most."""
    return 1 if exclusive() else min(most, os.cpu_count() or 1)
