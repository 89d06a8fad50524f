"""The user's code: functions that are converted, unlike those of Python, of installed packages and of this one."""

from __future__ import annotations

import os
from inspect import CO_GENERATOR
from types import FunctionType

from staged.source import PACKAGE, is_installed, real_path

_CONVERTED = {
    os.path.join(PACKAGE, "nn") + os.sep: frozenset({"forward", "__call__"}),
    os.path.join(PACKAGE, "optim") + os.sep: frozenset({"forward", "step_where", "stop_after", "_step"}),
}
"""The functions of our own that are converted, by folder: a layer of the user's may be below them, or their conditions
are the program's.
"""
_WRITTEN_AS_USERS_DO = tuple(os.path.join(PACKAGE, folder) + os.sep for folder in ("integrate", "optimize"))
"""Folders of our own that are converted whole: staged code on public names."""
_is_user_file: dict[str, bool] = {}
_names_in: dict[str, frozenset[str]] = {}
"""By file of our own: the functions in it that are converted."""


def is_user_code(function: FunctionType) -> bool:
    """Return whether a function is to be converted: not of the standard library, installed packages, or this package's
    core.
    """
    if getattr(function, "__staged_converted__", False) or getattr(function, "__staged_plain__", False):
        return False
    file = function.__code__.co_filename
    if file == "<string>" and function.__name__.startswith("__"):
        return False  # methods that dataclasses and named tuples generate
    if not is_user_file(file):
        return False
    names = _names_in.get(file)
    return names is None or function.__name__ in names


def is_generator(function: FunctionType) -> bool:
    """Return whether a function of the user has a `yield`. The result of `@contextmanager` does not."""
    return bool(function.__code__.co_flags & CO_GENERATOR) and is_user_code(function)


def is_user_file(file: str) -> bool:
    """Return whether functions of this file may be converted: it is not of the standard library, an installed package,
    or our core.
    """
    known = _is_user_file.get(file)
    if known is None:
        known = _is_user_file[file] = _decide(file)
    return known


def _decide(file: str) -> bool:
    if file.startswith("<frozen"):
        return False
    if file.startswith("<"):
        return True  # a console or notebook cell keeps its source in linecache; other code is refused
    real = real_path(file)
    if real.startswith(_WRITTEN_AS_USERS_DO):
        return True
    if real.startswith(PACKAGE):
        for folder, names in _CONVERTED.items():
            if real.startswith(folder):
                _names_in[file] = names
        return file in _names_in
    return not is_installed(real)
