"""`Variable`: what changes in place. Its reads and writes are ordered effects; in an expression it stands for its
value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from staged.base.remote import Remote
from staged.errors import DTypeError, LeakError, ShapeError, StagingError
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import check_effect, note_own, on_write
from staged.frontend.trace.lifetimes import OfTrace
from staged.ir.names import as_name
from staged.ir.nodes import Effect, Op, VariableRef
from staged.ir.structure import VARIABLE_READ, VARIABLE_WRITE
from staged.ir.types import TensorType, dims_of, shape_text
from staged.ops.array import Array, StagedArray
from staged.ops.choice import astype
from staged.ops.context import current_context
from staged.ops.promote import adopted, as_array
from staged.source import here


class Variable(Array):
    """A named array that changes in place: a parameter, a counter, an optimiser's state.

    Made in plain Python it keeps its buffer between calls of staged functions; made inside a staged function it lives
    in the program. `v.value` reads and writes it; in an expression it stands for its value. Its dtype and shape never
    change.

    Parameters: value, an array or a number (a Python float becomes f32, an int i64); name, for messages and generated
    code; local, True if the value may differ between MPI ranks. Raises: StagingError when made inside a staged loop;
    DTypeError, ShapeError when a value of another type is written.
    """

    __slots__ = ("_kept", "_name", "_remote", "_trace", "_type", "__weakref__", "local")
    purpose = "variable"
    """Its purpose, in words for the user."""
    part = ""
    """Of a generator of random numbers: which of its two numbers it is."""

    def __init__(self, value: Any, name: str | None = None, *, local: bool = False) -> None:
        self._name = name or ""
        self.local = local
        note_own(self)
        trace = current_trace()
        array = as_array(value)
        dtype = array.dtype
        if array.type.weak:
            dtype = dtype.natural
        self._type = TensorType(dtype, array.shape)
        self._trace = trace
        self._kept: Any = None
        self._remote: Remote | None = None
        if trace is None:
            if isinstance(value, Array):
                self._held = astype(array, dtype) if array.dtype != dtype else array  # it may be on a tape
            else:
                self._held = np.array(
                    value if isinstance(value, np.ndarray) else np.asarray(array), dtype=dtype.numpy, order="C"
                )
            return
        if any(body.is_loop for body in trace.conditional):
            raise StagingError(
                "a Variable is made inside a staged loop",
                where=here(),
                hint="make it before the loop, and assign `v.value = ...` in it",
            )
        if dims_of(self._type):
            raise ShapeError(
                f"a Variable has a size that is known while staging, got {self._type}",
                where=here(),
                hint="make it as large as the dimension may become, and write the first elements: `v[:n] = x`",
            )
        function = next((body.function for body in trace.conditional if body.function is not None), None)
        if function is not None:
            raise StagingError(
                f"a Variable is made inside the recursive function `{function}`, whose calls would share it",
                where=here(),
                hint=f"use a local name, or make it before `{function}` is called",
            )
        reference = VariableRef(
            self._name or "variable",
            self._type,
            False,
            trace.builder.device,
            self,
            here(),
            self.purpose,
            self.part,
            local=local,
        )
        _enter(trace, self, reference)
        self._write(array)

    def _end(self) -> None:
        """Invalidate: its transform has ended, and later reads raise LeakError."""
        self._trace = _ENDED

    @property
    def _held(self) -> Any:
        """The host's elements, brought up to date where a device has written them since."""
        if self._remote is not None and self._remote.is_ahead:
            self._kept = np.empty(self._type.shape, self._type.dtype.numpy)  # an array of it may be in other hands
            self._remote.fetch(self._kept)
        return self._kept

    @_held.setter
    def _held(self, value: Any) -> None:
        self._kept = value
        if self._remote is not None:
            self._remote.outdate()

    @property
    def is_inner(self) -> bool:
        """Return whether it was made inside a staged function, and lives in that program only."""
        return self._trace is not None

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        """Its dtype and shape, which never change."""
        return self._type

    @property
    def name(self) -> str:
        """The name in messages and in generated code."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        if self._trace is not None and id(self) in self._trace.refs:
            self._trace.refs[id(self)].name = name

    @property
    def value(self) -> Any:
        """Its value now."""
        return self.__staged_read__()

    @value.setter
    def value(self, value: Any) -> None:
        self._write(value)

    def __staged_read__(self) -> Array:
        trace = current_trace()
        if trace is not None:
            return read_variable(trace, self)
        self._check_alive()
        if not isinstance(self._held, Array):
            self._held = current_context().lift(self._held)
        held: Array = self._held
        return held

    def _write(self, value: Any) -> None:
        array = as_array(value)
        if array.type != self._type:
            if array.type.weak and array.shape == self._type.shape and _fits(array.dtype.kind, self._type.dtype.kind):
                array = adopted(array, self._type.dtype)
            else:
                raise self._refusal(array)
        trace = current_trace()
        if trace is not None:
            write_variable(trace, self, array)
            return
        self._check_alive()
        check_effect("write", f"{_described(self._name)} is written", self)
        watch = on_write.get()
        if watch is not None:
            watch(array)
        self._held = array

    def _refusal(self, array: Array) -> Exception:
        name = f"`{self._name}`" if self._name else "the Variable"
        error = ShapeError if array.shape != self._type.shape else DTypeError
        hint = f"`st.astype(value, st.{self._type.dtype})`" if error is DTypeError else "keep its shape"
        return error(f"{name} holds {self._type}, got {array.type}", where=here(), hint=hint)

    def _check_alive(self) -> None:
        if self._trace is not None:
            raise LeakError(
                f"the Variable `{self._name}` was made inside a staged function and lives in its program only",
                where=here(),
                hint="return its value, or make it outside and pass or close over it",
            )

    def buffer(self, written: bool = True) -> np.ndarray[Any, Any]:
        """The elements, C-contiguous and writable: the buffer that compiled programs read and write in place.

        It marks a copy of them on a device as out of date, unless `written` is false: the caller only reads.
        """
        self._check_alive()
        held = self._held
        if not isinstance(held, np.ndarray):
            held = self._kept = np.array(held, dtype=self._type.dtype.numpy, order="C")
        if written and self._remote is not None:
            self._remote.outdate()
        buffer: np.ndarray[Any, Any] = held
        return buffer

    def remote(
        self, made_on: Callable[[int], Remote], device: str, update: Callable[[Remote, np.ndarray[Any, Any]], None]
    ) -> Remote:
        """The elements on a device, up to date: copied by `update` if necessary; `made_on` makes room
        for so many bytes.

        What a program writes there is fetched when the host looks at the Variable.
        """
        before = self._remote
        if before is not None and before.is_ahead:
            if before.device == device:
                return before
            place = self._remote = made_on(before.nbytes)
            place.take(before)
            return place
        host = self.buffer(written=False)
        if self._remote is None or self._remote.device != device:
            self._remote = made_on(host.nbytes)
        update(self._remote, host)
        return self._remote

    def __copy__(self) -> Variable:
        """A Variable of its own, with the value of now; made inside a staged function it lives in that program."""
        made = type(self)(self.value, name=self._name)
        made.local = self.local
        return made

    def __deepcopy__(self, memo: object) -> Variable:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles: the elements as they are now."""
        if current_trace() is not None:
            raise StagingError(
                f"{_described(self._name)} cannot be pickled inside a staged function: what it holds is known when the "
                "program runs",
                where=here(),
                hint="pickle it before or after the call; a copy inside is `copy.deepcopy(model)`",
            )
        return _restored, (type(self), self.numpy(), self._name, self.local)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the elements as a NumPy array."""
        self._check_alive()
        # Not through `buffer`, which would cut the array held in eager mode off its tape.
        return np.array(self._held, dtype=self._type.dtype.numpy)

    def saved(self) -> Any:
        """The value for a `state_dict`: in plain Python a NumPy array that belongs to the caller, in staged and eager
        code the value.
        """
        return self.numpy() if current_context().is_plain else self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if current_trace() is not None:
            return np.asarray(self.__staged_read__(), dtype=dtype)  # refused by the staged array, with the way out
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.__staged_read__(), spec)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __repr__(self) -> str:
        if self._trace is not None or not current_context().is_plain:
            return f"Variable({self._name or shape_text(self._type.shape)}: {self._type})"
        values = np.array2string(self.numpy(), separator=", ", threshold=6, prefix="Variable(")
        named = f", name={self._name!r}" if self._name else ""
        return f"Variable({values}, dtype={self._type.dtype}{named})"


_ENDED: Any = object()
"""Stands for the trace of a Variable that has ended with the transform it was made in."""


def _restored(cls: type[Variable], value: Any, name: str, local: bool = False) -> Variable:
    """Make the Variable that a pickle holds."""
    made = cls(value, name=name)
    made.local = local
    return made


def _fits(source: str, target: str) -> bool:
    order = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    return order[source] <= order[target]


def host_buffers(variables: Sequence[Variable]) -> list[np.ndarray[Any, Any]] | None:
    """The buffers of Variables that the host alone has, and has as arrays already; None where it takes more to get at
    one.
    """
    kept = [
        variable._kept
        for variable in variables
        if variable._remote is None and variable._trace is None and type(variable._kept) is np.ndarray
    ]
    return kept if len(kept) == len(variables) else None


# ---- in a trace ---------------------------------------------------------------------------------


@dataclass
class Levels(OfTrace):
    """The number of open transforms when a Variable was made, by the id of its reference."""

    made_at: dict[int, int] = field(default_factory=dict)


def _enter(trace: TraceContext, variable: Variable, reference: VariableRef) -> None:
    """Enter a Variable into the program."""
    trace.refs[id(variable)] = reference
    trace.variables.append(reference)
    # The lowest free number, so that a second attempt gives a Variable the name it had in the first.
    name = as_name(reference.name)
    numbered = (f"{name}_{number}" if number else name for number in itertools.count())
    trace.keys[id(reference)] = next(key for key in numbered if key not in trace.keys.values())
    trace.of(Levels).made_at[id(reference)] = len(trace.transforms) if not reference.outer else 0


def reference_of(trace: TraceContext, variable: Variable) -> VariableRef:
    """The variable as the program sees it; one from outside is passed in by the caller."""
    known = trace.refs.get(id(variable))
    if known is not None:
        return known
    if variable._trace is not None and variable._trace is not trace:
        variable._check_alive()
    name = variable.name or f"variable_{len(trace.refs)}"
    reference = VariableRef(
        name,
        variable.type,
        True,
        identity=variable,
        purpose=variable.purpose,
        part=variable.part,
        local=variable.local,
    )
    _enter(trace, variable, reference)
    return reference


def read_variable(trace: TraceContext, variable: Variable) -> StagedArray:
    """The value now: of the innermost transform that holds it as state, else read by the program."""
    return _read_at(trace, variable, len(trace.transforms))


def _read_at(trace: TraceContext, variable: Variable, level: int) -> StagedArray:
    reference = reference_of(trace, variable)
    if trace.strict is not None:
        trace.strict.check_variable(trace, variable, reference.device)
    if level == 0:
        op = Op(
            VARIABLE_READ,
            [],
            [variable.type],
            attrs={"variable": reference},
            effects=(Effect("read", reference),),
            device=trace.builder.device,
            where=here(),
        )
        op.results[0].hint = as_name(variable.name)
        return trace.emit_op(op)[0]
    state = trace.transforms[level - 1]
    key = key_of(trace, variable)
    if key in state.names.__dict__:
        found: StagedArray = state.names.__dict__[key]
        return found
    if key not in state.names.entries:
        # Its value on entry: the read is recorded in the block outside of the transform.
        with trace.entered(state.outer):
            state.names.entries[key] = _read_at(trace, variable, level - 1)
    entry: StagedArray = state.names.entries[key]
    return entry


def write_variable(trace: TraceContext, variable: Variable, value: Array) -> None:
    """Write now, or pass the value on as state of the innermost transform."""
    check_effect("write", f"{_described(variable.name)} is written", variable)
    if trace.transforms:
        if trace.of(Levels).made_at[id(reference_of(trace, variable))] < len(trace.transforms):
            _read_at(
                trace, variable, len(trace.transforms)
            )  # its entry value: what the paths that do not write it have
        handle = StagedArray(trace.value_of(value), trace)
        trace.transforms[-1].names.__dict__[key_of(trace, variable)] = handle
        return
    reference = reference_of(trace, variable)
    if trace.strict is not None:
        trace.strict.check_variable(trace, variable, reference.device)
    trace.emit_op(
        Op(
            VARIABLE_WRITE,
            [trace.value_of(value)],
            [],
            attrs={"variable": reference},
            effects=(Effect("write", reference),),
            device=trace.builder.device,
            where=here(),
        )
    )


def _described(name: str) -> str:
    return f"the Variable `{name}`" if name else "a Variable"


def key_of(trace: TraceContext, variable: Variable) -> str:
    """The name under which transforms track a variable."""
    return trace.keys[id(reference_of(trace, variable))]


def variables_by_key(trace: TraceContext) -> dict[str, Variable]:
    """The Variables of a trace by the names under which transforms track them."""
    return {trace.keys[id(ref)]: ref.identity for ref in trace.variables if isinstance(ref.identity, Variable)}
