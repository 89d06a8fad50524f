"""Rows of functions that read and write elements by their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import Plain, adopted, bare, plain
from tests.rows.draws import integer, noted, number
from tests.rows.table import Call, row


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    x = d.new(shape)
    count = d.pick((3,), (2, 2), (), (d.pick(1, 17),))
    if not shape[axis]:
        return f"st.take({x}, {d.new((0,), 'i64', 'below 1')}, axis={axis})"
    limit = min(shape[axis], 200)
    return f"st.take({x}, {d.new(count, integer(d), f'index {limit}')}, axis={axis})"


@row("take", draw)
def take(x: Any, indices: Any, axis: Any = None) -> Plain:
    return Plain(np.take(plain(x).a, plain(indices).a.astype(np.int64), axis))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    x = d.new(shape)
    count = (*shape[:axis], d.pick(1, 2, 5) if shape[axis] else 0, *shape[axis + 1 :])
    limit = max(1, min(shape[axis], 200))
    return f"st.take_along_axis({x}, {d.new(count, integer(d), f'index {limit}')}, axis={axis})"


@row("take_along_axis", draw)
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Plain:
    array, at = plain(x).a, plain(indices).a.astype(np.int64)
    extents = list(
        np.broadcast_shapes(
            *(
                tuple(1 if n == axis % array.ndim else e for n, e in enumerate(shape))
                for shape in (array.shape, at.shape)
            )
        )
    )
    extents[axis % array.ndim] = array.shape[axis]
    wanted = list(extents)
    wanted[axis % array.ndim] = at.shape[axis]
    return Plain(np.take_along_axis(np.broadcast_to(array, extents), np.broadcast_to(at, wanted), axis))


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    x = d.new(shape, values="small")
    if not shape[axis]:
        raise NotACell
    count = d.pick(1, 3, 17, shape[axis])
    limit = min(shape[axis], 200)
    at = d.new((count,), integer(d), f"index {limit}")
    if count == shape[axis] and d.likely(50):
        return f"st.scatter_add({x}, {at}, {x}, axis={axis})"
    return (
        f"st.scatter_add({x}, {at}, {d.new((*shape[:axis], count, *shape[axis + 1 :]), values='small')}, axis={axis})"
    )


@row("scatter_add", draw)
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Plain:
    array = plain(x)
    result = np.moveaxis(array.a, axis, 0).copy()
    at = plain(indices).a.astype(np.int64)
    values = plain(updates).a.astype(array.dtype)
    if values.ndim:
        # The axes of the indices stand where the axis stood.
        values = np.moveaxis(values, range(axis % array.ndim, axis % array.ndim + at.ndim), range(at.ndim))
    np.add.at(result, at, values)
    return Plain(np.moveaxis(result, 0, axis).copy())


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    size = d.pick(0, 1, shape[axis], shape[axis] // 2)
    size = min(size, shape[axis])
    start = d.new((), "i64", f"below {shape[axis] - size + 1}")
    d.main = ""
    return f"st.dynamic_slice({d.new(shape)}, {start}, {size}, axis={axis})"


@row("dynamic_slice", draw)
def dynamic_slice(x: Any, start: Any, size: Any, axis: int = 0) -> Plain:
    first = int(bare(start))
    array = np.moveaxis(plain(x).a, axis, 0)
    first = first + len(array) if first < 0 else first
    return Plain(np.moveaxis(array[first : first + int(bare(size))], 0, axis).copy())


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    size = min(d.pick(0, 1, shape[axis], shape[axis] // 2), shape[axis])
    start = d.new((), "i64", f"below {shape[axis] - size + 1}")
    d.main = ""
    part = (*shape[:axis], size, *shape[axis + 1 :])
    return f"st.dynamic_update_slice({d.new(shape)}, {d.new(part)}, {start}, axis={axis})"


@row("dynamic_update_slice", draw)
def dynamic_update_slice(x: Any, update: Any, start: Any, axis: int = 0) -> Plain:
    first, array = int(bare(start)), plain(x)
    result = np.moveaxis(array.a, axis, 0).copy()
    first = first + len(result) if first < 0 else first
    part = np.moveaxis(plain(update).a, axis, 0)
    result[first : first + len(part)] = part.astype(array.dtype)
    return Plain(np.moveaxis(result, 0, axis).copy())


def _written(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    x = d.new(shape, values="small" if d.name == "add_item" else "any")
    if not shape[0]:
        return f"st.{d.name}({x}, slice(0, 0), {number(d)})"
    value = number(d) if d.likely(40) or d.dtype == "bool" else d.new(shape[1:], values="small")
    limit = min(shape[0], 200)
    key = d.pick(
        str(d.chance.randrange(-shape[0], shape[0])),
        "slice(1, None)",
        "slice(None, None, 2)",
        d.new((), integer(d), f"index {limit}"),
    )
    if d.likely(20):
        return f"st.{d.name}({x}, {d.new((4,), 'i64', f'index {limit}')}, {number(d)})"
    if d.name == "set_item" and d.likely(15):
        return f"st.{d.name}({x}, {d.new(shape, 'bool')}, {number(d)})"
    return f"st.{d.name}({x}, {key}, {value})"


@row("set_item", _written)
def set_item(x: Any, key: Any, value: Any) -> Plain:
    array = plain(x)
    result = array.a.copy()
    result[bare(key)] = adopted(plain(value), array.dtype)
    return Plain(result)


@row("add_item", _written)
def add_item(x: Any, key: Any, value: Any) -> Plain:
    array = plain(x)
    result = array.a.copy()
    np.add.at(result, bare(key), adopted(plain(value), array.dtype))
    return Plain(result)


def places(d: Draw, shape: tuple[int, ...], below: int) -> str:
    return d.new(shape, dtype="i64", values=f"below {below}")


row(
    "index_select",
    noted(lambda d: f"st.index_select({d.new((4, d.extent()))}, 0, {places(d, (3,), 4)})", "axis"),
    lambda x, axis, indices: Plain(np.take(plain(x).a, plain(indices).a, axis)),
)


@row(
    "index_add",
    noted(
        lambda d: (
            f"st.index_add({d.new((4, n := d.extent()), values='small')}, 0, {places(d, (3,), 4)}, "
            f"{d.new((3, n), values='small')}{d.keyword('alpha', 1, 2)})"
        ),
        "axis",
    ),
)
def index_add(x: Any, axis: int, indices: Any, source: Any, alpha: Any = 1) -> Plain:
    total, parts = plain(x).a.copy(), (plain(source) * alpha).a
    np.add.at(total, (slice(None),) * axis + (plain(indices).a,), parts.astype(total.dtype))
    return Plain(total)


def _with_rows(x: Any, axis: int, indices: Any, rows: Any) -> Plain:
    values = np.moveaxis(plain(x).a.copy(), axis, 0)
    for place, line in zip(
        plain(indices).a, np.moveaxis(np.broadcast_to(rows, plain(x).a[:3].shape), axis, 0), strict=True
    ):
        values[place] = line
    return Plain(np.moveaxis(values, 0, axis))


row(
    "index_copy",
    noted(lambda d: f"st.index_copy({d.new((4, n := d.extent()))}, 0, {places(d, (3,), 4)}, {d.new((3, n))})", "axis"),
    lambda x, axis, indices, source: _with_rows(x, axis, indices, plain(source).a),
)
row(
    "index_fill",
    noted(lambda d: f"st.index_fill({d.new((4, d.extent()))}, 0, {places(d, (3,), 4)}, {d.pick(0, 1)})", "axis"),
    lambda x, axis, indices, value: _with_rows(x, axis, indices, np.asarray(value).astype(plain(x).a.dtype)),
)


def _up_to(found: Any, size: int, fill_value: Any) -> Any:
    rest = np.full(size - len(found[:size]), fill_value, found.dtype)
    return np.concatenate([found[:size], rest])


def draw(d: Draw) -> str:
    x = d.new(shape := d.shape(ranks=(1, 2)))
    d.keywords |= {"size", "mask"}
    return f"st.masked_select({x}, {places(d, shape, 2)} == 1, size={d.pick(1, 3, 40)}{d.keyword('fill_value', 1, 0)})"


@row("masked_select", draw)
def masked_select(x: Any, mask: Any, *, size: int, fill_value: Any = 0) -> Plain:
    return Plain(_up_to(plain(x).a[plain(mask).a], size, fill_value))


def draw(d: Draw) -> str:
    d.keywords.add("size")
    return f"st.nonzero({d.new(d.shape(ranks=(1, 2)))}, size={d.pick(1, 3, 40)}{d.keyword('fill_value', -1, 0)})"


@row("nonzero", draw)
def nonzero(x: Any, *, size: int, fill_value: int = 0) -> tuple[Plain, ...]:
    return tuple(Plain(_up_to(places, size, fill_value)) for places in np.nonzero(plain(x).a))


def draw(d: Draw) -> str:
    d.keywords.add("size")
    return f"st.flatnonzero({d.new(d.shape(ranks=(1, 2)))}, size={d.pick(1, 3, 40)}{d.keyword('fill_value', -1, 0)})"


@row("flatnonzero", draw)
def flatnonzero(x: Any, size: int, fill_value: int = 0) -> Plain:
    found = np.flatnonzero(plain(x).a)
    return Plain(np.concatenate([found, np.full(size, fill_value)])[:size].astype(np.int64))


# ---- scatters with reductions ---------------------------------------------------------------------


def _numbers(d: Draw) -> None:
    if d.dtype == "bool":
        raise NotACell


_COMBINED = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _combined(x: Any, where: Any, u: Any, reduce: str, own: bool) -> Plain:
    """x with each update taken in at its place, one after another; sums of floats in their own dtype, means of integers in i64."""
    values, held = plain(x).a.copy(), plain(u).a
    dtype = values.dtype
    if reduce == "mean" and dtype.kind in "iu" and dtype != np.uint64:
        values = values.astype(np.int64)
    count = np.zeros(values.shape, np.int64)
    np.add.at(count, where, 1)
    if not own:
        extreme = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        low, high = (-np.inf, np.inf) if extreme is None else (extreme.min, extreme.max)
        values[count > 0] = {"prod": 1, "amax": low, "amin": high}.get(reduce, 0)
    with np.errstate(all="ignore"):
        _COMBINED[reduce].at(values, where, held)
        if reduce == "mean":
            count = np.maximum(count + own, 1).astype(values.dtype)
            values = values / count if values.dtype.kind in "fc" else values // count
    return Plain(values.astype(dtype))


def draw(d: Draw) -> str:
    _numbers(d)
    d.keywords |= {"axis", "src", "reduce"}
    n, width = d.pick(1, 3), d.extent()
    x, u = d.new((4, width), values="unit"), d.new((n, width), values="unit")
    own = d.keyword("include_self", False)
    reduce = d.pick("sum", "prod", "amax", "amin", "mean")
    return f"st.scatter_reduce({x}, 0, {places(d, (n, width), 4)}, {u}, reduce={reduce!r}{own})"


@row("scatter_reduce", draw)
def scatter_reduce(x: Any, axis: int, indices: Any, src: Any, reduce: str, include_self: bool = True) -> Plain:
    places = plain(indices).a
    return _combined(x, (places, np.broadcast_to(np.arange(places.shape[1]), places.shape)), src, reduce, include_self)


def draw(d: Draw) -> str:
    _numbers(d)
    d.keywords |= {"axis", "source", "reduce"}
    width = d.extent()
    x, u = d.new((width, 4), values="unit"), d.new((width, 3), values="unit")
    own = d.keyword("include_self", False)
    return f"st.index_reduce({x}, 1, {places(d, (3,), 4)}, {u}, reduce={d.pick('sum', 'prod', 'amax', 'amin', 'mean')!r}{own})"


@row("index_reduce", draw)
def index_reduce(x: Any, axis: int, indices: Any, source: Any, reduce: str, include_self: bool = True) -> Plain:
    return _combined(x, (slice(None), plain(indices).a), source, reduce, include_self)


def _segment(name: str) -> Call:
    def text(d: Draw) -> str:
        _numbers(d)
        d.keywords |= {"data", "segment_ids", "num_segments"}
        n = d.extent()
        data = d.new(d.pick((n,), (n, 3)), values="unit")
        return f"st.segment_{name}({data}, {places(d, (n,), 6)} - 1, num_segments={d.pick(1, 4, 5)})"

    return text


def _segments(name: str) -> Callable[..., Plain]:
    def segments(data: Any, segment_ids: Any, num_segments: int) -> Plain:
        rows, ids = plain(data).a, plain(segment_ids).a
        is_inside = (ids >= 0) & (ids < num_segments)
        start = Plain(np.zeros((num_segments, *rows.shape[1:]), rows.dtype))
        reduce = {"max": "amax", "min": "amin"}.get(name, name)
        if name in ("prod", "max", "min"):
            ends = np.iinfo(rows.dtype) if rows.dtype.kind in "iu" else None
            low, high = (-np.inf, np.inf) if ends is None else (ends.min, ends.max)
            start = Plain(np.full_like(start.a, {"prod": 1, "max": low, "min": high}[name]))
        return _combined(start, (ids[is_inside],), Plain(rows[is_inside]), reduce, name != "mean")

    return segments


for _name in ("sum", "prod", "max", "min", "mean"):
    row(f"segment_{_name}", _segment(_name), _segments(_name))


def draw(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords |= {"weight", "offsets"}
    table, padding = d.new((5, d.extent()), values="small"), d.keyword("padding_idx", 1, -2)
    mode = d.pick("sum", "mean", "max")
    n = d.pick(1, 4)
    if d.likely(50):
        ends = d.keyword("include_last_offset", True)
        return f"st.embedding_bag({places(d, (n,), 5)}, {table}, [0, 0, {n}], mode={mode!r}{ends}{padding})"
    shares = d.keyword("per_sample_weights", d.new((2, n), values="small")) if mode == "sum" else ""
    d.keywords.add("mode")
    return f"st.embedding_bag({places(d, (2, n), 5)}, {table}, mode={mode!r}{shares}{padding})"


@row("embedding_bag", draw)
def embedding_bag(
    x: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Plain:
    places, table = plain(x).a, plain(weight).a
    shares = np.ones(places.shape, table.dtype) if per_sample_weights is None else plain(per_sample_weights).a
    if offsets is None:
        bags = [(line, share) for line, share in zip(places, shares, strict=True)]
    else:
        ends = [*offsets, *([] if include_last_offset else [len(places)])]
        bags = [(places[a:b], shares[a:b]) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    found = np.zeros((len(bags), table.shape[1]), table.dtype)
    for total, (line, share) in zip(found, bags, strict=True):
        kept = line != (-1 if padding_idx is None else padding_idx % len(table))
        rows = table[line[kept]] * share[kept, None]
        if len(rows):
            total[:] = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows, 0)
    return Plain(found)
