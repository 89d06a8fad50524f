"""The parts of the Python Array API standard that are no functions of arrays: constants, names and limits of dtypes,
questions about them, and the inspection of the namespace. All of it is known while staging.

Source: the standard, 2024.12, sections constants, data type functions and inspection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from staged.errors import ArgumentError, DTypeError
from staged.ir.numbers import limits
from staged.ir.types import (
    ALL_DTYPES,
    COMPLEX_DTYPES,
    CPU,
    Device,
    DType,
    TensorType,
    bf16,
    bool_,
    c64,
    c128,
    dtype_of,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from staged.ops.array import Array
from staged.ops.dtypes import promote_dtypes, result_dtype
from staged.ops.promote import check_dtype, handle, type_of
from staged.ops.source import asarray
from staged.source import here

float16, bfloat16, float32, float64 = f16, bf16, f32, f64
complex64, complex128 = c64, c128
int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
e, inf, nan, pi = math.e, math.inf, math.nan, math.pi

VERSION = "2024.12"


@dataclass(frozen=True)
class FInfo:
    """The limits of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _own_dtype(type: Any) -> DType:
    """The dtype of an array, or the one that is named."""
    value = getattr(type, "dtype", type) if not isinstance(type, DType | str) else type
    return check_dtype(value)


def finfo(type: Any, /) -> FInfo:
    """The limits of a float dtype, or of an array's, as Python numbers; of a complex one those of its parts.

    Array API `finfo`. Raises DTypeError for other dtypes.
    """
    dtype = _own_dtype(type)
    dtype = dtype.part
    if not dtype.is_float:
        raise DTypeError(f"finfo is of a float dtype, got {dtype}", where=here(), hint=f"`st.iinfo({dtype})`")
    of: Any = ml_dtypes if dtype.is_half else np
    known = of.finfo(dtype.numpy)
    least, largest, lowest = float(known.smallest_normal), float(known.max), float(known.min)
    return FInfo(int(known.bits), float(known.eps), largest, lowest, least, dtype)


def iinfo(type: Any, /) -> IInfo:
    """The limits of an integer dtype, or of an array's. Array API `iinfo`; a DTypeError for others."""
    dtype = _own_dtype(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo is of an integer dtype, got {dtype}", where=here())
    low, high = limits(dtype)
    return IInfo(dtype.size * 8, high, low, dtype)


_KINDS: dict[str, str] = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind. Array API `isdtype`.

    A kind is a word of the standard ("real floating", "integral", ...), a dtype, or a tuple of these.
    """
    own = check_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(own, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return own.kind in _KINDS[kind]
    if isinstance(kind, str) and dtype_of(kind) is None:
        listed = ", ".join(f'"{word}"' for word in _KINDS)
        raise ArgumentError(f"isdtype: there is no kind {kind!r}", where=here(), hint=f"the kinds are {listed}")
    return own is check_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of arrays, dtypes and Python numbers together. Array API `result_type`.

    Numbers are weak: they adopt the dtype of the rest, where it can be (see the guide's rules of promotion).
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type needs at least one array or dtype", where=here())
    types = []
    for each in arrays_and_dtypes:
        found = (
            None
            if isinstance(each, Array | bool | int | float | complex | list | tuple | np.ndarray)
            else dtype_of(each)
        )
        types.append(type_of(handle(each)) if found is None else TensorType(found))
    dtype, weak = result_dtype(types)
    return dtype.natural if weak else dtype


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether `from_`, a dtype or an array, becomes `to` by promotion; not where the two have no common dtype.
    Array API `can_cast`.
    """
    wanted = check_dtype(to)
    try:
        return promote_dtypes(_own_dtype(from_), wanted) is wanted
    except DTypeError:
        return False


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array with the elements of another library's, by DLPack. Array API `from_dlpack`.

    The elements are copied, so that later writes are not seen; `copy=False`, which forbids it, is refused.
    """
    if device not in (None, CPU, "cpu"):
        raise ArgumentError(
            f"from_dlpack makes arrays of the host, got device={device!r}", where=here(), hint="`st.to(x, device)`"
        )
    if copy is False:
        raise ArgumentError("from_dlpack copies: arrays are values", where=here(), hint="leave `copy` out")
    return asarray(np.array(np.from_dlpack(x), copy=True))


class NamespaceInfo:
    """The abilities of the namespace. Array API `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """Masks in indices and shapes that depend on elements: in eager mode; a program has fixed or bounded sizes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of arrays that are made without a word about it."""
        return CPU

    def devices(self) -> list[Device]:
        """The devices of arrays in plain Python; code runs elsewhere in regions."""
        return [CPU]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of numbers of each kind."""
        return {"real floating": f32, "complex floating": c64, "integral": i64, "indexing": i64}

    def dtypes(self, *, device: Any = None, kind: str | Sequence[str] | None = None) -> dict[str, DType]:
        """All dtypes of a kind by the names of the standard, which has no f16 and bf16."""
        found = {"bool" if one is bool_ else one.numpy.name: one for one in (*ALL_DTYPES, *COMPLEX_DTYPES)}
        if kind is None:
            return found
        kinds = (kind,) if isinstance(kind, str) else tuple(kind)
        return {name: dtype for name, dtype in found.items() if isdtype(dtype, kinds)}


def array_namespace_info() -> NamespaceInfo:
    """The abilities of the namespace: `st.__array_namespace_info__()`."""
    return NamespaceInfo()
