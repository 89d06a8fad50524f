"""The places of Variables in the argument struct: a field each, and arrays for those of equal layers.

The Variables `blocks.0.norm.weight`, `blocks.1.norm.weight`, ... of a family are `blocks[0].norm_weight`,
`blocks[1].norm_weight`, ...: an array of structs has the families of the same layers. If nothing in their names is
behind the number of the layer, the field itself is an array: `weights[0]`, `weights[1]`, ...

Layers with equal fields of different sizes are structs: `fire3.squeeze_weight`, `fire4.squeeze_weight`, ...

Tested by `tests/backends/native/test_layer_fields.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from staged.code.expr import Expr, Index, Literal, Member
from staged.code.writer import Names
from staged.ir.nodes import VariableRef

Key = TypeVar("Key", bound=Hashable)
LEAST = 4
"""Fields of a layer that has a struct."""
_WORDS = re.compile(r"[^._]+|[._]")


@dataclass(frozen=True)
class ArgumentField:
    """The place of a Variable, or of a whole family if it has an array and no `index`. The array may be a struct."""

    field: str
    array: str = ""
    index: int | None = None
    is_struct: bool = False

    def at(self, args: Expr, layer: Expr | None = None) -> Expr:
        """The expression for it, of a given layer if it is a family."""
        if layer is None and self.index is not None:
            layer = Literal(str(self.index))
        if layer is None or self.is_struct:
            return Member(args, f"{self.array}.{self.field}" if self.is_struct else self.field)
        if not self.array:
            return Index(Member(args, self.field), layer)
        return Member(Index(Member(args, self.array), layer), self.field, arrow=False)


def argument_fields(
    variables: Sequence[VariableRef], names: Names, has_structs: bool = False
) -> dict[VariableRef, ArgumentField]:
    """By Variable of the caller and by family of them: the field in the argument struct. Its names enter `names`."""
    families = [each for each in variables if each.outer and each.members]
    labels = {each: each.name for each in variables if each.outer and not each.members}
    fields = _fields(labels, [each.members for each in families], names, has_structs)
    return fields | {each: replace(fields[each.members[0]], index=None) for each in families}


def result_fields(
    labels: Sequence[str],
    kept: Mapping[VariableRef, int],
    variables: Sequence[VariableRef],
    names: Names,
    has_structs: bool = False,
) -> tuple[list[ArgumentField], dict[VariableRef, ArgumentField]]:
    """The field of each result, and by Variable of the program that is `kept` in one, and by family of these."""
    families = [each for each in variables if each.members and each.members[0] in kept]
    numbers = [[kept[member] for member in each.members] for each in families]
    fields = _fields(dict(enumerate(labels)), numbers, names, has_structs)
    of_variables = {variable: fields[number] for variable, number in kept.items()}
    of_variables |= {each: replace(fields[row[0]], index=None) for each, row in zip(families, numbers, strict=True)}
    return [fields[number] for number in range(len(labels))], of_variables


def _fields(
    labels: Mapping[Key, str], families: Iterable[Sequence[Key]], names: Names, has_structs: bool
) -> dict[Key, ArgumentField]:
    """The fields of things with labels, in their order; those of a family are of equal layers, layer by layer."""
    family_of = {member: family for family in families for member in family}
    structs = _structs([label for key, label in labels.items() if key not in family_of]) if has_structs else {}
    arrays: dict[tuple[str, ...], tuple[str, Names]] = {}
    """By layers, as their labels name them: the array of structs, and the names in such a struct."""
    fields: dict[Key, ArgumentField] = {}
    for key, label in labels.items():
        if key in fields:
            continue
        if key not in family_of and label in structs:
            layer = structs[label]
            if (layer,) not in arrays:
                arrays[layer,] = names.fresh(layer), Names()
            struct, own = arrays[layer,]
            fields[key] = ArgumentField(own.fresh(label.removeprefix(f"{layer}.")), struct, is_struct=True)
            continue
        if key not in family_of:
            fields[key] = ArgumentField(names.fresh(label))
            continue
        before, layers, rest = _layers_of([labels[member] for member in family_of[key]])
        if not rest:
            field = ArgumentField(names.fresh(before or label))
        else:
            if layers not in arrays:
                arrays[layers] = names.fresh(_array_name(layers[0])), Names()
            array, own = arrays[layers]
            field = ArgumentField(own.fresh(rest), array)
        fields.update((member, replace(field, index=number)) for number, member in enumerate(family_of[key]))
    return fields


def _structs(labels: Sequence[str]) -> dict[str, str]:
    """By label, the outermost layer that has a struct: another layer has fields of the same names."""
    inside: dict[str, list[str]] = {}
    for label in labels:
        words = label.split(".")
        for number in range(1, len(words)):
            inside.setdefault(".".join(words[:number]), []).append(".".join(words[number:]))
    count = Counter(tuple(rests) for rests in inside.values() if len(rests) >= LEAST)
    found: dict[str, str] = {}
    for layer, rests in inside.items():
        is_whole = len({rest.partition(".")[0] for rest in rests}) > 1  # not only one inner layer
        if is_whole and count[tuple(rests)] > 1 and f"{layer}.{rests[0]}" not in found:
            found.update((f"{layer}.{rest}", layer) for rest in rests)
    return found


def _layers_of(labels: Sequence[str]) -> tuple[str, tuple[str, ...], str]:
    """The name before the number of the layer, the layers (`blocks.0`, `blocks.1`), and the name in a layer."""
    words = [_WORDS.findall(label) for label in labels]
    if any(len(each) != len(words[0]) for each in words):
        return labels[0], (), ""
    first = next(number for number, row in enumerate(zip(*words, strict=True)) if len(set(row)) > 1)
    before, after = "".join(words[0][:first]), "".join(words[0][first + 1 :])
    return before.strip("._"), tuple(["".join(each[: first + 1]) for each in words]), after.strip("._")


def _array_name(layer: str) -> str:
    """The name of the array that begins with a layer: `blocks` for `blocks.block0`, and `block` for `block0`."""
    *before, _ = _WORDS.findall(layer)
    whole = "".join(before) if before[-1:] == ["."] else layer.rstrip("0123456789")
    return whole.strip("._") or "layers"
