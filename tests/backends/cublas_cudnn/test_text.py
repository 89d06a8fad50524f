"""The one file that several compilers take unchanged, and what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import INCLUDE
from staged import GPU, with_backend
from staged.base.artifact import Artifact
from staged.runtime import cuda
from staged.runtime.cuda.program import CudaProgram
from tests.backends.cublas_cudnn import programs

X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)
B = X[0]
NETWORK = tuple(np.ones(shape, np.float32) for shape in ((2, 3, 5, 4), (4, 3, 3, 3), (4,), (80, 6), (6,)))
WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# Between them: prints, branches, loops, a gradient, device functions, workspace, constants, host kernels, Variables.
PROGRAMS: list[tuple[Any, tuple[Any, ...]]] = [
    (programs.double, (X,)),
    (programs.maths, (X,)),
    (programs.softmax, (X,)),
    (programs.moves, (X,)),
    (programs.through_the_host, (X,)),
    (programs.network, NETWORK),
    (programs.halve, (np.abs(X),)),
    (programs.accumulate, (X, 4)),
    (programs.train, (X, 0.1, 4)),
    (programs.gradient_of_nested_loops, (X, 3)),
]
each_program = pytest.mark.parametrize(("function", "arguments"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])


def portable(function: Any) -> Any:
    return st.function(target="portable")(function.__wrapped__)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any, tuple[Any, ...]], Artifact]:
    """Writes a program's files into the test's folder."""

    def write(function: Any, arguments: tuple[Any, ...]) -> Artifact:
        artifact: Artifact = portable(function).stage(*arguments)._artifact
        (tmp_path / f"{artifact.name}.cu").write_text(artifact.source)
        (tmp_path / f"{artifact.name}.h").write_text(artifact.header)
        (tmp_path / f"{artifact.name}_support.h").write_text(artifact.support)
        return artifact

    return write


def compile_with(tmp_path: Path, command: list[str]) -> None:
    tool = shutil.which(command[0])
    if tool is None:
        pytest.skip(f"no {command[0]}")
    done = subprocess.run([tool, *command[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@each_program
def test_the_host_part_is_c11(
    function: Any, arguments: tuple[Any, ...], written: Callable[..., Artifact], tmp_path: Path
) -> None:
    name = written(function, arguments).name
    flags = ["-x", "c", "-std=c11", *WARNINGS, "-DHOST_ONLY", "-isystem", str(INCLUDE)]
    compile_with(tmp_path, ["gcc", *flags, "-c", f"{name}.cu", "-o", "host.o"])


@each_program
def test_the_kernels_compile_alone(
    function: Any, arguments: tuple[Any, ...], written: Callable[..., Artifact], tmp_path: Path
) -> None:
    name = written(function, arguments).name
    flags = [
        "-x",
        "c++",
        "-std=c++17",
        *WARNINGS,
        "-DKERNELS_ONLY",
        "-isystem",
        str(INCLUDE),
        "-include",
        "cuda_runtime.h",
    ]
    compile_with(tmp_path, ["g++", *flags, "-c", f"{name}.cu", "-o", "kernels.o"])


@pytest.mark.parametrize(
    ("function", "arguments"), PROGRAMS[1:3] + PROGRAMS[-2:], ids=["maths", "softmax", "train", "stacks"]
)
def test_nvcc_takes_the_whole_file_and_the_kernels(
    function: Any, arguments: tuple[Any, ...], written: Callable[..., Artifact], tmp_path: Path
) -> None:
    name = written(function, arguments).name
    # Every launch on a stream of its own, every kernel with its bounds. gcc's C++ has that warning about C's initialisers.
    strict = ["nvcc", "-arch=sm_90", "-Werror", "all-warnings,default-stream-launch,missing-launch-bounds"]
    host = ["-std=c++17", "-Xcompiler", "-Wall,-Wextra,-Wno-missing-field-initializers"]
    compile_with(tmp_path, [*strict, "-DKERNELS_ONLY", "-cubin", f"{name}.cu"])
    compile_with(tmp_path, [*strict, *host, "-c", f"{name}.cu", "-o", "whole.o"])


def test_host_and_kernels_compiled_apart_run_together(
    written: Callable[..., Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a real GPU: the host part is a C library, the kernels an image that it loads."""
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    device = str(cuda.emulator().path)
    artifact = written(programs.softmax, (X,))
    name, kernels = artifact.name, tmp_path / "kernels.so"
    (tmp_path / "image.c").write_text(f'const unsigned char {name}_image[] = "EMULATED:{kernels}";\n')
    shared = ["-fPIC", "-shared", "-isystem", str(INCLUDE), f"{name}.cu"]
    linked = ["-x", "none", device, "-lm"]
    kernel_flags = ["-x", "c++", "-std=c++17", "-DKERNELS_ONLY", "-include", "cuda_runtime.h"]
    compile_with(tmp_path, ["g++", *kernel_flags, *shared, *linked, "-o", str(kernels)])
    compile_with(tmp_path, ["gcc", "-x", "c", "-std=c11", "-DHOST_ONLY", *shared, "image.c", *linked, "-o", "host.so"])
    program = CudaProgram(artifact, tmp_path / "host.so")
    (found,) = program(X)
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, shifted / shifted.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_kernel_says_where_it_comes_from_what_was_fused_and_how_it_is_mapped() -> None:
    text = portable(programs.double).stage(X).source
    assert re.search(
        r"// programs.py:\d+  y = x \* 2.0 \+ 1.0\n// fused: multiply, add\n// 703 items, a thread each", text
    )


def test_an_array_that_is_also_summed_keeps_a_thread_for_each_element() -> None:
    @st.function(target="portable")
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0 + 1.0
            print(st.sum(y))
        return y

    text = f.stage(X).source
    assert text.count('extern "C" __global__') == 2
    assert "703 items, a thread each" in text


def test_contiguous_kernels_have_no_division_and_no_needless_guard() -> None:
    @st.function(target="portable")
    def f(x: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        return y

    def kernel(x: Any) -> str:
        text: str = f.stage(x).source
        return text[text.index('extern "C" __global__') : text.index("#ifdef STAGED_CUDA_EMULATED")]

    with_tail, without = kernel(np.ones((3, 100), np.float32)), kernel(np.ones((8, 128), np.float32))
    for text in (with_tail, without):
        assert "%" not in text and "/" not in text
    assert "if (j >= 300)" in with_tail
    assert "if" not in without


def test_every_cuda_call_is_checked_and_on_the_stream() -> None:
    text = portable(programs.train).stage(X, 0.1, 4).source
    entry = text[text.index("\nint train(") : text.index("\nvoid train_release(")]
    for line in entry.splitlines():
        if "cuda" in line or "launch_" in line:
            assert line.strip().startswith("CUDA_CHECK(")
            assert "gpu" in line or "cudaSetDevice" in line
    assert "<<<" not in text


def test_the_text_is_the_same_every_time() -> None:
    code = (
        "import numpy as np\n"
        "from tests.backends.cublas_cudnn import programs\n"
        "import staged as st\n"
        "f = st.function(target='portable')(programs.train.__wrapped__)\n"
        "print(f.stage(np.ones((37, 19), np.float32), 0.1, 4).source)\n"
    )
    root = Path(__file__).parents[3]
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=root)
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1
