"""The exported folder of a program for OpenCL: built and run with the loader and the driver of the extra `opencl`."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from tests import opencl_device

X = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables that say where the wheel's loader lies, and where that finds the driver."""
    opencl_device.require()
    wheel = importlib.util.find_spec("pyopencl")
    assert wheel is not None and wheel.origin is not None
    home = Path(wheel.origin).parent
    (loader,) = home.glob(".libs/libOpenCL*")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libOpenCL.so").symlink_to(loader)
    places = {"LIBRARY_PATH": str(tmp_path / "lib"), "LD_LIBRARY_PATH": str(loader.parent), "PYOPENCL_HOME": str(home)}
    return os.environ | places


@st.function
def scaled(x: Any) -> Any:
    with with_backend(GPU, using="opencl"):
        return st.tanh(x) * 2.0


@st.function
def on_device(x: Any) -> Any:
    """Its argument and its result are on the device."""
    with with_backend(GPU, x, using="opencl"):
        y = st.tanh(x) * 2.0
    return y


@pytest.mark.parametrize("function", [scaled, on_device])
def test_the_folder_builds_and_gives_what_the_host_gives(
    function: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    function.stage(X).export(folder)
    assert "It needs a C compiler and OpenCL's loader, `libOpenCL`." in (folder / "README.md").read_text()
    np.save(folder / "x.npy", X)
    name = function.__name__
    for command in (["make"], [f"./{name}", "--x", "x.npy", "--out", "."]):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stdout + done.stderr
    np.testing.assert_allclose(np.load(folder / "result.npy"), np.tanh(X) * 2.0, rtol=1e-5)


@st.function
def step(x: Any, w: Any, rate: Any) -> Any:
    with with_backend(GPU, x, using="opencl"):
        loss = st.mean((x * w.value - 1.0) ** 2)
        w.value = w.value - rate * st.mean(x, axis=0)
    return loss


def test_variables_that_live_on_the_device_are_brought_there_and_back(
    environment: dict[str, str], tmp_path: Path
) -> None:
    w = st.Variable(np.ones(5, np.float32))
    w.name = "w"
    step.stage(X, w, 0.5).export(tmp_path)
    assert "to_device(" in (tmp_path / "main.c").read_text()
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "w.npy", np.ones(5, np.float32))
    for command in (["make"], ["./step", "--x", "x.npy", "--w", "w.npy", "--rate", "0.5", "--out", "."]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stdout + done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), np.mean((X - 1.0) ** 2), rtol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), 1.0 - 0.5 * X.mean(axis=0), rtol=1e-5)
