"""Exits become values inside transforms, and stay exits outside. Gradients through them: tests/autodiff."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staged.ir.builder import Builder
from staged.ir.nodes import Block, End, Function, walk_blocks, walk_ops
from staged.ir.types import TensorType, f64, i64
from staged.ir.verifier import verify
from staged.ops import elementwise as e
from staged.passes.normalize_exits import _normal_block, normalize_exits
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import Leave, Program, check_gradients, function, named, plain

F = TensorType(f64)


def normal(f: Any, *types: TensorType) -> tuple[Function, Function]:
    """`f` as it is, and with its whole body treated as that of a transform."""
    before = function(f, *types)
    block = before.block
    yielding = Block(block.params, block.ops, End("yield", block.end.operands))
    done = _normal_block(Builder(), yielding, {})
    after = before.with_block(Block(done.params, done.ops, End("return", done.end.operands)))
    verify(after, "normalize_exits")
    assert not any(op.name == "scope" for op in walk_ops(after.block))
    assert {b.end.kind for b in walk_blocks(after.block)} <= {"yield", "return", "raise"}
    return before, after


def search(p: Program, x: Any, y: Any) -> Any:
    """Nested loops, left and continued from everywhere, with prints to see the order."""

    def outer(loop: Any, i: Any, a: Any) -> Any:
        p.print_(i, a)

        def inner(here: Any, j: Any, b: Any) -> Any:
            (c,) = p.if_(b > 4.0, lambda: Leave("break", loop, (b * x,)), lambda: (b * y,))
            (d,) = p.if_(c > 3.0, lambda: Leave("continue", loop, (c - 1.0,)), lambda: (c + x,))
            (g,) = p.if_(d > 2.5, lambda: Leave("break", here, (d * 0.5,)), lambda: (d,))
            p.print_(j, g)
            (h,) = p.if_(g < 1.0, lambda: Leave("continue", here, (g + y,)), lambda: (e.sin(g) + g,))
            return (h,)

        (b,) = p.for_(5, [a], inner)
        return (b * x,)

    return p.for_(4, [x], outer, start=1)


@pytest.mark.parametrize("x", [0.1, 0.4, 0.9, 1.3, 2.0, 5.0])
@pytest.mark.parametrize("y", [0.5, 1.0, 1.7])
def test_same_values_and_prints(x: float, y: float) -> None:
    before, after = normal(search, F, F)
    first, second = Interpreter(), Interpreter()
    np.testing.assert_array_equal(first.run(before, x, y), second.run(after, x, y))
    assert first.output == second.output


@pytest.mark.parametrize("x", [0.5, 1.5, 3.5, 40.0])
def test_return_from_nested_loops_and_conditions(x: float) -> None:
    def f(p: Program, x: Any) -> Any:
        def body(scope: Any) -> Any:
            def whiles(loop: Any, a: Any) -> Any:
                def inner(scope_2: Any) -> Any:
                    p.if_(a > 20.0, lambda: Leave("break", scope, (a, x)), lambda: ())
                    p.if_(a > 10.0, lambda: Leave("break", scope_2, (a * 2.0,)), lambda: ())
                    return (a + 1.0,)

                (b,) = p.scope(inner, [F])
                return (b * 1.5,)

            (r,) = p.while_([x], lambda a: a < 30.0, whiles)
            return r, r + x

        return p.scope(body, [F, F])

    before, after = normal(f, F)
    np.testing.assert_array_equal(run(before, x), run(after, x))


def test_a_scope_in_a_loop_condition() -> None:
    def f(p: Program, x: Any) -> Any:
        def condition(a: Any) -> Any:
            def body(scope: Any) -> Any:
                p.if_(a > 5.0, lambda: Leave("break", scope, (a < 7.0,)), lambda: ())
                return (a < 100.0,)

            (go_on,) = p.scope(body, [TensorType(_bool())])
            return go_on

        return p.while_([x], condition, lambda loop, a: (a * 1.7,))

    before, after = normal(f, F)
    assert run(before, 1.0) == run(after, 1.0)


def _bool() -> Any:
    from staged.ir.types import bool_

    return bool_


def test_a_loop_with_continue_alone_stays_a_for() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            (b,) = p.if_(a > 3.0, lambda: Leave("continue", loop, (a * 0.5,)), lambda: (a * 2.0,))
            return (b + 0.1,)

        return p.for_(9, [x], body)

    before, after = normal(f, F)
    assert [op.name for op in after.block.ops][-1] == "for"
    assert run(before, 1.0) == run(after, 1.0)


def test_a_loop_with_a_known_trip_count_keeps_its_bound() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            (b,) = p.if_(a > 3.0, lambda: Leave("break", loop, (a * 0.5,)), lambda: (a * 2.0,))
            return (b,)

        return p.for_(9, [x], body)

    _, after = normal(f, F)
    (loop,) = [op for op in walk_ops(after.block) if op.name == "while"]
    assert loop.attrs["bound"] == 9


def test_code_outside_of_transforms_keeps_its_exits() -> None:
    before = function(search, F, F)
    after = normalize_exits(before)
    assert {b.end.kind for b in walk_blocks(after.block)} == {b.end.kind for b in walk_blocks(before.block)}


def test_a_loop_that_raises_and_breaks() -> None:
    from staged.errors import ProgramError

    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            p.if_(a > 50.0, lambda: Leave("raise"), lambda: ())
            (b,) = p.if_(a > 3.0, lambda: Leave("break", loop, (a,)), lambda: (a * 2.0,))
            return (b,)

        return p.for_(9, [x], body)

    before, after = normal(f, F)
    assert run(before, 1.0) == run(after, 1.0)
    with pytest.raises(ProgramError):
        run(after, 60.0)


# ---- functions that transforms call ---------------------------------------------------------------


def leaving() -> Function:
    """Returns early, from a loop and from a branch, and calls itself."""

    def f(p: Program, n: Any, x: Any) -> Any:
        p.if_(n < 1, lambda: Leave("return", None, (x * x,)), lambda: ())

        def body(loop: Any, i: Any, a: Any) -> Any:
            (b,) = p.if_(a > 2.0, lambda: Leave("return", None, (a * x,)), lambda: (a * 1.5,))
            return (b,)

        (a,) = p.for_(n, [x], body)
        (r,) = p.call("leaving", [n - 1, a], [F])
        return (r * a,)

    return function(f, TensorType(i64), F, name="leaving")


def returns(block: Block) -> int:
    return sum(inner.end.kind == "return" for inner in walk_blocks(block))


@pytest.mark.parametrize(("n", "x"), [(0, 0.5), (1, 0.5), (3, 0.3), (3, 1.4), (2, 5.0)])
def test_returns_of_functions_that_are_differentiated(n: int, x: float) -> None:
    def f(p: Program, n: Any, x: Any) -> Any:
        return p.call("leaving", [n, x], [F])

    check_gradients(f, np.int64(n), x, functions=[leaving()])


def test_a_function_keeps_its_exits_where_it_is_called_outside_of_transforms() -> None:
    def both(p: Program, n: Any, x: Any) -> Any:
        (a,) = p.call("leaving", [n, x], [F])
        return [a, *p.vjp(lambda x: p.call("leaving", [n, x], [F]), [x], [0])]

    def inside(p: Program, n: Any, x: Any) -> Any:
        return p.vjp(lambda x: p.call("leaving", [n, x], [F]), [x], [0])

    made = normalize_exits(named(both, both, [TensorType(i64), F], [leaving()]))
    verify(made)
    assert [(g.name, returns(g.block)) for g in made.functions] == [("leaving", 3), ("leaving_straight", 1)]
    assert [op.attrs["function"] for op in walk_ops(made.functions[1].block) if op.name == "call"] == ["leaving_straight"]
    assert [op.attrs["function"] for op in walk_ops(made.block) if op.name == "call"] == ["leaving", "leaving_straight"]
    found = run(plain(named(both, both, [TensorType(i64), F], [leaving()])), 2, 0.7)
    assert found[0] == found[1]
    made = normalize_exits(named(inside, inside, [TensorType(i64), F], [leaving()]))
    assert [(g.name, returns(g.block)) for g in made.functions] == [("leaving", 1)]


def test_what_calls_a_function_with_a_twin_has_one_too() -> None:
    def both(p: Program, n: Any, x: Any) -> Any:
        (a,) = p.call("around", [n, x], [F])
        return [a, *p.vjp(lambda x: p.call("around", [n, x], [F]), [x], [0])]

    around = function(lambda p, n, x: p.call("leaving", [n, x * x], [F]), TensorType(i64), F, name="around")
    made = normalize_exits(named(both, both, [TensorType(i64), F], [around, leaving()]))
    verify(made)
    assert [g.name for g in made.functions] == ["around", "around_straight", "leaving", "leaving_straight"]
    for g in made.functions:
        calls = {op.attrs["function"] for op in walk_ops(g.block) if op.name == "call"}
        assert calls == {"leaving_straight" if g.name.endswith("straight") else "leaving"}
