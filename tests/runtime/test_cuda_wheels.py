"""The wheels of the extra `cuda` alone compile a program for a GPU: no CUDA toolkit, no nvcc, no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from staged.errors import DependencyError
from staged.runtime.cuda import toolkit
from tests import cuda_wheels

MNIST = """
from staged.runtime.cuda import devices, loading, nvrtc
from tests.gpu_check.examples import EXAMPLES

loading.needed_gpu = lambda index: devices.Gpu(0, "a GPU that is not here", (9, 0), 1 << 30)
function, arguments = EXAMPLES[0]
artifact = function.stage(**arguments)._artifact
print(loading.load(artifact).path)
kernels = nvrtc.compile_kernels(artifact, (9, 0))
print(kernels.cubin)
print(kernels.architecture)
"""


def environment_without_a_toolkit(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which no nvcc and no toolkit is found, and no program in a cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cc", "gcc", "as", "ld"):
        found = shutil.which(name)
        if found is not None:
            (programs / name).symlink_to(Path(found).resolve())
    dropped = ("CUDA", "STAGED_C", "CONDA", "CPATH", "C_INCLUDE_PATH", "LD_LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    own = {"PATH": str(programs), "PYTHONPATH": str(cuda_wheels.ROOT), "STAGED_CACHE_DIR": str(tmp_path / "kept")}
    return {**kept, **own}


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_the_wheels_of_the_extra_compile_mnist_without_a_toolkit(tmp_path: Path) -> None:
    environment = environment_without_a_toolkit(tmp_path)
    assert shutil.which("nvcc", path=environment["PATH"]) is None
    command = [str(cuda_wheels.python()), "-c", MNIST]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *paths, architecture = done.stdout.split()
    library, cubin = (Path(path).read_bytes() for path in paths)
    for name in (b"libcudart.so.13\0", b"libcublas.so.13\0", b"libcublasLt.so.13\0", b"libcudnn.so.9\0"):
        assert name in library
    assert architecture == "sm_90" and cubin[:4] == b"\x7fELF" and cubin in library


def finder_of(monkeypatch: pytest.MonkeyPatch, runtime: Path | None) -> None:
    """A `cuda.pathfinder` that knows no headers, and the runtime's library at most."""
    finder = types.ModuleType("cuda.pathfinder")

    def load(name: str) -> types.SimpleNamespace:
        if name != "cudart" or runtime is None:
            raise RuntimeError(f"no {name}")
        return types.SimpleNamespace(abs_path=str(runtime))

    finder.find_nvidia_header_directory = lambda name: None  # type: ignore[attr-defined]
    finder.load_nvidia_dynamic_lib = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")


@pytest.mark.parametrize("inner", [".", "cccl"], ids=["beside", "cccl"])
def test_headers_of_cccl_are_beside_the_runtimes_or_in_a_folder_there(
    inner: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finder_of(monkeypatch, tmp_path / "lib" / "libcudart.so.13")
    header = tmp_path / "include" / inner / "nv" / "target"
    header.parent.mkdir(parents=True)
    header.touch()
    assert toolkit.include_folder("cccl") == tmp_path / "include" / inner
    header.unlink()
    with pytest.raises(DependencyError, match="nvidia-cuda-cccl alone"):
        toolkit.include_folder("cccl")


def test_headers_of_cccl_may_be_nvccs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finder_of(monkeypatch, None)
    header = tmp_path / "include" / "cccl" / "nv" / "target"
    header.parent.mkdir(parents=True)
    header.touch()
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho '#$ TOP={tmp_path}' >&2\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolkit.include_folder("cccl") == tmp_path / "include" / "cccl"


def test_headers_of_cccl_may_be_in_a_wheel_elsewhere_on_pythons_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finder_of(monkeypatch, tmp_path / "toolkit" / "lib" / "libcudart.so.13")
    header = tmp_path / "nvidia" / "cu13" / "include" / "nv" / "target"
    header.parent.mkdir(parents=True)
    header.touch()
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda name: spec)
    assert toolkit.include_folder("cccl") == tmp_path / "nvidia" / "cu13" / "include"


def test_a_program_without_a_matmul_does_not_need_the_headers_of_cccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "include_folder", lambda name: Path(name))
    assert toolkit.include_folders(("cudnn",)) == [Path("cudart"), Path("crt"), Path("cudnn")]
    for library in ("cublas", "cublasLt", "cusolver"):
        assert toolkit.include_folders((library,)) == [Path("cudart"), Path("crt"), Path(library), Path("cccl")]
