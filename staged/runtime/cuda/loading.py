"""A program with kernels, compiled for whichever device there is and loaded."""

from __future__ import annotations

from staged.artifact import Artifact
from staged.errors import DependencyError
from staged.runtime.compiler import CompileOptions
from staged.runtime.cuda.devices import is_emulated, needed_gpu
from staged.runtime.cuda.emulated import compile_emulated, emulated_library, emulator, linked_libraries
from staged.runtime.native import NativeProgram


def load(artifact: Artifact, options: CompileOptions | None = None) -> NativeProgram:
    """Compile a program with kernels, or find it in the cache, and load it; it is called like one without.

    Raises: DependencyError without a device, naming what is missing; CompilerError, CacheError.
    """
    options = options or CompileOptions()
    if is_emulated():
        emulator()
        for name in linked_libraries(artifact.link):
            emulated_library(name)
        return NativeProgram(artifact, compile_emulated(artifact, options))
    gpu = needed_gpu()
    raise DependencyError(
        f"this version of staged does not run programs on the GPU of this machine, a {gpu}",
        hint="set STAGED_CUDA=emulate to run them on the emulated device",
    )
