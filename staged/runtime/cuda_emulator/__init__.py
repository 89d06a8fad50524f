"""The emulated device: a library that stands in for the CUDA runtime, so that programs with kernels run without a GPU.

`include/` has the headers that a program's text compiles against (with a C++ compiler, unchanged); `memory.cpp` is the
device's memory, which host code cannot touch; `kernels.cpp` runs launches. See `emulator.h` for what they share.
`cublas/`, `cublaslt/` and `cudnn/` are the libraries of these names, each built when a program first links it; they share
`library.h`.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"


def source_texts(library: str = "") -> dict[str, str]:
    """The emulator's files by their path below its folder: its own, or those of one of NVIDIA's libraries.

    A library's are the headers of all and the `.cpp` files of its folder.
    """
    paths = sorted([*FOLDER.glob("**/*.h"), *(FOLDER / library).glob("*.cpp")])
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in paths}
