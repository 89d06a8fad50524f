"""The code that reverse mode writes can be differentiated again: sequences have cotangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staged.ir.types import TensorType, f64
from staged.ops import elementwise as e
from tests.ir_interpreter import run
from tests.ir_programs import Leave, Program, function, plain


def check_second(f: Callable[..., Any], x: float) -> None:
    """The gradient of the gradient against central differences of the gradient."""
    F = TensorType(f64)

    def slope(p: Program, x: Any) -> Any:
        return (p.vjp(lambda b: f(p, b), [x], [0])[1],)

    once = plain(function(slope, F))
    twice = plain(function(lambda p, x: p.vjp(lambda a: slope(p, a), [x], [0]), F))
    first, second = run(twice, x)
    np.testing.assert_allclose(first, run(once, x)[0], rtol=1e-12)
    step = 1e-5
    expected = (run(once, x + step)[0] - run(once, x - step)[0]) / (2 * step)
    np.testing.assert_allclose(second, expected, rtol=1e-4, atol=1e-6)


def power(p: Program, x: Any) -> Any:
    return p.for_(5, [x], lambda loop, i, a: (a * x,))


def iterated(p: Program, x: Any) -> Any:
    return p.while_([x], lambda a: a < 100.0, lambda loop, a: (a * x + e.sin(a),))


def nested(p: Program, x: Any) -> Any:
    y = e.cos(x)

    def outer(loop: Any, i: Any, a: Any, b: Any) -> Any:
        c, b = p.for_(3, [a, b], lambda inner, j, c, d: (e.sin(c) * d, d * y + c))
        (a,) = p.if_(a < 0.5, lambda: (c * b,), lambda: p.for_(i, [c], lambda inner, k, c: (e.cos(c),)))
        return a, b

    a, b = p.for_(4, [x, y], outer)
    return (a * b,)


def leaving(p: Program, x: Any) -> Any:
    y = x * 2.0

    def body(loop: Any, i: Any, a: Any) -> Any:
        (t,) = p.if_(a > 3.0, lambda: Leave("break", loop, (a,)), lambda: (a * y,))
        (s,) = p.if_(t > 2.0, lambda: Leave("continue", loop, (e.exp(t) * x,)), lambda: (t * x,))
        return (s + y,)

    (a,) = p.for_(10, [x], body)
    return (a * a,)


@pytest.mark.parametrize("x", [0.55, 0.7, 0.9])
@pytest.mark.parametrize("f", [power, nested, leaving])
def test_second_order(f: Callable[..., Any], x: float) -> None:
    check_second(f, x)


def test_second_order_of_while() -> None:
    check_second(iterated, 1.7)


def test_third_order_of_a_loop() -> None:
    """d3/dx3 of x^6 is 120 x^3."""
    F = TensorType(f64)

    def slope(p: Program, g: Any) -> Any:
        return lambda x: (p.vjp(g, [x], [0])[1],)

    def third(p: Program, x: Any) -> Any:
        return slope(p, slope(p, slope(p, lambda a: power(p, a))))(x)

    np.testing.assert_allclose(run(plain(function(third, F)), 0.7)[0], 120 * 0.7**3, rtol=1e-12)
