"""Sums, means and extremes of rows of a table: torch's `embedding_bag`."""

from __future__ import annotations

import math
from typing import Any

from staged.errors import ArgumentError
from staged.ir.sizes import Extent
from staged.ir.types import i64
from staged.library.statistics.counting import searchsorted
from staged.library.statistics.scatter_reduce import segment_max, segment_sum
from staged.ops.array import Array
from staged.ops.checks import check_sizes, stop_unless
from staged.ops.choice import where
from staged.ops.elementwise import maximum
from staged.ops.index import integers, take
from staged.ops.promote import as_array, cast, check_argument, shape_error
from staged.ops.public import public
from staged.ops.reduction import max_, sum_
from staged.ops.shape import expand_dims
from staged.ops.source import arange, zeros

_MODES = ("sum", "mean", "max")


def _bags(x: Array, offsets: Any, include_last_offset: bool) -> tuple[Array, Extent]:
    """(the bag of each index of a vector, the number of bags); an index after the last offset is in none."""
    if offsets is None:
        raise shape_error(
            f"embedding_bag needs offsets for a vector of indices, got {x.type}",
            x,
            hint="or a matrix, a row for each bag",
        )
    starts = integers(offsets, "embedding_bag")
    if starts.ndim != 1 or starts.shape == (0,):
        raise shape_error(f"embedding_bag takes a vector of offsets, got {starts.type}", starts)
    count = starts.shape[0] - int(include_last_offset)
    stop_unless(starts[0] == 0, "embedding_bag: the first offset is 0")
    stop_unless(starts[1:] >= starts[:-1], "embedding_bag: offsets do not decrease")
    bag = searchsorted(starts, arange(x.shape[0], dtype=starts.dtype), "right") - 1
    return bag, count


@public("embedding_bag")
def embedding_bag(
    x: Any,
    weight: Any,
    offsets: Any = None,
    *,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """The sum, mean or maximum of the rows of a table at the indices of each bag. torch `nn.functional.embedding_bag`.

    Shapes: x (bags, n), or (n,) with offsets (bags,), the place where each bag begins; weight (rows, d); result
    (bags, d). With `include_last_offset` the last offset is the end of the last bag. `per_sample_weights`, of the shape
    of `x`, multiply the rows of a sum. Indices of `padding_idx` are in no bag, an empty bag is zeros. Equal largest
    elements of a bag share the gradient.
    Raises: a wrong index, a first offset but 0 and offsets that decrease stop the program with the line.
    """
    check_argument(mode in _MODES, f"embedding_bag: mode is {', '.join(map(repr, _MODES))}, got {mode!r}")
    check_argument(
        per_sample_weights is None or mode == "sum",
        f'embedding_bag: per_sample_weights go with mode="sum", not {mode!r}',
    )
    indices, table = integers(x, "embedding_bag"), as_array(weight)
    if table.ndim != 2 or indices.ndim not in (1, 2):
        raise shape_error("embedding_bag takes a vector or matrix of indices and a table of rows", indices, table)
    if indices.ndim == 2 and offsets is not None:
        raise shape_error("embedding_bag takes offsets with a vector of indices, not with a matrix", indices)
    rows = take(table, indices, 0)
    if per_sample_weights is not None:
        shares = as_array(per_sample_weights, table.dtype)
        if shares.shape != indices.shape:
            raise shape_error("embedding_bag needs a weight for each index", indices, shares)
        rows = rows * expand_dims(shares, -1)
    counts = indices == indices
    if padding_idx is not None:
        count = table.shape[0]
        for fits in (-count <= padding_idx, padding_idx < count):
            message = f"embedding_bag: padding_idx is one of {count} rows, got {padding_idx}"
            check_sizes(fits, message, error=ArgumentError)
        place = cast(indices, i64)
        counts = where(place < 0, place + count, place) != (padding_idx + count if padding_idx < 0 else padding_idx)
    if indices.ndim == 1:
        bag, number = _bags(indices, offsets, include_last_offset)
        place = where(counts, bag, -1)
        total = segment_max(rows, place, number) if mode == "max" else segment_sum(rows, place, number)
        members = segment_sum(cast(counts, i64), place, number)
    else:
        nothing = -math.inf if mode == "max" else 0.0
        rows = where(expand_dims(counts, -1), rows, nothing)
        members = sum_(cast(counts, i64), 1)
        if mode == "max":
            total = max_(rows, 1) if indices.shape[1] else zeros((indices.shape[0], table.shape[1]), table.dtype)
        else:
            total = sum_(rows, 1)
    members = expand_dims(members, -1)
    if mode == "mean":
        return total / cast(maximum(members, 1), table.dtype)
    return where(members > 0, total, 0.0) if mode == "max" else total
