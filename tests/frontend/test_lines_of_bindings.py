"""Errors about a name say where it was bound, also where it was bound to a number of Python, which has no position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st

X = np.ones(3)


def line_of(f: Any, text: str) -> str:
    first = f.__code__.co_firstlineno
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return f"line {next(number for number, line in enumerate(lines, 1) if number >= first and text in line)}"


def said(f: Any) -> str:
    with pytest.raises(st.StagedError) as caught:
        st.function(f).stage(X)
    return str(caught.value)


def test_a_number_before_a_loop_has_its_line() -> None:
    def f(x):
        score = 0.0

        for _ in st.range(3):
            score = x
        return score

    assert f"before the loop: the value 0.0   {line_of(f, 'score = 0.0')}" in said(f)


def test_none_and_numbers_of_while_loops_have_their_lines() -> None:
    def none(x):
        best = None

        while x[0] > 0.0:
            best = x
            x = x - 1.0
        return best

    assert f"before the loop: the value None   {line_of(none, 'best = None')}" in said(none)


def test_a_number_of_the_other_branch_has_its_line() -> None:
    def f(x):
        size = 3

        if x[0] > 0.0:
            size = x
        return size

    def both(x):
        if x[0] > 0.0:
            word = "up"
        else:
            word = "down"
        return word

    assert f"in the other: the value 3   {line_of(f, 'size = 3')}" in said(f)
    text = said(both)
    assert f"in the first branch: the value 'up'   {line_of(both, 'up')}" in text
    assert f"in the other: the value 'down'   {line_of(both, 'down')}" in text


def test_a_number_that_two_lines_bind_has_none() -> None:
    """In the loop the same number is bound again: which of the lines it is from cannot be said."""

    def f(x):
        size = 3
        for _ in range(2):
            size = 3
        if x[0] > 0.0:
            size = x
        return size

    assert "in the other: the value 3\n" in said(f)


def test_a_name_of_a_loop_that_branches_bind_apart_is_named_so() -> None:
    def f(x):
        word = "none"
        for _ in st.range(3):
            if x[0] > 0.0:
                word = "some"
        return word

    text = said(f)
    assert "the value 'some' in the first branch and the value 'none' in the other" in text
    assert line_of(f, '"some"') in text and line_of(f, '"none"') in text
