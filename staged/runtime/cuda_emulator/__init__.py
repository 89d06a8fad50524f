"""The emulated device: a library that stands in for the CUDA runtime, so that programs with kernels run without a GPU.

`include/` has the headers that a program's text compiles against (with a C++ compiler, unchanged); `memory.cpp` is the
device's memory, which host code cannot touch; `kernels.cpp` runs launches. See `emulator.h` for what they share.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"


def source_texts() -> dict[str, str]:
    """The emulator's files by their path below its folder."""
    paths = sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h"), *INCLUDE.glob("*.h")])
    return {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in paths}
