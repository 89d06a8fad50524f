"""Find NVIDIA's libraries and headers, and load the libraries into this process.

They come as wheels (the extra `cuda`), with conda, or with a CUDA toolkit; `cuda.pathfinder` knows all these places. A
program finds a loaded library by name, so compiled programs contain no folders.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from staged.errors import DependencyError

RUNTIME = "cudart"
_CRT = "crt"  # what the runtime's headers include: a wheel of its own, or a part of the compiler nvcc
_CCCL = "cccl"  # what `cuda_fp16.h` includes: as crt, and in some versions in a folder `cccl`
_HEADERS = {
    RUNTIME: "cuda_runtime_api.h",
    _CRT: "crt/host_defines.h",
    _CCCL: "nv/target",
    "cublas": "cublas_v2.h",
    "cublasLt": "cublasLt.h",
    "cudnn": "cudnn.h",
    "cusolver": "cusolverDn.h",
}
_WHEELS = {
    RUNTIME: "nvidia-cuda-runtime",
    _CRT: "nvidia-cuda-crt",
    _CCCL: "nvidia-cuda-cccl",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "cudnn": "nvidia-cudnn-cu13",
    "cusolver": "nvidia-cusolver",
}
_FAILURES = (ImportError, RuntimeError, ValueError, OSError)
"""Exceptions of `cuda.pathfinder` for a missing or unknown library."""
# Where `cuda.pathfinder` has headers under another name than ours: crt's lie beside the runtime's or beside nvcc's.
_FOUND_AS = {"cublasLt": ("cublas",), _CRT: (RUNTIME, "nvcc"), _CCCL: (_CCCL, RUNTIME, "nvcc")}
_IN = {_CCCL: ("", "cccl")}
"""Folders within a header folder that may hold the headers: CUDA 13.0 has CCCL's in both, other versions in one."""
_INCLUDING_HALVES = frozenset({"cublas", "cublasLt", "cusolver"})
"""The libraries whose headers include `cuda_fp16.h`."""


def load_libraries(names: Sequence[str]) -> list[Path]:
    """Load the CUDA runtime and the libraries of these names; returns their files in that order.

    Raises: DependencyError for one that is missing.
    """
    return [_loaded(name) for name in (RUNTIME, *names)]


def include_folders(names: Sequence[str]) -> list[Path]:
    """The folders with the headers of the CUDA runtime and of these libraries, each once.

    Raises: DependencyError for headers that are missing.
    """
    needed = (RUNTIME, _CRT, *names, *((_CCCL,) if _INCLUDING_HALVES.intersection(names) else ()))
    return list(dict.fromkeys(include_folder(name) for name in needed))


def _loaded(name: str) -> Path:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return Path(load_nvidia_dynamic_lib(name).abs_path)
    except _FAILURES as failure:
        # Earlier versions do not know cuDNN: it is looked for among the wheels that the runtime is one of.
        for path in [] if name == RUNTIME else _libraries_beside_runtime(name):
            ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
            return path
        raise _missing(name, "library", failure) from None


def _libraries_beside_runtime(name: str) -> list[Path]:
    """The files of a library in the folders of the wheels: `nvidia/cu13/lib/libcudart.so.13`,
    `nvidia/cudnn/lib/libcudnn.so.9`.
    """
    try:
        wheels = _loaded(RUNTIME).parents[2]
    except DependencyError:
        return []
    return sorted(wheels.glob(f"*/lib/lib{name}.so.*"))


def include_folder(name: str) -> Path:
    """The folder with the headers of one library.

    Raises: DependencyError where they are missing.
    """
    header = _HEADERS[name]
    folders, failure = _folders_of_pathfinder(name)
    finders: tuple[Callable[[], list[str]], ...] = (lambda: folders, lambda: _folders_beside(name), _folders_of_nvcc)
    for find in finders:  # the last one asks a compiler
        for folder in (Path(found, inner) for found in find() for inner in _IN.get(name, ("",))):
            if (folder / header).is_file():
                return folder
    looked = ", ".join(folders)
    raise _missing(name, "headers", failure or FileNotFoundError(f"no {header}" + (f" in {looked}" if looked else "")))


def _folders_of_pathfinder(name: str) -> tuple[list[str], Exception | None]:
    """The header folders that `cuda.pathfinder` finds, and its exception: earlier versions know few libraries."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        folders = [find_nvidia_header_directory(known) for known in _FOUND_AS.get(name, (name,))]
    except _FAILURES as failure:
        return [], failure
    return [folder for folder in folders if folder], None


def _folders_beside(name: str) -> list[str]:
    """The folder `include` next to a library's folder, as in wheels and toolkits.

    CCCL has no library: its wheel may also be in a folder on Python's path that the runtime is not in.
    """
    try:
        library = _loaded(RUNTIME if name in (_CRT, _CCCL) else name)
    except DependencyError:
        return []
    beside = [library.parent.parent / "include"]
    return [str(folder) for folder in (*beside, *(_folders_of_wheels() if name == _CCCL else ()))]


def _folders_of_wheels() -> list[Path]:
    """The header folders of NVIDIA's wheels that this Python can import from, as in `nvidia/cu13/include`."""
    wheels = importlib.util.find_spec("nvidia")
    places = (wheels and wheels.submodule_search_locations) or ()
    return [folder for place in places for folder in sorted(Path(place).glob("*/include"))]


def _folders_of_nvcc() -> list[str]:
    """The header folders of the nvcc on the PATH. It may be a script or a link, so it is run to report them."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return []
    said = subprocess.run(
        [nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, errors="replace"
    ).stderr
    return [os.path.join(top, "include") for top in re.findall(r"^#\$ TOP=(.+)$", said, re.MULTILINE)]


def _missing(name: str, what: str, failure: Exception) -> DependencyError:
    words = str(failure).strip().splitlines() or [""]
    return DependencyError(
        f"the {what} of {name}, which the program calls, {'were' if what == 'headers' else 'was'} not found",
        details=[f"{type(failure).__name__}: {words[0]}"],
        hint=f'pip install ".[cuda]" in the clone (or {_WHEELS[name]} alone), or set STAGED_CUDA=emulate',
    )
