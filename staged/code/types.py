"""Types of what stands in code: numbers, vectors and packs of them, and pointers that know into which memory they
point.

Tested by `tests/code/test_printer.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache

from staged.ir.types import DType


class Space(enum.Enum):
    """The memory that a pointer or an array of a kernel points into."""

    GLOBAL = "global"
    SHARED = "shared"
    """Of all threads of a block."""
    PRIVATE = "private"
    """Of one thread."""


@dataclass(frozen=True, slots=True)
class CType:
    """A type and its C name: `lanes` elements of a `dtype` are a vector of a CPU, or a pack of a GPU's thread.

    A pointer's `dtype` and `lanes` are those of what it points to.
    """

    text: str
    dtype: DType | None = None
    lanes: int = 1
    is_pointer: bool = False
    is_const: bool = False
    """True if what a pointer points to is only read."""
    space: Space = Space.PRIVATE

    @property
    def before_name(self) -> str:
        """The text in front of what is declared."""
        return self.text if self.is_pointer else f"{self.text} "


@cache
def scalar(dtype: DType) -> CType:
    """One element."""
    return CType(dtype.c_name, dtype)


@cache
def word(text: str) -> CType:
    """A type that is known by its name alone: a struct, a counter."""
    return CType(text)


def lanes(dtype: DType, count: int, text: str) -> CType:
    """`count` elements side by side."""
    return CType(text, dtype, count)


@cache
def pointer(to: CType, space: Space, is_const: bool = False) -> CType:
    """The address of something in a memory."""
    const = "const " * is_const
    text = f"{to.text}{const}*" if to.is_pointer else f"{const}{to.text} *"
    return CType(text, to.dtype, to.lanes, True, is_const, space)


def constants(dtype: DType) -> CType:
    """The address of elements that are only read."""
    return pointer(scalar(dtype), Space.GLOBAL, is_const=True)


VOID = pointer(word("void"), Space.GLOBAL)
"""An address in workspace, of whatever will be there."""
BYTES = pointer(word("unsigned char"), Space.GLOBAL)
"""The address of memory for anything."""
INDEX = CType("int64_t")
"""The type of iteration counters and element numbers."""
SHORT_INDEX = CType("int")
"""The same where all numbers are small."""
