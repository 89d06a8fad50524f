"""Calls: helpers are converted along, a few builtins are staged, what cannot be staged is refused with the way out.

What a call of something in particular does is entered into the tables here by the file that knows it: this one imports
none of them.
"""

from __future__ import annotations

import ast
import functools
import inspect
import random
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np

from staged.call.guards.check import lookup
from staged.errors import StagedError, StagedValueError, StagingError
from staged.frontend.calls.convert import converted
from staged.frontend.calls.foreign import changed_by, check_call, is_pure
from staged.frontend.calls.noted_calls import note_call, note_handled, note_unlifted
from staged.frontend.syntax.converter import Converter, expression, operator, place
from staged.frontend.syntax.sources import is_convertible
from staged.frontend.syntax.user_code import is_generator, is_user_code
from staged.frontend.trace.context import TraceContext, current_trace, note_made
from staged.frontend.values import trees
from staged.frontend.values.mutation import note_new, note_parts, record_attribute, record_contents
from staged.frontend.values.operands import note_new_iterator
from staged.ir.names import LibraryName, as_name, has_name, inside
from staged.ir.op_table import entered
from staged.ops.array import StagedArray
from staged.ops.context import context_or_none
from staged.source import begin_part, called_function, end_part, here

Handler = Callable[..., Any]

BUILTINS: dict[Any, Handler] = {}
"""Calls of builtins, of classes of Python's and of functions of C: handlers for tracing and for eager mode."""
REFUSED: dict[Any, str] = {}
"""Builtins that cannot be staged, with the way out."""
OF_FRAME: dict[Any, tuple[int, str]] = {}
"""Builtins that, given no more arguments than so many, look at the frame that calls them: in converted code it is not
the user's.
"""
METHODS_OF: dict[type, dict[str, Handler]] = {}
"""Methods of Python's classes, by name: what a call does while tracing, or NotImplemented where Python's own does it.
"""
OBJECTS: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {}
"""Calls of objects: handlers by the name of an attribute that their class has."""

H = TypeVar("H", bound=Callable[..., Any])


def builtin(function: Any) -> Callable[[H], H]:
    """Declare what a call of a builtin does while tracing."""
    return entered(BUILTINS, function)


def method_of(cls: type, name: str) -> Callable[[H], H]:
    """Declare what a call of a method of Python's does while tracing: `handler(owner, *args, **kwargs)`, or
    NotImplemented.
    """
    return entered(METHODS_OF.setdefault(cls, {}), name)


def calls_of(attribute: str) -> Callable[[H], H]:
    """Declare what a call of an object does whose class has `attribute`: `handler(object, args, kwargs)`."""
    return entered(OBJECTS, attribute)


_HIGHER_ORDER: tuple[Any, ...] = (map, filter, functools.reduce, sorted, functools.partial)


@expression(ast.Call)
def convert_call(converter: Converter, node: ast.Call) -> ast.expr:
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return _super(converter, node)
    function = converter.expr(node.func)
    arguments = [converter.expr(argument) for argument in node.args]
    keywords = [place(ast.keyword(k.arg, converter.expr(k.value)), k) for k in node.keywords]
    if isinstance(node.func, ast.Name | ast.Attribute) and _name(node.func) in ("breakpoint", "set_trace"):
        return ast.Call(converter.call("debugger", converter.locals(), function), arguments, keywords)
    call = converter.call("call", function, *arguments)
    call.keywords = keywords
    return call


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _super(converter: Converter, node: ast.Call) -> ast.expr:
    """`super()` reads the first argument and the class cell, which only the user's own function has."""
    if "__class__" not in converter.free:
        raise converter.refuse(node, "`super()` outside a method cannot be staged")
    scope = next(scope for scope in converter.scopes if scope.name is not None)
    assert scope.name is not None
    first = converter.call("first_argument", ast.Name(scope.name, ast.Load()))
    return ast.Call(ast.Name("super", ast.Load()), [ast.Name("__class__", ast.Load()), first], [])


@operator
def first_argument(scope: Any) -> Any:
    """The `self` of a method: the first of its locals to be bound."""
    return next(iter(scope.__dict__.values()))


_HELD_HERE = 2
"""References to what a class has just made: its name, and while they are counted."""
_NATIVE = (BuiltinFunctionType, type(np.sum))
"""Functions without Python code of their own to convert: those of C, and NumPy's, which ask arrays of other classes
first.
"""


@operator
def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The call `function(*args, **kwargs)` of converted code."""
    trace = current_trace()
    tracing = trace is not None
    if tracing:
        _refuse_if_random(function)
    if isinstance(function, FunctionType) and function not in BUILTINS:
        if is_generator(function):
            return _call_generator(function, args, kwargs)
        converted = as_converted(function)
        if converted is not function or not tracing or getattr(function, "__staged_converted__", False):
            if trace is not None:
                _note_function(trace, function, converted)
            return _with_names(function, converted(*args, **kwargs))
        made = _call_foreign(function, args, kwargs)
        note_new(made, args, kwargs)  # `dataclasses.replace`, `copy.deepcopy`
        return made
    if isinstance(function, MethodType):
        inner = function.__func__
        if isinstance(inner, FunctionType):
            if is_generator(inner):
                return _call_generator(function, args, kwargs)
            converted = as_converted(inner)
            if trace is not None:
                _note_function(trace, inner, converted)
            if converted is inner and not getattr(inner, "__staged_converted__", False):
                _check_foreign(function, args, kwargs)
                made = converted(function.__self__, *args, **kwargs)
                if trace is not None:
                    note_unlifted(trace, function, args, kwargs)
                note_new(made, args, kwargs)  # the dict of a module's state
                return made
            return _with_names(inner, converted(function.__self__, *args, **kwargs))
        return function(*args, **kwargs)
    if isinstance(function, (*_NATIVE, FunctionType)):
        return _call_builtin(function, tracing, args, kwargs)
    if isinstance(function, type):
        return _make(function, tracing, args, kwargs)
    for name in OBJECTS:
        if hasattr(type(function), name):
            return OBJECTS[name](function, args, kwargs)
    if isinstance(function, functools.partial):
        if trace is not None and not trace.is_made(function):
            for name in ("func", "args", "keywords"):
                trace.reads.attribute(function, name, getattr(function, name))
        return call(function.func, *function.args, *args, **{**function.keywords, **kwargs})
    method = getattr(type(function), "__call__", None)  # noqa: B004 (the class's own, to convert it)
    if isinstance(method, FunctionType):
        if trace is not None:
            trace.reads.of_class(type(function), "__call__", method)
            if not trace.is_made(function):
                trace.reads.type_of(function)
            if hasattr(type(function), "__staged_layer__"):
                return _call_layer(function, method, args, kwargs)
        return call(MethodType(method, function), *args, **kwargs)
    _check_foreign(function, args, kwargs)
    return function(*args, **kwargs)


def _with_names(function: FunctionType, made: Any) -> Any:
    """The results of a function, which names those of several that the user does not name: `move_0`."""
    for number, value in enumerate(made if type(made) is tuple else ()):
        if type(value) is StagedArray and not value.value.hint:
            value.value.hint = LibraryName(f"{as_name(function.__name__).strip('_')}_{number}")
    return made


def _call_layer(layer: Any, method: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a layer. Its ops have its name, and its result if the user does not name it.

    A layer without Variables is named after the layer before it, too: `linear1_relu`.
    """
    label, has_variables = layer.__staged_layer__
    outside = begin_part(label)
    try:
        made = call(MethodType(method, layer), *args, **kwargs)
    finally:
        end_part(outside)
    if type(made) is not StagedArray or has_name(made.value.hint):
        return made
    where = None if label else here()
    name = as_name(label) or (called_function(where) if where else "")
    given = args[0].value.hint if args and type(args[0]) is StagedArray else ""
    if name and type(given) is LibraryName and not has_variables:
        made.value.hint = LibraryName(f"{given.layer}_{inside(name, given.layer)}", given.layer)
    elif name:
        made.value.hint = LibraryName(name)
    return made


def _note_function(trace: TraceContext, function: FunctionType, converted: Any) -> None:
    """Note what the call of a converted function reads before its body runs."""
    original = getattr(converted, "__staged_original__", None)
    if original is not None:
        trace.reads.function(original, converted.__staged_names__)
        return
    function = inspect.unwrap(function)  # wrappers have the attributes of what they wrap
    if getattr(function, "__staged_converted__", False) and not trace.is_made(function):
        trace.reads.reason(f"`{function.__name__}` was made by a staged function that has ended")


def _check_foreign(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before code that is not converted runs: refuse it where it has effects, log the container that it changes."""
    trace = current_trace()
    if trace is None:
        return
    check_call(trace, function, args, kwargs)
    note_call(trace, function, args, kwargs)
    if function is object.__setattr__ and len(args) == 3:
        record_attribute(args[0], args[1])  # as frozen dataclasses do it
        return
    changed = changed_by(function, args, kwargs)
    if changed is not None:
        record_contents(changed)


def _call_foreign(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of code that is not converted. Where it cannot go on with a staged value, the error says so."""
    _check_foreign(function, args, kwargs)
    trace = current_trace()
    try:
        made = function(*args, **kwargs)
        if trace is not None:
            note_unlifted(trace, function, args, kwargs)
        return made
    except StagedError:
        raise
    except (TypeError, AttributeError) as error:
        given = [*args, *kwargs.values()]
        module = getattr(function, "__module__", None) or ""
        if module.split(".")[0] == "staged" or not any(
            isinstance(leaf, StagedArray) for leaf in trees.flatten(given)[0]
        ):
            raise
        name = f"{module}.{function.__name__}" if module and module != "builtins" else function.__name__
        raise StagedValueError(
            f"`{name}` cannot take staged values: {error}",
            where=here(),
            hint="call it before or after the staged function, or write what it does with the functions of `staged`; "
            "for a derivative of your own there is `st.custom_vjp`",
        ) from error


def _call_generator(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of the user's generator function. Its body is not converted: it runs while staging.

    Raises: StagingError in a branch or loop of the program, which would repeat the items of one iteration.
    """
    trace = current_trace()
    if trace is None:
        return function(*args, **kwargs)
    if trace.is_staged_control and not is_pure(function):
        name = function.__name__
        raise StagingError(
            f"`{name}` is a generator, which runs while staging, and is called inside {trace.conditional[-1].what}",
            where=here(),
            hint=f"make a list of its items before: `items = list({name}(...))`; or write `st.pure({name})` once, if "
            "it yields the same items in each iteration",
        )
    made = _call_foreign(function, args, kwargs)
    note_new_iterator(made, *args)
    note_made(made)
    return made


def _call_builtin(function: Any, tracing: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # In eager mode too, where numbers are arrays with a tape; in plain Python there is nothing to handle.
    handler = BUILTINS.get(function) if context_or_none() is not None else None
    _refuse_frames(function, args, kwargs)
    if handler is not None:
        return _handled(handler, function, args, kwargs)
    if not tracing:
        return function(*args, **kwargs)
    owner = getattr(function, "__self__", None)
    if function in REFUSED:
        raise StagingError(
            f"`{function.__name__}` inside a staged function cannot be staged", where=here(), hint=REFUSED[function]
        )
    for cls in METHODS_OF:
        if isinstance(owner, cls) and function.__name__ in METHODS_OF[cls]:
            made = METHODS_OF[cls][function.__name__](owner, *args, **kwargs)
            if made is not NotImplemented:
                return made
    result = _call_foreign(function, _converted_arguments(function, args), kwargs)
    note_new_iterator(result, *args)
    if function.__name__ == "copy" and isinstance(result, list | dict | set):
        note_made(result)
    return result


def _handled(handler: Handler, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a builtin function or class that has a handler."""
    trace = current_trace()
    if trace is not None:
        note_handled(trace, function, args, kwargs)
    made = handler(*args, **kwargs)
    note_new_iterator(made, *args)
    return made


def _refuse_frames(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """In eager mode too: there the frame is ours as well."""
    found = OF_FRAME.get(function) if type(function) is BuiltinFunctionType else None
    if found is not None and len(args) <= found[0] and not kwargs:
        raise StagingError(
            f"`{function.__name__}` inside a staged function cannot be staged: it would look at other code than this",
            where=here(),
            hint=found[1],
        )


def _make(cls: type, tracing: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a class: conversions of numbers are staged, `__init__` of the user's classes is converted."""
    if context_or_none() is not None:
        handler = BUILTINS.get(cls)
        if handler is not None:
            return _handled(handler, cls, args, kwargs)
        if tracing and cls in (np.random.RandomState, random.Random):
            _refuse_random(cls.__name__)
    initialise = cls.__init__ if type(cls) is type else None  # type: ignore[misc]
    if isinstance(initialise, FunctionType) and is_convertible(initialise):
        new: Any = cls.__new__
        made = new(cls) if new is object.__new__ else new(cls, *args, **kwargs)
        if sys.getrefcount(made) <= _HELD_HERE:  # else it is an older one that the class keeps
            note_made(made)
        if isinstance(made, cls):
            own: Any = type(made).__init__
            converted = as_converted(own)
            trace = current_trace()
            if trace is not None:
                trace.reads.of_class(cls, "__new__", lookup(cls, "__new__"))
                trace.reads.of_class(type(made), "__init__", own)
                _note_function(trace, own, converted)
            converted(made, *args, **kwargs)
        return made
    _check_foreign(cls, args, kwargs)
    made = cls(*_converted_arguments(cls, args), **kwargs)
    note_new_iterator(made, *args)
    gives_older = cls is type or isinstance(cls.__new__, FunctionType)
    if not gives_older or sys.getrefcount(made) <= _HELD_HERE:
        note_made(made)
    note_parts(made, args, kwargs)
    return made


def _converted_arguments(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Callbacks of `map`, `sorted` and the like are converted, since Python's own code calls them."""
    if function not in _HIGHER_ORDER:
        return args
    return tuple(_converted_argument(item) if isinstance(item, FunctionType | MethodType) else item for item in args)


def _converted_argument(function: FunctionType | MethodType) -> Any:
    if isinstance(function, MethodType):
        inner = function.__func__
        return (
            MethodType(_converted_argument(inner), function.__self__) if isinstance(inner, FunctionType) else function
        )
    converted, trace = as_converted(function), current_trace()
    if trace is not None:
        _note_function(trace, function, converted)
    return converted


_BOUND = (MethodType, BuiltinFunctionType)
_RANDOM = (random.Random, np.random.RandomState, np.random.Generator)
_RANDOM_MODULES = ("random", "numpy.random")


def _refuse_if_random(function: Any) -> None:
    if type(function) is FunctionType:
        module = function.__module__
        if type(module) is not str or not module.startswith(_RANDOM_MODULES):
            return
    owner = function.__self__ if isinstance(function, _BOUND) else None
    if owner is not None and isinstance(owner, _RANDOM):
        _refuse_random(function.__name__)
    module = getattr(function, "__module__", "")
    if type(module) is not str or not module.startswith(_RANDOM_MODULES):
        return
    if module == "random" or (module.startswith("numpy.random") and not isinstance(owner, np.ndarray)):
        _refuse_random(function.__name__)


def _refuse_random(name: str) -> None:
    raise StagingError(
        f"the random function `{name}` inside a staged function would give one number for all runs",
        where=here(),
        hint="use `st.random.uniform(...)`, `st.random.normal(...)`, `st.random.permutation(...)`: they draw in the "
        "program",
    )


def as_converted(function: Any) -> Any:
    """The converted form of a function of the user's; others as they are."""
    if isinstance(function, MethodType):
        inner = function.__func__
        return MethodType(as_converted(inner), function.__self__) if isinstance(inner, FunctionType) else function
    return converted(function) if is_user_code(function) else function
