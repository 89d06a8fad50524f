"""One planted fault: a piece of text of the sources, what stands there instead, and the tests one of which must fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault that the tests must notice. `python -m tests.mutate` applies it to a copy of the project and runs `tests`."""

    name: str
    """The fault in words: the line of the report."""
    file: str
    """The file it is in, from the project's root."""
    before: str
    """The text that is replaced; it stands in the file exactly once."""
    after: str
    """The text that stands there instead."""
    tests: tuple[str, ...]
    """Arguments of pytest: the files or tests one of which must fail (or end by its limit of time). As few as possible."""
