"""A loaded shared library, and what lives only as long as it does: thread teams, and memory of its own.

Tested by `tests/runtime/test_native.py` and `tests/runtime/test_team.py`.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import Any

from staged.errors import CompilerError
from staged.runtime.blas import missing_blas
from staged.runtime.guard import ffi, loader


class Library:
    """A loaded shared library; unloaded when nothing of it is used any more."""

    def __init__(self, path: Path, name: str, mode: int) -> None:
        dl = loader()
        handle = dl.dlopen(os.fsencode(path), mode)
        if handle == ffi.NULL:
            words = ffi.string(dl.dlerror()).decode(errors="replace")
            raise missing_blas(words) or CompilerError(f"the compiled program `{name}` cannot be loaded: {words}")
        self._handle = handle
        finalizer = weakref.finalize(self, dl.dlclose, handle)
        finalizer.atexit = False  # helper threads may still run its code while the process ends
        entry = self.symbol(name)
        if entry == ffi.NULL:
            raise CompilerError(f"the compiled program has no function `{name}`")
        self.entry = ffi.cast("st_entry *", entry)
        create, destroy = self.symbol(f"{name}_team_create"), self.symbol(f"{name}_team_destroy")
        self.has_team = create != ffi.NULL and destroy != ffi.NULL
        self._release = ffi.cast("void (*)(void *)", self.symbol(f"{name}_release"))
        self._create_team = ffi.cast("st_team_create *", create)
        self._destroy_team = ffi.cast("st_team_destroy *", destroy)

    def symbol(self, name: str) -> Any:
        """The address of a name of the library, NULL where it has none."""
        return loader().dlsym(self._handle, name.encode())

    def team_for(self, owner: Any, threads: int) -> Any:
        """A thread team that ends when `owner` dies, or NULL."""
        if not self.has_team or threads <= 1:
            return ffi.NULL
        team = self._create_team(threads)
        if team != ffi.NULL:
            # The finalizer holds the library: in a cycle of garbage it would else be unloaded before the team has
            # ended.
            weakref.finalize(owner, _end_team, self, os.getpid(), team).atexit = False
        return team

    def release_with(self, owner: Any, memory: mmap.mmap) -> None:
        """Free the memory that the program has allocated in its arena when `owner` dies."""
        if self._release != ffi.NULL:
            weakref.finalize(owner, _release_arena, self, memory, os.getpid()).atexit = False


def _release_arena(library: Library, memory: mmap.mmap, process: int) -> None:
    if os.getpid() == process:
        library._release(ffi.from_buffer(memory))


def _end_team(library: Library, process: int, team: Any) -> None:
    # After a fork the helpers exist in the parent only.
    if os.getpid() == process:
        library._destroy_team(team)
