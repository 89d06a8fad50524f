"""A step along a direction that satisfies the strong Wolfe conditions.

Source: Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and 3.6, with the cubic steps and safeguards of
Schmidt, minFunc, 2005, which torch's L-BFGS has, too. Both algorithms are one loop here, so that a program has the
function once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import staged as st

_DECREASE, _CURVATURE = 1e-4, 0.9
"""The share of the decrease promised by the first slope that a step must have, and of that slope that may be left."""
_SHARE = 0.1
"""Of an interval: a new step is not nearer to its ends."""


def strong_wolfe(
    evaluate: Callable[[Any], tuple[Any, Any]],
    x: Any,
    direction: Any,
    value: Any,
    slope: Any,
    gradient: Any,
    first: Any,
    tolerance: float = 1e-9,
    most: Any = 25,
) -> tuple[Any, Any, Any, Any, Any]:
    """The length of a step from `x` along `direction`, the value and the gradient there, the number of evaluations, and
    whether the value still fell as steeply at the last step, ten times as long as the one before.

    `evaluate(x)` is (value, gradient); `value`, `slope` (negative) and `gradient` are those at `x`; the length `first`
    is tried first. The search ends with the best step so far once no element of the interval that is left is above
    `tolerance`, or after `most` evaluations.
    """
    reach = st.max(st.abs(direction))
    t = first
    low, low_value, low_slope, low_gradient = st.zeros_like(t), value, slope, gradient
    high, high_value, high_slope = low, value, slope
    is_bracketed, is_stuck, is_found = False, False, False
    tries = 0
    while not is_found and tries < most:
        new_value, new_gradient = evaluate(x + t * direction)
        new_slope = st.vdot(new_gradient, direction)
        tries += 1
        is_less = new_value < low_value
        is_too_high = not new_value <= value + _DECREASE * t * slope or (not is_less and (is_bracketed or tries > 2))
        is_flat = not is_too_high and st.abs(new_slope) <= -_CURVATURE * slope
        was_bracketed = is_bracketed
        before = low
        if is_flat:
            is_found = True
        elif was_bracketed:
            if is_too_high and not is_less:
                high, high_value, high_slope = t, new_value, new_slope
            elif is_too_high or new_slope * (high - low) >= 0.0:
                high, high_value, high_slope = low, low_value, low_slope
        elif is_too_high or new_slope >= 0.0:
            is_bracketed = True
            if is_less:
                high, high_value, high_slope = low, low_value, low_slope
            else:
                high, high_value, high_slope = t, new_value, new_slope
        else:
            high, high_value, high_slope = low, low_value, low_slope
        if is_found or is_less or not is_bracketed:
            low, low_value, low_slope, low_gradient = t, new_value, new_slope, new_gradient
        if is_bracketed and not is_found:
            least, greatest = st.minimum(low, high), st.maximum(low, high)
            t = _cubic_step(low, low_value, low_slope, high, high_value, high_slope, least, greatest)
            margin = _SHARE * (greatest - least)
            if st.minimum(greatest - t, t - least) < margin:
                if is_stuck or t >= greatest or t <= least:
                    t = st.where(greatest - t < t - least, greatest - margin, least + margin)
                    is_stuck = False
                else:
                    is_stuck = True
            else:
                is_stuck = False
            if (greatest - least) * reach < tolerance:
                is_found = True
        elif not is_found:
            shortest, longest = low + 0.01 * (low - before), 10.0 * low
            t = _cubic_step(before, high_value, high_slope, low, low_value, low_slope, shortest, longest)
    return low, low_value, low_gradient, tries, not (is_found or is_bracketed)


def _cubic_step(
    a: Any, value_a: Any, slope_a: Any, b: Any, value_b: Any, slope_b: Any, least: Any, greatest: Any
) -> Any:
    """The minimum, from `least` to `greatest`, of the cubic with these values and slopes at a and b; their middle
    without one.
    """
    bend = slope_a + slope_b - 3.0 * (value_a - value_b) / (a - b)
    square = bend * bend - slope_a * slope_b
    root = st.where(b < a, -1.0, 1.0) * st.sqrt(st.maximum(square, 0.0))
    minimum = b - (b - a) * (slope_b + root - bend) / (slope_b - slope_a + 2.0 * root)
    is_one = (square >= 0.0) & ~st.isnan(minimum)
    return st.where(is_one, st.clip(minimum, least, greatest), 0.5 * (least + greatest))
