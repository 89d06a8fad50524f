"""Keys of programs: equal for traces that give one program, and for no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.trace_function import trace
from staged.ir.builder import Builder
from staged.ir.fingerprint import ProgramKey
from staged.ir.nodes import Function
from staged.ir.printer import print_function
from staged.ir.types import TensorType, f32

X, I = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)  # noqa: E741


def key(function: Any, *args: Any, static: tuple[str, ...] = ()) -> ProgramKey:
    return ProgramKey(trace(function, args, static=static).function)


def scaled(x: Any, n: Any) -> Any:
    return x * n if n != 7 else x * n


def loops(x: Any, n: Any) -> Any:
    total = st.zeros_like(x)
    for i in st.range(n):
        if i == 3:
            break
        total = total + x
    return total


def named(x: Any) -> Any:
    first = x + 1.0
    return {"a": first, "b": st.sum(first)}


def test_the_same_trace_has_an_equal_key() -> None:
    for function, args in ((loops, (X, 5)), (named, (X,)), (scaled, (X, 2.0))):
        assert key(function, *args) == key(function, *args)
        assert hash(key(function, *args)) == hash(key(function, *args))


CASES: list[tuple[Any, Any]] = [
    ((lambda x: x + 1.0), (lambda x: x + 2.0)),
    ((lambda x: x * 0.0), (lambda x: x * -0.0)),
    ((lambda x: x + 1.0), (lambda x: x - 1.0)),
    ((lambda x: st.sum(x, axis=0)), (lambda x: st.sum(x, axis=1))),
    ((lambda x: st.reshape(x, (3, 2))), (lambda x: st.reshape(x, (6,)))),
    ((lambda x: st.sum(x, keepdims=True)), (lambda x: st.sum(x, keepdims=False))),
    ((lambda x: x - st.exp(x)), (lambda x: st.exp(x) - x)),
    ((lambda x: (x, x + 1.0)), (lambda x: (x + 1.0, x))),
    ((lambda x: {"a": x + 1.0}), (lambda x: {"b": x + 1.0})),
]


def test_attributes_that_are_equal_and_not_alike_differ_in_the_key() -> None:
    """1 is True and 1.0 to Python, -0.0 is 0.0; what is alike is equal."""
    numbers: list[Any] = [0, False, 0.0, -0.0, "0", None, 1, True]
    values = [*numbers, *((number,) for number in numbers), (), (), (0, 0), ((0,),)]

    def key_of(value: Any) -> ProgramKey:
        builder = Builder()
        with builder.block() as opened:
            builder.op("constant", [], [TensorType(f32)], attrs={"value": value})
            builder.end("return", [])
        return ProgramKey(Function("f", opened.block))

    for one in values:
        for other in values:
            assert (key_of(one) == key_of(other)) == (repr(one) == repr(other)), (one, other)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_differs_in_the_text_differs_in_the_key(number: int) -> None:
    one, other = (trace(function, (X,)).function for function in CASES[number])
    strip = [ProgramKey(f.replace(where=None)) for f in (one, other)]
    assert strip[0]._parts != strip[1]._parts
    assert print_function(one) != print_function(other) or one.result_paths != other.result_paths


def test_types_names_and_lines_are_in_the_key() -> None:
    assert key(scaled, X, 2.0) != key(scaled, I, 2.0)
    assert key(scaled, X, 2.0) != key(scaled, X[:1], 2.0)
    assert key(scaled, X, 2.0) != key(scaled, X, 2)

    def renamed(x: Any) -> Any:
        second = x + 1.0
        return {"a": second, "b": st.sum(second)}

    renamed.__name__ = "named"
    assert key(named, X)._parts != key(renamed, X)._parts

    def chosen(x: Any, first: bool) -> Any:
        if first:
            return x + 1.0
        return x + 1.0

    one, other = (key(chosen, X, first, static=("first",)) for first in (True, False))
    assert one._parts == other._parts and one != other  # equal texts from two lines


def test_an_error_of_a_program_names_the_line_of_its_own_trace() -> None:
    @st.function(static="first")
    def pick(x: Any, i: Any, first: bool) -> Any:
        if first:
            return x[i]
        return x[i]

    start = pick.__wrapped__.__code__.co_firstlineno
    for first, line in ((True, start + 3), (False, start + 4), (True, start + 3)):
        with pytest.raises(IndexError) as caught:
            pick(np.zeros(3), 9, first)
        assert f"line {line}," in str(caught.value)
