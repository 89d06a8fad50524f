"""Writes the files of an exported folder, except over files that were edited.

The file `.staged.json` of the folder has the digest of each file that `export` has written.

Tested by `tests/test_exported_state.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from staged.errors import ArgumentError
from staged.ir.types import dtype_of
from staged.saving import safetensors

DIGESTS = ".staged.json"
"""The file with the digests."""
WEIGHTS = "weights.safetensors"
"""The file with the Variables."""

Array = np.ndarray[Any, Any]


def write_folder(
    folder: Path, texts: Mapping[str, str], arrays: Mapping[str, Array], weights: Mapping[str, Array], overwrite: bool
) -> list[Path]:
    """Write files of source code and arrays by name, and the weights by their names; returns the paths of all files.

    Raises: ArgumentError if a file has changed since it was exported, unless `overwrite` is true.
    """
    names = [*texts, *arrays, *([WEIGHTS] if weights else [])]
    digests = _digests(folder)
    changed = (
        []
        if overwrite
        else [name for name in names if _is_changed(folder / name, texts.get(name), digests.get(name, ""))]
    )
    if changed:
        raise ArgumentError(
            f"`export` does not overwrite files that have changed: {', '.join(changed)} in {folder}",
            hint="export to another folder, or pass `overwrite=True` to replace these files",
        )
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for name, array in arrays.items():
        np.save(folder / name, array)
    if weights:
        _write_weights(folder / WEIGHTS, weights)
    digests |= {name: _digest(folder / name) for name in names}
    (folder / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return [folder / name for name in names]


def _digests(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _is_changed(path: Path, text: str | None, digest: str) -> bool:
    """Return whether a file has other contents than an export gave it and than this export would give it."""
    if not path.exists():
        return False
    if not path.is_file():
        return True
    return _digest(path) != digest and (text is None or path.read_bytes() != text.encode())


def _write_weights(path: Path, weights: Mapping[str, Array]) -> None:
    words, arrays = [], []
    for name, array in weights.items():
        if array.dtype.kind == "c":  # pairs of floats: the format does not have all complex dtypes
            array = np.ascontiguousarray(array).reshape((*array.shape, 1)).view(array.real.dtype)
        words.append((name, _word(array)))
        arrays.append(array)
    order = safetensors.ordered(words)
    safetensors.write(str(path), [words[n] for n in order], [arrays[n] for n in order], "")


def _word(array: Array) -> str:
    """The format's name for the dtype of an array."""
    found = dtype_of(array.dtype)
    assert found is not None, f"a Variable of {array.dtype}"
    return found.name.upper()
