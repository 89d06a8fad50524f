"""The names of a program's Variables in the `state_dict` of their modules, for exported folders.

Tested by `tests/test_exported_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from staged.frontend.trace.captured import mentioned, parts
from staged.frontend.values.variable import Variable

_DEPTH = 6
"""The most steps from the function to a module: `trainer.config.models[0]` has four."""
_MOST_VALUES = 10_000
"""The most values that are searched for modules."""


def state_names(
    variables: Sequence[Variable], function: Callable[..., Any], arguments: Iterable[tuple[str, Any]]
) -> dict[int, str]:
    """By id: the names of Variables that belong to modules of `function` or of its `arguments`.

    A Variable of several modules has its name in the one that has most of these Variables. If they belong to several
    modules, the names begin with Python's name of the module: `actor.0.weight`.
    """
    wanted = {id(variable) for variable in variables}
    found: list[tuple[str, dict[int, str]]] = []
    for name, state in _states(function, arguments):
        keys: dict[int, str] = {}
        for path, variable in state:
            if id(variable) in wanted:
                keys.setdefault(id(variable), path)  # a shared Variable has its first name
        found.append((name, keys))
    chosen: list[tuple[str, dict[int, str]]] = []
    done: set[int] = set()
    for name, keys in sorted(found, key=lambda item: -len(item[1])):
        new = {key: path for key, path in keys.items() if key not in done}
        if new:
            chosen.append((name, new))
            done |= new.keys()
    if len(chosen) == 1:
        return chosen[0][1]
    return {key: f"{name}.{path}" for name, keys in chosen for key, path in keys.items()}


def _states(function: Callable[..., Any], arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Iterable[Any]]]:
    """(name, (path, Variable) pairs) of each module that the function or an argument leads to, the nearest first."""
    level: list[tuple[str, Any]] = [*arguments, ("", function)]
    seen: set[int] = set()
    for _ in range(_DEPTH):
        following: list[tuple[str, Any]] = []
        for name, value in level:
            if id(value) in seen or len(seen) > _MOST_VALUES:
                continue
            seen.add(id(value))
            if hasattr(type(value), "_variables") and hasattr(type(value), "state_dict"):
                yield name or type(value).__name__.lower(), value._variables()
            following += _below(name, value)
        level = following


def _below(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of the values that one leads to: what a function mentions, or an object holds."""
    if isinstance(value, partial):
        yield from [(name, each) for each in (value.func, *value.args)]
        yield from value.keywords.items()
    elif isinstance(value, MethodType):
        yield from [("", value.__self__), ("", value.__func__)]
    elif isinstance(value, FunctionType):
        code = value.__code__
        for free, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield free, cell.cell_contents
            except ValueError:  # not bound yet
                continue
        for word in mentioned(code):
            if word in value.__globals__:
                yield word, value.__globals__[word]
    elif hasattr(type(value), "__staged_inline__"):  # another staged function
        yield name, value.__wrapped__
    else:
        for key, part in parts(value):
            yield (f"{name}.{key}" if name else str(key)), part
