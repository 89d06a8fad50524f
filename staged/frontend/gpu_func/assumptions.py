"""Assumptions about the variables of a kernel: their types and ranges, which hold for all assigned values.

A kernel is translated in order, and reads a variable before it has seen all assignments to it (those further down in a
loop). So it assumes what it knows; where a later assignment refutes that, it is translated again with what is known by
then.

Tested by `tests/frontend/gpu_func/test_ranges.py`.
"""

from __future__ import annotations

from collections import Counter

from staged.errors import CarriedValueError
from staged.ir.numbers import limits
from staged.ir.ranges import Range
from staged.ir.types import DType, TensorType
from staged.ops.dtypes import promote_dtypes, result_dtype
from staged.source import Position

_STEPS = 3
"""The number of times that the range of a variable may grow before it is taken to be unbounded on that side."""


class RefutedError(Exception):
    """An assumption about a variable does not hold: the kernel is translated again with what is known by now."""


class Assumptions:
    """Facts of earlier attempts about variables: the join of all assigned values."""

    def __init__(self) -> None:
        self.types: dict[str, TensorType] = {}
        self.spans: dict[str, Range] = {}
        """The numbers that integers may be which are assigned several times."""
        self.grown: Counter[str] = Counter()

    def hold(self, name: str, span: Range, dtype: DType) -> Range:
        """The numbers that a variable may be, these among them. Raises RefutedError where that is news."""
        known = self.spans.setdefault(name, span)
        low, high = min(known[0], span[0]), max(known[1], span[1])
        if (low, high) == known:
            return known
        self.grown[name] += 1
        if self.grown[name] > _STEPS:
            least, most = limits(dtype)
            low = low if low == known[0] else 0 if low >= 0 else least
            high = high if high == known[1] else most
        self.spans[name] = low, high
        raise RefutedError

    def joined(self, name: str, type: TensorType, where: Position) -> TensorType:
        """The type of a variable with one more value, assigned at `where`: Python's numbers adopt that of the others.

        Raises: CarriedValueError where two dtypes meet; RefutedError where the type is another than before.
        """
        before = self.types.get(name)
        if before is None:
            # Nothing has read it: it is bound here for the first time.
            self.types[name] = type
            return type
        if before == type:
            return type
        if before.weak and type.weak:
            made = TensorType(promote_dtypes(before.dtype, type.dtype), (), True)
        elif before.weak or type.weak:
            dtype, _ = result_dtype([before, type])
            made = TensorType(dtype)
        else:
            raise CarriedValueError(
                f"`{name}` is {before.dtype} elsewhere, and {type.dtype} here",
                where=where,
                hint=f"a variable keeps its dtype: cast the value, `st.astype(..., st.{before.dtype})`",
            )
        if made != before:
            self.types[name] = made
            raise RefutedError
        return made
