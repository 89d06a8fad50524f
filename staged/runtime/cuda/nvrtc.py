"""Compile the kernels of a program to machine code (a cubin) for one kind of GPU, by NVIDIA's run-time compiler.

NVRTC is a library that needs neither a GPU nor a driver, so this runs on every machine with its wheel. It emits machine
code rather than PTX: a driver refuses PTX newer than itself, but loads machine code of any minor version. A GPU newer
than NVRTC gets PTX, which its (newer) driver compiles when the program is loaded.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from staged.base.artifact import Artifact
from staged.errors import CompilerError, DependencyError
from staged.runtime.cache import digest
from staged.runtime.compiler import CompileFailure, explained
from staged.runtime.cuda.building import kept

# ptxas tells what each kernel takes; that is parsed, and anything else that the compiler says is a message.
_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_PTX = "compute_"
_WHEEL = "nvidia-cuda-nvrtc"

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Resources of a kernel: registers and bytes of local memory per thread, bytes of shared memory per block.

    `spilled` is the number of bytes of registers that a thread spills to local memory.
    """

    name: str
    registers: int
    stack: int
    spilled: int
    shared: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled kernels: the file of machine code (or PTX), its GPUs, the resources of each kernel, compiler messages.

    A correct program has no messages. Resources are known only for machine code.
    """

    cubin: Path
    architecture: str
    uses: tuple[KernelUse, ...]
    messages: str


def compile_kernels(artifact: Artifact, capability: Capability) -> Kernels:
    """A program's kernels for GPUs of this compute capability: from the cache, else compiled now.

    Raises: DependencyError without NVRTC, or for a GPU that it does not know; CompilerError if it refuses the text.
    """
    name = artifact.name
    wanted = "sm_{}{}".format(*capability)
    key = digest("kernels 2", name, artifact.source, _version(), wanted, *artifact.flags, *_OPTIONS)

    def make(folder: Path) -> None:
        architecture = architecture_for(capability, supported())
        cubin, log = _compile(artifact, architecture)
        (folder / f"{name}.cubin").write_bytes(cubin)
        (folder / f"{name}.log").write_text(f"{architecture}\n{log}", encoding="utf-8")

    path = kept(key, name, f"{name}.cubin", make)
    architecture, _, log = path.with_suffix(".log").read_text(encoding="utf-8").partition("\n")
    return Kernels(path, architecture, *parse_log(log))


def architecture_for(capability: Capability, supported: Iterable[int]) -> str:
    """The compiler's newest architecture for a GPU of this compute capability: `sm_90`, or `compute_90` where it gets
    PTX.

    Machine code runs on GPUs of the same major version and the same minor version or a later one, PTX on all later
    ones. `supported` are the compiler's, as in 90 for 9.0. Raises: DependencyError for a GPU that is older than all of
    them.
    """
    major, minor = capability
    earlier = [number for number in supported if (number // 10, number % 10) <= capability]
    if not earlier:
        raise DependencyError(
            f"NVRTC {_version()} does not compile for compute capability {major}.{minor}, which is too old for it",
            details=[f"it knows {', '.join(f'{number // 10}.{number % 10}' for number in sorted(supported))}"],
            hint="use a newer GPU, or set STAGED_CUDA=emulate to run on the emulated device",
        )
    fitting = [number for number in earlier if number // 10 == major]
    return f"sm_{max(fitting)}" if fitting else f"{_PTX}{max(earlier)}"


# ---- the log ------------------------------------------------------------------------------------

_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '(?P<name>\w+)'")
_FUNCTION = re.compile(r"^ptxas info\s*: Function properties for (?P<name>\w+)")
_STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<spilled>\d+) bytes spill stores, \d+ bytes spill loads$")
_USED = re.compile(r"^ptxas info\s*: Used (?P<registers>\d+) registers(?:.*?, (?P<shared>\d+) bytes smem)?")
_OTHER = re.compile(r"^ptxas info\s*: (?:\d+ bytes gmem|Compile time|\(C\d+\))")


def parse_log(log: str) -> tuple[tuple[KernelUse, ...], str]:
    """(resources of each kernel, remaining messages), from the log that `--ptxas-options=-v` prints."""
    uses: list[KernelUse] = []
    messages: list[str] = []
    kernel = function = ""
    frames: dict[str, tuple[int, int]] = {}
    for line in log.replace("\0", "").splitlines():
        if found := _ENTRY.match(line):
            kernel = found["name"]
        elif found := _FUNCTION.match(line):
            function = found["name"]
        elif found := _STACK.search(line):
            frames[function] = int(found["stack"]), int(found["spilled"])
        elif found := _USED.match(line):
            stack, spilled = frames.get(kernel, (0, 0))
            uses.append(KernelUse(kernel, int(found["registers"]), stack, spilled, int(found["shared"] or 0)))
        elif line.strip() and not _OTHER.match(line):
            messages.append(line)
    return tuple(uses), "\n".join(messages)


# ---- the library --------------------------------------------------------------------------------


@cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # the library is looked for at the first call
    except (ImportError, RuntimeError) as failure:
        raise DependencyError(
            "the kernels of a program with a GPU region are compiled by NVRTC, which was not found",
            details=[f"{type(failure).__name__}: {failure}"],
            hint='pip install ".[cuda]" in the clone, or set STAGED_CUDA=emulate to run on the emulated device',
        ) from None
    return nvrtc


@cache
def _version() -> str:
    """NVRTC's version; the wheel's if there is one, since loading the library takes a tenth of a second."""
    try:
        return importlib.metadata.version(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        _, major, minor = _nvrtc().nvrtcVersion()
        return f"{major}.{minor}"


def has_nvrtc() -> bool:
    """Return whether NVRTC is installed."""
    try:
        _nvrtc()
    except DependencyError:
        return False
    return True


def supported() -> list[int]:
    """The architectures that NVRTC compiles for, as in 90 for 9.0."""
    return list(_checked("nvrtcGetSupportedArchs")[0])


def _compile(artifact: Artifact, architecture: str) -> tuple[bytes, str]:
    """(machine code or PTX, log). Raises: CompilerError with the compiler's words."""
    try:
        return compile_cuda(artifact.name, artifact.source, architecture, artifact.contracts)
    except CompileFailure as failure:
        raise explained(artifact, failure, "CUDA compiler", "") from None


def compile_cuda(name: str, text: str, architecture: str, contracts: bool = False) -> tuple[bytes, str]:
    """(machine code or PTX, log) of a text. Raises: CompileFailure with the compiler's words."""
    nvrtc = _nvrtc()
    file = f"{name}.cu"
    options = [f"--gpu-architecture={architecture}", f"--fmad={str(contracts).lower()}", *_OPTIONS]
    (program,) = _checked("nvrtcCreateProgram", text.encode(), file.encode(), 0, [], [])
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _taken("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program).decode(errors="replace")
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileFailure(log.replace("\0", ""), ["NVRTC", _version(), *options, file])
        kind = "PTX" if architecture.startswith(_PTX) else "CUBIN"  # PTX with the 0 at its end that loading looks for
        return _taken(f"nvrtcGet{kind}Size", f"nvrtcGet{kind}", program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _taken(size: str, read: str, program: Any) -> bytes:
    """Read a result of NVRTC into a buffer of the size that NVRTC reports."""
    (length,) = _checked(size, program)
    buffer = bytes(length)
    _checked(read, program, buffer)
    return buffer


def _checked(function: str, *arguments: Any) -> tuple[Any, ...]:
    nvrtc = _nvrtc()
    error, *results = getattr(nvrtc, function)(*arguments)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompilerError(f"NVRTC: {function} failed: {error.name}")
    return tuple(results)
