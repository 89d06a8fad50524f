"""Descriptions of values that a trace has read, to compare with later: same object, equal number, or equal container.

Containers are compared with their contents at the time of the read, since the trace may have changed them later.
Objects are held weakly where Python allows it: a guard keeps no model alive.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, ModuleType
from typing import Any

import numpy as np

from staged.ir.types import DType
from staged.source import is_installed

LARGEST = 4096
"""Elements, those of containers in it too, up to which the contents of a container are guarded."""
_DEEPEST = 40

_EQUAL = frozenset((
    bool, int, float, str, bytes, complex, range, np.dtype, DType, slice,
    type(None), type(Ellipsis), type(NotImplemented),
))  # fmt: skip
_STRONG = frozenset((BuiltinFunctionType, CodeType, GetSetDescriptorType, np.ufunc, enum.Enum))
_NO_OBJECTS = frozenset((enum.Enum, np.generic, tuple, list, deque, dict, set, frozenset))
"""Classes with a description of their own; all others are objects. `__mro__` is tested:
`isinstance` of Enum is slow."""
_SEQUENCES = frozenset((list, tuple, deque))
_MAPPINGS = frozenset((dict, OrderedDict, defaultdict))
_SETS = frozenset((set, frozenset))


# `Same`, `Object` and `Items` are not frozen: a trace makes hundreds, and a frozen one costs twice as much to make.
@dataclass(slots=True)
class Same:
    """A number, string or other immutable value: of the same type and equal, floats by their bits."""

    value: Any


@dataclass(slots=True)
class Object:
    """The same object. `reference` is weak, or a function that returns an object which may be kept alive."""

    reference: Callable[[], Any]
    identity: int


@dataclass(slots=True)
class Items:
    """A list, tuple or deque of this type with these elements."""

    type: type
    items: tuple[Expected, ...]
    identity: int | None
    """None for a tuple, which is its elements."""


@dataclass(frozen=True, slots=True)
class Entries:
    """A dict of this type with these keys, in this order, and values."""

    type: type
    keys: tuple[Any, ...]
    values: tuple[Expected, ...]
    identity: int


@dataclass(frozen=True, slots=True)
class Members:
    """A set of this type with these members, in the order in which it gives them."""

    type: type
    members: tuple[Any, ...]
    identity: int | None


@dataclass(frozen=True, slots=True)
class Fields:
    """A frozen dataclass of this type with these fields: any one that is equal will do."""

    type: type
    fields: tuple[tuple[str, Expected], ...]


Expected = Fields | Same | Object | Items | Entries | Members


class TooLargeError(Exception):
    """A container has more elements than a call should compare."""


def expected(value: Any, found: Callable[[Any], None] = lambda _: None) -> Expected:
    """Describe the value that the next call must find. `found` is called with each object that is not a container.

    Raises: TooLargeError for containers with more than `LARGEST` elements.
    """
    return _visit(value, found, [LARGEST], 0)


def _visit(value: Any, found: Callable[[Any], None], left: list[int], depth: int) -> Expected:
    """`expected` of a part; `left` holds the number of elements that may still be visited."""
    cls = type(value)
    if cls in _EQUAL:
        return Same(value)
    if _NO_OBJECTS.isdisjoint(cls.__mro__):
        found(value)
        return held(value)
    if isinstance(value, enum.Enum):
        return held(value)
    if isinstance(value, np.generic):
        return Same(value)
    is_container = cls in _SEQUENCES or cls in _MAPPINGS or cls in _SETS or isinstance(value, tuple)
    if not is_container:
        found(value)
        return held(value)
    left[0] -= len(value)
    if left[0] < 0 or depth > _DEEPEST:
        raise TooLargeError
    identity = None if isinstance(value, tuple | frozenset) else id(value)
    if cls in _MAPPINGS:
        values = tuple([_visit(item, found, left, depth + 1) for item in value.values()])
        return Entries(cls, tuple(value), values, id(value))
    if cls not in _SETS:
        return Items(cls, tuple([_visit(item, found, left, depth + 1) for item in value]), identity)
    if _EQUAL.issuperset(map(type, value)):
        return Members(cls, tuple(value), identity)
    raise TooLargeError


def is_known(container: Any) -> bool:
    """Return whether `expected` compares the contents of containers of this class,
    which are then guarded everywhere."""
    cls = type(container)
    return cls in _SEQUENCES or cls in _MAPPINGS or cls in _SETS


def is_value(value: Any) -> bool:
    """Return whether an object is all in its fields, which do not change: a frozen dataclass of immutable values."""
    cls = type(value)
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return False
    names = {field.name for field in dataclasses.fields(cls)}
    kept = getattr(value, "__dict__", None)
    if kept is None or kept.keys() != names:
        return False
    return all(map(_is_immutable, kept.values()))


def _is_immutable(part: Any) -> bool:
    if isinstance(part, tuple):
        return all(map(_is_immutable, part))
    return type(part) in _EQUAL or isinstance(part, enum.Enum | type) or is_value(part)


def expected_argument(value: Any) -> Expected:
    """`expected` of a static argument: settings that are created anew for each call need only be equal."""
    if is_value(value):
        return Fields(type(value), tuple((name, expected_argument(part)) for name, part in vars(value).items()))
    return expected(value)


def held(value: Any) -> Object:
    """The object itself: weakly, unless it cannot be, or holds nothing that is worth the memory."""
    if not _STRONG.isdisjoint(type(value).__mro__) or _stays(value):
        return Object(lambda: value, id(value))
    try:
        return Object(weakref.ref(value), id(value))
    except TypeError:
        return Object(lambda: value, id(value))


def _stays(value: Any) -> bool:
    """Return whether an object stays as long as the process: a class, function or module of a library."""
    if isinstance(value, FunctionType):
        return value.__closure__ is None and is_library(str(value.__globals__.get("__name__", "")))
    if isinstance(value, type):
        return is_library(value.__module__)
    return isinstance(value, ModuleType) and is_library(value.__name__)


def is_library(module: str) -> bool:
    """Return whether a module is of the standard library, of an installed package, or ours."""
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    return found is not None and module != "__main__" and (file is None or is_installed(file))


def same(found: Any, value: Any) -> bool:
    """Return whether two immutable values are the same to a program: type and value, floats by their bits."""
    if found is value:
        return True
    if type(found) is not type(value):
        return False
    if isinstance(value, float):
        return struct.pack("<d", found) == struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", found.real, found.imag) == struct.pack("<dd", value.real, value.imag)
    if isinstance(value, np.generic):
        return bool(found.dtype == value.dtype and found.tobytes() == value.tobytes())
    if isinstance(value, range):  # equal ones may have different bounds: range(0, 3, 2) == range(0, 4, 2)
        return (found.start, found.stop, found.step) == (value.start, value.stop, value.step)
    if isinstance(value, slice):
        pairs = ((found.start, value.start), (found.stop, value.stop), (found.step, value.step))
        return all(same(a, b) for a, b in pairs)
    return bool(found == value)
