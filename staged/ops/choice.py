"""Choice and conversion: select and where, casts, constants to derivatives, copies between devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ProgramOverflowError, ShapeError
from staged.ir.nodes import FAIL
from staged.ir.numbers import converted, does_not_fit, limits
from staged.ir.types import CPU, INTEGER_DTYPES, STORED_DTYPES, DType, TensorType, bool_, f32, f64, i32, i64, u8, u64
from staged.ops.array import Array
from staged.ops.context import bind
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    as_array,
    broadcast,
    broadcast_shapes,
    cast,
    check_argument,
    check_dtype,
    dtype_error,
    promoted,
    together,
)
from staged.ops.public import internal, public

_DTYPES = STORED_DTYPES


def zeros_of(x: Array) -> Array:
    return broadcast(cast(as_array(0.0), x.dtype, x.type.weak), x.shape)


def ones_of(x: Array) -> Array:
    return broadcast(cast(as_array(1.0), x.dtype, x.type.weak), x.shape)


def _infer_select(condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    if not condition.dtype.is_bool:
        raise DTypeError(f"where needs a bool condition, got {condition}", hint="compare: `x > 0`")
    if not condition.shape == a.shape == b.shape:
        raise ShapeError(f"where needs operands of one shape, got {condition}, {a} and {b}")
    if a.dtype is not b.dtype or a.weak != b.weak:
        raise DTypeError(f"where needs two values of one dtype, got {a} and {b}", hint="cast one of them")
    return a


def _select_jvp(tangents: Sequence[Any], y: Any, operands: Sequence[Any]) -> Any:
    _, a, b = tangents
    if a is None and b is None:
        return None
    return select(operands[0], zeros_of(y) if a is None else a, zeros_of(y) if b is None else b)


_select: Primitive = primitive(
    name="select",
    by_parts=True,
    kind="elementwise",
    takes_halves=True,
    harmless=True,
    infer=_infer_select,
    reference=lambda condition, a, b: np.where(condition, a, b),
    vjp=lambda ct, y, condition, a, b: [None, select(condition, ct, zeros_of(ct)), select(condition, zeros_of(ct), ct)],
    jvp=_select_jvp,
    samples=[
        Sample((np.array([[True, False, True]]), (1, 3), (1, 3)), dtypes=_DTYPES),
        Sample((np.array(True), (), ())),
        Sample((np.zeros((0, 2), bool), (0, 2), (0, 2))),
    ],
    bad=[
        BadSample((TensorType(f32, (2,)),) * 3, DTypeError, "bool condition"),
        BadSample((TensorType(bool_, (2,)), TensorType(f32, (2,)), TensorType(f32, (3,))), ShapeError, "one shape"),
        BadSample((TensorType(bool_, (2,)), TensorType(f32, (2,)), TensorType(f64, (2,))), DTypeError, "one dtype"),
    ],
    doc="a where the condition holds, b elsewhere. The other one's derivative is 0 there.",
)


def select(condition: Array, a: Array, b: Array) -> Array:
    """The primitive behind `where`, for operands of one shape."""
    return bind(_select, [condition, a, b])


@public("where")
def where(condition: Any, a: Any, b: Any) -> Array:
    """`a` where `condition` holds, `b` elsewhere, element by element. Array API `where`.

    Shapes broadcast, the dtypes of `a` and `b` promote. Both are computed; the gradient of the one not chosen is 0,
    even if elementwise functions in it have infinite slopes (`where(x > 0, sqrt(x), 0)`).
    Raises DTypeError for a condition that is not bool.
    """
    test = as_array(condition)
    if not test.dtype.is_bool:
        raise dtype_error(f"where needs a bool condition, got {test.type}", test, hint="compare: `x > 0`")
    left, right = promoted(a, b)
    shape = broadcast_shapes(test.shape, left.shape, right.shape)
    return select(broadcast(test, shape), *together(broadcast(left, shape), broadcast(right, shape), name="where"))


def _convert(x: np.ndarray[Any, Any], dtype: DType, weak: bool = False) -> np.ndarray[Any, Any]:
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        x = x.astype(np.float32)
    if x.dtype.kind == "f" and dtype.is_integer:
        return _whole(x, dtype)
    return converted(x, dtype) if dtype.is_half else x.astype(dtype.numpy)


def _whole(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Floats as integers. NumPy leaves values outside of the dtype's range undefined; see `astype`."""
    low, high = limits(dtype)
    beyond = x >= float(high + 1)
    inside = (np.trunc(x) >= float(low)) & ~beyond
    found = np.where(inside, x, 0).astype(dtype.numpy)
    found[~inside] = low
    if dtype.kind == "u":
        found[beyond] = high
    return found


_cast: Primitive = primitive(
    name="cast",
    kind="elementwise",
    takes_halves=True,
    harmless=True,
    named_after_operand=True,
    infer=lambda x, dtype, weak=False: TensorType(dtype, x.shape, weak and not x.shape),
    reference=_convert,
    vjp=lambda ct, y, x, dtype, weak=False: [
        cast(ct, x.dtype, x.type.weak) if dtype.is_float and x.dtype.is_float else None
    ],
    jvp=lambda tangents, y, operands, dtype, weak=False: (
        cast(tangents[0], dtype, weak) if tangents[0] is not None and dtype.is_float else None
    ),
    shift=lambda attrs, size: {"dtype": attrs["dtype"]},
    samples=[
        Sample(((2, 3),), {"dtype": f64}, dtypes=_DTYPES),
        Sample(((2, 3),), {"dtype": f32}, dtypes=(f64, i64), differentiate=()),
        Sample(((3,),), {"dtype": i32}, dtypes=_DTYPES, low=0, differentiate=()),
        Sample(((0, 2),), {"dtype": bool_}, dtypes=_DTYPES, differentiate=()),
    ],
    doc="The same values in another dtype: floats to integers drop the fraction (see `astype` for those out of range), "
    "integers wrap "
    "around, numbers to bools ask for != 0.",
)


def _infer_fit(x: TensorType, dtype: DType) -> TensorType:
    if x.dtype is not i64 or not dtype.is_integer or dtype is i64:
        raise DTypeError(f"fit takes i64 and gives other integers, got {x} and {dtype}")
    return TensorType(dtype, x.shape)


def _fit(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    low, high = limits(dtype)
    beyond = x[(x < low) | (x > high)]
    if beyond.size:
        raise ProgramOverflowError(does_not_fit(int(beyond.flat[0]), dtype))
    return x.astype(dtype.numpy)


_fit_op: Primitive = primitive(
    name="fit",
    kind="elementwise",
    vector="never",
    named_after_operand=True,
    infer=_infer_fit,
    reference=_fit,
    effects=FAIL,
    samples=[
        *(
            Sample((np.array(limits(dtype)[0]),), {"dtype": dtype}, dtypes=(i64,))
            for dtype in INTEGER_DTYPES
            if dtype is not i64
        ),
        Sample((np.array(2**63 - 1),), {"dtype": u64}, dtypes=(i64,)),
        Sample((np.array([[0, 255]]),), {"dtype": u8}, dtypes=(i64,)),
        Sample((np.zeros((0, 2), np.int64),), {"dtype": i32}, dtypes=(i64,)),
    ],
    bad=[
        BadSample((TensorType(f32),), DTypeError, "fit takes i64", {"dtype": u8}),
        BadSample((TensorType(i64),), DTypeError, "fit takes i64", {"dtype": f32}),
    ],
    doc="The same integers in another dtype; stops the program where it cannot hold one. Python numbers of the running "
    "program that meet an array become it by this.",
    why_not_differentiable="its result is not a float",
)


@public("astype", method=True)
def astype(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> Array:
    """`x` converted to `dtype`. Array API `astype`. Arrays are values, so that `copy` changes nothing.

    Floats to integers drop the fraction. A float outside of the dtype's range becomes its smallest integer (for an
    unsigned dtype the nearer end of the range); NaN becomes its smallest integer. Integers that do not fit wrap around;
    a number becomes the bool `number != 0`. The gradient passes between floats.
    Raises: DTypeError for an unknown dtype.
    """
    check_argument(device in (None, "cpu", CPU), f"astype leaves an array where it is, got device={device!r}")
    return cast(as_array(x), check_dtype(dtype))


_stop: Primitive = primitive(
    name="stop_gradient",
    by_parts=True,
    kind="elementwise",
    elements="viewed",
    harmless=True,
    named_after_operand=True,
    infer=lambda x: x,
    reference=lambda x: x,
    vjp=lambda ct, y, x: [None],
    jvp=lambda tangents, y, operands: None,
    samples=[Sample(((2, 3),), differentiate=())],
    doc="x, as a constant to every derivative.",
)


_quantized_layer: Primitive = primitive(
    name="quantized_layer",
    kind="elementwise",
    elements="viewed",
    harmless=True,
    named_after_operand=True,
    infer=lambda x: x,
    reference=lambda x: x,
    why_not_differentiable="its rounding has no slope; train the model first, then quantise it",
    samples=[Sample(((2, 3),))],
    doc="x, through which no derivative goes: each is refused.",
)


def inference_only(x: Any) -> Array:
    """`x` as it is; a derivative through it is refused, where rounding behind it would make it zero."""
    return bind(_quantized_layer, [as_array(x)])


@internal("stop_gradient", torch=("detach",))
def stop_gradient(x: Any) -> Array:
    """`x` as it is, but a constant to every derivative. JAX `lax.stop_gradient`."""
    return bind(_stop, [as_array(x)])


_to: Primitive = primitive(
    name="to_device",
    by_parts=True,
    kind="elementwise",
    takes_halves=True,
    infer=lambda x: x,
    reference=lambda x: x,
    vjp=lambda ct, y, x: [ct],
    jvp=lambda tangents, y, operands: None if tangents[0] is None else to_device(tangents[0]),
    samples=[Sample(((2, 3),)), Sample(((0, 4),))],
    doc="x on the device of the op; placement makes it a copy where x is elsewhere, and nothing where it is there.",
)


def to_device(x: Any) -> Array:
    """`x` on the device of the code around."""
    return bind(_to, [as_array(x)])
