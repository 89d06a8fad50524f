"""How a C++ compiler builds the libraries of the emulated device, and programs that use them."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"
RUNTIME, RACES = "cudart", "races"
"""The replacement for the CUDA runtime, and the same with reports to the thread sanitizer."""
LIBRARIES = {"cublas": "cublas", "cublasLt": "cublaslt", "cudnn": "cudnn", "cusolver": "cusolver"}
"""The replacements for NVIDIA's libraries, by the name in `-lNAME`, and their folders."""
KERNEL_CHECKS = ("-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error")
"""A kernel that leaves an array of shared or local memory, or misaligns a vector, stops; the device names it."""


def source_texts(library: str = "") -> dict[str, str]:
    """The files of the runtime, or of one of `LIBRARIES`, by their path below `FOLDER`.

    A library's are the headers of all and the `.cpp` files of its folder.
    """
    paths = sorted([*FOLDER.glob("**/*.h"), *(FOLDER / LIBRARIES.get(library, "")).glob("*.cpp")])
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build a library: run `command` in `FOLDER`, with `-o` and the path of `file`.

    `key` is a digest of all inputs, such as the compiler's version.
    """

    file: str
    command: tuple[str, ...]
    key: str


def recipe(name: str, compiler: Sequence[str], version: str, runtime: Path | None = None) -> Recipe:
    """The recipe of `RUNTIME`, `RACES` or one of `LIBRARIES`, which are linked with the built `runtime`."""
    texts = source_texts(name)
    file = f"lib{'cuda' if name == RUNTIME else f'cuda_{name}'}_emulator.so"
    flags = ["-std=c++17", "-O2", *(["-DSTAGED_EMULATOR_RACES"] if name == RACES else [])]
    sources = [path for path in texts if path.endswith(".cpp")]
    # The library is found by its name once it is loaded, and binds its own calls of CUDA functions inside.
    links = [] if name == RACES else [f"-Wl,-soname,{file}", "-Wl,-Bsymbolic"]
    links += [] if name in LIBRARIES else ["-ldl", "-pthread"]
    command = [*compiler, *flags, "-fPIC", "-shared", "-pipe", *sources, *links]
    needed = recipe(RUNTIME, compiler, version).key if name in LIBRARIES else ""
    key = hashlib.sha256(json.dumps([texts, command, version, needed]).encode()).hexdigest()
    return Recipe(file, (*command, *([str(runtime)] if runtime else [])), key)


def build(name: str = RUNTIME) -> Path:
    """The library, which the compiler of `find_compiler` builds once.

    The folder is `$CUDA_EMULATOR_CACHE`, else one in the user's cache.
    Raises: FileNotFoundError without a compiler; CalledProcessError if it fails.
    """
    compiler, version = find_compiler()
    made = recipe(name, compiler, version, build() if name in LIBRARIES else None)
    cache = os.environ.get("CUDA_EMULATOR_CACHE")
    folder = Path(cache) if cache else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "cuda_emulator")
    path = folder / made.key / made.file
    if not path.is_file():
        for each in (folder.parent, folder):  # other users cannot replace what this user runs
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="building-", dir=folder) as work:
            built = Path(work, made.file)
            subprocess.run([*made.command, "-o", str(built)], cwd=FOLDER, check=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            built.replace(path)  # another process sees all of the file, or nothing
    return path


@cache
def find_compiler() -> tuple[tuple[str, ...], str]:
    """(command, version) of the C++ compiler: `$CXX`, else the first of c++, g++ and clang++.

    Raises: FileNotFoundError without one.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    for name in chosen[:1] or ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            run = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=True)
            return (path, *chosen[1:]), run.stdout.partition("\n")[0]
    raise FileNotFoundError(
        f"the C++ compiler that CXX names was not found: {chosen[0]}"
        if chosen
        else "no C++ compiler was found: install one (Debian, Ubuntu: `apt install g++`), or set CXX to its command"
    )


def compile_flags(races: bool = False) -> tuple[str, ...]:
    """The C++ compiler's flags for a program; files that follow them are compiled as C++."""
    checks = ("-fsanitize=thread",) if races else KERNEL_CHECKS
    # With -fPIC, `emulated_thread` is the library's, not a copy of the executable.
    return ("-std=c++17", "-fPIC", *checks, "-isystem", str(INCLUDE), "-include", "cuda_runtime.h", "-x", "c++")


def link_flags(libraries: Iterable[str] = (), races: bool = False) -> tuple[str, ...]:
    """The flags that link an executable with the device and these `LIBRARIES`, which are built if they are missing."""
    paths = [build(RACES if races else RUNTIME), *map(build, libraries)]
    folders = dict.fromkeys(f"-Wl,-rpath,{path.parent}" for path in paths)
    return ("-x", "none", *map(str, paths), *folders, "-rdynamic", "-pthread")


@cache
def declarations(header: str) -> str:
    """The declarations of a header, as plain C without macros and includes: for cffi, which has the standard types."""
    with TemporaryDirectory() as folder:
        for name in ("stddef.h", "stdint.h"):
            Path(folder, name).touch()
        flags = ["-x", "c", "-E", "-P", "-nostdinc", f"-I{folder}", f"-I{INCLUDE}", str(INCLUDE / header)]
        return subprocess.run([*find_compiler()[0], *flags], capture_output=True, text=True, check=True).stdout
