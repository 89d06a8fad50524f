"""Questions about sizes that only the program can answer, and the sizes that an op compared before an error.

Tested by `tests/ir/test_sizes.py` and `tests/dynamic_sizes/test_relations.py`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from staged.errors import ShapeError
from staged.source import here

Extent = Any  # an int or a `Size` of `ir/sizes.py`, which imports this module


class UndecidedSizeError(ShapeError):
    """Only the program can answer a question about sizes."""

    def __init__(self, asked: str, question: Question | None = None) -> None:
        super().__init__(f"{asked} is not known before the program runs", where=here())
        self.question = question


class Question:
    """A comparison of sizes that only the program can answer. It raises an error if Python converts it to a bool."""

    __slots__ = ("left", "right", "sign")

    def __init__(self, left: Extent, sign: str, right: Extent) -> None:
        self.left, self.sign, self.right = left, sign, right

    def __bool__(self) -> bool:
        raise UndecidedSizeError(f"whether {self.left} {self.sign} {self.right}", self)


differing: deque[tuple[Extent, Extent]] = deque(maxlen=12)
"""The last sizes that were compared and differ in their normal forms."""


def need_equal(one: Extent, other: Extent) -> None:
    """Note that an op needs these sizes to be equal, before it raises an error."""
    differing.clear()
    differing.append((one, other))
