"""The memory plan: every value gets a buffer, every buffer a place in one arena.

1. Values that may share a buffer are *coalesced*: a loop's carried value with what the body computes for it and with
   its initial value, a branch's result with the value the branch yields, a Variable with the value written to it, a
   result of the function with the caller's array, a field of a frame or an iteration's slot of a loop's sequence with
   what it holds. It is done where their lives do not overlap, or where they meet in an op that may work in place;
   elsewhere the emitted program copies.
2. Buffers whose lives do not overlap share memory: the largest first, each at the lowest offset that is free.

Scalars are C locals and need no buffer. Sequences (residuals of loops) get an array where the trip count has a bound, a
growable stack where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from staged.errors import SMALLER, TOO_LARGE, ShapeError
from staged.ir.buffers import ALIGNMENT, DEVICE_ALIGNMENT, Buffer, BufferKind, Called, Chain, Plan, Sharing
from staged.ir.declaration import prims
from staged.ir.devices import value_devices
from staged.ir.names import OWN, name_of, rank
from staged.ir.nodes import Block, Function, Op, Value, VariableRef
from staged.ir.sequences import Handles, sequence_handles
from staged.ir.storage import (
    changed_operands,
    is_absent,
    is_tensor,
    root_of,
    structural_blocks,
    structural_ops,
    view_of,
    where_made,
)
from staged.ir.structure import (
    CALL,
    FRAME_SAVE,
    IF,
    KERNEL,
    REDUCE_START,
    REDUCE_WAIT,
    SCOPE,
    SEQUENCE_GET,
    VARIABLE_READ,
)
from staged.ir.types import CPU, Device, SequenceType, TensorType
from staged.ir.views import Branch, Call, Loop
from staged.passes.memory.buckets import plan_buckets
from staged.passes.memory.carried_elements import carried_elements
from staged.passes.memory.frames import join_frames
from staged.passes.memory.groups import Group, Groups
from staged.passes.memory.liveness import Liveness, liveness
from staged.passes.memory.offsets import assign_offsets, assign_unions, merged, peak
from staged.passes.memory.residual_slots import chain_carried, join_residual_slots, make_first_in_slots
from staged.passes.memory.sequences import SequencePlan, copied_handles, plan_sequences
from staged.passes.memory.shared_loops import LoopMemory, plan_shared_loops
from staged.passes.memory.staging import staging_buffers
from staged.passes.memory.twins import join_twins
from staged.passes.memory.variable_lives import variable_lives
from staged.passes.memory.variables import copied_reads, join_variables, returned_variables

Aliases = Callable[[Op], Iterable[tuple[int, int]]]
"""For an op, the pairs (result, operand) that may share a buffer: the op reads an element before it writes it."""


def plan_buffers(
    function: Function, aliases: Aliases, called: Called | None = None, sharing: Sharing | None = None
) -> Plan:
    """The memory plan of a function whose tensor ops have become kernels (see the module's docstring).

    `called` is for a function that the program calls: its Variables are the program's; the caller says where its
    results go. Where it is recursive its buffers are of kind 'local', in the plan's `unions`: each call has its own.
    With `sharing`, threads share the iterations of loops that allow it.
    """
    return _Planner(function, aliases, called, sharing).plan()


class _Planner:
    def __init__(self, function: Function, aliases: Aliases, called: Called | None, sharing: Sharing | None) -> None:
        self.function = function
        # Each call of a recursive function has its buffers on the stack.
        self.sharing = None if called is not None and called.recursive else sharing
        self.aliases = aliases
        self.called = called
        self.in_place = dict(called.in_place) if called else {}
        self.live: Liveness = liveness(function)
        self.devices = value_devices(function)
        self.groups = Groups(self.live)
        self.copied: set[Op] = set()
        self.chained: dict[Value, Chain] = {}
        self.addressed: dict[Value, Value] = {}
        self.without_buffer: set[Value] = set()
        self.returned: dict[VariableRef, int] = {}
        self.outputs: list[Buffer | None] = []
        self.read: set[Value] = set()
        """Operands of ops and block ends, except those of branches' ends and frames."""

    # ---- the plan, step by step ----

    def plan(self) -> Plan:
        self.extend_views()
        handles = sequence_handles(self.function, self.called is not None and self.called.recursive)
        storage = plan_sequences(self.function, self.live, handles, self.devices)
        if all(device == CPU for device in self.devices.values()):
            self.addressed = carried_elements(self.function, self.live, storage.places, handles.values)
            if self.called is None:
                # The header of an exported program has a field for each result.
                self.returned = returned_variables(self.function, has_families=self.function.exported is None)
        self.without_buffer = {*self.addressed, *self.addressed.values()}
        self.copied = copied_reads(self.function, self.live)
        self.find_read()
        self.make_groups()
        self.chained = chain_carried(self.loops(), self.groups, self.devices, storage.places)
        self.allow_touching()
        self.hold_loops()
        self.hold_branches()
        self.join_loops()
        self.join_branches()
        self.join_calls()
        join_variables(self.function, self.groups, self.called is None)
        self.join_outputs()
        self.join_updates()
        fields = join_frames(self.function, self.groups, self.devices)
        make_first_in_slots(self.function, self.chained, self.groups)
        kept = join_residual_slots(self.loops(), self.groups, self.devices, storage.places)
        kept |= {chain.sequence: chain.slot for chain in self.chained.values()}
        return self.finish(handles, storage, fields, kept)

    def extend_views(self) -> None:
        """A value lives at least as long as the views of it."""
        intervals = self.live.intervals
        for value in list(intervals):
            root = root_of(value)
            if root is not value and root in intervals:
                intervals[root] = merged(intervals[root] + intervals[value])
        for op in reversed(list(structural_ops(self.function.block))):
            if op.declared is SEQUENCE_GET and isinstance(op.result.type, SequenceType):
                outer = op.operands[0]  # what is read from a part of it is read from all of it
                intervals[outer] = merged(intervals[outer] + intervals[op.result])

    def find_read(self) -> None:
        passed = {block for op in self.branches() for block, _ in Branch(op).ends()}
        for block in structural_blocks(self.function.block):
            self.read.update(() if block in passed else block.end.operands)
            self.read.update(value for op in block.ops if op.declared is not FRAME_SAVE for value in op.operands)

    def make_groups(self) -> None:
        for number, param in enumerate(self.function.params):
            if not is_tensor(param):
                continue
            type, device = param.tensor, self.devices.get(param, CPU)
            if number in self.in_place:
                # The caller's place for a result, which holds this argument at first.
                index = self.in_place[number]
                buffer = Buffer(param.hint or "sum", type, "output", type.nbytes, device, index=index)
            else:
                buffer = Buffer(param.hint or f"input_{number}", type, "input", type.nbytes, device, index=number)
            self.groups.pin(param, buffer)
        kept = [variable for variable in self.function.variables if variable.outer or self.called]
        lives = variable_lives(self.function, self.live, kept)
        for variable in self.function.variables:
            if variable.members:
                if not variable.outer and self.called is None and variable.members[0] not in self.returned:
                    self.add_family(variable)
            elif variable.type.shape:
                is_given = variable.outer or self.called or variable in self.returned
                kind: BufferKind = "variable" if is_given else "arena"
                buffer = Buffer(
                    variable.name,
                    variable.type,
                    kind,
                    variable.type.nbytes,
                    variable.device,
                    where=variable.where,
                    purpose=variable.purpose,
                    variable=variable,
                )
                group = Group(buffer=buffer, variable=variable, nbytes=buffer.nbytes)
                group.members += [(interval, variable) for interval in lives[variable]]
                self.groups.of_variable[variable] = group
        for block in structural_blocks(self.function.block):
            for param in block.params:
                self.own_group(param)
        for op in structural_ops(self.function.block):
            for result in op.results:
                if view_of(result) is not None:
                    continue
                if op.declared is prims.CONSTANT and is_tensor(result):
                    name, type = result.hint or "constant", result.tensor
                    self.groups.pin(result, Buffer(name, type, "constant", type.nbytes))
                elif op.declared is VARIABLE_READ and is_tensor(result) and op not in self.copied:
                    self.groups.add(self.groups.of_access(op), result)
                else:
                    self.own_group(result)

    def add_family(self, family: VariableRef) -> None:
        """The program has the members of a family one after another."""
        whole = TensorType(family.type.dtype, (len(family.members), *family.type.shape))
        buffer = Buffer(
            family.name,
            whole,
            "arena",
            whole.nbytes,
            family.device,
            where=family.where,
            purpose=family.purpose,
            variable=family,
        )
        self.groups.of_variable[family] = Group(buffer=buffer, variable=family, nbytes=buffer.nbytes)

    def own_group(self, value: Value) -> None:
        known = value in self.groups.of or value not in self.live.intervals or value in self.without_buffer
        if is_tensor(value) and not known and not self.is_nothing(value):
            self.groups.add(Group(), value)

    def is_nothing(self, value: Value) -> bool:
        """Return whether a value is absent and only passed on by a branch or into a frame: nothing is written, so it
        needs no place.
        """
        return is_absent(value) and value not in self.read

    def allow_touching(self) -> None:
        for op in structural_ops(self.function.block):
            pairs = [*self.aliases(op), *_in_place(op)]
            for result, operand in pairs:
                # A product may read as a factor what its epilogue may overwrite: every use must allow it.
                root = root_of(op.operands[operand])
                uses = (number for number, other in enumerate(op.operands) if root_of(other) is root)
                if all((result, number) in pairs for number in uses):
                    self.groups.allow(root, op.results[result], self.live.start[op])

    def hold_loops(self) -> None:
        """A loop's carried value, its result and the condition's parameter are one: the buffer is theirs from the
        loop's start on, and wherever an end passes values on.
        """
        for op in self.loops():
            start, finish, loop = self.live.start[op], self.live.finish[op], Loop(op)
            for index, param, initial in self.carried(op):
                if param in self.chained:
                    # The last iteration makes the result while others are kept, and the initial value is copied before.
                    self.groups.hold(loop.final[index], start, finish)
                    self.groups.allow(initial, loop.final[index], start)
                    continue
                self.groups.hold(param, start, self.live.block_start[op.blocks[0]])
                self.groups.allow(initial, param, start)
                if loop.condition is not None:
                    # The body reads what the condition saw, and so do the readers of the loop's result.
                    seen = loop.carried_in(loop.condition)[index]
                    self.groups.hold(seen, self.live.block_start[loop.condition], self.live.block_start[loop.body])
                    self.groups.merge(self.groups.of[param], self.groups.of[seen])
                self.groups.hold(param, finish, finish)
                if loop.final[index] in self.groups.of:
                    self.groups.merge(self.groups.of[param], self.groups.of[loop.final[index]])
                for block, end in loop.ends():
                    position = self.live.block_end[block]
                    self.groups.hold(param, position, position)
                    self.groups.allow(end.operands[index], param, position)

    def hold_branches(self) -> None:
        """A branch's result is written where the branch ends."""
        for op in self.branches():
            for block, end in Branch(op).ends():
                position = self.live.block_end[block]
                for result, operand in zip(op.results, end.operands, strict=True):
                    if result in self.groups.of:
                        self.groups.hold(result, position, position)
                        self.groups.allow(operand, result, position)

    def join_loops(self) -> None:
        for op in self.loops():
            for index, param, initial in self.carried(op):
                for _, end in Loop(op).ends():
                    self.groups.try_join(end.operands[index], param)
                self.groups.try_join(initial, param)

    def join_branches(self) -> None:
        for op in self.branches():
            for _, end in Branch(op).ends():
                for result, operand in zip(op.results, end.operands, strict=True):
                    if result in self.groups.of:
                        self.groups.try_join(operand, result)

    def join_calls(self) -> None:
        for op in structural_ops(self.function.block):
            for result, operand in _in_place(op):
                self.groups.try_join(op.operands[operand], op.results[result])

    def loops(self) -> list[Op]:
        return [op for op in structural_ops(self.function.block) if op.declared.is_loop]

    def branches(self) -> list[Op]:
        return [op for op in structural_ops(self.function.block) if op.declared in (IF, SCOPE)]

    def carried(self, op: Op) -> list[tuple[int, Value, Value]]:
        """(index, parameter of the body, initial value) of each carried tensor of a loop."""
        pairs = zip(Loop(op).carried, Loop(op).initial, strict=True)
        return [(i, p, v) for i, (p, v) in enumerate(pairs) if p in self.groups.of]

    def join_outputs(self) -> None:
        returns = self.returns()
        types = [operand.type for operand in returns[0].end.operands] if returns else []
        for index, type in enumerate(types):
            if not isinstance(type, TensorType) or not type.shape:
                self.outputs.append(None)
                continue
            if index in self.returned.values():
                self.outputs.append(self.groups.of[returns[0].end.operands[index]].buffer)
                continue
            if index in self.in_place.values():
                param = next(
                    param for number, param in enumerate(self.function.params) if self.in_place.get(number) == index
                )
                self.outputs.append(self.groups.of[param].buffer)
                for block in returns:
                    position = self.live.block_end[block]
                    self.groups.hold(param, position, position)
                    self.groups.allow(block.end.operands[index], param, position)
                for block in returns:
                    self.groups.try_join(block.end.operands[index], param)
                continue
            if not type.is_addressable:
                raise ShapeError(TOO_LARGE.format(type), where=where_made(returns[0].end.operands[index]), hint=SMALLER)
            name = self.function.result_paths[index] if index < len(self.function.result_paths) else f"result_{index}"
            device = self.devices.get(returns[0].end.operands[index], CPU)
            buffer = Buffer(name, type, "output", type.nbytes, device, index=index)
            self.outputs.append(buffer)
            for block in returns:
                value = root_of(block.end.operands[index])
                group = self.groups.of.get(value)
                full = group is not None and value.tensor.nbytes == type.nbytes and group.is_as_large_as([type])
                if group is None or group.buffer is not None or group.variable is not None or not full:
                    continue
                if device != CPU and self.called is None and value.producer and value.producer.declared.is_loop:
                    continue  # graphs keep addresses, and the caller's memory is at another address in each call
                others = list(dict.fromkeys(other for other in self.groups.of.values() if other.buffer is buffer))
                if _is_made(value) and not any(self.groups.interfere(group, other) for other in others):
                    group.buffer = buffer
                    for other in others:
                        self.groups.merge(group, other)

    def join_updates(self) -> None:
        """An array that is changed in part, or by all ranks, stays where it is: else all of it would be copied."""
        for op in structural_ops(self.function.block):
            inside = op.blocks[0].ops if op.declared is KERNEL else [op]
            is_update = op.declared in (KERNEL, prims.GPU_FUNC) and any(map(changed_operands, inside))
            if is_update or op.declared.kind == "collective" or op.declared in (REDUCE_START, REDUCE_WAIT):
                for result, operand in self.aliases(op):
                    if is_tensor(op.results[result]):
                        self.groups.try_join(op.results[result], root_of(op.operands[operand]))

    def returns(self) -> list[Block]:
        """The blocks that end the function."""
        return [block for block in structural_blocks(self.function.block) if block.end.kind == "return"]

    # ---- offsets ----

    def finish(
        self, handles: Handles, storage: SequencePlan, fields: dict[tuple[Op, int], Buffer], kept: dict[Value, Buffer]
    ) -> Plan:
        place: dict[Value, Buffer] = {}
        buffers: list[Buffer] = []
        for group in self.groups.all():
            if group.buffer is None:
                group.buffer = self.arena_buffer(group)
            buffer = group.buffer
            buffer.intervals = merged([interval for interval, _ in group.members])
            buffer.values = group.values
            if group.variable is not None:
                buffer.intervals = [(0, self.live.length)]
            buffers.append(buffer)
            for value in group.values:
                place[value] = buffer
        for value in self.live.intervals:
            if view_of(value) is not None and root_of(value) in place:
                place[value] = place[root_of(value)]
        buffers += [buffer for buffer in self.outputs if buffer is not None and buffer not in buffers]
        buffers += storage.buffers
        staging = staging_buffers(self.function, self.live, place, self.outputs, self.devices, self.chained)
        buffers += staging.values()
        unions: list[list[Buffer]] = []
        loops = LoopMemory()
        if self.sharing is not None:
            loops = plan_shared_loops(self.function, self.live, place, buffers, self.sharing)
        left_over = join_twins(self.function, self.live, place, loops.owned())
        buffers = [buffer for buffer in buffers if buffer not in left_over]
        buckets = plan_buckets(self.function, place, loops.owned())
        placed = buckets.outside(loops.outside(buffers))
        sizes = self.assign_devices(placed)
        loops.settle()
        buckets.settle()
        # Once it is known where each buffer is.
        peaks = {device: peak(buffer for buffer in placed if buffer.device == device) for device in (CPU, *sizes)}
        most = peaks.pop(CPU)
        arena_bytes, local_bytes = sizes.pop(CPU, 0), {}
        if self.called is not None and self.called.recursive:
            locals_ = [buffer for buffer in buffers if buffer.kind == "arena"]
            for buffer in locals_:
                buffer.kind = "local"
            unions = assign_unions(buckets.outside([buffer for buffer in locals_ if buffer.device == CPU]))
            arena_bytes, local_bytes, sizes = 0, sizes, {}
        return Plan(
            place,
            buffers,
            storage.places,
            storage.stacks,
            staging,
            frozenset(self.copied),
            arena_bytes,
            most,
            device_bytes=sizes,
            device_peaks=peaks,
            unions=unions,
            local_bytes=local_bytes,
            returned=self.returned,
            handles=handles,
            copied_handles=copied_handles(self.function, self.live, handles),
            fields=fields,
            kept=kept,
            chained=self.chained,
            addressed=frozenset(self.addressed),
            shared=loops.shared,
            unfilled=loops.unfilled,
            buckets={op: region.parts for op, region in buckets.regions.items()},
        )

    def assign_devices(self, buffers: list[Buffer]) -> dict[Device, int]:
        """Offsets in the arena of each device; returns the arenas' sizes."""
        arenas: dict[Device, list[Buffer]] = {}
        for buffer in buffers:
            if buffer.kind == "arena":
                if buffer.variable is None and buffer.values:
                    buffer.device = self.devices.get(buffer.values[0], CPU)
                arenas.setdefault(buffer.device, []).append(buffer)
        return {
            device: assign_offsets(arena, ALIGNMENT if device == CPU else DEVICE_ALIGNMENT)
            for device, arena in arenas.items()
        }

    def arena_buffer(self, group: Group) -> Buffer:
        named = next((value for value in group.values if value.hint), group.values[0])
        producer = named.producer
        return Buffer(
            name_of(named) or "t",
            named.tensor,
            "arena",
            group.nbytes,
            producer.device if producer else self.function.block.ops[0].device,
            where=where_made(named),
            purpose="gradient" if _is_gradient(named) else _role_in_call(named),
        )


def _in_place(op: Op) -> list[tuple[int, int]]:
    """The (result, operand) pairs of a call that may share a buffer: the callee updates it in place."""
    if op.declared is not CALL:
        return []
    roots = [root_of(operand) for operand in op.operands if is_tensor(operand)]
    return [
        (result, operand)
        for operand, result in Call(op).in_place
        # What the callee also gets as another argument must stay as it is.
        if is_tensor(op.operands[operand]) and roots.count(root_of(op.operands[operand])) == 1
    ]


def _is_gradient(value: Value) -> bool:
    """Return whether a value is of the backward pass, and has a gradient's name."""
    where = where_made(value)
    return value.hint.startswith("d_") and (where is None or where.phase == "backward" or rank(value.hint) < OWN)


def _role_in_call(value: Value) -> str:
    """For what a call gives and the user has no name for: where it comes from."""
    call = value.made_by(CALL)
    return "" if call is None or value.hint else f"result of `{Call(call).function}`"


def _is_made(value: Value) -> bool:
    """Return whether an op of the function computes the value (it is no parameter)."""
    return value.producer is not None and value.producer.declared is not VARIABLE_READ
