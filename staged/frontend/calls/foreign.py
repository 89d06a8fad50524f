"""Calls of code that is not converted: what they would do outside of the program happens once, while staging, or is
refused.

`known_calls.KNOWN` says what is known. A call with effects is refused with the staged way. An unknown one may run while
staging where it surely runs; under a branch or loop of the program it is refused, unless `st.pure` vouches for it.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any, TypeVar

import numpy as np

from staged.errors import StagingError
from staged.frontend.calls.known_calls import CHANGES_FIRST, CHANGES_ITSELF, HARMLESS, KNOWN, ONCE
from staged.frontend.syntax.user_code import is_user_file
from staged.frontend.trace.context import TraceContext
from staged.source import here

F = TypeVar("F", bound=Callable[..., Any])

_MISSING = object()
_ACCELERATORS = {"posix": "os", "nt": "os"}
_pure: dict[object, object] = {}
"""The arguments of `st.pure`, by `_identities`; kept alive, so that ids stay unique."""


def pure(function: F) -> F:
    """Declare that calls of `function` have no effects, and return `function`.

    A staged function can then call it in branches and loops of the program, although it is not converted (it is written
    in C, or installed with pip): it runs while staging, on values that are known then, once for each place.
    """
    _pure[_identities(function)[0]] = function
    return function


def _identities(function: Any) -> tuple[object, ...]:
    """The identity of a callable: a method is a new object each time that it is read.

    A method written in C is one of its object; or, where the class's is vouched for, of any object.
    """
    if isinstance(function, MethodType):
        return id(function.__func__), id(function)
    owner = getattr(function, "__self__", None)
    if isinstance(function, BuiltinFunctionType | MethodWrapperType) and not isinstance(owner, ModuleType | None):
        return (id(owner), function.__name__), id(getattr(type(owner), function.__name__, None))
    return (id(function),)


def is_pure(function: Any) -> bool:
    """Return whether `pure` was given the function."""
    return bool(_pure) and any(identity in _pure for identity in _identities(function))


def check_call(trace: TraceContext, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise StagingError where a call of code that is not converted must not run while staging."""
    if is_pure(function):
        return
    name, belongs_to_user = name_of(function)
    if belongs_to_user:
        return
    hint = known(name)
    if isinstance(function, MethodType) and not isinstance(function.__self__, type):
        # What a class inherits may do more there: `os.environ.update` is a method of every mapping.
        inherited = _named(
            type(function.__self__).__module__, f"{type(function.__self__).__qualname__}.{function.__name__}"
        )
        found = known(inherited)
        if isinstance(found, str) and not isinstance(hint, str):
            name, hint = inherited, found
    if hint is HARMLESS or any(hasattr(type(value), "__staged_file__") for value in (*args, *kwargs.values())):
        if name == "builtins.next" and trace.is_staged_control and _is_held_elsewhere(args):
            raise _refusal(
                trace, "next", "it moves an iterator of Python's on", "make the iterator and use it up in one place"
            )
        return
    shown = name.removeprefix("builtins.")
    if hint is not _MISSING:
        if shown.startswith("logging.") and _is_silent(function, shown.rsplit(".", 1)[-1]):
            return
        raise StagingError(
            f"`{shown}` inside a staged function would have its effect while staging, not when the program runs",
            where=here(),
            hint=str(hint),
        )
    if trace.is_staged_control:
        once = _longest(ONCE, name)
        if once is not _MISSING:
            raise _refusal(trace, shown, "it would have its effect once, while staging", str(once))
        around = trace.conditional[-1].what
        raise _refusal(
            trace,
            shown,
            "it is not converted, and nothing is known of its effects, which would happen once, while staging",
            f"call it before {around}, or write what it does with the functions of `staged`; if it has no effects, say "
            "so "
            f"once: `st.pure({shown.rsplit('.', 1)[-1]})`",
        )


def _refusal(trace: TraceContext, name: str, why: str, hint: str) -> StagingError:
    return StagingError(f"`{name}` is called inside {trace.conditional[-1].what}: {why}", where=here(), hint=hint)


@lru_cache(maxsize=1024)
def known(name: str) -> Any:
    """The staged way for what has effects, HARMLESS, or `_MISSING` for what no row of the table fits."""
    return _longest(KNOWN, name)


def _longest(table: dict[str, Any], name: str) -> Any:
    """The row of the longest name that fits: the name itself, or one of its parts with `.*`."""
    if name in table:
        return table[name]
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        found = table.get(".".join(parts[:length]) + ".*", _MISSING)
        if found is not _MISSING:
            return found
    return _MISSING


def changed_by(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The container or array that a call of Python's or NumPy's own code changes in place;
    None where it changes none."""
    method = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, _NO_CONTAINERS):
        if isinstance(kwargs.get("out"), np.ndarray):
            return kwargs["out"]
        if not args:
            return None
        if isinstance(getattr(function, "__objclass__", None), type):  # `list.append(xs, x)`
            return args[0] if _changes(args[0], method) else None
        return args[0] if name_of(function)[0] in CHANGES_FIRST else None
    return owner if _changes(owner, method) else None


_NO_CONTAINERS = (ModuleType, type)


def _changes(owner: Any, method: str) -> bool:
    if isinstance(owner, np.ndarray):
        return method in CHANGES_ITSELF["arrays"]
    return isinstance(owner, list | dict | set | deque | bytearray) and method in CHANGES_ITSELF["containers"]


# ---- names --------------------------------------------------------------------------------------


def name_of(function: Any) -> tuple[str, bool]:
    """`module.Class.method` as in the table of known calls, and whether it is the user's own code."""
    if isinstance(function, MethodType):
        return name_of(function.__func__)
    if isinstance(function, FunctionType):
        module = str(function.__globals__.get("__name__", ""))
        return _named(module, function.__qualname__), function.__code__.co_filename == "<string>"
    if isinstance(function, type):
        return _named(function.__module__, function.__qualname__), _is_of_user(function.__module__)
    owner = getattr(function, "__self__", None)
    method = getattr(function, "__name__", "")
    if isinstance(function, BuiltinFunctionType) and (owner is None or isinstance(owner, ModuleType)):
        module = function.__module__ or getattr(owner, "__name__", "") or ""
        return _named(module, function.__qualname__), False
    objclass = getattr(function, "__objclass__", None)
    if objclass is None and isinstance(function, BuiltinFunctionType):
        mro = (owner if isinstance(owner, type) else type(owner)).__mro__
        objclass = next((cls for cls in mro if method in cls.__dict__), mro[0])
    if isinstance(objclass, type):
        return _named(objclass.__module__, f"{objclass.__qualname__}.{method}"), False
    module = getattr(function, "__module__", None) or type(function).__module__
    if isinstance(getattr(function, "__qualname__", None), str):  # ufuncs and functions of NumPy, caches, dispatchers
        return _named(module, function.__qualname__), _is_of_user(module)
    if isinstance(function, np.ufunc):
        return _named("numpy", function.__name__), False
    return _named(type(function).__module__, f"{type(function).__qualname__}.__call__"), _is_of_user(
        type(function).__module__
    )


@lru_cache(maxsize=1024)
def _named(module: str, qualname: str) -> str:
    root = module.split(".")[0].lstrip("_") if module != "__main__" else module
    return f"{_ACCELERATORS.get(root, root)}.{qualname}"


def _is_of_user(module: str) -> bool:
    """Return whether what a module defines is converted: it is none of the standard library, of installed packages, or
    ours.
    """
    found = sys.modules.get(module)
    if found is None or module == "builtins":
        return False
    file = getattr(found, "__file__", None)
    return module == "__main__" or (file is not None and is_user_file(file))


def _is_held_elsewhere(args: tuple[Any, ...]) -> bool:
    """Return whether a name holds the iterator: what was made for the call alone (`next(iter(xs))`) can be used up."""
    # Held by the arguments of `call`, of the operator that called it, and while it is counted.
    return bool(args) and sys.getrefcount(args[0]) > _HELD_BY_CALL


_HELD_BY_CALL = 2


def _is_silent(function: Any, method: str) -> bool:
    """Return whether a call of a logger is below its level, and does nothing."""
    owner = getattr(function, "__self__", None)
    logger = owner if isinstance(owner, logging.Logger | logging.LoggerAdapter) else logging.root
    level = getattr(logging, method.upper(), None)
    return isinstance(level, int) and not logger.isEnabledFor(level)
