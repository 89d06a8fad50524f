"""Ranges of integers hold for every pair of numbers in them."""

from __future__ import annotations

import itertools
import operator

import pytest

from staged.ir.builder import Builder
from staged.ir.ranges import Ranges
from staged.ir.types import TensorType, i64

I = TensorType(i64)  # noqa: E741
MEANINGS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
}
SPANS = [(-7, -3), (-5, 4), (0, 0), (1, 6), (2, 3)]


@pytest.mark.parametrize("name", MEANINGS)
def test_range_of_arithmetic(name: str) -> None:
    for (a, b), (c, d) in itertools.product(SPANS, SPANS):
        builder = Builder()
        with builder.block([I, I]) as block:
            x, y = block.params
            result = builder.op(name, [x, y], [I]).result
            builder.end("return", [result])
        ranges = Ranges()
        ranges.known.update({x: (a, b), y: (c, d)})
        found = ranges.of(result)
        if found is None:
            assert c <= 0, "only a divisor that may be zero or negative has no range"
            continue
        values = [MEANINGS[name](i, j) for i in range(a, b + 1) for j in range(c, d + 1)]
        assert found[0] <= min(values) and max(values) <= found[1], f"{name} of {a, b} and {c, d}: {found}"


def test_range_of_a_loops_index() -> None:
    for start, stop, step in itertools.product((-3, 0, 4), (-5, 0, 6), (-3, -1, 1, 2)):
        builder = Builder()
        with builder.block() as block:
            bounds = [builder.op("constant", [], [I], attrs={"value": v}).result for v in (start, stop, step)]
            builder.end("return", [])
        assert block.ended
        found = Ranges().of_index(bounds)
        assert found is not None
        for index in range(start, stop, step):
            assert found[0] <= index <= found[1], (start, stop, step)
