"""One planted fault: some syntax of a function, its replacement, and the tests one of which must fail."""

from __future__ import annotations

from dataclasses import dataclass


class Text(str):
    """Text of another language: it is compared without regard to whitespace, inside the string constants of a target."""


@dataclass(frozen=True)
class Mutant:
    """A fault that the tests must notice. `python -m tests.mutate` applies it to a copy of the project and runs `tests`."""

    name: str
    """The fault in words: the line of the report."""
    target: str
    """`module:name`. The module is dotted and below `staged`, or the path of a file from the project's root.

    The name is the qualified name of a function, a class or a variable. Without a name the target is the code of the
    module outside of all functions and classes. A target that is not Python is the path of its file alone.
    """
    before: str
    """An expression or statements, or `Text`, with exactly one match in the target (`anchor.planted`)."""
    after: str
    """The replacement. If it is empty, the statements are deleted."""
    tests: tuple[str, ...]
    """Arguments of pytest: the files or tests one of which must fail (or end by its limit of time). As few as possible."""
