"""From a program with kernels to what a GPU would run: NVRTC, the C compiler, NVIDIA's own libraries, up to the driver."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import with_backend
from staged.base.artifact import Artifact
from staged.errors import CompilerError, DependencyError, ProgramError
from staged.runtime import cuda
from staged.runtime.cuda import devices, host, loading, nvrtc, toolkit
from staged.runtime.options import CompileOptions
from tests.backends.cublas_cudnn import programs
from tests.cuda_toolchain import check_host_part, check_kernels

X = np.ones((37, 19), np.float32)
GPU = devices.Gpu(0, "a GPU that is not here", (9, 0), 1 << 30)


def has_wheel(name: str) -> bool:
    return any(found.name == name for found in importlib.metadata.distributions())


def artifact_of(function: Any, *arguments: Any) -> Artifact:
    artifact: Artifact = function.stage(*arguments)._artifact
    return artifact


def replaced(artifact: Artifact, old: str, new: str) -> Artifact:
    assert old in artifact.source
    return dataclasses.replace(artifact, source=artifact.source.replace(old, new))


# ---- kernels ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("needs_nvrtc")
def test_kernels_become_machine_code_for_each_kind_of_gpu() -> None:
    artifact = artifact_of(programs.softmax, X)
    for capability, architecture in (((8, 0), "sm_80"), ((9, 0), "sm_90")):
        kernels = nvrtc.compile_kernels(artifact, capability)
        assert kernels.architecture == architecture
        assert kernels.cubin.read_bytes()[:4] == b"\x7fELF"
        assert [use.name for use in kernels.uses] == ["softmax_y_kernel"]
        assert kernels.uses[0].registers > 0
        assert kernels.messages == ""


@pytest.mark.usefixtures("needs_nvrtc")
def test_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = artifact_of(programs.softmax, X)
    first = nvrtc.compile_kernels(artifact, (9, 0))

    def compile_again(*_: Any) -> Any:
        raise AssertionError("it is in the cache")

    monkeypatch.setattr(nvrtc, "_compile", compile_again)
    assert nvrtc.compile_kernels(artifact, (9, 0)) == first


@pytest.mark.usefixtures("needs_nvrtc")
def test_a_refused_kernel_is_explained_with_its_generated_line_and_the_python_line() -> None:
    broken = replaced(artifact_of(programs.double, X), " = x[", " = absent[")
    with pytest.raises(CompilerError) as caught:
        nvrtc.compile_kernels(broken, (9, 0))
    said = str(caught.value)
    assert 'the CUDA compiler refused the program `double_`: identifier "absent" is undefined' in said
    assert "generated line double_.cu:" in said and "absent[" in said
    assert "y = x * 2.0 + 1.0" in said  # the Python line


@pytest.mark.usefixtures("needs_nvrtc")
def test_the_check_of_kernels_refuses_a_warning() -> None:
    careless = replaced(artifact_of(programs.double, X), "y[j] = ", "int unused; y[j] = ")
    with pytest.raises(AssertionError, match='variable "unused" was declared but never referenced'):
        check_kernels(careless)


@pytest.mark.usefixtures("needs_nvrtc")
def test_the_check_of_kernels_refuses_spilled_registers() -> None:
    """A thousand threads share the registers, so a thread has 64, and a hundred values are alive at a time."""
    lines = [f"float v{i} = x[{i}];" for i in range(100)]
    lines += [f"x[{i}] = v{i} * v{99 - i} + v{i * 7 % 100};" for i in range(100)]
    body = "\n".join([*lines[:100], "__syncthreads();", *lines[100:]])
    text = f'extern "C" __global__ void __launch_bounds__(1024) many(float *x) {{\n{body}\n}}\n'
    artifact = Artifact("many", text, "", (), 0, language="cuda")
    with pytest.raises(AssertionError, match=r"registers of `many` are spilled on sm_90: many \(\d+ bytes\)"):
        check_kernels(artifact)


def test_the_check_of_host_parts_refuses_a_warning() -> None:
    careless = replaced(
        artifact_of(programs.double, X), "static dim3 st_dim3", "static int unused;\nstatic dim3 st_dim3"
    )
    with pytest.raises(AssertionError, match="unused"):
        check_host_part(careless)


LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for helper
{margin}16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for first
{margin}400 bytes stack frame, 24 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers, 400 bytes cumulative stack size, 4224 bytes smem, 380 bytes cmem[0]
ptxas info    : Compile time = 8.210 ms
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
{margin}0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


@pytest.mark.parametrize("margin", ["    ", "ptxas         .     "], ids=["13.0", "13.5"])
def test_the_log_tells_what_each_kernel_takes(margin: str) -> None:
    uses, messages = nvrtc.parse_log(LOG.format(margin=margin))
    assert uses == (nvrtc.KernelUse("first", 38, 400, 24, 4224), nvrtc.KernelUse("second", 10, 0, 0, 0))
    assert messages == ""


def test_what_else_the_log_says_is_a_message() -> None:
    warning = "many.cu(3): warning #177-D: variable"
    uses, messages = nvrtc.parse_log(
        f"{warning}\n\n{LOG.format(margin='    ')}ptxas warning : Value of x is not known\n"
    )
    assert len(uses) == 2
    assert messages.splitlines() == [warning, "ptxas warning : Value of x is not known"]


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 5), "sm_80"),
        ((9, 0), "sm_90"),
        ((12, 1), "sm_120"),
        ((11, 0), "compute_90"),
        ((13, 0), "compute_120"),
    ],
)
def test_the_architecture_is_the_newest_whose_code_runs(capability: tuple[int, int], architecture: str) -> None:
    assert nvrtc.architecture_for(capability, [75, 80, 86, 89, 90, 120]) == architecture


@pytest.mark.usefixtures("needs_nvrtc")
def test_a_gpu_that_is_newer_than_the_compiler_gets_ptx() -> None:
    kernels = nvrtc.compile_kernels(artifact_of(programs.softmax, X), (99, 0))
    text = kernels.cubin.read_bytes()
    assert re.search(rb"\.target sm_\d+\n", text) and b".entry softmax_y_kernel" in text and text.endswith(b"\0")
    assert kernels.architecture.startswith("compute_") and kernels.messages == ""


def test_a_gpu_that_is_too_old_for_the_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_version", lambda: "13.0")
    with pytest.raises(DependencyError) as caught:
        nvrtc.architecture_for((7, 0), [80, 90, 120])
    assert "NVRTC 13.0 does not compile for compute capability 7.0, which is too old for it" in str(caught.value)
    assert "it knows 8.0, 9.0, 12.0" in str(caught.value)


# ---- the whole way ------------------------------------------------------------------------------


@pytest.mark.usefixtures("needs_nvrtc")
@pytest.mark.skipif(devices.gpu_count()[0] > 0, reason="this machine has a GPU, where programs run")
@pytest.mark.parametrize(
    ("function", "arguments"), [(programs.softmax, (X,)), (programs.train, (X, 0.1, 4))], ids=["softmax", "train"]
)
def test_without_a_driver_a_program_is_compiled_and_loaded_and_says_so(
    function: Any, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a GPU needs but the GPU: NVIDIA's runtime is called, and its answer comes back with the Python line."""
    monkeypatch.delenv("STAGED_CUDA", raising=False)
    monkeypatch.setattr(loading, "needed_gpu", lambda index: GPU)
    program = loading.load(artifact_of(function, *arguments))
    with pytest.raises(ProgramError) as caught:
        program(*arguments)
    said = str(caught.value)
    assert "cudaSetDevice(0)" in said
    assert "CUDA driver version is insufficient for CUDA runtime version" in said or "no CUDA-capable device" in said
    assert "programs.py, line" in said


@st.function
def product(a: Any, b: Any) -> Any:
    with with_backend(st.GPU, a, b):
        y = a @ b + 1.0
    return y


@pytest.mark.usefixtures("needs_nvrtc")
@pytest.mark.skipif(devices.gpu_count()[0] > 0, reason="this machine has a GPU, where programs run")
@pytest.mark.skipif(not has_wheel("nvidia-cublas"), reason="nvidia-cublas is not installed")
def test_a_program_that_calls_a_library_is_linked_to_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGED_CUDA", raising=False)
    monkeypatch.setattr(loading, "needed_gpu", lambda index: GPU)
    arguments = (X, np.ascontiguousarray(X.T))
    program = loading.load(artifact_of(product, *arguments))
    assert b"libcublas.so.13\0" in program.path.read_bytes()
    with pytest.raises(ProgramError, match="driver|device"):
        program(*arguments)


def test_headers_of_crt_may_be_nvccs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The runtime's wheel may come without them, and nvcc on the PATH may be a script that is elsewhere."""
    toolkit_folder = tmp_path / "toolkit"
    (toolkit_folder / "include" / "crt").mkdir(parents=True)
    (toolkit_folder / "include" / "crt" / "host_defines.h").touch()
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho '#$ TOP={toolkit_folder}' >&2\n")
    nvcc.chmod(0o755)
    finder = types.ModuleType("cuda.pathfinder")
    finder.find_nvidia_header_directory = lambda name: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert toolkit.include_folder("crt") == toolkit_folder / "include"
    (toolkit_folder / "include" / "crt" / "host_defines.h").unlink()
    with pytest.raises(DependencyError, match="nvidia-cuda-crt alone"):
        toolkit.include_folder("crt")


def test_headers_are_looked_for_beside_their_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Earlier versions of `cuda.pathfinder` find no headers, or those of few libraries."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cudnn.h").touch()
    finder = types.ModuleType("cuda.pathfinder")
    library = types.SimpleNamespace(abs_path=str(tmp_path / "lib" / "libcudnn.so.9"))
    finder.load_nvidia_dynamic_lib = lambda name: library  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    assert toolkit.include_folder("cudnn") == tmp_path / "include"

    def unknown(name: str) -> None:
        raise RuntimeError(f"UNKNOWN {name}")

    finder.find_nvidia_header_directory = unknown  # type: ignore[attr-defined]
    assert toolkit.include_folder("cudnn") == tmp_path / "include"
    (tmp_path / "include" / "cudnn.h").unlink()
    with pytest.raises(DependencyError, match="the headers of cudnn, which the program calls, were not found"):
        toolkit.include_folder("cudnn")


def test_a_library_that_pathfinder_does_not_know_is_found_among_the_wheels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("cu13", "cudnn"):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True)
    built = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    subprocess.run(["cc", "-shared", "-x", "c", os.devnull, "-o", str(built)], check=True)
    finder = types.ModuleType("cuda.pathfinder")

    def load(name: str) -> Any:
        if name != "cudart":
            raise ValueError(f"Unknown library name: {name}")
        return types.SimpleNamespace(abs_path=str(tmp_path / "nvidia" / "cu13" / "lib" / "libcudart.so.13"))

    finder.load_nvidia_dynamic_lib = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    assert toolkit.load_libraries(("cudnn",))[1] == built
    built.unlink()
    with pytest.raises(DependencyError, match="the library of cudnn, which the program calls, was not found"):
        toolkit.load_libraries(("cudnn",))


@pytest.mark.usefixtures("needs_nvrtc")
def test_the_library_carries_the_kernels_and_names_no_folder() -> None:
    artifact = artifact_of(programs.softmax, X)
    kernels = nvrtc.compile_kernels(artifact, (9, 0))
    library = host.compile_host(artifact, kernels, CompileOptions()).read_bytes()
    assert kernels.cubin.read_bytes() in library
    assert b"libcudart.so.13\0" in library
    assert str(toolkit.load_libraries(())[0].parent).encode() not in library


@pytest.mark.usefixtures("needs_nvrtc")
@pytest.mark.parametrize("first", ["nvidia", "emulated"])
def test_both_runtimes_may_be_in_one_process(first: str) -> None:
    """Their functions have the same names; a program calls those of the one it was made for."""
    code = f"""
import os
import numpy as np
from staged.errors import ProgramError
from staged.runtime.cuda import devices, loading
from tests.backends.cublas_cudnn.programs import double

loading.needed_gpu = lambda index: devices.Gpu(0, "a GPU that is not here", (9, 0), 1 << 30)
x = np.ones((3,), np.float32)
artifact = double.stage(x)._artifact

def nvidia():
    os.environ.pop("STAGED_CUDA", None)
    try:
        loading.load(artifact)(x)
    except ProgramError as error:
        print("nvidia:", "CUDA runtime version" in str(error) or "no CUDA-capable device" in str(error))

def emulated():
    os.environ["STAGED_CUDA"] = "emulate"
    print("emulated:", loading.load(artifact)(x)[0])

for run in ({first}, nvidia, emulated):
    run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    both = ["nvidia: True", "emulated: [3. 3. 3.]"]
    assert done.stdout.splitlines() == [both[first == "emulated"], *both]


# ---- what is missing ----------------------------------------------------------------------------


def test_a_missing_library_is_named_with_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setenv("PATH", "")  # nvcc has headers of its own
    with pytest.raises(DependencyError) as caught:
        toolkit.load_libraries(("cudnn",))
    assert "the library of cudart, which the program calls, was not found" in str(caught.value)
    assert "nvidia-cuda-runtime" in str(caught.value)
    with pytest.raises(DependencyError, match="the headers of cudart, which the program calls, were not found"):
        toolkit.include_folders(())


def test_missing_nvrtc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DependencyError) as caught:
        nvrtc._nvrtc()
    assert "compiled by NVRTC, which was not found" in str(caught.value)
    assert 'pip install ".[cuda]"' in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("cudaErrorInsufficientDriver", "CUDA 13 needs NVIDIA's driver 580 or later"),
        ("ModuleNotFoundError: No module named 'cuda'", 'pip install ".[cuda]"'),
        ("cudaErrorNoDevice", "the CUDA runtime says: cudaErrorNoDevice"),
    ],
)
def test_why_there_is_no_gpu_is_said_in_words(reason: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGED_CUDA", raising=False)
    monkeypatch.setattr(devices, "gpu_count", lambda: (0, reason))
    with pytest.raises(DependencyError) as caught:
        cuda.load(artifact_of(programs.double, X))
    assert "no GPU was found" in str(caught.value)
    assert words in str(caught.value)


def test_the_gpu_that_a_program_names_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    second = dataclasses.replace(GPU, index=1, capability=(8, 0))
    monkeypatch.setattr(devices, "gpus", lambda: (GPU, second))
    assert devices.needed_gpu(1) == second
    with pytest.raises(DependencyError, match=r"the program runs on GPU\(2\), and this machine has 2 GPUs"):
        devices.needed_gpu(2)
