"""Programs of ranks that tests export, and the commands that build and run their folders."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from tests.ranks import jobs

Arrays = Mapping[str, Any]
STRICT = "-std=c11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Werror"
"""The flags of an exported Makefile, where a warning is an error."""
CELLS, STEPS, K = 24, 200, 0.2
ROWS, WIDTH, HIDDEN, OUT = 252, 64, 64, 4


def heat_for(ranks: int) -> Any:
    """The 1-D heat equation on a number of ranks: the misfit of the last state, and its gradients."""

    @st.function(ranks=ranks)
    def heat(u0, target0, k, steps):
        u, target = st.shard(u0), st.shard(target0)

        def misfit(u, k):
            for _ in range(steps):
                wide = st.exchange_halo(u, 1, edge="nearest")
                u = u + k * (wide[2:] - 2.0 * u + wide[:-2])
            return st.all_reduce(st.sum((u - target) ** 2)), u

        (value, u), (d_u, d_k) = st.value_and_grad(misfit, argnums=(0, 1), has_aux=True)(u, k)
        print("misfit", value)
        return {"misfit": value, "u": u, "d_u": d_u, "d_k": d_k}

    return heat


def mlp() -> Any:
    """A step of data-parallel training on any number of ranks, which have equal numbers of rows."""
    rng = np.random.default_rng(0)
    w1 = st.Variable(0.1 * rng.normal(size=(WIDTH, HIDDEN)), name="w1")
    b1 = st.Variable(np.zeros(HIDDEN), name="b1")
    w2 = st.Variable(0.1 * rng.normal(size=(HIDDEN, OUT)), name="w2")

    @st.function(local=("x", "y"), dims={"x": (f"N <= {ROWS}", None), "y": ("N", None)})
    def train(x, y, rate, epochs):
        def loss():
            return st.all_reduce(st.mean((st.tanh(x @ w1 + b1) @ w2 - y) ** 2), "mean")

        value = 0.0
        for epoch in range(epochs):
            value, (d_w1, d_b1, d_w2) = st.value_and_grad(loss, wrt=(w1, b1, w2))()
            w1.value -= rate * d_w1
            b1.value -= rate * d_b1
            w2.value -= rate * d_w2
            print("epoch", epoch, "loss", value)
        assert value < 100.0, "the loss is too large"
        return {"loss": value, "predicted": st.tanh(x @ w1 + b1) @ w2, "rank": st.rank()}

    return train


def mlp_arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {"x": rng.normal(size=(ROWS, WIDTH)), "y": rng.normal(size=(ROWS, OUT))}


def heat_arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(2)
    return {"u0": rng.normal(size=CELLS), "target0": rng.normal(size=CELLS)}


def export(program: Any, folder: Path, arrays: Arrays, *numbers: Any, target: str | None = None) -> Path:
    """Write a folder, with the arrays as files."""
    program.stage(*arrays.values(), *numbers).export(folder, target=target)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def mpicc() -> str:
    """The compiler beside `mpiexec`."""
    beside = Path(sys.executable).parent / "mpicc"
    return str(beside) if beside.exists() else shutil.which("mpicc") or "mpicc"


def make(folder: Path, *words: str) -> None:
    """Run `make`. A warning is an error."""
    flags = [] if any(word.startswith("CFLAGS") for word in words) else [f"CFLAGS={STRICT}"]
    command = ["make", "-s", "-j2", f"MPICC={mpicc()}", *flags, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def flags(arrays: Arrays, **numbers: Any) -> list[str]:
    """The flags for arrays in files, and for numbers."""
    words = [word for name in arrays for word in (f"--{name}", f"{name}.npy")]
    return words + [word for name, value in numbers.items() for word in (f"--{name}", str(value))]


def launch(
    folder: Path, ranks: int, *words: str, changes: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of a folder on a number of ranks, or without MPI on 0."""
    command = [*([str(jobs.mpiexec()), "-n", str(ranks)] if ranks else []), *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env=jobs.environment(changes)
    )


def results(folder: Path) -> dict[str, Any]:
    """The arrays of a folder of results."""
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}
