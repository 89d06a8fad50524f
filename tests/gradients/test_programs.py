"""The gradient of every program of the tables: right, and seen to be wrong where a fault is planted."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.runtime.options import CompileOptions
from tests.gradients.harness import PROGRAMS, Program, WrongGradientError, check_forward, check_reverse
from tests.gradients.programs import branches, exits, loops, memory, recursion, warp  # noqa: F401  (they enter their programs)

each = pytest.mark.parametrize("entry", PROGRAMS.values(), ids=list(PROGRAMS))


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 43


@each
def test_reverse_mode(entry: Program) -> None:
    check_reverse(entry)


@each
def test_reverse_mode_in_eager_mode(entry: Program) -> None:
    check_reverse(entry, in_eager=True)


@each
def test_forward_mode(entry: Program) -> None:
    check_forward(entry)


@each
def test_a_planted_fault_is_noticed(entry: Program) -> None:
    with entry.fault(), pytest.raises(WrongGradientError):
        check_reverse(entry, CompileOptions("0"))


@pytest.mark.parametrize(("function", "point", "want"), warp.EXACT, ids=[case[0].__name__ for case in warp.EXACT])
def test_the_exact_gradients_of_what_warp_gets_wrong(function, point, want) -> None:
    gradient = st.function(lambda *args: st.grad(function)(*args))
    np.testing.assert_allclose(gradient(*point), want, rtol=1e-12)
    with st.eager():
        np.testing.assert_allclose(gradient(*point), want, rtol=1e-12)
