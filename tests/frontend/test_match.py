"""`match` with values, constants, alternatives, captures and guards."""

from __future__ import annotations

from enum import IntEnum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError
from tests.frontend.harness import Case, checks_of, ir, ops

X = np.array([0.5, 2.0, -1.0, 3.0], np.float32)


class Kind(IntEnum):
    HALF = 3
    NOTHING = 4


def values_and_alternatives(x, n):
    match n:
        case 1 | 2:
            y = x * 2.0
        case Kind.HALF:
            y = x * 0.5
        case -1:
            y = x * x
        case _:
            y = -x
    return y + 1.0


def guards_and_captures(x, n):
    k = 100
    match n:
        case 2 | 3 if x[0] > 1.0:
            y = x * 3.0
        case 3 | 4 as k if x[1] > 1.0:
            y = x * k
        case other if other > 5:
            k = other
            y = x - other
        case _ if n == 1:
            y = x
        case _:
            y = x * x
    return y, k


def without_a_fitting_case(x, n):
    y = x
    match n:
        case 1:
            y = x * 2.0
        case 2 if x[0] > 1.0:
            y = x * 3.0
    return y


def returns_in_cases(x, n):
    match n:
        case 0:
            return x
        case 1:
            y = x * 2.0
        case k if k > 3:
            return -x * k
        case _:
            y = x + 1.0
    return y * y


def leaves_loops(x, n):
    total = 0.0
    for i in st.range(4):
        match i + n:
            case 1:
                continue
            case 4:
                break
            case k if x[i] > 1.0:
                total = total + x[i] * k
            case _:
                total = total - x[i] * x[i]
        total = total * 1.5
    return total


def in_a_while(x, n):
    total, state = 0.0, 0
    while n > 0:
        match state:
            case 0:
                total, state = total + x[0] * x[0], 2
            case 1:
                total, state = total * x[1], 0
            case s:
                total, state = total + s * x[2], s - 1
        n = n - 1
    return total


def constants(x, flag, nothing):
    match flag:
        case True:
            y = x * 2.0
        case False:
            y = x * 3.0
    match nothing:
        case None:
            return y
        case _:
            return y + 1.0


def one_is_not_true(x, n):
    match n:
        case True:
            return x
        case False | None:
            return -x
        case _:
            return x * 2.0


def asks_and_stops_in_order(x, n):
    def loud(text, answer):
        print(text)
        return answer

    match loud("the subject", n):
        case 1 if loud("the guard of 1", x[0] > 1.0):
            y = loud("1", x)
        case 0:
            y = loud("0", x / 2.0)
        case k if loud("the guard of k", 10 // k > 3):
            y = loud("k", x * k)
        case _:
            y = loud("the rest", -x)
    return y


def nested(x, n):
    match n % 3:
        case 0:
            match n:
                case 0 | 3:
                    return x
                case m:
                    y = x * m
        case r:
            y = x - r
    return y * y


def of_text(x, n, how):
    match how:
        case "sum" | "total":
            return x.sum() * n
        case "mean":
            return x.mean() * n
    return x[n]


def both_bools(x, n):
    match n > 2:
        case True:
            y = x
        case False:
            y = x * 2.0
    return y


def bools_with_guards(x, n):
    match n > 2:
        case None:
            y = x - 1.0
        case False if x.sum() > 1.0:
            y = x * 3.0
        case False if x.sum() > -1.0:
            y = x * 4.0
        case True:
            y = x
        case False:
            y = x * 2.0
    return y


NUMBERS = [(X, n) for n in (-1, 0, 1, 2, 3, 4, 6)]
BOTH = [*((X, n) for n in (1, 2, 3, 6)), *((3.0 * X, n) for n in (1, 2, 4))]
CASES = [
    Case(values_and_alternatives, NUMBERS, wrt=(0,)),
    Case(guards_and_captures, [*BOTH, (-X, 3), (-X, 4)], wrt=(0,)),
    Case(without_a_fitting_case, BOTH, wrt=(0,)),
    Case(returns_in_cases, NUMBERS, wrt=(0,)),
    Case(leaves_loops, NUMBERS, wrt=(0,)),
    Case(in_a_while, NUMBERS, wrt=(0,)),
    Case(constants, [(X, True, None), (X, False, None), (X, True, 1)], wrt=(0,), static=("nothing",)),
    Case(both_bools, NUMBERS, wrt=(0,)),
    Case(bools_with_guards, [(sign * X, n) for sign in (-1.0, 0.0, 1.0) for n in (1, 3)], wrt=(0,)),
    Case(one_is_not_true, [(X, 1), (X, 0), (X, True), (X, False)], wrt=(0,)),
    Case(asks_and_stops_in_order, BOTH),
    Case(nested, NUMBERS, wrt=(0,)),
    Case(of_text, [(X, 2, "sum"), (X, 2, "total"), (X, 2, "mean"), (X, 2, "none")], wrt=(0,), static=("how",)),
]

test_programs, test_gradients = checks_of(CASES)


def test_a_static_subject_picks_its_case_while_staging() -> None:
    assert "if" not in ops(ir(values_and_alternatives, X, 3, static=("n",)))
    assert ops(ir(values_and_alternatives, X, 3)).count("if") == 3


def test_a_guard_is_asked_with_its_pattern() -> None:
    """The cases after it are in the program once."""
    assert ir(guards_and_captures, X, 3).count("subtract(") == 1


def bound_in_one_case(x, n):
    match n:
        case 1:
            y = x
        case 2:
            z = x  # noqa: F841
    return y


def bound_in_the_last(x, n):
    match n:
        case 1:
            pass
        case m:
            y = x * m
    return y


def grows_a_list(x, n, made):
    match n:
        case 1 if x.sum() > 2.0:
            made.append(x)
    return made


def a_guarded_bool_leaves_some(x, n):
    match n > 1:
        case True if x.sum() > 2.0:
            y = x
        case False:
            y = x * 2.0
    return y


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (bound_in_one_case, "the `match` at line {}, which binds it only when the `case` at line {} fits"),
        (bound_in_the_last, "the `match` at line {}, which binds it only when the `case` at line {} does not fit"),
        (grows_a_list, "the list `made` changes its length inside the `match` at line {}"),
        (a_guarded_bool_leaves_some, "`y` is not bound on every path through the `match` at line {}"),
    ],
)
def test_errors_name_the_match_and_the_case(function: Any, words: str) -> None:
    at = function.__code__.co_firstlineno + 1
    with pytest.raises(StagingError) as caught:
        ir(function, X, 1, *([[X]] if function is grows_a_list else []))
    message = str(caught.value)
    assert words.format(at, at + 1) in message
    assert "`if`" not in message


def test_a_static_subject_binds_what_its_case_binds() -> None:
    assert st.function(bound_in_one_case, static=("n",))(X, 1) is not None


def test_true_and_false_are_all_there_is() -> None:
    text = ir(both_bools, X, 3)
    assert ops(text).count("if") == 1 and ops(text).count("equal") == 1


@pytest.mark.parametrize("pattern", ["[_, _]", "{'k': _}", "int()", "1 | [_]"])
def test_other_patterns_are_refused_with_their_line(pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "patterns.py"
    path.write_text(f"def f(x, n):\n    match n:\n        case {pattern}:\n            return x\n    return x * 2.0\n")
    spec = spec_from_file_location("patterns", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(StagingError, match="this pattern of a `match` cannot be staged") as caught:
        ir(module.f, X, 1)
    assert caught.value.where is not None and caught.value.where.line == 3
