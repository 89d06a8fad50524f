"""Dimensions that a function's arguments have by declaration, and their sizes in a call.

    @st.function
    def f(x: st.Array["N <= 512", 784], y: st.Array["N"]): ...

    @st.function(dims={"x": ("N <= 512", None)})
    def f(x): ...

Each axis has an int, None for any size that is fixed while staging, or a string: a name with or without bounds, or an
expression of names. Each name is that of a dimension of the whole program.

Tested by `tests/dynamic_sizes/test_relations.py` and `tests/dynamic_sizes/test_cases.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from staged.call.guards.arguments import Argument, Part, SizeOf
from staged.errors import ArgumentError, ShapeError, located
from staged.frontend.calls.arguments import Arguments, unknown_arguments
from staged.frontend.calls.signatures import signature_of
from staged.ir.size_functions import linear, parsed, substitute
from staged.ir.size_questions import UndecidedSizeError
from staged.ir.sizes import Dim, Extent, dims_in, value_of
from staged.ir.types import TensorType
from staged.ops.annotation import ArrayAnnotation
from staged.source import position_of_function

Axes = tuple[Extent | None, ...]
"""The declared sizes of the axes of one array."""


@dataclass(frozen=True)
class Declared:
    """The axes that the arguments of a function have by declaration."""

    axes: Mapping[str, Axes]
    """By the path of the argument."""
    is_all: bool = False
    """True if no other axes are detected: `dims="static"`."""
    function: Callable[..., Any] | None = None
    """The function that declares them, whose line errors have."""

    def bind(self, arguments: Arguments) -> Arguments:
        """Arguments whose types have the dimensions, with a bound for each.

        Raises: ShapeError for an array that does not fit.
        """
        found = _Sizes()
        with located(position_of_function(self.function)):
            for place, leaf in enumerate(arguments.staged):
                axes = self.axes.get(leaf.path)
                if axes is not None:
                    found.enter(place, leaf, axes)
            return found.bound(arguments)


class _Sizes:
    """Finds the sizes of one call."""

    def __init__(self) -> None:
        self.sources: dict[str, SizeOf] = {}
        self.values: dict[str, int] = {}
        self.leaves: dict[int, tuple[Argument, Axes]] = {}

    def enter(self, place: int, leaf: Argument, axes: Axes) -> None:
        """Take the sizes of dimensions from one array."""
        shape = np.shape(leaf.value)
        if len(shape) != len(axes):
            raise ShapeError(
                f"`{leaf.path}` must have {len(axes)} axes, got {leaf.type}",
                hint=f"declare {len(shape)} sizes for `{leaf.path}`, or pass an array with {len(axes)} axes",
            )
        self.leaves[place] = leaf, axes
        for axis, wanted in enumerate(axes):
            source = None if wanted is None else _source(wanted, place, axis)
            if source is not None and source.dim.name not in self.values:
                self.sources[source.dim.name] = source
                self.values[source.dim.name] = source.value(shape, {})

    def bound(self, arguments: Arguments) -> Arguments:
        """Check all sizes, choose bounds, and put the dimensions into the types."""
        known: dict[str, Dim] = {}
        for _, axes in self.leaves.values():
            for dim in (dim for wanted in axes if wanted is not None for dim in dims_in(wanted)):
                if dim.name not in known or known[dim.name].max is None:
                    known[dim.name] = dim
        dims = {
            name: replace(known[name], max=known[name].max or rounded(value)) for name, value in self.values.items()
        }
        for name, dim in dims.items():
            value = self.values[name]
            if not 0 <= value <= (dim.max or 0):
                source = self.sources[name]
                path = arguments.staged[source.argument].path
                raise ShapeError(
                    f"`{name}` is {value} (axis {source.axis} of `{path}`), it may be 0 to {dim.max}",
                    hint=f'declare a larger bound: "{name} <= {rounded(value)}"',
                )
        leaves = dict(self._typed(dims))
        staged = iter(range(len(arguments.staged)))
        parts = tuple(
            leaves.get(next(staged), part) if isinstance(part, Argument) else part for part in arguments.leaves
        )
        sizes = tuple(replace(source, dim=dims[name]) for name, source in self.sources.items())
        return replace(arguments, leaves=parts, sizes=sizes)

    def _typed(self, dims: Mapping[str, Dim]) -> list[tuple[int, Part]]:
        made: list[tuple[int, Part]] = []
        values = {dim: self.values[name] for name, dim in dims.items()}
        for place, (leaf, axes) in self.leaves.items():
            shape: list[Extent] = []
            for axis, (extent, wanted) in enumerate(zip(np.shape(leaf.value), axes, strict=True)):
                size = extent if wanted is None else self._bound_size(leaf, wanted, dims)
                if value_of(size, values) != extent:
                    raise self._differs(leaf, axis, size, values)
                shape.append(size)
            made.append((place, replace(leaf, type=TensorType(leaf.type.dtype, tuple(shape)))))
        return made

    def _bound_size(self, leaf: Argument, wanted: Extent, dims: Mapping[str, Dim]) -> Extent:
        for dim in dims_in(wanted):
            if dim.name not in dims:
                raise ShapeError(
                    f"`{leaf.path}` has the size {wanted}, but no array has an axis of size `{dim.name}`",
                    hint=f'declare an axis as "{dim.name}"',
                )
        return substitute(wanted, {dim: dims[dim.name] for dim in dims_in(wanted)})

    def _differs(self, leaf: Argument, axis: int, size: Extent, values: Mapping[Dim, int]) -> ShapeError:
        extent = np.shape(leaf.value)[axis]
        if isinstance(size, int):
            return ShapeError(f"axis {axis} of `{leaf.path}` has {extent} elements, {size} are declared")
        known = ", ".join(f"`{dim}` is {values[dim]}" for dim in dims_in(size))
        return ShapeError(
            f"axis {axis} of `{leaf.path}` has {extent} elements where {known} and it is declared as {size}"
        )


def _source(wanted: Extent, argument: int, axis: int) -> SizeOf | None:
    """The source of a dimension in an axis of size `N` or `a * N + b`; None for other sizes."""
    found = linear(wanted)
    return None if found is None else SizeOf(found[0], argument, axis, *found[1:])


def rounded(size: int) -> int:
    """The size rounded up to the next of 1, 1.25, 1.5 and 1.75 times a power of two."""
    if size <= 4:
        return max(size, 1)
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


def declared_of(function: Callable[..., Any], dims: Mapping[str, Any] | str) -> Declared:
    """The declarations of a function: its annotations, and `dims` of `st.function`.

    Raises: ShapeError for a declaration that is not valid.
    """
    if isinstance(dims, str) and dims != "static":
        raise ArgumentError(
            f'`dims` must be a dict or "static", got {dims!r}', hint='declare axes by argument: dims={"x": ("N", 3)}'
        )
    with located(position_of_function(function)):
        return Declared(_axes_of(function, dims), isinstance(dims, str), function)


def _axes_of(function: Callable[..., Any], dims: Mapping[str, Any] | str) -> dict[str, Axes]:
    axes: dict[str, Axes] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        if isinstance(annotation, str) and "Array[" in annotation:
            with suppress(NameError, AttributeError):  # a name for type checkers alone
                annotation = eval(annotation, getattr(function, "__globals__", {}))
        if isinstance(annotation, ArrayAnnotation):
            axes[name] = tuple(map(extent_of, annotation.axes))
    declared: Mapping[str, Any] = {} if isinstance(dims, str) else dims
    for name in unknown_arguments(function, [re.split(r"[.\[]", path)[0] for path in declared]) if declared else ():
        raise ArgumentError(
            f"`dims` names `{name}`, which is not a parameter of `{getattr(function, '__name__', function)}`",
            hint=f"its parameters are {', '.join(f'`{each}`' for each in signature_of(function).parameters)}",
        )
    for name, given in declared.items():
        axes[name] = tuple(map(extent_of, (given,) if isinstance(given, str | int) else given))
    return axes


def extent_of(given: Any) -> Extent | None:
    """The size of an axis for None, an int, a dimension or a string."""
    if given is None or isinstance(given, Dim):
        return given
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, str):
        return _parsed(given)
    raise ShapeError(
        f"the size of an axis must be an int, None or a string, got {given!r}",
        hint='write "N", "N <= 512" or "2 * N + 1"',
    )


def _parsed(text: str) -> Extent:
    """`N`, `N <= 512` or an expression."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        match tree:
            case ast.Compare(ast.Name(id=name), [ast.LtE()], [ast.Constant(value=int() as most)]):
                return Dim(name, most)
            case ast.Compare(ast.Name(id=name), [ast.Lt()], [ast.Constant(value=int() as most)]):
                return Dim(name, most - 1)
        return parsed(tree, Dim)
    except (SyntaxError, ValueError, KeyError, AttributeError, UndecidedSizeError):
        raise ShapeError(
            f"{text!r} is not the size of an axis", hint='write "N", "N <= 512", "2 * N + 1" or "max(N, 3)"'
        ) from None
