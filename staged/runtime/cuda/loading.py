"""Load a program with kernels, compiled for a GPU or the emulated device."""

from __future__ import annotations

from staged.base.artifact import Artifact
from staged.errors import DependencyError
from staged.runtime.cuda.devices import is_emulated, needed_gpu
from staged.runtime.cuda.emulated import compile_emulated
from staged.runtime.cuda.host import compile_host
from staged.runtime.cuda.nvrtc import compile_kernels
from staged.runtime.cuda.program import CudaProgram
from staged.runtime.options import CompileOptions


def load(artifact: Artifact, options: CompileOptions | None = None) -> CudaProgram:
    """Compile a program with kernels, or find it in the cache, and load it. It is called like one without kernels.

    Raises: DependencyError without a device or without a tool to compile for it (named), or if its GPUs are of several
    kinds; CompilerError; CacheError.
    """
    options = options or CompileOptions()
    if is_emulated():
        return CudaProgram(artifact, compile_emulated(artifact, options))
    first, *others = [needed_gpu(number) for number in artifact.gpus]
    for other in others:
        if other.capability != first.capability:
            raise DependencyError(
                f"the program runs on GPUs of two kinds: GPU({first.index}) is {first}, GPU({other.index}) is {other}",
                hint="its kernels are compiled for one kind: let a program use GPUs of one compute capability",
            )
    kernels = compile_kernels(artifact, first.capability)
    return CudaProgram(artifact, compile_host(artifact, kernels, options))
