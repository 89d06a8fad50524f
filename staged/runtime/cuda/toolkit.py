"""NVIDIA's libraries and their headers: where they are, and loading them into this process.

They come as wheels (the extra `cuda`), with conda, or with a CUDA toolkit; `cuda.pathfinder` knows all of these places.
A program finds a library that is loaded already by its name, so a compiled program says nothing about folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from staged.errors import DependencyError

RUNTIME = "cudart"
_HEADERS = {
    # From CUDA 13.1 on, what the runtime's headers include is a wheel of its own.
    "cudart": ("cuda_runtime_api.h", "crt/host_defines.h"),
    "cublas": ("cublas_v2.h",),
    "cublasLt": ("cublasLt.h",),
    "cudnn": ("cudnn.h",),
}
_WHEELS = {
    "cudart": "nvidia-cuda-runtime and nvidia-cuda-crt",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "cudnn": "nvidia-cudnn-cu13",
}


def load_libraries(names: Sequence[str]) -> list[Path]:
    """Load the CUDA runtime and the libraries of these names; returns their files in that order.

    Raises: DependencyError for one that is missing.
    """
    return [_loaded(name) for name in (RUNTIME, *names)]


def include_folders(names: Sequence[str]) -> list[Path]:
    """The folders with the headers of the CUDA runtime and of these libraries, each once.

    Raises: DependencyError for headers that are missing.
    """
    return list(dict.fromkeys(_include_folder(name) for name in (RUNTIME, *names)))


def _loaded(name: str) -> Path:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return Path(load_nvidia_dynamic_lib(name).abs_path)
    except (ImportError, RuntimeError) as failure:
        raise _missing(name, "library", failure) from None


def _include_folder(name: str) -> Path:
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        # cublasLt comes with cublas, under whose name pathfinder knows both.
        found = find_nvidia_header_directory("cublas" if name == "cublasLt" else name)
    except (ImportError, RuntimeError) as failure:
        raise _missing(name, "headers", failure) from None
    for header in _HEADERS[name]:
        if found is None or not (Path(found) / header).is_file():
            raise _missing(name, "headers", FileNotFoundError(f"no {header}" + (f" in {found}" if found else "")))
    return Path(found)


def _missing(name: str, what: str, failure: Exception) -> DependencyError:
    words = str(failure).strip().splitlines() or [""]
    return DependencyError(
        f"the {what} of {name}, which the program calls, {'were' if what == 'headers' else 'was'} not found",
        details=[f"{type(failure).__name__}: {words[0]}"],
        hint=f"pip install 'staged[cuda]' (or {_WHEELS[name]} alone), or set STAGED_CUDA=emulate",
    )
