"""A Python integer beside an array of integers that may be too narrow for it.

Arithmetic has the array's dtype, and a number known while staging that does not fit it is refused. A number of the
running program cannot be: where its low bits alone do not decide the result, the op is done in i64, which has them all.
"""

from __future__ import annotations

from typing import Any

from staged.ir.numbers import limits
from staged.ir.types import DType, TensorType, i64
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.number_list import NumberList
from staged.ops.promote import broadcast, cast, constant, handle, is_number, type_of


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


def widened(a: Any, b: Any) -> tuple[Any, Any, DType | None]:
    """The operands with the array in i64, and its own dtype for the result, beside an integer of the running program.

    The operands as they are and None where nothing is to be widened. No integer is wider than u64: beside it, a number
    below 0 wraps around.
    """
    left, right = handle(a), handle(b)
    dtype = _narrow_dtype(left, right)
    number, array = (left, right) if type_of(left).weak else (right, left)
    if dtype is None or dtype.size == i64.size or not isinstance(number, Array):
        return left, right, None
    wide = cast(array, i64)
    return (number, wide, dtype) if number is left else (wide, number, dtype)


def comparable(a: Any, b: Any) -> tuple[Any, Any, None]:
    """Operands that compare as `a` and `b`, and None: numbers that the array's dtype does not hold are compared as
    they are.

    So do NumPy and the Array API with Python's numbers: no element of u8 equals 256, and all are less.
    """
    left, right = handle(a), handle(b)
    dtype = _narrow_dtype(left, right)
    if dtype is None:
        return left, right, None
    if type_of(left).weak:
        array, number = _comparable(right, left, dtype)
        return number, array, None
    return *_comparable(left, right, dtype), None


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
    return where(negative, 1, array), where(negative, 0, number)
