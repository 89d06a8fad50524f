"""`assert` and `raise`."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramAssertionError, StagingError
from staged.frontend.constructs.assert_ import KINDS
from tests.frontend.harness import Case, agree, checks_of, ir, ops

X = np.arange(3, dtype=np.float32)


def test_staged_assert_is_recorded_with_its_message() -> None:
    def f(x, n):
        assert n > 0, f"n is {n}"
        return x

    assert "assert(t_2, n) {kind='assertion', parts=('n is ', (0, '', ''))}" in ir(f, X, 3)
    agree(f, X, 3)


def test_static_assert_is_checked_now() -> None:
    def f(x, flag):
        assert flag, "flag must be set"
        assert x.shape == (3,)
        return x

    assert "assert" not in ops(ir(f, X, True))
    with pytest.raises(ProgramAssertionError, match="flag must be set"):
        ir(f, X, False)


def test_false_assert_in_a_staged_branch_stops_the_program_only_there() -> None:
    def f(x, n):
        if n > 3:
            assert False, "too large"  # noqa: B011
        return x

    assert "assert" in ops(ir(f, X, 3))


def test_raise_outside_staged_control_is_pythons() -> None:
    def f(x):
        if x.ndim != 2:
            raise TypeError("a matrix, please")
        return x

    with pytest.raises(TypeError, match="a matrix, please"):
        ir(f, X)


def test_error_without_an_op_is_refused() -> None:
    class OwnError(Exception):
        pass

    def f(x, n):
        if n > 3:
            raise OwnError("no")
        return x

    with pytest.raises(StagingError, match="`raise OwnError` under a staged condition cannot be staged"):
        ir(f, X, 3)


def test_raise_that_a_try_would_catch_is_refused() -> None:
    def f(x, n):
        try:
            if n > 3:
                raise ValueError("no")
        except ValueError:
            x = x + 1.0
        return x

    with pytest.raises(StagingError, match="cannot be caught"):
        ir(f, X, 3)


def test_raise_in_a_helper_ends_the_callers_path() -> None:
    def fail(n):
        raise ValueError(f"bad {n}")

    def f(x, n):
        if n > 3:
            y = x * fail(n)
        else:
            y = x + 1.0
        return y

    agree(f, X, 1)


# ---- sample programs ----------------------------------------------------------------------------


def asserts_everywhere(x, n):
    assert n > 0, f"n is {n}"
    total = 0.0
    for i in st.range(n):
        assert i < 3 or x[0] > 0.0, "too many"
        total = total + x[i]
        if total > 4.0:
            assert total < 100.0
    while total > 2.0:
        total = total * 0.5
        assert total > 0.0, f"{total:.2f} after {n}"
    assert 0 <= n < 5
    return total


def message_is_made_only_where_it_fails(x, i):
    assert i < 3, f"{i} {100 // (i - 3)}"
    return x[i] * 2.0


def raises_in_loops(x, limit):
    total = 0.0
    for i in st.range(3):
        if x[i] > limit:
            raise ValueError(f"x[{i}] is {x[i]:.1f}")
        for j in st.range(i):
            total = total + x[j]
            if total > 100.0 * limit:
                raise OverflowError("too much")
    else:
        total = total * 2.0
    return total


Y = np.array([1.0, 2.0, 1.5], np.float32)
CASES = [
    Case(asserts_everywhere, [(Y, 3), (Y, 1), (Y, 0), (-Y, 3), (Y * 100, 2)], wrt=(0,)),
    Case(message_is_made_only_where_it_fails, [(Y, 0), (Y, 4)], wrt=(0,)),
    Case(raises_in_loops, [(Y, 10.0), (Y, 1.7), (-Y, -0.013)], wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)


@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.__name__)
def test_a_program_raises_the_class_that_python_would(error) -> None:
    def checked(x):
        if x > 1.0:
            raise error("too large")
        return x

    one, two = np.float32(1.0), np.float32(2.0)
    assert st.function(checked)(one) == 1.0
    for run in (st.function(checked), st.function(lambda x: st.vmap(checked)(st.stack([x, x])))):
        with pytest.raises(error, match="too large") as caught:
            run(two)
        assert isinstance(caught.value, st.ProgramError)
    with pytest.raises(error, match="too large"), st.eager():
        st.function(checked)(two)
