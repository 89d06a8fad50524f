"""Arguments of a staged function: which are staged, which are static, and how the leaves are named."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.errors import StagedValueError, StagingError
from staged.frontend.calls.signatures import bound_arguments, signature_of
from staged.frontend.devices.resident import DeviceArray, borrowed
from staged.frontend.trace.dtypes import unsupported_dtype
from staged.frontend.values import trees
from staged.frontend.values.join import number_type
from staged.ir.types import TensorType, dtype_of
from staged.ops.array import Array
from staged.ops.interchange import elements, is_offered
from staged.ops.promote import check_class, is_number
from staged.source import here

_NEVER_ARRAYS = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Argument:
    """A staged leaf: its path for people, its type, and what the caller passed."""

    path: str
    type: TensorType
    value: Any


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call. `key` is equal for calls that trace alike."""

    staged: tuple[Argument, ...]
    key: tuple[Any, ...]
    rebuild: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    """From one handle per staged leaf to the args and kwargs of the function."""
    statics: tuple[Any, ...]
    """Static leaves, kept alive because the key holds ids."""


def flatten_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[str] = ()
) -> Arguments:
    """Sort the arguments of a call: arrays and numbers are staged, the rest is static, as is what `static` names.

    Raises: TypeError as Python does for arguments that do not fit; DTypeError for a dtype that we do not have.
    """
    unknown = _unknown(function, static) if static else []
    if unknown:
        signature = signature_of(function)
        raise StagingError(
            f"`static` names `{unknown[0]}`, which is not a parameter of `{getattr(function, '__name__', function)}`",
            hint=f"its parameters are {', '.join(f'`{name}`' for name in signature.parameters)}",
        )
    try:
        bound = bound_arguments(function, args, kwargs)
    except TypeError as error:  # named as in Python
        reason = str(error).replace("missing a required argument: ", "missing argument ")
        error.args = (f"{getattr(function, '__name__', 'the function')}() {reason}",)
        raise  # in the frame of `inspect`, so that the error is the caller's
    named = named_arguments(bound)
    staged: list[Argument] = []
    statics: list[Any] = []
    plans: list[tuple[trees.Spec, list[int | None], list[Any]]] = []
    key: list[Any] = []
    for name, value in named:
        leaves, spec = ([value], None) if name.split(".")[0] in static else trees.flatten(value, is_static_node)
        paths = [name] if spec is None else trees.paths(spec, name)
        places: list[int | None] = []
        if spec is not None:
            leaves = [as_argument(leaf, path) for path, leaf in zip(paths, leaves, strict=True)]
        for path, leaf in zip(paths, leaves, strict=True):
            type_ = None if spec is None else staged_type(leaf, path)
            if type_ is None:
                places.append(None)
                statics.append(leaf)
                key.append((path, static_key(leaf)))
            else:
                places.append(len(staged))
                staged.append(Argument(path, type_, leaf))
                key.append((path, type_))
        plans.append((spec, places, leaves))
        key.append(spec)

    def rebuild(handles: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = []
        for spec, places, leaves in plans:
            filled = [leaf if place is None else handles[place] for place, leaf in zip(places, leaves, strict=True)]
            values.append(filled[0] if spec is None else trees.unflatten(spec, filled))
        return call_with(bound, values)

    return Arguments(tuple(staged), tuple(key), rebuild, tuple(statics))


def _unknown(function: Callable[..., Any], static: Collection[str]) -> list[str]:
    """The names in `static` that no argument of the function can have."""
    parameters = signature_of(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return [name for name in static if name not in parameters]


def named_arguments(bound: inspect.BoundArguments) -> list[tuple[str, Any]]:
    """One (name, value) per parameter, and per element of `*args` and `**kwargs`."""
    out: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            out += [(f"{name}.{index}", item) for index, item in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            out += [(key, item) for key, item in value.items()]
        else:
            out.append((name, value))
    return out


def call_with(bound: inspect.BoundArguments, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rest = list(values)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args += [rest.pop(0) for _ in value]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            kwargs.update((key, rest.pop(0)) for key in value)
        elif kind is inspect.Parameter.KEYWORD_ONLY or any(p not in bound.arguments for p in _before(bound, name)):
            kwargs[name] = rest.pop(0)
        else:
            args.append(rest.pop(0))
    return tuple(args), kwargs


def _before(bound: inspect.BoundArguments, name: str) -> list[str]:
    names = list(bound.signature.parameters)
    return names[: names.index(name)]


def is_static_node(node: Any) -> bool:
    """A dataclass without arrays (Variables aside) is a configuration or a model: static as a whole."""
    return dataclasses.is_dataclass(node) and not isinstance(node, type) and not _holds_array(node)


def _holds_array(node: Any) -> bool:
    leaves, _ = trees.flatten(node)
    return any(
        isinstance(leaf, Array | np.ndarray | np.generic) and not hasattr(leaf, "__staged_read__") for leaf in leaves
    )


def staged_type(leaf: Any, path: str = "a value") -> TensorType | None:
    """The type of a leaf that is staged; None for a static one."""
    if hasattr(type(leaf), "__staged_read__") or isinstance(leaf, type):
        return None
    if isinstance(leaf, Array):
        return leaf.type
    if isinstance(leaf, bool) or leaf is None or isinstance(leaf, str | bytes):
        return None
    if isinstance(leaf, int) and not -(2**63) <= leaf < 2**63:
        raise StagedValueError(f"`{path}` is {leaf}, which does not fit 64 bits", where=here())
    if is_number(leaf):
        return number_type(leaf)
    if not isinstance(leaf, np.ndarray | np.generic | DeviceArray):
        if not is_offered(leaf):
            return None
        leaf = elements(leaf, f"`{path}`")
    check_class(leaf, f"`{path}`")
    dtype = dtype_of(leaf.dtype)
    if dtype is None or not leaf.dtype.isnative:
        raise unsupported_dtype(f"`{path}`", leaf, here())
    return TensorType(dtype, tuple(leaf.shape))


def as_argument(leaf: Any, path: str = "a value") -> Any:
    """A leaf as programs take it: the elements of another library's array, or of one of foreign byte order, as NumPy's.

    Elements that another library has on a device stay there.
    Raises: DTypeError for an array that NumPy cannot read.
    """
    if isinstance(leaf, np.ndarray):
        return leaf if leaf.dtype.isnative else elements(leaf)
    if type(leaf) in _NEVER_ARRAYS or isinstance(leaf, np.generic | Array | DeviceArray):
        return leaf
    if hasattr(type(leaf), "__staged_read__"):
        return leaf
    on_device = borrowed(leaf, f"`{path}`")
    if on_device is not None:
        return on_device
    return elements(leaf, f"`{path}`") if is_offered(leaf) else leaf


def static_key(leaf: Any) -> Any:
    """The part of a key for a static leaf: its value if that identifies it, else its identity."""
    if isinstance(leaf, bool | int | float | complex | str | bytes | type(None)):
        return type(leaf).__name__, repr(leaf)
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and type(leaf).__hash__ is not None:
        return leaf
    return "id", id(leaf)
