"""Notes for the user of the program that a trace makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from staged.frontend.trace.lifetimes import OfTrace


@dataclass
class Notes(OfTrace):
    """The notes so far, in order."""

    texts: list[str] = field(default_factory=list)
