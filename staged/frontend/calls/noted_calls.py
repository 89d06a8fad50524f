"""The reads of an unconverted call: everything reachable from its arguments, or a reason to trace each time."""

from __future__ import annotations

import functools
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from staged.call.guards.check import lookup
from staged.call.guards.held_by import PLAIN
from staged.frontend.calls.foreign import is_pure, known, name_of
from staged.frontend.calls.known_calls import HARMLESS
from staged.frontend.trace.context import TraceContext
from staged.ops.array import Array

_KEEPS = type(functools.lru_cache(len))
_OF_CLASSES = frozenset((isinstance, issubclass, callable, type))
_SHALLOW = frozenset((*_OF_CLASSES, id, super, getattr, hasattr, setattr, delattr))
"""Functions that look at the classes of their arguments, or at attributes that are noted one by one."""

OUTSIDE = tuple(
    (
        "os. pathlib.Path. pathlib.PosixPath. pathlib.WindowsPath. genericpath. linecache. inspect.stack "
        "inspect.currentframe "
        "inspect.getframeinfo contextvars. weakref. threading. platform. locale. time. datetime.datetime.now sys. gc. "
        "numpy.load numpy.fromfile numpy.genfromtxt numpy.memmap numpy.geterr numpy.get_printoptions json.load "
        "pickle.load "
        "scipy.io. zoneinfo. safetensors. builtins.open builtins.globals builtins.vars builtins.dir builtins.locals "
        "builtins.next builtins.input builtins.__import__ posixpath.exists posixpath.abspath posixpath.realpath "
        "posixpath.expanduser "
        "posixpath.expandvars ntpath. copyreg. random. secrets. uuid. staged.data. staged.load"
    ).split()
)
"""Harmless calls that depend on more than their arguments: files, the environment, frames."""

WALKERS = frozenset(
    "parameters named_parameters buffers named_buffers modules named_modules children named_children state_dict".split()
)
"""Methods of modules that look at Variables and modules alone."""


def note_call(trace: TraceContext, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note what a call may read that runs while staging, in code that is not converted."""
    reads = trace.reads
    if _is_shallow(trace, function, args):
        return
    if function is next and args and (id(args[0]) in reads.new or trace.is_made(args[0])):
        return
    name, belongs_to_user = name_of(function)
    is_outside = _is_outside(name)
    if is_ours(name) and not is_outside:
        _note_ours(trace, function, args, kwargs)
        return
    if is_outside:
        reads.reason(
            f"`{name.removeprefix('builtins.')}` depends on more than its arguments, and is called while staging"
        )
        return
    if known(name) is not HARMLESS and not belongs_to_user and not is_pure(function):
        reads.reason(f"`{name}` is not converted, and nothing is known of what it reads")
        return
    if isinstance(function, _KEEPS):
        reads.reason(f"`{function.__name__}` gives what it has kept from earlier calls")
        return
    owner = getattr(function, "__self__", None)
    for value in (owner, *args, *kwargs.values()):
        reads.consumed(value, name)
    if isinstance(function, type):
        reads.methods(function)
    elif isinstance(function, FunctionType) and not is_pure(function):
        reads.consumed(function, name)


def note_handled(trace: TraceContext, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note what a builtin reads that is an operation of the program where its arguments are staged."""
    if function in (len, np.asarray) and args and isinstance(args[0], np.ndarray):
        trace.reads.array_fact(args[0], "shape", args[0].shape)
    elif not _is_shallow(trace, function, args):
        for value in (*args, *kwargs.values()):
            trace.reads.consumed(value, getattr(function, "__name__", ""))


def _is_shallow(trace: TraceContext, function: Any, args: tuple[Any, ...]) -> bool:
    try:
        if function not in _SHALLOW:
            return False
    except TypeError:  # of a class whose objects have no hash
        return False
    if function in _OF_CLASSES and args and not trace.is_made(args[0]) and not _is_value(args[0]):
        trace.reads.type_of(args[0])
    if function in (isinstance, issubclass) and len(args) > 1:
        cls = args[0] if function is issubclass else type(args[0])
        if isinstance(cls, type):
            trace.reads.is_instance(cls, args[1])
    return True


@functools.lru_cache(maxsize=1024)
def _is_outside(name: str) -> bool:
    return name.startswith(OUTSIDE)


def is_ours(name: str) -> bool:
    """Return whether a function is one of this package."""
    return name.startswith("staged.")


def _note_ours(trace: TraceContext, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A function of ours calls functions of the user's by `call`;
    what it reads itself is its arguments and its object."""
    reads = trace.reads
    if isinstance(function, MethodType):
        owner = function.__self__
        if not isinstance(owner, type | Array):
            reads.of_class(type(owner), function.__name__, lookup(type(owner), function.__name__))
            if hasattr(type(owner), "named_parameters") and function.__name__ in WALKERS:
                reads.modules(owner)
            else:
                reads.all_of(owner, function.__name__, functions=False)
    for value in (*args, *kwargs.values()):
        if isinstance(value, _NOTED_ELSEWHERE) or type(value) in PLAIN:
            continue  # called by `call`, or lifted, or looked at afterwards
        if hasattr(type(value), "named_parameters"):
            reads.modules(value)
        elif not hasattr(type(value), "__staged_inline__"):
            reads.all_of(value, getattr(function, "__name__", ""), arrays=False, functions=False)


def note_unlifted(trace: TraceContext, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """After the call of a function of ours: an array that is no input of the program was read, such as a shape in an
    array.
    """
    given = (*args, *kwargs.values())
    if _MAY_HOLD.isdisjoint(map(type, given)) or not is_ours(name_of(function)[0]):
        return
    for value in given:
        for part in value if isinstance(value, _SEQUENCES) else (value,):
            if isinstance(part, np.ndarray) and _may_be_numbers(part):
                if id(part) not in trace.hidden or part.size <= _SMALL:
                    trace.reads.contents(part)


def _may_be_numbers(array: Any) -> bool:
    return not array.ndim or (array.dtype.kind in "iub" and array.size <= _MOST_NUMBERS)


_SEQUENCES = (list, tuple)
_MAY_HOLD = frozenset((np.ndarray, list, tuple))
_NOTED_ELSEWHERE = (FunctionType, MethodType, Array, np.ndarray, type)
_MOST_NUMBERS = 64
"""Elements of an array that may be a shape, or a list of axes or places."""
_SMALL = 8
"""Elements of such an array that may be that here, and an input of the program elsewhere."""


def _is_value(value: Any) -> bool:
    return value is None or isinstance(
        value, bool | int | float | complex | str | bytes | np.generic | np.ndarray | Array
    )
