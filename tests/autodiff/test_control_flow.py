"""Gradients through `if`, `for`, `while` and their nests, against central differences."""

from __future__ import annotations

import numpy as np
import pytest

from staged.ir.nodes import Op, walk_ops
from staged.ir.types import SequenceType
from staged.ops import elementwise as e
from tests.ir_interpreter import Interpreter
from tests.ir_programs import Leave, Program, check_gradients, gradients


def ops(done: object, name: str) -> list[Op]:
    return [op for op in walk_ops(done.block) if op.name == name]  # type: ignore[attr-defined]


def collected(done: object) -> list[SequenceType]:
    found = []
    for op in ops(done, "for") + ops(done, "while"):
        count = op.attrs.get("collected", 0)
        found += [result.type for result in op.results[len(op.results) - count :]]
    return found


# ---- if -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0.5, 2.5])
def test_if(x: float) -> None:
    def f(p, x, y):
        (r,) = p.if_(x < y, lambda: (e.tanh(x) * y,), lambda: (x * x,))
        return (r * y,)

    check_gradients(f, x, 2.0)


@pytest.mark.parametrize("x", [0.5, 2.5])
def test_if_that_uses_a_value_in_one_branch_only(x: float) -> None:
    def f(p, x, y):
        (r,) = p.if_(x < 1.0, lambda: (x * y,), lambda: (x,))
        return (r + x,)

    check_gradients(f, x, 2.0)


@pytest.mark.parametrize("x", [0.5, 1.5, 2.5])
def test_if_in_if(x: float) -> None:
    def f(p, x, y):
        def other():
            t = e.exp(y)
            return p.if_(x < 2.0, lambda: (t * x,), lambda: (e.sin(t) * t,))

        (r,) = p.if_(x < 1.0, lambda: (x * y,), other)
        return (r + x,)

    check_gradients(f, x, 0.4)


def test_a_branch_that_raises() -> None:
    def f(p, x):
        (r,) = p.if_(x < 0.0, lambda: Leave("raise"), lambda: (x * x,))
        return (r * x,)

    check_gradients(f, 1.5)


def test_a_branch_that_gives_a_constant() -> None:
    def f(p, x):
        (r,) = p.if_(x > 0.0, lambda: (p.constant(2.0),), lambda: (x * x,))
        return (r * x,)

    check_gradients(f, 1.5)
    check_gradients(f, -1.5)


# ---- for ----------------------------------------------------------------------------------------


def test_for_with_a_static_trip_count_has_a_bounded_sequence() -> None:
    def f(p, x):
        (r,) = p.for_(5, [x], lambda loop, i, a: (e.sin(a) * x,))
        return (r * x,)

    done = check_gradients(f, 0.5)
    assert {t.bound for t in collected(done)} == {5}


@pytest.mark.parametrize("n", [0, 1, 4])
def test_for_with_a_trip_count_known_when_it_runs(n: int) -> None:
    def f(p, x, n):
        (r,) = p.for_(n, [x], lambda loop, i, a: (e.sin(a) * x,))
        return (r * x,)

    done = check_gradients(f, 0.5, np.int64(n))
    assert {t.bound for t in collected(done)} == {None}


@pytest.mark.parametrize("bounds", [(2, 9, 3), (9, 2, -3), (5, 5, 1), (5, 2, 1), (0, 7, 2), (3, -1, -1)])
def test_for_over_any_range(bounds: tuple[int, int, int]) -> None:
    start, stop, step = bounds

    def f(p, x, start, stop):
        def body(loop, i, a):
            from staged.ir.types import f64
            from staged.ops.promote import cast

            return (e.sin(a) * x + cast(i, f64) * a,)

        (dynamic,) = p.for_(stop, [x], body, start=start, step=step)
        (static,) = p.for_(bounds[1], [x], body, start=bounds[0], step=step)
        return (dynamic * static,)

    check_gradients(f, 0.5, np.int64(start), np.int64(stop))


def test_a_step_known_when_it_runs() -> None:
    def f(p, x, step):
        (r,) = p.for_(9, [x], lambda loop, i, a: (e.sin(a) * x,), start=1, step=step)
        return (r,)

    check_gradients(f, 0.5, np.int64(3))


def test_sum_in_a_loop_collects_nothing() -> None:
    def f(p, x, y):
        (total,) = p.for_(5, [x], lambda loop, i, a: (a + y,))
        return (total * total,)

    assert collected(check_gradients(f, 0.5, 0.25)) == []


def test_loop_invariants_constants_and_the_index_are_not_collected() -> None:
    from staged.ir.types import f64
    from staged.ops.promote import cast

    def f(p, x, y):
        def body(loop, i, a):
            weight = cast(i, f64) * 0.5
            return (a + y * weight * 3.0,)

        (total,) = p.for_(5, [x], body)
        return (total * total,)

    assert collected(check_gradients(f, 0.5, 0.25)) == []


def test_a_collected_value_is_not_collected_again_through_cheap_arithmetic() -> None:
    def f(p, x):
        def body(loop, i, a):
            b = a + 1.0
            return (b * b * a,)

        (r,) = p.for_(3, [x], body)
        return (r,)

    assert len(collected(check_gradients(f, 0.3))) == 1


def test_values_that_swap_places() -> None:
    def f(p, x, y):
        a, b = p.for_(5, [x, y], lambda loop, i, a, b: (b, a * b))
        return (a * b,)

    check_gradients(f, 0.9, 1.1)


def test_integer_state_beside_the_floats() -> None:
    def f(p, x):
        def body(loop, i, a, n):
            (t,) = p.if_(n < 3, lambda: (a * x,), lambda: (e.sin(a),))
            return t, n + i

        (r, _) = p.for_(6, [x, p.constant(0)], body)
        return (r,)

    check_gradients(f, 0.7)


def test_a_value_that_only_some_iterations_pass_on() -> None:
    def f(p, x, y):
        def body(loop, i, a, b):
            return b * y, e.sin(b) + x

        a, _ = p.for_(4, [x, y], body)
        return (a,)

    check_gradients(f, 0.7, 0.9)


def test_the_loss_needs_no_carried_value_of_a_loop() -> None:
    def f(p, x):
        p.for_(4, [x], lambda loop, i, a: (a * a,))
        return (x * x,)

    check_gradients(f, 0.7)


def test_a_carried_value_that_is_replaced_by_one_from_outside() -> None:
    def f(p, x, y):
        a, b = p.for_(4, [x, y], lambda loop, i, a, b: (y, a * b))
        return (a * b,)

    check_gradients(f, 0.7, 0.9)


def test_loop_in_loop() -> None:
    def f(p, x, y):
        def outer(loop, i, a, b):
            c, b = p.for_(3, [a, b], lambda inner, j, c, d: (e.sin(c) * d, d * y + c))
            (a,) = p.if_(a < 0.5, lambda: (c * b,), lambda: p.for_(i, [c], lambda inner, k, c: (e.cos(c),)))
            return a, b

        a, b = p.for_(4, [x, y], outer)
        return (a * b,)

    done = check_gradients(f, 1.5, 0.4)
    assert any(isinstance(t.element, SequenceType) for t in collected(done))


def test_three_loops_deep() -> None:
    def f(p, x):
        def a(loop, i, v):
            def b(loop, j, v):
                return p.for_(j, [v], lambda loop, k, v: (e.sin(v) * x + v,))

            return p.for_(3, [v], b)

        return p.for_(2, [x], a)

    check_gradients(f, 0.8)


# ---- while --------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [1.5, 50.0, 200.0])
def test_while_counts_its_trips(x: float) -> None:
    def f(p, x):
        (r,) = p.while_([x], lambda a: a < 100.0, lambda loop, a: (a * x,))
        return (r * x,)

    check_gradients(f, x)


def test_newton_iteration_to_convergence() -> None:
    """sqrt by Newton's iteration: the gradient through the `while` is that of the square root."""

    def f(p, x):
        def go_on(r):
            return e.abs_(r * r - x) > 1e-12

        return p.while_([x], go_on, lambda loop, r: ((r + x / r) * 0.5,))

    _, (root, slope) = gradients(f, 2.0)
    np.testing.assert_allclose([root, slope], [2**0.5, 0.5 / 2**0.5], rtol=1e-9)


def test_while_in_for_in_while() -> None:
    def f(p, x):
        def outer(loop, a):
            def middle(loop, i, b):
                return p.while_([b], lambda c: c < 3.0, lambda loop, c: (c * x + 0.1,))

            (b,) = p.for_(2, [a], middle)
            return (b + x,)

        return p.while_([x], lambda a: a < 20.0, outer)

    check_gradients(f, 1.3)


# ---- early exits --------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0.1, 0.5, 0.9, 3.5])
def test_break_and_continue(x: float) -> None:
    def f(p, x, y):
        def body(loop, i, a):
            (t,) = p.if_(a > 3.0, lambda: Leave("break", loop, (a,)), lambda: (a * y,))
            (s,) = p.if_(t > 2.0, lambda: Leave("continue", loop, (e.exp(t) * x,)), lambda: (t * x,))
            return (s + y,)

        (a,) = p.for_(10, [x], body)
        return (a * a,)

    check_gradients(f, x, 1.4)


@pytest.mark.parametrize("x", [0.6, 1.5])
def test_while_true_with_break(x: float) -> None:
    from staged.ir.types import TensorType, bool_

    def f(p, x):
        def body(loop, a):
            b = a * 1.5 + x
            (c,) = p.if_(b > 30.0, lambda: Leave("break", loop, (b * a,)), lambda: (b,))
            return (c,)

        return p.while_([x], lambda a: p.constant(True, TensorType(bool_)), body)

    check_gradients(f, x)


@pytest.mark.parametrize("x", [0.5, 0.9, 1.4])
def test_both_branches_may_leave_or_stay(x: float) -> None:
    def f(p, x, y):
        def body(loop, i, a):
            def then():
                (b,) = p.if_(a > 2.0, lambda: Leave("break", loop, (a * x,)), lambda: (a * y,))
                return (b * b,)

            def other():
                (b,) = p.if_(a < 0.6, lambda: Leave("continue", loop, (a + y,)), lambda: (a + x,))
                return (b,)

            (t,) = p.if_(a > 1.0, then, other)
            return (e.sin(t) + t,)

        return p.for_(6, [x], body)

    check_gradients(f, x, 0.8)


@pytest.mark.parametrize("x", [0.5, 0.9, 1.4])
def test_leaving_two_loops_at_once(x: float) -> None:
    def f(p, x, y):
        def outer(loop, i, a):
            def inner(_, j, b):
                (c,) = p.if_(b > 4.0, lambda: Leave("break", loop, (b * x,)), lambda: (b * y,))
                (d,) = p.if_(c > 3.0, lambda: Leave("continue", loop, (c - 1.0,)), lambda: (c + x,))
                return (d,)

            (b,) = p.for_(5, [a], inner)
            return (b * x,)

        return p.for_(4, [x], outer)

    check_gradients(f, x, 1.2)


@pytest.mark.parametrize("x", [0.5, 1.4, 2.6])
def test_early_return_from_a_scope(x: float) -> None:
    from staged.ir.types import TensorType, f64

    def f(p, x):
        def body(scope):
            def loop_body(loop, i, a):
                (b,) = p.if_(a > 3.0, lambda: Leave("break", scope, (a * x,)), lambda: (a * 2.0,))
                return (b,)

            (r,) = p.for_(3, [x], loop_body)
            p.if_(r < 5.0, lambda: Leave("break", scope, (r * r,)), lambda: ())
            return (r + x,)

        (r,) = p.scope(body, [TensorType(f64)])
        return (r * x,)

    check_gradients(f, x)


def test_prints_in_a_loop_happen_once_per_iteration() -> None:

    def f(p: Program, x: object) -> object:
        def body(loop: object, i: object, a: object) -> object:
            p.print_(i, a)
            (b,) = p.if_(a > 3.0, lambda: Leave("break", loop, (a,)), lambda: (a * x,))
            return (b,)

        return p.for_(9, [x], body)

    done, _ = gradients(f, 2.0)
    interpreter = Interpreter()
    interpreter.run(done, 2.0)
    assert interpreter.output == [(0, 2.0), (1, 4.0)]
