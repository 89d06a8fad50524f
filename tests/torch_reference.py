"""PyTorch's results for a test: recorded beside the tests, so that `make test` needs no PyTorch.

    expected, d_x = reference(lambda torch, x: ..., X)

`reference` gives the recorded result of the running test's first, second, ... call. With `--all` (`make test-all`) it imports
PyTorch, computes the result, and compares the record with it, so that a stale record is found. A record also has a digest of the
inputs: a test whose inputs changed says so instead of comparing with something else. If a program computed the inputs, such as
initial weights, their last bits depend on the processor. `reference(..., computed=True)` compares sums over these inputs.

`make references` records all of them anew, in one process, with the version that pyproject.toml names.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TESTS = Path(__file__).parent
RECORDS = TESTS / "references"

AGREES = 1e-6
"""The largest distance of PyTorch from its own record, relative to the largest element: processors add up in different orders."""


class Records:
    """The records of the running test: those of its module's file, looked up by the test's name and the call's number."""

    def __init__(self, live: bool, record: bool) -> None:
        self.live, self.record = live or record, record
        self._file: Path | None = None
        self._stored: dict[str, np.ndarray] = {}
        self._test = ""
        self.calls = 0

    def begin(self, item: pytest.Item) -> None:
        """The next calls are this test's."""
        self._test, self.calls = item.name, 0
        if not item.path.is_relative_to(TESTS):
            self._file = None
            return
        module = item.path.relative_to(TESTS).with_suffix("")
        file = RECORDS / module.parent / (module.name.removeprefix("test_") + ".npz")
        if file != self._file:
            self._file, self._stored = file, dict(np.load(file)) if file.exists() else {}

    def reference(self, compute: Callable[..., Any], inputs: tuple[Any, ...], rtol: float, computed: bool) -> Any:
        """See `reference`."""
        assert self._file is not None, "a reference is asked for outside of a test"
        key = f"{self._test}#{self.calls}"
        self.calls += 1
        given = sums(inputs) if computed else digest(inputs)
        if not self.live:
            return self._recorded(key, given)
        import torch

        found = compute(torch, *inputs)
        if self.record:
            self._write(key, given, found, torch.__version__.split("+")[0])
        elif str(self._stored.get("torch")) == torch.__version__.split("+")[0]:
            agrees(found, self._recorded(key, given), rtol, key)
        return found

    def _recorded(self, key: str, given: str | list[Any]) -> Any:
        if f"{key}/form" not in self._stored:
            pytest.fail(f"no reference of PyTorch is recorded for {key}: make references", pytrace=False)
        form = json.loads(str(self._stored[f"{key}/form"]))
        if not same_inputs(form["inputs"], given):
            pytest.fail(
                f"the inputs of {key} are others than those of its recorded reference: make references", pytrace=False
            )
        return unflattened(form["tree"], [self._stored[f"{key}/{number}"] for number in range(form["leaves"])])

    def _write(self, key: str, given: str | list[Any], found: Any, version: str) -> None:
        leaves: list[np.ndarray] = []
        tree = flattened(found, leaves)
        stale = [name for name in self._stored if name.startswith(f"{key}/")]
        for name in stale:
            del self._stored[name]
        form = {"inputs": given, "tree": tree, "leaves": len(leaves)}
        self._stored |= {f"{key}/form": np.array(json.dumps(form)), "torch": np.array(version)}
        self._stored |= {f"{key}/{number}": leaf for number, leaf in enumerate(leaves)}
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(self._file, **dict(sorted(self._stored.items())))


RUNNING: Records | None = None
"""Set by plugin.py for the whole run."""


def reference(compute: Callable[..., Any], *inputs: Any, rtol: float = AGREES, computed: bool = False) -> Any:
    """`compute(torch, *inputs)`: from the record of the running test, or, under `--all`, by PyTorch.

    The result is a tree of tuples, lists, dicts with string keys, arrays, numbers, strings and None; tensors become arrays.
    """
    assert RUNNING is not None
    return RUNNING.reference(lambda torch, *xs: as_arrays(compute(torch, *xs)), inputs, rtol, computed)


# ---- trees ----


def as_arrays(tree: Any) -> Any:
    """The tree with arrays in place of tensors."""
    if isinstance(tree, Mapping):
        return {str(name): as_arrays(value) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(map(as_arrays, tree)) if type(tree) in (tuple, list) else tuple(map(as_arrays, tree))
    return tree.detach().cpu().numpy().copy() if hasattr(tree, "detach") else tree


def flattened(tree: Any, leaves: list[np.ndarray]) -> Any:
    """The tree's form as JSON; its arrays and numbers are put into `leaves`."""
    if tree is None:
        return None
    if isinstance(tree, str):
        return {"text": tree}
    if isinstance(tree, dict):
        return {"dict": {name: flattened(value, leaves) for name, value in tree.items()}}
    if isinstance(tree, tuple | list):
        return {type(tree).__name__: [flattened(value, leaves) for value in tree]}
    leaves.append(np.asarray(tree))
    return "array" if isinstance(tree, np.ndarray) else "number"


def unflattened(form: Any, leaves: list[np.ndarray]) -> Any:
    """The tree of a form; takes its leaves from the front of the list."""
    if form is None:
        return None
    if form in ("array", "number"):
        leaf = leaves.pop(0)
        return leaf if form == "array" else leaf.item()
    ((kind, parts),) = form.items()
    if kind == "text":
        return parts
    if kind == "dict":
        return {name: unflattened(part, leaves) for name, part in parts.items()}
    return {"tuple": tuple, "list": list}[kind](unflattened(part, leaves) for part in parts)


def digest(inputs: Any) -> str:
    """A number that inputs with other bits do not share."""
    leaves: list[np.ndarray] = []
    state = hashlib.sha256(json.dumps(flattened(as_arrays(inputs), leaves)).encode())
    for leaf in leaves:
        state.update(f"{leaf.dtype}{leaf.shape}".encode())
        state.update(np.ascontiguousarray(leaf).tobytes())
    return state.hexdigest()[:16]


def sums(inputs: Any) -> list[Any]:
    """Numbers that inputs share only if they have one form and differ by their last bits: for each array of floats its sum in a
    wave of weights and the sum of its magnitudes.
    """
    leaves: list[np.ndarray] = []
    form = flattened(as_arrays(inputs), leaves)
    found: list[Any] = [digest((json.dumps(form), [str(leaf.dtype) + str(leaf.shape) for leaf in leaves]))]
    for leaf in leaves:
        if leaf.dtype.kind == "f":
            values = leaf.astype(np.float64).ravel()
            found.append([float(values @ np.cos(np.arange(values.size))), float(np.abs(values).sum())])
        else:
            found.append(digest(leaf))
    return found


def same_inputs(recorded: Any, given: Any) -> bool:
    """Return whether inputs are those of a record, by their digest or by their sums."""
    if not isinstance(given, list) or not isinstance(recorded, list) or len(given) != len(recorded):
        return bool(recorded == given)
    return all(
        abs(one[0] - other[0]) <= 1e-6 * one[1] and abs(one[1] - other[1]) <= 1e-6 * one[1]
        if isinstance(one, list) and isinstance(other, list)
        else one == other
        for one, other in zip(recorded, given, strict=True)
    )


def agrees(found: Any, recorded: Any, rtol: float, key: str) -> None:
    """Fail where PyTorch computes something else than what was recorded of it."""
    ours: list[np.ndarray] = []
    theirs: list[np.ndarray] = []
    assert flattened(found, ours) == flattened(recorded, theirs), (
        f"{key}: another form than the record: make references"
    )
    largest = [float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0)) if x.dtype.kind == "f" else 0.0 for x in theirs]
    for one, other, own in zip(ours, theirs, largest, strict=True):
        # A gradient that is zero is noise, which differs between processors: some roundings of the largest number.
        noise = 64 * float(np.finfo(other.dtype).eps) * max(largest) if other.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(
            one, other, rtol=rtol, atol=max(rtol * own, noise), err_msg=f"{key}: make references"
        )


def main() -> int:
    """Record the references of all tests that have some."""
    files = [path for path in TESTS.rglob("test_*.py") if uses_references(path)]
    wanted = [line for line in (importlib.metadata.requires("staged") or ()) if line.startswith("torch==")]
    version = importlib.metadata.version("torch").split("+")[0]
    if not any(line.startswith(f"torch=={version}") for line in wanted):
        print(f"torch is {version}, pyproject.toml names {wanted}")
        return 1
    for file in RECORDS.rglob("*.npz"):
        file.unlink()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "--all",
        "--record-references",
        *map(str, sorted(files)),
    ]
    return subprocess.run(command, cwd=TESTS.parent, check=False).returncode


def uses_references(path: Path) -> bool:
    """True for a test file that asks for references, by itself or through a helper of the tests."""
    text = path.read_text()
    return any(f"import {name}" in text or f"tests.{name}" in text for name in ("torch_reference", "ops.against_torch"))


if __name__ == "__main__":
    sys.exit(main())
