"""Keys of groups of ops: equal groups share loops, and are lowered, in the same way.

    x3 = x2 + y1; x4 = relu(x3)    and    x7 = x6 + y5; x8 = relu(x7)    have the key of    %2 = %0 + %1; %3 = relu(%2)

A key has the ops with their attributes, types and devices, and the values that they use, numbered in order of
appearance. It does not have names or positions. A program with many equal layers has few keys.

Tested by `tests/kernels/test_keys.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from staged.ir.fingerprint import Canonical
from staged.ir.nodes import Op, Value

Key = tuple[int, ...]
T = TypeVar("T")


class Keys:
    """The keys of the groups of one program, and the answers that are known by key.

    The attributes and types of an op are compared once, and then have a number. Keys are therefore tuples of integers.
    """

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._numbers: dict[Hashable, int] = {}
        self._kinds: dict[Op, int] = {}

    def once(self, question: Hashable, find: Callable[[], T]) -> T:
        """The answer to a question that a key is part of; `find` is called if the question is new."""
        if question not in self._answers:
            self._answers[question] = find()
        answer: T = self._answers[question]
        return answer

    def kind(self, op: Op) -> int:
        """The number of an op and its types: equal for ops that differ only in their values, names and positions."""
        if op not in self._kinds:
            self._kinds[op] = self._numbers.setdefault(Canonical().ops((op,)), len(self._numbers))
        return self._kinds[op]

    def group(
        self, ops: Sequence[Op], results: Sequence[Value], is_boundary: Callable[[Value], bool]
    ) -> tuple[Key, list[Value]]:
        """The key of a group that has these results, and the values from outside, in order of first use.

        Ops that belong to no group are part of each group that uses them.

        `is_boundary` says which values come from outside. The values are visited in the order in which `Clone` copies
        them, so that groups with equal keys have the same parameters in the same order.
        """
        key: list[int] = []
        outside: list[Value] = []
        numbers: dict[Value, int] = {}

        def add(op: Op) -> None:
            if op.results[0] in numbers:
                return
            for operand in op.operands:
                if operand not in numbers:
                    if is_boundary(operand):
                        numbers[operand] = len(numbers)
                        outside.append(operand)
                    else:
                        assert operand.producer is not None
                        add(operand.producer)
            key.append(self.kind(op))
            key.extend([numbers[operand] for operand in op.operands])
            key.append(len(numbers))
            for result in op.results:
                numbers[result] = len(numbers)

        for op in ops:
            add(op)
        key.extend([numbers[value] for value in results])
        return tuple(key), outside
