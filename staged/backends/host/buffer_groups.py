"""The structs inside of `Buffers` that a program with many buffers has.

They follow the roles of buffers: Variables, gradients, residuals of loops, and values of the evaluation. If such a
struct has many fields, those of a layer, or of a state of an optimiser, are in a separate struct: `m->mean_layer1`.
A loop that keeps much has a struct for each iteration: `m->layer1_residuals[layer]`.

Tested by `tests/backends/host/test_buffer_groups.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from staged.backends.host.loop_structs import LoopStruct, Slot, loop_structs
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
LEAST_OF_EQUAL = 4
"""Fields of one of several equal layers that become a struct."""
DEEPEST = 4
"""Layers inside one another by which structs are divided."""
LONGEST_NUMBER = 6
_NUMBERS = re.compile(r"(\d+)")
_TRAINING = ("backward", "update")


@dataclass(frozen=True)
class Group:
    """A struct inside of `Buffers`, with its field, type and the function that returns the struct."""

    field: str
    type: str
    function: str
    """Equal structs have one type and one function."""
    loop: LoopStruct | None = None
    """The loop that has a struct for each iteration."""


def groups_of(function: Function, plan: Plan, loops: Mapping[Buffer, LoopStruct]) -> dict[Buffer, str]:
    """The name of the struct of each buffer that is in one, besides those of `loops`; none in a program with few
    buffers or with a device.
    """
    buffers = [buffer for buffer in plan.arena_buffers() if buffer not in loops]
    arrays = {each.array for each in loops.values()}
    if plan.device_bytes or len(buffers) + len(arrays) < MOST_FIELDS:
        return {}
    roles: dict[str, list[Buffer]] = {}
    trained = _until_trained(structural_ops(function.block))
    for buffer in buffers:
        roles.setdefault(_role(buffer, trained), []).append(buffer)
    found: dict[Buffer, str] = {}
    for role, members in roles.items():
        equal = {buffer: _struct_of(path, role) for buffer, path in _equal_layers(members).items()}
        found |= equal
        found |= dict(_divided([each for each in members if each not in equal], role, role))
    taken = {c_identifier(each.name) for each in buffers} | arrays
    clashes = {_without_numbers(name) for name in {*found.values()} & taken}
    return {
        buffer: f"{name}_state" if _without_numbers(name) in clashes else name for buffer, name in found.items() if name
    }


class BufferGroups:
    """The structs of a program, and the names of the fields in each.

    `types` are the names of the program so far.
    """

    def __init__(self, function: Function, plan: Plan, types: Names) -> None:
        self.loops = {buffer: struct for struct in loop_structs(function, plan) for buffer in struct.fields}
        self.of = groups_of(function, plan, self.loops)
        self.types = types
        self.names = {(group, c_identifier(buffer.name)) for buffer, group in self.of.items()}
        self.of |= {buffer: struct.array for buffer, struct in self.loops.items()}
        self.inside = {name: Names() for name in sorted({*self.of.values()})}
        self.fields: dict[str, set[tuple[str, str]]] = {name: set() for name in self.inside}
        """By struct, the types and names of the fields so far."""

    @property
    def structs(self) -> list[Group]:
        """The structs when all fields have names. Those of layers with equal fields are of one type."""
        equal, loops = dict[object, list[str]](), {each.array: each for each in self.loops.values()}
        for name, fields in self.fields.items():
            equal.setdefault((_without_numbers(name), frozenset(fields)), []).append(name)
        found = []
        for names in equal.values():
            common = "_".join(common_words(names))
            type, function = self.types.fresh(_title(common)), self.types.fresh(f"place_{common}")
            found += [Group(name, type, function, loops.get(name)) for name in names]
        return sorted(found, key=lambda group: [word.zfill(LONGEST_NUMBER) for word in _NUMBERS.split(group.field)])

    def fresh(self, buffer: Buffer, names: Names) -> str:
        """A name for the field of a buffer: `mean_layer1.conv1_weight`, or one of `names` if it is not in a struct."""
        if buffer not in self.of:
            made_by = [value.producer for value in buffer.values]
            is_last = any(op and op.declared.is_loop for op in made_by) and buffer.purpose != "residuals of a loop"
            return names.fresh(buffer.name, others=[f"last_{buffer.name}"] if is_last else [])
        group = self.of[buffer]
        if buffer in self.loops:
            field = self.loops[buffer].fields[buffer]
            self.fields[group].add((buffer.type.dtype.c_name, field))
            return f"{group}.{field}"
        name, inside = _name_in(group, buffer), self.inside[group]
        short = name.removeprefix("evaluate_") if group.endswith("evaluation") else name
        hint = name if (group, short) in self.names else short
        field = inside.fresh(hint, others=[buffer.name])
        self.fields[group].add((buffer.type.dtype.c_name, field))
        return f"{group}.{field}"


def slots_of(groups: Iterable[Group]) -> dict[Buffer, Slot]:
    """By array of all iterations, the field of the struct of an iteration."""
    return {
        buffer: Slot(group.loop, field, group.type)
        for group in groups
        if group.loop is not None
        for buffer, field in group.loop.fields.items()
    }


def _name_in(group: str, buffer: Buffer) -> str:
    """The name of a buffer without the layer that a struct is of."""
    for path in reversed(_paths(buffer)):
        if group == c_identifier(path) or group.startswith(f"{c_identifier(path)}_"):
            return _name_without(path, buffer)
    return c_identifier(buffer.name)


def _name_without(path: str, buffer: Buffer) -> str:
    """The name of a buffer without a layer."""
    return re.sub(rf"(^|_){c_identifier(path)}_(?=[a-z])", r"\1", c_identifier(buffer.name))


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "", name)


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
        found += _divided(members, role, _struct_of(path, role), depth + 1)
    return found


def _struct_of(path: str, role: str) -> str:
    """The name of the struct of a layer."""
    return c_identifier(path) if role in ("", "variables") else f"{c_identifier(path)}_{role}"


def _equal_layers(buffers: Sequence[Buffer]) -> dict[Buffer, str]:
    """The outermost layers of buffers whose names are those in another layer, if there are several inside."""
    inside: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        for path in _paths(buffer):
            inside.setdefault(path, []).append(buffer)
    names = {
        path: tuple(re.sub(r"_\d+$", "", _name_without(path, each)) for each in members)
        for path, members in inside.items()
        if len(members) >= LEAST_OF_EQUAL and all(inside[path] != inside[each] for each in inside if each != path)
    }
    count = Counter(map(frozenset, names.values()))
    found: dict[Buffer, str] = {}
    for path, own in names.items():
        if count[frozenset(own)] > 1 and found.keys().isdisjoint(inside[path]):
            found.update(dict.fromkeys(inside[path], path))
    return found


def _paths(buffer: Buffer) -> list[str]:
    """The layers of a buffer, the outermost first: `features`, `features.fire3`."""
    of_value = buffer.where.part if buffer.where is not None else ""
    words = (buffer.variable.name if buffer.variable is not None else of_value).split(".")
    return [".".join(words[: number + 1]) for number in range(len(words))] if words != [""] else []
