"""Dimensions whose size is known when the program runs: the ops that bind one and read its value.

`dim` checks a count and binds a `Dim` to it for its block: types may mention the Dim from there on. `extent` is its
value as a number, for code that knows an array by its shape alone (a mean, a derivative).
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np

from staged.errors import DTypeError, ProgramValueError, ShapeError
from staged.ir.nodes import FAIL
from staged.ir.size_questions import Question
from staged.ir.sizes import Dim, Extent, Extreme, Polynomial, Quotient, Size, numbers, product
from staged.ir.trips import size_of
from staged.ir.types import Shape, TensorType, f32, i64
from staged.ops.array import Array, StagedArray, functions
from staged.ops.context import bind
from staged.ops.primitive import BadSample, Primitive, Sample, primitive

COUNT = TensorType(i64, (), weak=True)
"""The type of a dimension's value: a staged Python int."""
_SAMPLE = Dim("N", max=4)


def check_size(name: str, value: int, most: int, least: int = 0) -> None:
    """Raise ProgramValueError where `value` is not one that the dimension may have."""
    if not least <= value <= most:
        raise ProgramValueError(f"dimension `{name}` is {value}, it may be {least} to {most}")


def _infer_dim(count: TensorType, dim: Dim, most: int, least: int = 0) -> TensorType:
    if count.shape or not count.dtype.is_integer:
        raise DTypeError(
            f"the size of dimension `{dim.name}` is an integer scalar, got {count}",
            hint="cast it: `st.astype(n, st.i64)`",
        )
    if most < 1:
        raise ShapeError(f"dimension `{dim.name}` has room for {most} elements", hint="give `max` of at least 1")
    return COUNT


def _size(count: np.ndarray[Any, Any], dim: Dim, most: int, least: int = 0) -> np.ndarray[Any, Any]:
    check_size(dim.name, int(count), most, least)
    return np.asarray(count, dtype=np.int64)


dim_op: Primitive = primitive(
    name="dim",
    kind="size",
    infer=_infer_dim,
    reference=_size,
    effects=FAIL,
    samples=[Sample((np.array(3),), {"dim": _SAMPLE, "most": 4}, dtypes=(i64,))],
    bad=[
        BadSample((TensorType(f32),), DTypeError, "integer scalar", {"dim": _SAMPLE, "most": 4}),
        BadSample((TensorType(i64, (2,)),), DTypeError, "integer scalar", {"dim": _SAMPLE, "most": 4}),
        BadSample((TensorType(i64),), ShapeError, "room for 0", {"dim": _SAMPLE, "most": 0}),
    ],
    doc="Binds a symbolic dimension to a count; stops the program where it is below `least` or above `most`.",
    why_not_differentiable="its result is a size",
)


extent_op: Primitive = primitive(
    name="extent",
    kind="size",
    infer=lambda dim: COUNT,
    reference=lambda dim: np.asarray(dim, dtype=np.int64),
    samples=[Sample((), {"dim": 3})],
    doc="The value of a symbolic dimension that is bound around it (of an int: itself).",
    why_not_differentiable="its result is a size",
)


class NumberOfElements(Array):
    """The number of elements of an array with dimensions."""

    __slots__ = ("shape_of",)

    shape_of: Shape


def as_extent(x: Any) -> Extent | None:
    """An int, a size or its value as the size of an axis; None for anything else."""
    if isinstance(x, Size):
        return x
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return int(x)
    if isinstance(x, NumberOfElements):
        return product(x.shape_of)
    return size_of(x.value) if isinstance(x, StagedArray) and x.type == COUNT else None


def is_size(x: Any) -> bool:
    """Whether a value of a program is the size of an axis, which is an int in Python."""
    return type(x) is StagedArray and isinstance(as_extent(x), Size)


def size_number(extent: Extent) -> Any:
    """A size as an integer: a Python int, or one of the program that is being recorded."""
    match extent:
        case Dim():
            return bind(extent_op, [], dim=extent)
        case Quotient(size, divisor):
            return size_number(size) // divisor
        case Extreme(name, sizes):
            combine = functions.minimum if name == "min" else functions.maximum
            return reduce(combine, map(size_number, sizes))
        case Polynomial(terms):
            return sum(reduce(operator.mul, [*map(size_number, monomial), factor]) for monomial, factor in terms)
    return extent


def real_number(extent: Extent) -> Any:
    """A size as a float of Python, or as a number of the program that is being recorded."""
    return float(extent) if isinstance(extent, int) else size_number(extent) * 1.0


def answer(question: Question) -> Any:
    """The answer to a comparison of sizes, as a bool of the program that is being recorded."""
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[question.sign]
    return compare(size_number(question.left), size_number(question.right))


numbers.append(size_number)
