"""`vmap`: a function of one element, applied to a whole axis of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import ShapeError, StagingError
from staged.frontend.calls.call import call
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import Refusal, RefusedEffect, refusing
from staged.frontend.transforms.leaves import Outputs, is_array, name_of, plain
from staged.frontend.transforms.recording import effects_in, record
from staged.frontend.values import trees
from staged.frontend.values.variable import Variable
from staged.ir.nodes import Op
from staged.ir.sizes import Extent
from staged.ir.structure import VMAP
from staged.ir.types import TensorType
from staged.ops.array import Array
from staged.ops.context import current_context, use_context
from staged.ops.joining import stack
from staged.ops.promote import as_array, axis_of, cast
from staged.ops.shape import moveaxis
from staged.ops.source import zeros
from staged.ops.subscript import get_item
from staged.source import Position, here


def _hints(what: str) -> dict[RefusedEffect, str]:
    after = what.removeprefix("a ")
    return {
        "write": f"return the new values, and write the Variable after the {after}",
        "print": f"return what is to be printed, and print it after the {after}",
        "random": "draw the numbers before, for all elements, and pass them as a mapped argument",
    }


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """f mapped over an axis of its arguments, as if it were called for each element and the results were stacked.

    `in_axes` says which axis of each argument is mapped: an int or None (the argument is the same for all) for all of
    them, or a tuple with one per positional argument, each an int, None or a tree of these that fits the argument.
    Keyword arguments are mapped along axis 0. `out_axes` says where the new axis goes, likewise for the result; None
    keeps a result that does not depend on a mapped value as it is. Leaves that are not arrays (strings, configurations)
    are passed unchanged. Branches on mapped values compute both sides; writes of Variables, prints and random numbers
    inside are refused. JAX `vmap`.

    Raises: ShapeError for axes that do not exist or differ in extent; StagingError for effects, and for loops whose
    bounds or conditions depend on mapped values.
    """

    @functools.wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return batched(f, name_of(f), "a `vmap`", args, kwargs, in_axes, out_axes, here())

    return plain(mapped)


def batched(
    f: Callable[..., Any],
    name: str,
    what: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    in_axes: Any,
    out_axes: Any,
    where: Position | None,
) -> Any:
    """One call of a mapped function; `what` it is called in messages."""
    given = _Mapped(name, args, kwargs, in_axes, where)
    trace = current_trace()
    with refusing(Refusal(what, _hints(what))):
        if trace is not None:
            return _record(trace, f, name, what, given, out_axes, where)
        return _run_eagerly(f, name, given, out_axes, where)


class _Mapped:
    """The arguments of one call: which leaves are mapped, with their axis in front, and how many elements there are."""

    def __init__(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any, where: Position | None
    ) -> None:
        self.leaves, self.spec = trees.flatten((args, kwargs))
        axes = _axes_of(name, args, in_axes, where) + [0] * len(trees.flatten(kwargs)[0])
        paths = [path.removeprefix(".") for path in trees.paths(trees.flatten(args)[1], "")]
        self.places: list[int] = []
        self.arrays: list[Array] = []
        sizes: list[tuple[str, Extent]] = []
        for place, (leaf, axis) in enumerate(zip(self.leaves, axes, strict=True)):
            if axis is None or not is_array(leaf):
                continue
            array = as_array(leaf.value if isinstance(leaf, Variable) else leaf)
            path = f"argument {paths[place]}" if place < len(paths) else "a keyword argument"
            if not array.ndim:
                raise ShapeError(
                    f"`vmap` of `{name}` maps {path}, which is a scalar ({array.type})",
                    where=where,
                    hint="give it None in `in_axes`: it is then the same for all elements",
                )
            if not -array.ndim <= axis < array.ndim:
                raise ShapeError(f"`vmap` of `{name}` maps axis {axis} of {path}, {array.type}", where=where)
            array = moveaxis(array, axis, 0)
            self.places.append(place)
            self.arrays.append(array)
            sizes.append((path, array.shape[0]))
        if not sizes:
            raise ShapeError(
                f"`vmap` of `{name}` maps nothing", where=where, hint="give at least one array an axis in `in_axes`"
            )
        self.size = sizes[0][1]
        for path, size in sizes:
            if size != self.size:
                raise ShapeError(
                    f"`vmap` of `{name}` maps axes of different extents: {self.size} of {sizes[0][0]}, {size} of "
                    f"{path}",
                    where=where,
                    hint="mapped axes have one extent; None in `in_axes` keeps an argument whole",
                )

    def arguments(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with one element in place of each mapped array."""
        leaves = list(self.leaves)
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = array
        made: tuple[tuple[Any, ...], dict[str, Any]] = trees.unflatten(self.spec, leaves)
        return made


def _is_axis(axis: Any) -> bool:
    return axis is None or (isinstance(axis, int) and not isinstance(axis, bool))


def _axes_of(name: str, args: tuple[Any, ...], in_axes: Any, where: Position | None) -> list[Any]:
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ShapeError(
            f"`vmap` of `{name}` has {len(in_axes)} `in_axes` for {len(args)} positional arguments",
            where=where,
            hint="give one per argument, or one for all",
        )
    return _spread(name, "in_axes", in_axes, args, where)


def _spread(name: str, what: str, axes: Any, tree: Any, where: Position | None) -> list[Any]:
    """One axis per leaf of `tree`, from a tree of axes that may stop above the leaves."""
    found = trees.prefix(axes, tree)
    if found is None or not all(map(_is_axis, found)):
        raise ShapeError(
            f"`{what}` of `vmap` of `{name}` does not fit: {axes!r}",
            where=where,
            hint="axes are ints or None, in a tree that fits the arguments (or the result)",
        )
    return found


def _placed(array: Array, axis: int) -> Array:
    return moveaxis(array, 0, axis_of(axis, array.ndim, "vmap"))


# ---- recorded -----------------------------------------------------------------------------------


def _record(
    trace: TraceContext,
    f: Callable[..., Any],
    name: str,
    what: str,
    given: _Mapped,
    out_axes: Any,
    where: Position | None,
) -> Any:
    made: list[Outputs] = []

    def run(params: list[Any]) -> list[Any]:
        args, kwargs = given.arguments(params)
        made.append(Outputs(call(f, *args, **kwargs)))
        return [_strong(array) for array in made[0].arrays]

    primals = [trace.value_of(array) for array in given.arrays]
    types = [TensorType(array.dtype, array.shape[1:]) for array in given.arrays]
    recording = record(trace, name, primals, run, where, types=types, stateless=True)
    for op in effects_in(recording.block):
        raise StagingError(f"`{op.name}` inside {what}", where=op.where, hint=_hints(what)["print"])
    (outputs,) = made
    axes = _spread(name, "out_axes", out_axes, trees.unflatten(outputs.spec, outputs.leaves), where)
    axes = [axes[place] for place in outputs.places]
    block, captures = recording.closed()
    op = Op(
        VMAP,
        captures,
        [TensorType(value.tensor.dtype, (given.size, *value.tensor.shape)) for value in recording.yields],
        attrs={
            "mapped": tuple(index < len(primals) for index in range(len(captures))),
            "size": given.size,
            "outputs": len(recording.yields),
            "whole": tuple(index for index, axis in enumerate(axes) if axis is None),
        },
        blocks=[block],
        device=trace.builder.device,
        where=where,
    )
    for result, value in zip(op.results, recording.yields, strict=True):
        result.hint = value.hint
    results = trace.emit_op(op)
    return outputs.rebuild(
        [
            get_item(result, 0) if axis is None else _placed(result, axis)
            for result, axis in zip(results, axes, strict=True)
        ]
    )


def _strong(array: Array) -> Array:
    """A Python number as an array of its own precision: elements of an array adopt no dtype."""
    return cast(array, array.dtype, False)


# ---- in eager mode ------------------------------------------------------------------------------


def _run_eagerly(f: Callable[..., Any], name: str, given: _Mapped, out_axes: Any, where: Position | None) -> Any:
    context = current_context()
    assert isinstance(given.size, int)
    rows: list[Outputs] = []
    with use_context(context):
        # Of no elements only the types count: they are those of any element.
        elements = range(given.size) if given.size else [None]
        for number in elements:
            arrays = [
                zeros(array.shape[1:], array.dtype) if number is None else get_item(array, number)
                for array in given.arrays
            ]
            args, kwargs = given.arguments(arrays)
            rows.append(Outputs(call(f, *args, **kwargs)))
    first = rows[0]
    for row in rows:
        if row.spec != first.spec:
            raise StagingError(f"`{name}` gives results of different structure under `vmap`", where=where)
    axes = _spread(name, "out_axes", out_axes, trees.unflatten(first.spec, first.leaves), where)
    stacked = []
    for index, place in enumerate(first.places):
        axis = axes[place]
        column = [_strong(row.arrays[index]) for row in rows]
        if axis is None:
            _check_alike(column, where)
            stacked.append(column[0])
        elif given.size:
            stacked.append(_placed(stack(column), axis))
        else:
            stacked.append(_placed(zeros((0, *column[0].shape), column[0].dtype), axis))
    return first.rebuild(stacked)


def _check_alike(column: Sequence[Array], where: Position | None) -> None:
    first, *others = (np.asarray(array) for array in column)
    if not all(np.array_equal(first, other, equal_nan=first.dtype.kind == "f") for other in others):
        raise StagingError(
            "a result with None in `out_axes` depends on what is mapped",
            where=where,
            hint="give it an axis, and choose or reduce after the `vmap`",
        )
