"""The public functions, whether calls of them are known or not: a new one is a cell that stays empty until there is one."""

from __future__ import annotations

from functools import cache
from types import FunctionType, ModuleType

import staged as st
from staged.ops.array import METHODS
from tests.fuzz.cells import (  # noqa: F401  (enter their calls)
    fourier_calls,
    layer_calls,
    linalg_calls,
    more_layer_calls,
    network_calls,
    shape_calls,
    small_calls,
    sorting_calls,
    training_calls,
)
from tests.fuzz.cells.calls import CALLS

BASES = (st.nn.Module, st.optim.Optimizer)
"""Classes that have no meaning of their own."""


@cache
def public_names() -> list[str]:
    """The functions of `st`, and what its modules have beside these."""
    names = [*st.ops.__all__, *(name for name in METHODS if name.startswith("random."))]
    here = {getattr(st, name) for name in st.ops.__all__}
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
    """Public functions that have no call."""
    return sorted(set(public_names()) - set(CALLS))


__all__ = ["CALLS", "missing", "public_names"]
