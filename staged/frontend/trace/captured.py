"""Arrays of Python that a function closes over: what the user calls them, and what they are views of."""

from __future__ import annotations

import gc
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from staged.frontend.trace.locals import Locals

_DEPTH = 3
"""The most steps of a path: `config.layers[0].table` has three."""
_MOST_PARTS = 3000
"""The most attributes, items and elements that are searched: about a millisecond, which a name is worth."""


def name_of_captured(array: object) -> str:
    """The user's name for an array from outside: `table`, `config_table`, `layers_0_weight`; "" without one.

    A part of an array with a name is `table_part`.
    """
    name = _find(lambda value: value is array)[0]
    owner = getattr(array, "base", None)
    if not name and type(owner) is np.ndarray:
        name = _find(lambda value: value is owner or (type(value) is np.ndarray and value.base is owner))[0]
        name = f"{name}_part" if name else ""
    return name


def whole_behind(array: Any) -> Any:
    """The array in C order of which `array` shows all elements in another order, where the user's code has a name for
    it; else None.
    """
    if type(array) is not np.ndarray or array.base is None or array.flags.c_contiguous:
        return None
    return _find(lambda value: type(value) is np.ndarray and whole_view(array, value) is not None)[1]


def _find(matches: Callable[[object], bool]) -> tuple[str, Any]:
    """The name and the object that the running code can see and that matches; ("", None) without one.

    It is looked for from the innermost function outwards: among local names, then those of closures and globals that
    the code mentions, then among attributes, items and elements of what these stand for.
    """
    frame: FrameType | None = sys._getframe(2)
    left = _MOST_PARTS
    while frame is not None and left > 0:
        if not str(frame.f_globals.get("__name__", "")).startswith("staged."):
            level = [([] if name == "self" else [name], value) for name, value in dict(_visible(frame)).items()]
            for depth in range(_DEPTH + 1):
                for path, value in level:
                    if matches(value) and path:
                        return "_".join(path), value
                if depth == _DEPTH:
                    break
                below = ((path, key, part) for path, value in level for key, part in parts(value))
                level = [([*path, str(key)], part) for path, key, part in itertools.islice(below, max(left, 0))]
                left -= len(level)
        frame = frame.f_back
    return "", None


def _visible(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The names of the user's that a frame's code can read, with their values."""
    local = frame.f_locals
    for value in local.values():
        if isinstance(value, Locals):
            yield from value.__dict__.items()
    for name in frame.f_code.co_freevars:
        if name in local and not isinstance(local[name], Locals):
            yield name, local[name]
    for name in mentioned(frame.f_code):
        if name in frame.f_globals:
            yield name, frame.f_globals[name]


def mentioned(code: CodeType) -> Iterator[str]:
    """The global names and attributes in a code object and the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from mentioned(constant)


def parts(value: object) -> Iterable[tuple[object, Any]]:
    """The attributes, items or elements of an object, by name, key or position."""
    # A subclass may do anything in methods of its own: only what Python stores is looked at.
    if isinstance(value, dict):
        return dict.items(value)
    if isinstance(value, list):
        return enumerate(list.__iter__(value))
    if isinstance(value, tuple):
        return enumerate(tuple.__iter__(value))
    if isinstance(value, type | ModuleType) or str(type(value).__module__).split(".")[0] in (
        "staged",
        "numpy",
        "builtins",
    ):
        return ()
    try:
        held = object.__getattribute__(value, "__dict__")
    except Exception:  # a property of that name, which may raise anything: such an object names nothing
        return ()
    return held.items() if isinstance(held, dict) else ()


def whole_view(array: Any, owner: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(shape, axes) where `array` shows the memory of `owner` as `owner.reshape(shape).transpose(axes)`; else None."""
    if owner is array or owner.dtype != array.dtype or owner.size != array.size or not owner.size:
        return None
    if not owner.flags.c_contiguous or owner.ctypes.data != array.ctypes.data:
        return None
    order = sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], -array.shape[axis]))
    spread = array.transpose(order)
    return (spread.shape, tuple(order.index(axis) for axis in range(array.ndim))) if spread.flags.c_contiguous else None


def own_arrays(hidden: Sequence[Any]) -> list[Any]:
    """For each array that a traced function reads, the array itself if only the trace refers to it; else None.

    So it is for an array that the function made itself: nothing can change it, and it may become a constant of the
    program.
    """
    gc.collect()
    known, holders = _with_owners(hidden)
    # Besides the holders that are counted, `known` and the count itself hold an array.
    others = {key: sys.getrefcount(known[key]) - 2 > holders[key] for key in known}
    return [array if _is_own(array, others) else None for array in hidden]


def _with_owners(hidden: Sequence[Any]) -> tuple[dict[int, Any], Counter[int]]:
    """The arrays and those that they are views of, and how often `hidden` and these views hold each, by identity."""
    known = {id(array): array for array in hidden}
    holders = Counter(map(id, hidden))
    for array in list(known.values()):
        while type(array) is np.ndarray and type(array.base) is np.ndarray:
            array = array.base
            holders[id(array)] += 1
            if id(array) in known:
                break
            known[id(array)] = array
    return known, holders


def _is_own(array: Any, others: dict[int, bool]) -> bool:
    while type(array) is np.ndarray and not others[id(array)]:
        if array.base is None:
            return True
        array = array.base
    return False
