"""PyTorch's reading of a call, in f64: its gradient is held against ours. Of the functions that it has under a like meaning."""

from __future__ import annotations

import importlib.util
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz import plain
from tests.fuzz.cells.piece import Piece, wide
from tests.rows import ROWS


def is_available() -> bool:
    """Return whether PyTorch is installed. Asked anew for each piece: `tests/noted.py` sees which test asks."""
    return importlib.util.find_spec("torch") is not None


def gradients(piece: Piece) -> list[Any]:
    """PyTorch's gradients of the piece's value by its operands; none where it has no such functions."""
    import torch

    if ".std(" in piece.value.replace("st.std(", "") or ".var(" in piece.value.replace("st.var(", ""):
        return []  # methods of tensors, with another correction
    names: dict[str, Any] = {"st": _namespace(), "np": np}
    exec(piece.module(piece.value), names)
    given = {
        name: torch.tensor(wide(array) if plain.kind_of(array.dtype) in "fc" else _signed(array))
        for name, array in piece.arrays.items()
    }
    for name in piece.by:
        given[name].requires_grad_()
    try:
        value = names["piece"](*given.values())
        if not value.requires_grad:
            return []
        found = torch.autograd.grad(value, [given[name] for name in piece.by], allow_unused=True)
    except (AttributeError, TypeError, RuntimeError, IndexError, ValueError, NotImplementedError):
        return []  # another form of call, or a function that PyTorch has not
    return [None if gradient is None else gradient.resolve_conj().numpy() for gradient in found]


def _signed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.int64) if array.dtype.kind in "ui" else array


def _namespace() -> SimpleNamespace:
    """PyTorch's functions by our names, as the rows have them."""
    import torch

    found = {name: row.torch for name, row in ROWS.items() if row.torch}
    functions = {name: attrgetter(how)(torch) if isinstance(how, str) else how(torch) for name, how in found.items()}
    return SimpleNamespace(**functions, checkpoint=lambda function: function)
