"""L-BFGS: the inverse Hessian from the last few changes of the point and of the gradient.

Source: Liu and Nocedal, On the limited memory BFGS method for large scale optimization, 1989.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import staged as st
from staged.optimize.line_search import strong_wolfe


class Memory(NamedTuple):
    """The last changes of the point (m, n) and of the gradient (m, n), in turn; the newest is row `(count - 1) % m`."""

    steps: Any
    changes: Any
    weights: Any
    """(m,) 1 / (step . change)."""
    scale: Any
    """The inverse Hessian that is assumed beyond them, times the identity."""
    count: Any
    """The number of changes so far, i64."""


class Point(NamedTuple):
    """The state of a descent, and what the next iteration needs of the last one."""

    x: Any
    """(n,)"""
    value: Any
    gradient: Any
    direction: Any
    """(n,), that of the last iteration."""
    step: Any
    """The last step's share of it."""
    before: Any
    """(n,), the gradient before the last step."""
    memory: Memory
    iterations: Any
    evaluations: Any
    is_endless: Any = False
    """Whether the value still fell where the last search ended."""


Evaluate = Callable[[Any], tuple[Any, Any]]
"""Returns the value and the gradient (n,) at x (n,)."""


def empty(size: Any, history: int, dtype: Any) -> Memory:
    """No changes yet."""
    rows = st.zeros((history, size), dtype=dtype)
    return Memory(rows, rows, st.zeros(history, dtype=dtype), st.ones((), dtype=dtype), st.asarray(0))


def descend(
    evaluate: Evaluate,
    point: Point,
    lr: Any,
    most_iterations: int,
    most_evaluations: int,
    least_gradient: float,
    least_change: float,
    has_search: bool,
    relative: bool = False,
    most_tries: int = 2**62,
) -> Point:
    """Iterations from a point whose value and gradient are known.

    Without `has_search` steps are `lr` long, and value and gradient after the last iteration are not asked for.

    They end after `most_iterations`, or `most_evaluations`; where no element of the gradient is above `least_gradient`
    or none of the step above `least_change`; where the value changes by less than `least_change`, `relative` to it if
    that is set; with that also where a search found no end, or the value is -inf; and where the direction does not lead
    down. A search tries at most `most_tries` steps.
    """
    iterations = 0
    spent = 0
    is_done: Any = (st.max(st.abs(point.gradient)) <= least_gradient) | (relative and point.value == -st.inf)
    while not is_done and iterations < most_iterations:
        iterations += 1
        spent_now = 0
        x, value, gradient, _, _, _, memory, all_iterations, evaluations, _ = point
        if all_iterations > 0:
            memory = _with_change(memory, point)
        direction = -_times_inverse_hessian(memory, gradient)
        step = lr if all_iterations > 0 else lr * st.minimum(1.0, 1.0 / st.sum(st.abs(gradient)))
        step = st.astype(step, x.dtype)
        slope = st.vdot(gradient, direction)
        point = Point(x, value, gradient, direction, step, gradient, memory, all_iterations + 1, evaluations)
        if not slope <= -least_change:  # or NaN
            is_done = True
        else:
            is_endless = False
            if has_search:
                step, new, gradient, spent_now, is_endless = strong_wolfe(
                    evaluate,
                    x,
                    direction,
                    value,
                    slope,
                    gradient,
                    step,
                    most=st.minimum(most_tries, most_evaluations - spent + 1),
                )
                x = x + step * direction
            else:
                x, new = x + step * direction, value
                if iterations < most_iterations:  # else nobody asks
                    new, gradient = evaluate(x)
                    spent_now = 1
            spent += spent_now
            change = st.abs(new - value)
            all_evaluations = evaluations + spent_now
            point = Point(
                x, new, gradient, direction, step, point.before, memory, all_iterations + 1, all_evaluations, is_endless
            )
            unit = st.maximum(st.maximum(st.abs(new), st.abs(value)), 1.0) if relative else 1.0
            is_done = (
                (spent >= most_evaluations)
                | (relative and (is_endless | (new == -st.inf)))
                | (st.max(st.abs(gradient)) <= least_gradient)
                | (st.max(st.abs(step * direction)) <= least_change)
                | (change < least_change * unit)
            )
    return point


def _with_change(memory: Memory, point: Point) -> Memory:
    """The memory with the last step, if the function was convex along it."""
    step, change = point.step * point.direction, point.gradient - point.before
    product = st.vdot(step, change)
    steps, changes, weights, scale, count = memory
    if product > 1e-10:
        row = count % weights.shape[0]
        steps[row] = step
        changes[row] = change
        weights[row] = 1.0 / product
        scale = product / st.vdot(change, change)
        count = count + 1
    return Memory(steps, changes, weights, scale, count)


def _times_inverse_hessian(memory: Memory, gradient: Any) -> Any:
    """The recursion over the memory, from the newest change to the oldest and back."""
    steps, changes, weights, scale, count = memory
    room = weights.shape[0]
    known = st.minimum(count, room)
    product = gradient
    shares = st.zeros_like(weights)
    for age in st.range(known):
        row = (count - 1 - age) % room
        share = weights[row] * st.vdot(steps[row], product)
        shares[row] = share
        product = product - share * changes[row]
    product = scale * product
    for age in st.range(known):
        row = (count - known + age) % room
        product = product + (shares[row] - weights[row] * st.vdot(changes[row], product)) * steps[row]
    return product
