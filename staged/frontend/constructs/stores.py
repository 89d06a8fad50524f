"""The operators for converted assignments: changes of names, attributes and elements, of arrays and Python objects."""

from __future__ import annotations

import operator as py
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from staged.call.guards.check import lookup
from staged.call.guards.expected import is_library
from staged.errors import ShapeError, StagedValueError, StagingError, StaticStateError, article
from staged.frontend.calls.call import call
from staged.frontend.constructs.attributes import attribute
from staged.frontend.constructs.pieces import cut
from staged.frontend.syntax.converter import operator
from staged.frontend.trace.context import TraceContext, current_trace, note_made
from staged.frontend.trace.locals import Locals
from staged.frontend.values.mutation import record_attribute, record_contents
from staged.frontend.values.number_tables import element_of
from staged.frontend.values.operands import BINARY, note_operand, note_view
from staged.ops import subscript
from staged.ops.array import Array, StagedArray
from staged.ops.promote import read
from staged.ops.subscript import set_item
from staged.source import here

_HELD_HERE = 2
"""References to a slice that nothing else holds: its name, and while they are counted."""
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": py.iadd,
    "Sub": py.isub,
    "Mult": py.imul,
    "MatMult": py.imatmul,
    "Div": py.itruediv,
    "FloorDiv": py.ifloordiv,
    "Mod": py.imod,
    "Pow": py.ipow,
    "BitAnd": py.iand,
    "BitOr": py.ior,
    "BitXor": py.ixor,
    "LShift": py.ilshift,
    "RShift": py.irshift,
}


@operator
def augmented(value: Any, name: str, other: Any) -> Any:
    """`value op= other`: arrays give a new array, Python containers change in place."""
    if isinstance(value, list | dict | set):
        record_contents(value)
        return _IN_PLACE[name](value, other)
    if not isinstance(value, Array):
        method = getattr(type(value), f"__{_IN_PLACE[name].__name__}__", None)
        if isinstance(method, FunctionType):
            return call(method, value, other)
        if not isinstance(other, Array):
            note_operand(value)
    if not isinstance(value, Array):
        note_operand(other)
    return BINARY[name](value, other)


@operator
def made(value: Any) -> Any:
    """Notes a list, dict or set that converted code makes."""
    note_made(value)
    return value


@operator
def outer_write(name: str, value: Any) -> Any:
    """A write to a `global` or to a `nonlocal` of plain Python: state of Python, so not under staged control flow."""
    trace = current_trace()
    if trace is not None and trace.is_staged_control:
        raise StaticStateError(
            f"the outer name `{name}` changes inside {trace.conditional[-1].what}, but it is Python state",
            where=here(),
            hint="return the value, or use an `st.Variable`",
        )
    if trace is not None:
        trace.reads.reason(f"the outer name `{name}` is set while staging")
    return value


@operator
def set_attribute(owner: Any, name: str, value: Any) -> None:
    """`owner.name = value`."""
    described = getattr(type(owner), name, None)
    trace = current_trace()
    if trace is not None and isinstance(described, property) and described.fset is not None:
        trace.reads.of_class(type(owner), name, described)
        call(described.fset, owner, value)
        return
    record_attribute(owner, name)
    if trace is not None and not is_library(type(owner).__module__):
        _note_hooks(trace, owner, name)
    if trace is not None and isinstance(owner, type | ModuleType):
        trace.reads.reason(f"the attribute `{name}` of `{owner.__name__}` is set while staging")
    setattr(owner, name, value)


def _note_hooks(trace: TraceContext, owner: Any, name: str) -> None:
    """Note `__setattr__` or a descriptor that an assignment calls, and which the replay of a call would skip."""
    cls = type(owner)
    hook, described = lookup(cls, "__setattr__"), lookup(cls, name)
    trace.reads.of_class(cls, "__setattr__", hook)
    trace.reads.of_class(cls, name, described)
    for function in (hook, lookup(type(described), "__set__")):
        if not isinstance(function, FunctionType) or is_library(function.__module__):
            continue
        if trace.is_made(owner):
            trace.reads.consumed(function)
        else:
            trace.reads.reason(
                f"the attribute `{name}` of {article(cls.__name__)} is set by `{function.__qualname__}` while staging"
            )


@operator
def get_item(owner: Any, key: Any) -> Any:
    """`owner[key]`; a NumPy array indexed by something staged becomes an array of the program."""
    if isinstance(owner, np.ndarray) and current_trace() is not None and _has_staged(key):
        return subscript.get_item(owner, key)
    _check_key(owner, key)
    if isinstance(owner, Array):
        note_bounds(key)
        key = cut(owner, key) if type(owner) is StagedArray else key
    else:
        note_item(owner, key)
    if isinstance(owner, list | tuple) and isinstance(key, StagedArray):
        element = element_of(owner, key)
        if element is not None:
            return element
    found = owner[key]
    if isinstance(key, slice) and sys.getrefcount(found) <= _HELD_HERE and _is_object(owner, found):
        note_made(found)
    return found


def _is_object(owner: Any, found: Any) -> bool:
    """Return whether a slice of a list or of a user's class is a new object, and not a view of an array."""
    makes = isinstance(owner, list) or isinstance(lookup(type(owner), "__getitem__"), FunctionType)
    return makes and not isinstance(found, Array | np.ndarray | tuple)


def note_item(owner: Any, key: Any) -> None:
    """Plain Python looks up an item: the elements of an array are read unless a view is taken, which sees what they
    will be.
    """
    is_view = isinstance(owner, np.ndarray) and not isinstance(key, list | np.ndarray)
    if not is_view or not isinstance(owner[key], np.ndarray):
        note_operand(owner)
    else:
        note_view(owner)
    note_operand(key)


def note_bounds(key: Any) -> None:
    """The bounds of slices are numbers that Python reads; an index is one of the program, or noted where it is not."""
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, slice):
            note_operand(part)


def _check_key(owner: Any, key: Any) -> None:
    """Raise where a dict of Python's is asked for a key that only the program knows."""
    if isinstance(owner, dict) and isinstance(key, StagedArray):
        name = f"`{key.value.hint}`" if key.value.hint else "a value"
        raise StagedValueError(
            f"a key of a dict must be known while staging, {name} is staged ({key.type})",
            where=here(),
            hint="use an array, with integers as indices: `table[i]`; or choose by `if` and `elif`",
        )


def _has_staged(key: Any) -> bool:
    if isinstance(key, tuple):
        return any(_has_staged(part) for part in key)
    if isinstance(key, slice):
        return any(_has_staged(part) for part in (key.start, key.stop, key.step))
    return isinstance(key, Array)


@operator
def slice_(lower: Any, upper: Any, step: Any) -> slice:
    """`lower:upper:step`."""
    return slice(lower, upper, step)


@operator
def store(root: Any, name: str, keys: tuple[Any, ...], value: Any) -> Any:
    """`root[k1][k2] = value`; gives the root to assign back (a new array, or the same container)."""
    key, *rest = keys
    _check_key(root, key)
    if rest:
        inner = get_item(root, key)
        new = store(inner, name, tuple(rest), value)
        return root if new is inner else store(root, name, (key,), new)
    if isinstance(root, Array):
        note_bounds(key)
    if isinstance(root, Array) and not hasattr(root, "__staged_read__"):
        return set_item(root, cut(root, key) if type(root) is StagedArray else key, value)
    if isinstance(root, np.ndarray):
        if isinstance(value, Array) or _has_staged(key):
            return set_item(root, key, value)
        note_operand(root)
        note_operand(value)
        copied = root.copy()  # a value too, as long as it is known while staging
        copied[key] = value
        return copied
    if hasattr(type(root), "__staged_read__"):
        root.value = set_item(root.value, key, value)
        return root
    record_contents(root)
    method = getattr(type(root), "__setitem__", None)
    if isinstance(method, FunctionType):
        call(method, root, key, value)
        return root
    root[key] = value
    return root


@operator
def store_attribute(owner: Any, name: str, keys: tuple[Any, ...], value: Any) -> None:
    """`owner.name[k] = value`."""
    before = attribute(owner, name)
    after = store(before, name, keys, value)
    if after is not before:
        set_attribute(owner, name, after)


@operator
def store_nowhere(root: Any, keys: tuple[Any, ...], value: Any) -> None:
    """`f()[k] = value`, or an element of a global."""
    if store(root, "", keys, value) is not root:
        raise StagingError(
            "an element is assigned to an array that has no local name; arrays are values, so the change would be lost",
            where=here(),
            hint="give the array a local name first: `x = ...; x[i] = v`",
        )


@operator
def augment(root: Any, name: str, keys: tuple[Any, ...], op: str, other: Callable[[], Any]) -> Any:
    """`root[k] op= other()`."""
    *path, key = keys
    owner = root
    for step in path:
        owner = get_item(owner, step)
    return store(root, name, keys, augmented(get_item(owner, key), op, other()))


@operator
def augment_attribute(owner: Any, name: str, *rest: Any) -> None:
    """`owner.name op= other()`, or `owner.name[k] op= other()`."""
    if len(rest) == 2:
        op, other = rest
        set_attribute(owner, name, augmented(attribute(owner, name), op, other()))
        return
    keys, op, other = rest
    before = attribute(owner, name)
    after = augment(before, name, keys, op, other)
    if after is not before:
        set_attribute(owner, name, after)


@operator
def augment_nowhere(root: Any, keys: tuple[Any, ...], op: str, other: Callable[[], Any]) -> None:
    """`f()[k] op= other()`."""
    if augment(root, "", keys, op, other) is not root:
        raise StagingError(
            "an element is assigned to an array that has no local name; arrays are values, so the change would be lost",
            where=here(),
            hint="give the array a local name first: `x = ...; x[i] += v`",
        )


@operator
def delete_item(owner: Any, key: Any) -> None:
    """`del owner[key]`."""
    record_contents(owner)
    del owner[key]


@operator
def delete_attribute(owner: Any, name: str) -> None:
    """`del owner.name`."""
    set_attribute(owner, name, getattr(owner, name))  # logged as a change
    delattr(owner, name)


@operator
def walrus(scope: Locals, name: str, value: Any) -> Any:
    """`(name := value)`."""
    setattr(scope, name, value)
    return value


@operator
def unpack(value: Any, count: int) -> Any:
    """The parts of `value` for `a, b = value`."""
    if current_trace() is not None:
        value = read(value)
    if not isinstance(value, Array):
        note_operand(value)
    if isinstance(value, Array) and count >= 0:
        if not value.shape or value.shape[0] != count:
            raise ShapeError(
                f"cannot unpack an array of shape {value.shape} into {count} names",
                where=here(),
                hint=f"the first dimension must be {count}",
            )
    return value
