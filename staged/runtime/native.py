"""Load a compiled C program and call it on NumPy arrays.

A call binds arrays to the fields of the program's argument struct without copying, runs with the GIL released, and
turns what the program reports into Python exceptions that name the Python line.
"""

from __future__ import annotations

import mmap
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from staged.base.artifact import Artifact, ErrorKind
from staged.base.launcher import this_job
from staged.errors import (
    ProgramAssertionError,
    ProgramError,
    ProgramFileError,
    ProgramIndexError,
    ProgramMemoryError,
    ProgramNanError,
    ProgramNotImplementedError,
    ProgramOverflowError,
    ProgramRecursionError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
    ProgramZeroDivisionError,
    ShapeError,
    StagedError,
)
from staged.ir.types import DTYPES
from staged.runtime.arguments import (
    POINTER,
    READABLE,
    WRITABLE,
    ArgumentPlan,
    fitting,
    is_by_value,
    lay_out,
    scalar_of,
    size_value,
)
from staged.runtime.byte_sizes import stack_bytes
from staged.runtime.compiler import position_of_site
from staged.runtime.guard import PLAIN_MODE, ffi, guard
from staged.runtime.layout import layout
from staged.runtime.library import Library
from staged.runtime.prepared import is_simple, prepare, speaks
from staged.runtime.printing import Notes, PythonCall, call_python, is_live
from staged.runtime.results import Results
from staged.runtime.slots import Slot, is_of_this_process, nothing
from staged.runtime.writers import writers
from staged.source import Position

if TYPE_CHECKING:
    from staged.runtime.cuda.departures import Departures

Array = np.ndarray[Any, Any]

ERRORS: dict[int, type[ProgramError]] = {
    ErrorKind.ASSERTION_ERROR: ProgramAssertionError,
    ErrorKind.INDEX_ERROR: ProgramIndexError,
    ErrorKind.ZERO_DIVISION_ERROR: ProgramZeroDivisionError,
    ErrorKind.VALUE_ERROR: ProgramValueError,
    ErrorKind.NAN_ERROR: ProgramNanError,
    ErrorKind.MEMORY_ERROR: ProgramMemoryError,
    ErrorKind.FILE_ERROR: ProgramFileError,
    ErrorKind.OVERFLOW_ERROR: ProgramOverflowError,
    ErrorKind.RECURSION_ERROR: ProgramRecursionError,
    ErrorKind.RUNTIME_ERROR: ProgramRuntimeError,
    ErrorKind.TYPE_ERROR: ProgramTypeError,
    ErrorKind.NOT_IMPLEMENTED_ERROR: ProgramNotImplementedError,
}

_HINTS: dict[int, str] = {
    ErrorKind.RECURSION_ERROR: "check that it ends for these arguments; if it does, set STAGED_STACK to more, "
    "such as 4GiB",
}

_IDLE_SLOTS_KEPT = 8


def _address(buffer: Any) -> int:
    """The address of a buffer, which identifies it among calls that write."""
    return int(ffi.cast("uintptr_t", buffer))


# ---- the program --------------------------------------------------------------------------------


class NativeProgram:
    """A loaded program: call it with the values of its inputs and variables, in parameter order.

    Arrays must have the declared dtype and shape. Those that are C-contiguous and in native byte order are read in
    place, others are copied once; variables are written in place. Returns a tuple of fresh output arrays. Several
    threads may call at once.

    Raises: ShapeError, DTypeError for arguments that do not fit; a ProgramError of `ERRORS` for what stops the program,
    with its Python line; KeyboardInterrupt after Ctrl-C; and whatever writing to `sys.stdout` raised.
    """

    load_mode = PLAIN_MODE
    """The flags with which its library is loaded."""
    may_be_short = True
    """True if a call is over when it returns, so that there may be a short way in."""

    def __init__(self, artifact: Artifact, path: Path, *, poison: bool = False) -> None:
        self.artifact = artifact
        self.path = path
        self._poison = poison
        self.library = Library(path, artifact.name, self.load_mode)
        self.layout = lay_out(artifact.parameters, artifact.departs)
        self._entry = self.library.entry
        self.python_calls: Mapping[int, PythonCall] = {}
        self.notes = Notes(artifact.sites)
        self._call = guard().st_call
        plans, cells = [], 0
        for parameter, offset in zip(artifact.parameters, self.layout.offsets, strict=True):
            by_value = is_by_value(parameter)
            extents = tuple(extent for extent in parameter.shape if isinstance(extent, int))
            plans.append(
                ArgumentPlan(
                    parameter,
                    DTYPES[parameter.dtype].numpy,
                    extents if len(extents) == len(parameter.shape) else None,
                    cells if by_value else offset // POINTER,
                    by_value,
                    parameter.role == "variable",
                    WRITABLE if parameter.role == "variable" else READABLE,
                    parameter.device != "cpu",
                )
            )
            cells += by_value
        self._given = [plan for plan in plans if plan.parameter.role != "output"]
        self._outputs = [plan for plan in plans if plan.parameter.role == "output"]
        self.array_plans: Sequence[ArgumentPlan] = [
            plan for plan in self._given if not plan.is_scalar and not plan.is_remote
        ]
        self._variable_positions = [i for i, plan in enumerate(self.array_plans) if plan.is_variable]
        self._offsets = ffi.new("int32_t[]", [plan.index * POINTER for plan in self.array_plans])
        self._variables = ffi.new("int32_t[]", self._variable_positions)
        self._everything = ffi.new("int32_t[]", list(range(len(self.array_plans))))
        inputs = [i for i, plan in enumerate(self.array_plans) if not plan.is_variable]
        self._inputs, self._input_count = ffi.new("int32_t[]", inputs), len(inputs)
        self._variable_plans = [plan for plan in self.array_plans if plan.is_variable]
        self.unbound: tuple[Callable[[], Any], ...] = (nothing,) * len(self._variable_plans)
        self._is_symbolic = any(plan.shape is None for plan in plans)
        self._idle: list[Slot] = []
        self._results = Results()
        self._is_short = is_simple(self._given, self._outputs) and self.may_be_short and not poison
        self._binding = self._bound_arrays() if self._is_short else None

    def answer(self, calls: Mapping[int, PythonCall]) -> None:
        """Let the program call these functions of Python's, by number."""
        self.python_calls = calls
        place = self.library.symbol("st_python")
        ffi.cast("int (**)(void *, int64_t, const void *const *, void *const *)", place)[0] = call_python

    def traffic(self) -> tuple[int, int, float]:
        """The messages of all calls to other ranks, their bytes, and their time in seconds."""
        if not (self.artifact.has_ranks and this_job().ranks > 1):
            return 0, 0, 0.0
        place = self.library.symbol("st_sent")
        messages, nbytes = ffi.cast("int64_t *", place)[0:2]
        return messages, nbytes, ffi.cast("double *", place)[2]

    def __repr__(self) -> str:
        return f"<native program `{self.artifact.name}` for {self.artifact.target}>"

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        return self._run(values)

    def _run(
        self, values: Sequence[Any], departures: Departures | None = None, where: Position | None = None
    ) -> tuple[Any, ...]:
        """Run. Results that stay on a device need `departures`, where a call at `where` notes the end of its work."""
        given = self._given
        if len(values) != len(given):
            raise TypeError(f"the program `{self.artifact.name}` takes {len(given)} values, got {len(values)}")
        slot = self._take_slot()
        words = slot.words
        keep: list[Any] = []  # buffers of this call's arrays, in the order of `_array_plans`
        write_back: list[tuple[Array, Array]] = []
        remote: list[Any] = []  # variables on a device
        written: list[Any] = []  # those that the program writes, and results there
        read: list[Any] = []
        events: list[Any] = []  # after which arrays on a device may be used
        uploads: list[tuple[ArgumentPlan, Array]] = []
        for plan, value in zip(given, values, strict=True):
            if plan.is_scalar:
                try:
                    slot.cells[plan.index][0] = value
                except (TypeError, OverflowError):
                    slot.cells[plan.index][0] = scalar_of(plan.parameter, value)
                continue
            if plan.is_remote:
                words[plan.index] = value.address
                if plan.is_variable:
                    remote.append(value)
                (written if plan.parameter.written else read).append(value)
                if value.arrival is not None and value.arrival not in events:
                    events.append(value.arrival)
                continue
            if (
                type(value) is not np.ndarray
                or value.dtype is not plan.dtype
                or value.shape != plan.shape
                or value.flags.num & plan.needed_flags != plan.needed_flags
            ):
                given_value, value = value, fitting(plan, value)
                if plan.is_variable and value is not given_value:
                    write_back.append((given_value, value))
            if departures is not None and plan.parameter.is_uploaded and value.size:
                uploads.append((plan, value))
            buffer = ffi.from_buffer(value)
            words[plan.index] = buffer
            keep.append(buffer)
        sizes = self._bind_dimensions(values) if self._is_symbolic else None
        held: frozenset[Any] = frozenset()
        if self._variable_positions:
            slot.bound = self.unbound
            self._separate(slot, keep, sizes is not None)
            held = frozenset(_address(keep[position]) for position in self._variable_positions)
        held |= frozenset(remote)
        outputs: list[Any] = []
        for plan in self._outputs:
            shape = plan.shape
            if shape is None:
                assert sizes is not None
                shape = tuple(e if isinstance(e, int) else size_value(e, sizes) for e in plan.parameter.shape)
            if plan.is_remote:
                assert departures is not None, "results that stay on a device are those of a call in a region"
                place = departures.result(plan.parameter.device, shape, plan.dtype)
                words[plan.index] = place.address
                written.append(place)
                outputs.append(place)
                if place.arrival is not None and place.arrival not in events:
                    events.append(place.arrival)
                continue
            output = self._results.fresh(shape, plan.dtype)
            outputs.append(output)
            buffer = ffi.from_buffer(output)
            words[plan.index] = buffer
            keep.append(buffer)
        if self.layout.arrivals is not None:
            keep.append(ffi.new("void *[]", [*(each.event for each in events), ffi.NULL]))
            words[self.layout.arrivals] = keep[-1]
        else:
            for each in events:
                each.wait()
        departure, piece = None, None
        if self.layout.departure is not None:
            assert departures is not None, "a program that departs is called in a region"
            departure = departures.begin(self, self.device, self.artifact.explains, where)
            words[self.layout.departure], words[self.layout.departure + 1] = departure.event, departure.report
            if uploads:
                piece, addresses = departures.staged([value for _, value in uploads])
                for (plan, _), address in zip(uploads, addresses, strict=True):
                    words[plan.index] = address
        if self._poison and not self.artifact.grows:
            _poison(slot.memory, self.artifact.arena_bytes)
        try:
            if held:
                writers.acquire(held, slot.printer, self.artifact.name)
            status = self._call(self._entry, slot.args, slot.arena, slot.host, slot.stop, self.ready(slot))
            if status:
                self.finish_devices()
            elif departure is not None and departures is not None:
                departures.depart(departure, piece, read, written)
                departure = None
            elif departures is not None:
                departures.keep(written)
            for original, copy in write_back:
                original[...] = copy
        finally:
            if departure is not None and departures is not None:
                departures.cancel(departure, piece)
            if held:
                writers.release(slot.printer)
        if status:
            self.stopped(slot, status)
        if len(self._idle) < _IDLE_SLOTS_KEPT:
            self._idle.append(slot)
        return tuple(outputs)

    def short(
        self,
        kinds: Sequence[type | None],
        otherwise: Callable[..., Any],
        as_array: Callable[[Any], Any] | None = None,
        is_single: bool = False,
        known: Collection[int] = (),
    ) -> Callable[..., Any] | None:
        """The fast path, if the program has one: for arrays that fit and numbers of these `kinds`; other calls go to
        `otherwise`.

        `as_array` converts arrays of other libraries to NumPy's, and returns other values unchanged. `known` are the
        parameters whose shapes the caller has compared. The caller keeps the function: stored here it would form a
        reference cycle.
        """
        if not self._is_short:
            return None
        is_told = speaks(self.artifact)
        return prepare(
            self,
            self._given,
            self._outputs,
            kinds,
            is_told,
            self._entry,
            self._idle,
            otherwise,
            as_array,
            is_single,
            known,
        )

    # ---- binding ----

    @property
    def binding(self) -> Any:
        """The C struct that describes the arrays of a call by the fast path."""
        return self._binding

    def _bound_arrays(self) -> Any:
        at = layout()
        assert at is not None, "the short way reads arrays as they lie in memory"
        plans = [plan for plan in self._given if not plan.is_scalar and not plan.is_variable] + self._outputs
        self._dtypes = [plan.dtype for plan in plans]  # the text has their addresses
        self._arrays = ffi.new("st_array[]", [(id(plan.dtype), plan.needed_flags, plan.index) for plan in plans])
        return ffi.new(
            "st_binding *",
            {
                "type": at.type, "items": at.items, "data": at.data, "dtype": at.dtype, "flags": at.flags,
                "ndarray": id(np.ndarray), "count": len(plans), "arrays": self._arrays,
                "offsets": self._offsets, "array_count": len(self.array_plans),
                "variables": self._variables, "variable_count": len(self._variable_plans),
                "inputs": self._inputs, "input_count": self._input_count,
            },
        )  # fmt: skip

    is_current = staticmethod(is_of_this_process)

    def ready(self, slot: Slot) -> bool:
        """Tell the program of this moment's `sys.stdout`, thread and stack; whether the call is to catch interrupts."""
        catches = threading.get_ident() == threading.main_thread().ident
        slot.printer.catches = catches
        if slot.stream is not sys.stdout:
            slot.stream = sys.stdout
            slot.live = is_live(slot.stream) and this_job().rank == 0
        if self.artifact.recursive:
            slot.host.stack_bytes = stack_bytes()
        slot.host.live = slot.live  # each time: a program that stopped may have left its progress bar noted here
        return catches

    def bind_variables(self, slot: Slot, arrays: Sequence[Any]) -> bool:
        """Bind the slot's variables to these arrays; False if they do not fit, which the slow path handles."""
        slot.bound = self.unbound
        buffers = []
        for plan, array in zip(self._variable_plans, arrays, strict=True):
            if (
                type(array) is not np.ndarray
                or array.dtype is not plan.dtype
                or array.shape != plan.shape
                or array.flags.num & plan.needed_flags != plan.needed_flags
            ):
                return False
            buffers.append(ffi.from_buffer(array))
            slot.words[plan.index] = buffers[-1]
        if self._found_overlap(slot, self._variables, len(buffers)) >= 0:
            return False
        slot.held = frozenset(map(_address, buffers))
        slot.bound = tuple(map(weakref.ref, arrays))
        return True

    def _found_overlap(self, slot: Slot, others: Any, other_count: int) -> int:
        found: int = guard().st_overlap(
            slot.args,
            self._offsets,
            slot.sizes,
            len(self.array_plans),
            self._variables,
            len(self._variable_positions),
            others,
            other_count,
        )
        return found

    def acquire(self, slot: Slot) -> None:
        """Wait until no other call writes the slot's variables."""
        writers.acquire(slot.held, slot.printer, self.artifact.name)

    @staticmethod
    def release(slot: Slot) -> None:
        """Let other calls write them."""
        writers.release(slot.printer)

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for a result."""
        return self._results.fresh(shape, dtype)

    def _take_slot(self) -> Slot:
        while True:
            try:
                slot = self._idle.pop()  # one step under the GIL
            except IndexError:
                return Slot(self)
            if self.is_current(slot):
                return slot

    def _bind_dimensions(self, values: Sequence[Any]) -> dict[str, int]:
        """The values of the symbolic dimensions, from the arguments."""
        given = list(zip(self._given, values, strict=True))
        sizes = {plan.parameter.label: value for plan, value in given if plan.parameter.is_size}
        for plan, value in given:
            # An array on a device has only an address here; the call has compared its shape.
            axes = enumerate(plan.parameter.shape) if hasattr(value, "shape") else ()
            for axis, extent in axes:
                if isinstance(extent, str) and size_value(extent, sizes) != value.shape[axis]:
                    raise ShapeError(
                        f"axis {axis} of `{plan.parameter.label}` has {value.shape[axis]} elements, "
                        f"{extent} is {size_value(extent, sizes)}"
                    )
        return sizes

    def _separate(self, slot: Slot, keep: list[Any], symbolic: bool) -> None:
        """Copy inputs that share memory with a variable, so that the program's writes do not change them."""
        if symbolic:
            for position, buffer in enumerate(keep):
                slot.sizes[position] = len(buffer)
        count = len(self.array_plans)
        while True:
            found = self._found_overlap(slot, self._everything, count)
            if found < 0:
                return
            variable, other = self.array_plans[found // count], self.array_plans[found % count]
            if other.is_variable:
                raise StagedError(
                    f"the variables `{variable.parameter.label}` and `{other.parameter.label}` share memory",
                    hint="make one of them with a copy of the array",
                )
            position = found % count
            copy = ffi.from_buffer(bytearray(ffi.buffer(keep[position])))
            keep[position] = copy
            slot.words[other.index] = copy

    @property
    def device(self) -> str:
        """The device of a program that departs."""
        raise AssertionError("a program of the host does not depart")

    # ---- when it stops ----

    def explained(self, report: Any, where: Position | None) -> ProgramError | None:
        """The error in the report of a call at `where` that has departed; None if no kernel failed."""
        raise AssertionError("a program of the host does not depart")

    def finish_devices(self) -> None:
        """Wait for device work of a call that has stopped: it may still read the caller's arrays, and write results."""

    def hint_of(self, status: int, message: str) -> str | None:
        """A remedy for the error that stopped the program; None without one."""
        return _HINTS.get(status)

    def stopped(self, slot: Slot, status: int) -> None:
        """Raise the error that stopped the program."""
        error, host = slot.printer.take_error(), slot.host
        stopped = self.error_of(status, host)
        self._idle.append(slot)
        if error is not None:
            raise error
        if status == ErrorKind.INTERRUPTED:
            # The handler that was in place decides first, as it would have without us; Python's own raises.
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                handler(signal.SIGINT, sys._getframe())
            raise KeyboardInterrupt
        raise stopped

    def error_of(self, status: int, host: Any, more: Sequence[str] = ()) -> ProgramError:
        """The error that `host` describes, with `more` lines."""
        where, message = None, ""
        if host.error_kind != ErrorKind.OK:
            message = ffi.string(host.message).decode(errors="replace")
            if 0 <= host.error_site < len(self.artifact.sites):
                where = self.artifact.sites[host.error_site]
        details = []
        if where is not None:
            position = position_of_site(where)
            if not position.text and where.text:
                details.append(f"    {where.text.strip()}")
            hint = self.hint_of(status, message)
            return ERRORS.get(status, ProgramError)(message, where=position, details=[*details, *more], hint=hint)
        message = message or f"the program `{self.artifact.name}` stopped ({status})"
        return ERRORS.get(status, ProgramError)(message, details=more)


def _poison(memory: mmap.mmap, size: int) -> None:
    memory.seek(0)
    memory.write(b"\xff" * size)
