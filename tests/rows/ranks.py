"""Rows of functions between MPI ranks, on one rank. `tests/ranks` has those on several.

The derivative of a local value is an error, so `st.broadcast` makes local results replicated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw
from tests.fuzz.plain.core import FUNCTIONS, Plain, plain
from tests.rows.table import Call, row


def _copy(x: Any, *options: Any, **more: Any) -> Plain:
    return Plain(plain(x).a.copy())


row("broadcast", lambda d: f"st.broadcast({d.new(d.shape(ranks=(0, 1, 2)))}{d.keyword('root', 0)})", _copy)


def draw(d: Draw) -> str:
    options = ["sum", "mean"] if d.dtype in ("c64", "c128") else ["sum", "mean", "max", "min"]
    return f"st.all_reduce({d.new(d.shape(ranks=(0, 1, 2)))}{d.keyword('by', *map(repr, options), percent=80)})"


@row("all_reduce", draw)
def all_reduce(x: Any, by: str = "sum") -> Any:
    array = plain(x)
    if by == "mean":
        return FUNCTIONS["mean"](Plain(array.a[None]), 0)
    return Plain(array.a.astype(np.int64) if by == "sum" and array.dtype == np.bool_ else array.a.copy(), array.weak)


def _along(name: str) -> Call:
    def draw(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2, 3))
        return f"st.broadcast(st.{name}({d.new(shape)}{d.axis(len(shape), several=False, none=False)}))"

    return draw


for _name in ("all_gather", "shard", "reduce_scatter"):
    row(_name, _along(_name), _copy)


def draw_all_to_all(d: Draw) -> str:
    shape = d.shape(ranks=(2, 3))
    axes = d.keyword("split_axis", 0, -1) + d.keyword("concat_axis", 1, 0)
    return f"st.broadcast(st.all_to_all({d.new(shape)}{axes}))"


row("all_to_all", draw_all_to_all, _copy)


def draw_shift(d: Draw) -> str:
    return f"st.broadcast(st.shift_ranks({d.new(d.shape())}{d.keyword('shift', 1, -2, 0)}{d.keyword('wrap', True, False)}))"


@row("shift_ranks", draw_shift)
def shift_ranks(x: Any, shift: int = 1, wrap: bool = True) -> Plain:
    array = plain(x).a
    return Plain(array.copy() if wrap or shift == 0 else np.zeros_like(array))


def draw_halo(d: Draw) -> str:
    shape = tuple(extent or 1 for extent in d.shape(ranks=(1, 2)))
    axis = d.keyword("axis", 0, -1)
    size = min(shape[0], shape[-1])
    edge = d.keyword("edge", "'zero'", "'wrap'", "'nearest'", percent=80)
    return f"st.broadcast(st.exchange_halo({d.new(shape)}{d.keyword('width', 1, size)}{axis}{edge}))"


@row("exchange_halo", draw_halo)
def exchange_halo(x: Any, width: int = 1, axis: int = 0, edge: str = "zero") -> Plain:
    array = plain(x).a
    pads = [(0, 0)] * array.ndim
    pads[axis] = (width, width)
    modes: Any = {"zero": "constant", "wrap": "wrap", "nearest": "edge"}
    return Plain(np.pad(array, pads, modes[edge]))


@row("rank", lambda d: f"({d.new(d.shape())} * st.all_reduce(st.rank()))")
def rank() -> Plain:
    return Plain(np.int64(0), weak=True)


@row("ranks", lambda d: f"({d.new(d.shape())} * st.ranks())")
def ranks() -> Plain:
    return Plain(np.int64(1), weak=True)
