"""The emulated device: a library that replaces the CUDA runtime, so that programs with kernels run without a GPU.

`include/` has the headers for the program's text, which a C++ compiler takes unchanged. docs/emulated_device.md says
which errors it finds and how it is configured.

| file           | purpose                                                                                    |
|----------------|--------------------------------------------------------------------------------------------|
| `emulator.h`   | shared declarations                                                                        |
| `memory.cpp`   | the devices' memory, which host code cannot access; faults                                 |
| `copies.cpp`   | copies, fills, pinned memory                                                               |
| `streams.cpp`  | queues of work, eager or lazy; `events.cpp`, `graphs.cpp`: events and recorded graphs      |
| `kernels.cpp`  | checks of a launch, and its blocks; `blocks.cpp`: the threads of a block, which may wait   |
| `fibers.cpp`   | stacks of threads; `shared_memory.cpp`: the shared arrays of a kernel                      |
| `races.h`      | reports to the thread sanitizer                                                            |
| `devices.cpp`  | the list of devices; `settings.cpp`: their behaviour; `errors.cpp`: error reports          |
| `library.h`    | shared by NVIDIA's libraries: a folder each, built when a program first links it           |
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
