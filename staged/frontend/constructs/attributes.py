"""Reads of attributes: noted, so that a later call can tell whether they are what they were;
properties are converted."""

from __future__ import annotations

import ast
import functools
import sys
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from staged.call.guards.check import lookup
from staged.call.guards.expected import is_library
from staged.call.guards.guard import MISSING
from staged.call.guards.held_by import dict_of
from staged.frontend.calls.call import call
from staged.frontend.syntax.converter import Converter, expression, operator, text
from staged.frontend.syntax.sources import is_convertible
from staged.frontend.trace.context import TraceContext, current_trace, note_made
from staged.frontend.values.size_questions import as_numbers
from staged.ir.types import DType
from staged.ops.array import Array, StagedArray
from staged.ops.dimension import is_size

_DIRECT = frozenset((
    StagedArray, bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, range, slice,
    DType, BuiltinFunctionType,
))  # fmt: skip
"""Classes of which no attribute is kept outside of the value itself."""
_HELD_HERE = 2
"""References to what a call has just made: its name, and while they are counted."""
_SIZES = frozenset(("shape", "size", "nbytes"))
_OF_INTEGERS = frozenset(dir(int))
_OF_ARRAYS = frozenset(("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"))


@expression(ast.Attribute)
def convert_attribute(converter: Converter, node: ast.Attribute) -> ast.expr:
    """A read of an attribute."""
    return converter.call("attribute", converter.expr(node.value), text(converter.mangle(node.attr)))


@operator
def attribute(owner: Any, name: str) -> Any:
    """`owner.name`."""
    if type(owner) in _DIRECT:
        if type(owner) is StagedArray and name not in _OF_INTEGERS and not owner.type.shape and is_size(owner):
            return getattr(0, name)  # raises an AttributeError, as a size in Python does
        value = getattr(owner, name)
        return as_numbers(value) if name in _SIZES and type(owner) is StagedArray else value
    trace = current_trace()
    if trace is None or hasattr(type(owner), "__staged_by_reference__"):
        return getattr(owner, name)
    if isinstance(owner, Array):
        value = getattr(owner, name)
        if type(value) in _DIRECT and not isinstance(value, Array) and not getattr(owner, "is_inner", False):
            trace.reads.attribute(owner, name, value)  # the name of a Variable
        return value
    if type(owner) is np.ndarray:
        value = getattr(owner, name)
        if name == "flags":
            trace.reads.flags(owner)
        elif name == "base":
            trace.reads.base(owner)
        elif name in _OF_ARRAYS:
            trace.reads.array_fact(owner, name, value)
        else:
            trace.reads.array_type(owner)  # a view, or a method
        return value
    if isinstance(owner, ModuleType):
        return _of_module(trace, owner, name)
    if type(owner) is super:
        return _of_super(trace, owner, name)
    if isinstance(owner, type):
        return _of_class(trace, owner, name)
    return _of_object(trace, owner, name)


def _of_module(trace: TraceContext, owner: ModuleType, name: str) -> Any:
    try:
        value = getattr(owner, name)
    except AttributeError:
        for each in (name, "__getattr__"):
            if each not in owner.__dict__:
                trace.reads.no_attribute(owner, each)
        if "__getattr__" in owner.__dict__ and not is_library(owner.__name__):
            trace.reads.reason(f"`{owner.__name__}.{name}` is looked for by its module at every read")
        raise
    if name in owner.__dict__:
        trace.reads.attribute(owner, name, value)
    else:
        trace.reads.reason(f"`{owner.__name__}.{name}` is made by its module at every read")
    return value


def _of_class(trace: TraceContext, owner: type, name: str) -> Any:
    found = lookup(owner, name)
    if isinstance(found, classmethod | staticmethod):
        trace.reads.of_class(owner, name, found)
        return getattr(owner, name)
    getter = lookup(type(found), "__get__")
    if isinstance(getter, FunctionType) and not isinstance(found, FunctionType):
        trace.reads.of_class(owner, name, found)
        trace.reads.consumed(found)
        return getattr(owner, name)
    try:
        value = getattr(owner, name)
    except AttributeError:
        for cls, each in ((owner, name), (type(owner), name), (type(owner), "__getattr__")):
            trace.reads.of_class(cls, each, lookup(cls, each))
        raise
    trace.reads.attribute(owner, name, value)
    return value


def _of_super(trace: TraceContext, owner: Any, name: str) -> Any:
    """The attribute from the classes after `__thisclass__`."""
    trace.reads.bases(owner.__self_class__)
    classes = owner.__self_class__.__mro__
    for cls in classes[classes.index(owner.__thisclass__) + 1 :]:
        trace.reads.own(cls, name)
        if name in cls.__dict__:
            break
    return getattr(owner, name)


def _of_object(trace: TraceContext, owner: Any, name: str) -> Any:
    reads, cls = trace.reads, type(owner)
    is_made = trace.is_made(owner)
    if not is_library(cls.__module__):
        reads.attribute(cls, "__getattribute__", cls.__getattribute__)
    if isinstance(cls.__getattribute__, FunctionType):
        reads.reason(f"`{cls.__name__}` has a `__getattribute__` of its own")
        return getattr(owner, name)
    found = lookup(cls, name)
    if not is_made and not isinstance(found, FunctionType):
        reads.type_of(owner)
    if isinstance(found, property):
        reads.of_class(cls, name, found)
        if isinstance(found.fget, FunctionType) and is_convertible(found.fget):
            return call(found.fget, owner)
        if not is_made:
            reads.all_of(owner)
        return getattr(owner, name)
    own = dict_of(owner)
    describes = type(found) if found is not MISSING else None
    is_data = describes is not None and (hasattr(describes, "__set__") or hasattr(describes, "__delete__"))
    if own is not None and name in own and not is_data:
        if not is_made:
            reads.attribute(owner, name, own[name])
        return own[name]
    if found is MISSING:
        return _missing(trace, owner, name, is_made)
    if isinstance(found, FunctionType):
        if is_made:
            reads.of_class(cls, name, found)
        else:
            reads.method(owner, name, found)
        return getattr(owner, name)
    if isinstance(found, classmethod | staticmethod):
        reads.of_class(cls, name, found)
        if not is_made:
            reads.no_attribute(owner, name)
        return getattr(owner, name)
    if hasattr(type(found), "__staged_inline__"):
        reads.of_class(cls, name, found)
        if not is_made:
            reads.no_attribute(owner, name)
        return getattr(owner, name)
    if isinstance(found, functools.cached_property):
        if not is_made:
            reads.reason(f"`{cls.__name__}.{name}` is computed and kept while staging")
        return getattr(owner, name)
    if name == "__dict__":
        if not is_made:
            reads.all_of(owner)
        return getattr(owner, name)
    if name == "__class__":
        reads.type_of(owner)
        return getattr(owner, name)
    getter = lookup(type(found), "__get__")
    if isinstance(getter, FunctionType):
        reads.of_class(cls, name, found)
        _note_descriptor(trace, found, getter)
        if not is_data and not is_made:
            reads.no_attribute(owner, name)
        made = call(getter, found, owner, cls)
        if sys.getrefcount(made) <= _HELD_HERE:
            note_made(made)  # a partial of a method
        return made
    try:
        value = getattr(owner, name)
    except AttributeError:
        if not is_made:
            reads.no_slot(owner, name)
        raise
    if isinstance(value, BuiltinFunctionType | MethodWrapperType) and getter is not MISSING:
        reads.of_class(cls, name, found)  # a method in C, made anew at every read
    elif not is_made:
        reads.attribute(owner, name, value)
    elif getter is MISSING:
        reads.attribute(cls, name, value)
    elif not isinstance(found, MemberDescriptorType):
        reads.of_class(cls, name, found)
    return value


def _note_descriptor(trace: TraceContext, descriptor: Any, getter: FunctionType) -> None:
    """Guard a user-defined descriptor: that it still is one, and whether it overrides the instance's attribute."""
    cls = type(descriptor)
    trace.reads.of_class(cls, "__get__", getter)
    for name in ("__set__", "__delete__"):
        trace.reads.of_class(cls, name, lookup(cls, name))


def _missing(trace: TraceContext, owner: Any, name: str, is_made: bool) -> Any:
    """An attribute that neither the object nor its class has: asked of `__getattr__`, if there is one."""
    cls = type(owner)
    trace.reads.of_class(cls, name, MISSING)
    if not is_made:
        trace.reads.no_attribute(owner, name)
    getter = lookup(cls, "__getattr__")
    trace.reads.of_class(cls, "__getattr__", getter)
    if isinstance(getter, FunctionType) and is_convertible(getter):
        return call(MethodType(getter, owner), name)
    return getattr(owner, name)
