"""Programs with kernels: which device there is, and compiling and loading for it.

`STAGED_CUDA=emulate` runs them on the emulated device (see `cuda_emulator/`), which every machine with a C++ compiler has.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from staged.artifact import Artifact
from staged.errors import CompilerError, DependencyError, UnsupportedError
from staged.runtime.cache import default_cache, digest, write_texts
from staged.runtime.compiler import CompileFailure, CompileOptions
from staged.runtime.cuda_emulator import INCLUDE, source_texts
from staged.runtime.guard import ffi, loader
from staged.runtime.machine import cpu_signature
from staged.runtime.native import NativeProgram

EMULATE = "emulate"
# As for C: fused multiply-add where the machine has it, and no care for errno.
_FLAGS = ("-x", "c++", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
_SHARED = ("-fPIC", "-shared", "-pipe")
_EMULATOR = "libstaged_cuda_emulator.so"


def is_emulated() -> bool:
    """Whether `STAGED_CUDA=emulate` asks for the emulated device.

    Raises: UnsupportedError for another value of the variable.
    """
    chosen = os.environ.get("STAGED_CUDA", "")
    if chosen not in ("", EMULATE):
        raise UnsupportedError(
            f"STAGED_CUDA={chosen} means nothing",
            hint="STAGED_CUDA=emulate for the emulated device, else leave it unset",
        )
    return chosen == EMULATE


def gpu_count() -> tuple[int, str]:
    """(number of GPUs, why there is none): asks the CUDA runtime of the extra `cuda`; never raises."""
    try:
        from cuda.bindings import runtime

        error, count = runtime.cudaGetDeviceCount()
    except (ImportError, RuntimeError) as failure:  # not installed, or its library is not found
        return 0, f"{type(failure).__name__}: {failure}"
    return (int(count), "") if int(error) == 0 else (0, str(error.name))


def load(artifact: Artifact, options: CompileOptions | None = None) -> NativeProgram:
    """Compile a program with kernels, or find it in the cache, and load it; it is called like one without.

    Raises: DependencyError without a device, naming what is missing; CompilerError, CacheError.
    """
    if not is_emulated():
        raise _no_device()
    emulator()
    path = _compile_program(artifact, options or CompileOptions())
    return NativeProgram(artifact, path)


def _no_device() -> DependencyError:
    count, reason = gpu_count()
    if count:
        return DependencyError(
            f"this version of staged does not run programs on the {count} GPU{'s' if count > 1 else ''} of this machine",
            hint="set STAGED_CUDA=emulate to run them on the emulated device",
        )
    return DependencyError(
        "the program has a GPU region, and no GPU was found",
        details=[f"the CUDA runtime says: {reason}"],
        hint="set STAGED_CUDA=emulate to run it on the emulated device, or take the GPU region out",
    )


# ---- the emulated device ------------------------------------------------------------------------


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
    flags = ("-std=c++17", "-O2", *_SHARED)
    try:
        return Emulator(_compile("staged_cuda_emulator", texts, _EMULATOR, flags, (*sources, "-ldl", "-pthread")))
    except CompileFailure as failure:
        raise CompilerError(
            "the C++ compiler refused the emulated device", details=_said(failure), hint="try another one: STAGED_CXX"
        ) from None


def _compile_program(artifact: Artifact, options: CompileOptions) -> Path:
    texts = {
        f"{artifact.name}.cu": artifact.source,
        f"{artifact.name}.h": artifact.header,
        f"{artifact.name}_support.h": artifact.support,
    }
    flags = (
        *_FLAGS,
        *_SHARED,
        "-isystem",
        str(INCLUDE),
        "-include",
        "cuda_runtime.h",
        *artifact.flags,
        *options.flags(),
    )
    try:
        return _compile(artifact.name, texts, f"{artifact.name}.so", flags, (f"{artifact.name}.cu",))
    except CompileFailure as failure:
        raise CompilerError(
            f"the C++ compiler refused the program `{artifact.name}`",
            details=_said(failure),
            hint="check STAGED_CXX and STAGED_CFLAGS if you set them; otherwise this is a bug in staged: please report it",
        ) from None


def _said(failure: CompileFailure) -> list[str]:
    return [*failure.words.strip().splitlines()[:20], f"command: {shlex.join(failure.command)}"]


def _compile(name: str, texts: dict[str, str], library: str, flags: tuple[str, ...], inputs: tuple[str, ...]) -> Path:
    """A shared library from `texts`: from the cache, else compiled now by the C++ compiler."""
    command, version = find_cxx()
    headers = "".join(text for path, text in sorted(source_texts().items()) if path.endswith(".h"))
    native = cpu_signature() if any(flag.endswith("=native") for flag in flags) else ""
    told = [flag for flag in flags if flag != str(INCLUDE)]  # where the package lies changes nothing
    key = digest(
        "cuda 1",
        name,
        *sorted(texts),
        *(texts[path] for path in sorted(texts)),
        headers,
        *command,
        version,
        *told,
        native,
    )
    store = default_cache()
    found = store.find(key, library)
    if found is not None:
        return found
    with store.workspace() as folder, store.workspace() as built:
        for path in texts:
            (folder / path).parent.mkdir(mode=0o700, exist_ok=True)
        write_texts(folder, texts)
        line = [*command, *flags, "-o", str(built / library), *inputs]
        run = subprocess.run(
            line, cwd=folder, capture_output=True, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"}
        )
        if run.returncode != 0:
            raise CompileFailure(run.stderr or run.stdout, line)
        write_texts(built, {path: text for path, text in texts.items() if "/" not in path})
        store.publish(key, name, built)
    found = store.find(key, library)
    if found is None:
        raise CompilerError(f"the compiled program `{name}` could not be stored in {store.root}")
    return found


def find_cxx() -> tuple[tuple[str, ...], str]:
    """(command, version) of the C++ compiler: `$STAGED_CXX`, else the first of c++, g++ and clang++.

    Raises: CompilerError where there is none.
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
