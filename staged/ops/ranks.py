"""Ranks: the processes that run one program together, and the collectives by which they exchange arrays.

Every array is *replicated* (equal on all ranks) or *local* (it may differ). The pass `check_ranks` determines
which, and inserts a `vary` before local values use a replicated one. The derivatives below follow from that: the
cotangent of a replicated value is replicated.

    vary        replicated to local       all_reduce of the cotangent
    all_reduce  local to replicated       vary
    all_gather  local to replicated       shard
    shard       replicated to local       all_gather

In eager mode there is one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from staged.base.launcher import this_job
from staged.errors import ArgumentError, DTypeError, RankError, ShapeError
from staged.ir.declaration import declare, prims
from staged.ir.nodes import COMM, Op
from staged.ir.types import STORED_DTYPES, TensorType, bool_, f32, f64, i32, i64, u8
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import equal
from staged.ops.context import bind
from staged.ops.primitive import PRIMITIVES, BadSample, Primitive, Sample, primitive, same_attrs
from staged.ops.promote import as_array, cast
from staged.ops.public import public
from staged.ops.source import zeros_like
from staged.source import here, position_of_function

Reduction = Literal["sum", "max", "min"]
Over = Callable[..., list[np.ndarray[Any, Any]]]
"""`over(list of each rank's array, **attrs)`: each rank's result. It is the meaning that tests compare with."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Collective(Primitive):
    """A primitive that exchanges arrays between ranks, or divides them among ranks."""

    over: Over
    is_replicated: bool
    """True if the result is equal on all ranks."""
    takes_replicated: bool = False
    """True if the operand is equal on all ranks."""


def _collective(**fields: Any) -> Collective:
    """Declare a collective. Without `effects` it communicates."""
    fields.setdefault("effects", COMM)
    fields.setdefault("takes_halves", "dtypes" not in fields)  # without `dtypes` it only moves elements
    if fields["effects"] == COMM:
        fields["reference"] = _of_one_rank(fields["name"], fields["reference"])
    dtypes = fields.pop("dtypes", STORED_DTYPES)
    fields["samples"] = tuple(Sample(operands, attrs, dtypes=dtypes) for operands, attrs in fields["samples"])
    fields["bad"] = tuple(fields.get("bad", ()))
    made = PRIMITIVES[fields["name"]] = declare(Collective(**{"kind": "collective", **fields}))
    return made


def _of_one_rank(name: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    """The meaning of a collective in eager mode, where it is an error on several ranks."""

    def checked(*operands: Any, **attrs: Any) -> Any:
        if this_job().ranks > 1:
            raise RankError(
                f"`st.{name}` on several ranks runs in staged functions only",
                where=here(),
                hint="call it in a function with `@st.function`",
            )
        return reference(*operands, **attrs)

    return checked


# ---- the number of ranks ------------------------------------------------------------------------

_chosen: ContextVar[int | None] = ContextVar("staged_ranks", default=None)


def static_ranks() -> int:
    """The number of ranks while staging, on which sizes may depend: `ranks=` of the function, else that of the job."""
    return _chosen.get() or this_job().ranks


@contextmanager
def using_ranks(count: int | None) -> Iterator[None]:
    """Stage for this number of ranks; None: the number of the enclosing function, else that of the job."""
    token = _chosen.set(count or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)


def checked_ranks(count: Any, function: Any) -> int:
    """The option `ranks=` of a function.

    Raises: ArgumentError if it is not a positive integer.
    """
    if type(count) is not int or count < 1:
        where = position_of_function(function)
        hint = "omit `ranks` for the ranks of the job"
        raise ArgumentError(f"`ranks` must be a positive integer, got {count!r}", where=where, hint=hint)
    return count


def check_job(count: int | None, function: Any) -> None:
    """Raise RankError if the job has another number of ranks than a function is for."""
    found = this_job().ranks
    if count not in (None, found):
        raise RankError(
            f"the function is for {count} ranks, and runs on {found}",
            where=position_of_function(function),
            hint=f"start it with `mpiexec -n {count}`, or export it",
        )


def check_static(count: int | None, function: Any) -> None:
    """Raise RankError if a function that is traced inline is for another number of ranks than its caller."""
    if count is not None and _chosen.get() not in (None, count):
        raise RankError(
            f"the function is for {count} ranks, and its caller is for {_chosen.get()}",
            where=position_of_function(function),
            hint="use the same `ranks=` for both",
        )


def _same(x: TensorType, **attrs: Any) -> TensorType:
    return x


_rank_op = primitive(
    name="rank",
    kind="collective",
    infer=lambda: TensorType(i64, weak=True),
    reference=lambda: np.asarray(this_job().rank, dtype=np.int64),
    samples=[Sample(())],
    doc="The number of this rank, from 0.",
    why_not_differentiable="it is an integer",
)
_ranks_op = primitive(
    name="ranks",
    kind="collective",
    infer=lambda: TensorType(i64, weak=True),
    reference=lambda: np.asarray(this_job().ranks, dtype=np.int64),
    samples=[Sample(())],
    doc="The number of ranks that run the program.",
    why_not_differentiable="it is an integer",
)


@public("rank")
def rank() -> Array:
    """Return the number of this rank, an i64 scalar from 0. It is a *local* value.

    Examples
    --------
    >>> st.rank()
    0
    """
    return bind(_rank_op, [])


@public("ranks")
def ranks() -> Array:
    """Return the number of ranks that run the program, an i64 scalar. It is 1 without an MPI launcher.

    Examples
    --------
    >>> st.ranks()
    1
    """
    return bind(_ranks_op, [])


# ---- declarations -------------------------------------------------------------------------------


def _all_reduced(arrays: Sequence[Any], by: Reduction) -> list[np.ndarray[Any, Any]]:
    total = arrays[0]
    for array in arrays[1:]:
        total = {"sum": np.add, "max": np.maximum, "min": np.minimum}[by](total, array)
    return [total for _ in arrays]


def _infer_reduce(*xs: TensorType, by: Reduction) -> TensorType | tuple[TensorType, ...]:
    for x in xs:
        if by == "sum" and x.dtype is bool_:
            raise DTypeError(f"the sum over ranks needs numbers, got {x}", hint="cast it: `st.astype(x, st.i64)`")
        if by != "sum" and x.dtype.is_complex:
            raise DTypeError(
                f"the {by} over ranks needs real numbers, got {x}", hint="reduce `st.abs(x)`, or the two parts"
            )
    return xs[0] if len(xs) == 1 else xs


def _reduce_vjp(ct: Array, y: Array, x: Array, by: Reduction) -> list[Array]:
    if by == "sum":
        return [vary(ct)]
    # Ranks that have the extreme share its cotangent.
    is_extreme = equal(x, vary(y))
    count = reduced(cast(is_extreme, ct.dtype), "sum")
    return [where(is_extreme, vary(ct / count), zeros_like(x))]


def _reduce_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array], by: Reduction) -> Array:
    (dx,), (x,) = tangents, operands
    if by == "sum":
        return reduced(dx, "sum")
    is_extreme = equal(x, vary(y))
    count = reduced(cast(is_extreme, dx.dtype), "sum")
    return reduced(where(is_extreme, dx, zeros_like(dx)), "sum") / count


def _vary_vjp(ct: Array, y: Array, x: Array) -> list[Array]:
    return [reduced(ct, "sum")]


vary_op: Collective = _collective(
    name="vary",
    kind="view",  # so that the reverse of a loop reads a weight again and does not keep it
    elements="viewed",
    by_parts=True,
    harmless=True,
    effects=(),
    infer=_same,
    reference=lambda x: x,
    over=list,
    is_replicated=False,
    takes_replicated=True,
    vjp=_vary_vjp,
    jvp=lambda tangents, y, operands: vary(tangents[0]),
    shift=same_attrs,
    samples=[(((2, 3),), {}), (((),), {}), (((0, 2),), {})],
    doc="The operand, of which each rank has its own copy from here on. Its cotangent is the sum over the ranks.",
)
all_reduce_op: Collective = _collective(
    name="all_reduce",
    by_parts=True,
    named_after_operand=True,
    infer=_infer_reduce,
    reference=lambda *xs, by: xs[0] if len(xs) == 1 else xs,
    over=_all_reduced,
    is_replicated=True,
    vjp=_reduce_vjp,
    jvp=_reduce_jvp,
    shift=same_attrs,
    samples=[(((2, 3),), {"by": "sum"}), (((),), {"by": "max"}), (((0, 2),), {"by": "min"})],
    dtypes=(f32, f64, i32, u8),
    bad=[BadSample((TensorType(bool_, (2,)),), DTypeError, "needs numbers", {"by": "sum"})],
    doc="The sum, the largest or the smallest of the elements at each place over all ranks. Several operands are one "
    "message.",
)


def _infer_stacked(x: TensorType, ranks: int) -> TensorType:
    return TensorType(x.dtype, (ranks, *x.shape))


def _infer_rows(x: TensorType, ranks: int) -> TensorType:
    if not x.shape or x.shape[0] != ranks:
        raise ShapeError(
            f"the first axis must have {ranks} elements, one for each rank, got {x}", hint="reshape the array"
        )
    return x


def _infer_row(x: TensorType, ranks: int) -> TensorType:
    return TensorType(x.dtype, _infer_rows(x, ranks).shape[1:])


def _infer_reduced_row(x: TensorType, ranks: int) -> TensorType:
    if x.dtype is bool_:
        raise DTypeError(f"the sum over ranks needs numbers, got {x}", hint="cast it: `st.astype(x, st.i64)`")
    return _infer_row(x, ranks)


def _row(x: np.ndarray[Any, Any], ranks: int) -> np.ndarray[Any, Any]:
    return np.asarray(x[this_job().rank])


_NO_ROWS = [BadSample((TensorType(f32, (3, 2)),), ShapeError, "must have 2 elements", {"ranks": 2})]

all_gather_op: Collective = _collective(
    name="all_gather",
    by_parts=True,
    infer=_infer_stacked,
    reference=lambda x, ranks: x[None],
    over=lambda xs, ranks: [np.stack(xs) for _ in xs],
    is_replicated=True,
    vjp=lambda ct, y, x, ranks: [bind(shard_op, [ct], ranks=ranks)],
    jvp=lambda tangents, y, operands, ranks: bind(all_gather_op, [tangents[0]], ranks=ranks),
    samples=[(((2, 3),), {"ranks": 1}), (((),), {"ranks": 1}), (((0, 2),), {"ranks": 1})],
    doc="The operands of all ranks, stacked along a new first axis.",
)
shard_op: Collective = _collective(
    name="shard",
    by_parts=True,
    effects=(),
    infer=_infer_row,
    reference=_row,
    over=lambda xs, ranks: [x[number] for number, x in enumerate(xs)],
    is_replicated=False,
    takes_replicated=True,
    vjp=lambda ct, y, x, ranks: [bind(all_gather_op, [ct], ranks=ranks)],
    jvp=lambda tangents, y, operands, ranks: bind(shard_op, [tangents[0]], ranks=ranks),
    samples=[(((1, 2, 3),), {"ranks": 1}), (((1,),), {"ranks": 1}), (((1, 0, 2),), {"ranks": 1})],
    bad=_NO_ROWS,
    doc="The row of this rank.",
)
reduce_scatter_op: Collective = _collective(
    name="reduce_scatter",
    by_parts=True,
    infer=_infer_reduced_row,
    reference=_row,
    over=lambda xs, ranks: list(_all_reduced(xs, "sum")[0]),
    is_replicated=False,
    vjp=lambda ct, y, x, ranks: [vary(bind(all_gather_op, [ct], ranks=ranks))],
    jvp=lambda tangents, y, operands, ranks: bind(reduce_scatter_op, [tangents[0]], ranks=ranks),
    samples=[(((1, 2, 3),), {"ranks": 1}), (((1,),), {"ranks": 1}), (((1, 0, 2),), {"ranks": 1})],
    dtypes=(f32, f64, i32),
    bad=[*_NO_ROWS, BadSample((TensorType(bool_, (2,)),), DTypeError, "needs numbers", {"ranks": 2})],
    doc="The sum over the ranks of the rows with the number of this rank.",
)
all_to_all_op: Collective = _collective(
    name="all_to_all",
    by_parts=True,
    infer=_infer_rows,
    reference=lambda x, ranks: x,
    over=lambda xs, ranks: [np.stack([x[number] for x in xs]) for number in range(len(xs))],
    is_replicated=False,
    vjp=lambda ct, y, x, ranks: [bind(all_to_all_op, [ct], ranks=ranks)],
    jvp=lambda tangents, y, operands, ranks: bind(all_to_all_op, [tangents[0]], ranks=ranks),
    samples=[(((1, 2, 3),), {"ranks": 1}), (((1,),), {"ranks": 1}), (((1, 0, 2),), {"ranks": 1})],
    bad=_NO_ROWS,
    doc="Row r of the result is the row with this rank's number of the operand of rank r.",
)


def _of_root(tangent: Any, root: Array) -> Array:
    return where(equal(rank(), root), tangent, zeros_like(tangent))


broadcast_op: Collective = _collective(
    name="broadcast",
    by_parts=True,
    infer=lambda x, root: x,
    reference=lambda x, root: x,
    over=lambda xs, root: [xs[root] for _ in xs],
    is_replicated=True,
    vjp=lambda ct, y, x, root: [_of_root(vary(ct), as_array(root))],
    jvp=lambda tangents, y, operands, root: bind(broadcast_op, [tangents[0]], root=root),
    shift=same_attrs,
    samples=[(((2, 3),), {"root": 0}), (((),), {"root": 0}), (((0, 2),), {"root": 0})],
    doc="The operand of rank `root`.",
)


def _shifted(xs: Sequence[np.ndarray[Any, Any]], shift: int, wrap: bool) -> list[np.ndarray[Any, Any]]:
    places = [number - shift for number in range(len(xs))]
    return [
        xs[place % len(xs)] if wrap or 0 <= place < len(xs) else np.zeros_like(x)
        for place, x in zip(places, xs, strict=True)
    ]


shift_op: Collective = _collective(
    name="shift_ranks",
    by_parts=True,
    infer=lambda x, shift, wrap: x,
    reference=lambda x, shift, wrap: _shifted([x], shift, wrap)[0],
    over=_shifted,
    is_replicated=False,
    vjp=lambda ct, y, x, shift, wrap: [bind(shift_op, [ct], shift=-shift, wrap=wrap)],
    jvp=lambda tangents, y, operands, shift, wrap: bind(shift_op, [tangents[0]], shift=shift, wrap=wrap),
    shift=same_attrs,
    samples=[
        (((2, 3),), {"shift": 1, "wrap": True}),
        (((),), {"shift": 1, "wrap": False}),
        (((0, 2),), {"shift": -1, "wrap": False}),
    ],
    doc="The operand of the rank `shift` before this one. Without `wrap` it is zero if that rank does not exist.",
)


# ---- uses in rules ------------------------------------------------------------------------------


def rows_of(part: Op) -> Op | None:
    """The op that cuts the operand of a `shard` along axis 0; None for another axis."""
    return part.operands[0].made_by(prims.RESHAPE)


def vary(x: Array) -> Array:
    """The array as a local value."""
    return bind(vary_op, [x])


def reduced(x: Array, by: str) -> Array:
    """The reduction over ranks."""
    return bind(all_reduce_op, [x], by=by)
