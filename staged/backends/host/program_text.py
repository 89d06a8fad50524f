"""The text of a function of the host, before it is written to the program's file.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from staged.backends.host.product_sizes import with_sizes_first
from staged.backends.host.sections import Origin
from staged.code.support.team import Shared
from staged.code.tree import CodeBuilder, Statement
from staged.code.writer import Writer
from staged.ir.nodes import Op
from staged.source import Position


class HostCode(CodeBuilder):
    """Collects the statements of a function of the host."""

    def add(self, statement: Statement) -> None:
        """Add a statement; a loop goes behind the sizes of products that it does not change."""
        self.body += with_sizes_first(statement)


@dataclass
class ProgramText:
    """The structure emitter's result for the program writer."""

    body: CodeBuilder = field(default_factory=HostCode)
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
