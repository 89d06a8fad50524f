"""The text of a function of the host, before it is written to the program's file.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from staged.backends.host.sections import Origin
from staged.code.support.team import Shared
from staged.code.tree import CodeBuilder, Statement
from staged.code.writer import Writer
from staged.ir.nodes import Op
from staged.source import Position


@dataclass
class ProgramText:
    """The structure emitter's result for the program writer."""

    body: CodeBuilder = field(default_factory=CodeBuilder)
    snippets: dict[str, Position | None] = field(default_factory=dict)
    """The support snippets that it uses, and for which Python line first."""
    called: list[Op] = field(default_factory=list)
    parts: list[PartText] = field(default_factory=list)
    """The loops whose iterations threads share, those inside of others first."""
    origins: dict[object, Origin] = field(default_factory=dict)
    """By statement, or by counter of a `for`: what it was written for."""


class PartText(Protocol):
    """The function of a range of a loop's iterations."""

    @property
    def body(self) -> tuple[Statement, ...]:
        """Its statements."""

    @property
    def shared(self) -> Shared:
        """Its name and types, for a team."""

    def write(self, w: Writer) -> None:
        """Write it."""
