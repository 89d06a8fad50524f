"""`Array`: the overloaded handle that tracing, transforms, eager mode and composites share.

Its operators and methods call the functions of `staged.ops` as `functions.add`. The modules that declare them fill
this namespace, so that this file does not import these modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from staged.base.other_names import no_attribute, unknown_array_name
from staged.errors import LeakError, ShapeError, StagedValueError, UnknownAttributeError, article
from staged.ir.nodes import Value
from staged.ir.types import CPU, Device, DType, Shape, TensorType, shape_text
from staged.ops.annotation import ArrayAnnotation
from staged.ops.assumptions import refuse
from staged.source import here

if TYPE_CHECKING:
    import staged.ops.functions
    from staged.ops.array_methods import ArrayMethods

    functions = staged.ops.functions
else:
    functions = SimpleNamespace()
    """`functions.add` is the function `add`, for files that its module imports; type checkers read `functions.pyi`."""
    ArrayMethods = object

METHODS: dict[str, Callable[..., Any]] = vars(functions)
"""The functions behind operators and methods, by name: `add`, `matmul`, `sum`, `reshape`, `get_item`, ..."""

PUBLIC: list[str] = []
"""The names in `METHODS` that `st` has, in order of declaration; those of `st.random` as `random.uniform`."""

METHOD_NAMES: dict[str, str] = {}
"""By the name of a method of arrays, that of its function in `METHODS`: its own, or torch's word for it."""

NUMPY_NAMES: dict[str, str] = {}
"""By the name of a function of NumPy's, that of ours in `METHODS`."""

WORDS: dict[str, Callable[..., Any]] = {}
"""Functions that `torch_words`, `numpy_map` and `context` register for arrays.

`method` returns the function of a name or None, `missing` the hint for a name, `size` the size of a type, `numpy`
NumPy's attribute of an array or NotImplemented, `is_plain` whether the code around is plain Python.
"""


class Array(ArrayMethods):
    """An array of the language: its type is known, its elements may not be.

    Subclasses: `StagedArray` (a value of the program being recorded) and eager's, which holds a NumPy array.
    """

    __slots__ = ()
    __array_priority__ = 1000  # NumPy operators leave the choice to ours

    type: TensorType

    def __class_getitem__(cls, axes: Any) -> ArrayAnnotation:
        """`st.Array["N <= 512", 784]`: an annotation that declares the sizes of an argument's axes."""
        return ArrayAnnotation(axes if isinstance(axes, tuple) else (axes,))

    # ---- what is known while staging ----

    @property
    def shape(self) -> Shape:
        """The extents of the axes."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The type of an element."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> Any:
        """The number of elements; called as torch does, `x.size()` is the shape and `x.size(0)` an extent."""
        return WORDS["size"](self.type)

    @property
    def device(self) -> Device:
        """The device of its elements."""
        return CPU

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.dtype.numpy.itemsize

    @property
    def nbytes(self) -> Any:
        """The bytes of all elements."""
        return self.size * self.itemsize

    @property
    def real(self) -> Array:
        """The real part."""
        return functions.real(self)

    @property
    def imag(self) -> Array:
        """The imaginary part."""
        return functions.imag(self)

    @property
    def T(self) -> Array:
        """The array with its axes reversed: the transpose of a matrix."""
        return functions.transpose(self)

    @property
    def mT(self) -> Array:
        """The transpose of each matrix: the last two axes swapped."""
        return functions.matrix_transpose(self)

    # ---- operators ----

    def __add__(self, other: Any) -> Array:
        return functions.add(self, other)

    def __radd__(self, other: Any) -> Array:
        return functions.add(other, self)

    def __sub__(self, other: Any) -> Array:
        return functions.subtract(self, other)

    def __rsub__(self, other: Any) -> Array:
        return functions.subtract(other, self)

    def __mul__(self, other: Any) -> Array:
        return functions.multiply(self, other)

    def __rmul__(self, other: Any) -> Array:
        if isinstance(other, list | tuple | str) and not self.shape and self.dtype.is_integer:
            raise StagedValueError(
                f"{article(type(other).__name__)} is repeated a number of times that is known while staging",
                where=here(),
                hint=f"{static_hint(self)}; for a product write `st.asarray(x) * n`",
            )
        return functions.multiply(other, self)

    def __truediv__(self, other: Any) -> Array:
        return functions.divide(self, other)

    def __rtruediv__(self, other: Any) -> Array:
        return functions.divide(other, self)

    def __floordiv__(self, other: Any) -> Array:
        return functions.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Array:
        return functions.floor_divide(other, self)

    def __mod__(self, other: Any) -> Array:
        return functions.remainder(self, other)

    def __rmod__(self, other: Any) -> Array:
        return functions.remainder(other, self)

    def __pow__(self, other: Any) -> Array:
        return functions.pow(self, other)

    def __rpow__(self, other: Any) -> Array:
        return functions.pow(other, self)

    def __matmul__(self, other: Any) -> Array:
        return functions.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Array:
        return functions.matmul(other, self)

    def __and__(self, other: Any) -> Array:
        return functions.bitwise_and(self, other)

    def __rand__(self, other: Any) -> Array:
        return functions.bitwise_and(other, self)

    def __or__(self, other: Any) -> Array:
        return functions.bitwise_or(self, other)

    def __ror__(self, other: Any) -> Array:
        return functions.bitwise_or(other, self)

    def __xor__(self, other: Any) -> Array:
        return functions.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> Array:
        return functions.bitwise_xor(other, self)

    def __lshift__(self, other: Any) -> Array:
        return functions.bitwise_left_shift(self, other)

    def __rlshift__(self, other: Any) -> Array:
        return functions.bitwise_left_shift(other, self)

    def __rshift__(self, other: Any) -> Array:
        return functions.bitwise_right_shift(self, other)

    def __rrshift__(self, other: Any) -> Array:
        return functions.bitwise_right_shift(other, self)

    def __eq__(self, other: Any) -> Any:
        return functions.equal(self, other)

    def __ne__(self, other: Any) -> Any:
        return functions.not_equal(self, other)

    def __lt__(self, other: Any) -> Array:
        return functions.less(self, other)

    def __le__(self, other: Any) -> Array:
        return functions.less_equal(self, other)

    def __gt__(self, other: Any) -> Array:
        return functions.greater(self, other)

    def __ge__(self, other: Any) -> Array:
        return functions.greater_equal(self, other)

    def __neg__(self) -> Array:
        return functions.negative(self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return functions.abs(self)

    def __invert__(self) -> Array:
        return functions.bitwise_invert(self)

    def __getitem__(self, key: Any) -> Array:
        return functions.get_item(self, key)

    def __len__(self) -> int:
        if not self.shape or not isinstance(self.shape[0], int):
            raise StagedValueError(
                f"len() needs a first dimension of known size, got {shape_text(self.shape)}", where=here()
            )
        return self.shape[0]

    __hash__ = object.__hash__  # == gives an array, so handles hash by identity

    # ---- methods with NumPy's, the Array API's and torch's names ----

    if not TYPE_CHECKING:  # type checkers read `array_methods.pyi`

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # what libraries ask of everything, ours too
                raise AttributeError(f"arrays have no attribute `{name}`", name=name, obj=self)
            function: Callable[..., Any] | None = None
            if not name.startswith("_"):
                function = METHODS[METHOD_NAMES[name]] if name in METHOD_NAMES else WORDS["method"](name)
            if function is None:
                more = WORDS["missing"](name)
                found = NotImplemented if more or name.startswith("_") else WORDS["numpy"](self, name)
                if found is not NotImplemented:
                    return found
                error = self._unknown(name, more or unknown_array_name(name))
                if error.name is None:
                    error.name, error.obj = name, self  # Python then asks whether a name like it was meant
                raise error
            return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *METHOD_NAMES, *WORDS["methods"]()})

    def _unknown(self, name: str, answer: str) -> AttributeError:
        """Return the error for an unknown name, with an answer that begins with a colon or is empty."""
        return no_attribute("arrays have", name, answer)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of the functions of arrays, for code that is written for any of the Array API standard."""
        return WORDS["namespace"](api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The array on a device. Array API."""
        moved: Array = WORDS["to_device"](self, device)
        return moved

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """For libraries that exchange arrays by DLPack, torch among them; the elements are a copy."""
        return np.array(self).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host, by DLPack's numbers."""
        return 1, 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return functions.numpy_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return functions.numpy_function(func, args, kwargs)


def described(value: Any) -> str:
    """Return how a message names a staged value: an argument by its name."""
    arguments = getattr(getattr(value, "owner", None), "arguments", {})
    name = arguments.get(value.value) if isinstance(value, StagedArray) else None
    return "a value of the running program" if name is None else f"the argument `{name}`"


def static_hint(*values: Any) -> str:
    """A hint that names the arguments that staged values come from, which could be made static."""
    names: dict[str, None] = {}
    for value in values:
        arguments = getattr(getattr(value, "owner", None), "arguments", {})
        waiting = [value.value] if isinstance(value, StagedArray) else []
        for _ in range(_FAR):
            if not waiting:
                break
            found = waiting.pop(0)
            if found in arguments:
                names[arguments[found]] = None
            elif found.producer is not None:
                waiting += found.producer.operands
    listed = ", ".join(f'"{name}"' for name in names) + ("," if len(names) == 1 else "")
    return f"make the argument static: `st.function(static=({listed or '...'}))`"


HASH_HINT = (
    "keys of dicts and members of sets must be known while staging: use an array, with integers as indices: "
    "`table[i]`; or choose by `if` and `elif`"
)
_FAR = 50
"""Ops behind a value that are looked through for arguments: a size is near them."""


class StagedArray(Array):
    """A value of the program being recorded: its type is known now, its elements when the program runs."""

    __slots__ = ("value", "owner", "type", "_device")

    type: TensorType  # of sequences, too, which only our own code meets

    def __init__(self, value: Value, owner: object, device: Device = CPU) -> None:
        self.value = value
        self.owner = owner
        """The trace that recorded it: using it in another one is a leak."""
        self.type = value.type  # type: ignore[assignment]
        self._device = device

    @property
    def device(self) -> Device:
        return self._device

    def _unknown(self, name: str, answer: str) -> AttributeError:
        return UnknownAttributeError(
            f"arrays do not have an attribute {name!r}", where=here(), hint=answer.removeprefix(": ") or None
        )

    def __repr__(self) -> str:
        refuse("Python converts a value to text")
        name = f"{self.value.hint}: " if self.value.hint else ""
        return f"<staged {name}{self.type}>"

    def __copy__(self) -> StagedArray:
        return self  # a value

    def __deepcopy__(self, memo: object) -> StagedArray:
        return self

    def __iter__(self) -> Iterator[Array]:
        if self.shape and not isinstance(self.shape[0], int):
            raise ShapeError(
                f"here the number of rows of {self.type} must be fixed while staging, got {self.shape[0]}",
                where=here(),
                hint="loop over the rows: `for row in x:`",
            )
        if not self.shape:
            self._refuse(
                "iterate over", "use `for row in x:` in a staged function over an array with a leading dimension"
            )
        return (self[index] for index in range(len(self)))

    def _refuse(self, what: str, hint: str) -> NoReturn:
        name = f"`{self.value.hint}`" if self.value.hint else "a value"
        if WORDS["is_plain"]():
            raise LeakError(
                f"cannot {what} {name}: it is a value ({self.type}) of a staged function, which has ended",
                where=here(),
                hint="return it from the function; what outlives a call is a Variable: `v = st.Variable(0.0)` before, "
                "`v.value = x` in the function",
            )
        raise StagedValueError(
            f"cannot {what} {name}: it is staged ({self.type}), its value exists only when the program runs",
            where=here(),
            hint=hint,
        )

    def __hash__(self) -> int:
        self._refuse("hash", HASH_HINT)

    def __bool__(self) -> bool:
        self._refuse(
            "take bool() of",
            "write the condition as `if`/`while`/`and`/`or`/`not` in a staged function, or use `st.where` for arrays; "
            "what "
            "a condition of a comprehension keeps has a size known while staging: collect it in a loop, with "
            "`st.Stack`",
        )

    def __int__(self) -> int:
        self._refuse("take int() of", "use `st.astype(x, st.i64)` for a staged integer, or make the argument static")

    def __float__(self) -> float:
        self._refuse("take float() of", "use `st.astype(x, st.f32)`, or keep the array as it is")

    def __index__(self) -> int:
        self._refuse(
            "use as a Python index",
            "for an element of a list make an array of it: `st.asarray(items)[i]`; other choices are `if`/`elif`; "
            "where an "
            f"argument is meant, {static_hint(self)}",
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        self._refuse(
            "convert to a NumPy array",
            "use the functions of `staged` (`st.exp`, `st.asarray([a, b])`, ...) on staged values",
        )

    def __contains__(self, item: Any) -> bool:
        self._refuse("search (`in`)", "write `st.any(x == item)`")

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        self._refuse(f"format by {spec!r}", "write an f-string in the staged function, it becomes part of the program")

    def __reduce__(self) -> tuple[Any, ...]:
        self._refuse("pickle", "return it from the function, and pickle what comes back")
