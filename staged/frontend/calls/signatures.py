"""The arguments of a call by the names of the parameters: `inspect.signature(f).bind(...)`, and not all of it anew each
time.

What a signature says of a plain function is in its code, but for which parameters have defaults. So one is kept for
each code and choice of these; what the defaults are is asked of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import BoundArguments, Parameter, Signature
from types import CodeType, FunctionType
from typing import Any

MOST_SIGNATURES = 1024
_HAS_DEFAULT = object()
"""Stands for a default, which may be another one at the next call, and need not live on here."""

_Key = tuple[int, int, tuple[str, ...]]
_kept: dict[_Key, tuple[CodeType, Signature, tuple[str, ...]]] = {}
"""By the identity of a code object, which is kept here, and which parameters have defaults: the signature, and the
names of its parameters where each can be given by position alone, else ().
"""


def signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of a function; the defaults in it are placeholders."""
    found = _of_code(function)
    return inspect.signature(function) if found is None else found[1]


def bound_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], defaults: bool = False
) -> BoundArguments:
    """The arguments of a call by parameter, with those that are not given where `defaults` are wanted.

    Raises: TypeError as Python does for arguments that do not fit.
    """
    found = _of_code(function)
    if found is None:
        bound = inspect.signature(function).bind(*args, **kwargs)
        if defaults:
            bound.apply_defaults()
        return bound
    _, signature, names = found
    if not kwargs and names and len(names) == len(args):
        return BoundArguments(signature, dict(zip(names, args, strict=True)))
    bound = signature.bind(*args, **kwargs)
    if defaults:
        bound.apply_defaults()
        own = _defaults_of(function)
        for name, value in bound.arguments.items():
            if value is _HAS_DEFAULT:
                bound.arguments[name] = own[name]
    return bound


def _defaults_of(function: Any) -> dict[str, Any]:
    """The defaults of a plain function by parameter."""
    code, values = function.__code__, function.__defaults__ or ()
    last = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return {**dict(zip(last, values, strict=True)), **(function.__kwdefaults__ or {})}


def _of_code(function: Any) -> tuple[CodeType, Signature, tuple[str, ...]] | None:
    """Facts kept for a plain function; None for other callables, and for functions with their own signature."""
    if type(function) is not FunctionType:
        return None
    if function.__dict__ and ("__wrapped__" in function.__dict__ or "__signature__" in function.__dict__):
        return None
    code = function.__code__
    keywords = tuple(function.__kwdefaults__) if function.__kwdefaults__ else ()
    key = id(code), len(function.__defaults__ or ()), keywords
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= MOST_SIGNATURES:
            _kept.clear()
        found = _kept[key] = code, *_made(function)
    return found


def _made(function: FunctionType) -> tuple[Signature, tuple[str, ...]]:
    real = inspect.signature(function)
    parameters = [
        Parameter(each.name, each.kind, default=each.empty if each.default is each.empty else _HAS_DEFAULT)
        for each in real.parameters.values()
    ]
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    is_plain = all(each.kind in positional for each in parameters)
    return Signature(parameters), tuple(real.parameters) if is_plain else ()
