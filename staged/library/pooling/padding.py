"""Padding: by a constant, by the edge, by reflections, or around in a circle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import ArgumentError
from staged.ir.sizes import Extent, largest
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.comparisons import clip
from staged.ops.elementwise import minimum
from staged.ops.index import take
from staged.ops.joining import concat
from staged.ops.promote import as_array, broadcast, shape_error
from staged.ops.public import Option, public
from staged.ops.record import in_range
from staged.ops.shape import pad as filled_around
from staged.ops.shape import pad_widths, slice_axis
from staged.ops.source import arange
from staged.source import here

MODES = {
    "edge": "edge", "replicate": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap",
    "circular": "wrap",
}  # fmt: skip
"""NumPy's names of the modes that repeat elements, by these and by torch's."""


@public("pad")
def pad(x: Any, pad_width: Any = None, mode: str = "constant", *, value: Option = 0, pad: Any = None) -> Array:
    """`x` with more elements around it. NumPy `pad`; with `pad=` in place of `pad_width`, torch `nn.functional.pad`.

    `pad_width` is an int, a pair (before, after) for every axis, or one such pair per axis. `pad` lists before and
    after of the last axis, then of the one before it, and so on; there a negative width cuts elements off. `mode` is
    "constant" (filled with `value`), "edge" (torch: "replicate"), "reflect", "symmetric" or "wrap" (torch: "circular").
    Raises DTypeError for a `value` that the array's dtype cannot hold, ShapeError for an axis without elements to
    repeat.
    """
    array = as_array(x)
    if (pad_width is None) == (pad is None):
        raise ArgumentError(
            "pad takes `pad_width`, as in NumPy, or `pad`, as in torch",
            where=here(),
            hint="`st.pad(x, ((1, 1), (2, 2)))`, or `st.pad(x, pad=(2, 2, 1, 1))`",
        )
    if mode != "constant" and mode not in MODES:
        known = ", ".join(f'"{name}"' for name in ("constant", *MODES))
        raise ArgumentError(f"pad: mode is one of {known}, got {mode!r}", where=here())
    if pad is not None:
        array, pad_width = _from_torch(array, pad)
    if mode == "constant":
        return filled_around(array, pad_width, value=0 if value is None else value)
    for axis, (low, high) in enumerate(pad_widths(array, pad_width)):
        if low != 0 or high != 0:
            array = repeated_around(array, axis, low, high, MODES[mode])
    return array


def _from_torch(array: Array, widths: Any) -> tuple[Array, list[tuple[int, int]]]:
    """The array without what negative widths cut off, and a pair for each axis."""
    given = list(widths) if isinstance(widths, tuple | list) else []
    if len(given) % 2 or len(given) // 2 > array.ndim or not all(isinstance(one, int | np.integer) for one in given):
        raise shape_error(
            f"pad={widths!r} does not fit {array.type}",
            array,
            hint="it lists before and after of the last axis, then of the one before it",
        )
    pairs = [(0, 0)] * array.ndim
    for place in range(len(given) // 2):
        axis, (low, high) = array.ndim - 1 - place, given[2 * place : 2 * place + 2]
        if low < 0 or high < 0:
            begin, end = max(-low, 0), array.shape[axis] - max(-high, 0)
            check_sizes(end >= begin, f"pad={widths!r} cuts more off than axis {axis} of {array.type} has", array)
            array = slice_axis(array, axis, begin, end)
        pairs[axis] = (max(int(low), 0), max(int(high), 0))
    return array, pairs


def repeated_around(x: Array, axis: int, low: Extent, high: Extent, mode: str) -> Array:
    """`x` with elements of its own before and after it along an axis: slices forwards, backwards, or of one element."""
    extent = x.shape[axis]
    check_sizes(extent > 0, f'pad: axis {axis} of {x.type} has no element to repeat; "constant" can pad it', x)
    if not (isinstance(extent, int) and isinstance(low, int) and isinstance(high, int)):
        with in_range():
            return take(x, _places(arange(low + extent + high) - low, extent, mode), axis)
    places = np.pad(np.arange(extent), (low, high), mode=mode)  # type: ignore[call-overload]
    return concat([_run(x, axis, run) for run in _runs(places.tolist())], axis)


def _places(at: Array, extent: Extent, mode: str) -> Array:
    """The places of elements in an array that goes on in both directions."""
    if mode == "edge":
        return clip(at, 0, extent - 1)
    if mode == "wrap":
        return at % as_array(extent)
    period = as_array(2 * extent if mode == "symmetric" else largest(2 * extent - 2, 1))
    return minimum(at % period, (period - 1 if mode == "symmetric" else period) - at % period)


def _runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, step, count) of slices that follow one another."""
    runs: list[tuple[int, int, int]] = []
    for place in places:
        if runs:
            first, step, count = runs[-1]
            gap = place - (first + step * (count - 1))
            if count == 1 and gap in (-1, 0, 1):
                runs[-1] = (first, gap, 2)
                continue
            if count > 1 and gap == step:
                runs[-1] = (first, step, count + 1)
                continue
        runs.append((place, 0, 1))
    return runs


def _run(x: Array, axis: int, run: tuple[int, int, int]) -> Array:
    first, step, count = run
    if step == 0:
        one = slice_axis(x, axis, first, first + 1)
        return broadcast(one, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    return slice_axis(x, axis, first, first + step * count, step)
