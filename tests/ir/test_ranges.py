"""Ranges of integers hold for every pair of numbers in them, as each dtype holds the results."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from staged.ir.builder import Builder
from staged.ir.numbers import as_held, fits, limits, same_number, wrapped
from staged.ir.ranges import RANGES, Ranges
from staged.ir.sizes import Dim
from staged.ir.trips import count_of
from staged.ir.types import DType, TensorType, bool_, f32, f64, i32, i64, u8, u32, u64
from tests.passes.borders import INTEGERS, in_dtype

I = TensorType(i64)  # noqa: E741
MEANINGS: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "cast": int,
    "fit": int,
    "select": lambda condition, a, b: a if condition else b,
    "bitwise_and": operator.and_,
}
OF_TWO = [name for name in MEANINGS if name not in ("cast", "fit", "select")]


def spans(dtype: DType) -> list[tuple[int, int]]:
    """Short ranges, at the ends of the dtype and around 0; and all of it."""
    low, high = (0, 2 ** (8 * dtype.size) - 1)
    if dtype.kind == "i":
        low, high = -(high // 2) - 1, high // 2
    middle = [(-7, -3), (-5, 4), (-1, 0)] if low else [(3, 7)]
    return [
        *middle,
        (0, 0),
        (1, 6),
        (2, 3),
        (low, low + 2),
        (high - 2, high),
        (low, high),
        (0, high),
        (high // 2, high // 2 + 2),
    ]


def members(span: tuple[int, int]) -> list[int]:
    """Numbers of a range: all of a short one, else those near its ends and 0."""
    low, high = span
    if high - low < 12:
        return list(range(low, high + 1))
    return sorted({low, low + 1, high - 1, high, *(n for n in (-1, 0, 1, 2, 3) if low <= n <= high)})


def result_of(
    name: str, types: list[TensorType], result: DType, known: Sequence[tuple[int, int] | None], **attrs: Any
) -> tuple[int, int] | None:
    """The range of an op's result, where those of its operands are `known` (None: they are not)."""
    builder = Builder()
    with builder.block(types) as block:
        made = builder.op(name, list(block.params), [TensorType(result)], attrs=attrs).result
        builder.end("return", [made])
    ranges = Ranges()
    ranges.known.update((param, span) for param, span in zip(block.params, known, strict=True) if span is not None)
    return ranges.of(made)


def test_every_rule_has_a_meaning_here() -> None:
    assert set(RANGES) == set(MEANINGS), (
        "a rule of ranges.py without its meaning in Python has no test: add it to MEANINGS"
    )


def test_every_rule_says_when_it_is_exact() -> None:
    for rule in (*RANGES.values(), Ranges.of, Ranges.of_operand, Ranges.of_index):
        lines = [line.strip() for line in (rule.__doc__ or "").splitlines()]
        assert any(line.startswith("Exact: ") for line in lines), (
            f"{rule.__name__} of ranges.py does not say when it is exact"
        )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", OF_TWO)
def test_range_of_arithmetic(name: str, dtype: DType) -> None:
    found_any = False
    for first, second in itertools.product(spans(dtype), repeat=2):
        found = result_of(name, [TensorType(dtype)] * 2, dtype, [first, second])
        if found is None:
            continue
        found_any = True
        for i, j in itertools.product(members(first), members(second)):
            value = in_dtype(MEANINGS[name](i, j), dtype)
            assert found[0] <= value <= found[1], f"{dtype}: {name}({i}, {j}) is {value}, its range {found}"
    assert found_any, f"{name} of {dtype} never has a range"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_range_of_casts(dtype: DType) -> None:
    for source in INTEGERS:
        for span in spans(source):
            found = result_of("cast", [TensorType(source)], dtype, [span])
            low, high = limits(dtype)
            assert (found is None) == (span[0] < low or span[1] > high)
            assert found in (None, span)


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype is not i64], ids=str)
def test_range_of_a_number_that_has_been_found_to_fit(dtype: DType) -> None:
    low, high = limits(dtype)
    for span in [*spans(i64), (max(low, -5), 9), (low, min(high, 2**63 - 1))]:
        found = result_of("fit", [I], dtype, [span])
        assert found == (span if fits(span, dtype) else None)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_range_of_a_choice_has_both(dtype: DType) -> None:
    for first, second in itertools.product(spans(dtype), repeat=2):
        found = result_of("select", [TensorType(bool_), *[TensorType(dtype)] * 2], dtype, [None, first, second])
        assert found == (min(*first, *second), max(*first, *second))


def test_range_of_what_paths_decide_has_all_of_them() -> None:
    for first, second in itertools.product([3, 250, -1], [7, None]):
        builder = Builder()
        with builder.block([TensorType(bool_), I]) as block:
            condition, unknown = block.params
            taken = []
            for number in (first, second):
                with builder.block() as branch:
                    made = unknown if number is None else builder.op("constant", [], [I], attrs={"value": number}).result
                    builder.end("yield", [made])
                taken.append(branch.block)
            made = builder.op("if", [condition], [I], blocks=taken).result
            builder.end("return", [made])
        assert Ranges().of(made) == (limits(i64) if second is None else (min(first, second), max(first, second)))


def test_what_is_known_of_an_operand_is_at_least_its_dtype() -> None:
    """A u8 that becomes an i64 is 0 to 255, a bool 0 or 1; a sum of any two i64 may wrap around."""
    for source in INTEGERS:
        found = result_of("cast", [TensorType(source)], i64, [None])
        assert found == (limits(source) if source is not u64 else None)
    assert result_of("cast", [TensorType(bool_)], i64, [None]) == (0, 1)
    assert result_of("remainder", [I, I], i64, [None, (7, 7)]) == (0, 6)
    assert result_of("bitwise_and", [I, I], i64, [None, (0, 15)]) == (0, 15)
    assert result_of("minimum", [I, I], i64, [None, (3, 9)]) == (-(2**63), 9)
    assert result_of("add", [I, I], i64, [None, (0, 1)]) is None


def test_a_size_has_the_range_of_its_dimensions_and_is_not_negative() -> None:
    assert result_of("extent", [], i64, [], dim=Dim("T")) == (0, 2**63 - 1)
    assert result_of("extent", [], i64, [], dim=Dim("T", 9) * 2 - 4) == (0, 14)


def test_what_may_wrap_around_has_no_range() -> None:
    assert result_of("multiply", [I, I], i64, [(0, 3), (2**62, 2**62)]) is None
    assert result_of("subtract", [TensorType(u32)] * 2, u32, [(0, 3), (1, 1)]) is None
    assert result_of("subtract", [TensorType(u32)] * 2, u32, [(1, 3), (1, 1)]) == (0, 2)
    assert result_of("add", [TensorType(u8)] * 2, u8, [(0, 200), (0, 56)]) is None
    assert result_of("floor_divide", [TensorType(i32)] * 2, i32, [(-(2**31), 0), (-1, -1)]) is None


def test_floats_have_no_range() -> None:
    assert result_of("cast", [I], f32, [(0, 3)]) is None
    builder = Builder()
    with builder.block([TensorType(f64)]) as block:
        made = builder.op("cast", list(block.params), [I]).result
        builder.end("return", [made])
    assert Ranges().of(made) is None


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_range_of_a_loops_index(dtype: DType) -> None:
    low, high = limits(dtype)
    ends = (low, low + 2, 0, 4, high - 2, high)
    for start, stop, step in itertools.product(ends, ends, (-3, -1, 1, 2, 2**40)):
        if not fits((step, step), dtype):
            continue
        builder = Builder()
        with builder.block() as block:
            scalar = TensorType(dtype)
            bounds = [builder.op("constant", [], [scalar], attrs={"value": v}).result for v in (start, stop, step)]
            builder.end("return", [])
        assert block.ended
        found = Ranges().of_index(bounds)
        assert found is not None
        for index in itertools.islice(range(start, stop, step), 5):
            assert found[0] <= index <= found[1], (start, stop, step)
        if turns := range(start, stop, step):
            assert found[0] <= turns[-1] <= found[1]


def test_range_of_an_index_whose_bounds_are_ranges() -> None:
    for (a, b), (c, d), (e, f) in itertools.product([(-3, 1), (0, 0)], [(-4, 2), (5, 9)], [(-2, -1), (1, 3), (-1, 1)]):
        builder = Builder()
        with builder.block([I] * 3) as block:
            builder.end("return", [])
        ranges = Ranges()
        ranges.known.update(zip(block.params, [(a, b), (c, d), (e, f)], strict=True))
        found = ranges.of_index(list(block.params))
        if e <= 0 <= f:
            assert found is None
            continue
        assert found is not None
        for start, stop, step in itertools.product(range(a, b + 1), range(c, d + 1), range(e, f + 1)):
            for index in range(start, stop, step):
                assert found[0] <= index <= found[1], (start, stop, step)


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_numbers_as_an_integer_dtype_holds_them(dtype: DType) -> None:
    for number in (0, 1, -1, 127, 128, 255, 256, -129, 2**31, -(2**31) - 1, 2**32, 2**63, -(2**63) - 1, 2**70 + 5):
        assert wrapped(number, dtype) == as_held(number, dtype) == in_dtype(number, dtype)


def test_numbers_as_a_float_dtype_holds_them() -> None:
    cases: list[tuple[Any, Any, float]] = [
        (0.1, f32, 0.10000000149011612),
        (0.1, f64, 0.1),
        (2**24 + 1, f32, 2.0**24),
        (2**53 + 1, f64, 2.0**53),
        (1e300, f32, float("inf")),
    ]
    for number, dtype, expected in cases:
        assert as_held(number, dtype) == expected


def test_the_same_number() -> None:
    assert same_number(0.5, 0.5) and same_number(float("nan"), float("nan"))
    assert not same_number(0.0, -0.0)


def test_counts_of_loops() -> None:
    for start, stop, step in itertools.product(range(-4, 5), range(-4, 5), (-3, -2, -1, 1, 2, 3)):
        assert count_of(start, stop, step) == len(range(start, stop, step)), (start, stop, step)
    assert count_of(-(2**63), 2**63 - 1, 1) == 2**64 - 1
