"""The namespace `staged` with every call compiled: each call of a test is a program of one op.

Only the calls that stand in the suite's tests are compiled; those with which its helpers look at results run in eager mode,
as does reading one element of a result. Arrays among the arguments are the program's arguments, all else is known while
staging. Programs are kept by function, types and what is known, and the program cache has them in the next run.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optree

import staged as st
from staged.eager_mode.context import EagerArray
from staged.runtime.options import CompileOptions

OPTIONS = CompileOptions("0", (), ("-g0", "-w"))
NOT_COMPUTED = frozenset(
    "can_cast finfo iinfo isdtype result_type from_dlpack asarray __array_namespace_info__ broadcast_shapes".split()
)
"""Functions of types, and those that take arrays in from outside."""
OPERATORS = (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul "
    "rand ror rxor rlshift rrshift lt le gt ge eq ne abs invert neg pos getitem"
).split()
INDEXED = ("test_array_object.py", "test_indexing_functions.py")
"""Files whose tests are about reading parts of arrays."""

_programs: dict[Any, Any] = {}


def compiled_call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a program that makes this one call."""
    leaves, tree = optree.tree_flatten((list(args), dict(kwargs)), none_is_leaf=True)
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, EagerArray)]
    arrays = [np.asarray(leaves[number]) for number in places]
    known = [None if number in places else leaf for number, leaf in enumerate(leaves)]
    types_ = tuple((array.shape, str(array.dtype)) for array in arrays)
    key = function, str(tree), tuple((type(leaf), repr(leaf)) for leaf in known), types_
    program = _programs.get(key)
    if program is None:

        @st.function
        def program(arrays: Any) -> Any:
            filled = list(known)
            for place, array in zip(places, arrays, strict=True):
                filled[place] = array
            given, options = optree.tree_unflatten(tree, filled)
            return function(*given, **options)

        program.options = OPTIONS
        _programs[key] = program
    return optree.tree_map(_wrapped, program(arrays))


def program_count() -> int:
    """The number of different calls that were compiled."""
    return len(_programs)


def _wrapped(leaf: Any) -> Any:
    return st.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic | st.Array) else leaf


def _caller() -> str:
    """The name of the file of the suite from which a function of this one was called."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Path(frame.f_code.co_filename).name


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the standard, compiled where a test calls it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _caller().startswith("test_"):
            return function(*args, **kwargs)
        return compiled_call(function, args, kwargs)

    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def compile_operators() -> None:
    """Let the operators of eager arrays be programs, too, where a test uses them."""
    for name in (f"__{word}__" for word in OPERATORS):
        setattr(EagerArray, name, _operator(name, getattr(EagerArray, name)))


def _operator(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*operands: Any) -> Any:
        return getattr(type(operands[0]), name)(*operands)

    @functools.wraps(method)
    def call(*operands: Any) -> Any:
        caller = _caller()
        if not caller.startswith("test_") or name == "__getitem__" and caller not in INDEXED:
            return method(*operands)
        if any(not isinstance(one, EagerArray | bool | int | float | tuple | slice | type(...) | None) for one in operands):
            return method(*operands)
        return compiled_call(apply, operands, {})

    return call


def namespace() -> types.ModuleType:
    """A module with the names of `staged`, whose functions are compiled."""
    made = types.ModuleType("compiled_staged", st.__doc__)
    for name in dir(st):
        value = getattr(st, name)
        is_function = inspect.isfunction(value) and name not in NOT_COMPUTED and not name.startswith("_")
        setattr(made, name, compiled(value) if is_function else value)
    for extension in ("linalg", "fft"):
        if hasattr(st, extension):
            part = getattr(st, extension)
            functions = {name: compiled(getattr(part, name)) for name in part.__all__ if inspect.isfunction(getattr(part, name))}
            setattr(made, extension, types.SimpleNamespace(**functions))
    return made
