"""`Program`: a staged function for given types: its text, its memory plan, and how to run and export it."""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from staged.base.artifact import Artifact
from staged.base.tracebacks import trims_traceback
from staged.call.callbacks import callbacks_of
from staged.call.guards.arguments import Argument, described_sizes
from staged.call.memory import MemoryReport
from staged.call.program_cache import find_artifact, store_artifact
from staged.call.relations import relations_of
from staged.call.runnable import Loaded, Runnable
from staged.errors import DTypeError, StagedError, UnsupportedError
from staged.frontend.calls.arguments import as_argument, flatten_arguments
from staged.frontend.devices.resident import DeviceArray, note_staged_call
from staged.frontend.trace.captured import own_arrays
from staged.frontend.trace_function import TracedFunction
from staged.ir.machine import Machine
from staged.ir.nodes import Exported, VariableRef
from staged.ir.printer import print_function
from staged.ir.ranks import has_ranks, ranks_of_sizes
from staged.ir.size_functions import of_user, text_of_user
from staged.ir.sizes import Dim
from staged.ir.transfers import Transfers, in_columns
from staged.ir.types import with_sizes
from staged.ops.ranks import check_job
from staged.runtime.languages import LoadedProgram, language_of
from staged.runtime.options import CompileOptions
from staged.runtime.rows import in_rows, is_spread
from staged.saving.exported_folder import WEIGHTS, write_folder
from staged.saving.state_names import state_names
from staged.source import position_of_function
from staged.system import for_ranks
from staged.system import target as target_machine

if TYPE_CHECKING:
    from staged.pipeline import Built

EXPORTED_CORES = 64
"""Threads that an exported program has working memory for: its machine is not known when it is written."""


LISTED_STEPS = 4
"""The number of steps that a printed report lists, the slowest first."""


@dataclass(frozen=True)
class Report:
    """The cost and size of a program: seconds per staging step, lines of text, bytes of memory, kernels.

    `notes` lists what runs in place of a library that does not support an operation on the device. A program knows
    that after its first call. The messages are those of this rank.
    """

    seconds: dict[str, float]
    lines: int
    arena_bytes: int
    kernels: int
    notes: tuple[str, ...] = ()
    messages: int = 0
    """The messages to other ranks in all calls so far."""
    message_bytes: int = 0
    message_seconds: float = 0.0
    """The time in MPI, most of which is waiting."""

    def __str__(self) -> str:
        """Return aligned rows of the sizes and the slowest steps, then the notes."""
        slowest = sorted(self.seconds.items(), key=lambda step: -step[1])[:LISTED_STEPS]
        rest = sum(self.seconds.values()) - sum(seconds for _, seconds in slowest)
        rows = [
            ("lines of code", f"{self.lines:,}", ""),
            ("kernels", f"{self.kernels:,}", ""),
            ("working memory", f"{self.arena_bytes:,}", "bytes"),
            ("staging", f"{1e3 * sum(self.seconds.values()):,.0f}", "ms"),
            *((f"  {name}", f"{1e3 * seconds:,.0f}", "ms") for name, seconds in slowest),
        ]
        if self.messages:
            waiting = f"ms in MPI, {self.message_bytes:,} bytes"
            rows.insert(3, (f"{self.messages:,} messages", f"{1e3 * self.message_seconds:,.1f}", waiting))
        if len(self.seconds) > len(slowest):
            rows.append((f"  {len(self.seconds) - len(slowest)} other steps", f"{1e3 * rest:,.0f}", "ms"))
        return "\n".join((*in_columns(rows, "<><"), *self.notes))


class Program:
    """One program: made by `function.stage(*args)`, or behind the scenes by a call.

    Call it with arguments of the same types; results are fresh NumPy arrays in the tree that the function returns.
    A program that was staged in a region of plain Python returns `st.DeviceArray`s for arrays that the device computes.
    """

    def __init__(
        self,
        traced: TracedFunction,
        function: Callable[..., Any],
        static: Sequence[str],
        machine: Machine,
        options: CompileOptions,
        check_nan: bool = False,
        loaded: dict[Any, Loaded] | None = None,
        key: Any = None,
        target: str | None = None,
        given: Sequence[tuple[str, Any]] = (),
        ranks: int | None = None,
    ) -> None:
        self._loaded: dict[Any, Loaded] = {} if loaded is None else loaded
        known = self._loaded.get(key)
        self.key = key if known is None else known.key
        self._traced = traced
        self._function = function
        self._static = tuple(static)
        self._machine = machine
        self.options = options
        self._check_nan = check_nan
        self._target = target
        """The target that the user gave to the function."""
        self._given = given
        """The arguments by name, if the user staged the function."""
        self._ranks = ranks
        """The static number of ranks; None if the program is for the ranks of the job."""

    # ---- what it is ----

    @property
    def name(self) -> str:
        """The function's name."""
        return self._traced.function.name

    @property
    def ir(self) -> str:
        """The traced program as text, before any pass. Values that may differ between MPI ranks are marked `local`."""
        from staged.passes.ranks.vary import local_values

        return print_function(self._traced.function, local=local_values(self._traced.function))

    @property
    def lowered_ir(self) -> str:
        """The program as text after all passes: kernels and the structure around them."""
        from staged.pipeline import lower

        return print_function(lower(self._traced.function, self._machine))

    @property
    def source(self) -> str:
        """The C text."""
        return self._artifact.source

    @property
    def header(self) -> str:
        """The C header: the argument struct and the entry point.

        Like `source` it is that of the program that Python calls, in which arrays that the function has created are
        further inputs; in an exported folder they are constants of the program.
        """
        return self._artifact.header

    @property
    def memory(self) -> MemoryReport:
        """The memory plan: lifetime and place of each buffer, and the peak in bytes."""
        return MemoryReport.of(self._built.emitted.plan, self.name)

    def transfers(self) -> Transfers:
        """The copies between host and devices: value, direction, bytes, and reason. `print` shows them as a table.

        A copy inside a loop is listed once. A value that does not change in a loop is copied outside of it.
        """
        return Transfers(self._built.transfers)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of staging (dropped samples, long unrolled loops)."""
        return self._traced.notes

    def explain(self) -> str:
        """The stages of the program as text.

        Traced IR, IR after each pass that changed it, kernels with fusion decisions, loops and schedules, buffers, and
        copies between devices.
        """
        from staged.explain import explain

        return explain(self._traced.function, self._machine, self._check_nan)

    def report(self) -> Report:
        """Return seconds per staging step, sizes of the program, and notes of the device."""
        built, loaded = self._built, self._loaded.get(self.key)
        return Report(
            dict(built.seconds),
            len(self.source.splitlines()),
            built.emitted.artifact.arena_bytes,
            built.emitted.kernels,
            () if loaded is None else tuple(loaded.native.notes.found),
            *(() if loaded is None else loaded.native.traffic()),
        )

    def __repr__(self) -> str:
        return f"<staged program `{self.name}` for {self._machine.name}>"

    # ---- making it ----

    @cached_property
    def _built(self) -> Built:
        from staged.pipeline import build

        return build(self._traced.function, self._machine, self._check_nan)

    @cached_property
    def _artifact(self) -> Artifact:
        return self._built.emitted.artifact

    @cached_property
    def _native(self) -> LoadedProgram:
        known = self._loaded.get(self.key)
        if known is not None:
            return known.native
        check_job(self._ranks, self._function)
        found = find_artifact(self._traced.function, self._machine, self._check_nan)
        if found is None:
            found = self._artifact
            store_artifact(self._traced.function, self._machine, self._check_nan, found)
        made = language_of(found).load(found, self.options)
        if calls := {op.attrs["number"]: op.attrs["python"] for op in callbacks_of(self._traced.function)}:
            made.answer(calls)
        self._loaded[self.key] = Loaded(made, self.key)
        return made

    def compile(self) -> Program:
        """Compile and load now instead of at the first call; returns itself."""
        assert self._native is not None
        return self

    # ---- running it ----

    @trims_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with arguments of the types it was staged for.

        Raises: ShapeError or DTypeError for other types (stage again for those); the error that stopped the program.
        """
        note_staged_call()
        short = self._short
        if short is not None and not kwargs and len(args) == self._count:
            return self.runnable.rebuild(short(*args))
        return self.runnable.rebuild(self._sorted_out(*args, **kwargs))

    def _sorted_out(self, *args: Any, **kwargs: Any) -> Any:
        """Run with arguments passed in any way that the function allows."""
        given = flatten_arguments(self._function, args, kwargs, self._static).staged
        self._check(given)
        values = self._traced.inputs([_plain(argument.value) for argument in given])
        return self.runnable.outputs(values, self._traced.variables)

    @cached_property
    def _short(self) -> Callable[..., Any] | None:
        """The fast path for calls with plain arrays and numbers of the staged types; None without one."""
        kinds, count = self._kinds, len(self._traced.arguments)
        if kinds is None or self.runnable.devices or self._traced.sizes:
            return None
        hidden, variables = self._traced.hidden, self._traced.variables
        short = self._native.short(
            [*kinds, *(None for _ in (*hidden, *variables))],
            # Weakly: a cycle would keep the program loaded until the collector comes.
            partial(_by_the_long_way, weakref.WeakMethod(self._sorted_out), count),
            _array_or_itself,
        )
        if short is None or not (hidden or variables):
            return short
        direct, places = short, self.runnable.places
        if any(map(is_spread, hidden)):
            return lambda *args: direct(*args, *(in_rows(array) for array in hidden), *places(variables))
        return lambda *args: direct(*args, *hidden, *places(variables))

    @cached_property
    def _count(self) -> int:
        return len(self._traced.arguments)

    @cached_property
    def _kinds(self) -> list[type | None] | None:
        """The Python type of each number, None for an array, if each parameter is one staged leaf; else None."""
        parameters = inspect.signature(self._function).parameters
        arguments = self._traced.arguments
        if [argument.path for argument in arguments] != list(parameters):
            return None
        found: list[type | None] = []
        for argument in arguments:
            if argument.type.shape:
                found.append(None)
            elif argument.type.weak:
                found.append(type(argument.type.dtype.numpy.type().item()))
            else:
                found.append(argument.type.dtype.numpy.type)
        return found

    def run(self, arguments: Sequence[Argument], traced: TracedFunction | None = None) -> Any:
        """Run with flattened arguments; `traced` is a later trace of the same program, with its own captured state."""
        traced = traced or self._traced
        values = traced.inputs([_plain(argument.value) for argument in arguments])
        return self.run_on(values, traced)

    def run_on(self, values: Sequence[Any], traced: TracedFunction) -> Any:
        """Run on one value per input; `traced` has the outer Variables, and the tree of the results."""
        runnable = self.runnable if traced is self._traced else self._runnable_for(traced)
        return runnable(values, traced.variables)

    @cached_property
    def runnable(self) -> Runnable:
        """The callable part; shared with an earlier trace that yielded the same program if their results agree."""
        native = self._native
        loaded = self._loaded.setdefault(self.key, Loaded(native, self.key))
        if loaded.runnable is None or not loaded.runnable.serves(self._traced):
            loaded.runnable = self._runnable_for(self._traced)
        return loaded.runnable

    def _runnable_for(self, traced: TracedFunction) -> Runnable:
        return Runnable(self._native, traced, self._check_nan)

    def _check(self, given: Sequence[Argument]) -> None:
        expected = self._traced.arguments
        if len(given) != len(expected):
            raise TypeError(f"the program `{self.name}` takes {len(expected)} arrays and numbers, got {len(given)}")
        has_axes = all(want.type.ndim == have.type.ndim for want, have in zip(expected, given, strict=True))
        sizes = self._traced.sizes_of([argument.value for argument in given]) if has_axes else {}
        for want, have in zip(expected, given, strict=True):
            if want.type != have.type and not (has_axes and with_sizes(want.type, sizes) == have.type):
                raise self._unfit(f"`{want.path}` was staged as {want.type}, got {have.type}", sizes)
        for dim, size in sizes.items():
            if size < dim.least:
                raise self._unfit(f"dimension `{of_user(dim)}` is {size}, it may be {dim.least} to {dim.max}", sizes)

    def _unfit(self, message: str, sizes: Mapping[Dim, int]) -> StagedError:
        """The error for arguments that do not fit, with the sizes of the call."""
        traced, where = self._traced, position_of_function(self._function)
        return StagedError(
            text_of_user(message, sizes),
            details=described_sizes(traced.sizes, sizes, traced.arguments, where) if sizes else (),
            hint="call the staged function itself, or stage it again for these types",
        )

    # ---- taking it along ----

    def export(self, folder: str | Path, target: str | None = None, overwrite: bool = False) -> list[Path]:
        """Write a standalone folder (C, header, main, Makefile, README, weights) and return its files.

        The target of the function is the default of `target`. Without one the program adapts to the processor: it uses
        its widest vectors and all its cores. `target` names one machine: 'portable', 'x86-64-v3', 'x86-64-v4',
        'native'; or 'c99', which is C99 without extensions, threads and allocation, for microcontrollers, as a library
        without a `main`. The folder builds with a C compiler alone: `make && ./NAME --help`. With a GPU region, `make`
        builds it with nvcc, and `make emu` for the emulated device, which is in the folder.

        Variables are written to `weights.safetensors` with their present values. The names are those of the module's
        `state_dict`. Captured arrays are written as `.npy` files. These files are the defaults of the program's flags.
        A program that draws random numbers has the flag `--seed N`; the default is the seed at the time of export.

        Raises: ArgumentError if a file in the folder was edited after an earlier export. `overwrite=True` replaces it.
        """
        from staged.pipeline import back_end_of, build, local_edges

        traced = self._traced
        constants = own_arrays(traced.hidden)
        function = traced.function
        for op in callbacks_of(function):
            raise UnsupportedError(
                f"an exported program has no Python, and this one calls its function `{op.attrs['python'].name}`",
                where=op.where,
                hint='leave the `st.callback` out: `print`, `open(path, "w")` and `st.save` work without Python',
            )
        options = replace(function.options, keeps_results=False)
        function = function.replace(
            options=options,
            param_data=[*(None for _ in traced.arguments), *constants, *(None for _ in traced.sizes)],
            exported=Exported(
                self._state_names(),
                traced.result.order_of_dicts(),
                relations_of(function),
                has_ranks=self._ranks != 1 and has_ranks(function),
                ranks=ranks_of_sizes(function) if self._ranks is None else (self._ranks, function.where),
            ),
        )
        target = target or self._target
        contract, nan = self._machine.contracts, self._check_nan
        machine = for_ranks(target_machine(target or "portable", contract), self._ranks)
        back_end = back_end_of(function)
        names = back_end.variants if target is None else ()
        if names:
            machine = machine.with_cores(EXPORTED_CORES)
        artifact = build(function, machine, nan).emitted.artifact
        cores = {name: target_machine(name, contract).with_cores(EXPORTED_CORES) for name in names}
        wide = {name: for_ranks(each, self._ranks) for name, each in cores.items()}
        variants = {name: build(function, each, nan).emitted.artifact for name, each in wide.items()}
        captured = [array for array, own in zip(traced.hidden, constants, strict=True) if own is None]
        local = local_edges(traced.function) if artifact.has_ranks else ()
        artifact, arrays, weights = self._with_files(artifact, captured, local)
        texts = back_end.export(artifact, variants, language_of(artifact).files_beside(artifact))
        return write_folder(Path(folder), texts, arrays, weights, overwrite)

    def _state_names(self) -> dict[VariableRef, str]:
        """The names of Variables in the `state_dict` of their modules."""
        names = state_names(self._traced.variables, self._function, self._given)
        outer = [reference for reference in self._traced.function.variables if reference.outer]
        pairs = list(zip(outer, self._traced.variables, strict=True))
        taken = {reference.name for reference, variable in pairs if id(variable) not in names}
        found = {}
        for reference, variable in pairs:
            if id(variable) in names:
                numbered = (names[id(variable)] + (f"_{number}" if number else "") for number in itertools.count())
                found[reference] = next(name for name in numbered if name not in taken)
                taken.add(found[reference])
        return found

    def _with_files(
        self, artifact: Artifact, captured: Sequence[Any], local: Collection[tuple[str, int | str]]
    ) -> tuple[Artifact, dict[str, np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]:
        """The artifact with the start values and files of its parameters; the captured arrays by file, the weights by
        name. `local` are the arguments, results and Variables that may differ between ranks.
        """
        variables = dict(zip(_outer_names(self._traced), self._traced.variables, strict=True))
        arguments = self._traced.arguments
        found = self._traced.sizes_of([argument.value for argument in arguments])
        sizes = {dim.name: size for dim, size in found.items()}
        hidden = iter(captured)
        skipped = len(arguments)
        order = iter(self._traced.result.order_of_dicts())
        parameters, arrays, weights, values = [], {}, {}, {}
        for each in artifact.parameters:
            if each.is_size:
                each = replace(each, start=sizes[each.label])
            elif each.part == "seed":
                each = replace(each, start=int(variables[each.label].numpy()))
            elif each.role == "variable" and not each.part:
                each = replace(each, file=WEIGHTS, is_local=("variable", each.label) in local)
                weights[each.path] = values[each.place] = variables[each.label].numpy()
            elif each.role == "input" and skipped:
                each = replace(each, is_local=("input", len(arguments) - skipped) in local)
                skipped -= 1
            elif each.role == "output":
                each = replace(each, is_local=("output", next(order)) in local)
            elif each.role == "input":
                each = replace(each, file=f"{each.label}.npy")
                arrays[each.file] = values[each.place] = next(hidden)
            parameters.append(each)
        return replace(artifact, parameters=tuple(parameters), values=values), arrays, weights


def _array_or_itself(value: Any) -> Any:
    """A NumPy array from another library's, if NumPy can read it; else the value, which the slow path will report."""
    try:
        return as_argument(value)
    except DTypeError:
        return value


def _by_the_long_way(method: weakref.WeakMethod[Any], count: int, *values: Any) -> Any:
    found = method()
    assert found is not None, "the short way into a program is called by that program alone"
    return found(*values[:count])


def _outer_names(traced: TracedFunction) -> list[str]:
    """The program's names for its outer Variables."""
    return [reference.name for reference in traced.function.variables if reference.outer]


def _plain(value: Any) -> Any:
    """`value` for the runtime: NumPy arrays and numbers."""
    if isinstance(value, int | float | complex | bool | np.ndarray | DeviceArray):
        return value
    return np.asarray(value)
