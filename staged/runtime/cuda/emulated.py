"""Programs for the emulated device, a separate package: build and load its libraries, compile programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from staged.base.artifact import Artifact
from staged.errors import CompilerError, DependencyError, UnsupportedError
from staged.runtime.compiler import CompileFailure, explained, run_compiler
from staged.runtime.cuda.building import CXX_FLAGS, SHARED, build, find_cxx, kept, program_texts, said
from staged.runtime.options import CompileOptions, Level

if TYPE_CHECKING:
    from cuda_emulator import Emulator

_HEADER = "cuda_runtime.h"
LIBRARIES = frozenset({"cublas", "cublasLt", "cudnn", "cusolver"})
"""NVIDIA's libraries that programs call."""
LEVEL: Level = "1"
"""The highest level of -O for a program: at 2 the C++ compiler takes twice as long."""
GCC_CONTRACTS = ("-fexpensive-optimizations",)
"""A flag that makes gcc fuse multiply-adds at -O1: the host's kernels have the bits of the CPU's programs."""


_INSTALL = "pip install . ./cuda_emulator"


def package() -> ModuleType:
    """The package of the emulated device.

    Raises: DependencyError without it.
    """
    try:
        import cuda_emulator.device  # a clone on Python's path has a folder of this name, without this file
    except ImportError as error:
        raise DependencyError(
            "the emulated device, which STAGED_CUDA=emulate chooses, is not installed",
            details=[f"{type(error).__name__}: {error}"],
            hint=f"`{_INSTALL}` in the clone of staged, or unset STAGED_CUDA",
        ) from None
    return cuda_emulator


@cache
def emulator() -> Emulator:
    """The emulated device, compiled once and loaded.

    Raises: DependencyError if it is not installed; CompilerError without a C++ compiler; UnsupportedError if
    `STAGED_CUDA_EMULATOR` has unknown words.
    """
    path = _built("cudart")
    try:
        loaded: Emulator = package().Emulator(path)
        return loaded
    except OSError as error:
        raise CompilerError(str(error), hint="try another C++ compiler: STAGED_CXX") from None
    except ValueError as error:
        raise UnsupportedError(
            f"the emulated device cannot be set up so: {error}",
            hint="set STAGED_CUDA_EMULATOR to words such as `lazy shuffled seed=7 devices=2`, or leave it unset",
        ) from None


@cache
def emulated_library(name: str) -> Path:
    """The replacement for one of NVIDIA's libraries, a name of `LIBRARIES`, compiled once and loaded.

    Raises: DependencyError if the emulated device is not installed; CompilerError without a C++ compiler.
    """
    path = _built(name, emulator().path)
    package().open_library(path)
    return path


def linked_libraries(flags: Iterable[str]) -> list[str]:
    """The keys of `LIBRARIES` that a program's linker flags name."""
    named = (re.fullmatch(r"-l(?::lib)?(\w+?)(?:\.so[.\d]*)?", flag) for flag in flags)
    return sorted({match[1] for match in named if match and match[1] in LIBRARIES})


def libraries_of_users(flags: Iterable[str]) -> list[str]:
    """A program's linker flags for libraries of its user's: `st.custom_op` names them by path."""
    return [flag for flag in flags if not flag.startswith("-l")]


def files_beside(artifact: Artifact) -> dict[str, str]:
    """The sources of the emulated device and of the libraries that a program links, by path.

    Without the package, its headers are an error in `make emu`: the other ways to build an export do not need it.
    """
    try:
        texts: dict[str, str] = package().source_texts()
    except DependencyError:
        text = f"#error the emulated device was not installed: {_INSTALL} in the clone of staged, then export again\n"
        return {"include/cuda_runtime.h": text, "include/cuda_runtime_api.h": text}
    for name in linked_libraries(artifact.link):
        texts |= package().source_texts(name)
    return texts


def _built(name: str, runtime: Path | None = None) -> Path:
    """A library of the emulated device, kept in the program cache."""
    made = package().recipe(name, *find_cxx(), runtime)
    try:
        return kept(
            made.key,
            f"staged_cuda_emulator_{name}",
            made.file,
            lambda folder: run_compiler([*made.command, "-o", str(folder / made.file)], package().FOLDER),
        )
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
    return (*package().KERNEL_CHECKS, *contracts, *artifact.flags, *replace(options, optimise=level).flags())


@cache
def headers(cxx: tuple[str, ...], version: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Flags that include the headers of the emulated device, for programs that are compiled with `flags`.

    Half of gcc's time for a small program went into reading them, most of it for `<cmath>`: they are precompiled, once
    for each set of flags. The compiler passes over what was precompiled with other flags, and reads them as they are.
    Raises: CompileFailure with the compiler's words, CacheError.
    """
    include = str(package().INCLUDE)
    plain = ("-isystem", include, "-include", _HEADER)
    if "clang" in version:  # it takes them in another way
        return plain
    command = (*cxx, *CXX_FLAGS, "-fPIC", *flags, "-c")  # else gcc links, because of the `-x` in `CXX_FLAGS`
    texts = [text for path, text in sorted(package().source_texts().items()) if path.startswith("include/")]
    tail = ("-x", "c++-header", f"{include}/{_HEADER}")
    depends = (*command, version, *texts)
    path = build("staged_cuda_emulator_headers", f"{_HEADER}.gch", {}, command, tail, depends)
    return ("-isystem", str(path.parent), *plain)


def compile_emulated(artifact: Artifact, options: CompileOptions) -> Path:
    """The shared library of a program for the emulated device: the whole text, by the C++ compiler.

    Raises: DependencyError without the emulated device; CompilerError without a compiler, or if it rejects the
    program; CacheError.
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
