"""Build and load the emulated device, read its counters, and compile programs for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from staged.base.artifact import Artifact
from staged.errors import CompilerError, UnsupportedError
from staged.runtime.compiler import CompileFailure, explained
from staged.runtime.cuda.building import CXX_FLAGS, SHARED, build, find_cxx, program_texts, said
from staged.runtime.cuda_emulator import INCLUDE, source_texts
from staged.runtime.guard import APART_MODE, ffi, loader
from staged.runtime.options import CompileOptions, Level

_LIBRARY = "libstaged_cuda_emulator.so"
_RACES = "libstaged_cuda_races.so"
_SYSTEM = ("-ldl", "-pthread")
_HEADER = "cuda_runtime.h"
KERNEL_CHECKS = ("-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error")
"""A kernel that leaves an array of shared or local memory, or misaligns a vector, stops; the emulated device names it.
"""
LEVEL: Level = "1"
"""The highest level of -O for a program: at 2 the C++ compiler takes twice as long."""
GCC_CONTRACTS = ("-fexpensive-optimizations",)
"""A flag that makes gcc fuse multiply-adds at -O1: the host's kernels have the bits of the CPU's programs."""


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


def _open(path: Path) -> Any:
    """Load a part of the emulated device. Dependent libraries are linked against it and find it by name."""
    dl = loader()
    handle = dl.dlopen(os.fsencode(path), APART_MODE)
    if handle == ffi.NULL:
        words = ffi.string(dl.dlerror()).decode(errors="replace")
        raise CompilerError(f"the emulated device cannot be loaded: {words}")
    return handle


class Emulator:
    """The loaded emulator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = _open(path)

    def function(self, name: str, type: str) -> Any:
        """A function of the device's library, of this C type."""
        symbol = loader().dlsym(self._handle, name.encode())
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

    def configure(self, words: str = "") -> None:
        """Set the behaviour by the words of `STAGED_CUDA_EMULATOR` (docs/emulated_device.md); "" restores the default.

        Pending work is finished first. Raises: UnsupportedError for unknown words.
        """
        complaint = self.function("emulator_configure", "const char *(*)(const char *)")(words.encode())
        if complaint != ffi.NULL:
            raise UnsupportedError(
                f"the emulated device cannot be set up so: {str(ffi.string(complaint).decode())}",
                hint="set STAGED_CUDA_EMULATOR to words such as `lazy shuffled seed=7 devices=2`, or leave it unset",
            )

    def set_thread_order(self, order: str, seed: int = 0) -> None:
        """Set the order of a kernel's threads: 'forward', 'reverse' or 'shuffled'; a correct kernel gives the same
        results.

        Other behaviour follows `STAGED_CUDA_EMULATOR`.
        """
        self.configure(f"{_words()} {order} seed={seed}")


def _words() -> str:
    return os.environ.get("STAGED_CUDA_EMULATOR", "")


@cache
def emulator() -> Emulator:
    """The emulated device, compiled once and loaded.

    Raises: CompilerError without a C++ compiler; UnsupportedError where `STAGED_CUDA_EMULATOR` means nothing.
    """
    loaded = Emulator(_build("cuda_emulator", _LIBRARY, source_texts(), (*_SYSTEM, *_named(_LIBRARY))))
    loaded.configure(_words())
    return loaded


@cache
def race_detector() -> Path:
    """Build the emulated device that reports synchronisation between threads to the thread sanitizer; it is not loaded.

    It works in executables compiled with -fsanitize=thread, not in Python (see docs/emulated_device.md).
    Raises: CompilerError without a C++ compiler.
    """
    return _build("cuda_races", _RACES, source_texts(), _SYSTEM, ("-DSTAGED_EMULATOR_RACES",))


# The stand-ins for NVIDIA's libraries: the name in `-lNAME` or `-l:libNAME.so.VERSION`, and the folder of the emulator.
LIBRARIES = {"cublas": "cublas", "cublasLt": "cublaslt", "cudnn": "cudnn", "cusolver": "cusolver"}


@cache
def emulated_library(name: str) -> Path:
    """The replacement for one of NVIDIA's libraries, a key of `LIBRARIES`, compiled once and loaded.

    Raises: CompilerError without a C++ compiler.
    """
    device = emulator().path
    library = f"libstaged_{name}_emulator.so"
    path = _build(f"cuda_emulator_{name}", library, source_texts(LIBRARIES[name]), _named(library), uses=(device,))
    _open(path)
    return path


def linked_libraries(flags: Iterable[str]) -> list[str]:
    """The keys of `LIBRARIES` that a program's linker flags name."""
    named = (re.fullmatch(r"-l(?::lib)?(\w+?)(?:\.so[.\d]*)?", flag) for flag in flags)
    return sorted({match[1] for match in named if match and match[1] in LIBRARIES})


def libraries_of_users(flags: Iterable[str]) -> list[str]:
    """A program's linker flags for libraries of its user's: `st.custom_op` names them by path."""
    return [flag for flag in flags if not flag.startswith("-l")]


def files_beside(artifact: Artifact) -> dict[str, str]:
    """The sources of the emulated device and of the libraries that a program links, by path."""
    texts = source_texts()
    for name in linked_libraries(artifact.link):
        texts |= source_texts(LIBRARIES[name])
    return texts


def _named(library: str) -> tuple[str, ...]:
    """Linker flags: the library is found by name once loaded, and binds its own calls of CUDA functions inside."""
    return (f"-Wl,-soname,{library}", "-Wl,-Bsymbolic")


def _build(
    name: str,
    library: str,
    texts: dict[str, str],
    tail: tuple[str, ...],
    flags: tuple[str, ...] = (),
    uses: Sequence[Path] = (),
) -> Path:
    sources = sorted(path for path in texts if path.endswith(".cpp"))
    cxx, version = find_cxx()
    command = (*cxx, "-std=c++17", "-O2", *flags, *SHARED)
    tail = (*sources, *tail)
    depends = (*command, version, *tail, *map(_key, uses))
    try:
        return build(f"staged_{name}", library, texts, command, (*tail, *map(str, uses)), depends)
    except CompileFailure as failure:
        raise CompilerError(
            "the C++ compiler refused the emulated device", details=said(failure), hint="try another one: STAGED_CXX"
        ) from None


def _key(built: Path) -> str:
    """The key of a built part in the cache, which identifies the build."""
    return built.parent.name


def program_flags(artifact: Artifact, options: CompileOptions, version: str) -> tuple[str, ...]:
    """The C++ compiler's flags for one program, beyond those of every program."""
    level = min(options.optimise, LEVEL)
    contracts = () if "clang" in version else GCC_CONTRACTS
    return (*KERNEL_CHECKS, *contracts, *artifact.flags, *replace(options, optimise=level).flags())


@cache
def headers(cxx: tuple[str, ...], version: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Flags that include the headers of the emulated device, for programs that are compiled with `flags`.

    Half of gcc's time for a small program went into reading them, most of it for `<cmath>`: they are precompiled, once
    for each set of flags. The compiler passes over what was precompiled with other flags, and reads them as they are.
    Raises: CompileFailure with the compiler's words, CacheError.
    """
    plain = ("-isystem", str(INCLUDE), "-include", _HEADER)
    if "clang" in version:  # it takes them in another way
        return plain
    command = (*cxx, *CXX_FLAGS, "-fPIC", *flags, "-c")  # else gcc links, because of the `-x` in `CXX_FLAGS`
    texts = [text for path, text in sorted(source_texts().items()) if path.startswith("include/")]
    tail = ("-x", "c++-header", str(INCLUDE / _HEADER))
    depends = (*command, version, *texts)
    path = build("staged_cuda_emulator_headers", f"{_HEADER}.gch", {}, command, tail, depends)
    return ("-isystem", str(path.parent), *plain)


def compile_emulated(artifact: Artifact, options: CompileOptions) -> Path:
    """The shared library of a program for the emulated device: the whole text, by the C++ compiler.

    Raises: CompilerError if there is no compiler or it refuses the text, CacheError.
    """
    cxx, version = find_cxx()
    flags = program_flags(artifact, options, version)
    libraries = [emulator().path, *(emulated_library(name) for name in linked_libraries(artifact.link))]
    # Folders are not part of the key; the device's own key is, and covers its headers too.
    depends = (*cxx, version, *CXX_FLAGS, *SHARED, *flags, *map(_key, libraries), *libraries_of_users(artifact.link))
    tail = (f"{artifact.name}.cu", "-x", "none", *map(str, libraries), *libraries_of_users(artifact.link))
    name = artifact.name
    try:
        command = (*cxx, *CXX_FLAGS, *SHARED, *headers(cxx, version, flags), *flags)
        return build(name, f"{name}.so", program_texts(artifact), command, tail, depends)
    except CompileFailure as failure:
        raise explained(artifact, failure, "C++ compiler", "STAGED_CXX and STAGED_CFLAGS") from None
