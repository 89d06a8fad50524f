"""Helpers of all transforms: the array leaves of a tree, rebuilding of trees, and names for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.base.tracebacks import trims_traceback
from staged.errors import GradientError, article
from staged.frontend.devices.resident import DeviceArray
from staged.frontend.values import trees
from staged.frontend.values.join import number_type
from staged.frontend.values.variable import Variable
from staged.ops.array import Array, StagedArray
from staged.ops.promote import as_array, cast
from staged.source import Position


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function of ours that `functools.wraps` makes look like the user's, which would be converted.

    It is where plain Python enters the library: errors leave it without our frames.
    """
    entry = trims_traceback(function)
    entry.__staged_plain__ = True  # type: ignore[attr-defined]
    return entry


def name_of(f: Any) -> str:
    """The name of a function in messages."""
    return getattr(f, "__name__", type(f).__name__)


def is_array(value: Any) -> bool:
    """Return whether a leaf is an array or a number: what a program can carry."""
    return isinstance(value, Array | np.ndarray | np.generic | DeviceArray) or number_type(value) is not None


class Outputs:
    """The result of a function as arrays and the rest: `arrays` in order, and how to put others in their places.

    With `staged_only` Python numbers and arrays known while staging belong to the rest.
    """

    def __init__(self, made: Any, staged_only: bool = False) -> None:
        self.leaves, self.spec = trees.flatten(made)
        carried = _is_staged if staged_only else is_array
        self.places = [index for index, leaf in enumerate(self.leaves) if carried(leaf)]
        self.arrays: list[Array] = [as_array(_read(self.leaves[index])) for index in self.places]

    def rebuild(self, arrays: Sequence[Any]) -> Any:
        """The tree with these arrays in place of its own."""
        return self.filled(arrays, self.leaves)

    def tangents(self, arrays: Sequence[Any]) -> Any:
        """The tree with these in place of its arrays, and None in place of the rest."""
        return self.filled(arrays, [None] * len(self.leaves))

    def filled(self, arrays: Sequence[Any], rest: Sequence[Any]) -> Any:
        leaves = list(rest)
        for index, array in zip(self.places, arrays, strict=True):
            leaves[index] = array
        return trees.unflatten(self.spec, leaves)


def _is_staged(leaf: Any) -> bool:
    return isinstance(leaf, StagedArray)


def _read(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Variable) else leaf


class Primals:
    """Positional arguments that are all differentiated: float arrays in trees."""

    def __init__(self, name: str, what: str, primals: Sequence[Any], where: Position | None) -> None:
        if not isinstance(primals, tuple | list):
            raise GradientError(
                f"{what} of `{name}` takes its primals as a tuple, got {article(type(primals).__name__)}",
                where=where,
                hint="write a tuple, also for one of them: `(x,)`",
            )
        leaves, self.spec = trees.flatten(tuple(primals))
        self.paths = [f"argument {path.removeprefix('.')}" for path in trees.paths(self.spec, "")]
        self.arrays: list[Array] = []
        for path, leaf in zip(self.paths, leaves, strict=True):
            if not is_array(leaf):
                raise GradientError(
                    f"{what} of `{name}` by {path}, {article(type(leaf).__name__)}, does not exist",
                    where=where,
                    hint="close over what is no array: `lambda x: f(x, mode)`",
                )
            array = as_array(_read(leaf))
            if not array.dtype.is_inexact:
                raise GradientError(
                    f"{what} of `{name}` by {path}, {array.type}, does not exist: it is not a float",
                    where=where,
                    hint="close over it (`lambda x: f(x, k)`), or cast it with `st.astype(x, st.f32)` before the call",
                )
            self.arrays.append(array)
        if not self.arrays:
            raise GradientError(f"{what} of `{name}` is by nothing", where=where)

    def rebuild(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with these arrays in place of their own."""
        made: tuple[Any, ...] = trees.unflatten(self.spec, list(arrays))
        return made


def split_aux(name: str, made: Any, has_aux: bool, where: Position | None) -> tuple[Any, Any]:
    """(result, aux) of what a function returned."""
    if not has_aux:
        return made, None
    if not isinstance(made, tuple) or len(made) != 2:
        raise GradientError(f"with `has_aux=True`, `{name}` returns a pair (result, aux)", where=where)
    return made[0], made[1]


def matching(
    name: str, what: str, have: Any, spec: Any, wanted: Sequence[Array | None], where: Position | None
) -> list[Array | None]:
    """The leaves of a tree of tangents or cotangents, as arrays of the types `wanted`; None for zero.

    `spec` is the structure it must have; a leaf whose `wanted` is None stands for no float, and is not looked at.
    """
    leaves, found = trees.flatten(have)
    if found != spec:
        raise GradientError(
            f"{what} of `{name}` must have the structure of what it belongs to",
            where=where,
            details=(f"expected: {spec}", f"got:      {found}"),
            hint="give one leaf per array, in the same tree; None stands for zero",
        )
    arrays: list[Array | None] = []
    for leaf, want in zip(leaves, wanted, strict=True):
        if want is None or leaf is None:
            arrays.append(None)
            continue
        array = as_array(_read(leaf))
        if array.type.weak or want.type.weak:  # a Python number adopts the dtype of what it belongs to
            array = as_array(array, want.dtype) if not want.type.weak else _weak(array, want)
        if array.type != want.type:
            raise GradientError(
                f"{what} of `{name}` is {array.type} for {want.type}",
                where=where,
                hint=f"it needs the same shape and dtype: `st.astype(t, st.{want.dtype})`",
            )
        arrays.append(array)
    return arrays


def _weak(array: Array, like: Array) -> Array:
    return cast(array, like.dtype, True) if not array.shape else array
