"""Rows of functions that sort and search. The readings use Python's own sort, of (key, place) pairs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import FUNCTIONS, Plain, Precision, bare, plain, together, wide, widest_of
from tests.rows.draws import noted
from tests.rows.indexing import places
from tests.rows.table import row


def _line(d: Draw) -> tuple[str, tuple[int, ...]]:
    shape = d.shape(ranks=(1, 2, 3))
    return d.new(shape, values="unit" if d.smooth else "any"), shape


def _lines(x: Any, axis: int) -> Iterator[tuple[Any, ...]]:
    """The place of each line along an axis: an index with a slice in it."""
    shape = list(x.shape)
    shape[axis] = 1
    for place in np.ndindex(*shape):
        at: list[Any] = list(place)
        at[axis] = slice(None)
        yield tuple(at)


def _order(line: Any, descending: bool) -> list[int]:
    def before(place: int) -> tuple[bool, Any]:
        is_nan = bool(line[place] != line[place])
        number = 0.0 if is_nan else line[place].item()
        return (not is_nan, -number) if descending else (is_nan, number)

    return sorted(range(len(line)), key=before)


def ordered(x: Any, axis: int | None, descending: bool = False) -> tuple[Any, Any]:
    array = plain(x).a
    if axis is None:
        array, axis = array.reshape(-1), 0
    values, places = array.copy(), np.zeros(array.shape, np.int64)
    for at in _lines(array, axis):
        order = _order(array[at], descending)
        places[at] = order
        values[at] = array[at][order]
    return values, places


def draw(d: Draw) -> str:
    x, shape = _line(d)
    rest = d.keyword("descending", True, False) + d.keyword("stable", True, percent=20)
    if d.likely(30):
        d.keywords.add("axis")
        return f"st.sort({x}, dim={d.pick(*range(-len(shape), len(shape)))}{rest})[0]"
    return f"st.sort({x}{d.axis(len(shape), several=False)}{rest})"


@row("sort", draw)
def sort(x: Any, axis: Any = -1, *, dim: Any = None, descending: bool = False, stable: bool = True) -> Any:
    if dim is not None:
        return tuple(map(Plain, ordered(x, dim, descending)))
    return Plain(ordered(x, axis, descending)[0])


def draw(d: Draw) -> str:
    x, shape = _line(d)
    rest = d.keyword("descending", True, False) + d.keyword("stable", True, percent=20)
    return f"st.argsort({x}{d.axis(len(shape), several=False)}{rest})"


@row("argsort", draw)
def argsort(x: Any, axis: Any = -1, *, descending: bool = False, stable: bool = True) -> Plain:
    return Plain(ordered(x, axis, descending)[1])


def draw(d: Draw) -> str:
    return f"st.msort({_line(d)[0]})"


row("msort", draw, lambda x: sort(x, 0))


def draw(d: Draw) -> str:
    x, shape = _line(d)
    d.keywords |= {"k", "axis"}
    axis = d.pick(*range(-len(shape), len(shape)))
    rest = d.keyword("largest", True, False) + d.keyword("sorted", True, percent=20)
    return f"st.topk({x}, {d.pick(0, 1, shape[axis], shape[axis] // 2) if shape[axis] else 0}, axis={axis}{rest})"


@row("topk", draw)
def topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, ...]:
    return tuple(Plain(np.take(part, range(k), axis)) for part in ordered(x, axis, largest))


def draw(d: Draw) -> str:
    x, shape = _line(d)
    d.keywords |= {"k", "axis"}
    axis = d.pick(*range(-len(shape), len(shape)))
    if not shape[axis]:
        return f"st.msort({x})"
    return f"st.kthvalue({x}, {d.pick(1, shape[axis])}, axis={axis}{d.keyword('keepdims', True)})"


@row("kthvalue", draw)
def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Any, ...]:
    parts = (np.take(part, [k - 1], axis) for part in ordered(x, axis))
    return tuple(Plain(part if keepdims else np.squeeze(part, axis)) for part in parts)


def _spread(d: Draw) -> str:
    if d.dtype == "bool":
        raise NotACell
    shape = d.shape(ranks=(0, 1, 2, 3))
    if 0 in shape:
        raise NotACell
    x = d.new(shape, values="unit" if d.smooth else "small")
    share = ""
    if not d.name.endswith("median"):
        d.keywords.add("q")
        share = f", {d.pick('0.3', '0.5', '1.0', '[0.0, 0.25, 0.9]')}"
        if "percent" in d.name:
            share = f", {d.pick('30.0', '50', '[0.0, 25.0, 90.0]')}"
    rest = "" if d.name.endswith("median") else d.keyword("method", "'linear'", "'lower'", "'hazen'", "'nearest'")
    return f"st.{d.name}({x}{share}{d.axis(len(shape))}{d.keyword('keepdims', True, percent=30)}{rest})"


def _equal_neighbours(x: Any, axis: Any) -> Any:
    """Return whether each element equals the next larger one, along an axis or in the whole array."""
    one = axis if isinstance(axis, int) else None
    return np.diff(np.sort(x, one), axis=-1 if one is None else one) == 0


def _shared(name: str) -> Callable[..., Any]:
    def reading(x: Any, q: Any = None, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Plain:
        array, dtype = wide(x)
        if Precision.equalities is not None:  # equal elements change places next to a point
            Precision.equalities.append(_equal_neighbours(array, axis))
        share = 0.5 if q is None else np.asarray(bare(q), np.float64) / (100.0 if "percent" in name else 1.0)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = getattr(np, "nanquantile" if name.startswith("nan") else "quantile")(
                array, share, axis, method=method, keepdims=keepdims
            )
        return Plain(np.asarray(found).astype(dtype))

    return reading


for _name in ("quantile", "nanquantile", "percentile", "nanpercentile"):
    row(_name, _spread, _shared(_name))


def _median(name: str) -> Callable[..., Plain]:
    return lambda x, axis=None, keepdims=False: _shared(name)(x, None, axis, keepdims)


row("median", _spread, _median("median"))
row("nanmedian", _spread, _median("nanmedian"))


def draw(d: Draw) -> str:
    x, shape = _line(d)
    if 0 in shape:
        raise NotACell
    return f"st.mode({x}{d.axis(len(shape), several=False, none=False)}{d.keyword('keepdims', True)})"


@row("mode", draw)
def mode(x: Any, axis: int = -1, keepdims: bool = False) -> tuple[Any, ...]:
    array = plain(x).a
    shape = list(array.shape)
    shape[axis] = 1
    values, places = np.zeros(shape, array.dtype), np.zeros(shape, np.int64)
    for at in _lines(array, axis):
        line = array[at]
        order = _order(line, False)
        same = [
            [k for k in range(len(line)) if line[k] == line[j] or (line[k] != line[k] and line[j] != line[j])]
            for j in order
        ]
        best = max(same, key=len)
        values[at], places[at] = line[best[-1]], best[-1]
    parts = (values, places) if keepdims else (np.squeeze(part, axis) for part in (values, places))
    return tuple(map(Plain, parts))


def draw(d: Draw) -> str:
    d.keywords |= {"keys"}
    shape = d.shape(ranks=(1, 2))
    keys = ", ".join(d.new(shape, values="small") for _ in range(d.pick(1, 2, 3)))
    return f"st.lexsort(({keys},){d.axis(len(shape), several=False, none=False)})"


@row("lexsort", draw)
def lexsort(keys: Any, axis: int = -1) -> Plain:
    return Plain(np.asarray(np.lexsort([plain(key).a for key in keys], axis)).astype(np.int64))


def _distinct(d: Draw) -> str:
    d.keywords.add("size")
    x = d.new(shape := d.shape(ranks=(1, 2)), values="unit" if d.smooth else "small")
    fill = ", fill_value=0" if 0 in shape else d.keyword("fill_value", 0)
    if fill:
        d.keywords.add("fill_value")
    rest = ""
    if d.name == "unique":
        more = ("return_index", "return_inverse", "return_counts")
        rest = "".join(d.keyword(word, True, percent=30) for word in more) + d.keyword("equal_nan", True, False)
    return f"st.{d.name}({x}{rest}, size={d.pick(1, 3, 12)}{fill})"


def _unique(x: Any, size: int, fill_value: Any, equal_nan: bool) -> tuple[Plain, ...]:
    array = plain(x).a
    line = array.reshape(-1)
    groups: list[list[int]] = []
    for place in _order(line, False):
        first = groups[-1][0] if groups else place
        same = groups and (
            line[first] == line[place] or (equal_nan and line[first] != line[first] and line[place] != line[place])
        )
        if same:
            groups[-1].append(place)
        else:
            groups.append([place])
    values = np.full(size, (line[groups[0][0]] if groups else 0) if fill_value is None else fill_value).astype(
        line.dtype
    )
    index = np.full(size, groups[0][0] if groups else 0, np.int64)
    counts, inverse = np.zeros(size, np.int64), np.zeros(len(line), np.int64)
    for number, group in enumerate(groups):
        inverse[group] = number
        if number < size:
            values[number], index[number], counts[number] = line[group[0]], group[0], len(group)
    return Plain(values), Plain(index), Plain(inverse.reshape(array.shape)), Plain(counts)


@row("unique", _distinct)
def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    size: int,
    fill_value: Any = None,
    equal_nan: bool = True,
) -> Any:
    found = _unique(x, size, fill_value, equal_nan)
    asked = (True, return_index, return_inverse, return_counts)
    kept = tuple(part for part, is_asked in zip(found, asked, strict=True) if is_asked)
    return kept if len(kept) > 1 else kept[0]


row("unique_values", _distinct, lambda x, size, fill_value=None: _unique(x, size, fill_value, False)[0])
row(
    "unique_counts",
    _distinct,
    lambda x, size, fill_value=None: _unique(x, size, fill_value, False)[::3],
)
row(
    "unique_inverse",
    _distinct,
    lambda x, size, fill_value=None: _unique(x, size, fill_value, False)[::2],
)
row("unique_all", _distinct, lambda x, size, fill_value=None: _unique(x, size, fill_value, False))

# ---- places and counts ----------------------------------------------------------------------------


def _keys(d: Draw) -> str:
    if d.dtype == "bool":
        raise NotACell
    return d.pick("[-1, 0, 2]", "[0]", "[-3, -1, 0, 0, 1, 2, 3]")


def draw(d: Draw) -> str:
    keys, x = _keys(d), d.new(d.shape(ranks=(0, 1, 2)), values="small")
    how = d.keyword("right", True, False) or d.keyword("side", "'left'", "'right'", percent=90)
    how += d.keyword("sorter", f"st.argsort({keys})", percent=30)
    return f"st.searchsorted({keys}, {x}{how})"


@row("searchsorted", noted(draw, "v"))
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, right: bool = False) -> Plain:
    (keys, values), _ = together(a, v)
    order = None if sorter is None else plain(sorter).a
    return Plain(np.asarray(np.searchsorted(keys, values, "right" if right else side, order)).astype(np.int64))


row(
    "bucketize",
    noted(
        lambda d: (
            f"st.bucketize({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {_keys(d)}{d.keyword('right', True, False)})"
        ),
        "boundaries",
    ),
    lambda x, boundaries, right=False: FUNCTIONS["searchsorted"](boundaries, x, right=right),
)
row(
    "digitize",
    noted(
        lambda d: (
            f"st.digitize({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {_keys(d)}{d.keyword('right', True, False)})"
        ),
        "bins",
    ),
    lambda x, bins, right=False: FUNCTIONS["searchsorted"](bins, x, right=not right),
)


@row(
    "isin",
    noted(
        lambda d: (
            f"st.isin({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {_keys(d)}{d.keyword('invert', True, False)})"
        ),
        "test",
    ),
)
def isin(x: Any, test: Any, invert: bool = False) -> Plain:
    (left, right), _ = together(x, test)
    return Plain(np.asarray(np.isin(left, right, invert=invert)))


def draw(d: Draw) -> str:
    d.keywords.add("length")
    x, weights = places(d, (n := d.extent(),), 6), d.keyword("weights", d.new((n,), values="small"))
    return f"st.bincount({x}{weights}, length={d.pick(1, 4, 9)})"


@row("bincount", draw)
def bincount(x: Any, weights: Any = None, *, length: int) -> Plain:
    values = plain(x).a
    parts = np.ones(len(values), np.int64) if weights is None else plain(weights).a
    total = np.zeros(length, np.int64 if parts.dtype.kind == "b" else parts.dtype)
    for value, part in zip(values, parts, strict=True):
        if 0 <= value < length:
            total[value] += part
    return Plain(total)


def draw(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords.add("range")
    x = d.new((n := d.extent(),), values="small")
    how = d.keyword("density", True, False, percent=40)
    # The weights of a density add up to no number near 0, by which all are divided.
    weights = d.keyword("weights", d.new((n,), values="positive" if "True" in how else "small"))
    return f"st.histogram({x}{d.keyword('bins', 1, 4)}, range=(-8.0, 8.0){weights}{how})[0]"


@row("histogram", draw)
def histogram(
    x: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool = False
) -> tuple[Plain, Plain]:
    values = plain(x).a
    heavy = None if weights is None else plain(weights).a
    with np.errstate(invalid="ignore"):
        counts, edges = np.histogram(values, bins, range, density, heavy)
    dtype = values.dtype if density else np.int64 if heavy is None else heavy.dtype
    return Plain(counts.astype(dtype)), Plain(edges.astype(values.dtype))


def draw(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords |= {"xp", "fp"}
    x, values = d.new(d.shape(ranks=(0, 1, 2)), values="small"), d.new((4,), values="small")
    if d.likely(30):
        return f"st.interp({x}, [0.125, 2.25, 4.5, 1.0], {values}{d.keyword('period', 5.0, percent=100)})"
    ends = d.keyword("left", -1.0) + d.keyword("right", 7.0)
    return f"st.interp({x}, [-2.125, -0.375, 0.25, 4.5], {values}{ends})"


@row("interp", draw)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Plain:
    values = plain(x).a
    return Plain(np.interp(widest_of(values), xp, plain(fp).a, left, right, period).astype(values.dtype))
