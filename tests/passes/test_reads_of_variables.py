"""Reads of Variables in `simplify`: of a number that a function never writes, itself or by its calls, one is enough."""

from __future__ import annotations

from collections import Counter

import numpy as np

import staged as st
from staged.frontend.trace_function import trace
from staged.ir.nodes import walk_ops
from staged.passes.simplify import simplify


def reads(function, *arguments):
    ir = simplify(trace(function, arguments).function)
    return Counter(op.attrs["variable"].name for op in walk_ops(ir.block) if op.name == "variable_read")


def test_a_number_that_is_never_written_is_read_once_and_others_where_they_stand() -> None:
    kept, changed = st.Variable(2.0, name="kept"), st.Variable(1.0, name="changed")
    table = st.Variable(np.ones(3), name="table")

    def f(x):
        total = kept * x + changed
        changed.value = changed * 3.0
        for _ in st.range(2):
            total = total + kept * changed
        return total + kept + changed, table + total, table * kept

    assert reads(f, 2.0) == {"kept": 1, "changed": 4, "table": 2}
    total = 2.0 * 2 + 1.0 + 2 * 2.0 * 3.0 + 2.0 + 3.0
    assert float(st.function(f)(2.0)[0]) == total


def test_a_number_that_a_called_function_writes_is_read_again() -> None:
    count = st.Variable(0, name="count")

    @st.function
    def down(n):
        if n == 0:
            return 0
        count.value = count + 1
        return down(n - 1) + 1

    def f(n):
        before = count + 0
        depth = down(n)
        return before * 100 + depth * 10 + count

    assert reads(f, 3) == {"count": 2}
    assert int(st.function(f)(3)) == 33 and int(count) == 3
