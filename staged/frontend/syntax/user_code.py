"""The user's code: functions that are converted, unlike those of Python, of installed packages and of this one."""

from __future__ import annotations

import os
from types import FunctionType

from staged.source import PACKAGE, is_installed

_LAYERS = os.path.join(PACKAGE, "nn") + os.sep
_LAYER_METHODS = frozenset({"forward", "__call__"})
"""The methods of our own layers that are converted: a layer of the user's may be below them."""
_is_user_file: dict[str, bool] = {}


def is_user_code(function: FunctionType) -> bool:
    """Return whether a function is to be converted: not of the standard library, installed packages, or this package's
    core.
    """
    if getattr(function, "__staged_converted__", False) or getattr(function, "__staged_plain__", False):
        return False
    file = function.__code__.co_filename
    if file == "<string>" and function.__name__.startswith("__"):
        return False  # methods that dataclasses and named tuples generate
    return is_user_file(file) and (not file.startswith(_LAYERS) or function.__name__ in _LAYER_METHODS)


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
    real = os.path.realpath(file)
    if real.startswith(PACKAGE):
        return real.startswith(_LAYERS)
    return not is_installed(real)
