"""Programs with kernels: finding a device, compiling for it, and loading.

| file          | purpose                                                                                 |
|---------------|-----------------------------------------------------------------------------------------|
| `devices.py`  | the GPUs of this machine, why there are none, whether the emulated device is chosen     |
| `nvrtc.py`    | compile kernels to machine code for one kind of GPU                                     |
| `toolkit.py`  | find and load NVIDIA's headers and libraries                                            |
| `host.py`     | compile the host code to a shared library that contains the kernels' machine code       |
| `emulated.py` | programs for the emulated device, which is the package `cuda_emulator`                  |
| `building.py` | run a compiler on texts, once: results are kept in the program cache                    |
| `interface.py`| functions of the CUDA runtime, callable from Python                                     |
| `resident.py` | arrays that stay on a device between calls                                              |
| `arriving.py` | arrays copied to a device while it computes                                             |
| `borrowed.py` | arrays of other libraries on a device                                                   |
| `program.py`  | a loaded program with kernels                                                           |
| `loading.py`  | load a program for a GPU or the emulated device                                         |

`STAGED_CUDA=emulate` chooses the emulated device, which needs its package and a C++ compiler.
"""

from __future__ import annotations

from staged.runtime.cuda.building import find_cxx
from staged.runtime.cuda.devices import gpu_count, is_emulated
from staged.runtime.cuda.emulated import emulator, files_beside, package
from staged.runtime.cuda.loading import load

__all__ = ["emulator", "files_beside", "find_cxx", "gpu_count", "is_emulated", "load", "package"]
