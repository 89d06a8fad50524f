"""Indices that differ between the elements: one gather or scatter on an array in which the elements lie one after
another.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.batching.lanes import each_lane
from staged.batching.values import emit, i64_scalar, repeat, spread_to, unchecked
from staged.ir.declaration import prims
from staged.ir.nodes import Op
from staged.ir.sizes import Extent
from staged.ir.types import i64
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import logical_and
from staged.ops.promote import cast
from staged.ops.source import iota


def check(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """The check of one index becomes a `take` from 0, 1, 2, ...: it makes the same check, and wraps negative ones.

    That of a window is one of its start, among all places that it fits at: from a negative start it may not reach the
    end.
    """
    extent, width = op.attrs["extent"], op.attrs.get("width", 0)
    (start,) = operands
    if not width:
        return [_checked(start, extent)]
    if not _is_static(extent, width):
        return each_lane(op, operands, flags, size)
    from_end = logical_and(start >= -extent, start < -width)
    return [_checked(where(from_end, start + extent, start), extent - width + 1, "start")]


def _moved(x: Array, source: int, target: int) -> Array:
    """x with one axis moved."""
    order = [axis for axis in range(x.ndim) if axis != source]
    order.insert(target, source)
    return emit(prims.PERMUTE, [x], {"axes": tuple(order)})[0] if order != sorted(order) else x


def _positions(indices: Array, extent: Extent) -> Array:
    """Checked indices (size, ...) into one axis of each element, as positions in an axis of all elements."""
    lane = iota(indices.shape, 0)
    return indices + lane * extent


def _pick(x: Array, x_batched: bool, positions: Array, axis: int) -> Array:
    """`take` along `axis` of each element, at checked positions (size, ...)."""
    size = positions.shape[0]
    if not x_batched:
        return _moved(unchecked(prims.TAKE, [x, positions], axis=axis), axis, 0)
    extent = x.shape[axis + 1]
    rows = _moved(x, axis + 1, 1)
    rest = rows.shape[2:]
    (flat,) = emit(prims.RESHAPE, [rows], {"shape": (size * extent, *rest)})
    found = unchecked(prims.TAKE, [flat, _positions(positions, extent)], axis=0)
    # (size, *indices, *rest) -> (size, *rest[:axis], *indices, *rest[axis:])
    count = positions.ndim - 1
    order = (0, *range(1 + count, 1 + count + axis), *range(1, 1 + count), *range(1 + count + axis, found.ndim))
    return emit(prims.PERMUTE, [found], {"axes": order})[0]


def _is_static(*extents: Extent) -> bool:
    return all(isinstance(extent, int) for extent in extents)


def _checked(indices: Array, extent: Extent, meaning: str = "index") -> Array:
    (found,) = emit(prims.TAKE, [iota((extent,)), cast(indices, i64)], {"axis": 0, "meaning": meaning})
    return found


def gather(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """`take`."""
    x, indices = operands
    axis = op.attrs["axis"]
    if not flags[1]:
        return emit(prims.TAKE, operands, {**op.attrs, "axis": axis + 1})
    if not flags[0]:
        return [_moved(emit(prims.TAKE, operands, dict(op.attrs))[0], axis, 0)]
    return [_pick(x, True, _checked(indices, x.shape[axis + 1], op.attrs.get("meaning", "index")), axis)]


def scatter(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """`scatter`, `scatter_add` and `scatter_reduce`."""
    x, indices, updates = operands
    axis = op.attrs["axis"]
    x = x if flags[0] else repeat(x, size)
    updates = updates if flags[2] else repeat(updates, size)
    if not flags[1]:
        return emit(op.declared, [x, indices, updates], {**op.attrs, "axis": axis + 1})
    extent = x.shape[axis + 1]
    rows = _moved(x, axis + 1, 1)
    (flat,) = emit(prims.RESHAPE, [rows], {"shape": (size * extent, *rows.shape[2:])})
    # (size, *rest[:axis], *indices, *rest[axis:]) -> (size, *indices, *rest)
    count = indices.ndim - 1
    order = (0, *range(1 + axis, 1 + axis + count), *range(1, 1 + axis), *range(1 + axis + count, updates.ndim))
    (moved,) = emit(prims.PERMUTE, [updates], {"axes": order})
    added = unchecked(
        op.declared, [flat, _positions(_checked(indices, extent), extent), moved], **{**op.attrs, "axis": 0}
    )
    (back,) = emit(prims.RESHAPE, [added], {"shape": rows.shape})
    return [_moved(back, 1, axis + 1)]


def read_window(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """`dynamic_slice`: axes whose start differs between the elements are gathered, the others sliced."""
    x, *starts = operands
    sizes = op.attrs["sizes"]
    own = [axis for axis, flag in enumerate(flags[1:]) if flag]
    if not own:
        return emit(prims.DYNAMIC_SLICE, [x, i64_scalar(0), *starts], {"sizes": (size, *sizes)})
    shape = x.shape[1:] if flags[0] else x.shape
    common = [i64_scalar(0) if axis in own else start for axis, start in enumerate(starts)]
    kept = tuple(shape[axis] if axis in own else extent for axis, extent in enumerate(sizes))
    batched = flags[0]
    if kept != shape:
        lead, front = ([i64_scalar(0)], (size,)) if batched else ([], ())
        (x,) = emit(prims.DYNAMIC_SLICE, [x, *lead, *common], {"sizes": (*front, *kept)})
    for axis in own:
        window = (size, sizes[axis])
        x = _pick(x, batched, spread_to(starts[axis], window) + iota(window, 1), axis)
        batched = True
    return [x]


def write_window(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """`dynamic_update`: in place for each element where the starts differ."""
    x, update, *starts = operands
    if any(flags[2:]):
        return each_lane(op, operands, flags, size)
    x = x if flags[0] else repeat(x, size)
    update = update if flags[1] else repeat(update, size)
    return emit(prims.DYNAMIC_UPDATE, [x, update, i64_scalar(0), *starts], {})
