"""The emulated device: a library that replaces the CUDA runtime, so that programs with kernels run without a GPU.

`include/` has the headers for the program, which a C++ compiler compiles unchanged. The README says which errors it
finds and how it is configured.

| file           | purpose                                                                                    |
|----------------|--------------------------------------------------------------------------------------------|
| `building.py`  | how a C++ compiler builds the libraries, and programs for them; `device.py`: load and read |
| `__main__.py`  | the flags for a compiler's command line, as pkg-config prints them                         |
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

from cuda_emulator.building import (
    FOLDER,
    INCLUDE,
    KERNEL_CHECKS,
    LIBRARIES,
    RACES,
    Recipe,
    build,
    compile_flags,
    declarations,
    find_compiler,
    link_flags,
    recipe,
    source_texts,
)
from cuda_emulator.device import DeviceCounts, Emulator, device, ffi, open_library

__all__ = [
    "FOLDER",
    "INCLUDE",
    "KERNEL_CHECKS",
    "LIBRARIES",
    "RACES",
    "DeviceCounts",
    "Emulator",
    "Recipe",
    "build",
    "compile_flags",
    "declarations",
    "device",
    "ffi",
    "find_compiler",
    "link_flags",
    "open_library",
    "recipe",
    "source_texts",
]
