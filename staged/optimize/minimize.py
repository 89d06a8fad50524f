"""`minimize`, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optree

import staged as st
from staged.optimize.lbfgs import Point, descend, empty
from staged.optimize.newton import newton


class OptimizeResult(NamedTuple):
    """The result of `minimize`, with SciPy's names."""

    x: Any
    """A tree like `x0`."""
    fun: Any
    """The value there."""
    jac: Any
    """The gradient there, a tree like `x0`."""
    success: Any
    """True if an end was reached: a small gradient, or no more change of the value."""
    status: Any
    """i64: 0 success, 1 `maxiter` iterations were made, 2 no step leads down although the function is steep, or the
    value is NaN, 3 the value falls without end."""
    nit: Any
    """The number of iterations, i64."""
    nfev: Any
    """The number of evaluations of the function, i64."""

    @property
    def message(self) -> str:
        """`status` in words."""
        return _MESSAGES[int(self.status)]


_MESSAGES = (
    "the gradient is small, or the value does not change any more",
    "maxiter iterations were made",
    "no step leads down, or the value is NaN",
    "the value falls without end along a direction: the function has no minimum there",
)
_METHODS = ("L-BFGS", "Newton-CG")
_OPTIONS = {"L-BFGS": ("maxiter", "gtol", "ftol", "maxcor"), "Newton-CG": ("maxiter", "gtol", "ftol")}


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    method: str = "L-BFGS",
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    bounds: None = None,
    constraints: None = None,
) -> OptimizeResult:
    """A local minimum of fun(x, *args) from `x0`, which is an array or a tree of arrays, of floats of one dtype.

    `method` is "L-BFGS" (source: Liu and Nocedal, 1989), or "Newton-CG", whose products of the Hessian with a vector
    are derivatives of the gradient along it (source: Steihaug, 1983). `options`: `maxiter` (200 iterations), `gtol`
    (the largest element of the gradient, 1e-5; `tol` sets it), `ftol` (the relative change of the value, 1e-12), and
    for L-BFGS `maxcor` (10 changes are kept). As `scipy.optimize.minimize`, without bounds or constraints.

    The gradient of `fun` is the project's own; `fun` may have loops and branches. Derivatives of the result go back
    through the iterations that were made.

    Raises: ArgumentError for another method or option, DTypeError and ShapeError if `x0` or the value do not fit.
    """
    if bounds is not None or constraints is not None:
        raise st.ArgumentError(
            "minimize: bounds and constraints must be None, since they are not supported",
            where=st.here(),
            hint="write `x = low + (high - low) * st.sigmoid(z)` in the function and minimise by `z`, or add a penalty",
        )
    if method not in _METHODS:
        raise st.ArgumentError(f"minimize: method is one of {', '.join(_METHODS)}, got {method!r}", where=st.here())
    given = dict(options or {})
    wrong = [name for name in given if name not in _OPTIONS[method]]
    if wrong:
        raise st.ArgumentError(
            f"minimize: {method} has the options {', '.join(_OPTIONS[method])}, got {', '.join(wrong)}",
            where=st.here(),
        )
    for name, least in (("maxiter", 0), ("maxcor", 1)):
        if given.get(name, least) < least:
            raise st.ArgumentError(f"minimize: {name} is at least {least}, got {given[name]}", where=st.here())
    leaves = optree.tree_leaves(x0, none_is_leaf=True, namespace="staged")
    dtypes = {st.asarray(leaf).dtype for leaf in leaves}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_float:
        names = ", ".join(sorted(map(str, dtypes)))
        raise st.DTypeError(f"minimize: x0 has floats of one dtype, got {names or 'nothing'}", where=st.here())
    found: OptimizeResult = _minimize(
        fun,
        x0,
        args,
        method,
        int(given.get("maxiter", 200)),
        float(given.get("gtol", 1e-5 if tol is None else tol)),
        float(given.get("ftol", 1e-12)),
        int(given.get("maxcor", 10)),
    )
    return found


@st.function(static=("maxcor",))  # so that plain Python runs a program, too
def _minimize(
    fun: Any, x0: Any, args: Any, method: str, maxiter: int, gtol: float, ftol: float, maxcor: int
) -> OptimizeResult:
    leaves, spec = optree.tree_flatten(x0, none_is_leaf=True, namespace="staged")
    arrays = [st.asarray(leaf) for leaf in leaves]
    x = st.concat([st.reshape(array, (-1,)) for array in arrays])
    if x.shape == (0,):
        raise st.ShapeError("minimize: x0 has no elements", where=st.here())

    def tree(flat: Any) -> Any:
        parts, begin = [], 0
        for array in arrays:
            parts.append(st.reshape(flat[begin : begin + array.size], array.shape))
            begin += array.size
        return optree.tree_unflatten(spec, parts)

    def at(flat: Any) -> Any:
        value = st.asarray(fun(tree(flat), *args))
        if value.shape:
            raise st.ShapeError(f"minimize: the function returns one number, got {value.shape}", where=st.here())
        if value.dtype != x.dtype:
            raise st.DTypeError(f"minimize: x0 is {x.dtype}, the value {value.dtype}", where=st.here())
        return value

    evaluate = st.value_and_grad(at)
    value, gradient = evaluate(x)
    zeros = st.zeros_like(x)
    if method == "L-BFGS":
        memory = empty(x.shape[0], maxcor, x.dtype)
        start = Point(x, value, gradient, zeros, zeros[0], zeros, memory, st.asarray(0), st.asarray(1))
        end = descend(evaluate, start, 1.0, maxiter, 2**62, gtol, ftol, has_search=True, relative=True, most_tries=25)
        x, value, gradient = end.x, end.value, end.gradient
        iterations, evaluations, is_endless = end.iterations, end.evaluations, end.is_endless
        slope = st.vdot(end.before, end.direction)
    else:
        x, value, gradient, iterations, evaluations, slope, is_endless = newton(
            evaluate, x, value, gradient, maxiter, gtol, ftol
        )
    is_small = st.max(st.abs(gradient)) <= gtol
    # At a minimum the last slope is made of roundings.
    is_steep = slope < -math.sqrt(np.finfo(x.dtype.numpy).eps) * st.maximum(st.abs(value), 1.0)
    status = st.where(is_steep, 2, 0)
    status = st.where(iterations >= maxiter, 1, status)
    status = st.where(st.isnan(value) | ~(slope < 0.0), 2, status)
    status = st.where(is_endless, 3, status)
    status = st.where(is_small, 0, status)
    status = st.where(value == -st.inf, 3, status)
    return OptimizeResult(tree(x), value, tree(gradient), status == 0, status, iterations, evaluations)
