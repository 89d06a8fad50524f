"""Positions are of the user's own code: frames of the standard library between it and ours are passed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.source import here, is_between

X, W = np.ones(3, np.float32), np.ones(4, np.float32)


def in_reduce(x, w):
    return functools.reduce(st.add, [x, w])


def in_partial(x, w):
    return functools.partial(st.add, x)(w)


def in_partial_method(x, w):
    class Adds:
        add = functools.partialmethod(lambda self, *given: st.add(*given), x)  # the line of the lambda

    return Adds().add(w)


def in_single_dispatch(x, w):
    return functools.singledispatch(st.add)(x, w)


def in_generated_init(x, w):
    @dataclasses.dataclass
    class Sum:
        value: Any = dataclasses.field(default_factory=functools.partial(st.add, x, w))

    return Sum().value


def in_exit_stack(x, w):
    with contextlib.ExitStack() as stack:
        stack.callback(st.add, x, w)
    return x


@contextlib.contextmanager
def adding(x, w):
    yield st.add(x, w)


def in_context_manager(x, w):
    with adding(x, w) as y:
        return y


def line_of(function: Callable[..., Any], words: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if words in line)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (in_reduce, "functools.reduce("),
        (in_partial, "(w)"),
        (in_partial_method, "lambda"),
        (in_single_dispatch, "(x, w)\n"),
        (in_generated_init, "Sum().value"),
        (in_exit_stack, "with "),
    ],
)
def test_errors_have_the_line_of_the_user(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(st.StagedError) as caught:
        st.function(function)(X, W)
    where = caught.value.where
    assert where is not None and where.file == __file__
    assert where.line == line_of(function, words)


def test_errors_in_a_context_manager_have_its_line() -> None:
    with pytest.raises(st.ShapeError) as caught:
        st.function(in_context_manager)(X, W)
    assert caught.value.where is not None and caught.value.where.line == line_of(adding.__wrapped__, "yield")


def test_an_array_that_is_made_outside_of_a_function_has_the_line_of_the_user() -> None:
    for function in (in_generated_init, in_exit_stack, in_context_manager):
        with pytest.raises(st.ShapeError) as caught:
            function(st.Variable(X), W)
        assert caught.value.where is not None and caught.value.where.file == __file__


def test_text_that_is_run_is_the_user_s() -> None:
    """As that of `python -c`, whose file has the name that generated functions have."""
    names: dict[str, Any] = {"here": here}
    exec(compile("def place():\n    return here()\n\nfound = place()\n", "<string>", "exec"), names)
    assert (names["found"].file, names["found"].line, names["found"].function) == ("<string>", 2, "place")


def test_installed_packages_are_the_user_s_and_the_standard_library_is_not() -> None:
    assert is_between(contextlib.__file__) and is_between(functools.__file__) and is_between(np.__file__)
    assert not is_between(pytest.__file__) and not is_between(__file__)
