"""Eager mode: the same functions on NumPy, line by line, with the same checks; and a tape for independent gradients.

`EagerContext` executes an op by its primitive's `reference`, after the type rule that staging applies too, so that a
program fails in eager mode where it fails staged. Arrays are values: none changes in place.

Derivatives come from `tape.py`: while a differentiated function runs, every op is recorded, or its tangent computed at
once. The rules run as ordinary eager ops, which outer derivatives see in turn, so derivatives nest. Python itself takes
the branches and runs the loops, which makes eager mode an oracle for the control flow that autodiff generates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from staged.eager_mode.tape import Node, Tangents, Tape, notify, only_levels, open_levels, run_custom
from staged.errors import (
    DTypeError,
    GradientError,
    LeakError,
    ProgramError,
    ProgramIndexError,
    ProgramOverflowError,
    ProgramZeroDivisionError,
    StagedError,
    StagedValueError,
    StagingError,
)
from staged.frontend.constructs.try_ import is_anything_waited_for, is_waited_for
from staged.frontend.devices.resident import note_numpy_work, open_regions
from staged.frontend.trace.effects import check_effect
from staged.frontend.values.generator import OF_THREAD, Generator
from staged.ir.declaration import prims
from staged.ir.numbers import converted
from staged.ir.types import DType, TensorType, dtype_of, i64, located_size_error, shape_text
from staged.ops.array import HASH_HINT, Array, StagedArray, functions
from staged.ops.context import (
    EAGER_NAMES,
    Context,
    Whole,
    context_or_none,
    current_context,
    eager_names,
    use_context,
)
from staged.ops.formatting import format_value
from staged.ops.interchange import elements
from staged.ops.primitive import Primitive
from staged.ops.promote import check_class, is_number, number_type, read
from staged.runtime.writers import writers
from staged.source import Position, here


class EagerArray(Array):
    """An array with its elements: a NumPy array behind the interface of staged ones.

    Converts to NumPy (`.numpy()`, `np.asarray`) and, if it has one element, to a Python number (`item`, `int`, `float`,
    `bool`); prints through the formatter that compiled programs use.
    """

    __slots__ = ("_data", "_type", "__weakref__")

    def __init__(self, data: Any, type: TensorType) -> None:
        self._data: np.ndarray[Any, Any] = np.asarray(data)
        self._type = type

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        return self._type

    def __hash__(self) -> int:
        raise StagedValueError(
            "cannot hash an array: two of them are equal where their elements are", where=here(), hint=HASH_HINT
        )

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array of the caller's own."""
        self._leaves("become a NumPy array")
        return np.array(self._data)

    def _leaves(self, what: str) -> None:
        """Refuse to convert an array that is being differentiated: the derivative through it would be lost."""
        if any(level.depends(self) for level in open_levels.get()):
            raise GradientError(
                f"an array that is being differentiated cannot {what}: the derivative through it would be lost",
                where=here(),
                hint="use the functions of `staged` (`st.sqrt(x)`, `st.asarray([x, y])`); `st.stop_gradient(x)` is a "
                "constant, "
                "which may",
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._leaves("become a NumPy array")
        if copy is False:
            if dtype is not None and np.dtype(dtype) != self._data.dtype:
                raise ValueError(f"a {self._data.dtype} array cannot become {np.dtype(dtype)} without a copy")
            return _read_only(self._data)
        return np.array(self._data, dtype=dtype)

    def item(self) -> Any:
        """The only element: in plain Python a number, where programs run or are differentiated a scalar array."""
        if not current_context().is_plain:
            return functions.item(self)
        if self._data.size != 1:
            raise StagedValueError(f"item() needs one element, got {self._type}", where=here())
        return self._data.item()

    def tolist(self) -> Any:
        """The elements as Python numbers in nested lists."""
        self._leaves("become numbers")
        return self._data.tolist()

    def __bool__(self) -> bool:
        return bool(self._only("bool()"))

    def __int__(self) -> int:
        return int(self._only("int()"))

    def __float__(self) -> float:
        self._leaves("become a number")
        return float(self._only("float()"))

    def __complex__(self) -> complex:
        self._leaves("become a number")
        return complex(self._only("complex()"))

    def __round__(self, ndigits: int | None = None) -> Any:
        if ndigits is not None:
            self._leaves("become a number")
        return round(self._only("round()"), ndigits)

    def __index__(self) -> int:
        if not (self._type.dtype.is_integer or self._type.dtype.is_bool):
            raise StagedValueError(f"an index must be an integer, got {self._type}", where=here())
        return int(self._only("use as an index"))

    def _only(self, what: str) -> Any:
        if self._data.size != 1:
            raise StagedValueError(
                f"{what} needs one element, got {self._type}",
                where=here(),
                hint="reduce the array first: `st.any(x)`, `st.all(x)`, `st.sum(x)`",
            )
        return self._data.item()

    def __iter__(self) -> Iterator[Array]:
        if not self._type.shape:
            raise StagedValueError(f"cannot iterate over a single number ({self._type})", where=here())
        return (self[index] for index in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(np.asarray(self == item)))

    def __copy__(self) -> EagerArray:
        return self  # a value

    def __deepcopy__(self, memo: object) -> EagerArray:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        raise StagingError(
            "arrays are values: `x[i] = v` works on the names of a staged function",
            where=here(),
            hint="decorate the function with `@staged.function`; it then also runs inside `staged.eager()`",
        )

    def __str__(self) -> str:
        return format_value(self._data)

    def __repr__(self) -> str:
        if not current_context().is_plain:  # a print in a staged function is that of the program
            return str(self)
        return f"Array({np.array2string(self._data, separator=', ', prefix='Array(')}, dtype={self._type.dtype})"

    def __format__(self, spec: str) -> str:
        return format_value(self._data, spec)


Arrays = tuple[EagerArray, ...]


# ---- the context --------------------------------------------------------------------------------

Pullback = Callable[[Sequence["Array | None"]], tuple[EagerArray, ...]]

_ALIAS = Primitive(
    name="alias",
    kind="view",
    takes_halves=True,
    infer=lambda x: x,
    reference=lambda x: x,
    vjp=lambda ct, y, x: [ct],
    jvp=lambda tangents, y, operands: tangents[0],
    doc="A new identity for an array, so that a tape can tell a primal from the array it was made of.",
)


_random: ContextVar[Generator | None] = ContextVar("staged_eager_random", default=None)
"""The generator of the staged function that runs eagerly; None outside of any."""


class EagerContext(Context):
    """A context that executes ops at once.

    One context serves an `eager()` block, or all plain Python. A Variable returns its value itself (`__staged_read__`).
    """

    @property
    def is_plain(self) -> bool:
        return _random.get() is None and not open_levels.get()

    # ---- ops ----

    def bind(self, primitive: Primitive, operands: Sequence[Array], attrs: dict[str, Any]) -> Arrays:
        if open_regions():
            note_numpy_work()
        arrays = tuple(self.lift(operand) for operand in operands)
        try:
            types = primitive.result_types([array.type for array in arrays], attrs)
        except StagedError as error:
            raise _at(error, here(), arrays) from None
        results = self._compute(primitive, arrays, attrs, types)
        if open_levels.get():
            notify(Node(primitive, arrays, attrs, results, here()))
        return results

    def whole(self, composite: Whole, operands: Sequence[Array], attrs: dict[str, Any]) -> Arrays:
        arrays = tuple(self.lift(operand) for operand in operands)
        if not open_levels.get() or not composite.is_one_op:
            return self._results_of(composite, arrays, attrs)
        with only_levels(()):
            results = tuple(self._fresh(result) for result in self._results_of(composite, arrays, attrs))
        notify(Node(composite, arrays, attrs, results, here()))
        return results

    def _results_of(self, composite: Whole, arrays: Arrays, attrs: dict[str, Any]) -> Arrays:
        """The results by NumPy, else by the body: without rules a derivative needs the ops of the body."""
        levels = open_levels.get()
        if composite.reference is None or any(a.dtype.is_half or any(one.depends(a) for one in levels) for a in arrays):
            return tuple(map(self.lift, composite.run(arrays, attrs)))
        results = composite.reference(*(array._data for array in arrays), **attrs)
        return tuple(self._fresh(wrap(result)) for result in results)  # by `bind`, which notes work in regions

    def _compute(self, primitive: Primitive, arrays: Arrays, attrs: dict[str, Any], types: Sequence[Any]) -> Arrays:
        try:
            with np.errstate(all="ignore"):
                made = primitive.reference(*(array._data for array in arrays), **attrs)
        except StagedError as error:
            raise _at(error, here()) from None
        except IndexError as error:
            raise ProgramIndexError(str(error), where=here()) from None
        except ZeroDivisionError as error:
            raise ProgramZeroDivisionError(str(error), where=here()) from None
        except (ValueError, MemoryError) as error:
            raise located_size_error(primitive.name, types, error, here()) from None
        results = made if isinstance(made, tuple) else (made,)
        if is_anything_waited_for() and types[0].weak and not types[0].shape and types[0].dtype.is_float:
            found = _raised_by_python(primitive, arrays, results[0])
            if found is not None and is_waited_for([type(found)]):
                raise found  # compiled code is refused there
        assert len(results) == len(types), f"{primitive.name} gave {len(results)} results instead of {len(types)}"
        return tuple(_checked(primitive, result, type) for result, type in zip(results, types, strict=True))

    def constant(self, value: Any, type: TensorType) -> EagerArray:
        data = converted(np.array(value), type.dtype) if type.dtype.is_half else np.array(value, dtype=type.dtype.numpy)
        return EagerArray(data.reshape(type.shape) if data.shape != type.shape else data, type)

    def lift(self, array: Any) -> EagerArray:
        """An `EagerArray` from anything with elements: a NumPy array or scalar, a number, a Variable."""
        array = read(array)
        if isinstance(array, EagerArray):
            return array
        if isinstance(array, StagedArray):
            raise LeakError(
                f"a staged value ({array.type}) is not available in eager mode",
                where=here(),
                hint="it exists only while its function is traced: return it from there",
            )
        return wrap(array)

    # ---- derivatives ----

    def vjp(self, f: Callable[..., Iterable[Any]], primals: Sequence[Any]) -> tuple[Arrays, Pullback]:
        """`f(*primals)`, and the function from cotangents of its outputs to cotangents of `primals`.

        f takes arrays and returns any number of them. The pullback takes one cotangent per output, None for zero, and
        returns one per primal (zeros for a primal that the outputs do not depend on); it may be called several times.
        Raises: GradientError if an op between them has no derivative.
        """
        fresh = tuple(self._fresh(self.lift(primal)) for primal in primals)
        tape = Tape(active={id(array) for array in fresh if array.dtype.is_inexact})
        with only_levels((*open_levels.get(), tape)):
            outputs = tuple(self.lift(output) for output in f(*fresh))

        def pullback(cotangents: Sequence[Array | None]) -> Arrays:
            assert len(cotangents) == len(outputs), "one cotangent per output, None for zero"
            with use_context(self):
                found = tape.pull_back(outputs, cotangents)
                return tuple(
                    self.lift(found[id(primal)]) if id(primal) in found else _zeros_like(primal) for primal in fresh
                )

        return outputs, pullback

    def jvp(
        self, f: Callable[..., Iterable[Any]], primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[Arrays, tuple[EagerArray | None, ...]]:
        """`f(*primals)`, and the tangents of its outputs: zeros where they do not depend on the primals.

        One tangent per primal, None for zero. An output that is no float has none: None.
        Raises GradientError where an op on the way has no derivative.
        """
        fresh = tuple(self._fresh(self.lift(primal)) for primal in primals)
        level = Tangents()
        for array, tangent in zip(fresh, tangents, strict=True):
            if tangent is not None:
                level.found[id(array)] = array, self.lift(tangent)
        with only_levels((*open_levels.get(), level)):
            outputs = tuple(self.lift(output) for output in f(*fresh))
        found = [level.of(output) for output in outputs]
        return outputs, tuple(
            None if not output.dtype.is_inexact else _zeros_like(output) if tangent is None else self.lift(tangent)
            for output, tangent in zip(outputs, found, strict=True)
        )

    def custom_vjp(
        self,
        name: str,
        primal: Callable[[Sequence[Array]], Sequence[Array]],
        forward: Callable[[Sequence[Array]], tuple[Sequence[Array], Any]],
        backward: Callable[[Any, Sequence[Array | None]], Sequence[Array | None]],
        arguments: Sequence[Any],
    ) -> Arrays:
        """A function with its own reverse: `primal(arguments)`; when differentiated, `forward` and `backward` instead.

        forward returns outputs and residuals; backward takes the residuals and one cotangent per output (None for zero)
        and returns one per argument.
        Raises: GradientError in forward mode, and if the function reads a differentiated array from outside.
        """
        arrays = tuple(self.lift(argument) for argument in arguments)
        outputs = run_custom(
            name,
            lambda given: tuple(map(self.lift, primal(given))),
            lambda given: _with_lifted(self, forward(given)),
            backward,
            arrays,
            self._fresh,
            here(),
        )
        return tuple(map(self.lift, outputs))

    def _fresh(self, array: Array) -> EagerArray:
        """A new object for the same array, so that a level can tell it from the original."""
        return self.bind(_ALIAS, [array], {})[0]

    # ---- randomness ----

    def generator(self) -> Generator:
        """The generator for random ops that name none."""
        return _random.get() or OF_THREAD

    def next_random(self, generator: Any = None) -> tuple[EagerArray, EagerArray, EagerArray]:
        check_effect("random", "random numbers are drawn")
        seed, counter = drawn(self.generator() if generator is None else generator)
        seed_, stream, count = (EagerArray(np.int64(number), TensorType(i64)) for number in (seed, 0, counter))
        return seed_, stream, count


class _Turn:
    """A draw that waits for the programs which draw from the same generator."""

    thread = 0


def drawn(generator: Generator) -> tuple[int, int]:
    """The seed, and the counter, which is counted on."""
    counter = generator.counter.buffer()
    turn = _Turn()
    try:
        writers.acquire(frozenset((counter.ctypes.data,)), turn, "a random function")
        number = int(counter)
        counter[...] = number + 1 if number < 2**63 - 1 else -(2**63)
        return int(generator.seed.buffer(written=False)), number
    finally:
        writers.release(turn)


def _raised_by_python(primitive: Primitive, operands: Arrays, result: Any) -> ProgramError | None:
    """The error that Python raises for this operator on two floats; a program continues with an infinity or NaN."""
    if primitive in (prims.DIVIDE, prims.FLOOR_DIVIDE, prims.REMAINDER):
        return None if operands[1]._data else ProgramZeroDivisionError("float division by zero", where=here())
    if primitive is not prims.POW or not np.isinf(result):
        return None
    base, exponent = (operand._data for operand in operands)
    if base == 0:
        return ProgramZeroDivisionError("0.0 cannot be raised to a negative power", where=here())
    if np.isfinite(base) and np.isfinite(exponent):
        return ProgramOverflowError("the result of a power is too large", where=here())
    return None


def _checked(primitive: Primitive, result: Any, type: Any) -> EagerArray:
    assert isinstance(type, TensorType), f"{primitive.name} gives a {type}: sequences exist in the IR only"
    data = np.asarray(result)
    assert data.dtype == type.dtype.numpy, f"{primitive.name} gave {data.dtype} where its type rule says {type}"
    assert data.shape == type.shape, f"{primitive.name} gave {data.shape} where its type rule says {type}"
    return EagerArray(data, type)


def _with_lifted(context: EagerContext, made: tuple[Sequence[Array], Any]) -> tuple[Arrays, Any]:
    outputs, residuals = made
    return tuple(map(context.lift, outputs)), residuals


def _zeros_like(array: EagerArray) -> EagerArray:
    return EagerArray(np.zeros(array.shape, array.dtype.numpy), array.type)


def _at(error: StagedError, where: Position | None, arrays: Iterable[EagerArray] = ()) -> StagedError:
    """`error`, completed with the position and the operands unless it has them."""
    if error.where is None:
        error.where = where
    if not error.details:
        error.details = tuple(f"operand {index}: {array.type}" for index, array in enumerate(arrays))
    return error


def _read_only(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = data.view()
    view.flags.writeable = False
    return view


# ---- in and out ---------------------------------------------------------------------------------


def weak_number(value: bool | int | float | complex) -> EagerArray:
    """A Python number as a scalar array that adopts the dtype of the arrays it meets."""
    dtype = number_type(value).dtype
    try:
        return EagerArray(np.array(value, dtype=dtype.numpy), TensorType(dtype, (), weak=True))
    except OverflowError:
        raise StagedValueError(f"{value} does not fit 64 bits", where=here()) from None


def wrap(value: Any) -> EagerArray:
    """An `EagerArray` for a number or anything NumPy understands; a copy, so that later writes to it are not seen.

    Raises DTypeError for a dtype that `staged` does not have.
    """
    if isinstance(value, EagerArray):
        return value
    if is_number(value):
        return weak_number(value)
    check_class(value)
    data = np.array(elements(value))
    dtype: DType | None = dtype_of(data.dtype)
    if dtype is None:
        raise DTypeError(
            f"arrays of dtype {data.dtype} are not supported, got one of shape {shape_text(data.shape)}",
            where=here(),
            hint="cast it first, for example `x.astype(np.float32)`",
        )
    return EagerArray(data.astype(dtype.numpy, copy=False), TensorType(dtype, data.shape))


def unwrap(value: Any) -> Any:
    """A result as the caller receives it: a Python number for a weak scalar, a NumPy array for others."""
    if isinstance(value, EagerArray):
        return value._data.item() if value.type.weak and not value.shape else np.array(value._data)
    return value


# ---- switching it on ----------------------------------------------------------------------------


@contextmanager
def eager(*names: str) -> Iterator[EagerContext]:
    """Run staged functions in plain NumPy, line by line, inside this `with`: to debug, or as a reference.

    `eager("step")` runs only the functions with these names eagerly, and leaves others compiled. Without names, ops
    directly in the `with` run eagerly too. Yields the context, whose `vjp` differentiates by tape.
    """
    names_token = EAGER_NAMES.set(eager_names() | (frozenset(names) or {"*"}))
    running = context_or_none()
    context = running if isinstance(running, EagerContext) else EagerContext()
    try:
        if names:
            yield context
        else:
            with use_context(context):
                yield context
    finally:
        EAGER_NAMES.reset(names_token)


def is_plain() -> bool:
    """Return whether this is plain Python, where arrays may become NumPy's: see `Context.is_plain`."""
    return current_context().is_plain


@contextmanager
def eager_call(generator: Generator | None = None) -> Iterator[EagerContext]:
    """The extent of one call of a staged function in eager mode; `generator` is the function's own, if it has one.

    A staged function called by another one belongs to the outer one's program, and draws from the same generator.
    """
    running = context_or_none()
    context = running if isinstance(running, EagerContext) else EagerContext()
    token = None if _random.get() is not None else _random.set(generator or OF_THREAD)
    try:
        with use_context(context):
            yield context
    finally:
        if token is not None:
            _random.reset(token)
