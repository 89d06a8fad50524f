"""Types of values: dtype and shape, where a dimension is an int or a symbol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import ml_dtypes
import numpy as np

from staged.errors import SMALLER, TOO_LARGE, ProgramMemoryError, ShapeError, StagingError
from staged.ir.sizes import Dim, Extent, dims_in, value_of
from staged.source import Position, here, warn

DTypeKind = Literal["f", "i", "u", "c", "b"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. `kind` is 'f' float, 'c' complex, 'i' signed, 'u' unsigned, 'b' bool; `size` is in bytes.

    A complex number is two floats in memory, as in NumPy and C; `c_name` is the type of one of them.

    NumPy accepts it as a dtype (`np.zeros(3, dtype=st.f32)`), and it equals NumPy's dtype, scalar type and name with
    the same bits.
    """

    name: str
    kind: DTypeKind
    size: int
    c_name: str

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype with the same bits."""
        return _NUMPY[self.name]

    @property
    def dtype(self) -> np.dtype[Any]:
        """`numpy`: NumPy reads this attribute of objects that represent a dtype."""
        return self.numpy

    @property
    def itemsize(self) -> int:
        """`size` by NumPy's name."""
        return self.size

    @property
    def byteorder(self) -> str:
        """The machine's, in NumPy's letters."""
        return self.numpy.byteorder

    @property
    def type(self) -> Any:
        """NumPy's scalar type."""
        return self.numpy.type

    @property
    def c_bytes(self) -> str:
        """The bytes of an element as an expression of C."""
        return f"{'2 * ' if self.is_complex else ''}sizeof({self.c_name})"

    @property
    def is_float(self) -> bool:
        """Return whether it is a float: f16, bf16, f32 or f64."""
        return self.kind == "f"

    @property
    def is_half(self) -> bool:
        """Return whether it is f16 or bf16: floats that are stored, moved and converted, and computed with in f32.

        Their `c_name` is that of their bits.
        """
        return self.kind == "f" and self.size == 2

    @property
    def is_complex(self) -> bool:
        """Return whether it is c64 or c128."""
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Return whether it is a float or complex: what has derivatives."""
        return self.kind in "fc"

    @property
    def part(self) -> DType:
        """The dtype of the real and of the imaginary part: f32 of c64; itself, if it is no complex one."""
        return _PARTS.get(self.name, self)

    @property
    def natural(self) -> DType:
        """The dtype that a Python number of this one takes in an array of its own: f32 of f64, c64 of c128."""
        return _NATURAL.get(self, self)

    @property
    def is_integer(self) -> bool:
        """Return whether it is an integer, signed or not."""
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        """Return whether it is bool."""
        return self.kind == "b"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, np.dtype | str) or (isinstance(other, type) and issubclass(other, np.generic)):
            return dtype_of(other) is self
        if other is float or other is complex:
            given, default = (f64, f32) if other is float else (c128, c64)
            if self is default:
                warn(f"`{self} == {other.__name__}` is False, as in NumPy: write `x.dtype == st.{default}`", here())
            return self is given
        if is_of_torch(other, "dtype"):
            return dtype_of(str(other).removeprefix("torch.")) is self
        return (other is int or other is bool) and dtype_of(other) is self

    def __hash__(self) -> int:
        return hash(_NUMPY[self.name])  # as that of NumPy's dtype, which is equal

    def __reduce__(self) -> str:
        """The name in this module: copies and pickles restore the one object, since dtypes are compared by `is`."""
        return "bool_" if self.kind == "b" else self.name


f16 = DType("f16", "f", 2, "uint16_t")
bf16 = DType("bf16", "f", 2, "uint16_t")
f32 = DType("f32", "f", 4, "float")
f64 = DType("f64", "f", 8, "double")
i8 = DType("i8", "i", 1, "int8_t")
i16 = DType("i16", "i", 2, "int16_t")
i32 = DType("i32", "i", 4, "int32_t")
i64 = DType("i64", "i", 8, "int64_t")
u8 = DType("u8", "u", 1, "uint8_t")
u16 = DType("u16", "u", 2, "uint16_t")
u32 = DType("u32", "u", 4, "uint32_t")
u64 = DType("u64", "u", 8, "uint64_t")
c64 = DType("c64", "c", 8, "float")
c128 = DType("c128", "c", 16, "double")
bool_ = DType("bool", "b", 1, "bool")

DTYPES = {dtype.name: dtype for dtype in (f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_, f16, bf16, c64, c128)}
FLOAT_DTYPES = tuple(dtype for dtype in DTYPES.values() if dtype.is_float and not dtype.is_half)
"""The floats that are computed with."""
HALF_DTYPES = tuple(dtype for dtype in DTYPES.values() if dtype.is_half)
"""The floats that are computed with in f32."""
INTEGER_DTYPES = tuple(dtype for dtype in DTYPES.values() if dtype.is_integer)
NUMBER_DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES)
ALL_DTYPES = (*NUMBER_DTYPES, bool_)
"""The dtypes that are computed with. Complex numbers are pairs of floats there (`passes/split_complex.py`)."""
STORED_DTYPES = (*ALL_DTYPES, *HALF_DTYPES)
"""The dtypes of arrays."""
COMPLEX_DTYPES = tuple(dtype for dtype in DTYPES.values() if dtype.is_complex)
_NUMPY: dict[str, np.dtype[Any]] = {
    dtype.name: np.dtype(f"{dtype.kind}{dtype.size}" if not dtype.is_bool else "?")
    for dtype in (*ALL_DTYPES, *COMPLEX_DTYPES)
} | {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
COMPLEX_OF = {f16: c64, bf16: c64, f32: c64, f64: c128}
"""The complex dtype of parts of a float dtype."""
_NATURAL = {f64: f32, c128: c64}
_PARTS = {"c64": f32, "c128": f64}
DTYPE_WORDS = f"{', '.join(dtype.name for dtype in (*HALF_DTYPES, *NUMBER_DTYPES, *COMPLEX_DTYPES))} and bool"
"""The names of all dtypes, for messages."""
_FROM_NUMPY = {numpy_dtype: DTYPES[name] for name, numpy_dtype in _NUMPY.items()}


def dtype_of(dtype: Any) -> DType | None:
    """Our dtype for a DType, a name ('f32', 'float32'), a NumPy dtype or a Python number type; None if there is
    none.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if dtype is float:
        return f32
    if dtype is int:
        return i64
    if dtype is bool:
        return bool_
    if dtype is complex:
        return c64
    try:
        return _FROM_NUMPY.get(np.dtype(dtype))
    except (TypeError, ValueError, SyntaxError):  # NumPy reads a text such as "(2," as Python
        return None


Shape = tuple[Extent, ...]
ExtentT = TypeVar("ExtentT", int, Extent)


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype + shape; `weak` marks a staged Python number (a 0-d f64, i64, c128 or bool), which adopts the dtype of the
    other operand.
    """

    dtype: DType
    shape: Shape = ()
    weak: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Return whether every extent is an int."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def size(self) -> int:
        """Number of elements (an upper bound where a dimension is symbolic; its `max` must be known)."""
        return math.prod(bound(extent) for extent in self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    @property
    def is_addressable(self) -> bool:
        """Return whether its strides, in bytes, are integers of 64 bits. NumPy counts sizes of 0 as 1."""
        return math.prod(max(bound(extent), 1) for extent in self.shape) * self.dtype.size < 2**63

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype} {shape_text(self.shape)}" + (" weak" if self.weak else "")


def located_size_error(name: str, types: Sequence[TensorType], error: Exception, where: Position | None) -> Exception:
    """The error at the user's line for NumPy's error about a size or memory; another error of NumPy is unchanged."""
    wrong = next((type for type in types if not type.is_addressable), None)
    if wrong is not None:
        return ShapeError(TOO_LARGE.format(wrong), where=where, hint=SMALLER)
    return (
        ProgramMemoryError(f"{name}: {error}", where=where, hint=SMALLER) if isinstance(error, MemoryError) else error
    )


@dataclass(frozen=True, slots=True)
class SequenceType:
    """Values collected once per loop iteration, read by index: the residuals of a loop.

    `bound` is the largest number of elements where the trip count has one. An element that is itself a sequence is the
    inner loop's range of one shared store.
    """

    element: TensorType | SequenceType | FrameType
    bound: int | None = None

    def __str__(self) -> str:
        return f"[{self.element} x {'?' if self.bound is None else self.bound}]"


@dataclass(frozen=True, slots=True)
class FrameType:
    """The record that one call of a differentiated function leaves for its reverse, on a last-in-first-out store.

    Its fields are those of the `FrameRecord` of this name that the program lists. Frames may hold frames, so the type
    of a recursive function's frame is finite.
    """

    name: str

    def __str__(self) -> str:
        return f"frame {self.name}"


Type = TensorType | SequenceType | FrameType


def row_major(*extents: ExtentT) -> tuple[ExtentT, ...]:
    """Strides, in elements, of a dense row-major array: (12, 4, 1) for (2, 3, 4), (4 * N, 4, 1) for (2, N, 4)."""
    strides: list[ExtentT] = []
    step: ExtentT = 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def bound(extent: Extent) -> int:
    """The extent; for a symbolic one the number of elements that memory is reserved for, at least 2.

    At least 2, so that no part of the compiler takes the axis for one of a single element, which needs no loop.
    """
    if isinstance(extent, int):
        return extent
    most = extent.bounds[1]
    assert not math.isinf(most), f"{extent} has no bound"
    return max(int(most), 2)


def dims_of(type: Type) -> tuple[Dim, ...]:
    """The symbolic dimensions that a type mentions, in order."""
    while isinstance(type, SequenceType):
        type = type.element
    if not isinstance(type, TensorType):
        return ()
    return tuple(dict.fromkeys(dim for extent in type.shape for dim in dims_in(extent)))


def with_sizes(type: TensorType, sizes: Mapping[Dim, int]) -> TensorType:
    """The type where dimensions have these sizes."""
    return TensorType(type.dtype, tuple(value_of(extent, sizes) for extent in type.shape), type.weak)


def shape_text(shape: Sequence[object]) -> str:
    """A shape as Python writes a tuple: `()`, `(3,)`, `(3, 4)`."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def is_of_torch(value: Any, name: str) -> bool:
    """Return whether a value is torch's object of this class: `dtype` or `device`."""
    return type(value).__name__ == name and type(value).__module__ == "torch"


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device: a kind ('cpu' is the host, 'gpu', or another one that a back end has) and a number.

    It equals its name, as `x.device == "cpu"` is true in NumPy, and the device of torch.
    """

    kind: str
    index: int = 0

    def __call__(self, index: int) -> Device:
        """The device number `index` of this kind: `GPU(1)` is the second GPU."""
        if isinstance(index, bool) or not isinstance(index, int) or index < 0 or (self.kind == CPU.kind and index):
            what = "there is one CPU" if self.kind == CPU.kind else f"{self.kind.upper()}s are numbered from 0"
            raise StagingError(
                f"{what}, got {self.kind.upper()}({index!r})", where=here(), hint=f"`{self.kind.upper()}` or `GPU(1)`"
            )
        return Device(self.kind, index)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return self.kind == other.kind and self.index == other.index
        if not isinstance(other, str) and not is_of_torch(other, "device"):
            return False
        kind, _, index = str(other).partition(":")
        return str(self) == other or (self.kind == _TORCH_KINDS.get(kind, kind) and str(self.index) == (index or "0"))

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}({self.index})"


CPU = Device("cpu")
_TORCH_KINDS = {"cuda": "gpu"}
