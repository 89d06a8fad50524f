"""A Python integer beside an array of integers that may be too narrow for it.

Arithmetic has the array's dtype, which the number must fit: see `promote.adopted`. Comparisons, places among sorted
elements and the bounds of `clip` have a meaning for any number, and are done so that none is lost.
"""

from __future__ import annotations

from typing import Any

from staged.ir.numbers import limits
from staged.ir.types import DType, TensorType, i64
from staged.ops.array import Array, functions
from staged.ops.choice import where
from staged.ops.dtypes import result_dtype
from staged.ops.number_list import NumberList
from staged.ops.promote import broadcast, cast, constant, filled, handle, is_number, type_of


def settled(*operands: Any) -> list[Any]:
    """The operands as handles. Lists of numbers have the common dtype, all other operands keep their own."""
    found = [handle(operand) for operand in operands]
    if any(isinstance(each, NumberList) for each in found):
        dtype, weak = result_dtype([type_of(each) for each in found])
        dtype = dtype.natural if weak else dtype
        found = [filled(each, dtype) if isinstance(each, NumberList) else each for each in found]
    return found


def holding(ids: Array, number: int) -> Array:
    """Integers in a dtype that has this number too: their own, or i64."""
    return ids if number <= limits(ids.dtype)[1] else cast(ids, i64)


def _narrow_dtype(a: Any, b: Any) -> DType | None:
    """The dtype of an array of integers other than i64 that Python integers are beside; None for other operands."""
    one, other = type_of(a), type_of(b)
    strong, weak = (other, one) if one.weak else (one, other)
    if strong.weak or not weak.weak or weak.dtype is not i64 or not strong.dtype.is_integer:
        return None
    return None if strong.dtype is i64 else strong.dtype


def comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Operands that compare as `a` and `b`: numbers that the array's dtype does not hold are compared as they are.

    So do NumPy and the Array API with Python's numbers: no element of u8 equals 256, and all are less.
    """
    left, right = handle(a), handle(b)
    dtype = _narrow_dtype(left, right)
    if dtype is None:
        return left, right
    if type_of(left).weak:
        array, number = _comparable(right, left, dtype)
        return number, array
    return _comparable(left, right, dtype)


def _comparable(array: Array, number: Any, dtype: DType) -> tuple[Any, Any]:
    low, high = limits(dtype)
    numbers = [number] if is_number(number) else number.numbers() if isinstance(number, NumberList) else None
    if numbers is not None and all(is_number(one) and low <= one <= high for one in numbers):
        return array, number
    if is_number(number):
        # Larger or smaller than all elements, as it is than 0.
        return broadcast(constant(0, TensorType(i64, ())), array.shape), 1 if number > high else -1
    if dtype.size < i64.size:
        return cast(array, i64), number
    if isinstance(number, NumberList):
        return array, number  # refused: no dtype has all of these
    negative = number < 0  # all elements of u64 are larger
    return where(negative, 1, array), cast(where(negative, 0, number), dtype)


def reached(bound: Any, array: Array, is_upper: bool) -> Any:
    """A bound for the elements of `array`; one beyond all that its dtype has is the last one of these.

    As in NumPy: a u8 is never above 300, so that it is kept below 255.
    """
    number = handle(bound)
    dtype = _narrow_dtype(array, number) if type_of(number).weak and not isinstance(number, NumberList) else None
    if dtype is None:
        return number
    last = limits(dtype)[is_upper]
    if is_number(number):
        return min(number, last) if is_upper else max(number, last)
    if last > limits(i64)[1]:
        return number
    return (functions.minimum if is_upper else functions.maximum)(number, last)
