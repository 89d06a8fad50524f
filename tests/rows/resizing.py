"""Rows of functions that read images at other sizes and places."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import FUNCTIONS, Plain, plain, wide
from tests.rows.convolutions import _many
from tests.rows.draws import image
from tests.rows.table import row


def _cubic(d: float) -> float:
    """Keys' kernel at a distance, with a = -0.75."""
    d, a = abs(d), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _weights(n: int, count: int, scale: Any, mode: str, corners: bool) -> Any:
    """(count, n): the share of each element in each new one."""
    found = np.zeros((count, n))
    for i in range(count):
        step = n / count if scale is None else 1.0 / scale
        if mode.startswith("nearest"):
            shift = np.float32(0.5) if mode == "nearest-exact" else np.float32(0.0)
            found[i, min(int((np.float32(i) + shift) * np.float32(step)), n - 1)] = 1.0
            continue
        if corners:
            place = i * (n - 1) / (count - 1) if count > 1 else 0.0
        else:
            place = (i + 0.5) * step - 0.5
        if mode == "bicubic":
            for at in range(math.floor(place) - 1, math.floor(place) + 3):
                found[i, min(max(at, 0), n - 1)] += _cubic(place - at)
        else:
            place = max(place, 0.0)
            for at in (math.floor(place), math.floor(place) + 1):
                found[i, min(at, n - 1)] += 1.0 - abs(place - at)
    return found


def draw(d: Draw) -> str:
    rank = d.pick(1, 2, 3)
    mode = d.pick("nearest", "nearest-exact", "area", {1: "linear", 2: "bilinear", 3: "trilinear"}[rank])
    if rank == 2 and d.likely(25):
        mode = "bicubic"
    d.keywords |= {"size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"}
    given = d.pick(f"size={(5, 2, 3)[:rank]}", "scale_factor=2", "scale_factor=1.5", "size=4")
    rest = d.pick("", ", align_corners=True") if "linear" in mode or mode == "bicubic" else ""
    rest += ", recompute_scale_factor=True" if "scale" in given and d.likely(30) else ""
    return f"st.interpolate({d.new(image(d, 1, rank), values='small')}, {given}, mode={mode!r}{rest})"


@row("interpolate", draw)
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
) -> Plain:
    array = plain(x)
    rank = array.ndim - 2
    factors = (None,) * rank if scale_factor is None else _many(scale_factor, rank)
    wanted = (
        _many(size, rank)
        if size is not None
        else [math.floor(n * f) for n, f in zip(array.shape[2:], factors, strict=True)]
    )
    if mode == "area":
        return FUNCTIONS[f"adaptive_avg_pool{rank}d"](x, tuple(wanted))
    if recompute_scale_factor:
        factors = (None,) * rank
    if mode.startswith("nearest"):
        found = array.a
        for axis in range(rank):
            chosen = np.argmax(_weights(found.shape[2 + axis], wanted[axis], factors[axis], mode, False), axis=1)
            found = np.take(found, chosen, 2 + axis)
        return Plain(found)
    data, dtype = wide(x)
    for axis in range(rank):
        share = _weights(data.shape[2 + axis], wanted[axis], factors[axis], mode, bool(align_corners))
        data = np.moveaxis(np.tensordot(share, data, (1, 2 + axis)), 0, 2 + axis)
    return Plain(data.astype(dtype))


def draw(d: Draw) -> str:
    n, rank = (0 if d.kind == "empty" else d.pick(1, 2)), d.pick(2, 3)
    if d.kind == "scalar":
        raise NotACell
    d.keywords |= {"theta", "size"}
    size = (n, 2, *(3, 1, 4)[:rank])
    return (
        f"st.affine_grid({d.new((n, rank, rank + 1), values='small')}, {size}{d.keyword('align_corners', True, False)})"
    )


@row("affine_grid", draw)
def affine_grid(theta: Any, size: Any, align_corners: Any = None) -> Plain:
    data, dtype = wide(theta)
    rank = len(size) - 2
    lines = []
    for n in size[2:]:
        if align_corners:
            lines.append(np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1))
        else:
            lines.append((2.0 * np.arange(n) + 1.0) / n - 1.0)
    axes = np.meshgrid(*lines, indexing="ij")[::-1]
    places = np.stack([*axes, np.ones(tuple(size[2:]))], axis=-1)
    assert places.shape[-1] == rank + 1
    return Plain(np.einsum("...j,nij->n...i", places, data).astype(dtype))


def draw(d: Draw) -> str:
    rank = d.pick(2, 2, 3)
    shape = image(d, 1, rank)
    x = d.new(shape, values="small")
    grid = d.new((shape[0], *(3, 4, 2)[:rank], rank), values="unit" if d.likely(50) else "nonzero")
    d.keywords.add("grid")
    rest = d.keyword("mode", "'bilinear'", "'nearest'") + d.keyword(
        "padding_mode", "'zeros'", "'border'", "'reflection'"
    )
    return f"st.grid_sample({x}, {grid}{rest}{d.keyword('align_corners', True, False)})"


@row("grid_sample", draw)
def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None
) -> Plain:
    data, dtype = wide(x)
    places, _ = wide(grid)
    rank = data.ndim - 2
    size = data.shape[2:]
    result = np.zeros((*data.shape[:2], *places.shape[1:-1]))
    for n, *out in np.ndindex(*places.shape[:-1]):
        at = []
        for axis in range(rank):
            unit, extent = places[(n, *out, rank - 1 - axis)], size[axis]
            place = (unit + 1.0) / 2.0 * (extent - 1) if align_corners else ((unit + 1.0) * extent - 1.0) / 2.0
            if padding_mode == "reflection":
                low, span = (0.0, extent - 1.0) if align_corners else (-0.5, float(extent))
                if span:
                    around = (place - low) % (2.0 * span)
                    place = low + (around if around < span else 2.0 * span - around)
                else:
                    place = 0.0
            if padding_mode != "zeros":
                place = min(max(place, 0.0), extent - 1.0)
            at.append(place)
        if mode == "nearest":
            corners = [[(int(np.round(place)), 1.0)] for place in at]
        else:
            corners = [[(math.floor(p), 1.0 - (p - math.floor(p))), (math.floor(p) + 1, p - math.floor(p))] for p in at]
        for corner in itertools.product(*corners):
            if all(0 <= place < extent for (place, _), extent in zip(corner, size, strict=True)):
                share = math.prod(part for _, part in corner)
                result[(n, slice(None), *out)] += share * data[(n, slice(None), *(place for place, _ in corner))]
    return Plain(result.astype(dtype))
