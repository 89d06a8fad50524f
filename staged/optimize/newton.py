"""Newton's method, whose systems are solved by conjugate gradients without the Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import staged as st
from staged.optimize.line_search import strong_wolfe


def newton(
    evaluate: Callable[[Any], tuple[Any, Any]],
    x: Any,
    value: Any,
    gradient: Any,
    maxiter: int,
    gtol: float,
    ftol: float,
) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    """(x, value, gradient, iterations, evaluations, the last slope, whether the last search found no end).

    Source: Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.1; the products with the Hessian are
    derivatives of the gradient.
    """
    iterations, evaluations = st.asarray(0), st.asarray(1)
    is_done: Any = (st.max(st.abs(gradient)) <= gtol) | (value == -st.inf)
    slope, is_endless = -st.ones_like(value), st.asarray(False)
    while not is_done and iterations < maxiter:
        direction = _solved(evaluate, x, gradient)
        slope = st.vdot(gradient, direction)
        if not slope < 0.0:
            is_done = True
        else:
            before = value
            one = st.ones_like(value)
            step, value, gradient, tries, is_endless = strong_wolfe(evaluate, x, direction, value, slope, gradient, one)
            x = x + step * direction
            evaluations += tries
            unit = st.maximum(st.maximum(st.abs(value), st.abs(before)), 1.0)
            is_small = (st.max(st.abs(gradient)) <= gtol) | (st.abs(value - before) < ftol * unit)
            is_done = is_endless | is_small | (value == -st.inf)
        iterations += 1
    return x, value, gradient, iterations, evaluations, slope, is_endless


def _solved(evaluate: Callable[[Any], tuple[Any, Any]], x: Any, gradient: Any) -> Any:
    """A direction that leads down: conjugate gradients for H d = -g, up to where H bends down, or where the residual
    is small enough that the iterations around this one converge faster than linearly.
    """
    norm = st.sqrt(st.vdot(gradient, gradient))
    enough = st.minimum(0.5, st.sqrt(norm)) * norm
    direction = st.zeros_like(x)
    residual, along = gradient, -gradient
    square = st.vdot(residual, residual)
    is_done: Any = False
    tries = 0
    while not is_done and tries < 2 * x.shape[0] + 10:
        tries += 1
        curved = st.jvp(lambda x: evaluate(x)[1], (x,), (along,))[1]
        bend = st.vdot(along, curved)
        if bend <= 0.0:
            direction = st.where(tries == 1, along, direction)
            is_done = True
        else:
            length = square / bend
            direction = direction + length * along
            residual = residual + length * curved
            new = st.vdot(residual, residual)
            is_done = st.sqrt(new) < enough
            along = new / square * along - residual
            square = new
    return direction
