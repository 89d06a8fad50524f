"""Python integers that meet arrays of narrow integers: what does not fit stops the program, as NumPy stops Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramOverflowError, StaticOverflowError
from staged.testing import assert_backends_agree
from tests.frontend.harness import Case, checks_of

U8 = np.array([0, 1, 2, 100, 255], np.uint8)
I8 = np.array([0, 1, -2, 100, -128], np.int8)
U64 = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
W = np.array([0.5, -1.0, 2.0, 0.25, 3.0], np.float32)
BORDERS = [(x.astype(t), n) for t in (np.uint8, np.int8) for x in (U8[:3],) for n in (0, 127, 128, 255, 256, -1, -128, -129)]
WIDE = [
    (U8.astype(t), n)
    for t in (np.int16, np.uint16, np.int32, np.uint32)
    for n in (int(np.iinfo(t).max), int(np.iinfo(t).max) + 1, int(np.iinfo(t).min), int(np.iinfo(t).min) - 1)
]
ENDS = [(np.array([1, 2], np.uint64), n) for n in (0, 2**63 - 1, -1)] + [(np.array([1, 2]), n) for n in (-1, 2**63 - 1)]


def added(x: Any, n: Any) -> Any:
    return x + n


def operated(x: Any, n: Any) -> Any:
    return n - x, x * n, x & n, n | x, x ^ n


def divided(x: Any, n: Any) -> Any:
    y = (x & 1) + 1
    return x // (abs(n) + 1), x % (abs(n) + 1), n // y, n % y


def to_the_power(x: Any, n: Any) -> Any:
    return x ** abs(n)


def compared(x: Any, n: Any) -> Any:
    return x == n, x != n, x < n, n <= x, x > n, n >= x


def compared_with_counters(x: Any, n: Any) -> Any:
    hits = 0
    for i in range(n):
        hits = hits * 3 + np.sum(x == i) + 2 * np.sum(x < i - 3)
    for i in range(250, 255):
        hits = hits * 3 + np.sum(x >= i)
    return hits


def counted(x: Any, n: Any) -> Any:
    for i in range(n):
        x = x + i
    return x


def counted_down(x: Any, n: Any) -> Any:
    for i in range(3, n, -1):
        x = x + i
    return x


def written(x: Any, n: Any) -> Any:
    x[1] = n
    x[2:4] = n - 1
    return x


def added_in_place(x: Any, n: Any) -> Any:
    x[0] += n
    x[1:3] -= n
    return x


def chosen(x: Any, n: Any) -> Any:
    return st.where(x > 1, x, n), st.maximum(x, n), st.minimum(n, x)


def chosen_by_numpy(x: Any, n: Any) -> Any:
    x.dtype.type(n)  # NumPy's `where` wraps around without a word
    return np.where(x > 1, x, x.dtype.type(n)), np.maximum(x, n), np.minimum(n, x)


def filled(x: Any, n: Any) -> Any:
    return st.full((2,), n, dtype=st.u8)


def filled_by_numpy(x: Any, n: Any) -> Any:
    return np.full((2,), n, np.uint8)


def made(x: Any, n: Any) -> Any:
    return st.asarray(n, dtype=st.u8)


def made_by_numpy(x: Any, n: Any) -> Any:
    return np.asarray(n, np.uint8)


def joined_to(x: Any, n: Any) -> Any:
    return st.concat([x, [n]])


def joined_by_numpy(x: Any, n: Any) -> Any:
    return np.concatenate([x, np.array([n], np.uint8)])


def clipped(x: Any, n: Any) -> Any:
    return st.clip(x, -300, n), st.clip(x, n - 400, 300), st.clip(x, n - 400, n)


def clipped_by_numpy(x: Any, n: Any) -> Any:
    wide = x.astype(np.int64)
    found = np.clip(wide, -300, n), np.clip(wide, n - 400, 300), np.clip(wide, n - 400, n)
    for each in found:
        if not all(np.iinfo(x.dtype).min <= value <= np.iinfo(x.dtype).max for value in each):
            raise OverflowError
    return tuple(each.astype(x.dtype) for each in found)


def in_one_branch(x: Any, n: Any) -> Any:
    y = x
    if n < 300:
        y = x + n
    return y


@st.function
def seen_by_a_recursion(x: Any, n: Any) -> Any:
    return x if n < 1 else seen_by_a_recursion(x + n, n - 100)


def recursive(x: Any, n: Any) -> Any:
    return seen_by_a_recursion(x, n)


def turned(x: Any, n: Any) -> Any:
    while n >= 1:
        x, n = x + n, n - 100
    return x


def printed_before(x: Any, n: Any) -> Any:
    for i in range(n):
        print(i)
        x = x * i
        print(x[1])
    return x


def of_a_loss(w: Any, x: Any, n: Any) -> Any:
    total = 0.0
    for i in range(n):
        total = total + (w * w * (x + i)).sum()
    return total


CASES = [
    Case(added, BORDERS + WIDE + ENDS),
    Case(operated, BORDERS + WIDE),
    Case(divided, [(U8, 6), (U8, 254), (I8, 126), (U8, 255), (I8, -128), (U8, -1)]),
    Case(to_the_power, [(U8, 3), (U8, 255), (I8, 127), (U8, 256), (I8, -128)]),
    Case(compared, [*BORDERS, *WIDE, *ENDS, (U64, 0), (U64, -1), (U64, 2**63 - 1)]),
    Case(compared_with_counters, [(U8, 5), (U8, 300), (I8, 5), (I8, 200)]),
    Case(counted, [(U8, 4), (U8, 256), (U8, 257), (I8, 128), (I8, 129), (U64, 3), (U8, 0)]),
    Case(counted_down, [(U8, -1), (U8, -2), (I8, -129), (I8, -130), (U64, -1), (U64, -2)]),
    Case(written, [(U8, 255), (U8, 256), (U8, 0), (I8, -127), (I8, -128), (U8, -1)]),
    Case(added_in_place, [(U8, 255), (U8, 256), (U8, -1), (I8, -128), (I8, -129)]),
    Case(chosen, [(U8, 255), (U8, 256), (I8, -128), (I8, -129)], meaning=chosen_by_numpy),
    Case(filled, [(U8, 255), (U8, 256), (U8, -1)], meaning=filled_by_numpy),
    Case(made, [(U8, 255), (U8, 256), (U8, -1)], meaning=made_by_numpy),
    Case(joined_to, [(U8, 255), (U8, 256), (U8, -1)], meaning=joined_by_numpy),
    Case(clipped, [(U8, 3), (U8, 300), (U8, 2**40), (U8, -1), (U8, 700), (I8, -128), (I8, -129)], meaning=clipped_by_numpy),
    Case(in_one_branch, [(U8, 255), (U8, 256), (U8, 300), (U8, -1)]),
    Case(recursive, [(U8, 250), (U8, 355)], meaning=turned),
    Case(printed_before, [(U8, 3), (I8, 130)]),
    Case(of_a_loss, [(W, U8, 3), (W, U8, 256), (W, U8, 257)], wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)


def line_of(error: BaseException) -> str:
    assert isinstance(error, st.StagedError) and error.where is not None
    return str(error)


def test_the_error_says_the_number_the_dtype_and_the_line() -> None:
    def program(x: Any, n: Any) -> Any:
        for i in st.range(n):
            x = x * i  # here
        return x

    for run in (st.function(program), in_eager(program)):
        with pytest.raises(ProgramOverflowError, match=r"^256 does not fit u8 \(0 to 255\)") as caught:
            run(U8, 300)
        assert "x = x * i  # here" in line_of(caught.value)


def in_eager(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with st.eager():
            return st.function(function)(*args)

    return run


def test_a_number_known_while_staging_is_the_same_kind_of_error() -> None:
    for refused in (lambda x: x + 256, lambda x: st.full((2,), -1, dtype=st.u8), lambda x: st.maximum(x, 256)):
        for run in (st.function(refused), in_eager(refused)):
            with pytest.raises(StaticOverflowError, match="does not fit u8") as caught:
                run(U8)
            assert isinstance(caught.value, OverflowError) and isinstance(caught.value, st.DTypeError)


def joined(x: Any, n: Any) -> Any:
    y = x[0]
    if n > 0:
        y = n
    return y


def joined_with_a_known_one(x: Any, n: Any) -> Any:
    y = x[0]
    if n > 0:
        y = 256
    return y


def carried(x: Any, n: Any) -> Any:
    y = x[0]
    for i in st.range(n):
        y = i
    return y


def test_a_number_that_joins_an_element_fits_its_dtype() -> None:
    assert st.function(joined)(U8, 255) == 255
    assert st.function(carried)(U8, 256) == 255
    for program, n in ((joined, 256), (carried, 257)):
        with pytest.raises(ProgramOverflowError, match="256 does not fit u8"):
            st.function(program)(U8, n)
    assert st.function(joined)(U8, -5) == 0
    with pytest.raises(StaticOverflowError, match="256 does not fit u8"):
        st.function(joined_with_a_known_one)(U8, 1)


def test_a_variable_takes_a_number_that_fits() -> None:
    count = st.Variable(np.zeros((), np.uint8), name="count")

    @st.function
    def program(n: Any) -> Any:
        count.value = n
        return count.value + 1

    assert program(254) == 255
    for n in (256, -1):
        with pytest.raises(ProgramOverflowError, match=f"{n} does not fit u8"):
            program(n)
        assert count.numpy() == 254
        with pytest.raises(ProgramOverflowError, match=f"{n} does not fit u8"), st.eager():
            program(n)


def test_words_of_torch_and_stacks_take_a_number_that_fits() -> None:
    def masked(x: Any, n: Any) -> Any:
        return x.masked_fill(x > 1, n)

    def stacked(x: Any, n: Any) -> Any:
        stack = st.Stack(x[0], max=3)
        stack.append(n)
        return stack[0]

    for program in (masked, stacked):
        assert_backends_agree(program, U8, 255)
        with pytest.raises(ProgramOverflowError, match="256 does not fit u8"):
            assert_backends_agree(program, U8, 256)


def test_what_the_user_converts_wraps_around() -> None:
    def program(x: Any, n: Any) -> Any:
        return x + st.astype(n, st.u8), st.astype(x, st.i64) + n

    for one, other in zip(assert_backends_agree(program, U8, 257), (U8 + np.uint8(1), U8.astype(np.int64) + 257), strict=True):
        np.testing.assert_array_equal(one, other)


# ---- where nothing is checked -------------------------------------------------------------------


def by_known_counters(x: Any, k: Any) -> Any:
    for i in range(10):
        x = x + i
    for i in range(x.shape[0] * 2, 0, -3):
        x = x * (i * 7 % 256)
    return x


def by_remainders(x: Any, k: Any) -> Any:
    return x + k % 200, x * (k & 127), x + min(max(k, 0), 9), x + (3 if k > 2 else 250)


def by_elements(x: Any, k: Any) -> Any:
    return x + int(x[1]), x * (int(x[0]) // 2), st.where(x > 1, x, int(x[2] > 7))



def by_wide_arrays(x: Any, k: Any) -> Any:
    return st.astype(x, st.i64) * k, st.astype(x, st.f32) + k


@pytest.mark.parametrize("program", [by_known_counters, by_remainders, by_elements, by_wide_arrays])
def test_a_number_whose_range_is_known_is_not_checked(program: Callable[..., Any]) -> None:
    source = st.function(program).stage(U8, 7).source
    assert "fit" not in source
    assert_backends_agree(program, U8, 7)


def test_a_check_is_made_once_for_a_number() -> None:
    @st.function
    def program(x: Any, n: Any) -> Any:
        y = x + n
        for i in range(3):
            y = y * n + i
        return y, st.where(x > n, y, n)

    assert program.stage(U8, 3).source.count("st_checked_fit_u8(host") == 1


def test_elements_are_compared_as_they_are_stored_with_what_fits() -> None:
    @st.function(target="portable")
    def program(x: Any) -> Any:
        hits = st.zeros(x.shape, dtype=st.i32)
        for i in range(9):
            hits = hits + st.astype(x == i, st.i32)
        return hits

    assert "i64v" not in program.stage(np.zeros(64, np.uint8)).source
    np.testing.assert_array_equal(program(np.arange(64, dtype=np.uint8)), np.arange(64) < 9)
