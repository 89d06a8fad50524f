"""The emulated device: a library that stands in for the CUDA runtime, so that programs with kernels run without a GPU.

`include/` has the headers that a program's text compiles against (with a C++ compiler, unchanged). What it finds and how it is set
up is in docs/emulated_device.md.

| file           | what                                                                                       |
|----------------|--------------------------------------------------------------------------------------------|
| `emulator.h`   | what the files share                                                                       |
| `memory.cpp`   | the devices' memory, which host code cannot touch; faults                                  |
| `copies.cpp`   | copies, fills, pinned memory                                                               |
| `streams.cpp`  | queues of work, eager or lazy; `events.cpp`, `graphs.cpp`: points in them, recordings      |
| `kernels.cpp`  | what a launch checks, and its blocks; `blocks.cpp`: the threads of one, which may wait     |
| `fibers.cpp`   | the stacks that threads run on; `shared_memory.cpp`: which shared arrays a kernel has      |
| `races.h`      | what the thread sanitizer is told                                                          |
| `devices.cpp`  | which devices there are; `settings.cpp`: how they behave; `errors.cpp`: what went wrong    |
| `library.h`    | what the libraries of NVIDIA share: a folder each, built when a program first links it     |
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
