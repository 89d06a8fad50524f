"""Wrong programs as users write them: once refused in words that did not help, or not refused at all."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.errors.said import refuses

X = np.arange(4.0)
M = np.arange(6, dtype=np.float32).reshape(2, 3)


def sum_that_starts_at_zero(x):
    total = 0
    for i in st.range(4):
        total = total + x * i  # !
    return total


def best_that_starts_at_none(x):
    best = None
    for v in x:  # !
        if best is None or v > best:
            best = v
    return best


def word_by_branch(x):
    print(f"{'big' if x[0] > 1 else 'small'}")  # !


def element_of_a_list(x):
    return len(["small", "big"][st.argmax(x)])  # !


def entry_of_a_dict(x):
    table = {0: 1.0, 1: 2.0}
    return table[st.argmax(x)]  # !


def dict_filled_in_a_loop(x, n):
    table = {}
    for i in st.range(n):
        table[i] = x[i]  # !
    return table


def comprehension_that_filters(x):
    return [v for v in x if v > 1]  # !


def array_of_numpy(x):
    return np.ascontiguousarray(x)  # !


def concat_without_a_list(x):
    return st.concat(x, x)  # !


def stack_of_different_shapes(x, m):
    rows = [x, m]
    return st.stack(rows)  # !


def text_and_number(x):
    return "value " + x[0]  # !


def gradient_by_nothing(x):
    return st.grad(lambda: st.sum(x))()  # !


def wrong_number_of_features(m):
    return nn.Linear(4, 2)(m)  # !


def element_of_another_dtype(x):
    best = st.Stack(0.0, max=4)
    best.append(x[0])  # !
    return best.array()


def division_caught_in_the_program(x):
    try:
        return 1 // st.astype(x[0], st.i64)  # !
    except ZeroDivisionError:
        return 0


def index_caught_in_the_program(x, n):
    found = 0.0
    for i in st.range(n):
        try:
            found = x[i + 1]  # !
        except (ValueError, IndexError):
            found = -1.0
    return found


def tuple_that_grows(x):
    seen = ()
    for v in x:  # !
        seen = seen + (v,)
    return seen


def list_repeated_by_the_program(x, n):
    return [x] * n  # !


def probability_above_one(x):
    return st.dropout(x, 1.5)  # !


WRONG = [
    (sum_that_starts_at_zero, (X,), st.CarriedValueError, "the value 0 before", "`total = st.zeros((4,), dtype=st.f64)`"),
    (best_that_starts_at_none, (X,), st.CarriedValueError, "the value None", "`best = 0.0`"),
    (word_by_branch, (X,), st.CarriedValueError, "'big'", "print in its branches"),
    (element_of_a_list, (X,), st.StagedValueError, "Python index", "`st.asarray(items)[i]`"),
    (entry_of_a_dict, (X,), st.StagedValueError, "a key of a dict", "`table[i]`"),
    (dict_filled_in_a_loop, (X, 3), st.StagedValueError, "a key of a dict must be known while staging, `i`", "an array"),
    (comprehension_that_filters, (X,), st.StagedValueError, "bool()", "`st.Stack`"),
    (array_of_numpy, (X,), st.StagedValueError, "NumPy array", "`st.asarray([a, b])`"),
    (concat_without_a_list, (X,), st.StagedValueError, "the second argument of concat", "`st.concat([a, b])`"),
    (stack_of_different_shapes, (X, M), st.ShapeError, "one shape", "`st.concat`"),
    (text_and_number, (X,), st.DTypeError, "got str", "f-string"),
    (gradient_by_nothing, (X,), st.GradientError, "got 0 positional arguments", "`wrt=...`"),
    (wrong_number_of_features, (M,), st.ShapeError, "Linear has 4 input features", "`Linear(3, 2)`"),
    (element_of_another_dtype, (X,), st.DTypeError, "an element of this Stack is f32 (), got f64 ()", "max=4"),
    (division_caught_in_the_program, (X,), st.StagingError, "a ZeroDivisionError", "if divisor != 0"),
    (index_caught_in_the_program, (X, 3), st.StagingError, "an IndexError", "if i < len(x)"),
    (tuple_that_grows, (X,), st.CarriedValueError, "the structure differs", "`st.Stack(like, max=...)`"),
    (list_repeated_by_the_program, (X, 3), st.StagedValueError, "a list is repeated", "static"),
    (probability_above_one, (X,), st.ShapeError, "between 0 and 1", ""),
]


@pytest.mark.parametrize(("function", "args", "error", "message", "hint"), WRONG, ids=lambda v: getattr(v, "__name__", ""))
def test_refusal(function: Any, args: tuple[Any, ...], error: type[st.StagedError], message: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        st.function(function).stage(*args)
    assert message in caught.value.message
    assert hint in (caught.value.hint or ""), caught.value.hint
    where = caught.value.where
    assert where is not None
    assert where.text.endswith("# !"), where


RESULTS = [
    (lambda x: "v" + str(x[0]), "a text with staged parts"),
    (lambda x: {x[0], x[1]}, "keys of dicts and members of sets"),
    (lambda x: [{x[0]: 1}], "cannot hash a value: it is staged"),
    (lambda x: range(int(x[0])), "an iterator"),
]


@pytest.mark.parametrize(("function", "message"), RESULTS, ids=[message for _, message in RESULTS])
def test_result_that_cannot_leave_the_program(function: Any, message: str) -> None:
    with refuses(st.StagingError, message):
        st.function(function)(X)


def test_try_that_the_program_has_no_part_in() -> None:
    def program(x, n):
        try:
            scale = int("3")
        except ValueError:
            scale = 1
        try:
            y = x[[0, 1]] * scale // 2
        except (IndexError, ZeroDivisionError):
            y = x[:2]
        try:
            z = x[n]
        except KeyError:
            z = 0.0
        return y, z

    y, z = st.function(program)(X, 1)
    np.testing.assert_allclose(y, [0.0, 1.0])
    assert z == 1.0


def test_misspelt_function_names_the_one_that_was_meant() -> None:
    with pytest.raises(AttributeError, match=r"did you mean `st.relu`\?"):
        _ = st.rellu


def test_async_function_is_told_to_be_a_def() -> None:
    async def program(x):
        await asyncio.sleep(0)
        return x

    with pytest.raises(st.StagingError, match="async") as caught:
        st.function(program)(X)
    assert caught.value.hint == "write a plain `def`"


@pytest.mark.parametrize(("array", "hint"), [(np.array(["a"]), "pass numbers")])
def test_dtypes_without_a_cast_get_no_cast_as_a_hint(array: Any, hint: str) -> None:
    with pytest.raises(st.DTypeError) as caught:
        st.function(lambda x: x)(array)
    assert hint in (caught.value.hint or "")
