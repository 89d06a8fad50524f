"""The public functions, with a row or without: the cells of a new one stay empty until it has a row."""

from __future__ import annotations

from functools import cache
from types import FunctionType, ModuleType

import staged as st
from staged.ops.array import METHODS
from tests.rows import ROWS

BASES = (st.nn.Module, st.optim.Optimizer)
"""Classes that have no meaning of their own."""


@cache
def public_names() -> list[str]:
    """The functions of `st`, and what its modules have beside these."""
    names = [*st.library.__all__, *(name for name in METHODS if name.startswith("random."))]
    here = {getattr(st, name) for name in st.library.__all__}
    for module in ("linalg", "special", "fft"):
        held = getattr(st, module)
        names += [f"{module}.{name}" for name in held.__all__ if getattr(held, name) not in here]
    for module in ("nn", "optim"):
        held = getattr(st, module)
        found = {name: getattr(held, name) for name in held.__all__}
        names += [
            f"{module}.{name}"
            for name, value in found.items()
            if value not in BASES and not isinstance(value, ModuleType)
        ]
    names += [
        f"nn.init.{name}"
        for name, function in vars(st.nn.init).items()
        if isinstance(function, FunctionType) and function.__module__ == st.nn.init.__name__ and name[0] != "_"
    ]
    return sorted(names)


def missing() -> list[str]:
    """Public functions that have no row."""
    return sorted(set(public_names()) - set(ROWS))
