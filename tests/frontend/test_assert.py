"""`assert` and `raise`."""

from __future__ import annotations

import numpy as np
import pytest

from staged.errors import ProgramAssertionError, StagingError
from tests.frontend.harness import agree, ir, ops

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
