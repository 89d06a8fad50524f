"""`eliminate_dead_writes`: values that a later write replaces unseen are not written."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.frontend.trace_function import trace
from staged.ir.nodes import walk_ops
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.dead_writes import eliminate_dead_writes
from staged.passes.simplify import simplify

X = np.arange(3.0)


def writes(function, *arguments) -> int:
    ir = eliminate_dead_writes(simplify(trace(function, arguments).function))
    return sum(op.name == "variable_write" for op in walk_ops(ir.block))


def twice(between):
    """A function that writes a Variable twice, with something between."""
    kept, other = st.Variable(np.zeros(3), name="kept"), st.Variable(np.zeros(3), name="other")

    def f(x):
        kept.value = x + 1.0
        between(kept, other, x)
        kept.value = x + 2.0
        return st.sum(kept * 1.0)

    return f, kept, other


def nothing(kept, other, x):
    pass


def of_another_variable(kept, other, x):
    other.value = x * 3.0


def a_read(kept, other, x):
    other.value = kept * 3.0


def a_print(kept, other, x):
    print(f"{st.sum(x):.1f}")


def a_loop(kept, other, x):
    for _ in st.range(3):
        other.value = other + x


def a_check(kept, other, x):
    assert st.sum(x) < 100.0


@pytest.mark.parametrize(
    ("between", "count"),
    [(nothing, 1), (of_another_variable, 2), (a_read, 3), (a_print, 2), (a_loop, 3), (a_check, 2)],
)
def test_only_a_write_that_nothing_sees_is_dropped(between, count, capsys) -> None:
    f, kept, _ = twice(between)
    assert writes(f, X) == count
    assert float(st.function(f)(X)) == 9.0
    np.testing.assert_array_equal(kept.numpy(), X + 2.0)


def test_the_last_write_of_an_iteration_stays() -> None:
    kept = st.Variable(np.zeros(3), name="kept")

    def f(x):
        for _ in st.range(3):
            kept.value = x
            kept.value = x + 1.0

    assert writes(f, X) == 1
    st.function(f)(X)
    np.testing.assert_array_equal(kept.numpy(), X + 1.0)


def test_parameters_that_are_initialised_anew_are_drawn_once_from_the_same_counter() -> None:
    def f(x, seed):
        st.seed(seed)
        layer = nn.Linear(3, 4)
        nn.init.kaiming_uniform_(layer.weight)
        return layer(x), st.random.uniform((2,))

    ir = trace(f, (X.astype(np.float32), 3)).function
    kept = eliminate_dead_code(eliminate_dead_writes(simplify(ir)))
    drawn = [sum(op.name == "uniform" for op in walk_ops(each.block)) for each in (ir, kept)]
    assert drawn == [4, 3]
