"""`Plain`: a NumPy array with the promotion rules that docs/ops.md states, and the operators of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BF16)
RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def kind_of(dtype: Any) -> str:
    """NumPy's letter for the kind of a dtype; bf16 is a float, of which NumPy does not know."""
    return "f" if dtype == BF16 else dtype.kind


def widest_of(x: Any) -> Any:
    """An array in f64, or c128."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def part_of(dtype: Any) -> Any:
    """The dtype of the real part."""
    return np.zeros((), dtype).real.dtype


def complex_of(dtype: Any) -> Any:
    """The complex dtype of parts of a float dtype: of f16 and bf16 it is that of f32."""
    return np.result_type(dtype if Precision.half is None else np.float64, np.complex64)


def squared(x: Any) -> Any:
    """The square of the absolute value."""
    return (x * np.conj(x)).real


class Precision:
    """The dtype that `f32` stands for: float64 while derivatives are approximated by differences."""

    single: Any = np.dtype(np.float32)
    half: Any = None
    """The dtype of 16 bits that float32 stands for, while `single` is float64: results are rounded to it at the end."""
    is_wide = False
    """Whether arrays of float64 stand for ones of f32."""
    equalities: list[Any] | None = None
    """The results of each `==` and `!=` of floats, while they are noted."""


class Plain:
    """A NumPy array; `weak` where it is as flexible as a Python number: it adopts the dtype of the array it meets."""

    __slots__ = ("a", "weak")
    __array_priority__ = 2000

    def __init__(self, a: Any, weak: bool = False) -> None:
        self.a = np.asarray(a)
        self.weak = weak

    @property
    def shape(self) -> tuple[int, ...]:
        return self.a.shape

    @property
    def dtype(self) -> Any:
        return self.a.dtype

    @property
    def ndim(self) -> int:
        return self.a.ndim

    @property
    def size(self) -> int:
        return self.a.size

    @property
    def T(self) -> Plain:
        return FUNCTIONS["matrix_transpose"](self)

    mT = T  # noqa: N815 (the name in the language)

    def __bool__(self) -> bool:
        return bool(self.a)

    def __index__(self) -> int:
        return int(self.a)

    def __len__(self) -> int:
        return len(self.a)

    def __iter__(self) -> Iterator[Plain]:
        return iter([Plain(row) for row in self.a])

    def __getitem__(self, key: Any) -> Plain:
        return Plain(self.a[bare(key)])

    def __repr__(self) -> str:
        return f"Plain({self.a!r}{', weak' if self.weak else ''})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = FUNCTIONS[name]
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    __hash__ = None  # type: ignore[assignment]


FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The reading of each public function, as `tests/rows` enters them: `exp`, `linalg.det`, `nn.Linear`."""


def _operator(name: str) -> None:
    setattr(Plain, f"__{name}__", lambda self, other: FUNCTIONS[OPERATORS[name]](self, other))
    setattr(Plain, f"__r{name}__", lambda self, other: FUNCTIONS[OPERATORS[name]](other, self))


OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
for _name in OPERATORS:
    _operator(_name)
for _name, _function in (("neg", "negative"), ("abs", "abs"), ("invert", "bitwise_invert")):
    setattr(Plain, f"__{_name}__", lambda self, _function=_function: FUNCTIONS[_function](self))
Plain.__pos__ = lambda self: self  # type: ignore[attr-defined]


def plain(x: Any) -> Plain:
    """A `Plain` of an array, a number (weak) or a nested list."""
    if isinstance(x, Plain):
        return Plain(x.a, x.weak)
    if isinstance(x, bool | int | float | complex):
        if isinstance(x, int) and not -(2**63) <= x < 2**63:
            raise OverflowError(f"{x} is no i64")
        return Plain(np.asarray(x), weak=True)
    if isinstance(x, list | tuple):
        if any(isinstance(item, Plain) for item in x):
            return FUNCTIONS["stack"](list(x))
        data = np.asarray([bare(item) for item in x])
        return Plain(data.astype(Precision.single) if data.dtype == np.float64 or not data.size else data)
    return Plain(np.asarray(x))


def bare(x: Any) -> Any:
    """The argument for NumPy: the array of a `Plain`; the same inside of tuples, lists and slices."""
    if isinstance(x, Plain):
        return x.a if x.a.ndim else x.a[()]
    if isinstance(x, tuple):
        return tuple(bare(item) for item in x)
    if isinstance(x, list):
        return [bare(item) for item in x]
    if isinstance(x, slice):
        return slice(*(None if part is None else int(bare(part)) for part in (x.start, x.stop, x.step)))
    return x


def common(*operands: Any) -> tuple[Any, bool]:
    """The dtype of operands together, and whether all are weak."""
    arrays = [plain(x) for x in operands]
    strong = [x.dtype for x in arrays if not x.weak]
    weak = [x.dtype for x in arrays if x.weak]
    if not strong:
        found = weak[0]
        for other in weak[1:]:
            found = _pair(found, other)
        return found, True
    found = strong[0]
    for other in strong[1:]:
        found = _pair(found, other)
    for other in weak:
        if RANK[other.kind] > RANK[found.kind]:
            found = default_of(other.kind, found)
    return found, False


def default_of(kind: str, beside: Any) -> Any:
    """The dtype of a Python number of this kind beside an array of numbers below it."""
    if kind == "c":
        return complex_of(beside if beside.kind == "f" else Precision.single)
    return Precision.single if kind == "f" else np.dtype(np.int64)


def _pair(a: Any, b: Any) -> Any:
    if "c" in (a.kind, b.kind):
        return complex_of(np.result_type(*(x if x.kind in "fc" else Precision.single for x in (a, b))))
    if RANK[a.kind] != RANK[b.kind]:
        return a if RANK[a.kind] > RANK[b.kind] else b
    return np.promote_types(a, b)


def as_float(dtype: Any, weak: bool) -> Any:
    """The float or complex dtype in which functions of floats work."""
    if dtype.kind in "fc":
        return dtype
    return np.dtype(np.float64) if weak else Precision.single


def strong(x: Plain, filled: bool = True) -> Plain:
    """A number that fills an array: floats get the default float."""
    return Plain(x.a.astype(Precision.single) if x.a.dtype == np.float64 and x.weak else x.a)


def together(*operands: Any, floats: bool = False) -> tuple[list[Any], bool]:
    """The arrays in their common dtype, and whether the result is weak. Raises OverflowError for a number that does not
    fit.
    """
    arrays = [plain(x) for x in operands]
    dtype, weak = common(*arrays)
    if floats:
        dtype = as_float(dtype, weak)
    return [x.a.astype(dtype) if weak else adopted(x, dtype) for x in arrays], weak and all(x.ndim == 0 for x in arrays)


def adopted(x: Plain, dtype: Any) -> Any:
    """The array in the dtype that a number adopts. Raises OverflowError where that has not such a number."""
    if x.weak and x.dtype.kind == "i" and dtype.kind in "iu":
        return np.asarray(x.a.tolist(), dtype)  # NumPy refuses what does not fit
    return x.a.astype(dtype)


def dtype_of(dtype: Any) -> Any:
    """The dtype meant. f32 may stand for another."""
    found = np.dtype(dtype)
    if found in HALVES and (Precision.half or Precision.is_wide):
        return np.dtype(np.float32) if Precision.half else Precision.single
    return {"float32": Precision.single, "complex64": np.result_type(Precision.single, np.complex64)}.get(found.name, found)


def wide(x: Any) -> tuple[Any, Any]:
    """The operand in f64, and the float dtype of the result."""
    array = plain(x)
    dtype = as_float(array.dtype, array.weak)
    return widest_of(array.a.astype(dtype)), dtype


def widest(dtype: Any) -> Any:
    """The dtype of sums of integers and bools."""
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


class Variable(Plain):
    """A place that a program writes."""

    __slots__ = ("name",)

    def __init__(self, value: Any, name: str | None = None) -> None:
        found = plain(value)
        super().__init__(found.a.copy() if not found.weak else strong(found).a.copy())

    def numpy(self) -> Any:
        return self.a.copy()

    @property
    def value(self) -> Plain:
        return Plain(self.a.copy())

    @value.setter
    def value(self, value: Any) -> None:
        self.a = np.broadcast_to(plain(value).a, self.a.shape).astype(self.a.dtype)
