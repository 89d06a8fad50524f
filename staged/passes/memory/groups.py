"""Groups of values that share a buffer, and the rule by which two groups may become one.

Tested by `tests/passes/memory/test_plan.py` and `tests/passes/memory/test_plan_of_programs.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from staged.ir.buffers import Buffer
from staged.ir.nodes import Op, Value, VariableRef
from staged.ir.sizes import Size, product
from staged.ir.storage import root_of
from staged.ir.trips import constant_of
from staged.ir.types import TensorType
from staged.passes.memory.liveness import Interval, Liveness


@dataclass(eq=False)
class Group:
    """Values that share one buffer, with the intervals at which each holds it."""

    members: list[tuple[Interval, Value | VariableRef]] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    buffer: Buffer | None = None
    """Set for pinned groups: inputs, outputs, outer variables, constants."""
    variable: VariableRef | None = None
    nbytes: int = 0
    span: Interval | None = None
    """Of a slot of an iteration: the positions of the iteration, beyond which the buffer is another one."""

    def is_as_large_as(self, types: Iterable[TensorType]) -> bool:
        """Return whether all values have the size of these types when the program runs; `nbytes` decides of numbers."""
        sizes = {product(type.shape) * type.dtype.size for type in (*types, *(value.tensor for value in self.values))}
        return len(sizes) == 1 or not any(isinstance(size, Size) for size in sizes)


Same = tuple[Value, VariableRef, int]
"""A value, the Variable that it is written to, and the position of that."""


class Groups:
    """The groups of one function: of each value, and of each Variable."""

    def __init__(self, live: Liveness) -> None:
        self.live = live
        self.of: dict[Value, Group] = {}
        self.of_variable: dict[VariableRef, Group] = {}
        self.of_member: dict[tuple[VariableRef, Hashable], Group] = {}
        """By family and number of a member."""
        self.touch: set[tuple[Value | VariableRef, Value | VariableRef, int]] = set()
        """(source, destination, position): may meet there, because one becomes the other."""

    def of_access(self, op: Op) -> Group:
        """The group of the Variable that an op reads or writes; of a family, of its member."""
        variable: VariableRef = op.attrs["variable"]
        if not variable.members:
            return self.of_variable[variable]
        index = op.operands[-1]
        key = variable, member_key(index)
        if key not in self.of_member:
            name, nbytes = variable.name, variable.type.nbytes
            slot = Buffer(name, variable.type, "slot", nbytes, variable.device, variable=variable, element=index)
            self.of_member[key] = Group(buffer=slot, variable=variable, nbytes=nbytes)
        return self.of_member[key]

    def add(self, group: Group, value: Value) -> None:
        """Enter a value into a group."""
        group.members += [(interval, value) for interval in self.live.intervals[value]]
        group.values.append(value)
        group.nbytes = max(group.nbytes, value.tensor.nbytes)
        self.of[value] = group

    def pin(self, value: Value, buffer: Buffer) -> None:
        """Give a value a buffer that is known already."""
        self.add(Group(buffer=buffer), value)

    def hold(self, value: Value, start: int, end: int) -> None:
        """Keep the buffer of `value` in use over further positions (a copy lands there, a loop has yet to read it)."""
        if value in self.of:
            self.of[value].members.append(((start, end), value))

    def allow(self, source: Value, destination: Value, position: int) -> None:
        """Let the two meet at a position, where one becomes the other."""
        self.touch.add((root_of(source), destination, position))

    def try_join(self, value: Value, other: Value) -> None:
        """Put both in one buffer if their lives allow it."""
        root = root_of(value)
        if root not in self.of or other not in self.of:
            return
        group, target = self.of[root], self.of[other]
        if group.variable is not None or target.variable is not None:
            return  # a Variable holds its value until it is written: only the value written may join it
        if root.tensor.nbytes == other.tensor.nbytes:
            self.join(root, target)

    def join(self, value: Value, target: Group, same: Same | None = None) -> None:
        """Put all that shares the buffer of `value` into `target`, if their lives allow it."""
        group = self.of.get(value)
        if group is None or group is target:
            return
        if group.buffer is not None and target.buffer is not None:
            return
        pinned = group.buffer or target.buffer
        if pinned is not None and (pinned.kind == "input" or pinned.kind == "constant"):
            return  # never written
        if pinned is not None and not group.is_as_large_as(value.tensor for value in target.values):
            return  # the caller's memory has the size of the result
        if group.nbytes == target.nbytes and not self.interfere(group, target, same):
            self.merge(target, group)

    def merge(self, target: Group, other: Group) -> None:
        """Make two groups one, whatever their lives are."""
        if target is other:
            return
        target.members += other.members
        target.values += other.values
        target.buffer = target.buffer or other.buffer
        target.variable = target.variable or other.variable
        target.span = target.span or other.span
        for value in other.values:
            self.of[value] = target
        for variable, group in self.of_variable.items():
            if group is other:
                self.of_variable[variable] = target

    def interfere(self, a: Group, b: Group, same: Same | None = None) -> bool:
        """Return whether the two must not share a buffer: something of one is needed while something of the other is.

        Exact: all members count. They may meet in one position where one becomes the other (`touch`); and after `same`,
        the position from which a value and a Variable are equal, these two may both live. In the slot of an iteration
        nothing lives that is needed before or after the iteration.
        """
        if _leaves(a.span, b) or _leaves(b.span, a):
            return True
        for (start_a, end_a), value_a in a.members:
            for (start_b, end_b), value_b in b.members:
                if end_a < start_b or end_b < start_a:
                    continue
                if end_a == start_b and (value_a, value_b, end_a) in self.touch:
                    continue
                if end_b == start_a and (value_b, value_a, end_b) in self.touch:
                    continue
                if same is not None and (value_a, value_b) == same[:2] and start_b >= same[2]:
                    continue
                return True
        return False

    def all(self) -> list[Group]:
        """Every group once, in the order in which they were entered."""
        return list(dict.fromkeys([*self.of.values(), *self.of_variable.values()]))


def _leaves(span: Interval | None, group: Group) -> bool:
    """Return whether something of a group lives outside of a span of positions."""
    return span is not None and any(start < span[0] or end > span[1] for (start, end), _ in group.members)


def member_key(index: Value) -> Hashable:
    """Equal for numbers of members that are known to be equal."""
    number = constant_of(index)
    return index if number is None else number
