"""The exported folder of a program with kernels: built in three ways, and run where that takes no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import INCLUDE
from staged import GPU, with_backend
from tests.backends.cublas_cudnn import programs

X = np.random.default_rng(1).normal(size=(37, 19)).astype(np.float32)

Export = Callable[..., Path]


@st.function
def step(x: Any, w: Any, rate: Any) -> Any:
    with with_backend(GPU, x):
        loss = st.mean((x * w.value - 1.0) ** 2)
        w.value = w.value - rate * st.mean(x, axis=0)
    return loss


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """Writes a program's folder, and what it reads."""

    def write(function: Any, *arguments: Any, **arrays: Any) -> Path:
        function.stage(*arguments).export(tmp_path)
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        return tmp_path

    return write


def make(folder: Path, *words: str) -> None:
    done = subprocess.run(["make", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def has(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"no {tool}")


def test_the_emulated_device_is_in_the_folder_and_runs_it(export: Export) -> None:
    folder = export(programs.softmax, X, x=X)
    make(folder, "emu", "EMULATORFLAGS=-std=c++17 -O1 -Wall -Wextra")
    done = run(folder, "./softmax_emu", "--x", "x.npy", "--out", ".")
    assert done.returncode == 0, done.stderr
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    np.testing.assert_allclose(np.load(folder / "result.npy"), shifted / shifted.sum(axis=1, keepdims=True), rtol=1e-5)


def test_variables_that_live_on_the_device_are_brought_there_and_back(export: Export) -> None:
    w = st.Variable(np.ones(19, np.float32))
    w.name = "w"
    folder = export(step, X, w, 0.5, x=X)
    make(folder, "emu")
    done = run(folder, "./step_emu", "--x", "x.npy", "--rate", "0.5", "--out", ".")  # `w` is in weights.safetensors
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "result.npy"), np.mean((X - 1.0) ** 2), rtol=1e-5)
    np.testing.assert_allclose(np.load(folder / "w.npy"), 1.0 - 0.5 * X.mean(axis=0), rtol=1e-5)


@st.function
def product(a: Any, b: Any) -> Any:
    with with_backend(GPU, a, b):
        y = a @ b + 1.0
    return y


def test_a_library_that_the_program_calls_is_emulated_in_the_folder_too(export: Export) -> None:
    folder = export(product, X, X.T.copy(), a=X, b=X.T.copy())
    assert "LIBRARIES ?= -lcublas\n" in (folder / "Makefile").read_text()
    make(folder, "emu")
    done = run(folder, "./product_emu", "--a", "a.npy", "--b", "b.npy", "--out", ".")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "result.npy"), X @ X.T + 1.0, rtol=1e-4, atol=1e-5)


@st.function
def shrink(n: Any, x: Any) -> Any:
    return x if n < 1 else st.sin(shrink(n - 1, x * 0.5)) + x


@st.function
def slope(n: Any, x: Any) -> Any:
    with with_backend(GPU, x):
        return st.grad(lambda x: st.sum(shrink(n, x)))(x)


def test_a_recursion_has_its_stack_and_its_stores_in_the_folder_too(export: Export) -> None:
    x = X[0, :4]
    folder = export(slope, 3, x, x=x)
    make(folder, "emu", "EMULATORFLAGS=-std=c++17 -O1 -Wall -Wextra")
    arguments = ("./slope_emu", "--x", "x.npy", "--out", ".")
    done = run(folder, *arguments, "--n", "2")
    assert done.returncode == 0, done.stderr
    inner = np.sin(x * 0.25) + x * 0.5
    wanted = np.cos(inner) * (np.cos(x * 0.25) * 0.25 + 0.5) + 1.0
    np.testing.assert_allclose(np.load(folder / "result.npy"), wanted, rtol=1e-5)
    done = run(folder, *arguments, "--n", "200000", "--stack", "18000000")
    assert done.returncode != 0 and "`shrink` recurses deeper" in done.stderr


def test_inputs_on_the_device_pass_strict_flags(export: Export, emulated_device: Any) -> None:
    with with_backend(GPU):
        folder = export(st.function(lambda x: x * 2.0), st.to(X, GPU))
    assert "free_on_devices(&args, " in (folder / "main.c").read_text()
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", "-fsyntax-only", "main.c"]
    done = run(folder, "cc", *strict)
    assert done.returncode == 0, done.stderr


def test_the_folder_does_not_name_this_machine(export: Export) -> None:
    folder = export(programs.softmax, X)
    root = str(Path(st.__file__).parents[1])
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            assert root not in path.read_text(), path


@has("nvcc")
@pytest.mark.parametrize("how", ["whole", "split"])
def test_nvcc_builds_it_and_without_a_driver_it_says_so(how: str, export: Export) -> None:
    folder = export(programs.softmax, X, x=X)
    make(folder, *([] if how == "whole" else ["split"]))
    done = run(folder, "./softmax" if how == "whole" else "./softmax_split", "--x", "x.npy", "--out", ".")
    if os.path.exists("/dev/nvidiactl"):
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        assert "programs.py, line" in done.stderr and "cudaSetDevice(0)" in done.stderr
        assert "CUDA driver version is insufficient" in done.stderr
