"""Derivatives of collectives on several ranks.

A case is a function of the local row of a replicated array `x` and of replicated weights `w`; its result is a replicated number.
Its gradients by `x` and `w` are compared with central differences of the program on all ranks, with forward mode, and its
second derivatives with differences of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import staged as st
from staged.base.launcher import this_job
from staged.ops.context import bind
from staged.ops.ranks import shard_op

JOB = this_job()
R = JOB.ranks
Loss = Callable[[Any, Any], Any]
RNG = np.random.default_rng(7)
X, W = RNG.normal(size=(R, R, 4)), RNG.normal(size=4)
DX, DW = RNG.normal(size=X.shape), RNG.normal(size=W.shape)
WEIGHTS = RNG.normal(size=(64 * R * R,))


def own(stacked: Any) -> Any:
    return bind(shard_op, [stacked], ranks=R)


def weighted(y: Any) -> Any:
    """A number that depends on all elements, each with another weight."""
    return st.sum(st.sin(y) * st.reshape(st.asarray(WEIGHTS[: y.size]), y.shape))


def total(y: Any) -> Any:
    """The sum over all ranks of a number for each: ranks have different weights."""
    return st.all_reduce(weighted(y) * st.cos(st.astype(st.rank(), st.f64)))


# ---- losses -------------------------------------------------------------------------------------


def max_of(by: str) -> Loss:
    return lambda x, w: weighted(st.all_reduce(x * w, by) ** 2)


def halo(edge: str, width: int, axis: int) -> Loss:
    return lambda x, w: total(st.exchange_halo(x * w, width, axis, edge) ** 2)


@st.function
def again(y: Any, n: Any) -> Any:
    """A recursive function with a sum over ranks. In its derivatives two sums are one message."""
    if n <= 0:
        return y
    return again(st.tanh(y * st.all_reduce(y)), n - 1)


LOSSES: dict[str, Loss] = {
    "sum": lambda x, w: weighted(st.all_reduce(x * w)),
    "mean": lambda x, w: weighted(st.all_reduce(st.sin(x) * w, "mean")),
    "max": max_of("max"),
    "min": max_of("min"),
    "used_by_local": lambda x, w: total(st.all_reduce(x * w) * x),
    "all_gather": lambda x, w: weighted(st.all_gather(x * w) ** 2),
    "all_gather_of_columns": lambda x, w: total(st.all_gather(x * w, axis=-1) ** 2),
    "shard": lambda x, w: total(st.shard(st.concat([w * w] * R)) * x[0]),
    "shard_of_columns": lambda x, w: total(st.shard(st.sin(st.all_gather(x, 1)), axis=1) * w),
    "reduce_scatter": lambda x, w: total(st.reduce_scatter(x * w)),
    "reduce_scatter_of_columns": lambda x, w: total(st.reduce_scatter(st.concat([x * w] * R, axis=1), axis=1)),
    "all_to_all": lambda x, w: total(st.all_to_all(x * w)),
    "all_to_all_of_other_axes": lambda x, w: total(st.all_to_all(x * w, 0, 1) ** 2),
    "broadcast": lambda x, w: weighted(st.broadcast(x * w, root=R - 1)),
    "broadcast_to_local": lambda x, w: total(st.broadcast(x * w) * x),
    "shift": lambda x, w: total(st.shift_ranks(x * w, 1) * x),
    "shift_without_wrap": lambda x, w: total(st.shift_ranks(x * w, -1, wrap=False) ** 2),
    "halo_zero": halo("zero", 2, 1),
    "halo_wrap": halo("wrap", 1, 0),
    "halo_nearest": halo("nearest", 2, 0),
    "sum_in_recursion": lambda x, w: total(again(x * w, st.astype(st.sum(w * 0) + 2, st.i64))),
    "vary_of_moved": lambda x, w: total(st.concat([w[None], x]) * st.astype(st.rank() + 1, st.f64)),
}


# ---- the comparison -----------------------------------------------------------------------------


def check(loss: Loss) -> None:
    def value(x: Any, w: Any) -> Any:
        return loss(own(x), w)

    def along(x: Any, w: Any, dx: Any, dw: Any) -> Any:
        """The derivative in a direction, by reverse mode."""
        d_x, d_w = st.grad(value, argnums=(0, 1))(x, w)
        return st.sum(d_x * dx) + st.sum(d_w * dw)

    @st.function
    def program(x: Any, w: Any, dx: Any, dw: Any) -> Any:
        y, grads = st.value_and_grad(value, argnums=(0, 1))(x, w)
        _, slope = st.jvp(value, (x, w), (dx, dw))
        second = st.grad(along, argnums=(0, 1))(x, w, dx, dw)
        of_slope = st.grad(lambda x, w: st.jvp(value, (x, w), (dx, dw))[1], argnums=(0, 1))(x, w)
        return y, grads, slope, second, of_slope

    _, grads, slope, second, of_slope = program(X, W, DX, DW)
    h = 1e-5
    up, down = (program(X + s * h * DX, W + s * h * DW, DX, DW) for s in (1, -1))
    scale = 1.0 + abs(float(up[0]))
    by_reverse = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(grads, (DX, DW), strict=True))
    assert abs(by_reverse - float(slope)) < 1e-11 * scale, f"reverse {by_reverse}, forward {slope}"
    differences = (float(up[0]) - float(down[0])) / (2 * h)
    assert abs(by_reverse - differences) < 1e-6 * scale, f"reverse {by_reverse}, differences {differences}"
    # Each weight: a direction alone could hide an exchange of two of them.
    for number in range(W.size):
        step = np.zeros(W.size)
        step[number] = h
        slope_of_one = (float(program(X, W + step, DX, DW)[0]) - float(program(X, W - step, DX, DW)[0])) / (2 * h)
        found = float(np.asarray(grads[1])[number])
        assert abs(slope_of_one - found) < 1e-6 * scale, f"weight {number}: {found}, differences {slope_of_one}"
    for name, found, above, below in zip("xw", second, up[1], down[1], strict=True):
        wanted = (np.asarray(above) - np.asarray(below)) / (2 * h)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=5e-5, atol=2e-5 * scale, err_msg=f"second order by {name}")
    for name, found, wanted in zip("xw", of_slope, second, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * scale, err_msg=f"slope by {name}")


globals().update({f"case_{name}": partial(check, loss) for name, loss in LOSSES.items()})


def case_ties() -> None:
    """Ranks that have the same extreme share its cotangent."""
    x = np.array([[1.0, 2.0, 0.0]] * R)
    x[0, 2] = 1.0

    def loss(x: Any, by: str) -> Any:
        return st.sum(st.all_reduce(own(x), by) * st.asarray([1.0, 10.0, 100.0]))

    @st.function
    def program(x: Any) -> Any:
        slopes = [st.jvp(lambda x, by=by: loss(x, by), (x,), (x,))[1] for by in ("max", "min")]
        return [st.grad(lambda x, by=by: loss(x, by))(x) for by in ("max", "min")], slopes

    (largest, smallest), slopes = program(x)
    shared = np.broadcast_to(np.array([1.0, 10.0]) / R, (R, 2))
    np.testing.assert_allclose(np.asarray(largest)[:, :2], shared)
    np.testing.assert_allclose(np.asarray(smallest)[:, :2], shared)
    np.testing.assert_allclose(np.asarray(largest)[:, 2], [100.0] + [0.0] * (R - 1))
    np.testing.assert_allclose(np.asarray(smallest)[:, 2], [0.0] + [100.0 / (R - 1)] * (R - 1))
    for found, slope in zip((largest, smallest), slopes, strict=True):
        np.testing.assert_allclose(np.sum(np.asarray(found) * x), float(slope))


def case_heat() -> None:
    """The 1-D heat equation back through 200 steps, compared with one rank that has all cells."""
    cells, steps = 240, 200
    place = np.linspace(0.0, 1.0, cells)
    start, wanted = np.exp(-50.0 * (place - 0.4) ** 2), np.exp(-20.0 * (place - 0.55) ** 2)
    k = np.float64(0.3)

    def misfit(u: Any, k: Any, wanted: Any, extend: Any) -> Any:
        for _ in st.range(steps):
            padded = extend(u)
            u = u + k * (padded[2:] - 2.0 * u + padded[:-2])
        return 0.5 * st.sum((u - wanted) ** 2)

    @st.function
    def over_ranks(u: Any, k: Any, wanted: Any) -> Any:
        def loss(u: Any, k: Any) -> Any:
            return st.all_reduce(misfit(st.shard(u), k, st.shard(wanted), st.exchange_halo))

        return st.value_and_grad(loss, argnums=(0, 1))(u, k)

    @st.function
    def alone(u: Any, k: Any, wanted: Any) -> Any:
        def loss(u: Any, k: Any) -> Any:
            return misfit(u, k, wanted, lambda u: st.pad(u, 1))

        return st.value_and_grad(loss, argnums=(0, 1))(u, k)

    value, (d_u, d_k) = over_ranks(start, k, wanted)
    value_alone, (d_u_alone, d_k_alone) = alone(start, k, wanted)
    assert abs(float(value) - float(value_alone)) < 1e-13
    assert abs(float(d_k) - float(d_k_alone)) < 1e-13 * (1 + abs(float(d_k_alone)))
    np.testing.assert_allclose(np.asarray(d_u), np.asarray(d_u_alone), rtol=0, atol=1e-13)
