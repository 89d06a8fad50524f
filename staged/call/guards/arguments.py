"""The part of a check that compares the arguments of a call, and returns the inputs of the program.

`flatten_arguments` returns the access path, the kind and the type of each leaf.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from staged.call.guards.check import Writer
from staged.call.guards.expected import expected_argument, held, same
from staged.ir.size_functions import as_text, of_user, renamed
from staged.ir.sizes import Dim, Extent, value_of
from staged.ir.types import TensorType, shape_text
from staged.source import Position

Access = tuple[str | tuple[Any], ...]
"""The access path of a part, in steps: `("args[1]", "['x']", ".weight")`. Keys other than strings and integers are in a
tuple.
"""


@dataclass(frozen=True, eq=False)
class Kind:
    """The kind of a part: a check compares the same properties of all parts of a kind."""

    word: Literal["node", "static", "named", "number", "scalar", "array", "foreign"]
    """`named` is a static argument that `static=` names, `foreign` an array of another library."""
    classes: tuple[type, ...] = ()
    """The classes that fit; empty for the class of the part."""
    convert: Callable[[Any], Any] | None = None
    """Returns the input of the program for a foreign array."""


# Not frozen: a trace makes hundreds.
@dataclass(slots=True, eq=False)
class Part:
    """A node or a leaf of an argument."""

    name: str
    """The parameter, or the keyword."""
    kind: Kind
    given: Any
    """The value that the caller passed."""


@dataclass(slots=True, eq=False)
class Argument(Part):
    """A staged leaf."""

    path: str
    """Its name for users: `model.0.weight`."""
    type: TensorType
    value: Any
    """`given`, or NumPy's array of its memory."""


@dataclass(frozen=True, slots=True)
class SizeOf:
    """The source of a dimension in a call: `(shape[axis] - offset) // factor` of the argument number `argument`."""

    dim: Dim
    argument: int
    axis: int
    factor: int = 1
    offset: Extent = 0

    def value(self, shape: Sequence[int], dims: Mapping[Dim, int]) -> int:
        """The size, given the shape of the argument and the dimensions before this one."""
        return (shape[self.axis] - value_of(self.offset, dims)) // self.factor

    def text(self, shape: str, names: Mapping[str, str]) -> str:
        """The size as Python, with names for the dimensions before this one."""
        size = f"{shape}[{self.axis}]" + (f" - ({as_text(self.offset, names)})" if self.offset != 0 else "")
        return size if self.factor == 1 else f"({size}) // {self.factor}"


def sizes_of(sizes: Iterable[SizeOf], shapes: Callable[[int], Sequence[int]]) -> dict[Dim, int]:
    """The dimensions of a call, given the shape of each argument."""
    found: dict[Dim, int] = {}
    for size in sizes:
        found[size.dim] = size.value(shapes(size.argument), found)
    return found


def described_sizes(
    sizes: Iterable[SizeOf], values: Mapping[Dim, int], leaves: Sequence[Argument], where: Position | None
) -> list[str]:
    """A line for each dimension: its value, its axis, and the position of the function that has the argument."""
    lines = []
    for size in sizes:
        extent = size.dim * size.factor + size.offset
        axis = f"axis {size.axis} of `{leaves[size.argument].path}`"
        form = "" if extent == size.dim else f" is {of_user(extent)}"
        lines.append(f"{of_user(size.dim)} is {values[size.dim]}: {axis}{form}{f' ({where})' if where else ''}")
    return lines


def write_arguments(
    writer: Writer,
    positional: int,
    keywords: tuple[str, ...],
    parts: Iterable[tuple[Access, Part]],
    sizes: Sequence[SizeOf] = (),
    relations: Iterable[str] = (),
) -> tuple[list[str], list[str]]:
    """Compare the arguments; return the expressions for the staged leaves, in the order of the trace, and for sizes."""
    writer.label = "the number of arguments given by place"
    writer.refuse(f"len(args) != {positional}")
    writer.label = "the list of arguments given by name"
    writer.refuse(f"tuple(kwargs) != {keywords!r}" if keywords else "kwargs")
    locals: dict[Access, str] = {(): ""}
    inputs: list[str] = []
    staged: list[Argument] = []
    for access, part in parts:
        writer.label = f"the argument `{part.name}`"
        step = access[-1]
        key = step if isinstance(step, str) else f"[{writer.constant(*step)}]"
        text = locals[access] = writer.local(locals[access[:-1]] + key)
        if isinstance(part, Argument):
            inputs.append(_write_input(writer, text, part))
            staged.append(part)
        elif part.kind.word == "node":
            _write_node(writer, text, part.given)
        else:
            writer.expect(text, expected_argument(part.given))
    return inputs, _write_sizes(writer, inputs, staged, sizes, relations)


def _write_sizes(
    writer: Writer,
    inputs: Sequence[str],
    leaves: Sequence[Argument],
    sizes: Sequence[SizeOf],
    relations: Iterable[str],
) -> list[str]:
    """Find the dimensions and compare the shapes that have some; return the expressions for the sizes."""
    names: dict[str, str] = {}
    shapes = {}
    for place, (text, leaf) in enumerate(zip(inputs, leaves, strict=True)):
        if not leaf.type.is_static:
            writer.label = f"the shape of the argument `{leaf.name}`"
            shapes[place] = writer.local(f"{text}.shape")
    for size in sizes:
        writer.label = f"the size `{size.dim}` of the argument `{leaves[size.argument].name}`"
        found = names[str(size.dim)] = writer.local(size.text(shapes[size.argument], names))
        writer.refuse(f"not {size.dim.least} <= {found} <= {size.dim.max}")
    for place, shape in shapes.items():
        writer.label = f"the shape of the argument `{leaves[place].name}`"
        writer.refuse(f"{shape} != {shape_text([as_text(extent, names) for extent in leaves[place].type.shape])}")
    for relation in relations:
        writer.label = f"the relation {relation} of sizes"
        writer.refuse(f"not {renamed(relation, names)}")
    return list(names.values())


def _write_node(writer: Writer, text: str, value: Any) -> None:
    writer.refuse(f"type({text}) is not {writer.constant(type(value))}")
    if not dataclasses.is_dataclass(value):
        writer.refuse(f"len({text}) != {len(value) if hasattr(value, '__len__') else 0}")
    if isinstance(value, dict):
        # The keys in their order, which the function sees; 1 is not True.
        keys = writer.constant(tuple(value))
        writer.refuse(f"tuple({text}) != {keys}")
        if not all(type(key) is str for key in value):
            writer.constants["all_same"] = lambda found, keys: all(map(same, found, keys))
            writer.refuse(f"not all_same({text}, {keys})")


def _write_input(writer: Writer, text: str, leaf: Argument) -> str:
    """Compare a staged leaf; return the expression for the input of the program."""
    classes, array = leaf.kind.classes, leaf.given
    wrong = f"type({text}) " + (
        f"not in {writer.constant(classes)}" if classes else f"is not {writer.constant(type(leaf.given))}"
    )
    match leaf.kind.word:
        case "number" | "scalar":
            writer.refuse(wrong)
            if isinstance(leaf.given, int):
                writer.refuse(f"not {-(2**63)} <= {text} < {2**63}")
            return text
        case "array":
            shape = f" or {text}.shape != {array.shape!r}" if leaf.type.is_static else ""
            writer.refuse(f"{wrong}{shape}")
        case "foreign":
            writer.refuse(wrong)
            array = leaf.value
            text = writer.local(f"{writer.constant(leaf.kind.convert)}({text})")
            if not isinstance(array, np.ndarray):
                writer.refuse(
                    f"type({text}) is not {writer.constant(type(array))} or {text}.device != "
                    f"{writer.constant(array.device)}"
                )
            if leaf.type.is_static:
                writer.refuse(f"{text}.shape != {array.shape!r}")
        case other:
            raise AssertionError(other)
    dtype = writer.constant(array.dtype)
    writer.refuse(f"{text}.dtype is not {dtype} and {text}.dtype != {dtype}")
    return text


def write_captured(writer: Writer, array: Any, older: dict[int, Any]) -> str:
    """The expression for a captured array. Older arrays, also those that it is a view of, are not kept alive."""
    if id(array) in older:
        return writer.object(held(array))
    base = getattr(array, "base", None)
    if isinstance(base, np.ndarray) and any(each is base or each.base is base for each in older.values()):
        offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        try:
            view: Callable[..., Any] = partial(_array, array.shape, array.dtype, offset=offset, strides=array.strides)
            view(buffer=base)
        except (TypeError, ValueError):  # memory that is not in one piece
            return writer.constant(array)
        return f"{writer.constant(partial(_view, weakref.ref(base), view))}()"
    return writer.constant(array)


def _array(*args: Any, **kwargs: Any) -> Any:
    return np.ndarray(*args, **kwargs)


def _view(base: weakref.ref[Any], view: Callable[..., Any]) -> Any:
    found = base()
    assert found is not None, "an array died between the check of a call and its run"
    return view(buffer=found)
