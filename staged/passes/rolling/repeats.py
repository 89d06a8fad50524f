"""Repeats: runs of ops that look alike, some number of times one after another.

Tested by `tests/passes/rolling/test_roll.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from staged.ir.nodes import Label, Op, VariableRef
from staged.ir.types import CPU, TensorType


@dataclass(frozen=True)
class Repeat:
    """The ops from `start` on, as `count` pieces of `period` ops each; `slack` more ops at the end still fit."""

    start: int
    period: int
    count: int
    slack: int = 0


class Keys:
    """Numbers for ops: equal if they look alike. Operands and Variables do not count (`pieces.py` compares these)."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of_op: dict[Op, int] = {}
        """By op: its number. The op of a transform is numbered with all ops in it, and these are numbered again."""
        self._sizes: dict[Op, int] = {}

    def number(self, op: Op) -> int:
        """The number of an op."""
        known = self._of_op.get(op)
        if known is None:
            known = self._of_op[op] = self._numbers.setdefault(self._key(op), len(self._numbers))
        return known

    def size(self, op: Op) -> int:
        """The number of ops that it is, with those of its blocks."""
        if not op.blocks:
            return 1
        if op not in self._sizes:
            self._sizes[op] = 1 + sum(self.size(inner) for block in op.blocks for inner in block.ops)
        return self._sizes[op]

    def _key(self, op: Op) -> Hashable:
        device = op.device
        key: list[Hashable] = [op.name] if device is CPU else [op.name, device.kind, device.index]
        for value in op.results or op.operands:
            made = value.type
            if type(made) is TensorType:
                key += made.dtype.name, made.shape, made.weak  # the hash of a dtype is slow to compute
            else:
                key.append(made)
        for name, attr in op.attrs.items() if op.attrs else ():
            if name != "call":
                key += name, type(attr).__name__ if type(attr) in _COMPARED_LATER else repr(attr)
        for block in op.blocks:
            key.append(tuple([param.type for param in block.params]))
            key.append(tuple(map(self.number, block.ops)))
        return tuple(key)


_COMPARED_LATER = (Label, VariableRef)

MOST_PERIODS = 256
"""The most distances between equal ops that are looked at, those that occur most often."""
NEXT = 8
"""An op is compared with so many equal ones after it."""


def _periods(numbers: Sequence[int]) -> list[int]:
    """The distances between equal ops, the smallest first."""
    keys = np.asarray(numbers)
    places = np.argsort(keys, kind="stable")
    counts = np.zeros(len(numbers) // 2 + 1, np.int64)
    for ahead in range(1, NEXT + 1):
        first, later = places[:-ahead], places[ahead:]
        distances = (later - first)[keys[first] == keys[later]]
        counts += np.bincount(distances[distances < len(counts)], minlength=len(counts))
    likely = np.argsort(-counts, kind="stable")[:MOST_PERIODS]
    return sorted(int(period) for period in likely if counts[period])


def _runs(equal: np.ndarray, fewest: int) -> list[tuple[int, int]]:
    """The runs (start, stop) of so many true elements or more."""
    stops = np.flatnonzero(np.append(~equal, True))
    starts = np.concatenate([[0], stops[:-1] + 1])
    is_long = stops - starts >= fewest
    return list(zip(starts[is_long].tolist(), stops[is_long].tolist(), strict=True))


Name = tuple[str, tuple[int, ...]]
"""Of an op: a name with numbers, without them, and the numbers. An empty name may be any."""


def repeats(numbers: Sequence[int], sizes: Sequence[int], names: Sequence[Name] = ()) -> list[Repeat]:
    """Repeats that do not overlap: first those whose names differ in one number, then those that save most ops.

    Without `names` any numbers may repeat.
    """
    keys = np.asarray(numbers)
    found: list[tuple[bool, int, Repeat]] = []
    total = np.concatenate([[0], np.cumsum(sizes)])
    differ = _Names(names or [("", ())] * len(numbers))
    for period in _periods(numbers):
        equal = keys[period:] == keys[:-period]
        if np.count_nonzero(equal) < period or not _runs(equal, period):
            continue
        named = equal & ~differ.are_apart(period)
        for is_odd, same in enumerate([named] if np.array_equal(named, equal) else [named, equal]):
            for start, stop in _runs(same, period):
                length = stop - start + period
                count = length // period
                saved = int(total[start + (count - 1) * period] - total[start])
                found.append((bool(is_odd), -saved, Repeat(start, period, count, length % period)))
    taken = np.zeros(len(keys), bool)
    chosen = []
    for _, _, repeat in sorted(found, key=lambda each: (each[0], each[1], each[2].period)):
        stop = repeat.start + repeat.count * repeat.period
        if not taken[repeat.start : stop].any():
            taken[repeat.start : stop + repeat.slack] = True
            chosen.append(repeat)
    return chosen


class _Names:
    """Compares the names of ops at a distance."""

    def __init__(self, names: Sequence[Name]) -> None:
        words: dict[str, int] = {"": 0}
        rows = {name: row for row, name in enumerate(dict.fromkeys(names))}
        place = np.asarray([rows[name] for name in names], np.int64)
        self.words = np.asarray([words.setdefault(word, len(words)) for word, _ in rows])[place]
        longest = max((len(each) for _, each in rows), default=0)
        self.numbers = np.asarray([(*each, *[0] * (longest - len(each))) for _, each in rows], np.int64)[place]

    def are_apart(self, period: int) -> np.ndarray:
        """By op: whether its name, and that of the op after so many, differ in more than one number."""
        left, right = self.words[:-period], self.words[period:]
        many = np.count_nonzero(self.numbers[period:] != self.numbers[:-period], axis=1) > 1
        apart: np.ndarray = (left > 0) & (right > 0) & (many | (left != right))
        return apart
