"""The places of Variables in the argument struct: a field each, and arrays for those of equal layers.

The Variables `blocks.0.norm.weight`, `blocks.1.norm.weight`, ... of a family are `blocks[0].norm_weight`,
`blocks[1].norm_weight`, ...: an array of structs has the families of the same layers. If nothing in their names is
behind the number of the layer, the field itself is an array: `weights[0]`, `weights[1]`, ...

Tested by `tests/backends/native/test_layer_fields.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from staged.code.expr import Expr, Index, Literal, Member
from staged.code.writer import Names
from staged.ir.nodes import VariableRef

_WORDS = re.compile(r"[^._]+|[._]")


@dataclass(frozen=True)
class ArgumentField:
    """The place of a Variable, or of a whole family if it has an array and no `index`."""

    field: str
    array: str = ""
    index: int | None = None

    def at(self, args: Expr, layer: Expr | None = None) -> Expr:
        """The expression for it, of a given layer if it is a family."""
        if layer is None and self.index is not None:
            layer = Literal(str(self.index))
        if layer is None:
            return Member(args, self.field)
        if not self.array:
            return Index(Member(args, self.field), layer)
        return Member(Index(Member(args, self.array), layer), self.field, arrow=False)


def argument_fields(variables: Sequence[VariableRef], names: Names) -> dict[VariableRef, ArgumentField]:
    """By Variable of the caller and by family of them: the field in the argument struct. Its names enter `names`."""
    family_of = {member: each for each in variables if each.outer for member in each.members}
    arrays: dict[tuple[str, ...], tuple[str, Names]] = {}
    """By layers, as their Variables name them: the array of structs, and the names in such a struct."""
    fields: dict[VariableRef, ArgumentField] = {}
    for variable in variables:
        if not variable.outer or variable.members or variable in fields:
            continue
        family = family_of.get(variable)
        if family is None:
            fields[variable] = ArgumentField(names.fresh(variable.name))
            continue
        layers, rest = _layers_of(family)
        if not rest:
            fields[family] = ArgumentField(names.fresh(family.name))
        else:
            if layers not in arrays:
                arrays[layers] = names.fresh(_array_name(layers[0])), Names()
            array, own = arrays[layers]
            fields[family] = ArgumentField(own.fresh(rest), array)
        fields.update((member, replace(fields[family], index=number)) for number, member in enumerate(family.members))
    return fields


def _layers_of(family: VariableRef) -> tuple[tuple[str, ...], str]:
    """The layers of a family (`blocks.0`, `blocks.1`), and the name of its Variables in a layer (`norm.weight`)."""
    words = [_WORDS.findall(member.name) for member in family.members]
    if any(len(each) != len(words[0]) for each in words):
        return (), ""
    first = next(number for number, row in enumerate(zip(*words, strict=True)) if len(set(row)) > 1)
    before = "".join(words[0][:first])
    layers = tuple(["".join(each[: first + 1]) for each in words])
    return layers, family.name.removeprefix(before.rstrip("._")).strip("._")


def _array_name(layer: str) -> str:
    """The name of the array that begins with a layer: `blocks` for `blocks.block0`, and `block` for `block0`."""
    *before, _ = _WORDS.findall(layer)
    whole = "".join(before) if before[-1:] == ["."] else layer.rstrip("0123456789")
    return whole.strip("._") or "layers"
