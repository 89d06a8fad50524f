"""The programs of a staged function, and the choice of one for a call.

A call is tried against the checks of the programs, the most recently run first. If one holds, that program runs with
the arguments that the check returned. Otherwise the function is traced, which yields a new program or one of an earlier
trace.
"""

from __future__ import annotations

import reprlib
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from traceback import walk_tb
from types import MethodType
from typing import TYPE_CHECKING, Any

from staged.call.guards.arguments import write_arguments, write_captured
from staged.call.guards.check import Check, DeadError, Writer
from staged.call.guards.expected import TooLargeError, held
from staged.call.guards.guard import Reason
from staged.errors import StagedError
from staged.frontend.calls.arguments import Arguments
from staged.frontend.calls.detection import ENOUGH_SIZES, Axis, Call, Detection, described_axis
from staged.frontend.devices.resident import ambient_options, ambient_region, device_of, note_staged_call
from staged.frontend.trace_function import TracedFunction
from staged.frontend.values.generator import Generator
from staged.ir.size_functions import of_user, text_of_user
from staged.ir.sizes import Dim
from staged.ir.types import TensorType, dims_of, shape_text
from staged.ops.autocast import lowered_to
from staged.runtime.rows import in_rows, is_spread
from staged.source import Position, is_library_file, position_of_frame, position_of_function, warn

if TYPE_CHECKING:
    from staged.call.program import Program
    from staged.call.runnable import Loaded

MOST_PROGRAMS = 16
"""The number kept for one function."""
MANY_PROGRAMS = 8
MANY_TRACES = 20
"""From this number of traces on, a warning is shown, once."""


@dataclass(frozen=True)
class ProgramUse:
    """Statistics of one program of a staged function, an element of `f.programs`."""

    arguments: str
    """The parameters and their types, as in `x: f32 (32, 10), n: i64`; static ones are not listed."""
    calls: int
    """The number of runs, including the call that traced it."""
    traces: int
    """The number of traces of the function that yielded this program."""
    failures: int
    """The number of calls for which it was tried and a guard failed."""
    staging_seconds: float
    """From the call that traced it to the loaded program."""
    seconds: float
    """In all calls after that one."""

    def __str__(self) -> str:
        later = self.calls - 1
        each = f", {1e6 * self.seconds / later:.1f} us a call" if later else ""
        return (
            f"({self.arguments}): {_counted(self.calls, 'call')}, {_counted(self.traces, 'trace')}, "
            f"{_counted(self.failures, 'guard failure')}; staged in {1e3 * self.staging_seconds:.0f} ms{each}"
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class Entry:
    """One trace of a function: the check of its reads, and the program it yielded."""

    __slots__ = (
        "__weakref__", "arguments", "bounds", "calls", "captured", "check", "difference", "direct", "failures",
        "given", "given_types", "is_dead", "key", "options", "region", "runnable", "seconds", "staging_seconds",
        "variables", "writes",
    )  # fmt: skip

    def __init__(self, traced: TracedFunction, program: Program) -> None:
        self.arguments = ", ".join(f"{argument.path}: {type_text(argument.type)}" for argument in traced.arguments)
        self.given_types: dict[str, Any] = {argument.path: argument.type for argument in traced.arguments}
        inputs = zip(traced.function.param_paths, traced.function.block.params, strict=True)
        self.captured: dict[str, Any] = {ref.name: ref.type for ref in traced.function.variables if ref.outer} | {
            path: param.type for path, param in list(inputs)[len(traced.arguments) :]
        }
        """The types of captured arrays and Variables."""
        self.bounds = {size.dim.name: (-size.dim.least, size.dim.max or 0) for size in traced.sizes}
        """The smallest size of each dimension, with a minus sign, and the largest."""
        self.key = program.key
        self.runnable = program.runnable
        self.given = len(traced.arguments)
        self.direct = (
            None if traced.reads.writes or not self.runnable.is_plain else self.runnable.direct(_known(traced))
        )
        self.options = program.options
        self.region = region_key()
        self.writes = traced.reads.writes
        self.calls = 1
        self.failures = 0
        self.staging_seconds = self.seconds = 0.0
        self.is_dead = False
        self.check: Check = lambda args, kwargs, owner: None
        self.difference: Callable[[int], str] = str
        """Describes the guard that failed, from the result of `check`."""
        self.variables = [weakref.ref(variable) for variable in traced.variables]

    def replaces(self, older: Entry) -> bool:
        """Return whether an older program differs only in smaller bounds of dimensions."""
        return (
            bool(self.bounds)
            and self.region == older.region
            and self.options is older.options
            and self.bounds.keys() == older.bounds.keys()
            and self.bounds != older.bounds
            and all(
                mine >= other
                for name, ends in older.bounds.items()
                for mine, other in zip(self.bounds[name], ends, strict=True)
            )
            and self._forms() == older._forms()
        )

    def _forms(self) -> dict[str, str]:
        """The arguments without bounds."""
        return {path: str(given) for path, given in self.given_types.items()}

    def die(self, _: object = None) -> None:
        """Drop the program: an object that the trace read has died."""
        self.is_dead = True

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any], owner: Any) -> tuple[Any, ...] | None:
        """The program's inputs for a call: arguments, then captured arrays; None if the program does not fit."""
        found = None if self.is_dead else self.check(args, kwargs, owner)
        values = found if type(found) is tuple else None
        if values is not None and self.region is not None:
            # Arrays that a region keeps on a device are taken from there.
            devices = self.runnable.devices[: self.given]
            if devices and tuple(map(device_of, values[: self.given])) != devices:
                values = None
        if values is None:
            self.failures += 1
        return values

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run the program with the inputs that `values` returned."""
        self.calls += 1
        if self.region is not None:
            note_staged_call()
        started = perf_counter()
        if self.direct is not None:
            result = self.direct(*values)
        else:
            for owner, name, value in self.writes:
                setattr(owner.reference(), name, value)
            result = self.runnable(values, [reference() for reference in self.variables])
        self.seconds += perf_counter() - started
        return result


def region_key() -> Any:
    """The enclosing regions and `autocast` of plain Python, as part of a key; None outside of any."""
    region, low = ambient_region(), lowered_to()
    if region is None:
        return low
    return region.device, tuple(sorted(ambient_options().items(), key=repr)), low


def _known(traced: TracedFunction) -> frozenset[int]:
    """The inputs whose shapes a check compares."""
    count = len(traced.arguments)
    hidden = (count + place for place, array in enumerate(traced.hidden) if id(array) in traced.reads.arrays)
    return frozenset((*range(count), *hidden))


class Programs:
    """The state of a staged function between calls, shared with methods made of it."""

    def __init__(self) -> None:
        self.entries: tuple[Entry, ...] = ()
        """The most recently run first."""
        self.lock = Lock()
        """Held while `entries` changes."""
        self.reasons: list[Reason] = []
        self.changed = ""
        """The guard that failed before the last trace."""
        self.values = ""
        """The argument that differed, with both values, if it was one."""
        self.captured = ""
        """The captured array that differed, with both shapes, if it was one."""
        self.loaded: dict[Any, Loaded] = {}
        self.traces: Counter[Any] = Counter()
        """The number of traces that yielded each program, by key."""
        self.generator: Generator | None = None
        """The random generator of a function with a seed of its own."""
        self.told: set[str] = set()
        """The warnings shown so far."""
        self.detection = Detection()
        self.why_static = ""
        """The reason why an axis that varied is static in the last trace."""

    def uses(self) -> list[ProgramUse]:
        """Statistics of each program, the most recently run first."""
        return [
            ProgramUse(
                entry.arguments,
                entry.calls,
                self.traces[entry.key],
                entry.failures,
                entry.staging_seconds,
                entry.seconds,
            )
            for entry in self.entries
            if not entry.is_dead
        ]

    def ran(self, entry: Entry) -> None:
        """Move `entry` to the front, so that the next call tries it first."""
        with self.lock:
            if entry in self.entries:
                self.entries = (entry, *(other for other in self.entries if other is not entry))

    def traces_again(self, args: tuple[Any, ...], kwargs: dict[str, Any], owner: Any) -> None:
        """Note which guard of the last program refused a call that fits no program."""
        if self.entries:
            entry = self.entries[0]
            found = None if entry.is_dead else entry.check(args, kwargs, owner)
            changed = entry.difference(found) if type(found) is int else ""
            self.changed = "an object that is gone now" if entry.is_dead else changed

    def keep(self, made: Entry | list[Reason], key: Any, function: Callable[..., Any]) -> None:
        """Store the result of `entry_for`, and warn if repeated tracing will not end."""
        before = self.entries[:1]
        self.values = self.captured = ""
        if before and isinstance(made, Entry):
            self.values = _differing(before[0].given_types, made.given_types)
            self.captured = _differing(before[0].captured, made.captured)
        with self.lock:
            alive = tuple(entry for entry in self.entries if not entry.is_dead)
            if isinstance(made, Entry):
                alive = (made, *(entry for entry in alive if not made.replaces(entry)))[:MOST_PROGRAMS]
            self.entries = alive
        self.reasons = [] if isinstance(made, Entry) else made
        if isinstance(made, Entry):
            if len(self.entries) == MANY_PROGRAMS and "programs" not in self.told:
                self.told.add("programs")
                last = self.changed and f", the last since {self.changed} is another one"
                note(
                    function,
                    f"has {MANY_PROGRAMS} programs{last}: give what varies "
                    "and need not be known while staging as an array, and name an axis that varies with `st.dim`",
                )
        self.traces[key] += 1
        self._forget_all_but(key)
        if self.traces[key] == MANY_TRACES and "traces" not in self.told:
            self.told.add("traces")
            why = str(self.reasons[0]) if self.reasons else self.changed and f"{self.changed} is another one each time"
            note(function, f"was traced {MANY_TRACES} times to the same program{why and f', because {why}'}")

    def _forget_all_but(self, last: Any) -> None:
        """Unload programs that no call runs any more; the last is kept for functions that are traced each time."""
        used = {last, *(entry.key for entry in self.entries)}
        for key in [key for key in list(self.loaded) if key not in used][: -MOST_PROGRAMS or None]:
            self.loaded.pop(key, None)
            self.traces.pop(key, None)

    def traced_sizes(
        self, call: Call, reasons: Mapping[tuple[Axis, ...], Exception], function: Callable[..., Any]
    ) -> None:
        """Count the sizes of a call that was traced. Notes name an axis with a second size, and say why the sizes of
        axes stay static.
        """
        call.keep()
        for axes, error in {} if self.reasons else reasons.items():
            text, where = reason_of(error)
            why = f"has one program for each size of {described_axis(axes[0], call.axes_with(ENOUGH_SIZES))}: {text}"
            call.family.why_static |= dict.fromkeys(axes, why)
            self._tell_once("static", why, where, function)
        self.why_static = "; ".join(dict.fromkeys(call.family.why_static.values()))
        if self.reasons or self.why_static:
            return
        if columns := call.axes_with(ENOUGH_SIZES - 1):
            second = described_axis(next(iter(columns)), columns)
            self._tell_once(
                "second",
                f"was traced for a second size of {second}. One program with a dimension serves all "
                'sizes from the third on; `dims` declares the dimension now, and `dims="static"` forbids it',
                None,
                function,
            )

    def _tell_once(self, kind: str, text: str, where: Position | None, function: Callable[..., Any]) -> None:
        if kind not in self.told:
            self.told.add(kind)
            note(function, text, where)

    def clear(self) -> None:
        """Forget all programs."""
        with self.lock:
            self.entries = ()
        self.reasons, self.changed, self.values, self.captured, self.why_static = [], "", "", "", ""
        self.loaded.clear()
        self.traces.clear()
        self.detection.clear()


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the first argument that has another type, or as a static one another value, than in the trace before."""
    for path, type in now.items():
        old = before.get(path, type)
        if old == type:
            continue
        if not isinstance(type, TensorType) or not isinstance(old, TensorType):
            return f"`{path}` is {type}; the last trace had {old}"
        if type.shape != old.shape:
            return f"`{path}` has shape {_shape_text(type)}; the last trace had {_shape_text(old)}"
        return f"`{path}` has dtype {type.dtype}; the last trace had {old.dtype}"
    return ""


def type_text(type: TensorType) -> str:
    """A type with the bounds of its dimensions: `f32 (N <= 512, 3)`."""
    return str(type) if type.is_static else str(type).replace(shape_text(type.shape), _shape_text(type), 1)


def _shape_text(type: TensorType) -> str:
    shape = [_dim_text(size) if isinstance(size, Dim) else size for size in type.shape]
    named = {size for size in type.shape if isinstance(size, Dim)}
    others = [f", {_dim_text(dim)}" for dim in dict.fromkeys(dims_of(type)) if dim.max and dim not in named]
    return text_of_user(shape_text(shape), dims_of(type)) + "".join(others)


def _dim_text(dim: Dim) -> str:
    """A dimension with its bounds. Size 0, and in detection 1, are not mentioned."""
    return f"{f'{dim.least} <= ' if dim.least > 1 else ''}{of_user(dim)}{f' <= {dim.max}' if dim.max else ''}"


def note(function: Callable[..., Any], text: str, where: Position | None = None) -> None:
    """Tell the user something about a staged function, at a line or at its definition."""
    warn(f"`{getattr(function, '__name__', 'a function')}` {text}", where or position_of_function(function))


def reason_of(error: Exception) -> tuple[str, Position | None]:
    """The reason why staging failed, with the line of the user, and its position."""
    where = error.where if isinstance(error, StagedError) else None
    text = error.message if isinstance(error, StagedError) else f"{type(error).__name__}: {error}"
    if where is None:
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]
        lines = [frame for frame in frames if not is_library_file(frame.f_code.co_filename)]
        where = position_of_frame(lines[-1]) if lines else None
    return str(Reason(text.splitlines()[0] if text else "", where)), where


def entry_for(
    function: Callable[..., Any], arguments: Arguments, traced: TracedFunction, program: Program
) -> Entry | list[Reason]:
    """An entry for a trace; the reasons why there can be none."""
    if traced.reads.reasons:
        return list(traced.reads.reasons.values())
    region = ambient_region()
    if region is not None and region.strict:
        return [Reason("it is called inside a strict `with_backend`", None)]
    entry = Entry(traced, program)
    named = [leaf for leaf in arguments.leaves if leaf.kind.word == "named"]
    entry.given_types |= {leaf.name: reprlib.repr(leaf.given) for leaf in named}
    alive = weakref.ref(entry)

    def dead(_: object) -> None:
        found = alive()
        if found is not None:
            found.die()

    writer = Writer(dead)
    try:
        if isinstance(function, MethodType):
            writer.refuse(f"owner is not {writer.object(held(function.__self__))}")
        given, sizes = write_arguments(
            writer,
            arguments.positional,
            arguments.keywords,
            arguments.parts(),
            arguments.sizes,
            arguments.assumptions.relations if arguments.assumptions else (),
        )
        for guard in traced.reads.guards.values():
            writer.guard(guard)
        for array in traced.hidden:
            text = write_captured(writer, array, traced.reads.arrays)
            given.append(f"{writer.constant(in_rows)}({text})" if is_spread(array) else text)
        entry.check = writer.finish([*given, *sizes])
        entry.difference = writer.difference
    except DeadError:
        return [Reason("an object that was made while staging was read as one from outside", None)]
    except TooLargeError:
        return [Reason("an argument holds too many elements to compare", None)]
    return entry
