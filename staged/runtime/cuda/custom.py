"""Compile a kernel that the user gave as text alone, before it is part of a program: its mistakes are not ours.

Tested by `tests/backends/cublas_cudnn/test_custom.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from staged.errors import CompilerError
from staged.runtime.compiler import CompileFailure, run_compiler
from staged.runtime.cuda.building import CXX_FLAGS, find_cxx
from staged.runtime.cuda.devices import gpus, is_emulated
from staged.runtime.cuda.emulated import emulator, package
from staged.runtime.cuda.nvrtc import architecture_for, compile_cuda, has_nvrtc, supported
from staged.runtime.foreign import symbol_in
from staged.source import here


def check_kernel(name: str, kernel: str, parameters: str, text: str) -> None:
    """Compile the text of the custom op `name`: for the emulated device where that is chosen, else by NVRTC if it is
    there; on other machines the text is not checked.

    Raises: CompilerError with the compiler's words and the user's line.
    """
    try:
        if is_emulated():
            _compile_emulated(f"{text}\nSTAGED_EMULATED_KERNEL({kernel})\n")
        elif has_nvrtc():
            found = gpus()
            known = supported()
            newest = max(known)
            capability = found[0].capability if found else (newest // 10, newest % 10)
            compile_cuda(name, text, architecture_for(capability, known))
    except CompileFailure as failure:
        raise CompilerError(
            f"the CUDA source of `{name}` does not compile:\n{failure}",
            where=here(),
            hint=f"it is to define `__global__ void {kernel}({parameters})`",
        ) from None


def check_function(name: str, function: str, library: str) -> None:
    """Load the library and look for its function.

    Raises: CompilerError where it cannot be loaded, or has no such function.
    """
    if is_emulated():
        emulator()  # it has the functions of CUDA that the library calls
    symbol_in(library, function, name)


def _compile_emulated(text: str) -> None:
    command, _ = find_cxx()
    flags = [*CXX_FLAGS, "-fsyntax-only", "-isystem", str(package().INCLUDE), "-include", "cuda_runtime.h"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.cu").write_text(text, encoding="utf-8")
        run_compiler([*command, *flags, "kernel.cu"], Path(folder))
