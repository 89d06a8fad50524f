"""Programs with kernels: which device there is, compiling for it, and loading.

| file          | what                                                                                    |
|---------------|-----------------------------------------------------------------------------------------|
| `devices.py`  | which GPUs there are, why there are none, whether the emulated device is asked for      |
| `nvrtc.py`    | the kernels of a program become machine code of one kind of GPU                         |
| `toolkit.py`  | where NVIDIA's headers and libraries are, and loading them                              |
| `host.py`     | the host part of a program becomes a shared library that carries the kernels' code      |
| `emulated.py` | the emulated device (see `cuda_emulator/`), and programs compiled for it                |
| `building.py` | running a compiler on texts, once: what it made is kept in the program cache            |
| `interface.py`| functions of the CUDA runtime for use from Python                                       |
| `resident.py` | arrays that stay on a device between calls                                              |
| `arriving.py` | arrays that come to a device beside its work                                            |
| `borrowed.py` | arrays of other libraries on a device                                                   |
| `program.py`  | a loaded program with kernels                                                           |
| `loading.py`  | a program that can be called, on whichever device there is                              |

`STAGED_CUDA=emulate` chooses the emulated device, which every machine with a C++ compiler has.
"""

from __future__ import annotations

from staged.runtime.cuda.building import find_cxx
from staged.runtime.cuda.devices import gpu_count, is_emulated
from staged.runtime.cuda.emulated import DeviceCounts, Emulator, emulator, files_beside
from staged.runtime.cuda.loading import load

__all__ = ["DeviceCounts", "Emulator", "emulator", "files_beside", "find_cxx", "gpu_count", "is_emulated", "load"]
