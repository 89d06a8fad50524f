"""Ops that move, repeat or rename elements: broadcast, reshape, permute, slice, pad, concat, and compositions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from staged.errors import ShapeError
from staged.ir.size_functions import slice_count
from staged.ir.size_questions import differing
from staged.ir.sizes import Extent, Size, bounds_of, exact_quotient
from staged.ir.types import STORED_DTYPES, Shape, TensorType, bool_, c128, f32, f64, i64, shape_text
from staged.ops.array import Array, static_hint
from staged.ops.assumptions import assume_not_one
from staged.ops.checks import check_sizes
from staged.ops.context import bind
from staged.ops.dimension import as_extent
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    as_array,
    axes_of,
    axis_of,
    broadcast,
    broadcast_shapes,
    cast,
    check_fits,
    check_known,
    is_number,
    shape_error,
)
from staged.ops.public import internal, public
from staged.ops.reduction import sum_

_DTYPES = STORED_DTYPES


# ---- broadcast ------------------------------------------------------------------------------------


def _infer_broadcast(x: TensorType, shape: Shape, axes: tuple[int, ...]) -> TensorType:
    if not axes and not x.shape:
        return TensorType(x.dtype, shape)
    is_sorted = list(axes) == sorted(set(axes)) and (not axes or 0 <= axes[0] <= axes[-1] < len(shape))
    if len(axes) != x.ndim or not is_sorted:
        raise ShapeError(f"broadcast_to {shape_text(shape)} along {axes} does not fit {x}")
    if tuple([shape[axis] for axis in axes]) != x.shape:
        raise ShapeError(
            f"{x} does not broadcast to {shape_text(shape)}", hint="extents must be equal; reshape extents of 1 away"
        )
    return TensorType(x.dtype, shape)


def _broadcast(x: np.ndarray[Any, Any], shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    wide = [1] * len(shape)
    for position, axis in enumerate(axes):
        wide[axis] = x.shape[position]
    return np.broadcast_to(x.reshape(wide), shape)


_broadcast_op: Primitive = primitive(
    name="broadcast_to",
    by_parts=True,
    kind="broadcast",
    elements="moved",
    harmless=True,
    named_after_operand=True,
    infer=_infer_broadcast,
    reference=_broadcast,
    vjp=lambda ct, y, x, shape, axes: [
        cast(sum_(ct, tuple(axis for axis in range(len(shape)) if axis not in axes)), x.dtype, x.type.weak)
    ],
    jvp=lambda tangents, y, operands, shape, axes: bind(_broadcast_op, [tangents[0]], shape=shape, axes=axes),
    shift=lambda attrs, size: {
        "shape": (size, *attrs["shape"]),
        "axes": (0, *(axis + 1 for axis in attrs["axes"])),
    },
    samples=[
        Sample(((3,),), {"shape": (2, 3), "axes": (1,)}, dtypes=_DTYPES),
        Sample(((2,),), {"shape": (2, 3), "axes": (0,)}),
        Sample(((),), {"shape": (2, 3), "axes": ()}),
        Sample(((2, 3),), {"shape": (2, 4, 3), "axes": (0, 2)}),
        Sample(((3,),), {"shape": (0, 3), "axes": (1,)}),
    ],
    bad=[
        BadSample((TensorType(f32, (3,)),), ShapeError, "does not broadcast", {"shape": (2, 4), "axes": (1,)}),
        BadSample((TensorType(f32, (3,)),), ShapeError, "does not fit", {"shape": (2, 3), "axes": ()}),
    ],
    doc="Repeats elements: axis i of the operand becomes axis `axes[i]` of `shape`, the other axes repeat it.",
)


@public("broadcast_to", method=True)
def broadcast_to(x: Any, shape: Sequence[Extent] | Extent) -> Array:
    """`x` repeated to `shape`. Array API `broadcast_to`. Raises ShapeError where an extent is neither equal nor 1."""
    array = as_array(x)
    extents: Any = shape if as_extent(shape) is None else (shape,)
    wanted = tuple(extent if (known := as_extent(extent)) is None else known for extent in extents)
    for extent in wanted:
        check_known("broadcast_to", "shape", extent)
        if isinstance(extent, Size):
            check_sizes(extent >= 0, f"broadcast_to: a size is not negative, got {shape_text(wanted)}", array)
    found = broadcast_shapes(array.shape, wanted)
    if found != wanted:
        differing.clear()  # a size is not taken for 1
        raise shape_error(f"{array.type} does not broadcast to {shape_text(wanted)}", array)
    return broadcast(array, wanted)


@public("broadcast_arrays")
def broadcast_arrays(*arrays: Any) -> list[Array]:
    """The arrays repeated to their common shape. Array API `broadcast_arrays`."""
    handles = [as_array(array) for array in arrays]
    shape = broadcast_shapes(*(array.shape for array in handles))
    return [broadcast(array, shape) for array in handles]


# ---- reshape --------------------------------------------------------------------------------------


def _infer_reshape(x: TensorType, shape: Shape) -> TensorType:
    if math.prod(x.shape) != math.prod(shape):
        raise ShapeError(
            f"cannot reshape {shape_text(x.shape)} to {shape_text(shape)}: the number of elements differs",
            hint="one extent may be -1: it becomes what is left",
        )
    return TensorType(x.dtype, shape, x.weak and not shape)


_reshape_op: Primitive = primitive(
    name="reshape",
    by_parts=True,
    kind="view",
    elements="viewed",
    harmless=True,
    named_after_operand=True,
    infer=_infer_reshape,
    reference=lambda x, shape: x.reshape(shape),
    vjp=lambda ct, y, x, shape: [bind(_reshape_op, [ct], shape=x.shape)],
    jvp=lambda tangents, y, operands, shape: bind(_reshape_op, [tangents[0]], shape=shape),
    shift=lambda attrs, size: {"shape": (size, *attrs["shape"])},
    samples=[
        Sample(((2, 3),), {"shape": (3, 2)}, dtypes=_DTYPES),
        Sample(((2, 3),), {"shape": (6,)}),
        Sample(((1,),), {"shape": ()}),
        Sample(((0, 4),), {"shape": (2, 0)}),
    ],
    bad=[BadSample((TensorType(f32, (2, 3)),), ShapeError, "number of elements", {"shape": (4,)})],
    doc="The same elements in row-major order, in another shape.",
)


def _shape_argument(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """`(2, 3)` from `f(x, 2, 3)` as from `f(x, (2, 3))`."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


@public("reshape", method=True)
def reshape(x: Any, shape: Any = (), *extents: Any, copy: Any = None) -> Array:
    """The elements of `x`, in row-major order, in another shape; one extent may be -1. Array API `reshape`.

    The extents are a tuple, or stand one after the other. Arrays are values, so that `copy` changes nothing.
    Raises ShapeError where the number of elements differs.
    """
    array = as_array(x)
    wanted = list(_shape_argument((shape, *extents)))
    for position, given in enumerate(wanted):
        extent = as_extent(given)
        if extent is None:
            raise shape_error(
                f"reshape needs extents known while staging, got {given!r}",
                array,
                hint=static_hint(given),
            )
        wanted[position] = extent
    if wanted.count(-1) > 1:
        raise shape_error("reshape: only one extent may be -1", array)
    if -1 in wanted:
        rest = tuple(extent for extent in wanted if extent != -1)
        wanted[wanted.index(-1)] = _missing(array, rest, tuple(wanted))
    result = tuple(wanted)
    return array if result == array.shape else bind(_reshape_op, [array], shape=result)


def _missing(x: Array, rest: Shape, wanted: Shape) -> Extent:
    """The extent that -1 means."""
    extent = exact_quotient(math.prod(x.shape), math.prod(rest))
    if extent is None:
        raise shape_error(f"cannot reshape {shape_text(x.shape)} to {shape_text(wanted)}: what is left is no extent", x)
    return extent


@public("flatten", method=True, numpy=("ravel",), torch=("ravel",))
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Array:
    """The axes from `start_dim` to `end_dim` joined into one. torch `flatten`."""
    array = as_array(x)
    if not array.ndim:
        return reshape(array, (1,))
    first, last = axis_of(start_dim, array.ndim, "flatten"), axis_of(end_dim, array.ndim, "flatten")
    if first > last:
        raise shape_error(f"flatten: axis {start_dim} comes after axis {end_dim}", array)
    before, after = array.shape[:first], array.shape[last + 1 :]
    if 0 in array.shape:
        return reshape(array, (*before, math.prod(array.shape[first : last + 1]), *after))
    return reshape(array, (*before, -1, *after))


@public("squeeze", method=True)
def squeeze(x: Any, axis: Any = None) -> Array:
    """`x` without axes of extent 1: those named, or all of them. Array API `squeeze`."""
    array = as_array(x)
    if axis is None:
        axes = tuple(position for position, extent in enumerate(array.shape) if extent == 1)
        assume_not_one(array.shape)
    else:
        axes = axes_of(axis, array.ndim, "squeeze")
        for one in axes:
            if array.shape[one] != 1:
                raise shape_error(f"squeeze: axis {one} has extent {array.shape[one]}, not 1", array)
    return reshape(array, tuple(extent for position, extent in enumerate(array.shape) if position not in axes))


@public("expand_dims", method=True)
def expand_dims(x: Any, axis: int = 0) -> Array:
    """`x` with a new axis of extent 1 at position `axis`. Array API `expand_dims`."""
    array = as_array(x)
    position = axis_of(axis, array.ndim + 1, "expand_dims")
    return reshape(array, (*array.shape[:position], 1, *array.shape[position:]))


@public("unsqueeze", method=True)
def unsqueeze(x: Any, dim: int) -> Array:
    """`x` with a new axis of extent 1 at position `dim`. torch `unsqueeze`."""
    return expand_dims(x, dim)


@internal("item", method=True)
def item(x: Any) -> Array:
    """Return the only element of `x`, as a weak scalar; a ShapeError if `x` has more elements."""
    array = as_array(x)
    if any(extent != 1 for extent in array.shape):
        raise shape_error(f"item() needs one element, got {array.type}", array)
    return cast(reshape(array, ()), {"f": f64, "c": c128, "b": bool_}.get(array.dtype.kind, i64), weak=True)


# ---- permute --------------------------------------------------------------------------------------


def _infer_permute(x: TensorType, axes: tuple[int, ...]) -> TensorType:
    shape = x.shape
    if sorted(axes) != list(range(len(shape))):
        raise ShapeError(f"permute by {axes} does not fit {x}", hint="name every axis once")
    return TensorType(x.dtype, tuple([shape[axis] for axis in axes]), x.weak)


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argsort(axes))


_permute_op: Primitive = primitive(
    name="permute",
    by_parts=True,
    kind="view",
    elements="moved",
    harmless=True,
    named_after_operand=True,
    infer=_infer_permute,
    reference=lambda x, axes: np.transpose(x, axes),
    vjp=lambda ct, y, x, axes: [bind(_permute_op, [ct], axes=_inverse(axes))],
    jvp=lambda tangents, y, operands, axes: bind(_permute_op, [tangents[0]], axes=axes),
    shift=lambda attrs, size: {"axes": (0, *(axis + 1 for axis in attrs["axes"]))},
    samples=[
        Sample(((2, 3),), {"axes": (1, 0)}, dtypes=_DTYPES),
        Sample(((2, 3, 4),), {"axes": (2, 0, 1)}),
        Sample(((),), {"axes": ()}),
        Sample(((0, 3),), {"axes": (1, 0)}),
    ],
    bad=[BadSample((TensorType(f32, (2, 3)),), ShapeError, "does not fit", {"axes": (0, 0)})],
    doc="Axis i of the result is axis `axes[i]` of the operand.",
)


@public("permute_dims", method=True)
def permute_dims(x: Any, axes: Any = (), *others: Any) -> Array:
    """`x` with its axes in another order: axis i of the result is axis `axes[i]` of `x`. Array API `permute_dims`.

    The axes are a tuple, or stand one after the other.
    """
    array = as_array(x)
    named = _shape_argument((axes, *others))
    if len(named) != array.ndim:
        raise shape_error(f"permute_dims by {named} does not fit {array.type}", array, hint="name every axis once")
    order = tuple(axis_of(axis, array.ndim, "permute_dims") for axis in named)
    return array if order == tuple(range(array.ndim)) else bind(_permute_op, [array], axes=order)


@public("permute", method=True)
def permute(x: Any, *axes: Any) -> Array:
    """`permute_dims` by torch's name."""
    return permute_dims(x, *axes)


@public("transpose", method=True)
def transpose(x: Any, *axes: Any) -> Array:
    """`x` with its axes reversed, or in the order of a tuple, as in NumPy; two numbers swap these axes, as in torch."""
    array = as_array(x)
    if len(axes) == 2:
        return swapaxes(array, *axes)
    named = _shape_argument(axes)
    if not named or named == (None,):
        named = tuple(reversed(range(array.ndim)))
    return permute_dims(array, named)


@public("matrix_transpose")
def matrix_transpose(x: Any) -> Array:
    """`x` with its last two axes swapped. Array API `matrix_transpose`."""
    array = as_array(x)
    if array.ndim < 2:
        raise shape_error(f"matrix_transpose needs a matrix, got {array.type}", array, hint="`x[:, None]` is a column")
    return swapaxes(array, -1, -2)


@public("swapaxes", method=True, torch=("swapdims",))
def swapaxes(x: Any, axis1: int, axis2: int) -> Array:
    """`x` with two axes swapped. NumPy `swapaxes`."""
    array = as_array(x)
    first, second = axis_of(axis1, array.ndim, "swapaxes"), axis_of(axis2, array.ndim, "swapaxes")
    order = list(range(array.ndim))
    order[first], order[second] = second, first
    return permute_dims(array, tuple(order))


@public("moveaxis", method=True, torch=("movedim",))
def moveaxis(x: Any, source: Any, destination: Any) -> Array:
    """`x` with axes moved to new positions, the others in their order. Array API `moveaxis`."""
    array = as_array(x)
    sources = source if isinstance(source, tuple | list) else (source,)
    targets = destination if isinstance(destination, tuple | list) else (destination,)
    if len(sources) != len(targets):
        raise shape_error(f"moveaxis: {len(sources)} axes to {len(targets)} places", array)
    fro = [axis_of(axis, array.ndim, "moveaxis") for axis in sources]
    to = [axis_of(axis, array.ndim, "moveaxis") for axis in targets]
    if len(set(fro)) < len(fro) or len(set(to)) < len(to):
        raise shape_error(f"moveaxis: an axis is named twice in {source} to {destination}", array)
    order = [axis for axis in range(array.ndim) if axis not in fro]
    for place, axis in sorted(zip(to, fro, strict=True)):
        order.insert(place, axis)
    return permute_dims(array, tuple(order))


# ---- slice and pad --------------------------------------------------------------------------------


def _infer_slice(x: TensorType, start: Any, stop: Any, step: Any) -> TensorType:
    if not len(start) == len(stop) == len(step) == x.ndim:
        raise ShapeError(f"slice needs start, stop and step per axis of {x}")
    shape: list[Extent] = []
    for axis, extent in enumerate(x.shape):
        if step[axis] == 0:
            raise ShapeError("a slice step cannot be 0")
        count = slice_count(start[axis], stop[axis], step[axis])
        ends = (start[axis], start[axis] + (count - 1) * step[axis])
        if isinstance(extent, int) and isinstance(count, int) and count and not all(0 <= end < extent for end in ends):
            raise ShapeError(
                f"slice {start[axis]}:{stop[axis]}:{step[axis]} of axis {axis} reaches outside {x}",
                hint=f"axis {axis} has {extent} elements",
            )
        shape.append(count)
    return TensorType(x.dtype, tuple(shape))


def _slice_reference(x: np.ndarray[Any, Any], start: Any, stop: Any, step: Any) -> np.ndarray[Any, Any]:
    # A stop of -1 with a negative step means "down to the first", which Python writes None.
    return x[tuple(slice(a, None if b < 0 else b, c) for a, b, c in zip(start, stop, step, strict=True))]


def embed(ct: Array, shape: Shape, start: Sequence[Extent], step: Sequence[int], value: Any = 0) -> Array:
    """An array of `shape` holding `ct` where a slice with `start` and `step` would read, `value` elsewhere."""
    for axis, (first, stride) in enumerate(zip(start, step, strict=True)):
        extent, count = shape[axis], ct.shape[axis]
        if count == 0:
            ct = pad_axis(ct, axis, 0, extent, value)
            continue
        if stride < 0:
            ct = flip(ct, axis)
            first, stride = first + (count - 1) * stride, -stride
        if stride > 1 and count != 1:
            # (n,) -> (n, 1) -> (n, stride) -> (n * stride,): the gaps get `value`, the last one is cut off again.
            before, after = ct.shape[:axis], ct.shape[axis + 1 :]
            gaps = pad_axis(reshape(ct, (*before, count, 1, *after)), axis + 1, 0, stride - 1, value)
            ct = reshape(gaps, (*before, count * stride, *after))
            ct = slice_axis(ct, axis, 0, (count - 1) * stride + 1)
        ct = pad_axis(ct, axis, first, extent - first - ct.shape[axis], value)
    return ct


def slice_axis(x: Array, axis: int, start: Extent, stop: Extent, step: int = 1) -> Array:
    """x[..., start:stop:step, ...] along `axis`; bounds are in range."""
    starts: list[Extent] = [0] * x.ndim
    stops, steps = list(x.shape), [1] * x.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    if step == 1 and start == 0 and stop == x.shape[axis]:
        return x
    return bind(_slice_op, [x], start=tuple(starts), stop=tuple(stops), step=tuple(steps))


def pad_axis(x: Array, axis: int, low: Extent, high: Extent, value: Any) -> Array:
    if low == high == 0:
        return x
    lows: list[Extent] = [0] * x.ndim
    highs: list[Extent] = [0] * x.ndim
    lows[axis], highs[axis] = low, high
    return bind(_pad_op, [x], low=tuple(lows), high=tuple(highs), value=value)


_slice_op: Primitive = primitive(
    name="slice",
    by_parts=True,
    kind="view",
    elements="viewed",
    harmless=True,
    named_after_operand=True,
    infer=_infer_slice,
    reference=_slice_reference,
    vjp=lambda ct, y, x, start, stop, step: [embed(ct, x.shape, start, step)],
    jvp=lambda tangents, y, operands, **attrs: bind(_slice_op, [tangents[0]], **attrs),
    shift=lambda attrs, size: {
        "start": (0, *attrs["start"]),
        "stop": (size, *attrs["stop"]),
        "step": (1, *attrs["step"]),
    },
    samples=[
        Sample(((4, 5),), {"start": (1, 0), "stop": (3, 5), "step": (1, 1)}, dtypes=_DTYPES),
        Sample(((5, 6),), {"start": (4, 1), "stop": (-1, 6), "step": (-1, 2)}),
        Sample(((7,),), {"start": (5,), "stop": (0,), "step": (-2,)}),
        Sample(((4,),), {"start": (2,), "stop": (2,), "step": (1,)}),
    ],
    bad=[
        BadSample((TensorType(f32, (4,)),), ShapeError, "outside", {"start": (2,), "stop": (6,), "step": (1,)}),
        BadSample((TensorType(f32, (4,)),), ShapeError, "per axis", {"start": (), "stop": (), "step": ()}),
        BadSample(
            (TensorType(f32, (4,)),), ShapeError, "step cannot be 0", {"start": (0,), "stop": (4,), "step": (0,)}
        ),
    ],
    doc="Elements start, start + step, ... up to, without, stop, on every axis; steps may be negative (then stop may "
    "be -1).",
)


@public("flip", method=True)
def flip(x: Any, axis: Any = None) -> Array:
    """`x` with the order along `axis` (None: every axis) reversed. Array API `flip`."""
    array = as_array(x)
    for one in axes_of(axis, array.ndim, "flip"):
        extent = array.shape[one]
        if extent != 0 and extent != 1:
            array = slice_axis(array, one, extent - 1, -1, -1)
    return array


def _infer_pad(x: TensorType, low: tuple[int, ...], high: tuple[int, ...], value: Any) -> TensorType:
    if not len(low) == len(high) == x.ndim:
        raise ShapeError(f"pad needs a width before and after each axis of {x}, got {low} and {high}")
    if any(bounds_of(width)[1] < 0 for width in (*low, *high)):
        raise ShapeError(
            f"pad widths are not negative, got {low} and {high}", hint="slice the array to make it smaller"
        )
    shape: list[Extent] = []
    for extent, before, after in zip(x.shape, low, high, strict=True):
        shape.append(extent + before + after)
    return TensorType(x.dtype, tuple(shape))


def _unpad(ct: Array, x: Array, low: Sequence[int]) -> Array:
    for axis, before in enumerate(low):
        ct = slice_axis(ct, axis, before, before + x.shape[axis])
    return ct


_pad_op: Primitive = primitive(
    name="pad",
    kind="view",
    elements="moved",
    harmless=True,
    infer=_infer_pad,
    reference=lambda x, low, high, value: np.pad(x, tuple(zip(low, high, strict=True)), constant_values=value),
    vjp=lambda ct, y, x, low, high, value: [_unpad(ct, x, low)],
    jvp=lambda tangents, y, operands, low, high, value: bind(_pad_op, [tangents[0]], low=low, high=high, value=0),
    shift=lambda attrs, size: {**attrs, "low": (0, *attrs["low"]), "high": (0, *attrs["high"])},
    samples=[
        Sample(((2, 3),), {"low": (1, 0), "high": (0, 2), "value": 0}, dtypes=_DTYPES),
        Sample(((3,),), {"low": (1,), "high": (1,), "value": -1.5}),
        Sample(((0,),), {"low": (1,), "high": (1,), "value": 2}),
    ],
    bad=[
        BadSample((TensorType(f32, (2,)),), ShapeError, "not negative", {"low": (-1,), "high": (0,), "value": 0}),
        BadSample((TensorType(f32, (2,)),), ShapeError, "each axis", {"low": (), "high": (), "value": 0}),
    ],
    doc="`low` elements of `value` before, `high` after each axis.",
)


def pad_widths(array: Array, pad_width: Any) -> list[tuple[Extent, Extent]]:
    """(before, after) for each axis of an array, as `st.pad` takes them."""
    widths: Any
    width = as_extent(pad_width)
    if width is not None:
        widths = [(width, width)] * array.ndim
    elif isinstance(pad_width, Mapping):
        widths = []
    elif None not in map(as_extent, pad_width):
        widths = [tuple(map(as_extent, pad_width))] * array.ndim
    else:
        widths = [tuple(one if (known := as_extent(one)) is None else known for one in pair) for pair in pad_width]
    if len(widths) != array.ndim or any(len(width) != 2 for width in widths):
        raise shape_error(f"pad: {pad_width!r} does not fit {array.type}", array, hint="give (before, after) per axis")
    for axis, (low, high) in enumerate(widths):
        for width in (low, high):
            check_sizes(width >= 0, f"pad widths are not negative, got {(low, high)} for axis {axis}", array)
    return list(widths)


def pad(x: Any, pad_width: Any, *, value: float = 0) -> Array:
    """`x` with a constant around it; see the public `pad` for the widths."""
    array = as_array(x)
    check_known("pad", "value", value)
    if is_number(value):
        check_fits(value, array.dtype)
    widths = pad_widths(array, pad_width)
    if all(width == (0, 0) for width in widths):
        return array
    lows, highs = tuple(low for low, _ in widths), tuple(high for _, high in widths)
    return bind(_pad_op, [array], low=lows, high=highs, value=value)
