"""Editors and type checkers know the package: pyright and mypy find the mistakes in a user's program, and no others."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import staged as st
from staged.ops.array import METHOD_NAMES
from tests.plugin import unavailable

ROOT = Path(__file__).parent.parent
PROGRAM = '''\
from typing import Any

import numpy as np
import staged as st
from staged import nn, optim


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.out(st.relu(self.hidden(x)))

    @st.function
    def predict(self, x: Any) -> st.Array:
        return st.softmax(self(x), axis=-1)


model = Model()
optimizer = optim.Adam(model.parameters(), lr=1e-3)


@st.function
def step(x: Any, y: Any) -> st.Array:
    loss, grads = st.value_and_grad(lambda x: st.cross_entropy(model(x), y), wrt=model)(x)
    optimizer.step(grads)
    return loss


@st.function(static=("n",))
def power(x: float, n: int) -> float:
    return x**n


x, y = np.ones((2, 4), np.float32), np.zeros(2, np.int64)
total = 0.0
for _ in range(3):
    total += float(step(x, y))
step(x)  # mistake: y is missing
power(2.0, n="a")  # mistake: n is a number
st.relux(x)  # mistake: no such function
best = model.predict(x).argmax(axis=-1).reshape(-1)[0]
print(total, power(2.0, n=3), int(best), st.zeros(3).sum().item(), step.stage(x, y).source)
with st.with_backend(st.GPU, x):
    print(step(x, y))
'''
MISTAKES = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# mistake" in line]


def lines_of(command: list[str], folder: Path) -> str:
    """Return what a type checker prints about the program in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("MYPYPATH", None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_pyright_finds_exactly_the_mistakes(folder: Path) -> None:
    if importlib.util.find_spec("basedpyright") is None:
        unavailable("not installed: basedpyright")
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    found = json.loads(lines_of(command, folder))["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1: each["message"] for each in found if each["severity"] == "error"}
    assert list(errors) == MISTAKES, errors


def test_mypy_finds_exactly_the_mistakes(folder: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        unavailable("not installed: mypy")
    (folder / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\nfollow_imports = silent\n")
    printed = lines_of([sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), "program.py"], folder)
    errors = [int(line.split(":")[1]) for line in printed.splitlines() if ": error:" in line]
    assert errors == MISTAKES, printed


def test_an_array_completes_to_all_its_methods() -> None:
    assert {*METHOD_NAMES, "shape", "dtype", "T"} <= set(dir(st.zeros(3)))
