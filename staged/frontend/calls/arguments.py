"""Arguments of a staged function: which are staged, which are static, and how the leaves are named."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from staged.call.guards.arguments import Access, Argument, Kind, Part, SizeOf
from staged.errors import ArgumentError, StagedValueError, StagingError
from staged.frontend.calls.signatures import bound_arguments, signature_of
from staged.frontend.devices.resident import BorrowedArray, DeviceArray, ResidentArray, borrowed
from staged.frontend.trace.dtypes import unsupported_dtype
from staged.frontend.values import trees
from staged.frontend.values.join import number_type
from staged.ir.types import TensorType, dtype_of
from staged.ops.array import Array
from staged.ops.assumptions import Assumptions
from staged.ops.interchange import elements, is_offered
from staged.ops.promote import check_class, is_number
from staged.source import here, position_of_function

_NEVER_ARRAYS = (bool, int, float, complex, str, bytes, type(None))
_NODE, _STATIC, _NAMED, _NUMBER = Kind("node"), Kind("static"), Kind("named"), Kind("number")
_SCALAR, _ARRAY, _FOREIGN = Kind("scalar"), Kind("array"), Kind("foreign", convert=elements)
_ON_DEVICE = Kind("array", (DeviceArray, ResidentArray))
"""A program accepts a result instead of the array that the region names."""


class Passed(NamedTuple):
    """An argument of a call, or an element of `*args` or `**kwargs`."""

    name: str
    """The parameter, or the keyword of an element of `**kwargs`."""
    path: str
    access: str
    """`args[1]` or `kwargs['x']`."""
    value: Any


Placed = tuple[Passed, trees.Spec]
"""An argument and its tree; without a tree it is one static leaf."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call, flattened."""

    leaves: tuple[Part, ...]
    positional: int
    """The number of arguments passed by position."""
    keywords: tuple[str, ...]
    """The names of the others, as the caller ordered them."""
    placed: list[Placed]
    sizes: tuple[SizeOf, ...] = ()
    """The dimensions of the arguments."""
    assumptions: Assumptions | None = None
    """Those about found dimensions."""

    @cached_property
    def staged(self) -> tuple[Argument, ...]:
        """The staged leaves."""
        return tuple([leaf for leaf in self.leaves if isinstance(leaf, Argument)])

    def parts(self) -> Iterator[tuple[Access, Part]]:
        """The access paths of all leaves, and of the nodes above these: parents first."""
        leaves = iter(self.leaves)
        for passed, spec in self.placed:
            yield from _parts(passed.name, (passed.access,), passed.value, spec, leaves)

    def rebuild(self, handles: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The args and kwargs of the function, with one handle per staged leaf."""
        rest = iter(handles)
        leaves = [next(rest) if isinstance(leaf, Argument) else leaf.given for leaf in self.leaves]
        return call_with(self.placed, leaves)


def flatten_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[str] = ()
) -> Arguments:
    """Sort the arguments of a call: arrays and numbers are staged, the rest is static, as is what `static` names.

    Raises: TypeError as Python does for arguments that do not fit; DTypeError for a dtype that we do not have.
    """
    unknown = unknown_arguments(function, static) if static else []
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
    placed: list[Placed] = []
    found: list[Part] = []
    for passed in passed_arguments(bound, len(args), kwargs):
        if passed.name in static:
            spec = None
            found.append(Part(passed.name, _NAMED, passed.value))
        else:
            leaves, spec = trees.flatten(passed.value, is_static_node)
            paths = trees.paths(spec, passed.path)
            found += [_leaf(passed.name, path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
        placed.append((passed, spec))
    return Arguments(tuple(found), len(args), tuple(kwargs), placed)


def _parts(
    name: str, access: Access, value: Any, spec: trees.Spec, leaves: Iterator[Part]
) -> Iterator[tuple[Access, Part]]:
    if spec is None or spec.is_leaf():
        yield access, next(leaves)
        return
    yield access, Part(name, _NODE, value)
    has_fields = isinstance(value, tuple) or dataclasses.is_dataclass(value)
    for key, child, below in zip(spec.entries(), trees.children(value), spec.children(), strict=True):
        step = f".{key}" if has_fields and type(key) is str else f"[{key!r}]" if type(key) in (str, int) else (key,)
        yield from _parts(name, (*access, step), child, below, leaves)


def _leaf(name: str, path: str, given: Any) -> Part:
    value = as_argument(given, path)
    type_ = staged_type(value, path)
    if type_ is None:
        return Part(name, _STATIC, given)
    if type_.weak:
        kind = _NUMBER
    elif isinstance(given, np.generic):
        kind = _SCALAR
    elif isinstance(given, np.ndarray | DeviceArray):
        kind = _ON_DEVICE if type(given) in _ON_DEVICE.classes else _ARRAY
    else:
        kind = _BORROWED if isinstance(value, BorrowedArray) else _FOREIGN
    return Argument(name, kind, given, path, type_, value)


def unknown_arguments(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """The names that no argument of the function can have."""
    parameters = signature_of(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return [name for name in names if name not in parameters]


def checked_local(
    function: Callable[..., Any], names: Collection[str] | str, static: Collection[str]
) -> tuple[str, ...]:
    """The arguments that the option `local=` of a function names.

    Raises: ArgumentError for a name that no argument has, and for a static argument.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    where, called = position_of_function(function), getattr(function, "__name__", function)
    if unknown := unknown_arguments(function, names) if names else []:
        raise ArgumentError(
            f"`local` names `{unknown[0]}`, which is not a parameter of `{called}`",
            where=where,
            hint=f"its parameters are {', '.join(f'`{name}`' for name in signature_of(function).parameters)}",
        )
    if both := [name for name in names if name in static]:
        raise ArgumentError(
            f"`{both[0]}` of `{called}` is static and cannot be local: all ranks run one program",
            where=where,
            hint=f"remove `{both[0]}` from `static` or from `local`",
        )
    return names


def passed_arguments(bound: inspect.BoundArguments, count: int, kwargs: Collection[str]) -> Iterator[Passed]:
    """The arguments of a call with `count` by position, in the order of the parameters.

    Defaults in `bound` are passed by keyword if possible.
    """
    place = 0
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            for index, item in enumerate(value):
                yield Passed(name, f"{name}.{index}", f"args[{place + index}]", item)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            for key, item in value.items():
                yield Passed(key, key, f"kwargs[{key!r}]", item)
        elif kind is inspect.Parameter.POSITIONAL_ONLY or (place < count and name not in kwargs):
            yield Passed(name, name, f"args[{place}]", value)
            place += 1
        else:
            yield Passed(name, name, f"kwargs[{name!r}]", value)


def call_with(placed: Iterable[Placed], leaves: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The args and kwargs with these leaves."""
    rest = iter(leaves)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for passed, spec in placed:
        value = next(rest) if spec is None else trees.unflatten(spec, list(islice(rest, spec.num_leaves)))
        if passed.access.startswith("args"):
            args.append(value)
        else:
            kwargs[passed.name] = value
    return tuple(args), kwargs


def is_static_node(node: Any) -> bool:
    """A dataclass without arrays (Variables aside) is a configuration or a model: static as a whole."""
    return dataclasses.is_dataclass(node) and not isinstance(node, type) and not _holds_array(node)


def _holds_array(node: Any) -> bool:
    leaves, _ = trees.flatten(node)
    return any(
        isinstance(leaf, Array | np.ndarray | np.generic) and not hasattr(leaf, "__staged_read__") for leaf in leaves
    )


def staged_type(leaf: Any, path: str = "a value") -> TensorType | None:
    """The type of a leaf that `as_argument` returned, if it is staged; None for a static one."""
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
        return None
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


_BORROWED = Kind("foreign", convert=as_argument)
