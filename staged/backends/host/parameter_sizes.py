"""The sizes of a program's arrays: expressions over its dimensions, which are fields of the argument struct.

Tested by `tests/dynamic_sizes/test_exports.py`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from staged.base.artifact import Parameter
from staged.code.expr import Expr, Group, Name
from staged.code.extents import size_expr
from staged.ir.size_functions import linear, parsed
from staged.ir.sizes import Dim, Extent, Size, dims_in, value_of


@dataclass(frozen=True)
class Sizes:
    """The sizes of the parameters of a program."""

    name: str
    """The name of the program."""
    parameters: Sequence[Parameter]

    @cached_property
    def fields(self) -> dict[Dim, Parameter]:
        """By dimension: the field with its value."""
        return {Dim(each.label, each.most): each for each in self.parameters if each.is_size}

    @cached_property
    def macros(self) -> dict[Dim, str]:
        """By dimension: the macro of its bound."""
        macros: dict[Dim, str] = {}
        for dim, field in self.fields.items():
            base = f"{self.name}_{field.field}".upper()
            numbered = (base if count == 1 else f"{base}_{count}" for count in itertools.count(1))
            macros[dim] = next(f"{each}_MAX" for each in numbered if f"{each}_MAX" not in macros.values())
        return macros

    def shape(self, parameter: Parameter) -> tuple[Extent, ...]:
        """The shape of an array."""
        return tuple([self._extent(extent) if isinstance(extent, str) else extent for extent in parameter.shape])

    def _extent(self, text: str) -> Extent:
        dims = {dim.name: dim for dim in self.fields}
        return parsed(ast.parse(text, mode="eval").body, dims.__getitem__)

    @cached_property
    def found(self) -> list[Extent]:
        """All sizes in shapes that are not known while staging: dimensions first."""
        extents = (extent for each in self.parameters for extent in self.shape(each) if not isinstance(extent, int))
        return list(dict.fromkeys((*self.fields, *extents)))

    def source(self, dim: Dim) -> tuple[Extent, int, int]:
        """A size `a * dim + b` that an argument has, with a and b: the dimension itself if possible."""
        arguments = [each for each in self.parameters if each.role == "input"]
        extents = [extent for each in arguments for extent in self.shape(each)]
        sources = [(extent, found) for extent in extents if (found := linear(extent)) and found[0] == dim]
        extent, (_, factor, offset) = min(sources, key=lambda source: source[0] != dim)
        return extent, factor, offset

    def in_c(self, extent: Extent, value: Callable[[Parameter], str]) -> Expr:
        """A size in C, given the value of a dimension by its field."""
        return size_expr(extent, lambda dim: Name(value(self.fields[dim])))

    def factor(self, extent: Size) -> str:
        """A size as a factor in a macro whose parameters are dimensions."""
        if isinstance(extent, Dim):
            return f"(size_t)({self.fields[extent].field})"
        size = self.in_c(extent, lambda dim: f"(int64_t)({dim.field})")
        return f"(size_t){size if isinstance(size, Group) else Group(size)}"

    def dims_of(self, parameter: Parameter) -> list[Dim]:
        """The dimensions that the shape of an array has, in the order of the fields."""
        inside = {dim for extent in self.shape(parameter) for dim in dims_in(extent)}
        return [dim for dim in self.fields if dim in inside]

    def at_export(self, parameter: Parameter) -> list[int]:
        """The shape of an array for the sizes at the time of export."""
        return [value_of(extent, self.values) for extent in self.shape(parameter)]

    @property
    def values(self) -> Mapping[Dim, int]:
        """The sizes at the time of export."""
        return {dim: field.start for dim, field in self.fields.items()}
