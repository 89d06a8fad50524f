"""Buffers of Variables: the reads that copy, and the values that are computed where they are written to.

Tested by `tests/passes/memory/test_variable_lives.py`.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

from staged.ir.nodes import Block, Function, Op, Value, VariableRef, walk_op
from staged.ir.storage import is_tensor, root_of, structural_blocks, structural_ops
from staged.ir.structure import CALL, COPY, FOR, SEQUENCE_GET, VARIABLE_READ, VARIABLE_WRITE
from staged.ir.trips import constant_of
from staged.ir.types import CPU, SequenceType, TensorType
from staged.ir.views import Loop
from staged.passes.memory.groups import Groups, member_key
from staged.passes.memory.liveness import Liveness
from staged.passes.memory.residual_slots import DEVICE_MULTIPLE


def copied_reads(function: Function, live: Liveness) -> set[Op]:
    """The reads of Variables that copy: the Variable is written while the value read is still needed."""
    writes: dict[VariableRef, list[Op]] = {}
    calls: dict[VariableRef, list[int]] = {}
    reads: list[Op] = []
    copied: set[Op] = set()
    for op in structural_ops(function.block):
        if op.declared is VARIABLE_WRITE:
            writes.setdefault(op.attrs["variable"], []).append(op)
        elif op.declared is VARIABLE_READ:
            reads.append(op)
        for variable in _written_by_call(op):
            calls.setdefault(variable, []).append(live.start[op])
    members = MembersRead(function, live)
    for op in reads:
        spans = live.intervals.get(op.results[0], [])
        variable = op.attrs["variable"]
        # A write reads its operand first; a call may write while it still reads its arguments.
        others = [
            live.start[write]
            for write in writes.get(variable, ())
            if not are_apart(op, write) and not members.are_done(op, write)
        ]
        if any(
            any(start < write < end for write in others) or any(start < call <= end for call in calls.get(variable, ()))
            for start, end in spans
        ):
            copied.add(op)
    return copied


def returned_variables(function: Function, has_families: bool) -> dict[VariableRef, int]:
    """The Variables of a program whose last values are results, by the numbers of the results: they are kept there.

    `has_families`: members of a family count if all members are results.
    Exact: no op writes such a Variable between the read that is returned and the end, and no function accesses it.
    """
    returns = [block for block in structural_blocks(function.block) if block.end.kind == "return"]
    if returns != [function.block]:
        return {}
    shared = {variable for each in function.functions for variable in each.variables}
    written: set[VariableRef] = set()
    found: dict[VariableRef, int] = {}
    numbers = {value: number for number, value in reversed(list(enumerate(function.block.end.operands)))}
    for op in reversed(function.block.ops):
        if op.declared is VARIABLE_READ and op.result in numbers:
            variable: VariableRef = op.attrs["variable"]
            if not ({variable} & (written | shared) or variable.outer or (variable.members and not has_families)):
                number = constant_of(op.operands[-1]) if variable.members else None
                key = variable if number is None else variable.members[int(number)]
                found.setdefault(key, numbers[op.result])
        effects = [effect for inner in walk_op(op) for effect in inner.effects if effect.kind == "write"]
        written |= {effect.target for effect in effects if effect.target is not None}
    families = [each for each in function.variables if each.members]
    parts = {member for each in families for member in each.members if not found.keys() >= set(each.members)}
    return {variable: number for variable, number in found.items() if not variable.members and variable not in parts}


def join_variables(function: Function, groups: Groups, is_program: bool) -> None:
    """A value that is written to a Variable is computed there. With `is_program` no other function calls this one.

    Exact: where all that shares the value's buffer is dead while the Variable's own value, before or after, is
    needed. The value itself may live on after the write, for as long as nothing else is written there: both are the
    same.
    """
    live = groups.live
    members = MembersRead(function, live)
    ops = list(structural_ops(function.block))
    place_of = {op: (block, i) for block in structural_blocks(function.block) for i, op in enumerate(block.ops)}
    leaving: dict[tuple[Block, Callable[[Op], bool]], list[int]] = {}
    writers: dict[VariableRef | None, list[Op]] = {}
    for op in ops:
        for changed in dict.fromkeys(effect.target for effect in op.effects if effect.kind == "write"):
            writers.setdefault(changed, []).append(op)
    for op in ops:
        if op.declared is not VARIABLE_WRITE or not is_tensor(op.operands[0]):
            continue
        variable, value = op.attrs["variable"], root_of(op.operands[0])
        written = live.start[op]
        others = [each for each in writers.get(variable, ()) if each is not op and not are_apart(op, each)]
        spans = live.intervals.get(value, [])
        if any(start < live.start[other] <= end for start, end in spans for other in others):
            continue
        same_size = isinstance(value.type, TensorType) and value.type.nbytes == variable.type.nbytes
        group, target = groups.of.get(value), groups.of_access(op)
        if variable.members and not (_is_aligned(variable) and _is_place_free(op, value, ops, members, groups)):
            continue
        loop = members.loops.get(op.operands[-1]) if variable.members else None
        may_leave = _may_stop_or_leave
        if is_program and not variable.outer:
            may_leave = _leaves  # nobody sees the Variable when the program has stopped
        elif loop is not None and loop.blocks[0] is place_of[op][0]:
            may_leave = _may_leave  # Ctrl-C stops no loop in an iteration of a loop that updates layers
        if group is not None and same_size and _may_write_early(value, op, place_of, leaving, may_leave):
            groups.touch.add((value, variable, written))
            groups.join(value, target, same=(value, variable, written))


def are_apart(op: Op, other: Op) -> bool:
    """Return whether an access to a family and an op are known to be about different members."""
    if not op.operands or not op.attrs["variable"].members or other.attrs.get("variable") is not op.attrs["variable"]:
        return False
    numbers = constant_of(op.operands[-1]), constant_of(other.operands[-1])
    return None not in numbers and numbers[0] != numbers[1]


class MembersRead:
    """The members that a function reads from families that it has read as a whole."""

    def __init__(self, function: Function, live: Liveness) -> None:
        self.live = live
        self.users: dict[Value, list[Op]] = {}
        self.loops: dict[Value, Op] = {}
        """By index of a `for`, the loop."""
        for op in structural_ops(function.block):
            if op.declared is FOR:
                self.loops[Loop(op).index] = op
            for operand in op.operands:
                if isinstance(operand.type, SequenceType) and operand.made_by(VARIABLE_READ) is not None:
                    self.users.setdefault(operand, []).append(op)

    def are_done(self, read: Op, write: Op) -> bool:
        """Return whether a whole read needs no member any more when a write in a loop changes it.

        Exact: the loop reads the member of its iteration alone, before the write, and nothing after the loop reads any.
        """
        if read.operands or not read.attrs["variable"].members or write.operands[-1] not in self.loops:
            return False
        loop, written = self.loops[write.operands[-1]], self.live.start[write]
        for user in self.users.get(read.result, ()):
            if self.live.start[user] < self.live.start[loop]:
                continue
            is_own = user.declared is SEQUENCE_GET and user.operands[1] is write.operands[-1]
            if not is_own or any(end > written for _, end in self.live.intervals.get(user.result, ())):
                return False
        return True

    def of(self, read: Op, write: Op) -> list[Value]:
        """The values that a whole read supplies in the loop of a write."""
        loop = self.loops[write.operands[-1]]
        return [
            user.result for user in self.users.get(read.result, ()) if self.live.start[user] > self.live.start[loop]
        ]


def _is_aligned(family: VariableRef) -> bool:
    """Return whether a device can compute a member without a copy: a thread may write 16 bytes at a time."""
    return family.device == CPU or family.outer or family.type.nbytes % DEVICE_MULTIPLE == 0


def _is_place_free(write: Op, value: Value, ops: Iterable[Op], members: MembersRead, groups: Groups) -> bool:
    """Return whether the member's place is known, and no other read of the family, by another number or as a whole, is
    needed, while `value` is there and not yet written. The op that computes it may read the member element by element.
    """
    live = members.live
    variable, index = write.attrs["variable"], write.operands[-1]
    begin, end = live.defined(value), live.start[write]
    if constant_of(index) is None and live.defined(index) > begin:
        return False
    key = member_key(index)
    for op in ops:
        if op.declared is VARIABLE_READ and op.attrs["variable"] is variable and not are_apart(op, write):
            if op.operands and member_key(op.operands[-1]) == key:
                continue  # it is in the group of the member
            needed = members.of(op, write) if members.are_done(op, write) else op.results
            for each in needed:
                meets = (root_of(each), value, begin) in groups.touch
                for start, stop in live.intervals.get(each, ()):
                    if start <= end and begin <= stop and not (meets and stop == begin):
                        return False
    return True


def _may_write_early(
    value: Value,
    write: Op,
    place_of: Mapping[Op, tuple[Block, int]],
    leaving: dict[tuple[Block, Callable[[Op], bool]], list[int]],
    may_leave: Callable[[Op], bool],
) -> bool:
    """Return whether `value` may be computed straight into the Variable, before the position of the write.

    `leaving`: by block and `may_leave`, the positions of ops that may leave the block.
    Exact: nothing between the two may leave the block. If the Variable is seen after the program stops, nothing may
    stop the program: the Variable then has its old value.
    """
    producer = value.producer
    block, end = place_of[write]
    if producer is None or producer not in place_of or place_of[producer][0] is not block:
        return False
    if not producer.declared.is_opaque and producer.declared is not COPY:
        return False
    if (block, may_leave) not in leaving:
        leaving[block, may_leave] = [i for i, op in enumerate(block.ops) if may_leave(op)]
    positions = leaving[block, may_leave]
    return bisect(positions, place_of[producer][1]) == bisect_left(positions, end)


def _written_by_call(op: Op) -> list[VariableRef]:
    """The Variables that a call may write."""
    effects = op.effects if op.declared is CALL else ()
    return [effect.target for effect in effects if effect.kind == "write" and effect.target is not None]


def _may_stop_or_leave(op: Op) -> bool:
    """Return whether an op may stop the program or leave the block; Ctrl-C stops any loop."""
    return bool(op.blocks) and not op.declared.is_opaque or _may_stop(op)


def _may_leave(op: Op) -> bool:
    """The same for an op that Ctrl-C does not stop."""
    return _leaves(op) or _may_stop(op) or any(map(_may_stop, _inside(op)))


def _leaves(op: Op) -> bool:
    """Return whether an op may leave the block, in a program that goes on."""
    blocks = [] if op.declared.is_opaque else [inner for block in op.blocks for inner in structural_blocks(block)]
    return any(inner.end.is_of_loop or inner.end.is_of_function for inner in blocks)


def _inside(op: Op) -> Iterator[Op]:
    """The ops in the blocks of control flow."""
    return iter(()) if op.declared.is_opaque else (inner for block in op.blocks for inner in structural_ops(block))


def _may_stop(op: Op) -> bool:
    return any(effect.is_ordered for effect in op.effects)
