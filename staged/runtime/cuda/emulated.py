"""The emulated device: built once, loaded, asked what it has seen; and programs compiled for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from staged.artifact import Artifact
from staged.errors import CompilerError
from staged.runtime.compiler import CompileFailure, CompileOptions, explained
from staged.runtime.cuda.building import CXX_FLAGS, SHARED, build, find_cxx, program_texts, said
from staged.runtime.cuda_emulator import INCLUDE, source_texts
from staged.runtime.guard import ffi, loader

_LIBRARY = "libstaged_cuda_emulator.so"


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """What the emulated device has seen since this process loaded it; `live_...`: not yet given back."""

    copies_to_device: int
    copies_to_host: int
    copies_on_device: int
    bytes_to_device: int
    bytes_to_host: int
    launches: int
    allocations: int
    live_allocations: int
    live_bytes: int
    live_streams: int
    live_libraries: int
    violations: int

    def __sub__(self, earlier: DeviceCounts) -> DeviceCounts:
        """What happened since `earlier`."""
        return DeviceCounts(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


class Emulator:
    """The loaded emulator. Its functions are visible to the programs that are loaded after it."""

    def __init__(self, path: Path) -> None:
        dl = loader()
        self.path = path
        self._handle = dl.dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_GLOBAL)
        if self._handle == ffi.NULL:
            words = ffi.string(dl.dlerror()).decode(errors="replace")
            raise CompilerError(f"the emulated device cannot be loaded: {words}")

    def _function(self, name: str, type: str) -> Any:
        symbol = loader().dlsym(self._handle, name.encode())
        assert symbol != ffi.NULL, f"the emulated device has no `{name}`"
        return ffi.cast(type, symbol)

    def counts(self) -> DeviceCounts:
        """Copies, launches and what lives on the device now."""
        values = ffi.new("int64_t[]", len(DeviceCounts.__slots__))
        self._function("emulator_read", "void (*)(int64_t *)")(values)
        return DeviceCounts(*values)

    def last_violation(self) -> str:
        """The text of the last misuse; empty where there was none."""
        return str(ffi.string(self._function("emulator_last_violation", "const char *(*)(void)")()).decode())

    def set_thread_order(self, order: str, seed: int = 0) -> None:
        """In which order a kernel's threads run: 'forward', 'reverse' or 'shuffled'; a correct kernel does not care."""
        number = ("forward", "reverse", "shuffled").index(order)
        self._function("emulator_set_order", "void (*)(int, unsigned int)")(number, seed)


@cache
def emulator() -> Emulator:
    """The emulated device, compiled once and loaded.

    Raises: CompilerError without a C++ compiler.
    """
    texts = source_texts()
    sources = sorted(name for name in texts if name.endswith(".cpp"))
    cxx, version = find_cxx()
    command = (*cxx, "-std=c++17", "-O2", *SHARED)
    tail = (*sources, "-ldl", "-pthread")
    try:
        return Emulator(build("staged_cuda_emulator", _LIBRARY, texts, command, tail, (*command, version, *tail)))
    except CompileFailure as failure:
        raise CompilerError(
            "the C++ compiler refused the emulated device", details=said(failure), hint="try another one: STAGED_CXX"
        ) from None


def compile_emulated(artifact: Artifact, options: CompileOptions) -> Path:
    """The shared library of a program for the emulated device: the whole text, by the C++ compiler.

    Raises: CompilerError if there is no compiler or it refuses the text, CacheError.
    """
    cxx, version = find_cxx()
    flags = ("-include", "cuda_runtime.h", *artifact.flags, *options.flags())
    command = (*cxx, *CXX_FLAGS, *SHARED, "-isystem", str(INCLUDE), *flags)
    headers = [text for path, text in sorted(source_texts().items()) if path.endswith(".h")]
    # Where the package lies changes nothing, so its folder is no part of the key.
    depends = (*cxx, version, *CXX_FLAGS, *SHARED, *flags, *headers)
    name = artifact.name
    try:
        return build(name, f"{name}.so", program_texts(artifact), command, (f"{name}.cu",), depends)
    except CompileFailure as failure:
        raise explained(artifact, failure, "C++ compiler", "STAGED_CXX and STAGED_CFLAGS") from None
