"""The arguments of a program: how C lays them out, and what of Python's fits them.

A call that finds nothing to convert goes past this (`native.py`, `prepared.py`). Tested by
`tests/runtime/test_native.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from staged.base.artifact import Parameter, event_fields, in_struct_order
from staged.errors import DTypeError, ProgramOverflowError, ShapeError, StagedError
from staged.ir.types import DTYPES
from staged.runtime.guard import ffi

# NumPy's flag bits: an array whose memory a program can read as it is, and one that it can write too.
READABLE = 0x0101  # C-contiguous and aligned
WRITABLE = 0x0501  # and writable
POINTER = ffi.sizeof("void *")


@dataclass(frozen=True, slots=True)
class ArgumentPlan:
    """One parameter, prepared: `index` is its word of the argument struct (arrays) or its cell (scalars)."""

    parameter: Parameter
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None  # None where a dimension is symbolic
    index: int
    is_scalar: bool
    is_variable: bool
    needed_flags: int
    is_remote: bool
    """True if it is on a device: the value is an object with its `address` there."""


@dataclass(frozen=True, slots=True)
class ArgumentLayout:
    """The argument struct as C lays it out, in bytes; the offsets are in parameter order."""

    size: int
    offsets: tuple[int, ...]
    arrivals: int | None
    """The word of the events that the program waits for, if it has this field."""
    departure: int | None
    """The word of the event that the program records. The word of its report is the next one."""


def bytes_of(plan: ArgumentPlan) -> int:
    assert plan.shape is not None
    return plan.dtype.itemsize * math.prod(plan.shape)


def lay_out(parameters: Sequence[Parameter], departs: bool = False) -> ArgumentLayout:
    offsets, end = dict[str, int](), 0
    for parameter in in_struct_order(parameters):
        size = DTYPES[parameter.dtype].size if is_by_value(parameter) else POINTER
        end = -(-end // size) * size
        offsets[parameter.place] = end
        end += size
    end = -(-end // POINTER) * POINTER
    fields = event_fields(parameters, departs)
    arrivals = end // POINTER if fields.arrivals else None
    departure = end // POINTER + 1 if fields.departure else None
    more = sum(map(bool, (fields.arrivals, fields.departure, fields.report)))
    in_order = tuple(offsets[parameter.place] for parameter in parameters)
    return ArgumentLayout(max(end + POINTER * more, POINTER), in_order, arrivals, departure)


def is_by_value(parameter: Parameter) -> bool:
    return parameter.scalar and parameter.role == "input"


class _HalfCell:
    """The place of one f16 or bf16, which C knows as its bits: numbers are written to it as to the others' places."""

    def __init__(self, address: Any, dtype: np.dtype[Any]) -> None:
        self.bits = ffi.cast("uint16_t *", address)
        self.dtype = dtype

    def __setitem__(self, index: int, value: Any) -> None:
        if not isinstance(value, int | float | np.number | self.dtype.type):
            raise TypeError(f"a number is needed, got {type(value).__name__}")
        self.bits[index] = int(np.asarray(value, self.dtype).view(np.uint16))


def cell_of(parameter: Parameter, address: Any) -> Any:
    """The place of a number in the argument struct: `cell[0] = x` converts `x` to its dtype."""
    dtype = DTYPES[parameter.dtype]
    return _HalfCell(address, dtype.numpy) if dtype.is_half else ffi.cast(f"{dtype.c_name} *", address)


def fitting(plan: ArgumentPlan, value: Any) -> np.ndarray[Any, Any]:
    """`value` as memory that the program can use: itself where it fits, else a copy."""
    parameter = plan.parameter
    if plan.is_variable and not isinstance(value, np.ndarray):
        raise DTypeError(f"the variable `{parameter.label}` must be a NumPy array, got {type(value).__name__}")
    array: np.ndarray[Any, Any] = np.asanyarray(value)
    if array.dtype != plan.dtype and array.dtype.newbyteorder("=") != plan.dtype:
        raise DTypeError(f"`{parameter.label}` must be {parameter.dtype}, got {array.dtype}")
    shape = parameter.shape
    if len(shape) != array.ndim or any(
        isinstance(wanted, int) and wanted != extent for wanted, extent in zip(shape, array.shape, strict=True)
    ):
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ShapeError(f"`{parameter.label}` must have shape ({wanted}), got {array.shape}")
    if plan.is_variable and not array.flags.writeable:
        raise StagedError(
            f"the variable `{parameter.label}` is read-only memory", hint="make it with a copy of the array"
        )
    if array.dtype.isnative and array.flags.num & plan.needed_flags == plan.needed_flags:
        return array
    copy: np.ndarray[Any, Any] = np.array(array, dtype=plan.dtype, order="C", copy=True, subok=False)
    return copy


def size_value(text: str, sizes: Mapping[str, int]) -> int:
    """The value of a size: an expression over dimensions, in Python."""
    known = sizes.get(text)
    return int(eval(_compiled(text), _FUNCTIONS, dict(sizes))) if known is None else known


_FUNCTIONS = {"__builtins__": {"min": min, "max": max}}


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<size>", "eval")


def scalar_of(parameter: Parameter, value: Any) -> Any:
    """A number of the parameter's dtype from a NumPy scalar or 0-d array; one whose value would change is refused."""
    dtype = DTYPES[parameter.dtype].numpy
    array = np.asarray(value)
    if array.shape != () or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise DTypeError(f"`{parameter.label}` must be one {parameter.dtype} number, got {value!r}")
    item = array.item()
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= item <= np.iinfo(dtype).max:
        raise ProgramOverflowError(f"`{parameter.label}` must fit {parameter.dtype}, got {item}")
    return item
