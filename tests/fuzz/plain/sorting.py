"""Readings of what sorts: by Python's own sort, of (key, place) pairs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, bare, plain, reads
from tests.fuzz.plain.sums import wide


def _lines(x: Any, axis: int) -> Iterator[tuple[Any, ...]]:
    """The place of each line along an axis: an index with a slice in it."""
    shape = list(x.shape)
    shape[axis] = 1
    for place in np.ndindex(*shape):
        at: list[Any] = list(place)
        at[axis] = slice(None)
        yield tuple(at)


def _order(row: Any, descending: bool) -> list[int]:
    def before(place: int) -> tuple[bool, Any]:
        is_nan = bool(row[place] != row[place])
        number = 0.0 if is_nan else row[place].item()
        return (not is_nan, -number) if descending else (is_nan, number)

    return sorted(range(len(row)), key=before)


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


@reads
def sort(x: Any, axis: Any = -1, *, dim: Any = None, descending: bool = False, stable: bool = True) -> Any:
    if dim is not None:
        return tuple(map(Plain, ordered(x, dim, descending)))
    return Plain(ordered(x, axis, descending)[0])


@reads
def argsort(x: Any, axis: Any = -1, *, descending: bool = False, stable: bool = True) -> Plain:
    return Plain(ordered(x, axis, descending)[1])


FUNCTIONS["msort"] = lambda x: sort(x, 0)


@reads
def topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, ...]:
    return tuple(Plain(np.take(part, range(k), axis)) for part in ordered(x, axis, largest))


@reads
def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Any, ...]:
    parts = (np.take(part, [k - 1], axis) for part in ordered(x, axis))
    return tuple(Plain(part if keepdims else np.squeeze(part, axis)) for part in parts)


def _spread(name: str) -> None:
    def reading(x: Any, q: Any = None, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Plain:
        array, dtype = wide(x)
        share = 0.5 if q is None else np.asarray(bare(q), np.float64) / (100.0 if "percent" in name else 1.0)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = getattr(np, "nanquantile" if name.startswith("nan") else "quantile")(
                array, share, axis, method=method, keepdims=keepdims
            )
        return Plain(np.asarray(found).astype(dtype))

    FUNCTIONS[name] = reading


for _name in ("quantile", "nanquantile", "percentile", "nanpercentile"):
    _spread(_name)
for _name in ("median", "nanmedian"):
    _spread(_name)
    FUNCTIONS[_name] = lambda x, axis=None, keepdims=False, of=FUNCTIONS[_name]: of(x, None, axis, keepdims)


@reads
def mode(x: Any, axis: int = -1, keepdims: bool = False) -> tuple[Any, ...]:
    array = plain(x).a
    shape = list(array.shape)
    shape[axis] = 1
    values, places = np.zeros(shape, array.dtype), np.zeros(shape, np.int64)
    for at in _lines(array, axis):
        row = array[at]
        order = _order(row, False)
        same = [[k for k in range(len(row)) if row[k] == row[j] or (row[k] != row[k] and row[j] != row[j])] for j in order]
        best = max(same, key=len)
        values[at], places[at] = row[best[-1]], best[-1]
    parts = (values, places) if keepdims else (np.squeeze(part, axis) for part in (values, places))
    return tuple(map(Plain, parts))


@reads
def lexsort(keys: Any, axis: int = -1) -> Plain:
    return Plain(np.asarray(np.lexsort([plain(key).a for key in keys], axis)).astype(np.int64))


def _unique(x: Any, size: int, fill_value: Any, equal_nan: bool) -> tuple[Plain, ...]:
    array = plain(x).a
    row = array.reshape(-1)
    groups: list[list[int]] = []
    for place in _order(row, False):
        first = groups[-1][0] if groups else place
        same = groups and (row[first] == row[place] or (equal_nan and row[first] != row[first] and row[place] != row[place]))
        if same:
            groups[-1].append(place)
        else:
            groups.append([place])
    values = np.full(size, (row[groups[0][0]] if groups else 0) if fill_value is None else fill_value).astype(row.dtype)
    index = np.full(size, groups[0][0] if groups else 0, np.int64)
    counts, inverse = np.zeros(size, np.int64), np.zeros(len(row), np.int64)
    for number, group in enumerate(groups):
        inverse[group] = number
        if number < size:
            values[number], index[number], counts[number] = row[group[0]], group[0], len(group)
    return Plain(values), Plain(index), Plain(inverse.reshape(array.shape)), Plain(counts)


@reads
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


FUNCTIONS["unique_values"] = lambda x, size, fill_value=None: _unique(x, size, fill_value, False)[0]
FUNCTIONS["unique_counts"] = lambda x, size, fill_value=None: _unique(x, size, fill_value, False)[::3]
FUNCTIONS["unique_inverse"] = lambda x, size, fill_value=None: _unique(x, size, fill_value, False)[::2]
FUNCTIONS["unique_all"] = lambda x, size, fill_value=None: _unique(x, size, fill_value, False)
