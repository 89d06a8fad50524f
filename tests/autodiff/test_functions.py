"""Gradients through functions that are called, and that call themselves: forward and reverse, first to third order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staged.errors import GradientError
from staged.ir.functions import recursive_functions
from staged.ir.nodes import Function, walk_ops
from staged.ir.types import FrameType, TensorType, bool_, f64, i64
from staged.ir.verifier import verify
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import COUNT, Program, check_gradients, function, gradients, named, plain

F = TensorType(f64)
N = TensorType(i64)
V = TensorType(f64, (3,))
W = TensorType(f64, (3, 3))
X = np.array([0.3, -1.2, 2.0])
total = METHODS["sum"]
matmul = METHODS["matmul"]


def defined(name: str, f: Callable[..., Any], *types: Any) -> Function:
    return function(f, *types, name=name)


# ---- functions without recursion ------------------------------------------------------------------


def layer() -> Function:
    return defined("layer", lambda p, x, w, b: (e.tanh(matmul(x, w) + b),), V, W, V)


def weights(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(3, 3))


def test_a_function_called_twice() -> None:
    def f(p: Program, x: Any, w: Any, b: Any) -> Any:
        (h,) = p.call("layer", [x, w, b], [V])
        (y,) = p.call("layer", [h, w, x], [V])
        return (total(y * h),)

    done = check_gradients(f, X, weights(), X[::-1].copy(), functions=[layer()])
    assert {g.name for g in done.functions} == {"layer_forward", "layer_backward"}
    assert not done.frames


def test_weights_get_running_sums_and_values_made_on_the_way_do_not() -> None:
    def f(p: Program, x: Any, w: Any, b: Any) -> Any:
        (h,) = p.call("layer", [e.sin(x), w, b], [V])
        (y,) = p.call("layer", [h, w, b], [V])
        return (total(y),)

    done = check_gradients(f, X, weights(), X, functions=[layer()])
    calls = [op for op in walk_ops(done.block) if op.attrs.get("function") == "layer_backward"]
    assert len(calls) == 2
    for call in calls:
        pairs = call.attrs["in_place"]
        assert [call.operands[a].type for a, _ in pairs] == [W, V]
        assert all(call.operands[a].type == call.results[b].type for a, b in pairs)
        assert call.results[0].type == V and len(call.results) == 3


@pytest.mark.parametrize("x", [0.4, 1.7])
def test_calls_in_branches_and_loops(x: float) -> None:
    g = defined("g", lambda p, a, b: (e.sin(a) * b, a + b, p.constant(3)), F, F)

    def f(p: Program, x: Any, y: Any, n: Any) -> Any:
        def body(loop: Any, i: Any, a: Any, c: Any) -> Any:
            (d,) = p.if_(a < 1.0, lambda: p.call("g", [a, y], [F, F, COUNT])[:1], lambda: (a * x,))
            u, v, _ = p.call("g", [d, c], [F, F, COUNT])
            return u + d, v

        a, c = p.for_(n, [x, y], body)
        return (a * c,)

    check_gradients(f, x, 0.8, np.int64(4), functions=[g])


def test_unused_results_and_integer_arguments() -> None:
    from staged.ops.promote import cast

    g = defined("g", lambda p, a, n, flag: (e.exp(a) * cast(n, f64), a * a, n + 1), F, N, TensorType(bool_))

    def f(p: Program, x: Any, n: Any) -> Any:
        a, _, m = p.call("g", [x, n, x < 1.0], [F, F, N])
        return (a * cast(m, f64),)

    check_gradients(f, 0.5, np.int64(3), functions=[g])


def test_the_same_argument_twice() -> None:
    g = defined("g", lambda p, a, b: (e.sin(a) * b,), F, F)
    check_gradients(lambda p, x: (p.call("g", [x, x], [F])[0] * x,), 0.5, functions=[g])


def test_functions_that_call_functions() -> None:
    inner = defined("inner", lambda p, a: (e.sin(a) * a,), F)
    outer = defined("outer", lambda p, a, b: (p.call("inner", [a * b], [F])[0] * b,), F, F)
    check_gradients(lambda p, x, y: p.call("outer", [x * y, y], [F]), 0.5, 1.3, functions=[inner, outer])


def test_a_function_that_only_moves_values_needs_no_forward_function() -> None:
    g = defined("g", lambda p, a, b: (a * 2.0 + b,), F, F)

    def f(p: Program, x: Any) -> Any:
        (y,) = p.call("g", [x, x * x], [F])
        return (y * y,)

    done = check_gradients(f, 0.5, functions=[g])
    assert [h.name for h in done.functions] == ["g", "g_backward"]


def test_prints_in_functions_happen_once() -> None:
    def g(p: Program, a: Any) -> Any:
        p.print_(a)
        return (e.sin(a),)

    done, _ = gradients(lambda p, x: p.call("g", [x], [F]), 2.0, functions=[defined("g", g, F)])
    interpreter = Interpreter()
    interpreter.run(done, 2.0)
    assert interpreter.output == [(2.0,)]


# ---- recursion ------------------------------------------------------------------------------------


def power() -> Function:
    """x ** n."""

    def f(p: Program, n: Any, x: Any) -> Any:
        return p.if_(n < 1, lambda: (p.constant(1.0),), lambda: (p.call("power", [n - 1, x], [F])[0] * x,))

    return defined("power", f, N, F)


def chain() -> Function:
    """Iterates a -> sin(a) * x, n times, by a tail call with an accumulator."""

    def f(p: Program, n: Any, a: Any, x: Any) -> Any:
        return p.if_(n < 1, lambda: (a,), lambda: p.call("chain", [n - 1, e.sin(a) * x, x], [F]))

    return defined("chain", f, N, F, F)


def fibonacci() -> Function:
    def f(p: Program, n: Any, x: Any) -> Any:
        def more() -> Any:
            (a,) = p.call("fibonacci", [n - 1, x], [F])
            (b,) = p.call("fibonacci", [n - 2, e.cos(x)], [F])
            return (a * b + x,)

        return p.if_(n < 2, lambda: (e.sin(x),), more)

    return defined("fibonacci", f, N, F)


def even_and_odd() -> list[Function]:
    def even(p: Program, n: Any, a: Any, w: Any) -> Any:
        return p.if_(n < 1, lambda: (a * w,), lambda: p.call("odd", [n - 1, w, e.sin(a) + w], [F]))

    def odd(p: Program, n: Any, w: Any, a: Any) -> Any:
        return p.if_(n < 1, lambda: (a - w,), lambda: p.call("even", [n - 1, a * a * w, w], [F]))

    return [defined("even", even, N, F, F), defined("odd", odd, N, F, F)]


def tree() -> Function:
    """Sums a cell over a binary tree in arrays: children by index, -1 for none. Returns a state and a loss."""

    def f(p: Program, node: Any, left: Any, right: Any, x: Any, w: Any) -> Any:
        def inside() -> Any:
            h, a = p.call("tree", [left[node], left, right, x, w], [V, F])
            g, b = p.call("tree", [right[node], left, right, x, w], [V, F])
            made = e.tanh(matmul(h, w) + g * x[node])
            return made, a + b + total(made * made)

        zeros = METHODS["broadcast_to"](p.constant(0.0), (3,))
        return p.if_(node < 0, lambda: (zeros + 0.1, p.constant(0.0)), inside)

    return defined("tree", f, N, *[TensorType(i64, (5,))] * 2, TensorType(f64, (5, 3)), W)


LEFT = np.array([1, 3, -1, -1, -1])
RIGHT = np.array([2, 4, -1, -1, -1])
WORDS = np.random.default_rng(1).normal(size=(5, 3))


def over_tree(p: Program, root: Any, left: Any, right: Any, x: Any, w: Any) -> Any:
    h, loss = p.call("tree", [root, left, right, x, w], [V, F])
    return (loss + total(h),)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_power(n: int) -> None:
    done = check_gradients(lambda p, n, x: p.call("power", [n, x], [F]), np.int64(n), 1.3, functions=[power()])
    assert recursive_functions(done) == {"power_forward", "power_backward"}


@pytest.mark.parametrize("n", [0, 4])
def test_an_accumulator(n: int) -> None:
    check_gradients(lambda p, n, x: p.call("chain", [n, x, x * x], [F]), np.int64(n), 0.8, functions=[chain()])


def test_two_calls_in_one_path() -> None:
    check_gradients(lambda p, n, x: p.call("fibonacci", [n, x], [F]), np.int64(5), 0.8, functions=[fibonacci()])


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_mutual_recursion(n: int) -> None:
    def f(p: Program, n: Any, x: Any, w: Any) -> Any:
        return p.call("even", [n, x, w], [F])

    done = check_gradients(f, np.int64(n), 0.8, 0.7, functions=even_and_odd())
    # w is passed on as it is, wherever it stands: no frame keeps it, its cotangent is a running sum.
    for record in done.frames:
        assert "w" not in [name for name, _ in record.fields]


def test_a_tree() -> None:
    done = check_gradients(over_tree, np.int64(0), LEFT, RIGHT, WORDS, weights(), functions=[tree()])
    (record,) = done.frames
    names = [name for name, _ in record.fields]
    assert not {"left", "right", "x", "w"} & set(names)
    (backward,) = [f for f in done.functions if f.name == "tree_backward"]
    for call in [op for op in walk_ops(backward.block) if op.name == "call"]:
        assert [call.results[b].type for _, b in call.attrs["in_place"]] == [TensorType(f64, (5, 3)), W]


def test_lines_do_not_grow_with_the_number_of_calls() -> None:
    def f(p: Program, x: Any, w: Any) -> Any:
        a = x
        for n in (3, 5, 9):
            (a,) = p.call("even", [p.constant(n, N), a, w], [F])
        return (a,)

    done = check_gradients(f, 0.4, 0.7, functions=even_and_odd())
    assert len(done.functions) == 4


def looping() -> Function:
    def g(p: Program, n: Any, a: Any, x: Any) -> Any:
        def more() -> Any:
            (b,) = p.for_(n, [a], lambda loop, i, b: (e.sin(b) * x + b,))
            (c,) = p.while_([b], lambda c: c < 3.0, lambda loop, c: (c * 1.7 + x * x,))
            return (p.call("g", [n - 1, c * 0.2, x], [F])[0] * b,)

        return p.if_(n < 1, lambda: (a * x,), more)

    return defined("g", g, COUNT, F, F)


def test_recursion_in_a_loop_and_a_loop_in_recursion() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            (b,) = p.if_(a < 5.0, lambda: p.call("g", [e.maximum(i, 1) - 1 + p.constant(1), a, x], [F]), lambda: (a,))
            return (b * 0.5,)

        return p.for_(3, [x], body)

    def h(p: Program, x: Any) -> Any:
        return p.for_(3, [x], lambda loop, i, a: p.call("g", [i, a, x], [F]))

    check_gradients(f, 0.9, functions=[looping()])
    check_gradients(h, 0.9, functions=[looping()])


def test_loops_inside_loops_collect_frames_of_frames() -> None:
    def f(p: Program, x: Any, n: Any) -> Any:
        def outer(loop: Any, i: Any, a: Any) -> Any:
            (b,) = p.for_(n, [a], lambda inner, j, b: p.call("chain", [p.constant(2, N), b, x], [F]))
            return (b + a,)

        return p.for_(3, [x], outer)

    check_gradients(f, 0.9, np.int64(2), functions=[chain()])


def test_results_that_no_loss_reads() -> None:
    """A recursive function whose second result is not used above, but is used inside."""

    def g(p: Program, n: Any, x: Any) -> Any:
        def more() -> Any:
            a, b = p.call("g", [n - 1, x * 0.9], [F, F])
            return a * b, e.sin(b) + x

        return p.if_(n < 1, lambda: (x, x * x), more)

    def f(p: Program, n: Any, x: Any) -> Any:
        return p.call("g", [n, x], [F, F])[:1]

    check_gradients(f, np.int64(3), 0.8, functions=[defined("g", g, N, F)])


def test_each_call_in_a_loop_saves_one_frame() -> None:
    def f(p: Program, n: Any, x: Any) -> Any:
        def step(loop: Any, i: Any, a: Any) -> Any:
            _, d = p.vjp(lambda b: p.call("power", [n, b], [F]), [a], [0])
            return (a - d * 0.01,)

        return p.for_(20, [x], step)

    done = plain(named(f, f, [N, F], [power()]))
    interpreter = Interpreter()
    interpreter.run(done, np.int64(4), 0.5)
    assert interpreter.executed["frame_save"] == 20 * 5


def test_prints_in_recursion_happen_once() -> None:
    def g(p: Program, n: Any, x: Any) -> Any:
        p.print_(n)
        return p.if_(n < 1, lambda: (x,), lambda: (p.call("g", [n - 1, x], [F])[0] * x,))

    done, _ = gradients(
        lambda p, n, x: p.call("g", [n, x], [F]), np.int64(2), 2.0, functions=[defined("g", g, N, F)]
    )
    interpreter = Interpreter()
    interpreter.run(done, 2, 2.0)
    assert interpreter.output == [(2,), (1,), (0,)]


# ---- higher order ---------------------------------------------------------------------------------

MODES = ("forward", "reverse")


def derivative(p: Program, mode: str, f: Callable[..., Any]) -> Callable[..., Any]:
    if mode == "forward":
        return lambda x: p.jvp(f, [x], [0], [p.constant(1.0)])[1:2]
    return lambda x: p.vjp(f, [x], [0])[1:2]


def of_power(p: Program, x: Any) -> Any:
    return p.call("power", [p.constant(5, N), x], [F])


def of_chain(p: Program, x: Any) -> Any:
    return p.for_(2, [x], lambda loop, i, a: p.call("chain", [p.constant(2, N), a, x], [F]))


def of_layers(p: Program, x: Any) -> Any:
    (y,) = p.if_(x < 1.0, lambda: p.call("twice", [x, x * x], [F]), lambda: (x,))
    return (y * p.call("twice", [y, x], [F])[0],)


def of_even(p: Program, x: Any) -> Any:
    return p.call("even", [p.constant(3, N), x, x * 0.5], [F])


def of_fibonacci(p: Program, x: Any) -> Any:
    return p.call("fibonacci", [p.constant(4, N), x], [F])


def functions() -> list[Function]:
    twice = defined("twice", lambda p, a, b: (e.sin(a * b) * b,), F, F)
    return [power(), chain(), fibonacci(), twice, *even_and_odd()]


def of_loop_in_recursion(p: Program, x: Any) -> Any:
    return p.call("g", [p.constant(3), x, x], [F])


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("f", [of_power, of_chain, of_layers, of_even, of_fibonacci, of_loop_in_recursion])
def test_higher_order_in_any_modes(f: Callable[..., Any], order: int) -> None:
    """Every sequence of modes gives the same, and differences of the order below."""

    def nth(modes: Any) -> Function:
        def made(p: Program, x: Any) -> Any:
            g: Callable[..., Any] = lambda x: f(p, x)  # noqa: E731
            for mode in modes:
                g = derivative(p, mode, g)
            return g(x)

        return plain(named(made, made, [F], [*functions(), looping()]))

    import itertools

    below = nth(MODES[:1] * (order - 1))
    x, step = 0.7, 1e-5
    expected = (run(below, x + step)[0] - run(below, x - step)[0]) / (2 * step)
    for modes in itertools.product(MODES, repeat=order):
        (found,) = run(nth(modes), x)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7, err_msg=str(modes))


def test_hessian_vector_product_over_a_tree() -> None:
    """Forward over reverse against differences of the gradient."""

    def slope(p: Program, root: Any, left: Any, right: Any, x: Any, w: Any) -> Any:
        return p.vjp(lambda w: over_tree(p, root, left, right, x, w), [w], [0])[1:]

    def product(p: Program, root: Any, left: Any, right: Any, x: Any, w: Any, v: Any) -> Any:
        return p.jvp(lambda w: slope(p, root, left, right, x, w), [w], [0], [v])[1:]

    types = [N, *[TensorType(i64, (5,))] * 2, TensorType(f64, (5, 3)), W]
    once = plain(named(slope, slope, types, [tree()]))
    twice = plain(named(product, product, [*types, W], [tree()]))
    w, v = weights(), weights(7)
    (found,) = run(twice, 0, LEFT, RIGHT, WORDS, w, v)
    ends = [run(once, 0, LEFT, RIGHT, WORDS, w + sign * 1e-6 * v)[0] for sign in (1, -1)]
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_frames_whose_fields_get_no_cotangents() -> None:
    """The contents of frames matter to the slope by x alone, and only the one by w is differentiated again."""

    def g(p: Program, n: Any, x: Any, w: Any) -> Any:
        def more() -> Any:
            a, _ = p.call("g", [n - 1, e.sin(x), p.constant(1.0)], [F, F])
            return a, e.sin(w)

        return p.if_(n < 1, lambda: (x, e.sin(w)), more)

    def slope(p: Program, x: Any, w: Any) -> Any:
        def squared(x: Any, w: Any) -> Any:
            a, b = p.call("g", [p.constant(3, N), x, w], [F, F])
            return ((a + b) * (a + b),)

        return p.vjp(squared, [x, w], [0, 1])[2:]

    made = [defined("g", g, N, F, F)]
    once = plain(named(slope, slope, [F, F], made))
    twice = plain(named(slope, lambda p, x, w: p.vjp(lambda x, w: slope(p, x, w), [x, w], [0, 1]), [F, F], made))
    _, *found = run(twice, 0.7, 0.4)
    for place in range(2):
        ends = [run(once, *np.add([0.7, 0.4], sign * 1e-6 * np.eye(2)[place]))[0] for sign in (1, -1)]
        np.testing.assert_allclose(found[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


def test_frames_of_what_does_not_move_in_forward_mode() -> None:
    """d/dw of the slope by x of w * x ** 4: the frames of the recursion hold nothing that moves."""

    def slope(p: Program, x: Any, w: Any) -> Any:
        return p.vjp(lambda x: (p.call("power", [p.constant(4, N), x], [F])[0] * w,), [x], [0])[1:]

    def along(p: Program, x: Any, w: Any) -> Any:
        return p.jvp(lambda w: slope(p, x, w), [w], [0], [p.constant(1.0)])[1:]

    (found,) = run(plain(named(along, along, [F, F], [power()])), 0.7, 2.0)
    np.testing.assert_allclose(found, 4 * 0.7**3, rtol=1e-12)


def test_stop_gradient_in_a_function() -> None:
    from staged.pipeline import PASSES

    def f(p: Program, x: Any) -> Any:
        return p.vjp(lambda x: p.call("g", [x], [F]), [x], [0])

    program = named(f, f, [F], [defined("g", lambda p, a: (METHODS["stop_gradient"](e.sin(a)) * a,), F)])
    for name, change in PASSES:
        program = change(program)
        verify(program, name)
    np.testing.assert_allclose(run(program, 0.7)[1], np.sin(0.7), rtol=1e-12)


# ---- refused --------------------------------------------------------------------------------------


def test_a_derivative_of_the_function_that_it_is_in_is_refused() -> None:
    def g(p: Program, n: Any, x: Any) -> Any:
        def more() -> Any:
            return p.vjp(lambda x: p.call("g", [n - 1, x], [F]), [x], [0])[1:]

        return p.if_(n < 1, lambda: (x * x,), more)

    with pytest.raises(GradientError, match="inside `g` differentiates `g` itself"):
        plain(named(g, lambda p, n, x: p.call("g", [n, x], [F]), [N, F], [defined("g", g, N, F)]))


def test_frame_types_have_the_names_of_their_functions() -> None:
    done = check_gradients(lambda p, n, x: p.call("power", [n, x], [F]), np.int64(2), 1.3, functions=[power()])
    assert [record.type for record in done.frames] == [FrameType("power_frame")]
    assert [f.name for f in done.functions] == ["power_forward", "power_backward"]
