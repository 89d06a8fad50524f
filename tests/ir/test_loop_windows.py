"""Loops that write windows: answers about their iterations, held against the elements themselves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from staged.ir.builder import Builder
from staged.ir.loop_windows import LoopWindows
from staged.ir.nodes import FAIL, Function, Label, Value
from staged.ir.ranges import Ranges
from staged.ir.sizes import Dim, Extent, Size, largest, smallest
from staged.ir.structure import FOR
from staged.ir.types import TensorType, f32, i64
from staged.ir.verifier import verify
from staged.ir.views import Loop

INT = TensorType(i64)
T = Dim("T", 200)
ARRAY = TensorType(f32, (4, 12))


class Nest:
    """A function with two loops in one another, `n` and `i`, over one array."""

    def __init__(self, trips: tuple[Extent, Extent] = (4, 3), type: TensorType = ARRAY) -> None:
        self.builder = Builder()
        self.trips, self.type = trips, type

    def number(self, value: Extent) -> Value:
        if isinstance(value, Size):
            return self.builder.op("extent", [], [INT], attrs={"dim": value}).result
        return self.builder.op("constant", [], [INT], attrs={"value": value}).result

    def times(self, index: Value, factor: Extent) -> Value:
        return self.builder.op("multiply", [index, self.number(factor)], [INT]).result

    def plus(self, index: Value, other: int) -> Value:
        return self.builder.op("add", [index, self.number(other)], [INT]).result

    def written(self, x: Value, starts: Sequence[Value], sizes: tuple[Extent, ...], *read: Value) -> Value:
        """x with a window of numbers, in a kernel; `read` are values that the numbers are made of."""
        part = TensorType(f32, sizes)
        operands = [x, *starts, *read]
        with self.builder.block([value.type for value in operands], ["x"] * len(operands)) as body:
            one = self.builder.op("constant", [], [TensorType(f32)], attrs={"value": 1.0}).result
            rows = self.builder.op("broadcast_to", [one], [part], attrs={"axes": (), "shape": sizes}).result
            for other in body.params[1 + len(starts) :]:
                rows = self.builder.op("add", [rows, other], [part]).result
            new = self.builder.op("dynamic_update", [body.params[0], rows, *body.params[1 : 1 + len(starts)]], [x.type])
            self.builder.end("yield", [new.result])
        attrs = {"name": "kernel", "fused": "dynamic_update"}
        return self.builder.op("kernel", operands, [x.type], attrs=attrs, blocks=[body.block]).result

    def read(self, x: Value, starts: Sequence[Value], sizes: tuple[Extent, ...]) -> Value:
        return self.builder.op("dynamic_slice", [x, *starts], [TensorType(f32, sizes)], attrs={"sizes": sizes}).result

    def loop(self, name: str, count: Extent, x: Value, body: Callable[[Value, Value], Value]) -> Value:
        bounds = [self.number(0), self.number(count), self.number(1)]
        with self.builder.block([INT, x.type], [name, "x"]) as opened:
            index, carried = opened.params
            self.builder.end("yield", [body(index, carried)])
        attrs = {"label": Label(name)}
        return self.builder.op("for", [*bounds, x], [x.type], attrs=attrs, blocks=[opened.block]).result

    def answers(self, body: Callable[[Nest, Value, Value, Value], Value]) -> tuple[bool, bool, bool]:
        """For a body of (x, n, i): whether iterations of n are apart, those of i, and whether all is written."""
        with self.builder.block([INT, self.type], ["t", "x"]) as opened:
            t, x = opened.params
            self.builder.op("dim", [t], [INT], effects=FAIL, attrs={"dim": T, "most": 200})
            result = self.loop(
                "n",
                self.trips[0],
                x,
                lambda n, outer: self.loop("i", self.trips[1], outer, lambda i, inner: body(self, inner, n, i)),
            )
            self.builder.end("return", [result])
        function = Function("f", opened.block)
        verify(function)
        (outer,) = (op for op in opened.block.ops if op.declared is FOR)
        (inner,) = (op for op in Loop(outer).body.ops if op.declared is FOR)
        ranges = Ranges()
        windows = [LoopWindows(op, ranges) for op in (outer, inner)]
        return (
            windows[0].are_apart(),
            windows[1].are_apart(),
            windows[0].arrays is not None and windows[0].is_written(0),
        )


def rows(nest: Nest, x: Value, n: Value, i: Value) -> Value:
    return nest.written(x, [n, nest.times(i, 4)], (1, 4))


def test_blocks_of_rows_are_apart_and_are_the_whole_array() -> None:
    assert Nest().answers(rows) == (True, True, True)


def test_what_an_iteration_reads_back_from_its_own_window_is_its_own() -> None:
    def body(nest: Nest, x: Value, n: Value, i: Value) -> Value:
        at = [n, nest.times(i, 4)]
        return nest.written(x, at, (1, 4), nest.read(x, at, (1, 4)))

    assert Nest().answers(body) == (True, True, False)


def test_a_window_that_reaches_into_the_next_iteration_is_not_apart() -> None:
    wide = Nest(type=TensorType(f32, (4, 13)))
    assert wide.answers(lambda nest, x, n, i: nest.written(x, [n, nest.times(i, 4)], (1, 5)))[:2] == (True, False)


def test_an_iteration_that_reads_the_row_before_depends_on_it() -> None:
    def body(nest: Nest, x: Value, n: Value, i: Value) -> Value:
        before = nest.read(x, [n, nest.times(i, 4)], (1, 4))
        return nest.written(x, [nest.plus(n, 1), nest.times(i, 4)], (1, 4), before)

    assert Nest((3, 3)).answers(body) == (False, True, False)


def test_rows_that_several_iterations_share_are_not_apart() -> None:
    def body(nest: Nest, x: Value, n: Value, i: Value) -> Value:
        half = nest.builder.op("floor_divide", [n, nest.number(2)], [INT]).result
        return nest.written(x, [half, nest.times(i, 4)], (1, 4))

    assert Nest().answers(body) == (False, True, False)


def test_an_array_that_is_read_as_a_whole_or_changed_as_a_whole_is_not_apart() -> None:
    def read(nest: Nest, x: Value, n: Value, i: Value) -> Value:
        flat = nest.builder.op("reshape", [x], [TensorType(f32, (48,))], attrs={"shape": (48,)}).result
        return nest.written(x, [n, nest.times(i, 4)], (1, 4), nest.read(flat, [nest.number(0)], (4,)))

    assert Nest().answers(read) == (False, False, False)


def test_gaps_and_iterations_that_may_not_run_leave_elements_unwritten() -> None:
    assert Nest().answers(lambda nest, x, n, i: nest.written(x, [n, nest.times(i, 4)], (1, 3)))[2] is False
    assert Nest((4, 2)).answers(rows)[2] is False
    assert Nest().answers(lambda nest, x, n, i: nest.written(x, [i, nest.times(i, 4)], (1, 4)))[2] is False
    assert Nest((4, 0)).answers(rows)[2] is False


def test_a_body_that_may_stop_the_program_is_not_apart() -> None:
    def body(nest: Nest, x: Value, n: Value, i: Value) -> Value:
        divided = nest.builder.op("floor_divide", [n, i], [INT], effects=FAIL).result
        return nest.written(x, [nest.times(divided, 0), nest.times(i, 4)], (1, 4))

    assert Nest().answers(body)[0] is False


def test_blocks_of_a_size_that_the_program_finds_are_apart_and_are_the_whole_array() -> None:
    def rows_of(extent: Extent) -> Callable[[Nest, Value, Value, Value], Value]:
        return lambda nest, x, n, i: nest.written(x, [n, nest.times(i, extent)], (1, extent))

    count, extent = -(-T // 48), largest(smallest(T, 48), 1)
    assert Nest((4, count), TensorType(f32, (4, count * extent))).answers(rows_of(extent)) == (True, True, True)
    assert Nest((4, T), TensorType(f32, (4, T * 4))).answers(rows_of(4)) == (True, True, True)
    assert Nest((T, 3), TensorType(f32, (T, 12))).answers(rows_of(4)) == (True, True, True)
    assert Nest((4, 3), TensorType(f32, (4, T * 3))).answers(rows_of(T)) == (True, True, True)


def test_sizes_that_may_be_0_or_differ_leave_elements_unwritten() -> None:
    empty = Nest((4, T), TensorType(f32, (4, 4)))
    assert empty.answers(lambda nest, x, n, i: nest.written(x, [n, nest.number(0)], (1, 4)))[2] is False
    assert Nest((T, 3)).answers(rows)[2] is False
    wide = Nest((4, T), TensorType(f32, (4, T * 4)))
    assert wide.answers(lambda nest, x, n, i: nest.written(x, [n, nest.times(i, 4)], (1, T))) == (True, False, False)


def elements(starts: tuple[int, int], sizes: tuple[int, int]) -> set[tuple[int, int]]:
    return set(itertools.product(*(range(start, start + size) for start, size in zip(starts, sizes, strict=True))))


@pytest.mark.parametrize("seed", range(60))
def test_random_windows_agree_with_the_elements(seed: int) -> None:
    """No answer may be wrong; that some are yes is what the tests above hold."""
    draw = random.Random(seed)
    trips = draw.randint(1, 4), draw.randint(1, 3)
    factors = [(draw.choice([0, 1, 1, 2, 3, 4]), draw.choice([0, 0, 1, 4]), draw.randint(0, 1)) for _ in range(2)]
    factors[draw.randint(0, 1)] = (0, draw.choice([1, 2, 4]), 0)
    sizes = draw.randint(1, 3), draw.randint(1, 4)
    again = draw.random() < 0.5
    most = [f * (trips[0] - 1) + g * (trips[1] - 1) + h + size for (f, g, h), size in zip(factors, sizes, strict=True)]

    def body(nest: Nest, x: Value, n: Value, i: Value) -> Value:
        at = [
            nest.plus(nest.builder.op("add", [nest.times(n, f), nest.times(i, g)], [INT]).result, h)
            for f, g, h in factors
        ]
        return nest.written(x, at, sizes, *([nest.read(x, at, sizes)] if again else []))

    by_n, by_i, whole = Nest(trips, TensorType(f32, tuple(most))).answers(body)
    touched = {
        (n, i): elements(tuple(f * n + g * i + h for f, g, h in factors), sizes)
        for n in range(trips[0])
        for i in range(trips[1])
    }
    pairs = list(itertools.combinations(touched, 2))
    if by_n:
        assert not any(touched[a] & touched[b] for a, b in pairs if a[0] != b[0])
    if by_i:
        assert not any(touched[a] & touched[b] for a, b in pairs if a[0] == b[0])
    if whole:
        assert not again and set().union(*touched.values()) == elements((0, 0), (most[0], most[1]))
