"""Reads of Variables in `simplify`: a number that a Variable is known to hold is not read again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

import staged as st
from staged.frontend.trace_function import trace
from staged.ir.builder import Builder
from staged.ir.nodes import Effect, Function, VariableRef, walk_ops
from staged.ir.structure import VARIABLE_READ, VARIABLE_WRITE
from staged.ir.trips import COUNT, Integers
from staged.ir.types import TensorType, dtype_of
from staged.passes.simplify import simplify


def reads(function, *arguments):
    ir = simplify(trace(function, arguments).function)
    return Counter(op.attrs["variable"].name for op in walk_ops(ir.block) if op.name == "variable_read")


def test_a_number_is_read_once_and_not_after_a_write() -> None:
    kept, changed = st.Variable(2.0, name="kept"), st.Variable(1.0, name="changed")
    table = st.Variable(np.ones(3), name="table")

    def f(x):
        total = kept * x + changed
        changed.value = changed * 3.0
        for _ in st.range(2):
            total = total + kept * changed
        return total + kept + changed, table + total, table * kept

    assert reads(f, 2.0) == {"kept": 1, "changed": 1, "table": 2}
    total = 2.0 * 2 + 1.0 + 2 * 2.0 * 3.0 + 2.0 + 3.0
    assert float(st.function(f)(2.0)[0]) == total


def test_a_number_that_a_loop_writes_is_read_in_each_iteration_and_after() -> None:
    count = st.Variable(1.0, name="count")

    def f(n):
        before = count + 0.0
        seen = 0.0
        for _ in st.range(n):
            seen = seen + count
            count.value = count * 2.0
        return before, seen, count + 0.0

    assert reads(f, 3) == {"count": 3}
    assert tuple(map(float, st.function(f)(3))) == (1.0, 7.0, 8.0)


def test_a_number_that_a_branch_writes_is_read_after_it() -> None:
    count = st.Variable(1.0, name="count")

    def f(x):
        before = count + 0.0
        if x > 0:
            count.value = before + 10.0
            before = before + count
        return before + count

    assert reads(f, 1.0) == {"count": 2}
    assert float(st.function(f)(1.0)) == 12.0 + 11.0 and float(st.function(f)(-1.0)) == 22.0


def test_what_a_branch_reads_is_not_known_after_it() -> None:
    count = st.Variable(3.0, name="count")

    def f(x):
        y = x * 1.0
        if x > 0:
            y = x * count
        return y + count

    assert reads(f, 2.0) == {"count": 2}
    assert float(st.function(f)(2.0)) == 9.0 and float(st.function(f)(-2.0)) == 1.0


def test_a_write_of_a_member_of_a_family_leaves_others_that_are_known() -> None:
    number = TensorType(dtype_of("f64"), ())
    members = tuple([VariableRef(f"scale.{k}", number, True) for k in range(4)])
    family = replace(members[0], name="scale", members=members)
    builder = Builder()

    def read(index):
        effects = (Effect("read", family),)
        return builder.op(VARIABLE_READ, [index], [number], attrs={"variable": family}, effects=effects).result

    def write(value, index):
        attrs, effects = {"variable": family}, (Effect("write", family),)
        builder.op(VARIABLE_WRITE, [value, index], [], attrs=attrs, effects=effects)

    with builder.block([number, COUNT]) as opened:
        value, index = opened.params
        zero, one = (Integers(builder, None).constant(k) for k in range(2))
        known = [read(zero), read(one), read(index)]
        write(value, one)
        after = [read(zero), read(one), read(index)]
        write(value, index)
        last = [read(zero), read(one), read(index)]
        builder.end("return", [*known, *after, *last], None, None)
    simplified = simplify(Function("f", opened.block, variables=(family,)))
    results = simplified.block.end.operands
    value = simplified.block.params[0]
    assert results[3] is results[0] and results[4] is value and results[5] is not results[2]
    assert results[6] is not results[0] and results[7] is not value and results[8] is value


def test_a_function_of_pythons_may_change_a_number() -> None:
    rate = st.Variable(1.0, name="rate")

    def f(x):
        y = x * rate
        st.callback(print)
        return y * rate

    assert reads(f, 2.0) == {"rate": 2}


def test_a_number_is_written_with_the_dtype_that_the_variable_has() -> None:
    """A Python number adopts the dtype of an array; what the Variable gives back does not."""
    rate = st.Variable(np.float64(1.0), name="rate")

    def f(x):
        rate.value = 0.1
        return x * rate

    x = np.ones(2, np.float32)
    assert st.function(f)(x).dtype == f(x).dtype
    assert np.asarray(st.function(f)(x)).tobytes() == np.asarray(f(x)).tobytes()


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
