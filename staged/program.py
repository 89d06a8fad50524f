"""`Program`: a staged function for given types: its text, its memory plan, and how to run and export it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from staged.backends.c_family.export import export_files
from staged.errors import StagedError
from staged.frontend.arguments import Argument, flatten_arguments
from staged.frontend.trace import TracedFunction
from staged.ir.machine import Machine
from staged.ir.printer import print_function
from staged.ir.types import TensorType
from staged.memory import MemoryReport
from staged.pipeline import Built, build, lower
from staged.program_cache import find_artifact, store_artifact
from staged.runtime.compiler import CompileOptions
from staged.runtime.native import NativeProgram, load
from staged.system import target as target_machine


@dataclass(frozen=True)
class Report:
    """What staging cost and gave: seconds per step, lines of text, bytes of memory, kernels."""

    seconds: dict[str, float]
    lines: int
    arena_bytes: int
    kernels: int

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in self.seconds.items())
        return f"{self.lines} lines, {self.kernels} kernels, {self.arena_bytes:,} bytes of working memory; {times}"


class Program:
    """One program: made by `function.stage(*args)`, or behind the scenes by a call.

    Call it with arguments of the same types; results are fresh NumPy arrays in the tree that the function returns.
    """

    def __init__(
        self,
        traced: TracedFunction,
        function: Callable[..., Any],
        static: Sequence[str],
        machine: Machine,
        options: CompileOptions,
        check_nan: bool = False,
    ) -> None:
        self._traced = traced
        self._function = function
        self._static = tuple(static)
        self._machine = machine
        self._options = options
        self._check_nan = check_nan

    # ---- what it is ----

    @property
    def name(self) -> str:
        """The function's name."""
        return self._traced.function.name

    @property
    def ir(self) -> str:
        """The traced program as text, before any pass."""
        return print_function(self._traced.function)

    @property
    def lowered_ir(self) -> str:
        """The program as text after all passes: kernels and the structure around them."""
        return print_function(lower(self._traced.function, self._machine))

    @property
    def source(self) -> str:
        """The C text."""
        return str(self._artifact.source)

    @property
    def header(self) -> str:
        """The C header: the argument struct and the entry point."""
        return str(self._artifact.header)

    @property
    def memory(self) -> MemoryReport:
        """What lives when, where, and the peak in bytes."""
        return MemoryReport.of(self._built.emitted.plan, self.name)

    @property
    def notes(self) -> tuple[str, ...]:
        """What staging noticed (dropped samples, long unrolled loops)."""
        return self._traced.notes

    def report(self) -> Report:
        """Seconds per staging step, lines of text, bytes of memory, number of kernels."""
        built = self._built
        return Report(
            dict(built.seconds),
            len(self.source.splitlines()),
            built.emitted.artifact.arena_bytes,
            len(built.emitted.kernels),
        )

    def __repr__(self) -> str:
        return f"<staged program `{self.name}` for {self._machine.name}>"

    # ---- making it ----

    @cached_property
    def _built(self) -> Built:
        return build(self._traced.function, self._machine, self._check_nan)

    @cached_property
    def _artifact(self) -> Any:
        return self._built.emitted.artifact

    @cached_property
    def _native(self) -> NativeProgram:
        found = find_artifact(self._traced.function, self._machine, self._check_nan)
        if found is None:
            found = self._artifact
            store_artifact(self._traced.function, self._machine, self._check_nan, found)
        return load(found, self._options)

    def compile(self) -> Program:
        """Compile and load now instead of at the first call; returns itself."""
        assert self._native is not None
        return self

    # ---- running it ----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with arguments of the types it was staged for.

        Raises: ShapeError or DTypeError for others (stage again for those), and what stops the program.
        """
        given = flatten_arguments(self._function, args, kwargs, self._static).staged
        self._check(given)
        return self.run(given)

    def run(self, arguments: Sequence[Argument], traced: TracedFunction | None = None) -> Any:
        """Run with flattened arguments; `traced` is a later trace of the same program, with its own closed-over state."""
        traced = traced or self._traced
        values: list[Any] = [_plain(argument.value) for argument in arguments]
        values += traced.hidden
        values += [variable.buffer() for variable in traced.variables]
        outputs = self._native(*values)
        types = [leaf for leaf in traced.result.leaves if isinstance(leaf, TensorType)]
        return traced.rebuild(
            # A Python number that was computed with comes back as one.
            [output.item() if type.weak else output for output, type in zip(outputs, types, strict=True)]
        )

    def _check(self, given: Sequence[Argument]) -> None:
        expected = self._traced.arguments
        if len(given) != len(expected):
            raise TypeError(f"the program `{self.name}` takes {len(expected)} arrays and numbers, got {len(given)}")
        for want, have in zip(expected, given, strict=True):
            if want.type != have.type:
                raise StagedError(
                    f"`{want.path}` was staged as {want.type}, got {have.type}",
                    hint="call the staged function itself, or stage it again for these types",
                )

    # ---- taking it along ----

    def export(self, folder: str | Path, target: str = "portable") -> list[Path]:
        """Write a standalone folder (C, header, main, Makefile, README) and return its files.

        `target` names the machine it is for: 'portable', 'x86-64-v3', 'x86-64-v4', 'native'. The folder builds with a C
        compiler alone: `make && ./NAME --help`. Arrays that the function closes over are written as `.npy` files.
        """
        machine = target_machine(target)
        artifact = build(self._traced.function, machine, self._check_nan).emitted.artifact
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in export_files(artifact).items():
            (path / name).write_text(text, encoding="utf-8")
            written.append(path / name)
        labels = [parameter.label for parameter in artifact.parameters if parameter.role == "input"]
        for label, array in zip(labels[len(self._traced.arguments) :], self._traced.hidden, strict=True):
            np.save(path / f"{label}.npy", array)
            written.append(path / f"{label}.npy")
        return written


def _plain(value: Any) -> Any:
    """What the runtime takes: NumPy arrays and numbers."""
    if isinstance(value, int | float | bool | np.ndarray):
        return value
    return np.asarray(value)


