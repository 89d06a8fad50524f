"""`callback`: a program calls a function of Python's, where it stands, each time that the program gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from staged.eager_mode.tape import open_levels
from staged.errors import ArgumentError, DTypeError, GradientError, ShapeError, StagedValueError
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import check_effect
from staged.frontend.trace.lifetimes import OfTrace
from staged.frontend.transforms import stop_gradient
from staged.frontend.values import trees
from staged.ir.functions import every_function
from staged.ir.nodes import FAIL, IO, Function, Op, walk_ops
from staged.ir.structure import CALLBACK
from staged.ir.types import CPU, DType, TensorType, dims_of, dtype_of
from staged.ops.array import Array
from staged.ops.promote import as_array, read
from staged.source import Position, here


def callback(function: Callable[..., Any], *args: Any, result: Any = None) -> Any:
    """Call a function of Python's from the program: `st.callback(log, step, loss)`.

    The function is called when the program gets there, in the order of prints and of other effects, with the values
    that `args` have then: arrays of NumPy's that belong to the function, Python's numbers for staged Python numbers,
    and what is no array (texts, objects) as it is; `args` may be trees of these. It is plain Python: nothing in it is
    staged.

    `result` says what it returns, as in `jax.io_callback`: a tree of arrays whose shapes and dtypes count
    (`np.empty((3, 2), np.float32)`), a dtype for a number. Without it the function returns nothing that the program
    uses. An exception that it raises leaves the call of the staged function, with a note that names this line. In a
    region the arguments are copied to the host.

    In a program of several MPI ranks, each rank calls the function with its own values, and the results are local. Pass
    `st.rank()` to a function that writes a log on one rank: `if rank == 0: ...`.

    No derivative goes through it: put `st.stop_gradient` around what is differentiated. Raises: GradientError where a
    derivative would need its results; StagingError under `vmap`, and for a `try` that waits for what it raises;
    UnsupportedError where the program is exported, since an exported program has no Python. At run time ShapeError and
    DTypeError where the function returns something else than `result`.
    """
    check_effect("print", "`st.callback`")
    if not callable(function):
        raise StagedValueError(f"st.callback takes a function first, got {type(function).__name__}", where=here())
    leaves, spec = trees.flatten(list(args))
    given = [_operand(leaf) for leaf in leaves]
    types, template = _result_types(result)
    trace = current_trace()
    if trace is None:
        made = _made(function, leaves, spec, given, types, template)
        operands = [array for array in given if array is not None]
        if any(type.dtype.is_float for type in types) and any(
            level.depends(array) for level in open_levels.get() for array in operands
        ):
            raise GradientError(
                "cannot differentiate through `callback`: no derivative is declared for it",
                where=here(),
                hint="put `st.stop_gradient(...)` around its operand if no gradient should flow through it",
            )
        returned = made.returned([np.array(stop_gradient(operand)) for operand in operands])
        return None if template is None else trees.unflatten(template, list(map(as_array, returned)))
    return _record(trace, _made(function, leaves, spec, given, types, template), given)


@dataclass(frozen=True, eq=False)
class PythonCall:
    """A function of Python's as a program calls it."""

    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    """Those of the arguments; None in the place of arrays."""
    spec: trees.Spec
    places: tuple[int, ...]
    """Of the leaves that are arrays."""
    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    template: trees.Spec | None
    where: Position | None
    serial: int = field(default_factory=count().__next__)
    """Different for any two: programs that call different functions are different."""

    def __str__(self) -> str:
        return f"{self.name} {self.serial}"

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def returned(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Call the function; its results have the types that were promised."""
        leaves = list(self.leaves)
        for place, type, array in zip(self.places, self.arguments, arguments, strict=True):
            leaves[place] = array.item() if type.weak else array
        value = self.function(*trees.unflatten(self.spec, leaves))
        if self.template is None:
            return []
        found, spec = trees.flatten(value)
        if spec != self.template:
            raise ShapeError(
                f"`{self.name}` is to return {self.template}, it has returned {spec}: another structure",
                where=self.where,
            )
        return [self._checked(*each) for each in zip(found, self.results, strict=True)]

    def _checked(self, value: Any, type: TensorType) -> np.ndarray[Any, Any]:
        is_number = isinstance(value, bool | int | float)
        if isinstance(value, int) and type.dtype.is_integer and type.shape == ():
            return self._checked_integer(value, type.dtype)
        array = np.asarray(value)
        if array.shape != type.shape:
            raise ShapeError(
                f"`{self.name}` is to return {type.dtype} {type.shape}, it has returned an array of shape "
                f"{array.shape}",
                where=self.where,
            )
        wanted = type.dtype.numpy
        if array.dtype != wanted and not (is_number and np.can_cast(array.dtype, wanted, "same_kind")):
            raise DTypeError(
                f"`{self.name}` is to return {type.dtype}, it has returned {array.dtype}",
                where=self.where,
                hint=f"convert it: `.astype(np.{wanted.name})`",
            )
        return np.ascontiguousarray(array, wanted)

    def _checked_integer(self, value: int, dtype: DType) -> np.ndarray[Any, Any]:
        """A Python integer as NumPy's of a narrower dtype, which would wrap around if NumPy cast it."""
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= value <= limits.max:
            raise DTypeError(
                f"`{self.name}` is to return {dtype}, it has returned {value}",
                where=self.where,
                hint="name a wider dtype in `result`",
            )
        return np.asarray(value, dtype.numpy)


def callbacks_of(program: Function) -> Iterator[Op]:
    """The ops of a program, and of its functions, that call Python."""
    for function in every_function(program):
        yield from (op for op in walk_ops(function.block) if op.declared is CALLBACK)


def _operand(leaf: Any) -> Array | None:
    """An array among the arguments; None for what is none, and for Python's numbers, which stay what they are."""
    value = read(leaf)
    if isinstance(value, Array | np.ndarray):
        return as_array(value)
    return None


def _made(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    spec: trees.Spec,
    given: Sequence[Array | None],
    types: tuple[TensorType, ...],
    template: trees.Spec | None,
) -> PythonCall:
    held = tuple(leaf if array is None else None for leaf, array in zip(leaves, given, strict=True))
    places = tuple(place for place, array in enumerate(given) if array is not None)
    arguments = tuple(array.type for array in given if array is not None)
    for type in arguments:
        if dims_of(type):
            raise ShapeError(
                f"st.callback takes arrays of known sizes, got {type}",
                where=here(),
                hint="pass the array that it is a part of, and the size",
            )
    return PythonCall(function, held, spec, places, arguments, types, template, here())


def _result_types(result: Any) -> tuple[tuple[TensorType, ...], trees.Spec | None]:
    """The types that `result` stands for, and its tree; None where there is none."""
    if result is None:
        return (), None
    leaves, spec = trees.flatten(result, lambda node: isinstance(node, DType | np.dtype))
    return tuple(map(_result_type, leaves)), spec


def _result_type(leaf: Any) -> TensorType:
    shape: Any = ()
    if isinstance(leaf, type | np.dtype | DType):
        dtype = dtype_of(leaf)
    else:
        dtype = dtype_of(leaf.dtype) if hasattr(leaf, "dtype") else None
        shape = getattr(leaf, "shape", ())
    if dtype is None or not all(isinstance(extent, int) for extent in shape):
        raise ArgumentError(
            f"`result` of st.callback takes arrays (their shapes and dtypes count) and dtypes, got {leaf!r}",
            where=here(),
            hint="for example `result=np.empty((3, 2), np.float32)`, or `result=st.f32` for a number",
        )
    return TensorType(dtype, tuple(shape))


@dataclass
class _Count(OfTrace):
    """The number of callbacks of a trace so far."""

    count: int = 0


def _record(trace: TraceContext, made: PythonCall, given: Sequence[Array | None]) -> Any:
    counted = trace.of(_Count)
    op = Op(
        CALLBACK,
        [trace.value_of(array) for array in given if array is not None],
        list(made.results),
        attrs={"number": counted.count, "python": made},
        effects=(*IO, *FAIL),
        device=CPU,
        where=here(),
    )
    counted.count += 1
    results = trace.emit_op(op)
    return None if made.template is None else trees.unflatten(made.template, list(results))
