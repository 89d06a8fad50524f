"""Load the emulated device, and read its counters."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cffi

from cuda_emulator.building import build

ffi: Any = cffi.FFI()
ffi.cdef("void *dlopen(const char *path, int mode); void *dlsym(void *library, const char *name); char *dlerror(void);")
# A process may hold two libraries of one name, NVIDIA's and these: a program must use those it is linked with, not the
# first that is visible to all.
_MODE = os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0)
VARIABLE = "STAGED_CUDA_EMULATOR"


@cache
def _loader() -> Any:
    library = ffi.dlopen(None)
    _ = library.dlerror  # found now: to look for it after a failure would clear what it has to say
    return library


def open_library(path: Path) -> Any:
    """Load a part of the emulated device. Dependent libraries are linked against it and find it by name.

    Raises: OSError with the message of the loader.
    """
    handle = _loader().dlopen(os.fsencode(path), _MODE)
    if handle == ffi.NULL:
        message = ffi.string(_loader().dlerror()).decode(errors="replace")
        raise OSError(f"the emulated device cannot be loaded: {message}")
    return handle


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Counters of the emulated device since this process loaded it; `live_...` are objects not yet freed."""

    copies_to_device: int
    copies_to_host: int
    copies_on_device: int
    copies_between_devices: int
    bytes_to_device: int
    bytes_to_host: int
    launches: int
    graph_launches: int
    enqueued: int
    synchronisations: int
    allocations: int
    live_allocations: int
    live_bytes: int
    live_pinned: int
    live_streams: int
    live_events: int
    live_graphs: int
    live_libraries: int
    library_calls: int
    live_handles: int
    live_descriptors: int
    descriptors_created: int
    violations: int

    def __sub__(self, earlier: DeviceCounts) -> DeviceCounts:
        """The counts since `earlier`."""
        return DeviceCounts(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


class Emulator:
    """The loaded device: its behaviour is that of `STAGED_CUDA_EMULATOR`.

    Raises: OSError if it cannot be loaded; ValueError for an unknown option.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = open_library(path)
        self.configure(os.environ.get(VARIABLE, ""))

    def function(self, name: str, type: str) -> Any:
        """A function of the device's library, of this C type."""
        symbol = _loader().dlsym(self._handle, name.encode())
        assert symbol != ffi.NULL, f"the emulated device has no `{name}`"
        return ffi.cast(type, symbol)

    def _text(self, name: str, type: str) -> str:
        return str(ffi.string(self.function(name, type)()).decode())

    def counts(self) -> DeviceCounts:
        """Copies and launches so far, and the objects alive now."""
        values = ffi.new("int64_t[]", len(DeviceCounts.__slots__))
        self.function("emulator_read", "void (*)(int64_t *)")(values)
        return DeviceCounts(*values)

    def objects(self) -> dict[str, tuple[int, int]]:
        """Handles and descriptors of libraries by kind: (number alive, number ever created)."""
        read = self.function("emulator_read_kind", "int (*)(int, const char **, int64_t *, int64_t *)")
        kind, live, created = ffi.new("const char **"), ffi.new("int64_t *"), ffi.new("int64_t *")
        found: dict[str, tuple[int, int]] = {}
        while read(len(found), kind, live, created):
            found[ffi.string(kind[0]).decode()] = (live[0], created[0])
        return found

    def last_violation(self) -> str:
        """The text of the last misuse; empty without one."""
        return self._text("emulator_last_violation", "const char *(*)(void)")

    def live_objects(self) -> list[str]:
        """A line for each allocation, stream, event and so on that has not been freed."""
        return self._text("emulator_live_objects", "const char *(*)(void)").splitlines()

    def configure(self, options: str = "") -> None:
        """Set the behaviour by options as in `STAGED_CUDA_EMULATOR` (see the README); "" restores the default.

        Pending work is finished first. Raises: ValueError for an unknown option.
        """
        complaint = self.function("emulator_configure", "const char *(*)(const char *)")(options.encode())
        if complaint != ffi.NULL:
            raise ValueError(str(ffi.string(complaint).decode()))

    def set_thread_order(self, order: str, seed: int = 0) -> None:
        """Set the order of a kernel's threads: 'forward', 'reverse' or 'shuffled'; a correct kernel gives the same
        results.

        Other behaviour follows `STAGED_CUDA_EMULATOR`.
        """
        self.configure(f"{os.environ.get(VARIABLE, '')} {order} seed={seed}")


@cache
def device() -> Emulator:
    """The emulated device, built once and loaded. Raises: what `build` and `Emulator` raise."""
    return Emulator(build())
