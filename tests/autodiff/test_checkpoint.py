"""Choices of the user: `checkpoint` keeps its captures alone, `custom_vjp` brings its own reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staged.errors import GradientError
from staged.ir.functions import map_functions
from staged.ir.nodes import FAIL, Function, walk_blocks, walk_ops
from staged.ir.types import SequenceType, TensorType, f64, i64
from staged.ir.verifier import verify
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from staged.ops.context import use_context
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.inline_blocks import inline_checkpoints
from staged.passes.simplify import simplify
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import Leave, Program, check_gradients, function, gradients, plain

F = TensorType(f64)
N = TensorType(i64)
X = np.array([0.3, -1.2, 2.0])
total = METHODS["sum"]


def finished(done: Function) -> Function:
    """As the pipeline leaves it."""
    done = map_functions(done, simplify)
    done = map_functions(done, inline_checkpoints)
    verify(done, "inline_checkpoints")
    return map_functions(done, eliminate_dead_code)


def names(done: Function) -> list[str]:
    return [op.name for op in walk_ops(done.block)]


def costly(x: Any, y: Any) -> Any:
    return e.sin(e.exp(x) * y)


def test_what_is_inside_is_made_again_and_not_merged_with_what_was_made_before() -> None:
    def f(p: Program, x: Any, y: Any) -> Any:
        (z,) = p.checkpoint(lambda x: (costly(x, y),), [x])
        return (total(z * z),)

    def g(p: Program, x: Any, y: Any) -> Any:
        z = costly(x, y)
        return (total(z * z),)

    done = finished(check_gradients(f, X, X[::-1].copy()))
    assert names(done).count("exp") == 2
    assert "checkpoint" not in names(done)
    assert names(finished(check_gradients(g, X, X[::-1].copy()))).count("exp") == 1
    np.testing.assert_allclose(run(done, X, X)[1], gradients(g, X, X)[1][1], rtol=1e-12)


def collected(done: Function) -> list[SequenceType]:
    found = []
    for op in walk_ops(done.block):
        if op.name in ("for", "while"):
            found += [result.type for result in op.results if isinstance(result.type, SequenceType)]
    return found


def test_in_a_loop_only_what_goes_in_is_collected() -> None:
    def f(p: Program, x: Any) -> Any:
        def step(a: Any) -> Any:
            return p.for_(3, [a], lambda loop, i, b: (costly(b, x) * 0.5 - b,))

        (a,) = p.for_(4, [x], lambda loop, i, a: p.checkpoint(step, [a]))
        return (total(a),)

    done = finished(check_gradients(f, np.array([0.3, -0.2, 0.5])))
    # The captures of four steps; and, inside the reverse, what the three iterations of one step need.
    assert sorted(t.bound for t in collected(done)) == [3] * (len(collected(done)) - 1) + [4]
    assert not any(isinstance(t.element, SequenceType) for t in collected(done))


@pytest.mark.parametrize("x", [0.4, 1.5])
def test_nested_in_branches_loops_and_whiles(x: float) -> None:
    def f(p: Program, x: Any, y: Any) -> Any:
        def inner(a: Any) -> Any:
            return p.if_(a < 1.0, lambda: (costly(a, y),), lambda: (a * a * y,))

        def outer(a: Any, b: Any) -> Any:
            (c,) = p.checkpoint(inner, [a * b])
            (d,) = p.while_([c], lambda d: d < 3.0, lambda loop, d: (d * 1.5 + 0.2 + x * x,))
            return d, c * 2.0

        def body(loop: Any, i: Any, a: Any, b: Any) -> Any:
            c, d = p.checkpoint(outer, [a, b])
            return c * 0.3, d

        a, b = p.for_(3, [x, y], body)
        return (a * b,)

    finished(check_gradients(f, x, 0.7))


def test_in_recursion_and_around_it() -> None:
    def g(p: Program, n: Any, a: Any, w: Any) -> Any:
        def more() -> Any:
            (b,) = p.checkpoint(lambda a: (costly(a, w),), [a])
            return p.call("g", [n - 1, b, w], [F])

        return p.if_(n < 1, lambda: (a * w,), more)

    made = function(g, N, F, F, name="g")

    def f(p: Program, n: Any, x: Any, w: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            return p.checkpoint(lambda a: p.call("g", [n, a, w], [F]), [a])

        return p.for_(3, [x], body)

    done = check_gradients(f, np.int64(3), 0.4, 0.7, functions=[made])
    interpreter = Interpreter()
    interpreter.run(finished(done), 3, 0.4, 0.7)
    # The primal of each checkpoint saves nothing; what is made again saves four frames at a time.
    assert interpreter.executed["frame_save"] == 3 * 4
    assert not any(isinstance(t.element, SequenceType) for t in collected(done))


def test_prints_and_checks_are_not_repeated() -> None:
    def loud(p: Program, x: Any) -> Any:
        p.print_(x)
        return (e.sin(x),)

    def f(p: Program, x: Any) -> Any:
        def body(x: Any) -> Any:
            (scale,) = p.call("loud", [p.constant(0.25)], [F])
            p.op("assert", [x < 9.0], attrs={"parts": (), "kind": "assertion"}, effects=FAIL)
            p.if_(x > 9.0, lambda: Leave("raise"), lambda: ())
            (y,) = p.if_(x > 8.0, lambda: Leave("raise"), lambda: (e.exp(x),))
            p.print_(y + 1.0)
            (z,) = p.call("loud", [y], [F])
            return (z * scale,)

        return p.checkpoint(body, [x])

    done, _ = gradients(f, 0.5, functions=[function(loud, F, name="loud")])
    done = finished(done)
    interpreter = Interpreter()
    interpreter.run(done, 0.5)
    assert interpreter.output == [(0.25,), (np.exp(0.5) + 1.0,), (np.exp(0.5),)]
    assert interpreter.executed["assert"] == 1
    assert len([block for block in walk_blocks(done.block) if block.end.kind == "raise"]) == 2
    check_gradients(f, 0.5, functions=[function(loud, F, name="loud")])


@pytest.mark.parametrize("outer", ["forward", "reverse"])
@pytest.mark.parametrize("inner", ["forward", "reverse"])
def test_second_order(outer: str, inner: str) -> None:
    def f(p: Program, x: Any) -> Any:
        return p.for_(3, [x], lambda loop, i, a: p.checkpoint(lambda a: (costly(a, x),), [a]))

    def derivative(p: Program, mode: str, f: Callable[..., Any]) -> Callable[..., Any]:
        if mode == "forward":
            return lambda x: p.jvp(f, [x], [0], [p.constant(1.0)])[1:2]
        return lambda x: p.vjp(f, [x], [0])[1:2]

    def first(p: Program, x: Any) -> Any:
        return derivative(p, inner, lambda x: f(p, x))(x)

    once = plain(function(first, F))
    twice = finished(plain(function(lambda p, x: derivative(p, outer, lambda x: first(p, x))(x), F)))
    ends = [run(once, 0.4 + sign * 1e-5)[0] for sign in (1, -1)]
    np.testing.assert_allclose(run(twice, 0.4)[0], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


def test_where_nothing_is_differentiated_it_is_not_there() -> None:
    done = plain(function(lambda p, x: p.checkpoint(lambda x: (costly(x, x),), [x]), F))
    assert "checkpoint" not in names(done)
    np.testing.assert_allclose(run(done, 0.4)[0], np.sin(np.exp(0.4) * 0.4))


# ---- custom_vjp -----------------------------------------------------------------------------------


def ten_times(p: Program, x: Any, n: Any = None, outside: Any = None) -> Any:
    """(sin x, n), whose derivative is given as 10 cos x; prints in what runs."""
    extra = [] if outside is None else [outside]

    def primal(x: Any, n: Any, *more: Any) -> Any:
        p.print_(x)
        return e.sin(x), n

    def forward(x: Any, n: Any, *more: Any) -> Any:
        p.print_(x + 100.0)
        return e.sin(x), n, e.cos(x)

    with use_context(p.context):
        n = p.constant(7) if n is None else n
        values = p.values([x, n, *extra])
        types = [value.type for value in values]
        blocks = [
            p.block(types, primal),
            p.block(types, forward),
            p.block([F, F], lambda c, ct: (c * ct * 10.0,)),
        ]
    attrs = {"name": "ten_times", "outputs": 2, "wrt": (0,)}
    return p.op("custom_vjp", [x, n, *extra], types[:2], attrs=attrs, blocks=blocks)


def test_the_reverse_is_the_given_one() -> None:
    def f(p: Program, x: Any) -> Any:
        square = x * x
        return (ten_times(p, square)[0] * square,)

    done, (value, slope) = gradients(f, 0.5)
    np.testing.assert_allclose([value, slope], [np.sin(0.25) * 0.25, (10 * np.cos(0.25) * 0.25 + np.sin(0.25)) * 2 * 0.5])
    interpreter = Interpreter()
    interpreter.run(done, 0.5)
    assert interpreter.output == [(100.25,)]


def test_in_loops_branches_recursion_and_checkpoints() -> None:
    def g(p: Program, n: Any, a: Any) -> Any:
        return p.if_(n < 1, lambda: (a,), lambda: p.call("g", [n - 1, ten_times(p, a)[0] * 0.1], [F]))

    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            (b,) = p.if_(a < 5.0, lambda: (ten_times(p, a)[0] * 0.1,), lambda: (a,))
            (c,) = p.checkpoint(lambda b: (ten_times(p, b)[0] * 0.1,), [b])
            return p.call("g", [p.constant(2, N), c], [F])

        return p.for_(2, [x], body)

    def same(p: Program, x: Any) -> Any:
        """With the derivative that is given, up to a constant factor in the value."""
        return p.for_(8, [x], lambda loop, i, a: (e.sin(a) * 0.1,))

    _, (value, slope) = gradients(f, 0.5, functions=[function(g, N, F, name="g")])
    _, (value_too, slope_too) = gradients(same, 0.5)
    np.testing.assert_allclose(value, value_too, rtol=1e-12)
    np.testing.assert_allclose(slope, slope_too * 10.0**8, rtol=1e-12)


def test_second_order_differentiates_what_was_given() -> None:
    """d/dx (10 cos x) = -10 sin x, by either mode around the reverse."""

    def slope(p: Program, x: Any) -> Any:
        return p.vjp(lambda x: ten_times(p, x)[:1], [x], [0])[1:]

    for done in (
        plain(function(lambda p, x: p.vjp(lambda x: slope(p, x), [x], [0])[1:], F)),
        plain(function(lambda p, x: p.jvp(lambda x: slope(p, x), [x], [0], [p.constant(1.0)])[1:], F)),
    ):
        np.testing.assert_allclose(run(done, 0.5)[0], -10 * np.sin(0.5), rtol=1e-12)


def test_where_nothing_is_differentiated_the_primal_runs() -> None:
    done = plain(function(lambda p, x: ten_times(p, x)[:1], F))
    interpreter = Interpreter()
    interpreter.run(done, 0.5)
    assert interpreter.output == [(0.5,)] and "custom_vjp" not in names(done)


def test_what_it_reads_from_outside_may_not_move() -> None:
    def f(p: Program, x: Any) -> Any:
        return ten_times(p, x, outside=x * 2.0)[:1]

    with pytest.raises(GradientError, match="`ten_times`, a `custom_vjp`, reads a value that is being differentiated"):
        gradients(f, 0.5)
    with pytest.raises(GradientError, match="forward mode through `ten_times`"):
        plain(function(lambda p, x: p.jvp(lambda x: ten_times(p, x)[:1], [x], [0], [x]), F))
