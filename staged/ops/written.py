"""The value that is written into an array, or added at places of it: it takes the array's dtype, or is refused."""

from __future__ import annotations

from typing import Any

from staged.ir.types import TensorType
from staged.ops.array import Array, StagedArray
from staged.ops.dtypes import result_dtype
from staged.ops.number_list import NumberList
from staged.ops.promote import adopted, constant, dtype_error, filled, handle, is_number, plain_number, wider_hint


def as_written(x: Array, value: Any, verb: str = "write") -> Array:
    """`value` with x's dtype. Raises: DTypeError where that has not all of its values, as f32 has not of f64.

    Scalars of Python and NumPy are converted, but a float is not written into integers.
    """
    new = handle(plain_number(value))
    if is_number(new):
        if isinstance(new, float) and not x.dtype.is_inexact:
            raise dtype_error(f"cannot {verb} the float {new} into {x.type}", x, hint="cast the array or the number")
        return constant(new, TensorType(x.dtype))
    if isinstance(new, NumberList):
        if new.type.dtype.is_float and not x.dtype.is_inexact:
            raise dtype_error(f"cannot {verb} floats into {x.type}", x, hint="cast the array or the numbers")
        return filled(new, x.dtype)
    if new.dtype is not x.dtype:
        joined, _ = result_dtype([new.type, x.type])
        cut = new.dtype.is_inexact and not x.dtype.is_inexact
        if joined is not x.dtype and (cut or not new.type.weak):
            cast_it = f"`st.astype(v, st.{x.dtype})`"
            name = (x.value.hint if isinstance(x, StagedArray) else "") or "the array"
            hint = wider_hint(name, x, new, f"{cast_it} would round what is written") or f"cast it: {cast_it}"
            raise dtype_error(f"cannot {verb} {new.type} into {x.type}", x, new, hint=hint)
    return adopted(new, x.dtype)
