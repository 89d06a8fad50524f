"""Public names of functions of this package: their own, and NumPy's and torch's words for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from staged.ops.array import METHOD_NAMES, METHODS, NUMPY_NAMES, PUBLIC
from staged.ops.halves import in_f32
from staged.ops.torch_keywords import takes_torch_keywords

F = TypeVar("F", bound=Callable[..., Any])

Option: TypeAlias = Any
"""A number, or an array, that is not an operand: its dtype does not change the dtype of the result."""


def public(
    name: str, *, method: bool = False, numpy: Sequence[str] | None = (), torch: Sequence[str] = ()
) -> Callable[[F], F]:
    """Enter a function as `st.name`; see `internal` for the rest."""

    def enter(function: F) -> F:
        PUBLIC.append(name)
        return internal(name, method=method, numpy=numpy, torch=torch)(function)

    return enter


def internal(
    name: str, *, method: bool = False, numpy: Sequence[str] | None = None, torch: Sequence[str] = ()
) -> Callable[[F], F]:
    """Enter a function into `METHODS`, where operators find it by `name`; it accepts torch's names of its arguments
    too. Of f16 and bf16 it computes in f32 (`halves.in_f32`).

    With `method` it is also a method of arrays, under torch's words too. On our arrays it replaces NumPy's function of
    the same name, and those that `numpy` lists; None: no function of NumPy's.
    """

    def enter(function: F) -> F:
        assert name not in METHODS, f"function {name} is declared twice"
        function.__name__ = function.__qualname__ = name.rpartition(".")[2]
        named = METHODS[name] = takes_torch_keywords(name, in_f32(name, function))
        METHOD_NAMES.update(dict.fromkeys((*((name,) if method else ()), *torch), name))
        if numpy is not None:
            NUMPY_NAMES.update(dict.fromkeys((*((name,) if hasattr(np, name) else ()), *numpy), name))
        return named

    return enter
