"""Detection of sizes: axes of arguments that have had several sizes become dimensions of the next program.

Two calls are of one family if their arguments differ in nothing but the sizes of axes. From the third size of an axis
on, a call is traced with a dimension for the axis. Axes that had equal sizes in all calls of the family have one
dimension. Size 0 is never one of a dimension, since Python and arrays differ in divisions by zero.

Tested by `tests/dynamic_sizes/test_detection.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from staged.call.guards.arguments import Argument
from staged.frontend.calls.arguments import Arguments
from staged.frontend.calls.dims import Axes, Declared, rounded
from staged.ir.sizes import Dim, dims_in
from staged.ops.assumptions import Assumptions

ENOUGH_SIZES = 3
"""The number of sizes from which an axis has a dimension."""
_MOST_FAMILIES = 32
_MOST_CALLS = 32
_MOST_TRIED = 8
"""The number of axes up to which a trace with fewer dimensions follows one that fails."""
_NAMES = "NMKLPQRS"
_VALUES = frozenset((int, float, complex, bool, str, bytes, type, type(None)))

Axis = tuple[str, int]
"""The path of an argument and the number of its axis."""


@dataclass
class Family:
    """Calls that differ in nothing but sizes."""

    axes: tuple[Axis, ...]
    calls: dict[tuple[int, ...], None] = field(default_factory=dict)
    """The sizes of all axes in each call that was traced."""
    why_static: dict[Axis, str] = field(default_factory=dict)
    """The reasons for axes that a program for all sizes does not have."""
    failed: dict[Axis, set[int]] = field(default_factory=dict)
    """The sizes for which no relation has been found."""


@dataclass(frozen=True)
class Failure:
    """An error of a trace with dimensions."""

    error: Exception
    is_of_call: bool
    """True if the sizes of the call may lack a relation: other calls may have a program for all sizes."""


@dataclass(frozen=True)
class Call:
    """The sizes of a call in its family."""

    family: Family
    sizes: tuple[int, ...]

    def most_dynamic(self, attempt: Callable[[Collection[Axis]], Any]) -> tuple[Any, dict[tuple[Axis, ...], Exception]]:
        """The trace with dimensions for most axes, or None; why other axes need static sizes.

        `attempt` traces with dimensions for some axes, and returns the trace or a `Failure`.
        """
        columns = self.axes_with(ENOUGH_SIZES)
        if columns.keys() <= self.family.why_static.keys():
            return None, {}
        found = {axis: column for axis, column in columns.items() if axis not in self.family.why_static}
        groups = [tuple(axis for axis in found if found[axis] == column) for column in dict.fromkeys(found.values())]
        best, failure = None, attempt(found)
        if not isinstance(failure, Failure):
            return failure, {}
        failures: dict[tuple[Axis, ...], Failure] = {}
        kept: list[Axis] = []
        for group in groups:
            tried = [*kept, *group]
            made = attempt(tried) if len(tried) < len(found) <= _MOST_TRIED else failure
            if isinstance(made, Failure):
                failures[group] = made
            else:
                best, kept = made, tried
        return best, {group: failed.error for group, failed in failures.items() if self._is_final(group[0], failed)}

    def _is_final(self, axis: Axis, failure: Failure) -> bool:
        """Return whether the axis is static from now on. Errors of relations are final for the third size."""
        failed = self.family.failed.setdefault(axis, set())
        failed.add(self.sizes[self.family.axes.index(axis)])
        return not failure.is_of_call or len(failed) >= ENOUGH_SIZES

    def axes_with(self, least: int) -> dict[Axis, tuple[int, ...]]:
        """The axes that have had so many sizes; the sizes of each call, this one last."""
        calls = [*(call for call in self.family.calls if call != self.sizes), self.sizes]
        columns = zip(self.family.axes, zip(*calls, strict=True), strict=True)
        return {axis: column for axis, column in columns if len(set(column)) >= least}

    def keep(self) -> None:
        """Count the call."""
        calls = self.family.calls
        calls[self.sizes] = None
        if len(calls) > _MOST_CALLS:
            del calls[next(iter(calls))]

    def bind(self, arguments: Arguments, declared: Declared, chosen: Collection[Axis]) -> Arguments:
        """Arguments with a dimension for each of the chosen axes."""
        taken = {
            dim.name for axes in declared.axes.values() for size in axes if size is not None for dim in dims_in(size)
        }
        names = (name for name in _dim_names() if name not in taken)
        dims: dict[tuple[int, ...], Dim] = {}
        axes: dict[str, dict[int, Dim]] = {}
        for (path, axis), column in self.axes_with(ENOUGH_SIZES).items():
            if (path, axis) not in chosen:
                continue
            if column not in dims:
                dims[column] = Dim(next(names), rounded(max(column)), least=1)
            axes.setdefault(path, {})[axis] = dims[column]
        ranks = {leaf.path: len(leaf.type.shape) for leaf in arguments.staged}
        found: dict[str, Axes] = {
            path: tuple(each.get(axis) for axis in range(ranks[path])) for path, each in axes.items()
        }
        bound = replace(declared, axes={**declared.axes, **found}).bind(arguments)
        return replace(bound, assumptions=Assumptions({dim: column[-1] for column, dim in dims.items()}))


def _dim_names() -> Iterator[str]:
    yield from _NAMES
    yield from (f"N{number}" for number in itertools.count(2))


class Detection:
    """The families of a function's calls."""

    def __init__(self) -> None:
        self._families: dict[Any, Family] = {}

    def call(self, arguments: Arguments, declared: Declared, around: Any) -> Call | None:
        """The sizes of a call; None without axes to detect. `around` is equal in calls of one family."""
        if declared.is_all:
            return None
        axes: list[Axis] = []
        sizes: list[int] = []
        for leaf in arguments.staged:
            if leaf.path not in declared.axes:
                axes += [(leaf.path, axis) for axis in range(len(leaf.type.shape))]
                sizes += leaf.type.shape  # type: ignore[arg-type]
        if not sizes or 0 in sizes:
            return None
        key = (around, arguments.positional, arguments.keywords, *map(_kind_of, arguments.leaves))
        family = self._families.pop(key, None) or Family(tuple(axes))
        self._families[key] = family
        if len(self._families) > _MOST_FAMILIES:
            del self._families[next(iter(self._families))]
        return Call(family, tuple(sizes))

    def clear(self) -> None:
        """Forget all calls."""
        self._families.clear()


def _kind_of(leaf: Any) -> Any:
    """The properties of a leaf that are equal in calls of one family."""
    if isinstance(leaf, Argument):
        return leaf.path, leaf.kind, type(leaf.given), leaf.type.dtype, leaf.type.weak, len(leaf.type.shape)
    cls = type(leaf.given)
    return leaf.name, cls, leaf.given if cls in _VALUES else id(leaf.given)


def described_axis(chosen: Axis, axes: Mapping[Axis, tuple[int, ...]]) -> str:
    """An axis with its sizes."""
    path, axis = chosen
    *first, last = map(str, dict.fromkeys(axes[chosen]))
    return f"axis {axis} of `{path}` ({', '.join(first)} and {last})"
