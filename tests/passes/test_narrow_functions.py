"""Functions take what they need, once, and give what is read; checked by running the program before and after."""

from __future__ import annotations

import numpy as np

import staged as st
from staged.ir.nodes import FrameRecord, Function, walk_ops
from staged.ir.types import FrameType, TensorType, f64, i64
from staged.ir.verifier import verify
from staged.passes.narrow_functions import narrow_functions
from tests.ir_functions import Functions, assemble, define
from tests.ir_interpreter import run

INT, REAL = TensorType(i64), TensorType(f64)


def narrowed(program: Function, *arguments: object) -> Function:
    made = narrow_functions(program)
    verify(made, "narrow_functions")
    np.testing.assert_allclose(run(made, *arguments), run(program, *arguments))
    return made


def hints(program: Function, name: str) -> list[str]:
    (found,) = [function for function in program.functions if function.name == name]
    return [param.hint for param in found.params]


def test_parameters_that_are_always_equal_become_one_through_recursion():
    def f(p: Functions, n, a, b, c):
        # `a` and `b` change places, and are given the same from outside; `c` is not always what they are.
        return p.if_(n < 1, lambda: (a * b + c,), lambda: p.call("f", [n - 1, b, a, c * 2.0], [REAL]))

    program = assemble(
        define("main", [INT, REAL], lambda p, n, x: p.call("f", [n, x, x, x], [REAL])),
        define("f", [INT, REAL, REAL, REAL], f),
    )
    assert hints(narrowed(program, 3, 1.5), "f") == ["n", "a", "c"]


def test_what_two_callers_give_differently_stays_apart():
    f = define("f", [REAL, REAL], lambda p, a, b: [a - b])
    program = assemble(
        define("main", [REAL, REAL], lambda p, x, y: [*p.call("f", [x, x], [REAL]), *p.call("f", [x, y], [REAL])]), f
    )
    assert hints(narrowed(program, 3.0, 1.5), "f") == ["a", "b"]


def test_parameters_that_only_go_round_and_results_that_nobody_reads_go():
    def f(p: Functions, n, used, passed):
        def more():
            r, s, _ = p.call("f", [n - 1, used * 2.0, passed + 1.0], [REAL, REAL, REAL])
            return r, s, passed

        r, s, t = p.if_(n < 1, lambda: (used, used * passed, passed), more)
        return [r, s, t]

    def main(p: Functions, n, x, y):
        return [p.call("f", [n, x, y], [REAL, REAL, REAL])[0]]

    program = assemble(define("main", [INT, REAL, REAL], main), define("f", [INT, REAL, REAL], f))
    made = narrowed(program, 2, 1.5, 0.5)
    (call,) = [op for op in walk_ops(made.block) if op.name == "call"]
    # The `if` still yields the second: dead code is another pass's business. The third is not returned.
    assert len(call.results) == 2


def test_sums_in_place_stay_with_their_results_or_go_with_them():
    def f(p: Functions, n, x, total, other):
        def more():
            return p.call("f", [n - 1, x * 0.5, total + x, other * 2.0], [REAL, REAL], in_place=((2, 0), (3, 1)))

        return p.if_(n < 1, lambda: (total, other), more)

    def main(p: Functions, n, x):
        return [p.call("f", [n, x, x, x], [REAL, REAL], in_place=((2, 0), (3, 1)))[1]]

    program = assemble(define("main", [INT, REAL], main), define("f", [INT, REAL, REAL, REAL], f))
    made = narrowed(program, 3, 1.5)
    (call,) = [op for op in walk_ops(made.block) if op.name == "call"]
    for param, result in call.attrs["in_place"]:
        assert call.operands[param].type == call.results[result].type
    assert call.operands[call.attrs["in_place"][-1][0]] is made.params[1]


def test_functions_that_nobody_calls_and_fields_that_nobody_reads_go():
    record = FrameRecord("kept", (("a", REAL), ("b", REAL), ("again", REAL)))

    def save(p: Functions, x):
        y = st.sin(x)
        op = p.builder.op("frame_save", p.values([x, y, y]), [FrameType("kept")])
        return p.handles(op.results)

    def load(p: Functions, frame):
        op = p.builder.op("frame_load", p.values([frame]), [REAL, REAL, REAL])
        _, b, again = p.handles(op.results)
        return [b * 2.0 + again]

    def main(p: Functions, x):
        return p.call("load", p.call("save", [x], [FrameType("kept")]), [REAL])

    program = assemble(
        define("main", [REAL], main),
        define("save", [REAL], save),
        define("load", [FrameType("kept")], load),
        define("alone", [REAL], lambda p, x: [x]),
        frames=[record],
    )
    made = narrowed(program, 0.7)
    assert [function.name for function in made.functions] == ["save", "load"]
    assert made.frames == (FrameRecord("kept", (("b", REAL),)),)
