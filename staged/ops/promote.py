"""Operands of one op brought together: Python numbers and NumPy arrays become handles, dtypes promote, shapes
broadcast.

Dtypes promote as in the Array API; where it leaves the choice, an integer with a float gives the float's dtype and a
bool with a number gives the number's; u64 beside a signed integer is refused. Python numbers are weak: they adopt the
dtype of the array they meet (a float that meets integers only gives f32, the default float), and an integer that does
not fit it is an error, while staging or when the program runs. Numbers among themselves follow Python's rules. Lists of
Python numbers are as weak as a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from staged.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    ShapeError,
    StagedError,
    StagedValueError,
    StaticOverflowError,
    article,
)
from staged.ir.declaration import prims
from staged.ir.nodes import Value
from staged.ir.numbers import converted, does_not_fit, limits
from staged.ir.size_questions import Question, need_equal
from staged.ir.sizes import Size
from staged.ir.types import DTYPE_WORDS, DTYPES, DType, Shape, TensorType, bool_, c128, dtype_of, f64, i64, shape_text
from staged.ops.array import Array, StagedArray, functions, static_hint
from staged.ops.context import bind, current_context, refuse_complex
from staged.ops.dimension import answer, size_number
from staged.ops.dtypes import float_dtype, result_dtype
from staged.ops.interchange import elements, is_offered
from staged.ops.number_list import NumberList, leaves_of, shape_of, tuples_of
from staged.ops.record import operand_line
from staged.source import here

AnyNumber = bool | int | float | complex

# ---- errors ---------------------------------------------------------------------------------------


def describe(*arrays: Any) -> tuple[str, ...]:
    """One line per operand for an error: the user's name where there is one, and the type."""
    return tuple(
        operand_line(array.value) if isinstance(array, StagedArray) else f"operand {index}: {type_of(array)}"
        for index, array in enumerate(arrays)
    )


def shape_error(message: str, *arrays: Any, hint: str | None = None) -> ShapeError:
    """A ShapeError at the user's expression, with the operands."""
    return ShapeError(message, where=here(), details=describe(*arrays), hint=hint)


def fixed_size(name: str, x: Array, axis: int, hint: str | None = None) -> int:
    """The extent of an axis. Raises: ShapeError if it is known only when the program runs."""
    extent = x.shape[axis]
    if not isinstance(extent, int):
        message = f"{name}: the size of axis {axis % x.ndim} of {x.type} must be fixed while staging, got {extent}"
        raise shape_error(message, x, hint=hint)
    return extent


def dtype_error(message: str, *arrays: Any, hint: str | None = None) -> DTypeError:
    """A DTypeError at the user's expression, with the operands."""
    return DTypeError(message, where=here(), details=describe(*arrays), hint=hint)


def wider_hint(name: str, array: Array | TensorType, wide: Array | TensorType, loss: str) -> str | None:
    """For floats that meet an array of shorter ones: to make that one wider, not to round; None where they are no such
    two.
    """
    narrow, wanted = array.dtype, wide.dtype
    if not (narrow.is_float and wanted.is_float and narrow.size < wanted.size):
        return None
    made = array.value.producer if isinstance(array, StagedArray) else None
    where = f", line {made.where.line}" if made is not None and made.where is not None else ""
    source = _named_source(wide.value, name) if isinstance(wide, StagedArray) else ""
    like = f"`dtype={source}.dtype`" if source else f"`dtype=st.{wanted}`"
    return f"make `{name}` {wanted} where it is made{where}, with {like}; {loss}"


def _named_source(value: Value, name: str, depth: int = 6) -> str:
    """The user's name, other than `name`, of a source of this value with this dtype; "" without one."""
    if value.hint and value.hint != name:
        return value.hint
    if value.producer is None or not depth:
        return ""
    operands = [operand for operand in value.producer.operands if isinstance(operand.type, TensorType)]
    alike = (_named_source(o, name, depth - 1) for o in operands if o.tensor.dtype is value.tensor.dtype)
    return next(filter(None, alike), "")


def check_argument(holds: bool, message: str) -> None:
    """Raise an ArgumentError at the user's expression unless `holds`."""
    if not holds:
        raise ArgumentError(message, where=here())


def check_known(name: str, what: str, value: Any) -> None:
    """Refuse a staged value where `name` needs a Python number, which determines the recorded code."""
    if isinstance(value, Array) and not current_context().is_plain:
        raise StagedValueError(
            f"{name}: `{what}` is a number known while staging, got {value!r}", where=here(), hint=static_hint(value)
        )


def whole(value: Any) -> Any:
    """The Python int of one of NumPy's integers, which shapes computed there are; else the value itself."""
    return int(value) if isinstance(value, np.integer) else value


def plain_number(value: Any) -> Any:
    """Return `value.item()` for a NumPy scalar, whose dtype then does not count; anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def is_option(annotation: Any) -> bool:
    """Return whether a parameter with this annotation is a number whose dtype does not count."""
    return str(annotation).partition(" | ")[0] in ("int", "float", "Option")


NUMPY_SCALARS = frozenset((*np.sctypeDict.values(), ml_dtypes.bfloat16))
"""The classes of NumPy scalars."""


# ---- handles --------------------------------------------------------------------------------------


def is_number(x: Any) -> bool:
    """Return whether `x` is a Python number, which is weak; `np.float64`, a class derived from `float`, is not."""
    return isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic)


def number_type(x: AnyNumber) -> TensorType:
    """The weak type of a Python number."""
    if isinstance(x, complex):
        return _COMPLEX
    return _BOOL if isinstance(x, bool) else _INT if isinstance(x, int) else _FLOAT


_SCALARS = {(dtype.name, weak): TensorType(dtype, (), weak) for dtype in DTYPES.values() for weak in (False, True)}
"""The type of a scalar, by the name of its dtype and whether it is a Python number."""
_BOOL, _INT, _FLOAT, _COMPLEX = (_SCALARS[dtype.name, True] for dtype in (bool_, i64, f64, c128))


def read(x: Any) -> Any:
    """The value of a Variable, and a size as an integer; anything else unchanged.

    Its class is tested: a user's object may have a `__getattr__` that raises anything, or answers to every name.
    """
    if type(x) is StagedArray:
        return x
    reader = getattr(type(x), "__staged_read__", None)
    if reader is not None:
        return reader(x)
    return size_number(x) if isinstance(x, Size) else x


_TYPED = (Array, NumberList)


def type_of(x: Any) -> TensorType:
    """The type of a handle, of a Python number, or of a list of these."""
    return x.type if type(x) is StagedArray or isinstance(x, _TYPED) else number_type(x)


def as_array(x: Any, dtype: DType | None = None) -> Array:
    """A handle for a handle, a Python number, a NumPy array, or a nested list of these.

    A number becomes a weak scalar unless `dtype` is given, lists of numbers arrays of the default dtypes: f32, i64,
    bool. With a dtype numbers and lists are converted to it at once, not by way of the default. Raises DTypeError for a
    dtype that `staged` does not have, or a number that does not fit `dtype`; one of the running program stops it.
    """
    if type(x) is StagedArray and dtype is None:
        return x
    array = handle(x)
    if isinstance(array, NumberList):
        return filled(array, dtype or array.natural)
    if not isinstance(array, Array):
        if dtype is not None:
            check_fits(array, dtype)
        if dtype is None or (isinstance(array, float) and not dtype.is_float):
            array = constant(array, number_type(array))
        else:
            return constant(array, TensorType(dtype))
    return array if dtype is None else adopted(array, dtype)


def handle(x: Any) -> Any:
    """An `Array`, or the Python number or the list of numbers that `x` is: these stay so until their dtype is known."""
    if type(x) in _AS_THEY_ARE:
        return x
    x = read(x)
    if isinstance(x, Array | NumberList) or is_number(x):
        return x
    if isinstance(x, Question):
        return answer(x)
    if isinstance(x, list | tuple):
        return _from_list(x)
    if isinstance(x, np.ndarray | np.generic):
        check_class(x)
        return _from_numpy(np.asarray(x), x)
    if is_offered(x):
        data = elements(x)
        if hasattr(x, "__staged_by_reference__"):
            return _from_numpy(data, x)
        current_context().note_offered(x)
        return _from_numpy(data, data)
    hint = "arguments of array functions are arrays, numbers, or nested lists of numbers"
    if isinstance(x, str):
        hint = 'to put a value into a text write an f-string: `f"loss {x}"`'
    raise DTypeError(f"expected an array or a number, got {type(x).__name__}", where=here(), hint=hint)


_AS_THEY_ARE = frozenset((StagedArray, float, int, bool, complex))
_PLAIN = (np.ndarray, np.memmap)


def check_class(x: Any, what: str = "an array") -> None:
    """Raise a DTypeError for a NumPy array of a class of its own, which means more than its elements."""
    if not isinstance(x, np.ndarray) or type(x) in _PLAIN:
        return
    if isinstance(x, np.ma.MaskedArray):
        why = "its mask would be lost"
        hint = "fill it (`x.filled(0.0)`), and pass the mask as an array of its own: `np.ma.getmaskarray(x)`"
    elif isinstance(x, np.matrix):
        why = "`*` of matrices is a product, of arrays it goes element by element"
        hint = "pass `np.asarray(x)`, and write `@` for products"
    else:
        why = "what its class adds to the elements would be lost"
        hint = "pass `np.asarray(x)` where the bare elements are meant"
    raise DTypeError(f"{what} is {article(type(x).__name__)}: {why}", where=here(), hint=hint)


def _from_list(items: Sequence[Any]) -> Array | NumberList:
    nested = tuples_of(items, read)
    leaves = list(leaves_of(nested))
    if all(is_number(leaf) or (isinstance(leaf, Array) and leaf.type.weak) for leaf in leaves):
        shape = shape_of(nested)
        if shape is None:
            raise ShapeError("a nested list whose rows differ in length is not an array", where=here())
        dtype = result_dtype([type_of(leaf) for leaf in leaves])[0] if leaves else f64
        return NumberList(nested, TensorType(dtype, shape, weak=True))
    if any(isinstance(leaf, Array) or _is_of_another_library(leaf) for leaf in leaves):
        return functions.stack(nested)
    for leaf in leaves:
        check_class(leaf)
    try:
        data = np.asarray(nested)
    except ValueError:
        raise ShapeError("a nested list whose rows differ in length is not an array", where=here()) from None
    strong = [dtype_of(np.asarray(leaf).dtype) for leaf in leaves if not is_number(leaf)]
    if dtype_of(data.dtype) is not None and None not in strong:
        # NumPy would take the Python numbers among its arrays for f64 and i64.
        types = [TensorType(dtype) for dtype in strong if dtype is not None]
        types += [number_type(leaf) for leaf in leaves if is_number(leaf)]
        data = data.astype(result_dtype(types)[0].numpy)
    return _from_numpy(data, items)


def _is_of_another_library(x: Any) -> bool:
    return not isinstance(x, np.ndarray | np.generic) and not is_number(x) and is_offered(x)


def filled(numbers: NumberList, dtype: DType) -> Array:
    """The array of a list of numbers, of `dtype`; a DTypeError for an integer that does not fit it."""
    leaves = list(numbers.numbers())
    if any(isinstance(leaf, Array) for leaf in leaves):
        return functions.stack([as_array(item, dtype) for item in numbers.items])
    for leaf in leaves:
        check_fits(leaf, dtype)
    own = numbers.type.dtype
    if own.is_float and not dtype.is_float:
        return cast(filled(numbers, own), dtype)
    data = converted(np.array(leaves), dtype) if dtype.is_half else np.array(leaves, dtype=dtype.numpy)
    return current_context().constant(data, TensorType(dtype, numbers.type.shape))


def _from_numpy(data: np.ndarray[Any, Any], original: Any) -> Array:
    dtype = dtype_of(data.dtype)
    if dtype is None:
        raise DTypeError(
            f"arrays of dtype {data.dtype} are not supported, got one of shape {shape_text(data.shape)}",
            where=here(),
            hint="cast it first, for example `x.astype(np.float32)`",
        )
    context = current_context()
    if not data.ndim:
        context.read_now(original)
        return context.constant(data.item(), TensorType(dtype, ()))
    if isinstance(original, np.ndarray) or hasattr(type(original), "__staged_by_reference__"):
        # The array itself, not a copy: closed-over arrays are inputs by reference, told apart by identity.
        return context.lift(original)
    context.read_now(original)
    return context.constant(data, TensorType(dtype, data.shape))


def constant(value: AnyNumber, type: TensorType) -> Array:
    """A scalar constant of `type`; a DTypeError for a number that its dtype cannot hold."""
    check_fits(value, type.dtype)
    return current_context().constant(value, _SCALARS[type.dtype.name, type.weak])


def check_fits(value: AnyNumber, dtype: DType) -> None:
    """A DTypeError for a number that a dtype cannot hold: too large for an integer, or complex for a real one."""
    if isinstance(value, complex):
        if not dtype.is_complex:
            raise DTypeError(f"{value} does not fit {dtype}: it is complex", where=here(), hint="`st.c64` holds it")
        return
    if not dtype.is_integer:
        return
    low, high = limits(dtype)
    if not (math.isfinite(value) and low <= int(value) <= high):
        raise StaticOverflowError(
            does_not_fit(value, dtype),
            where=here(),
            hint="cast the array to a wider dtype first, for example `st.astype(x, st.i64)`",
        )


def cast(x: Array, dtype: DType, weak: bool = False) -> Array:
    """`x` with elements of `dtype`; the array itself where it has that type already."""
    own = x.type
    if own.dtype is dtype and own.weak == weak:
        return x
    if dtype.is_complex and not own.dtype.is_complex:
        real = cast(x, dtype.part, weak)
        return bind(prims.FROM_PARTS, [real, broadcast(constant(0.0, TensorType(dtype.part, (), weak)), x.shape)])
    return bind(prims.CAST, [x], dtype=dtype, weak=weak)


def adopted(x: Array, dtype: DType, weak: bool = False) -> Array:
    """`x` as an operand of `dtype`: a Python number of the running program adopts it, and stops the program where it
    does not fit.

    So it is with numbers that are known while staging (`check_fits`). Where elements are converted at the user's word,
    as by `astype`, `cast` wraps them around.
    """
    own = x.type
    if own.weak and not weak and own.dtype is i64 and dtype.is_integer and dtype is not i64:
        return bind(prims.FIT, [x], dtype=dtype)
    return cast(x, dtype, weak)


# ---- dtypes ---------------------------------------------------------------------------------------


def check_dtype(dtype: Any) -> DType:
    """Our dtype of that name; a DTypeError if there is none."""
    found = dtype_of(dtype)
    if found is None:
        raise DTypeError(f"{dtype!r} is not a dtype of staged", where=here(), hint=f"{DTYPE_WORDS} are")
    return found


# ---- shapes ---------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all `shapes` broadcast to; a ShapeError naming the first that does not fit."""
    if len(shapes) == 2:
        one, other = shapes
        if not other or one == other:
            return one
        if not one:
            return other
    ndim = max((len(shape) for shape in shapes), default=0)
    result: list[Any] = [1] * ndim
    for shape in shapes:
        for axis, extent in enumerate(shape, start=ndim - len(shape)):
            if extent == 1 or extent == result[axis]:
                continue
            if result[axis] != 1:
                need_equal(result[axis], extent)
                texts = " and ".join(shape_text(other) for other in shapes)
                hint = "extents must be equal, or 1; `st.reshape(x, ...)` or `x[:, None]` adds axes of extent 1"
                if not (isinstance(extent, int) and isinstance(result[axis], int)):
                    hint = "sizes must be equal; to broadcast an axis of size 1, declare it as 1 in `dims`"
                raise ShapeError(
                    f"shapes {texts} do not broadcast: axis {axis - ndim} has extents {result[axis]} and {extent}",
                    where=here(),
                    hint=hint,
                )
            result[axis] = extent
    return tuple(result)


def broadcast(x: Array, shape: Shape) -> Array:
    """`x` repeated to `shape`, which it is known to broadcast to."""
    type = x.type
    own = type.shape
    if own == shape:
        return x
    if type.weak:
        # A number that fills an array takes a place in memory, so it gets the default float; integers stay i64.
        x = cast(x, type.dtype.natural)
    if not own:
        return bind(prims.BROADCAST_TO, [x], shape=shape, axes=())
    lead = len(shape) - len(own)
    kept = [axis for axis in range(len(own)) if own[axis] == shape[lead + axis]]
    narrow = tuple([own[axis] for axis in kept])
    if narrow != own:
        x = bind(prims.RESHAPE, [x], shape=narrow)
    if narrow == shape:
        return x
    return bind(prims.BROADCAST_TO, [x], shape=shape, axes=tuple(lead + axis for axis in kept))


# ---- both -----------------------------------------------------------------------------------------


def promoted(*operands: Any, floats: bool = False) -> list[Array]:
    """The operands as handles of one dtype, each with its own shape. `floats`: integers become the default float."""
    arrays = [operand if type(operand) in _AS_THEY_ARE else handle(operand) for operand in operands]
    types = [array.type if type(array) is StagedArray else type_of(array) for array in arrays]
    return _promoted_handles(arrays, types, floats)


def as_float(x: Any) -> Array:
    """`x` as an array of floats."""
    (array,) = promoted(x, floats=True)
    return array


def check_real(name: str, *arrays: Array) -> None:
    """Refuse complex numbers in a function that would take them without a meaning."""
    if any(array.dtype.is_complex for array in arrays):
        refuse_complex(name, arrays)


def _promoted_handles(
    arrays: Sequence[Any], types: Sequence[TensorType], floats: bool, mixes: bool = False
) -> list[Array]:
    """`promoted` of the results of `handle`; with `mixes` real ones beside complex ones have the dtype of a part."""
    dtype, weak = result_dtype(types)
    if weak and any(isinstance(array, NumberList) for array in arrays):
        # Numbers alone: an array of them has the default float.
        dtype, weak = dtype.natural, False
    if floats:
        dtype = float_dtype(dtype, weak)
    made: list[Array] = []
    common = dtype
    for array, own in zip(arrays, types, strict=True):
        dtype = common if not mixes or own.dtype.is_complex else common.part
        if type(array) is not StagedArray and not isinstance(array, Array):
            is_list = isinstance(array, NumberList)
            made += (filled(array, dtype) if is_list else constant(array, _SCALARS[dtype.name, weak]),)
        elif own.dtype is dtype and own.weak == weak:
            made += (array,)
        else:
            made += (adopted(array, dtype, weak),)
    return made


def together(*operands: Any, name: str, floats: bool = False, mixes: bool = False) -> list[Array]:
    """The operands as handles of one dtype and one shape, ready for an elementwise op called `name`.

    With `mixes`, real operands beside complex ones stay real.
    """
    arrays = [operand if type(operand) in _AS_THEY_ARE else handle(operand) for operand in operands]
    types = [array.type if type(array) is StagedArray else type_of(array) for array in arrays]
    first = types[0]
    for array, own in zip(arrays, types, strict=True):
        if (own is not first and own != first) or (type(array) is not StagedArray and not isinstance(array, Array)):
            break
    else:
        if not floats or first.dtype.is_inexact:
            return arrays
    try:
        shape = broadcast_shapes(*[own.shape for own in types])
    except StagedError as error:
        error.message = f"{name}: {error.message}"
        error.details = describe(*arrays)
        raise
    return [broadcast(array, shape) for array in _promoted_handles(arrays, types, floats, mixes)]


def axis_of(axis: int, ndim: int, name: str) -> int:
    """`axis` counted from the front; an AxisError where there is no such axis."""
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise ShapeError(f"{name}: an axis is a Python int, got {axis!r}", where=here())
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{name}: axis {axis} does not exist in an array of {ndim} dimensions",
            where=here(),
            hint=f"axes go from {-ndim} to {ndim - 1}" if ndim else "the array is a single number",
        )
    return int(axis) % ndim


def axes_of(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Sorted axes from None (all), an int, or a tuple of ints; a ShapeError for one named twice."""
    if axis is None:
        return tuple(range(ndim))
    if not ndim and axis in (0, -1, (0,), (-1,), [0], [-1]) and axis is not False:
        return ()  # a single number counts as a row of one here, as in NumPy and torch
    axes = [axis_of(one, ndim, name) for one in (axis if isinstance(axis, tuple | list) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: an axis is named twice in {tuple(axis)}", where=here())
    return tuple(sorted(axes))
