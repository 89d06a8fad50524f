"""Run a compiler on texts, once: results are kept in the program cache."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from staged.base.artifact import Artifact
from staged.errors import CompilerError
from staged.runtime.cache import default_cache, digest, write_texts
from staged.runtime.compiler import CompileFailure, run_compiler, short_of
from staged.runtime.machine import cpu_signature
from staged.runtime.shortage import ShortageError

# As for C: no contraction, and no care for errno.
# Without the vectorisers, which gcc 12 gets wrong (`runtime/compiler.py`).
CXX_FLAGS = (
    *("-x", "c++", "-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    "-fno-tree-vectorize",
)
SHARED = ("-fPIC", "-shared", "-pipe")


def program_texts(artifact: Artifact) -> dict[str, str]:
    """The files of a program with kernels, by name."""
    name = artifact.name
    support = {f"{name}_support.h": artifact.support} if artifact.support else {}
    return {f"{name}.cu": artifact.source, f"{name}.h": artifact.header, **support}


def kept(key: str, name: str, made: str, make: Callable[[Path], None]) -> Path:
    """The file `made` of the cache entry `key`; if missing, `make` fills the entry's folder now.

    Raises: CacheError or CompilerError if the machine is short of something, and errors of `make`.
    """
    try:
        return default_cache().keep(key, name, made, make)
    except (ShortageError, OSError) as error:
        raise short_of(name, error) from error


def build(
    name: str, made: str, texts: Mapping[str, str], command: Sequence[str], tail: Sequence[str], depends: Sequence[str]
) -> Path:
    """The file `made`, the output of `command -o MADE tail` on `texts`, kept in the cache under the program's `name`.

    `depends` lists further inputs: the compiler's version, flags, headers that are not in `texts`. Texts in subfolders
    are read by the compiler and not kept.
    Raises: CompileFailure with the compiler's output; CacheError.
    """
    ordered = sorted(texts)
    native = cpu_signature() if any(flag.endswith("=native") for flag in command) else ""
    key = digest("cuda 2", name, made, *ordered, *(texts[path] for path in ordered), *depends, native)

    def make(built: Path) -> None:
        folder = built / "texts"
        folder.mkdir(mode=0o700)
        for path in ordered:
            (folder / path).parent.mkdir(mode=0o700, exist_ok=True)
        write_texts(folder, texts)
        # Names of the private folder stay out of what is made: the compiler works in it.
        run_compiler([*command, "-o", str(built / made), *tail], folder)
        shutil.rmtree(folder)
        write_texts(built, {path: text for path, text in texts.items() if "/" not in path})

    return kept(key, name, made, make)


def find_cxx() -> tuple[tuple[str, ...], str]:
    """(command, version) of the C++ compiler: `$STAGED_CXX`, else the first of c++, g++ and clang++.

    Raises: CompilerError without one.
    """
    chosen = shlex.split(os.environ.get("STAGED_CXX", ""))
    for name in chosen[:1] if chosen else ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            return (path, *chosen[1:]), _version(path)
    raise CompilerError(
        f"the C++ compiler that STAGED_CXX names was not found: {chosen[0]}" if chosen else "no C++ compiler was found",
        hint="the emulated device needs one (Debian, Ubuntu: `apt install g++`), or set STAGED_CXX to its command",
    )


@cache
def _version(path: str) -> str:
    run = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace")
    return (run.stdout.strip().splitlines() or [""])[0]


def said(failure: CompileFailure) -> list[str]:
    """A compiler's words, the first of them, and its command: for the details of an error."""
    return [*failure.words.strip().splitlines()[:20], f"command: {shlex.join(failure.command)}"]
