"""The structs inside of `Buffers` that a program with many buffers has.

They follow the roles of buffers: Variables, gradients, residuals of loops, and values of the evaluation. If such a
struct has many fields, those of a layer, or of a state of an optimiser, are in a separate struct: `m->mean_layer1`.

Tested by `tests/backends/host/test_buffer_groups.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from staged.code.common_names import common_words
from staged.code.kernel_text import section_of
from staged.code.writer import Names, c_identifier
from staged.ir.buffers import Buffer, Plan
from staged.ir.nodes import Function, Op
from staged.ir.storage import structural_ops

MOST_FIELDS = 60
"""Fields of a struct that is not divided."""
LEAST_FIELDS = 8
"""Fields of one layer that become a struct."""
DEEPEST = 4
"""Layers inside one another by which structs are divided."""
_TRAINING = ("backward", "update")


@dataclass(frozen=True)
class Group:
    """A struct inside of `Buffers`, with its field, type and the function that returns the struct."""

    field: str
    type: str
    function: str
    """Equal structs have one type and one function."""


def groups_of(function: Function, plan: Plan) -> dict[Buffer, str]:
    """The name of the struct of each buffer that is in one; none in a program with few buffers or with a device."""
    buffers = plan.arena_buffers()
    if plan.device_bytes or len(buffers) <= MOST_FIELDS:
        return {}
    roles: dict[str, list[Buffer]] = {}
    trained = _until_trained(structural_ops(function.block))
    for buffer in buffers:
        roles.setdefault(_role(buffer, trained), []).append(buffer)
    return {buffer: name for role, members in roles.items() for buffer, name in _divided(members, role, role) if name}


class BufferGroups:
    """The structs of a program, and the names of the fields in each.

    `types` are the names of the program so far.
    """

    def __init__(self, function: Function, plan: Plan, types: Names) -> None:
        self.of = groups_of(function, plan)
        self.types = types
        self.names = {(group, c_identifier(buffer.name)) for buffer, group in self.of.items()}
        self.inside = {name: Names() for name in sorted({*self.of.values()})}
        self.fields: dict[str, set[tuple[str, str]]] = {name: set() for name in self.inside}
        """By struct, the types and names of the fields so far."""

    @property
    def structs(self) -> list[Group]:
        """The structs when all fields have names. Those of layers with equal fields are of one type."""
        equal: dict[object, list[str]] = {}
        for name, fields in self.fields.items():
            equal.setdefault((re.sub(r"\d+", "", name), frozenset(fields)), []).append(name)
        found = []
        for names in equal.values():
            common = "_".join(common_words(names))
            type, function = self.types.fresh(_title(common)), self.types.fresh(f"place_{common}")
            found += [Group(name, type, function) for name in names]
        return sorted(found, key=lambda group: group.field)

    def fresh(self, buffer: Buffer, names: Names) -> str:
        """A name for the field of a buffer: `mean_layer1.conv1_weight`, or one of `names` if it is not in a struct."""
        if buffer not in self.of:
            is_last = any(value.producer and value.producer.declared.is_loop for value in buffer.values)
            return names.fresh(buffer.name, others=[f"last_{buffer.name}"] if is_last else [])
        group = self.of[buffer]
        name, inside = _name_in(group, buffer), self.inside[group]
        short = name.removeprefix("evaluate_") if group.endswith("evaluation") else name
        hint = name if (group, short) in self.names else short
        field = inside.fresh(hint, others=[buffer.name])
        self.fields[group].add((buffer.type.dtype.c_name, field))
        return f"{group}.{field}"


def _name_in(group: str, buffer: Buffer) -> str:
    """The name of a buffer without the layer that a struct is of."""
    name = c_identifier(buffer.name)
    for layer in map(c_identifier, reversed(_paths(buffer))):
        if group == layer or group.startswith(f"{layer}_"):
            return re.sub(rf"(^|_){layer}_(?=[a-z])", r"\1", name)
    return name


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _until_trained(ops: Iterable[Op]) -> set[Op]:
    """The ops up to the last one of a training step; all of them in a program that does not train."""
    seen, until = list[Op](), 0
    for op in ops:
        seen.append(op)
        if op.declared.is_opaque and section_of(op) in _TRAINING:
            until = len(seen)
    return set(seen[: until or len(seen)])


def _role(buffer: Buffer, trained: set[Op]) -> str:
    if buffer.variable is not None:
        return "variables"
    makers = [value.producer for value in buffer.values if value.producer is not None]
    sections = {section_of(op) for op in makers if op.declared.is_opaque}
    if buffer.purpose == "gradient" or buffer.name.startswith("d_") or "backward" in sections:
        return "gradients"
    if buffer.purpose == "residuals of a loop":
        return "residuals"
    return "evaluation" if makers and trained.isdisjoint(makers) else ""


def _divided(buffers: Sequence[Buffer], role: str, name: str, depth: int = 1) -> list[tuple[Buffer, str]]:
    """Each buffer with the name of its struct: `name`, or the one of a layer if these are many."""
    layers: dict[str, list[Buffer]] = {}
    for buffer in buffers if len(buffers) > MOST_FIELDS and depth <= DEEPEST else ():
        paths = _paths(buffer)
        layers.setdefault(paths[depth - 1] if len(paths) >= depth else "", []).append(buffer)
    own = {path: members for path, members in layers.items() if path and len(members) >= LEAST_FIELDS}
    moved = {each for members in own.values() for each in members}
    found = [(each, name) for each in buffers if each not in moved]
    for path, members in own.items():
        layer = c_identifier(path)
        found += _divided(members, role, layer if role in ("", "variables") else f"{layer}_{role}", depth + 1)
    return found


def _paths(buffer: Buffer) -> list[str]:
    """The layers of a buffer, the outermost first: `features`, `features.fire3`."""
    of_value = buffer.where.part if buffer.where is not None else ""
    words = (buffer.variable.name if buffer.variable is not None else of_value).split(".")
    return [".".join(words[: number + 1]) for number in range(len(words))] if words != [""] else []
