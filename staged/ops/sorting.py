"""Elements in the order of their size: sorted rows and the places that their elements come from.

One primitive sorts along the last axis, and computes of its two results those that are used. Sorting is stable: equal
elements, -0.0 and 0.0 too, stay in the order of their places; NaN is the largest number, as for NumPy and torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from staged.errors import ArgumentError, ShapeError
from staged.ir.declaration import prims
from staged.ir.sizes import Extent, Size, surely
from staged.ir.types import ALL_DTYPES, TensorType, f32, f64, i64
from staged.ops.array import Array
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import zeros_of
from staged.ops.context import bind, bind_all
from staged.ops.primitive import BadSample, Primitive, Sample, primitive, same_attrs
from staged.ops.promote import as_array, axis_of, check_known, shape_error
from staged.ops.public import internal, public
from staged.ops.record import in_range
from staged.ops.shape import moveaxis, reshape, slice_axis

Data = np.ndarray[Any, Any]


# ---- the primitive ----------------------------------------------------------------------------------


def _infer(x: TensorType, descending: bool, k: int | None) -> tuple[TensorType, TensorType]:
    if not x.ndim:
        raise ShapeError(f"sort needs an axis, got {x}", hint="`x.reshape(1)` has one")
    extent = x.shape[-1]
    if k is not None and surely(lambda: not 0 <= k <= extent):
        raise ShapeError(f"the first {k} of {extent} sorted elements do not exist: {x}")
    shape = (*x.shape[:-1], extent if k is None else k)
    return TensorType(x.dtype, shape), TensorType(i64, shape)


def _reference(x: Data, descending: bool, k: int | None) -> tuple[Data, Data]:
    if descending:  # of equal ones the first stays first
        order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(x, axis=-1, kind="stable")
    order = np.ascontiguousarray(order[..., :k]).astype(np.int64)
    return np.take_along_axis(x, order, -1), order


def _vjp(cts: Sequence[Any], results: Sequence[Array], x: Array, descending: bool, k: int | None) -> list[Any]:
    if cts[0] is None:
        return [None]
    with in_range():
        return [bind(prims.SCATTER_ADD_ALONG, [zeros_of(x), results[1], cts[0]], axis=x.ndim - 1)]


def _jvp(tangents: Sequence[Any], results: Sequence[Array], operands: Sequence[Array], **_: Any) -> tuple[Any, None]:
    with in_range():
        return bind(prims.TAKE_ALONG, [tangents[0], results[1]], axis=operands[0].ndim - 1), None


_ROWS = np.array(
    [
        [np.nan, -0.0, 0.0, np.inf, -1.0, 0.0, -0.0, -np.inf, np.nan, 1.0],
        [3.0, 1.0, 3.0, 1.0, 2.0, 2.0, 1.0, 3.0, 2.0, 0.0],
    ]
)
_EXTREMES = np.array([[5, np.iinfo(np.int64).min, -1, np.iinfo(np.int64).max, 0, -1]])
_LONG = np.cos(np.arange(40.0) * 7.3) * 100

sort_op: Primitive = primitive(
    name="sort",
    kind="sort",
    infer=_infer,
    reference=_reference,
    vjp=_vjp,
    jvp=_jvp,
    shift=same_attrs,
    samples=[
        *(
            Sample((shape,), {"descending": descending, "k": None}, dtypes=ALL_DTYPES)
            for shape in ((5,), (3, 4), (0, 3), (3, 0), (2, 1))
            for descending in (False, True)
        ),
        Sample(((2, 3, 7),), {"descending": True, "k": 3}, dtypes=(f32, f64, i64)),
        Sample(((40,),), {"descending": False, "k": 2}, dtypes=(f32, f64, i64)),
        *(Sample((_LONG.astype(d.numpy),), {"descending": False, "k": None}) for d in ALL_DTYPES),
        *(
            Sample((_ROWS.astype(dtype),), {"descending": descending, "k": None}, differentiate=())
            for dtype in (np.float32, np.float64)
            for descending in (False, True)
        ),
        *(Sample((_EXTREMES,), {"descending": descending, "k": None}) for descending in (False, True)),
    ],
    bad=[
        BadSample((TensorType(f32, ()),), ShapeError, "needs an axis", {"descending": False, "k": None}),
        BadSample((TensorType(f32, (3,)),), ShapeError, "do not exist", {"descending": False, "k": 4}),
    ],
    doc="The elements in order along the last axis, of which the first `k`, and the places that they come from. Equal "
    "ones stay in their order; NaN is the largest.",
)


# ---- public -----------------------------------------------------------------------------------------


class Sorted(NamedTuple):
    """Elements and their places along an axis: torch's result of `sort`, `topk`, `kthvalue`, `mode`, `median`."""

    values: Array
    indices: Array


def ordered(x: Array, axis: int, descending: bool = False, k: Extent | None = None) -> Sorted:
    """The first `k` elements (None: all) along `axis` in order, and their places; the axis counts from the start."""
    if isinstance(k, Size):
        values, places = ordered(x, axis, descending)
        return Sorted(slice_axis(values, axis, 0, k), slice_axis(places, axis, 0, k))
    last = x.ndim - 1
    values, places = bind_all(sort_op, [moveaxis(x, axis, last)], descending=bool(descending), k=k)
    return Sorted(moveaxis(values, last, axis), moveaxis(places, last, axis))


def along(name: str, x: Any, axis: int | None) -> tuple[Array, int]:
    """An array and the axis that is sorted, counted from the start; None: all elements as a vector."""
    array = as_array(x)
    if axis is None:
        return reshape(array, (-1,)), 0
    if not array.ndim:
        raise shape_error(f"{name} needs an axis, got {array.type}", array, hint="`x.reshape(1)` has one")
    return array, axis_of(axis, array.ndim, name)


def _both(name: str, x: Any, axis: int | None, descending: bool) -> Sorted:
    check_known(name, "descending", descending)
    return ordered(*along(name, x, axis), descending)


@public("sort")
def sort(x: Any, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along `axis` (None: of all). NumPy and Array API `sort`; with `dim`, torch's pair.

    NaN is the largest; equal elements stay in their order, whatever `stable` says. `x.sort()` of NumPy would change x.
    """
    return _both("sort", x, axis, descending).values


@internal("sort_with_places")
def sort_with_places(x: Any, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Sorted:
    """torch's `sort` along a `dim`: the pair `(values, indices)`."""
    return _both("sort", x, axis, descending)


@public("argsort", method=True)
def argsort(x: Any, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """The places of the elements in order along `axis` (None: of all), i64. NumPy, torch, Array API `argsort`.

    Always stable: of equal elements the first comes first, in descending order too; NaN is the largest.
    """
    return _both("argsort", x, axis, descending).indices


@public("msort", method=True)
def msort(x: Any) -> Array:
    """The elements in order along the first axis. torch `msort`."""
    return _both("msort", x, 0, False).values


@public("topk", method=True)
def topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The `k` largest (or smallest) elements along `axis`, in order, and their places. torch `topk`.

    A pair `(values, indices)`. Of equal elements the first comes first; NaN is the largest; `sorted` or not.
    """
    check_known("topk", "largest", largest)
    array, axis = along("topk", x, axis)
    return ordered(array, axis, largest, _count("topk", array, axis, k))


@public("kthvalue", method=True)
def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> Sorted:
    """The `k`-th smallest element along `axis`, from 1, and its place. torch `kthvalue`: `(values, indices)`."""
    array, axis = along("kthvalue", x, axis)
    count = _count("kthvalue", array, axis, k)
    check_sizes(count > 0, f"kthvalue: k counts from 1, got {count}", error=ArgumentError)
    return taken(ordered(array, axis, False, count), axis, count - 1, keepdims)


def taken(found: Sorted, axis: int, place: Extent, keepdims: bool) -> Sorted:
    """One place of a sorted axis."""
    shape = found.values.shape
    kept = (*shape[:axis], *((1,) if keepdims else ()), *shape[axis + 1 :])
    values, indices = (reshape(slice_axis(each, axis, place, place + 1), kept) for each in found)
    return Sorted(values, indices)


def _count(name: str, x: Array, axis: int, k: Any) -> Extent:
    count = known_extent(name, "k", k)
    message = f"{name}: there are no {k} elements along axis {axis} of {x.type}"
    check_sizes(count >= 0, message, x)
    check_sizes(count <= x.shape[axis], message, x)
    return count
