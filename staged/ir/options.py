"""Options of a program for the libraries and kernels of its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Algorithms = Literal["heuristic", "timed"]


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """The options that regions set for a whole program; the defaults are exact and give the same bits in every run."""

    tf32: bool = False
    """True if products of f32 may be made of factors that are rounded to 10 bits after the point."""
    deterministic: bool = True
    """True if all sums are made in one order, and so no floating-point atomics."""
    algorithms: Algorithms = "heuristic"
    """The choice of a convolution's algorithm: by the library's heuristic, or by timing."""
    graphs: bool = True
    """True if iterations of loops become graphs of the device where they can."""
    using: str = ""
    """The back end that writes the program; empty for the default."""
    keeps_results: bool = False
    """True if results that a device computes stay there: Python's region is around the program."""

    def __str__(self) -> str:
        words = ["tf32"] if self.tf32 else []
        words += [] if self.deterministic else ["nondeterministic"]
        words += [] if self.algorithms == "heuristic" else [f"algorithms={self.algorithms}"]
        words += [] if self.graphs else ["graphs=False"]
        words += [f"using={self.using}"] if self.using else []
        words += ["keeps results"] if self.keeps_results else []
        return " ".join(words)


DEFAULT_OPTIONS = DeviceOptions()
