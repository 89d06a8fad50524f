"""Programs for OpenCL: a library in C that reaches the devices (`device.c`), and loading programs that call it.

The extra `opencl` brings OpenCL's loader with pyopencl, and PoCL, which runs kernels on the processor.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from staged.base.artifact import Artifact
from staged.errors import CompilerError, DependencyError, ProgramError, ProgramMemoryError, StagedError
from staged.runtime.compiler import CompileFailure, compile_shared, compile_text
from staged.runtime.guard import ffi, loader
from staged.runtime.native import NativeProgram
from staged.runtime.options import CompileOptions

_INTERFACE = {
    "st_ocl_open": "void *(*)(int)",
    "st_ocl_allocate": "void *(*)(void *, size_t)",
    "st_ocl_free": "void (*)(void *, void *)",
    "st_ocl_copy": "int (*)(void *, void *, const void *, size_t)",
    "st_ocl_finish": "int (*)(void *)",
    "st_ocl_words": "const char *(*)(void)",
    "st_ocl_name": "const char *(*)(void *)",
    "st_ocl_build": "void *(*)(void *, const char *)",
    "st_ocl_forget": "void (*)(void *, void *const *, int)",
}


class Devices:
    """The library of `device.c`, loaded where every program finds it."""

    def __init__(self) -> None:
        dl = loader()
        path = _built()
        self._handle = dl.dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_GLOBAL)
        if self._handle == ffi.NULL:
            raise CompilerError(f"OpenCL cannot be loaded: {ffi.string(dl.dlerror()).decode(errors='replace')}")
        self._functions = {
            name: ffi.cast(type, dl.dlsym(self._handle, name.encode())) for name, type in _INTERFACE.items()
        }

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call a function by its name without the prefix."""
        return self._functions[f"st_ocl_{name}"](*arguments)

    def words(self) -> str:
        """The error of this thread's last call."""
        return str(ffi.string(self("words")).decode(errors="replace"))

    def device(self, number: int) -> Any:
        """A device. Raises: DependencyError where there is none, with the reason."""
        found = self("open", number)
        if found == ffi.NULL:
            raise DependencyError(
                f"no GPU({number}) for OpenCL: {self.words()}", hint='pip install ".[opencl]" in the clone brings PoCL'
            )
        return found


@cache
def devices() -> Devices:
    """The devices of this process. Raises: DependencyError without OpenCL."""
    return Devices()


def examined(number: int = 0) -> tuple[str, str]:
    """The name of a device, and the message of its compiler if an empty kernel does not build.

    Without a device the name is empty, and the message is the reason.
    """
    try:
        found = devices()
        device = found.device(number)
    except StagedError as error:
        return "", error.message
    name = ffi.string(found("name", device)).decode(errors="replace")
    program = found("build", device, ffi.from_buffer(b"__kernel void empty(void) {}\0"))
    if program == ffi.NULL:
        return name, found.words()
    found("forget", program, ffi.NULL, 0)
    return name, ""


def _opencl() -> Path:
    """OpenCL's loader: that of pyopencl, else the system's."""
    wheel = importlib.util.find_spec("pyopencl")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        own = sorted([*folder.glob(".libs/libOpenCL*"), *folder.parent.glob("pyopencl.libs/libOpenCL*")])
        if own:
            # Where its loader looks for the drivers that wheels bring, as `import pyopencl` says too.
            os.environ.setdefault("PYOPENCL_HOME", str(folder))
            return own[0]
    system = ctypes.util.find_library("OpenCL")
    if system is None:
        raise DependencyError("OpenCL is not installed", hint='pip install ".[opencl]" in the clone')
    return Path(system)


def _built() -> Path:
    """The library, from the cache or compiled now. Raises: CompilerError, CacheError, DependencyError."""
    opencl = _opencl()
    # The loader opens drivers by their bare names: only an rpath of the old kind holds for what a library loads, too.
    rpath = f"-Wl,--disable-new-dtags,-rpath,{opencl.parent}"
    link = (str(opencl), rpath) if opencl.is_absolute() else ("-lOpenCL",)
    try:
        return compile_text("staged_opencl", (Path(__file__).parent / "device.c").read_text(), link=link)
    except CompileFailure as failure:
        raise CompilerError(f"the library for OpenCL could not be compiled:\n{failure}") from None


class OpenClPlace:
    """The elements of one array on a device, between calls of programs."""

    def __init__(self, device: str, nbytes: int) -> None:
        self.device = memory_of(device)
        self.nbytes = nbytes
        self.is_current = self.is_ahead = False
        self.arrival: Any = None
        self._gpu = devices().device(_number(device))
        self.address = devices()("allocate", self._gpu, nbytes)
        if self.address == ffi.NULL:
            raise ProgramMemoryError(devices().words())
        weakref.finalize(self, devices(), "free", self._gpu, self.address).atexit = False

    def update(self, host: np.ndarray[Any, Any]) -> None:
        """Copy the elements there, unless they are."""
        if not self.is_current:
            self._copy(self.address, ffi.from_buffer(np.ascontiguousarray(host)))
            self.is_current, self.is_ahead = True, False

    def fetch(self, host: np.ndarray[Any, Any]) -> None:
        """Copy them into `host`."""
        self._copy(ffi.from_buffer(host), self.address)
        self.is_ahead = False

    def take(self, other: Any) -> None:
        """Copy them from another device, by way of the host."""
        host = np.empty(self.nbytes, np.uint8)
        other.fetch(host)
        self._copy(self.address, ffi.from_buffer(host))
        self.written()

    def outdate(self) -> None:
        """Note that the host's have changed."""
        self.is_current = self.is_ahead = False

    def written(self) -> None:
        """Note that a program writes them on the device."""
        self.is_current = self.is_ahead = True

    def _copy(self, target: Any, source: Any) -> None:
        if devices()("copy", self._gpu, target, source, self.nbytes):
            raise ProgramError(devices().words())


class OpenClProgram(NativeProgram):
    """A program with kernels of OpenCL, called like one without."""

    may_be_short = False

    def finish_devices(self) -> None:
        """Wait for the devices."""
        for number in self.artifact.gpus:
            devices()("finish", devices().device(number))

    def memory_of(self, device: str) -> str:
        """OpenCL's memory is not CUDA's."""
        return memory_of(device)

    def place_on(self, device: str, nbytes: int) -> OpenClPlace:
        """New memory there for an array. Raises: ProgramMemoryError if the device has no room."""
        return OpenClPlace(device, nbytes)

    def borrowed(self, device: str, address: int, nbytes: int, stream: int | None, alignment: int, owner: Any) -> Any:
        """Always raises ProgramError: only CUDA arrays can be borrowed."""
        raise ProgramError("an array of CUDA's memory cannot be read by a program for OpenCL")


def memory_of(device: str) -> str:
    """The name of the memory of a device."""
    return f"{device} of OpenCL"


def _number(device: str) -> int:
    """`gpu` or `gpu(1)`: the number of the device."""
    return int("".join(filter(str.isdigit, device)) or "0")


def load(artifact: Artifact, options: CompileOptions | None = None) -> OpenClProgram:
    """Compile the host part of a program, or find it in the cache, and load it. Kernels are built by the first call.

    Raises: DependencyError without a device; CompilerError, CacheError.
    """
    for number in artifact.gpus:
        devices().device(number)
    return OpenClProgram(artifact, compile_shared(artifact, options))


def files_beside(artifact: Artifact) -> dict[str, str]:
    """The files that an exported folder needs besides its back end's own: those of the device's library."""
    folder = Path(__file__).parent
    files = {"device.c": "staged_opencl.c", "arrays.h": "staged_opencl_arrays.h"}
    return {name: (folder / own).read_text() for own, name in files.items()}
