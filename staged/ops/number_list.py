"""Nested lists of Python numbers, which are weak: they adopt the dtype of the other operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from staged.ir.types import DType, TensorType


class NumberList:
    """Nested lists of Python numbers, or of staged ones: an array once its dtype is known.

    `items` are tuples in tuples; `type` is weak, with the shape of the array and the dtype of the numbers among
    themselves.
    """

    __slots__ = ("items", "type")

    def __init__(self, items: tuple[Any, ...], type: TensorType) -> None:
        self.items = items
        self.type = type

    @property
    def natural(self) -> DType:
        """The dtype of the array that the list is by itself: f32 for floats, as for every array that is made of
        numbers.
        """
        return self.type.dtype.natural

    def numbers(self) -> Iterator[Any]:
        """The numbers in row-major order."""
        return leaves_of(self.items)


def tuples_of(items: Any, read: Any) -> Any:
    """Nested lists and tuples as tuples, with `read` applied to every leaf."""
    return tuple(tuples_of(item, read) for item in items) if isinstance(items, list | tuple) else read(items)


def leaves_of(items: Any) -> Iterator[Any]:
    """The leaves of nested tuples."""
    if isinstance(items, tuple):
        for item in items:
            yield from leaves_of(item)
    else:
        yield items


def shape_of(items: Any) -> tuple[int, ...] | None:
    """The shape of nested tuples; None where rows differ in length."""
    if not isinstance(items, tuple):
        return ()
    shapes = {shape_of(item) for item in items}
    if not shapes:
        return (0,)
    (shape, *others) = shapes
    return None if others or shape is None else (len(items), *shape)
