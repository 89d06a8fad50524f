"""Arrays without operands: constants, counters, and functions made of them (zeros, arange, eye, linspace, ...)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from staged.errors import ArgumentError, ShapeError
from staged.ir.size_functions import slice_count
from staged.ir.sizes import Extent, Size, surely
from staged.ir.types import (
    CPU,
    Device,
    DType,
    Shape,
    TensorType,
    bound,
    c64,
    dtype_of,
    f32,
    f64,
    i32,
    i64,
    shape_text,
    u8,
)
from staged.ops.array import Array, described, functions, static_hint
from staged.ops.checks import check_sizes, known_extent
from staged.ops.choice import where
from staged.ops.comparisons import equal
from staged.ops.context import bind
from staged.ops.dimension import as_extent
from staged.ops.elementwise import pow_
from staged.ops.number_list import NumberList
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    adopted,
    as_array,
    axis_of,
    broadcast,
    cast,
    check_argument,
    check_dtype,
    check_known,
    constant,
    dtype_error,
    handle,
    is_number,
    number_type,
    shape_error,
)
from staged.ops.public import public
from staged.ops.shape import expand_dims, reshape

_NOT_OF_OPERANDS = "it has no operands"


def _infer_constant(value: Any) -> TensorType:
    if isinstance(value, tuple):
        return TensorType(number_type(value[0]).dtype if value else f32, (len(value),))
    return number_type(value)


primitive(
    name="constant",
    kind="source",
    takes_halves=True,
    harmless=True,
    infer=_infer_constant,
    reference=lambda value: np.asarray(value, dtype=_infer_constant(value).dtype.numpy),
    samples=[Sample((), {"value": 2.5}), Sample((), {"value": 7}), Sample((), {"value": (True, False)})],
    doc="A number, or a flat tuple of the elements in row-major order. The context that records it gives it its type.",
    why_not_differentiable=_NOT_OF_OPERANDS,
)


def _infer_iota(shape: Shape, axis: int, dtype: DType) -> TensorType:
    if not 0 <= axis < len(shape):
        raise ShapeError(f"iota along axis {axis} does not fit {shape_text(shape)}")
    return TensorType(dtype, shape)


def _iota(shape: tuple[int, ...], axis: int, dtype: DType) -> np.ndarray[Any, Any]:
    np.broadcast_to(np.zeros((), dtype.numpy), shape)  # fails for a shape that is too large, without memory
    column = np.arange(shape[axis]).astype(dtype.numpy).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.broadcast_to(column, shape)


_iota_op: Primitive = primitive(
    name="iota",
    kind="source",
    harmless=True,
    infer=_infer_iota,
    reference=_iota,
    samples=[
        Sample((), {"shape": (4,), "axis": 0, "dtype": i64}),
        Sample((), {"shape": (2, 3), "axis": 1, "dtype": f32}),
        Sample((), {"shape": (2, 3), "axis": 0, "dtype": i32}),
        Sample((), {"shape": (0,), "axis": 0, "dtype": f64}),
        Sample((), {"shape": (300,), "axis": 0, "dtype": u8}),
    ],
    bad=[BadSample((), ShapeError, "does not fit", {"shape": (2,), "axis": 1, "dtype": i64})],
    doc="Counts 0, 1, 2, ... along `axis`; the same on the others.",
    why_not_differentiable=_NOT_OF_OPERANDS,
)


def iota(shape: Shape, axis: int = 0, dtype: DType = i64) -> Array:
    """0, 1, 2, ... along `axis` of `shape`."""
    return cast(bind(_iota_op, [], shape=shape, axis=axis, dtype=dtype.part), dtype)


def static_shape(shape: Any, name: str) -> Shape:
    """A shape from an int or a sequence of extents known while staging; a ShapeError for a staged one."""
    is_one = isinstance(shape, int | np.integer | Array | Size)
    if not is_one and (isinstance(shape, str) or not isinstance(shape, Iterable)):
        raise shape_error(f"{name} needs a shape, an integer or a sequence of them, got {shape!r}")
    extents = (shape,) if is_one else tuple(shape)
    found: list[Extent] = []
    for given in extents:
        extent = as_extent(given)
        if extent is None:
            raise shape_error(
                f"{name} needs sizes that are known while staging, got {described(given)}",
                *([given] if isinstance(given, Array) else []),
                hint=f'{static_hint(given)}, or give it a bound: `st.dim("N", n, max=64)`',
            )
        if isinstance(extent, Size) or extent < 0:
            check_sizes(extent >= 0, f"{name}: an extent is not negative, got {shape_text((*found, extent))}")
        found.append(extent)
    return tuple(found)


def check_device(device: Any, name: str) -> None:
    """Refuse a device that is not the host's: where code runs is said by its region."""
    check_argument(
        device is None or (isinstance(device, Device | str) and device == CPU) or str(device) == "cpu",
        f"{name}: arrays are made where the code around runs, `with st.with_backend(...)`, got device={device!r}",
    )


@public("full")
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of `shape` filled with a number or a scalar; by default f32, i64 or bool. Array API `full`."""
    check_device(device, "full")
    extents = static_shape(shape, "full")
    value = handle(fill_value)
    if isinstance(value, NumberList):
        value = as_array(value)
    if dtype is not None:
        wanted = check_dtype(dtype)
    elif isinstance(value, Array) and not value.type.weak:
        wanted = value.dtype
    else:
        kind = (number_type(value) if is_number(value) else value.type).dtype
        wanted = kind.natural if kind.is_complex else f32 if kind.is_float else kind
    scalar = adopted(value, wanted) if isinstance(value, Array) else constant(value, TensorType(wanted))
    if scalar.shape:
        raise shape_error(f"full needs a scalar to fill with, got {scalar.type}", scalar, hint="use `st.broadcast_to`")
    return broadcast(scalar, extents)


def _filled(name: str, value: int, given: tuple[Any, ...], dtype: Any, device: Any) -> Array:
    """A shape in one piece, which a dtype may follow, or one extent after the other. Without a dtype it is f32."""
    check_device(device, name)
    dtype = f32 if dtype is None else dtype
    shape, *more = given
    if not more:
        return full(static_shape(shape, name), value, dtype)
    if len(more) == 1 and not isinstance(more[0], int) and dtype_of(more[0]) is not None:
        return full(static_shape(shape, name), value, more[0])
    if isinstance(shape, tuple | list):
        raise shape_error(
            f"{name} takes one shape, got {given}", hint="a shape in one piece, or one extent after the other"
        )
    return full(static_shape(given, name), value, dtype)


@public("zeros")
def zeros(shape: Any, *more: Any, dtype: Any = None, device: Any = None) -> Array:
    """An array of zeros, f32 by default: `zeros((2, 3))`, or as torch writes it `zeros(2, 3)`. Array API `zeros`."""
    return _filled("zeros", 0, (shape, *more), dtype, device)


@public("ones")
def ones(shape: Any, *more: Any, dtype: Any = None, device: Any = None) -> Array:
    """An array of ones, f32 by default: `ones((2, 3))`, or as torch writes it `ones(2, 3)`. Array API `ones`."""
    return _filled("ones", 1, (shape, *more), dtype, device)


@public("empty")
def empty(shape: Any, *more: Any, dtype: Any = None, device: Any = None) -> Array:
    """An array of zeros: nothing in a program is ever unset. Array API `empty`."""
    return _filled("empty", 0, (shape, *more), dtype, device)


@public("full_like")
def full_like(x: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array filled with a number, of the shape and (unless given) dtype of `x`. Array API `full_like`."""
    array = as_array(x)
    return full(array.shape, fill_value, array.dtype if dtype is None else dtype, device=device)


@public("zeros_like")
def zeros_like(x: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """Zeros of the shape and (unless given) dtype of `x`. Array API `zeros_like`."""
    return full_like(x, 0, dtype, device=device)


@public("ones_like")
def ones_like(x: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """Ones of the shape and (unless given) dtype of `x`. Array API `ones_like`."""
    return full_like(x, 1, dtype, device=device)


@public("empty_like")
def empty_like(x: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """Zeros of the shape and (unless given) dtype of `x`: nothing is ever unset. Array API `empty_like`."""
    return full_like(x, 0, dtype, device=device)


@public("asarray", numpy=("copy",))
def asarray(x: Any, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of a number, a NumPy array, or nested lists; f32, i64 or bool unless given. Array API `asarray`.

    A NumPy scalar keeps its dtype. Arrays are values, so that `copy` changes nothing. Raises DTypeError for a number
    that `dtype` cannot hold, as `full` does.
    """
    check_device(device, "asarray")
    if dtype is not None:
        return as_array(x, check_dtype(dtype))
    if isinstance(x, np.float64 | np.complex128):  # which are Python numbers, too
        return as_array(x, dtype_of(x.dtype))
    array = as_array(x)
    if array.type.weak:
        return cast(array, array.dtype.natural)
    return array


@public("arange")
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None) -> Array:
    """start, start + step, ... up to but excluding `stop`; i64 for ints, else f32. Array API `arange`.

    Bounds must be known while staging, or sizes: the size of the array follows from them. Raises ShapeError for others.
    """
    check_device(device, "arange")
    if stop is None:
        start, stop = 0, start
    first, last, by = (as_extent(given) for given in (start, stop, step))
    if (isinstance(first, Size) or isinstance(last, Size)) and None not in (first, last) and isinstance(by, int):
        assert first is not None and last is not None
        return iota((slice_count(first, last, by),), 0, i64 if dtype is None else check_dtype(dtype)) * by + first
    for given in (start, stop, step):
        if isinstance(given, Array | Size):
            raise shape_error(
                "arange needs bounds known while staging",
                *([given] if isinstance(given, Array) else []),
                hint=f"loop with `st.range(n)`, or {static_hint(given)}",
            )
    if step == 0:
        raise shape_error("arange: the step cannot be 0")
    ints = all(isinstance(given, int | np.integer) for given in (start, stop, step))
    wanted = check_dtype(dtype) if dtype is not None else i64 if ints else f32
    count = len(range(int(start), int(stop), int(step))) if ints else max(0, int(np.ceil((stop - start) / step)))
    if ints:
        steps = iota((count,), 0, wanted if not wanted.is_bool else i64)
        return steps if (start, step) == (0, 1) else steps * int(step) + int(start)
    # In f64, rounded once: f32 steps would drift.
    return cast(iota((count,), 0, f64) * float(step) + float(start), wanted)


def _end(name: str, number: Any) -> Any:
    """An end of a range as a Python number, or as an array of one f64."""
    if not isinstance(number, Array):
        return float(number)
    if number.shape != () or number.dtype.is_complex:
        raise shape_error(f"{name} goes from a real number to another, got {number.type}", number)
    return cast(number, f64)


@public("linspace", numpy=None)
def linspace(start: Any, stop: Any, num: Any, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Array:
    """`num` evenly spaced numbers from `start` to `stop`, f32 by default. Array API `linspace`.

    Computed in f64, rounded once.
    """
    check_device(device, "linspace")
    dtype = f32 if dtype is None else dtype
    number = known_extent("linspace", "num", num)
    check_sizes(number >= 0, f"linspace: num is at least 0, got {number}", error=ArgumentError)
    if isinstance(start, complex) or isinstance(stop, complex):
        ends = complex(start), complex(stop)
        wanted = c64 if dtype is f32 else check_dtype(dtype)
        re, im = (
            linspace(*part, num, dtype=wanted.part, endpoint=endpoint)  # type: ignore[misc]
            for part in ([end.real for end in ends], [end.imag for end in ends])
        )
        return cast(functions.complex(re, im), wanted)
    start, stop = _end("linspace", start), _end("linspace", stop)
    gaps = number - 1 if endpoint else number
    counter = iota((number,), 0, f64)
    if surely(lambda: gaps < 1):
        return cast(counter + start, check_dtype(dtype))
    steps: Any = cast(as_array(gaps), f64) if isinstance(gaps, Size) else float(gaps)
    # From both ends, so that both are exact.
    up = counter * ((stop - start) / steps) + start
    exact = where(counter == steps, stop, up) if endpoint else up
    if isinstance(gaps, Size):
        exact = where(counter == 0, start, exact)  # also if there is one number
    return cast(exact, check_dtype(dtype))


@public("logspace", numpy=None)
def logspace(
    start: Any, stop: Any, num: int = 50, *, base: float = 10.0, dtype: Any = f32, endpoint: bool = True
) -> Array:
    """`num` powers of `base`, whose exponents are evenly spaced from `start` to `stop`. NumPy and torch `logspace`.

    Computed in f64, rounded once.
    """
    check_known("logspace", "base", base)
    check_argument(base > 0, f"logspace: base is above 0, got {base}")
    return cast(pow_(float(base), linspace(start, stop, num, dtype=f64, endpoint=endpoint)), check_dtype(dtype))


@public("geomspace", numpy=None)
def geomspace(start: float, stop: float, num: int = 50, *, dtype: Any = f32, endpoint: bool = True) -> Array:
    """`num` numbers from `start` to `stop`, each a multiple of the one before by the same factor. NumPy `geomspace`.

    Computed in f64, rounded once.
    """
    for what, number in (("start", start), ("stop", stop)):
        check_known("geomspace", what, number)
    check_argument(start * stop > 0, f"geomspace: both ends are above 0, or both below, got {start} and {stop}")
    share = linspace(0.0, 1.0, num, dtype=f64, endpoint=endpoint)
    between = pow_(float(stop) / float(start), share) * float(start)
    # At the end it is the stop, not a power that is rounded.
    return cast(where(share == 1.0, float(stop), between), check_dtype(dtype))


@public("eye")
def eye(
    n_rows: Extent, n_cols: Extent | None = None, k: int | Size = 0, dtype: Any = None, *, device: Any = None
) -> Array:
    """Ones on diagonal `k`, zeros elsewhere; f32 by default. Array API `eye`."""
    check_device(device, "eye")
    dtype = f32 if dtype is None else dtype
    shape = static_shape((n_rows, n_rows if n_cols is None else n_cols), "eye")
    rows, columns = map(bound, shape)
    diagonal = max(-rows, min(k, columns)) if isinstance(k, int) else k  # beyond the corners all are empty
    return cast(iota(shape, 1) - iota(shape, 0) == diagonal, check_dtype(dtype))


@public("one_hot")
def one_hot(indices: Any, num_classes: Extent, dtype: Any = f32) -> Array:
    """1 at each index along a new last axis, 0 elsewhere; rows of indices out of range are all 0. JAX `nn.one_hot`."""
    labels = as_array(indices)
    if not labels.dtype.is_integer:
        raise dtype_error(
            f"one_hot needs integers, got {labels.type}", labels, hint="cast them: `st.astype(y, st.i32)`"
        )
    classes = as_extent(num_classes)
    if classes is None:
        raise shape_error(
            f"one_hot needs a number of classes known while staging, got {num_classes!r}", hint=static_hint(num_classes)
        )
    (classes,) = static_shape(classes, "one_hot")
    return cast(is_class(labels, classes), check_dtype(dtype))


def is_class(labels: Array, classes: Extent) -> Array:
    """Bools (..., classes): whether the class is the label. A comparison, where a scatter would not fuse."""
    shape = (*labels.shape, classes)
    if not isinstance(classes, int) or classes - 1 > np.iinfo(labels.dtype.numpy).max:
        labels = cast(labels, i64)  # or the counter would wrap around, and count a label twice
    return equal(iota(shape, len(shape) - 1, labels.dtype), broadcast(expand_dims(labels, -1), shape))


def _triangle(x: Any, k: int, lower: bool) -> Array:
    array = as_array(x)
    if array.ndim < 2:
        raise shape_error(f"{'tril' if lower else 'triu'} needs a matrix, got {array.type}", array)
    rows, columns = iota(array.shape, array.ndim - 2), iota(array.shape, array.ndim - 1)
    inside = columns <= rows + k if lower else columns >= rows + k
    return where(inside, array, constant(0, TensorType(array.dtype)))


@public("tril", method=True)
def tril(x: Any, k: int = 0) -> Array:
    """The part of each matrix on and below diagonal `k`, zeros above. Array API `tril`."""
    return _triangle(x, k, True)


@public("triu", method=True)
def triu(x: Any, k: int = 0) -> Array:
    """The part of each matrix on and above diagonal `k`, zeros below. Array API `triu`."""
    return _triangle(x, k, False)


@public("meshgrid")
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> list[Array]:
    """Coordinate arrays of a grid from one vector per axis; a number is a vector of one. Array API `meshgrid`.

    With `sparse`, as in NumPy, each is as long as its vector in its own axis and 1 in the others.
    """
    if len(arrays) == 1 and isinstance(arrays[0], list | tuple) and any(isinstance(one, Array) for one in arrays[0]):
        arrays = tuple(arrays[0])  # as torch also writes it
    vectors = [as_array(array) for array in arrays]
    vectors = [vector if vector.ndim else reshape(vector, (1,)) for vector in vectors]
    if any(vector.ndim != 1 for vector in vectors):
        raise shape_error("meshgrid needs vectors", *vectors)
    if indexing not in ("xy", "ij"):
        raise shape_error(f"meshgrid: indexing is 'xy' or 'ij', got {indexing!r}")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape: list[Extent] = [1] * len(vectors)
    for vector, axis in zip(vectors, order, strict=True):
        shape[axis] = vector.shape[0]
    alone = [_along(vector, axis, len(shape)) for vector, axis in zip(vectors, order, strict=True)]
    return alone if sparse else [broadcast(one, tuple(shape)) for one in alone]


def _along(vector: Array, axis: int, ndim: int) -> Array:
    placed: list[Extent] = [1] * ndim
    placed[axis_of(axis, ndim, "meshgrid")] = vector.shape[0]
    return reshape(vector, placed)
