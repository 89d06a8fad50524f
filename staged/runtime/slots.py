"""`Slot`: the memory of one running call of a program."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from staged.base.artifact import Artifact
from staged.errors import ProgramMemoryError
from staged.runtime.arguments import ArgumentLayout, ArgumentPlan, bytes_of, cell_of, is_by_value
from staged.runtime.guard import ffi
from staged.runtime.library import Library
from staged.runtime.machine import default_threads
from staged.runtime.printing import Notes, Printer, PythonCall, note, write


class Program(Protocol):
    """The part of a program that a slot uses; see `native.NativeProgram`."""

    artifact: Artifact
    layout: ArgumentLayout
    array_plans: Sequence[ArgumentPlan]
    library: Library
    python_calls: Mapping[int, PythonCall]
    notes: Notes
    unbound: tuple[Callable[[], Any], ...]


class Slot:
    """The memory of one running call: argument struct, arena, host, thread team. Later calls reuse it."""

    def __init__(self, program: Program) -> None:
        artifact, layout = program.artifact, program.layout
        self.args = ffi.new("char[]", layout.size)
        self.words = ffi.cast("void **", self.args)
        self.cells = [
            cell_of(parameter, self.args + offset)
            for parameter, offset in zip(artifact.parameters, layout.offsets, strict=True)
            if is_by_value(parameter)
        ]
        self.sizes = ffi.new("int64_t[]", [0] * len(program.array_plans))
        for position, plan in enumerate(program.array_plans):
            if plan.shape is not None:
                self.sizes[position] = bytes_of(plan)
        self.memory = anonymous_memory(artifact)
        self.arena: Any = ffi.from_buffer(self.memory)
        program.library.release_with(self, self.memory)
        self.stop = ffi.new("volatile int *")
        self.team = program.library.team_for(self, artifact.threads or default_threads())
        self.host = ffi.new("st_host *")
        self.printer = Printer(self.stop)
        self.printer.calls = program.python_calls
        self.printer.notes = program.notes
        self._handle = ffi.new_handle(self.printer)
        self.host.write = write
        self.host.note = note
        self.host.context = self._handle
        self.host.stop = self.stop
        self.host.team = self.team
        self.stream: Any = None  # the one that `live` is about
        self.live = False
        self.forks = _forks
        self.bound: tuple[Callable[[], Any], ...] = program.unbound
        """The arrays whose addresses the struct holds for the variables, referenced weakly."""
        self.held: frozenset[Any] = frozenset()
        """Their addresses."""


_forks = 0
"""The number of forks between the first process and this one: a slot from before has the parent's helper threads."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def is_of_this_process(slot: Slot) -> bool:
    """Return whether a slot belongs to this process: one from before a fork has the helper threads of the parent."""
    return slot.forks == _forks


def nothing() -> None:
    """The weak reference of a variable that is not bound."""


def anonymous_memory(artifact: Artifact) -> mmap.mmap:
    """The arena: page-aligned, zero at first, and given memory by the system as it is touched."""
    try:
        memory = mmap.mmap(-1, max(artifact.arena_bytes, 1))
    except (OSError, OverflowError) as error:
        raise ProgramMemoryError(
            f"the program `{artifact.name}` needs {artifact.arena_bytes:,} bytes, which the system does not give",
            hint="use smaller batches or arrays; `program.memory` shows what needs how much",
        ) from error
    if artifact.arena_bytes >= 1 << 22 and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages: only slower
    return memory
