"""Forward mode: what `check_gradients` does not see of it. (It holds forward against reverse mode in every program.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staged.errors import GradientError
from staged.ir.declaration import Declaration
from staged.ir.nodes import walk_ops
from staged.ir.types import TensorType, f64
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from staged.ops.context import use_context
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import Program, directional, function, plain

F = TensorType(f64)


def slope(p: Program, f: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a scalar function, by forward mode."""
    return lambda x: p.jvp(f, [x], [0], [p.constant(1.0)])[1:2]


def steep(p: Program, f: Callable[..., Any]) -> Callable[..., Any]:
    """The same by reverse mode."""
    return lambda x: p.vjp(f, [x], [0])[1:2]


def power(p: Program) -> Callable[..., Any]:
    return lambda x: p.for_(5, [x], lambda loop, i, a: (a * x,))


def power_by_while(p: Program) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        def body(loop: Any, a: Any, n: Any) -> Any:
            return a * x, n + 1

        return p.while_([x, p.constant(0)], lambda a, n: n < 5, body)[:1]

    return f


@pytest.mark.parametrize("make", [power, power_by_while])
@pytest.mark.parametrize("modes", [(slope, slope), (slope, steep), (steep, slope), (steep, steep)])
def test_second_derivative_by_any_two_modes(make: Any, modes: Any) -> None:
    outer, inner = modes
    done = plain(function(lambda p, x: outer(p, inner(p, make(p)))(x), F))
    np.testing.assert_allclose(run(done, 0.7)[0], 30 * 0.7**4, rtol=1e-12)


@pytest.mark.parametrize("make", [power, power_by_while])
@pytest.mark.parametrize("modes", [[slope] * 3, [steep] * 3, [slope, steep, slope], [steep, slope, steep]])
def test_third_derivative(make: Any, modes: Any) -> None:
    def third(p: Program, x: Any) -> Any:
        f = make(p)
        for mode in modes:
            f = mode(p, f)
        return f(x)

    np.testing.assert_allclose(run(plain(function(third, F)), 0.7)[0], 120 * 0.7**3, rtol=1e-12)


@pytest.mark.parametrize("inner", [slope, steep])
@pytest.mark.parametrize("outer", [slope, steep])
def test_perturbations_are_not_confused(outer: Any, inner: Any) -> None:
    """d/dx (x * d/dy (x + y)) at y = 2 is 1: the inner derivative does not see that x moves."""

    def f(p: Program, x: Any) -> Any:
        def of_x(x: Any) -> Any:
            (d,) = inner(p, lambda y: (x + y,))(p.constant(2.0))
            return (x * d,)

        return outer(p, of_x)(x)

    assert run(plain(function(f, F)), 1.0)[0] == 1.0


def test_only_what_moves_has_a_tangent() -> None:
    def f(p: Program, x: Any) -> Any:
        def of_y(y: Any) -> Any:
            a, b = p.for_(4, [y, x], lambda loop, i, a, b: (a * 2.0, e.sin(b)))
            return (a + b,)

        return p.jvp(of_y, [x], [0], [p.constant(1.0)])

    done = plain(function(f, F))
    (loop,) = [op for op in walk_ops(done.block) if op.name == "for"]
    assert len(loop.results) == 3
    assert "cos" not in [op.name for op in walk_ops(done.block)]
    assert run(done, 0.3)[1] == 16.0


def test_integer_outputs_have_no_tangent_and_constant_ones_have_zeros() -> None:
    def f(p: Program, x: Any) -> Any:
        return x * x, p.constant(3), p.constant(4.0)

    assert directional(f, [3.0], [1.0]) == [9.0, 3, 4.0, 6.0, 0.0]


def test_effects_and_checks_happen_once() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(x: Any) -> Any:
            def loop_body(loop: Any, i: Any, a: Any) -> Any:
                p.print_(i, a)
                return (a * x[i],)

            return p.for_(3, [p.constant(1.0)], loop_body)

        return p.jvp(body, [x], [0], [x])

    done = plain(function(f, TensorType(f64, (3,))))
    interpreter = Interpreter()
    assert interpreter.run(done, np.array([1.0, 2.0, 3.0])) == [6.0, 18.0]
    assert interpreter.output == [(0, 1.0), (1, 1.0), (2, 2.0)]
    assert sum(bool(op.effects) for op in walk_ops(done.block)) == 2


def test_composites_by_their_body() -> None:
    def f(p: Program, x: Any) -> Any:
        return (METHODS["sum"](METHODS["softmax"](x) * x),)

    from tests.ir_programs import check_gradients

    check_gradients(f, np.array([0.3, -1.2, 2.0]))


def test_an_op_without_a_rule_and_a_custom_vjp_are_refused() -> None:
    def f(p: Program, x: Any) -> Any:
        return p.jvp(lambda x: p.op(Declaration(name="bits_of", kind="structured"), [x], [F]), [x], [0], [x])

    with pytest.raises(GradientError, match="cannot differentiate through `bits_of`"):
        plain(function(f, F))

    def g(p: Program, x: Any) -> Any:
        return p.jvp(lambda x: custom(p, x), [x], [0], [x])

    with pytest.raises(GradientError, match="forward mode through `sine`"):
        plain(function(g, F))


def custom(p: Program, x: Any) -> Any:
    """sin, whose derivative is given as 10 cos."""
    with use_context(p.context):
        primal = p.block([F], lambda x: (e.sin(x),))
        forward = p.block([F], lambda x: (e.sin(x), e.cos(x)))
        backward = p.block([F, F], lambda c, ct: (c * ct * 10.0,))
    blocks = [primal, forward, backward]
    return p.op("custom_vjp", [x], [F], attrs={"name": "sine", "outputs": 1, "wrt": (0,)}, blocks=blocks)
