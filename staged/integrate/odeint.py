"""`odeint`: ordinary differential equations by an embedded pair of Runge-Kutta formulas, with either derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

import staged as st
from staged.call.api import plain_number

# The pair of orders 5 and 4 by Dormand and Prince, A family of embedded Runge-Kutta formulae, 1980: nodes, stages
# (the last one is the step, whose slope is the next step's first), and the difference between both orders.
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# Between the ends of a step: polynomials of order 4 in the part x of it that has passed, one for each slope, without
# their factor x. Shampine, Some practical Runge-Kutta formulas, 1986.
_BETWEEN = (
    (1.0, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
    (0.0, 0.0, 0.0, 0.0),
    (0.0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
    (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
    (0.0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
    (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
    (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
)

Leaves = list[Any]
Field = Callable[[Leaves, Any], Leaves]
"""Returns the slopes of the leaves of a state at a time."""


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    max_steps: int = 10_000,
    adjoint: bool = False,
) -> Any:
    """The solution of y' = func(y, t, *args) with y(t[0]) = y0, at the times `t`.

    `y0` is an array, or a tree of arrays, of floats of one dtype; `func` returns a tree like it. `t` (n,) rises or
    falls; neighbours may be equal. A list of numbers has the dtype of `y0`. Returns a tree like `y0` whose leaves have
    a first axis of n. Steps are as long as the error of each, its root mean square over the elements in units of
    `atol + rtol * abs(y)`, is at most 1; values between their ends are by a polynomial of order 4. As
    `scipy.integrate.odeint` and JAX's.

    Derivatives, by `y0`, `t`, `args` and what `func` closes over, go back through the steps that were made, whose
    lengths are constants; memory grows with their number. With `adjoint` they are the solution of another equation
    that runs backwards: memory stays, forward mode and what `func` closes over have no derivative, and the result is
    exact to the tolerances only. Source: Chen et al., Neural Ordinary Differential Equations, 2018.

    Raises: DTypeError and ShapeError if `y0`, `t` and the slopes do not fit, ArgumentError for a tolerance below 0; the
    program stops after `max_steps` steps, or where no step is short enough (RuntimeError), and where the times do not
    go one way (ValueError).
    """
    times = _times(t, y0)
    _check(y0, times)
    rtol, atol = plain_number(rtol), plain_number(atol)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if isinstance(tolerance, int | float) and not tolerance >= 0:
            raise st.ArgumentError(f"odeint: {name} is at least 0, got {tolerance}", where=st.here())
    return _odeint(func, y0, times, args, rtol, atol, max_steps, adjoint)


@st.function  # so that plain Python runs a program, too
def _odeint(func: Any, y0: Any, t: Any, args: Any, rtol: float, atol: float, max_steps: int, adjoint: bool) -> Any:
    if adjoint:
        return _with_adjoint(func, rtol, atol, max_steps)(y0, t, *args)
    return _solve(func, y0, t, args, rtol, atol, max_steps)


def _times(t: Any, y0: Any) -> Any:
    """The times as an array; numbers of Python have the dtype of the state."""
    if isinstance(t, list | tuple) and all(type(each) in (int, float) for each in t):
        dtypes = [st.asarray(leaf).dtype for leaf in _flat(y0)[0] if not isinstance(leaf, int | float)]
        return st.asarray([float(each) for each in t], dtype=dtypes[0] if dtypes and dtypes[0].is_float else None)
    return st.asarray(t)


def _check(y0: Any, t: Any) -> None:
    if t.ndim != 1 or t.shape[0] < 1:
        raise st.ShapeError(f"odeint: t is one axis of times, got {t.shape}", where=st.here())
    for leaf in _flat(y0)[0]:
        dtype = _array(leaf, t.dtype).dtype
        if not dtype.is_float or dtype != t.dtype:
            raise st.DTypeError(
                f"odeint: the state and the times are floats of one dtype, got {dtype} and {t.dtype}", where=st.here()
            )


def _solve(func: Any, y0: Any, t: Any, args: Any, rtol: float, atol: float, max_steps: int) -> Any:
    leaves, spec = _flat(y0)
    sign = st.astype(st.where(t[-1] < t[0], -1, 1), t.dtype)

    def field(y: Leaves, now: Any) -> Leaves:
        return [st.astype(sign, slope.dtype) * slope for slope in _slopes(func, _tree(spec, y), sign * now, args)]

    seen = _integrate(field, [_array(leaf, t.dtype) for leaf in leaves], sign * t, rtol, atol, max_steps)
    return _tree(spec, seen)


def _integrate(field: Field, y0: Leaves, t: Any, rtol: float, atol: float, max_steps: int) -> Leaves:
    """The leaves at times that rise."""
    count = t.shape[0]
    y = y0
    seen = [st.zeros((count, *leaf.shape), dtype=leaf.dtype) for leaf in y0]
    for index in range(len(y0)):
        seen[index][0] = y0[index]
    now = t[0]
    first = field(y, now)
    h = _first_step(field, y, now, first, rtol, atol)
    if not st.all(t[1:] >= t[:-1]):
        raise ValueError("odeint: the times do not rise or fall from each to the next, or one is NaN")
    reached = st.asarray(1)
    while reached < count and t[reached] <= now:  # no step leads to a time that is the first: one of length 0
        for index in range(len(y0)):
            seen[index][reached] = y[index] + (t[reached] - now) * first[index]
        reached += 1
    steps = 0
    while reached < count:
        if steps >= max_steps:
            raise RuntimeError(f"odeint: {max_steps} steps are not enough: is the equation stiff?")
        h = st.minimum(h, st.stop_gradient(t[-1] - now))  # `func` may not be defined beyond the last time
        if not now + h > now:
            if st.all(atol == 0):
                raise RuntimeError(
                    "odeint: no step is short enough: with `atol=0` the tolerance of an element that is 0 is 0; write "
                    "`atol=1e-9`, unless the solution is infinite"
                )
            raise RuntimeError("odeint: no step is short enough: is the solution infinite, or a slope NaN?")
        slopes = [first]
        for node, shares in zip(_NODES, _STAGES, strict=True):
            new = _moved(y, h, slopes, shares)
            slopes = [*slopes, field(new, now + node * h)]
        error = h * _size(_summed(slopes, _ERROR), y, new, rtol, atol)
        if error <= 1.0:
            after = now + h
            while reached < count and t[reached] <= after:
                part = (t[reached] - now) / h
                at = [part * _polynomial(shares, part) if any(shares) else 0.0 for shares in _BETWEEN]
                found = _moved(y, h, slopes, at)
                for index in range(len(y0)):
                    seen[index][reached] = found[index]
                reached += 1
            y, first, now = new, slopes[-1], after
        h = h * st.clip(0.9 * st.where(st.isnan(error), float("inf"), error) ** -0.2, 0.2, 10.0)
        steps += 1
    return seen


def _moved(y: Leaves, h: Any, slopes: Sequence[Leaves], shares: Sequence[Any]) -> Leaves:
    """`y` and h times the sum of slopes, each with its share."""
    return [leaf + h * change for leaf, change in zip(y, _summed(slopes, shares), strict=True)]


def _summed(slopes: Sequence[Leaves], shares: Sequence[Any]) -> Leaves:
    used = [
        (slope, share)
        for slope, share in zip(slopes, shares, strict=True)
        if not isinstance(share, float) or share != 0.0
    ]
    sums = []
    for index in range(len(slopes[0])):
        total = used[0][1] * used[0][0][index]
        for slope, share in used[1:]:
            total = total + share * slope[index]
        sums.append(total)
    return sums


def _polynomial(shares: Sequence[float], x: Any) -> Any:
    value = shares[-1]
    for share in shares[-2::-1]:
        value = value * x + share
    return value


def _size(change: Leaves, y: Leaves, new: Leaves, rtol: float, atol: float) -> Any:
    """The root mean square of a change over all elements, in units of the tolerances, as a constant to derivatives."""
    total: Any = 0.0
    count = 0
    for part, before, after in zip(change, y, new, strict=True):
        unit = atol + rtol * st.maximum(st.abs(before), st.abs(after))
        total = total + st.sum((part / unit) ** 2)
        count += part.size
    return st.stop_gradient(st.sqrt(total / max(count, 1)))


def _first_step(field: Field, y: Leaves, now: Any, slope: Leaves, rtol: float, atol: float) -> Any:
    """Source: Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, 1993, section II.4."""
    value, speed = _size(y, y, y, rtol, atol), _size(slope, y, y, rtol, atol)
    short = st.where((value < 1e-5) | (speed < 1e-5), 1e-6, 0.01 * value / speed)
    then = field(_moved(y, short, [slope], [1.0]), now + short)
    bend = _size(_summed([then, slope], [1.0, -1.0]), y, y, rtol, atol) / short
    fastest = st.maximum(speed, bend)
    h = st.where(fastest <= 1e-15, st.maximum(1e-6, short * 1e-3), (0.01 / fastest) ** 0.2)
    return st.minimum(100.0 * short, h)


# ---- the adjoint equation ---------------------------------------------------------------------------


def _with_adjoint(func: Any, rtol: float, atol: float, max_steps: int) -> Any:
    """The solution as a function of (y0, t, *args), whose reverse derivative is another solution.

    Backwards run: the state, its cotangent a with a' = -a df/dy, and the cotangents of time and of the arguments. The
    state starts anew at each of the times, so that errors do not add up.
    """

    def solve(y0: Any, t: Any, *args: Any) -> Any:
        return _solve(func, y0, t, args, rtol, atol, max_steps)

    def forward(y0: Any, t: Any, *args: Any) -> Any:
        y = solve(y0, t, *args)
        return y, (y, t, args)

    def backward(residuals: Any, cotangent: Any) -> Any:
        y, t, args = residuals
        seen, spec = _flat(y)
        cotangents = _flat(cotangent)[0]
        given, args_spec = _flat(args)
        floats = [index for index, leaf in enumerate(given) if st.asarray(leaf).dtype.is_float]

        def slopes(y: Leaves, now: Any, floating: Leaves) -> Leaves:
            leaves = list(given)
            for index, leaf in zip(floats, floating, strict=True):
                leaves[index] = leaf
            return _slopes(func, _tree(spec, y), now, _tree(args_spec, leaves))

        def field(state: Any, now: Any) -> Any:
            y, a, *_ = state
            values, pull = st.vjp(slopes, y, now, [given[index] for index in floats])
            d_y, d_now, d_args = pull(a)
            return values, [-each for each in d_y], -d_now, [-st.astype(each, t.dtype) for each in d_args]

        a = [each[-1] for each in cotangents]
        d_t = st.zeros(t.shape, dtype=t.dtype)
        since = st.zeros((), dtype=t.dtype)
        d_args = [st.zeros(st.asarray(given[index]).shape, dtype=t.dtype) for index in floats]
        for i in st.range(t.shape[0] - 1, 0, -1):
            at = [leaf[i] for leaf in seen]
            slope = _slopes(func, _tree(spec, at), t[i], args)
            now = sum(st.sum(each[i] * part) for each, part in zip(cotangents, slope, strict=True))
            d_t[i] = now
            state = (at, a, since - now, d_args)
            ended = _solve(field, state, st.stack([t[i], t[i - 1]]), (), rtol, atol, max_steps)
            _, a, since, d_args = _last(ended)
            a = [part + each[i - 1] for part, each in zip(a, cotangents, strict=True)]
        d_t[0] = since
        d_given: Leaves = [None] * len(given)
        for index, each in zip(floats, d_args, strict=True):
            d_given[index] = each
        return _tree(spec, a), d_t, *_tree(args_spec, d_given)

    solution = st.custom_vjp(solve)
    solution.defvjp(forward, backward)
    return solution


# ---- states as trees --------------------------------------------------------------------------------


def _flat(tree: Any) -> tuple[Leaves, Any]:
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True, namespace="staged")
    return leaves, spec


def _tree(spec: Any, leaves: Leaves) -> Any:
    return optree.tree_unflatten(spec, leaves)


def _last(tree: Any) -> Any:
    leaves, spec = _flat(tree)
    return _tree(spec, [leaf[-1] for leaf in leaves])


def _array(leaf: Any, dtype: Any) -> Any:
    """A leaf as an array: a number has the dtype of the times."""
    is_weak = leaf.type.weak if isinstance(leaf, st.Array) else isinstance(leaf, int | float)
    return st.asarray(leaf, dtype=dtype) if is_weak else st.asarray(leaf)


def _slopes(func: Any, y: Any, now: Any, args: Any) -> Leaves:
    """The leaves of `func`'s result, which are like those of `y`."""
    given, spec = _flat(y)
    slopes, found = _flat(func(y, now, *args))
    if found != spec:
        raise st.ArgumentError(f"odeint: the state is {spec}, its slope {found}", where=st.here())
    made = [_array(slope, now.dtype) for slope in slopes]
    for slope, leaf in zip(made, given, strict=True):
        if slope.shape != leaf.shape:
            raise st.ShapeError(f"odeint: the state has shape {leaf.shape}, its slope {slope.shape}", where=st.here())
        if slope.dtype != leaf.dtype:
            raise st.DTypeError(f"odeint: the state is {leaf.dtype}, its slope {slope.dtype}", where=st.here())
    return made
