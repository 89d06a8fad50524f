"""Attributes of classes that change while staging: state of Python, which constructs of the program do not carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StaticStateError
from staged.frontend.trace_function import trace
from tests.frontend.harness import interpret


def changed_class(how: str) -> Any:
    """A function that makes a class, and changes an attribute of it in a loop or branch of the program."""

    def program(x: Any, n: int) -> Any:
        class Counter:
            k = 1.0

            @classmethod
            def up(cls) -> None:
                cls.k = cls.k + 1.0

            def __add__(self, other: Any) -> Any:
                type(self).k = self.k + 1.0
                return other

        counter = Counter()
        if how == "branch" and n > 1:
            Counter.k = 3.0
        for _ in st.range(n):
            if how == "statement":
                Counter.k = Counter.k + 1.0
            elif how == "method":
                Counter.up()
            elif how == "setattr":
                setattr(Counter, "k", Counter.k + 1.0)  # noqa: B010
            elif how == "operator":
                x = counter + x
            elif how == "back":
                Counter.k = Counter.k + 1.0
                x = x + Counter.k
                Counter.k = Counter.k - 1.0
            x = x + Counter.k
        return x

    return program


@pytest.mark.parametrize("how", ["branch", "statement", "method", "setattr", "operator"])
def test_a_class_that_changes_in_a_staged_construct_is_refused(how: str) -> None:
    with pytest.raises(StaticStateError, match="the attribute `k` of the class `Counter` changes inside the (loop|`if`)"):
        trace(changed_class(how), (np.ones(2), 3))


def test_a_class_that_is_put_back_in_a_loop_is_what_it_was() -> None:
    program = changed_class("back")
    with st.eager():
        wanted = st.function(program)(np.ones(2), 3)
    np.testing.assert_array_equal(interpret(trace(program, (np.ones(2), 3))), wanted)


def test_a_staged_value_does_not_stay_in_a_class() -> None:
    class Kept:
        pass

    def program(x: Any) -> Any:
        Kept.last = x * 2.0  # type: ignore[attr-defined]
        return Kept.last + 1.0  # type: ignore[attr-defined]

    assert interpret(trace(program, (1.0,))) == 3.0
    assert not hasattr(Kept, "last")
