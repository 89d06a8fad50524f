"""Tiles for transposes: where one array is contiguous along the inner loop and another along the outer one.

for i: for j: y[i, j] = x[j, i]   ->   pieces of TILE x TILE, so that the cache lines of both arrays are used up
before they are gone.
"""

from __future__ import annotations

from dataclasses import replace

from staged.ir.loops import Accumulate, Axis, Load, LoadPair, Loop, Nest, Statement, Store, StorePair, Tile, walk

TILE = 64
"""Rows and columns of a piece: a few cache lines of both arrays, which the first-level cache holds."""
LARGE = 1 << 14
"""Elements from which on tiles pay: less stays in the first-level cache anyway."""


def tile_transposes(nest: Nest) -> Nest:
    """`nest` with tiles around every pair of loops that some array walks crosswise.

    Exact: the same iterations in another order. Requires innermost loops without reductions (reordering would change
    which tie an argmax picks) and without dependences between iterations.
    """
    body = tuple(_tiled(s) for s in nest.body)
    return replace(nest, body=body) if body != nest.body else nest


def _tiled(s: Statement) -> Statement:
    if not isinstance(s, Loop):
        return s
    inner = s.body[-1] if s.body else None
    if len(s.body) == 1 and isinstance(inner, Loop):
        if _is_crosswise(s, inner):
            return Tile(s.axis, TILE, (Tile(inner.axis, TILE, (s,)),))
        return Loop(s.axis, (_tiled(inner),), s.reductions)
    return s


def _is_crosswise(outer: Loop, inner: Loop) -> bool:
    if any(isinstance(s, Loop | Tile | Accumulate) for s in walk(inner.body)):
        return False
    if outer.axis.extent * inner.axis.extent < LARGE:
        return False
    along_outer, along_inner = _contiguous(inner, outer.axis), _contiguous(inner, inner.axis)
    return along_outer and along_inner


def _contiguous(loop: Loop, axis: Axis) -> bool:
    """Return whether some array has neighbours along `axis`, or every other element: a part of complex numbers."""
    accesses = (s for s in walk(loop.body) if isinstance(s, Load | LoadPair | Store | StorePair))
    return any(s.index.stride(axis) in (1, 2) for s in accesses)
