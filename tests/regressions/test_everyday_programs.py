"""Texts of objects with staged parts, changes of lists by several statements, and further programs that were refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import staged as st
from tests.frontend.harness import Case, check_program, checks_of

X = np.array([1.0, 2.0, 3.0])


@dataclass
class Ball:
    height: Any
    speed: Any


class Point(NamedTuple):
    x: Any
    y: Any


class Dual:
    def __init__(self, value: Any, slope: Any) -> None:
        self.value = value
        self.slope = slope

    def __repr__(self) -> str:
        return f"Dual({self.value:.3f}, {self.slope:.2f})"


class Temperature:
    def __init__(self, degrees: Any) -> None:
        self.degrees = degrees

    def __str__(self) -> str:
        return f"{self.degrees:.1f} C"

    def __format__(self, spec: str) -> str:
        return f"<{self.degrees:{spec}}>"


def texts_of_objects(h):
    ball = Ball(h, 2.5)
    print(ball, [ball], {"b": ball}, f"{ball}")
    print(Point(h, 2), f"{Point(h, 1)!r}")
    dual = Dual(h, h + 1.0)
    print(dual, [dual], (dual, 1), f"{dual!r}", repr(dual), str(dual))
    temperature = Temperature(h)
    print(temperature, f"{temperature:.3f}", f"{temperature!s}", str(temperature))
    print(Ball(1.0, 2.0), Dual(1, 2.0), f"{Temperature(3.0):.2f}")
    return h


def list_changed_and_bound_anew(x, n):
    h = [x, x * 2]
    for _ in st.range(n):
        h[0], h[1] = h[1], h[0] + h[1]
        a, b = h
        h = [b, a]
    return h


def roll_by_a_staged_number(x, k):
    return st.roll(x, k), st.roll(st.stack([x, x]), -k, axis=1)


CASES = [
    Case(texts_of_objects, [(2.0,)]),
    Case(list_changed_and_bound_anew, [(X, 3), (X, 0)], wrt=(0,)),
    Case(
        roll_by_a_staged_number,
        [(X, 1), (X, -4), (X, 3)],
        wrt=(0,),
        meaning=lambda x, k: (np.roll(x, k), np.roll(np.stack([x, x]), -k, axis=1)),
    ),
]

test_programs, test_gradients = checks_of(CASES)


def test_plain_objects_of_two_paths_are_refused_with_the_way_out() -> None:
    def program(x):
        d = Dual(x, x)
        if x > 1.0:
            d = Dual(x * x, x)
        return d.value

    with pytest.raises(st.CarriedValueError, match="`d` is a Dual") as caught:
        st.function(program)(2.0)
    assert "make `Dual` a dataclass" in (caught.value.hint or "")


@st.function
def expression(code, position):
    """Prefix notation: 0 and a number, 1 and two terms, 2 and two factors; the value, and what comes after it."""
    if code[position] == 0:
        return code[position + 1], position + 2
    left, after = expression(code, position + 1)
    right, end = expression(code, after)
    return (left + right if code[position] == 1 else left * right), end


@st.function
def squares_until_a_negative(x, i):
    if x[i] < 0.0:
        return 0.0
    return x[i] * x[i] + squares_until_a_negative(x, i + 1)


def test_recursion_over_positions_past_the_end_of_an_array() -> None:
    # Rolled out with positions known while staging, it met the end although the program never does.
    def parse(code):
        return expression(code, 0)

    def squares(x):
        return squares_until_a_negative(x, 0)

    check_program(Case(parse, [(np.array([1, 2, 0, 3, 0, 4, 0, 5]),)], meaning=lambda code: (17, 8)))
    ends = Case(squares, [(np.array([1.0, 2.0, -1.0]),), (X,)], (0,), lambda x: 5.0 if x[2] < 0 else x[3])
    check_program(ends)


def test_an_index_out_of_range_that_is_known_while_staging_is_an_index_error() -> None:
    def program(x):
        try:
            return x[10]
        except IndexError:
            return x[0]

    assert st.function(program)(X) == 1.0
