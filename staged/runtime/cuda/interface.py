"""The functions of the CUDA runtime for use from Python: the emulated device's, or NVIDIA's."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from staged.errors import CompilerError
from staged.runtime.cuda.devices import is_emulated, needed_gpu
from staged.runtime.cuda.emulated import emulator
from staged.runtime.cuda.toolkit import load_libraries
from staged.runtime.guard import ffi, loader


class Runtime(Protocol):
    """A CUDA runtime. Its objects must be freed by the same one, even if `STAGED_CUDA` has changed since."""

    def function(self, name: str, type: str) -> Any:
        """A function such as `cudaMalloc`, as C declares it: `"int (*)(void **, size_t)"`."""


def current_runtime() -> Runtime:
    """The runtime that programs use now.

    Raises: DependencyError without a device, or without the runtime's library.
    """
    if is_emulated():
        return emulator()
    needed_gpu()
    return _nvidias()


@cache
def _nvidias() -> Runtime:
    return _Nvidias(load_libraries(())[0])


class _Nvidias:
    """NVIDIA's runtime library."""

    def __init__(self, path: Path) -> None:
        dl = loader()
        self._handle = dl.dlopen(os.fsencode(path), os.RTLD_NOW)
        if self._handle == ffi.NULL:
            words = ffi.string(dl.dlerror()).decode(errors="replace")
            raise CompilerError(f"the CUDA runtime cannot be loaded: {words}")

    def function(self, name: str, type: str) -> Any:
        symbol = loader().dlsym(self._handle, name.encode())
        assert symbol != ffi.NULL, f"the CUDA runtime has no `{name}`"
        return ffi.cast(type, symbol)
