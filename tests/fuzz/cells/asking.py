"""The results of eager mode for a piece, and so the dtypes that the type rule of a function takes."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

import staged as st
from staged.errors import StagedError
from staged.testing import load_snippet
from tests.fuzz.cells.draw import NotACell
from tests.fuzz.cells.piece import Piece, piece_of, with_variables
from tests.rows import ROWS

_KINDS = ("odd", "vector", "one", "block", "scalar", "empty")
_ATTEMPTS = 2


def eagerly(piece: Piece, text: str) -> Any:
    """The result of eager mode for a text of this piece."""
    return run_eagerly(load_snippet(piece.module(text), "cell"), "piece", piece)


def run_eagerly(module: Any, name: str, piece: Piece) -> Any:
    """The result of eager mode for one function of a module, with this piece's arguments."""
    staged = st.function(getattr(module, name))
    with st.eager(), np.errstate(all="ignore"):
        found = with_variables(piece, module, lambda: staged(*(array.copy() for array in piece.arrays.values())))
        return arrays_of(found)


def arrays_of(tree: Any) -> Any:
    """A result as NumPy arrays."""
    if isinstance(tree, dict):
        return {key: arrays_of(value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(arrays_of(item) for item in tree)
    if hasattr(tree, "__dataclass_fields__"):
        return tuple(arrays_of(getattr(tree, name)) for name in tree.__dataclass_fields__)
    return np.asarray(tree)


@cache
def is_taken(name: str, dtype: str) -> bool:
    """Whether some call of a function with arrays of this dtype is taken: what the declaration says, by asking it.

    A function without a row counts as one that accepts all: its cells stay empty.
    """
    if name not in ROWS:
        return True
    chance = random.Random(f"taken {name} {dtype}")
    for kind in _KINDS:
        for _ in range(_ATTEMPTS):
            try:
                piece = piece_of((name, dtype, kind, "plain"), chance)
                eagerly(piece, piece.text)
            except (NotACell, StagedError):
                continue
            except Exception:
                return True  # a fault: the check of its cells shows it
            return True
    return False
