"""The sizes of a program's arrays: expressions over its dimensions, which are fields of the argument struct.

Tested by `tests/dynamic_sizes/test_exports.py`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from staged.base.artifact import Parameter
from staged.code.expr import Group, Name
from staged.code.extents import size_expr
from staged.ir.size_functions import parsed
from staged.ir.sizes import Dim, Extent, Size, dims_in, terms_of, value_of


@dataclass(frozen=True)
class Sizes:
    """The sizes of the parameters of a program."""

    name: str
    """The name of the program."""
    parameters: Sequence[Parameter]

    @cached_property
    def fields(self) -> dict[Dim, Parameter]:
        """By dimension: the field with its value."""
        return {Dim(each.label, each.most, least=each.least): each for each in self.parameters if each.is_size}

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

    @cached_property
    def sources(self) -> dict[Dim, tuple[Extent, int, Extent]]:
        """By dimension: a size `a * dim + b` that an argument has, with a and b: the dimension itself if possible.

        Each b has only dimensions that come before.
        """
        extents = [extent for each in self.parameters if each.role == "input" for extent in self.shape(each)]
        sources: dict[Dim, tuple[Extent, int, Extent]] = {}
        while waiting := [dim for dim in self.fields if dim not in sources]:
            found = [(dim, source) for dim in waiting for source in _sources(dim, extents, sources.keys())]
            dim, source = next((each for each in found if each[0] == each[1][0]), found[0])
            sources[dim] = source
        return sources

    def factor(self, extent: Size) -> str:
        """A size as a factor in a macro whose parameters are dimensions."""
        if isinstance(extent, Dim):
            return f"(size_t)({self.fields[extent].field})"
        size = size_expr(extent, lambda dim: Name(f"(int64_t)({self.fields[dim].field})"))
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


def _sources(dim: Dim, extents: Sequence[Extent], known: Collection[Dim]) -> Iterator[tuple[Extent, int, Extent]]:
    """The sizes `a * dim + b` with known b: the size, a and b."""
    for extent in extents:
        factor = terms_of(extent).get((dim,), 0)
        rest = extent - dim * factor
        if factor and set(dims_in(rest)) <= set(known):
            yield extent, factor, rest
