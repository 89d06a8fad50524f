"""Values of collectives on several ranks: each rank compares its result with the meaning (`over` of the declaration).

Every rank has the arrays of all ranks as one argument, `(ranks, *shape)`. `own` is the local array of this rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import staged as st
from staged.base.launcher import this_job
from staged.ir.types import COMPLEX_DTYPES, STORED_DTYPES, DType
from staged.ops.context import bind
from staged.ops.primitive import PRIMITIVES
from staged.ops.ranks import Collective, shard_op

JOB = this_job()
R = JOB.ranks
DTYPES = (*STORED_DTYPES, *COMPLEX_DTYPES)
SHAPES = ((), (5,), (2, 3), (0, 2), (1, 2, 2))
COLLECTIVES = [primitive for primitive in PRIMITIVES.values() if isinstance(primitive, Collective)]
ATTRS: dict[str, list[dict[str, Any]]] = {
    "all_reduce": [{"by": "sum"}, {"by": "max"}, {"by": "min"}],
    "broadcast": [{"root": 0}, {"root": R - 1}],
    "shift_ranks": [
        {"shift": shift, "wrap": wrap} for shift in (1, -1, 2, -R, R + 1, 0) for wrap in (True, False)
    ],
    **dict.fromkeys(("all_gather", "shard", "reduce_scatter", "all_to_all"), [{"ranks": R}]),
}
"""The attributes of the cases. A collective that is not here has none."""
HAS_ROWS = ("shard", "reduce_scatter", "all_to_all")


def numbers(shape: Sequence[int], dtype: DType, seed: int) -> Any:
    """Small numbers whose sums are exact in each dtype."""
    drawn = np.random.default_rng(seed).integers(0 if dtype.kind in "ub" else -9, 10, shape)
    if dtype is st.bool_:
        return drawn > 4
    if dtype.is_complex:
        return (drawn - 2j * drawn).astype(dtype.numpy)
    return drawn.astype(dtype.numpy)


def own(stacked: Any) -> Any:
    """The row of this rank, of an array with a row for each rank."""
    return bind(shard_op, [stacked], ranks=R)


def equal(found: Any, wanted: Any, what: object) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, f"{what}: {found.dtype} {found.shape}"
    np.testing.assert_array_equal(found, wanted, err_msg=str(what))


def accepts(primitive: Collective, attrs: dict[str, Any], dtype: DType) -> bool:
    if primitive.takes_halves or primitive.name == "vary":
        return True
    by = attrs.get("by", "sum")
    return not dtype.is_half and (dtype is not st.bool_ if by == "sum" else not dtype.is_complex)


def check(dtype: DType) -> None:
    first = DTYPES.index(dtype)
    shapes = SHAPES if dtype is st.f64 else [SHAPES[number % len(SHAPES)] for number in (first, first + 2)]
    cases = []
    for primitive in COLLECTIVES:
        for attrs in ATTRS.get(primitive.name, [{}]):
            for shape in shapes if accepts(primitive, attrs, dtype) else ():
                rows = (R, *shape) if primitive.name in HAS_ROWS else shape
                x = numbers(rows if primitive.takes_replicated else (R, *rows), dtype, len(cases))
                cases.append((primitive, attrs, x))

    @st.function
    def program(arrays):
        made = []
        for (primitive, attrs, _), x in zip(cases, arrays, strict=True):
            made.append(bind(primitive, [x if primitive.takes_replicated else own(x)], **attrs))
        return made

    found = program([st.asarray(x) for _, _, x in cases])
    for (primitive, attrs, x), y in zip(cases, found, strict=True):
        xs = [x] * R if primitive.takes_replicated else list(x)
        equal(y, primitive.over(xs, **attrs)[JOB.rank], (primitive.name, attrs, x.shape, dtype))


globals().update({f"case_{dtype.name}": partial(check, dtype) for dtype in DTYPES})


# ---- public functions ---------------------------------------------------------------------------


def compare(functions: dict[str, tuple[Callable[[Any], Any], Callable[[list[Any]], Any], Any]]) -> None:
    """Compare functions of local arrays: each with its meaning, the result of this rank from the arrays of all ranks."""

    @st.function
    def program(arrays):
        return [function(own(x)) for (function, _, _), x in zip(functions.values(), arrays, strict=True)]

    for (name, (_, meaning, x)), y in zip(
        functions.items(), program([st.asarray(x) for _, _, x in functions.values()]), strict=True
    ):
        wanted = np.asarray(meaning(list(x)))
        equal(y, wanted.astype(np.asarray(y).dtype) if wanted.dtype == np.float64 else wanted, name)


def at(dtype: DType, *shape: int) -> Any:
    return numbers((R, *shape), dtype, sum(shape))


def parts(x: Any, axis: int) -> list[Any]:
    return np.split(np.asarray(x), R, axis)


def case_functions_of_each_axis() -> None:
    me = JOB.rank
    found: dict[str, Any] = {}
    for dtype in (st.f64, st.f16, st.i32):
        x = at(dtype, 2 * R, 12, R)
        for axis in (0, 1, 2, -1, -2):
            found[f"all_gather {axis} {dtype}"] = (
                lambda x, axis=axis: st.all_gather(x, axis),
                lambda xs, axis=axis: np.concatenate(xs, axis),
                x,
            )
            found[f"reduce_scatter {axis} {dtype}"] = (
                lambda x, axis=axis: st.reduce_scatter(x, axis),
                lambda xs, axis=axis: parts(sum(xs[1:], start=xs[0]), axis)[me],
                x,
            )
            for joined in (0, 1, -1):
                found[f"all_to_all {axis} {joined} {dtype}"] = (
                    lambda x, axis=axis, joined=joined: st.all_to_all(x, axis, joined),
                    lambda xs, axis=axis, joined=joined: np.concatenate([parts(x, axis)[me] for x in xs], joined),
                    x,
                )
    compare(found)


def case_shard_of_each_axis() -> None:
    x = numbers((2 * R, 12, R), st.f32, 5)

    @st.function
    def program(x):
        return [st.shard(x, axis) for axis in (0, 1, 2, -1)]

    for axis, y in zip((0, 1, 2, -1), program(x), strict=True):
        equal(y, parts(x, axis)[JOB.rank], axis)


def case_reductions() -> None:
    def mean(xs: list[Any]) -> Any:
        return np.sum(np.stack(xs), 0) / R

    x = at(st.f64, 2, 3)
    found: dict[str, Any] = {
        "mean f64": (lambda x: st.all_reduce(x, "mean"), mean, x),
        "mean f32": (lambda x: st.all_reduce(x, "mean"), lambda xs: mean(xs).astype(np.float32), at(st.f32, 2, 3)),
        "mean f16": (
            lambda x: st.all_reduce(x, "mean"),
            lambda xs: mean([x.astype(np.float32) for x in xs]).astype(np.float16),
            at(st.f16, 2, 3),
        ),
        "mean i32": (lambda x: st.all_reduce(x, "mean"), mean, at(st.i32, 3)),
        "mean c128": (lambda x: st.all_reduce(x, "mean"), mean, at(st.c128, 3)),
        "sum bool": (lambda x: st.all_reduce(x), lambda xs: np.sum(xs, 0, dtype=np.int64), at(st.bool_, 7)),
        "max bool": (lambda x: st.all_reduce(x, "max"), lambda xs: np.any(xs, 0), at(st.bool_, 7)),
        "min bool": (lambda x: st.all_reduce(x, "min"), lambda xs: np.all(xs, 0), at(st.bool_, 7)),
        "sum f16": (lambda x: st.all_reduce(x), lambda xs: sum(xs[1:], start=xs[0]), at(st.f16, 4)),
        "sum bf16": (lambda x: st.all_reduce(x), lambda xs: sum(xs[1:], start=xs[0]), at(st.bf16, 4)),
        "max of NaN": (
            lambda x: st.all_reduce(x, "max"),
            lambda xs: np.max(xs, 0),
            np.where(np.arange(R * 3).reshape(R, 3) == 4, np.nan, 1.0),
        ),
    }
    compare(found)


def case_rank_and_ranks() -> None:
    rank, ranks, sum_of_ranks = st.function(lambda: (st.rank(), st.ranks(), st.all_reduce(st.rank())))()
    assert (int(rank), int(ranks), int(sum_of_ranks)) == (JOB.rank, R, R * (R - 1) // 2)


def case_halos() -> None:
    """Each width, axis and edge."""

    def halo(width: int, axis: int, edge: str) -> Callable[[list[Any]], Any]:
        def meaning(xs: list[Any]) -> Any:
            whole = np.concatenate(xs, axis)
            pads = [(0, 0)] * whole.ndim
            pads[axis] = (width, width)
            mode: Any = {"zero": "constant", "wrap": "wrap", "nearest": "edge"}[edge]
            size = xs[0].shape[axis]
            begin = JOB.rank * size
            return np.take(np.pad(whole, pads, mode), range(begin, begin + size + 2 * width), axis)

        return meaning

    found = {}
    for dtype in (st.f64, st.bf16, st.u8):
        x = at(dtype, 3, 4)
        for edge in ("zero", "wrap", "nearest"):
            for axis, width in ((0, 1), (0, 2), (0, 3), (1, 1), (1, 4)):
                found[f"{edge} {axis} {width} {dtype}"] = (
                    lambda x, width=width, axis=axis, edge=edge: st.exchange_halo(x, width, axis, edge),
                    halo(width, axis, edge),
                    x,
                )
        found[f"one element {dtype}"] = (
            lambda x: st.exchange_halo(x, 1, edge="nearest"),
            halo(1, 0, "nearest"),
            at(dtype, 1),
        )
    compare(found)


def case_a_large_array() -> None:
    """An array of more bytes than MPI sends at once without asking the receiver."""
    x = np.arange(R * 300_000, dtype=np.float64).reshape(R, -1)

    @st.function
    def program(x):
        mine = own(x)
        return st.all_reduce(mine), st.shift_ranks(mine), st.all_gather(mine), st.all_to_all(mine)

    total, shifted, gathered, exchanged = program(x)
    equal(total, x.sum(0), "all_reduce")
    equal(shifted, x[JOB.rank - 1], "shift_ranks")
    equal(gathered, x.reshape(-1), "all_gather")
    equal(exchanged, np.concatenate([parts(row, 0)[JOB.rank] for row in x]), "all_to_all")
