"""Dead code: what is dropped, what is kept, same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.types import TensorType, bool_, f64
from staged.ir.verifier import verify
from staged.ops import elementwise as e
from staged.passes.dead_code import eliminate_dead_code
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import Leave, Program, function, gradients

F = TensorType(f64)
B = TensorType(bool_)


def clean(f: Callable[..., Any], *arguments: Any) -> Function:
    types = [B if isinstance(a, bool) else F for a in arguments]
    before = function(f, *types)
    after = eliminate_dead_code(before)
    verify(after, "eliminate_dead_code")
    first, second = Interpreter(), Interpreter()
    expected, found = first.run(before, *arguments), second.run(after, *arguments)
    np.testing.assert_array_equal(found, expected)
    assert second.output == first.output
    return after


def ops(after: Function, name: str) -> list[Op]:
    return [op for op in walk_ops(after.block) if op.name == name]


def test_an_unread_op_goes_with_what_feeds_it() -> None:
    def f(p: Program, x: Any) -> Any:
        e.sin(e.exp(x))
        return (x * x,)

    assert [op.name for op in clean(f, 2.0).block.ops] == ["multiply"]


def test_prints_stay_with_what_they_print() -> None:
    def f(p: Program, x: Any) -> Any:
        p.print_(e.exp(x))
        return (x * x,)

    assert [op.name for op in clean(f, 2.0).block.ops] == ["exp", "print", "multiply"]


def test_an_unread_result_of_an_if_goes_from_both_branches() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        a, _ = p.if_(c, lambda: (x * 2.0, e.exp(x)), lambda: (x * 3.0, e.sin(x)))
        return (a,)

    after = clean(f, 2.0, True)
    assert len(ops(after, "if")[0].results) == 1
    assert not ops(after, "exp") and not ops(after, "sin")


def test_an_if_that_nobody_reads_goes() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        p.if_(c, lambda: (x * 2.0,), lambda: (x * 3.0,))
        return (x,)

    assert clean(f, 2.0, True).block.ops == ()


def test_an_if_that_prints_stays_without_its_results() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        def then() -> Any:
            p.print_(x)
            return (e.exp(x),)

        p.if_(c, then, lambda: (x * 3.0,))
        return (x,)

    after = clean(f, 2.0, True)
    assert [op.name for op in walk_ops(after.block)] == ["if", "print"]


def test_a_carried_value_that_only_feeds_itself_goes() -> None:
    def f(p: Program, x: Any) -> Any:
        a, _ = p.for_(3, [x, x], lambda loop, i, a, b: (a * x, e.exp(b)))
        return (a,)

    after = clean(f, 2.0)
    assert len(ops(after, "for")[0].results) == 1
    assert not ops(after, "exp")


def test_a_carried_value_that_feeds_a_live_one_stays() -> None:
    def f(p: Program, x: Any) -> Any:
        a, _ = p.for_(3, [x, x], lambda loop, i, a, b: (a * b, e.exp(b) * 0.1))
        return (a,)

    assert len(ops(clean(f, 1.1), "for")[0].results) == 2


def test_a_carried_value_that_the_condition_reads_stays() -> None:
    def f(p: Program, x: Any) -> Any:
        a, _ = p.while_([x, x], lambda a, b: b < 10.0, lambda loop, a, b: (a + x, b * 2.0))
        return (a,)

    assert len(ops(clean(f, 1.1), "while")[0].results) == 2


def test_a_value_that_decides_a_break_stays() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any, b: Any, c: Any) -> Any:
            s, t, u = p.if_(b > 3.0, lambda: Leave("break", loop, (a, b, a)), lambda: (a * x, e.exp(b), c * c))
            return s, t, u

        a, _, _ = p.for_(9, [x, x, x], body)
        return (a,)

    after = clean(f, 1.1)
    assert len(ops(after, "for")[0].results) == 2
    assert len(ops(after, "if")[0].results) == 2


def test_a_result_of_a_scope_goes() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(scope: Any) -> Any:
            p.if_(x > 1.0, lambda: Leave("break", scope, (x, e.exp(x))), lambda: ())
            return x * 2.0, e.sin(x)

        a, _ = p.scope(body, [F, F])
        return (a,)

    after = clean(f, 1.1)
    assert [op.name for op in walk_ops(after.block)] == ["scope", "constant", "greater", "if", "constant", "multiply"]


def test_a_sequence_that_nobody_reads_is_not_collected() -> None:
    def f(p: Program, x: Any) -> Any:
        return p.for_(5, [x], lambda loop, i, a: (e.sin(a) * x,))

    done, (value, _) = gradients(f, 0.5)
    from staged.ir.nodes import End

    block = done.block
    cut = type(block)(block.params, block.ops, End("return", block.end.operands[:1]))
    after = eliminate_dead_code(done.with_block(cut))
    verify(after)
    (loop,) = ops(after, "for")
    assert len(loop.results) == 1 and "collected" not in loop.attrs
    assert run(after, 0.5) == [value]


def test_the_cotangent_of_an_input_nobody_asked_for_is_not_computed() -> None:
    done, _ = gradients(lambda p, x, y: (e.exp(x) * e.sin(y),), 0.5, 0.3, wrt=[0])
    after = eliminate_dead_code(done)
    assert not ops(after, "cos")


def test_an_exit_inside_a_live_loop_stays() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, a: Any) -> Any:
            p.if_(a > 5.0, lambda: Leave("break", loop, (a,)), lambda: ())
            return (a * 2.0,)

        return p.while_([x], lambda a: p.constant(True, B), body)

    assert ops(clean(f, 1.0), "if")


def test_a_branch_that_stops_the_program_stays() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        p.if_(c, lambda: Leave("raise"), lambda: ())
        return (x,)

    assert ops(clean(f, 1.0, False), "if")


@st.function
def at(x: Any, i: Any) -> Any:
    return x[i[1]]


@st.function
def with_unused_work(x: Any, i: Any, n: Any, case: Any) -> Any:
    """Work whose result is unused; what of it may stop the program does."""
    y = x
    if case == 0:
        for k in st.range(n):
            y = y + x[i[k]]
    elif case == 1:
        y = at(x, i)
    elif case == 2:
        y = st.astype(i // n, st.f64)
    elif case == 3:
        for _ in st.range(0, 3, n):
            y = y + 1.0
    elif case == 4:
        y = st.sum(st.take(x, i))
    elif case == 5:
        y = st.jvp(lambda x: x[i[n]] * 2.0, (x,), (x,))[1]
    elif case == 6:
        y = st.grad(lambda x: st.sum(st.checkpoint(lambda x: x * x[i[n]])(x)))(x)
    k = 0
    while k < n:
        k = k * 1
    return x + 1.0


def test_unused_work_that_may_stop_the_program_stops_it_where_it_does_and_an_endless_loop_goes() -> None:
    x, good, bad = np.arange(3.0), np.array([0, 2]), np.array([0, 9])
    stopping = ((0, bad, 2), (1, bad, 0), (2, good, 0), (3, good, 0), (4, bad, 1), (5, bad, 1), (6, bad, 1))
    passing = ((0, bad, 0), (0, bad, 1), (1, good, 0), (2, good, 1), (3, good, 1), (4, good, 0), (5, bad, 0), (6, bad, 0), (7, bad, 1))
    for case, i, n in stopping:
        with pytest.raises(st.ProgramError):
            with_unused_work(x, i, n, case)
    for case, i, n in passing:
        np.testing.assert_array_equal(with_unused_work(x, i, n, case), x + 1.0)
