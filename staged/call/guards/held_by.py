"""The objects that Python's own objects refer to, and the names that code mentions; and the kinds that hold nothing."""

from __future__ import annotations

import datetime
import dis
import enum
import functools
import logging
import operator
import pathlib
import re
import types
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from threading import local
from typing import Any

import numpy as np
import optree

from staged.call.guards.expected import is_library
from staged.ir.types import DType
from staged.ops.array import Array

_WITHOUT_REFERENCES = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    re.Pattern,
    pathlib.PurePath,
    logging.Logger,
    optree.PyTreeSpec,
    type(namedtuple("_", "field").field),  # type: ignore[attr-defined]
    np.ufunc,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ModuleType,
)
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
"""Classes of callables that state as text which attributes they read."""
_REFERENCES: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
    (slice, operator.attrgetter("start", "stop", "step")),
    (_WITHOUT_REFERENCES, lambda _: ()),
    (functools.partial, operator.attrgetter("func", "args", "keywords")),
    (types.MethodType, operator.attrgetter("__func__", "__self__")),
    (types.BuiltinFunctionType, lambda each: (each.__self__,)),
    (_GETTERS, lambda each: each.__reduce__()[1:]),
)
"""Classes of Python's own objects, and the references of their instances."""
OF_PYTHON = frozenset(
    "__module__ __qualname__ __doc__ __dict__ __weakref__ __annotations__ __dataclass_fields__ __dataclass_params__ "
    "__abstractmethods__ _abc_impl __orig_bases__ __parameters__ __type_params__ __firstlineno__ "
    "__static_attributes__".split()
)
"""Class attributes that Python itself sets."""
_VALUES = frozenset((enum.Enum, np.generic, np.dtype, DType, Array))
CONTAINERS = (list, tuple, set, frozenset, deque, dict)
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis)))


def is_plain(value: Any) -> bool:
    """Return whether a value has no parts to visit: numbers, strings, dtypes, arrays, members of a library's enums."""
    if type(value) in PLAIN:
        return True
    if _VALUES.isdisjoint(type(value).__mro__):
        return False
    return not isinstance(value, enum.Enum) or is_library(type(value).__module__)


def references(value: Any) -> Iterable[Any] | None:
    """The objects that one of Python's own objects refers to; None for other classes."""
    return next((refer(value) for classes, refer in _REFERENCES if isinstance(value, classes)), None)


def dict_of(owner: Any) -> dict[str, Any] | None:
    """The attributes that an object keeps itself, past everything that its class has under the name `__dict__`."""
    if isinstance(owner, local):  # its class has no descriptor
        return owner.__dict__
    for cls in type(owner).__mro__:
        found = cls.__dict__.get("__dict__")
        if found is not None and isinstance(found, _DESCRIPTORS):
            kept: dict[str, Any] = found.__get__(owner)
            return kept
    return None


def slots_of(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (
        (slots,) if isinstance(slots, str) else tuple(name for name in slots if name not in ("__dict__", "__weakref__"))
    )


def names_in(code: types.CodeType) -> Iterator[str]:
    """Global names and attributes in a code object and those inside it."""
    yield from code.co_names
    for inner in _codes_in(code):
        yield from names_in(inner)


@functools.lru_cache(maxsize=1024)
def globals_in(code: types.CodeType) -> tuple[str, ...]:
    """Global and builtin names that a code object, or one nested in it, reads."""
    found = {each.argval: None for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for inner in _codes_in(code):
        found.update(dict.fromkeys(globals_in(inner)))
    return tuple(found)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
