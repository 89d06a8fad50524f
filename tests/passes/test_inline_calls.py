"""Calls become what they do where a program has a device."""

from __future__ import annotations

import numpy as np

import staged as st
from staged.ir.nodes import Function, walk_ops
from staged.ir.types import Device, TensorType, f64, i64
from staged.ir.verifier import verify
from staged.passes.inline_calls import inline_calls
from tests.ir_functions import Functions, assemble, define
from tests.ir_interpreter import run

REAL, INT = TensorType(f64), TensorType(i64)


def program(device: Device) -> Function:
    def main(p: Functions, x):
        (a,) = p.call("outer", [x], [REAL])
        (b,) = p.call("outer", [a], [REAL])
        (c,) = p.call("again", [p.constant(3, INT), b], [REAL])
        p.builder.device = device
        return [c * 2.0]

    def again(p: Functions, n, x):
        return p.if_(n < 1, lambda: (x,), lambda: p.call("again", [n - 1, p.call("inner", [x], [REAL])[0]], [REAL]))

    return assemble(
        define("main", [REAL], main),
        define("outer", [REAL], lambda p, x: [st.sin(p.call("inner", [x], [REAL])[0]) + x]),
        define("again", [INT, REAL], again),
        define("inner", [REAL], lambda p, x: [x * 1.5]),
    )


def test_all_but_recursive_functions_are_inlined_where_there_is_a_device():
    given = program(Device("gpu"))
    made = inline_calls(given)
    verify(made, "inline_calls")
    assert [function.name for function in made.functions] == ["again"]
    calls = [op.attrs["function"] for function in (made, *made.functions) for op in walk_ops(function.block) if op.name == "call"]
    assert calls == ["again", "again"]
    np.testing.assert_array_equal(run(made, 0.3), run(given, 0.3))


def test_programs_of_the_host_keep_their_functions():
    given = program(Device("cpu"))
    assert inline_calls(given) is given
