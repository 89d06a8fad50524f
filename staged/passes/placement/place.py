"""Placement: every op runs on one device, every value lives where it was made, and a `copy` op stands at each crossing.

An op carries the device of the region that it was traced in (`op.device`). Here that means:

- Control flow, prints, asserts and arithmetic on the host's numbers run on the host, wherever they were written: a loop
  counter or a learning rate reaches a kernel by value and needs no copy.
- A number computed from a device array stays there, as an array of one element; only a print, a decision (`if`,
  `while`, an index) or a result moves it.
- Constants are made on the device that wants them.
- What only looks at a piece of an array (`y[i]`) runs where the array is, so that only the piece moves.

A value crosses once per direction: before its first foreign use, outside of every loop in which it does not change, and
inside a branch if only that branch needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from staged.errors import UnsupportedError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.functions import every_function, map_functions
from staged.ir.nodes import FAIL, Block, Effect, End, Function, Label, Op, Value, VariableRef, walk_ops
from staged.ir.rewrite import rewrite
from staged.ir.structure import (
    ASSERT,
    COPY,
    IF,
    RAISE,
    SEQUENCE_ADD,
    SEQUENCE_GET,
    VARIABLE_READ,
    VARIABLE_WRITE,
)
from staged.ir.transfers import Transfer
from staged.ir.types import CPU, Device, FrameType, SequenceType, TensorType, Type
from staged.ir.users import users_of
from staged.ir.views import Loop, is_condition
from staged.passes.placement.copies import PlannedCopies, operand_device
from staged.passes.placement.devices import (
    Placement,
    is_number,
    is_passing,
)
from staged.passes.placement.merge_reads import merge_reads
from staged.source import Position

LONGEST_NAME = 40
"""Characters up to which the user's own expression names what is copied."""


def transfers(
    function: Function, own_copies: Mapping[Op | End | None, Sequence[Transfer]] = MappingProxyType({})
) -> tuple[Transfer, ...]:
    """The Variables that a placed program has on devices, then its copies in program order, each listed once: one in a
    loop, or in a function, takes place with every iteration or call.

    `own_copies` are the copies that the back end adds, by the op or end at which they are made.
    """
    found = []
    first: dict[VariableRef, Op] = {}
    ops = [op for each in (function, *function.functions) for op in walk_ops(each.block)]
    for op in ops:
        if op.declared in (VARIABLE_READ, VARIABLE_WRITE):
            first.setdefault(op.attrs["variable"], op)
    first |= {member: first[family] for family in function.variables for member in family.members if family in first}
    for variable in function.variables:
        if variable.outer and variable.device != CPU and not variable.members:
            where = first[variable].where if variable in first else None
            found.append(Transfer(variable.name, CPU, variable.device, variable.type.nbytes, "resident", where))
    found += own_copies.get(None, ())
    for each in (function, *function.functions):
        for at, in_loop in _places(each.block):
            made = list(own_copies.get(at, ()))
            if isinstance(at, Op) and at.declared is COPY:
                size = at.operands[0].tensor.nbytes
                made.insert(0, Transfer(at.attrs["what"], at.attrs["source"], at.device, size, at.attrs["why"]))
            found += [replace(transfer, where=at.where, in_loop=in_loop) for transfer in made if transfer.nbytes]
    return tuple(found)


def _places(block: Block) -> Iterator[tuple[Op | End, bool]]:
    """Each op and end of a block in program order, and whether a loop is around it."""
    open_blocks: list[tuple[Block, Iterator[Op], bool]] = [(block, iter(block.ops), False)]
    while open_blocks:
        current, ops, in_loop = open_blocks[-1]
        for op in ops:
            yield op, in_loop
            if op.blocks and not op.declared.is_opaque:
                is_loop = in_loop or op.declared.is_loop
                open_blocks += [(inner, iter(inner.ops), is_loop) for inner in reversed(op.blocks)]
                break
        else:
            yield current.end, in_loop
            open_blocks.pop()


def _name_of(value: Value) -> str:
    """A name for people: the user's name, else the user's words for it, else what makes it."""
    producer = value.producer
    if value.hint or producer is None:
        return value.hint or "a value"
    words = producer.where.expression if producer.where is not None else ""
    return words if 0 < len(words) <= LONGEST_NAME else producer.name


def _report_where_it_fails(op: Op, builder: Builder) -> Sequence[Value] | None:
    """assert c, "... {x}"  ->  if not c: raise "... {x}", in a region

    Why: what the message shows is copied to the host only when the program stops.
    """
    if op.declared is not ASSERT or op.device == CPU or len(op.operands) == 1:
        return None
    condition, *shown = op.operands
    kind, parts = op.attrs["kind"], op.attrs["parts"]
    words = ("assertion failed: ", *parts) if kind == "assertion" else parts
    failed = builder.op(prims.LOGICAL_NOT, [condition], [condition.type], device=op.device, where=op.where).result
    with builder.block([], []) as report:
        attrs = {"parts": words, "kind": kind}
        builder.op(RAISE, shown, [], attrs=attrs, effects=FAIL, device=op.device, where=op.where)
        builder.end("raise", (), None, op.where)
    with builder.block([], []) as go_on:
        builder.end("yield", ())
    builder.op(IF, [failed], [], blocks=[report.block, go_on.block], device=op.device, where=op.where)
    return ()


def _nothing_to_move(op: Op, builder: Builder) -> Sequence[Value] | None:
    """to_device(x)  ->  x, where all is on the host."""
    return op.operands if op.declared is prims.TO_DEVICE else None


def _reads_a_device(program: Function) -> bool:
    """Return whether the host reads an input that the caller has on a device."""
    users = users_of(program.block)
    return any(
        device != CPU and param in users for param, device in zip(program.params, program.param_devices, strict=False)
    )


def place(program: Function) -> Function:
    """`program` with its ops on their devices and `copy` ops where values cross (see the module's docstring).

    `copy` has one operand and one result of the same type (from a device, a number comes as an array of one element);
    its device is the one it copies to, its attrs are `what` (a name for people), `source` and `why`. A program of one
    device has none. A program that keeps results on devices lists where each of them is (`result_devices`). A function
    that is called says where it takes its parameters (`param_devices`), a call or a `frame_load` where its results are
    (`devices`), a record where its fields are.

    Exact: copies are of bits; a number of the host reaches a kernel by value, in its own dtype.
    """
    ops = [op for function in every_function(program) for op in walk_ops(function.block)]
    if all(op.device == CPU for op in ops) and not _reads_a_device(program):
        moves = any(op.declared is prims.TO_DEVICE for op in ops)
        return map_functions(program, lambda function: rewrite(function, _nothing_to_move)) if moves else program
    program = map_functions(program, lambda function: rewrite(merge_reads(function), _report_where_it_fails))
    placement = Placement(program)
    variables: dict[VariableRef, VariableRef] = {}
    functions = []
    for function in program.functions:
        placer = _Placer(placement, function, placement.results[function.name], variables)
        functions.append(placer.run().replace(param_devices=[placement.of(param) for param in function.params]))
    frames = [
        replace(
            record,
            fields=tuple(
                (name, type if placement.of(held) == CPU else on_device(type))
                for (name, type), held in zip(record.fields, placement.fields[record.name], strict=True)
            ),
            devices=tuple(map(placement.of, placement.fields[record.name])),
        )
        for record in program.frames
    ]
    placed = _Placer(placement, program, placement.kept or None, variables).run()
    results = tuple(map(placement.of, placement.kept))
    return placed.replace(functions=functions, frames=frames, result_devices=results)


# ---- the placed program -------------------------------------------------------------------------


class _Placer:
    """Writes the program anew: ops on their devices, copies in place, numbers on a device as arrays of one element."""

    def __init__(
        self,
        placement: Placement,
        function: Function,
        returned: tuple[Value, ...] | None,
        variables: dict[VariableRef, VariableRef],
    ) -> None:
        self.placement = placement
        self.function = function
        self.returned = returned
        """A value for each result; None for a program that returns them all to the host."""
        self.variables = variables
        self.before = PlannedCopies(function, placement, returned).before
        self.values: dict[Value, Value] = {}
        self.copies: dict[tuple[Value, Device], Value] = {}
        self.clones: dict[tuple[Value, Device], Value] = {}
        self.labels: dict[Label, Label] = {}
        self.ops: list[Op] = []

    def run(self) -> Function:
        """The function on its devices."""
        block = self.block(self.function.block, ())
        return self.function.replace(block=block, variables=[self.variable(each) for each in self.function.variables])

    def variable(self, variable: VariableRef) -> VariableRef:
        """The Variable with its home as its device; one number on a device is an array of one element."""
        home = self.placement.of_variable(variable)
        type = variable.type if home == CPU else on_device(variable.type)
        if variable.device == home and variable.type == type:
            return variable
        if variable not in self.variables:
            assert isinstance(type, TensorType)
            members = tuple(map(self.variable, variable.members))
            self.variables[variable] = replace(variable, device=home, type=type, members=members)
        return self.variables[variable]

    def block(self, block: Block, targets: tuple[Value, ...]) -> Block:
        outer, self.ops = self.ops, []
        outer_clones, self.clones = self.clones, dict(self.clones)
        params = [self.param(param) for param in block.params]
        for index, op in enumerate(block.ops):
            self.cross(block, index)
            if op not in self.placement.runs_on:
                continue  # a constant: made where it is used
            self.op(op)
        self.cross(block, len(block.ops))
        end = self.end(block.end, targets)
        made = Block(params, self.ops, end)
        self.ops, self.clones = outer, outer_clones
        return made

    def param(self, param: Value) -> Value:
        made = Value(self.type_at(param), param.hint)
        self.values[param] = made
        return made

    def type_at(self, value: Value) -> Type:
        return value.type if self.placement.of(value) == CPU else on_device(value.type)

    def cross(self, block: Block, index: int) -> None:
        for planned in self.before.get((block, index), ()):
            value, home = planned.value, self.placement.of(planned.value)
            type = value.type if planned.device == CPU else on_device(value.type)
            what = planned.name if planned.name and not value.hint else _name_of(value)
            attrs = {"what": what, "source": home, "why": planned.why}
            op = Op(COPY, [self.values[value]], [type], attrs=attrs, device=planned.device, where=planned.where)
            op.result.hint = value.hint
            self.ops.append(op)
            self.copies[value, planned.device] = op.result

    # ---- values ----

    def use(self, value: Value, device: Device) -> Value:
        """The copy of `value` on `device`; a number of the host or a constant stays a number everywhere."""
        if value in self.placement.constants:
            return self.clone(value, device)
        if self.placement.of(value) == device or (is_number(value) and self.placement.of(value) == CPU):
            return self.values[value]
        if isinstance(value.type, SequenceType):
            return self.values[value]
        return self.copies[value, device]

    def clone(self, value: Value, device: Device) -> Value:
        """A constant, made on `device` in this block."""
        known = self.clones.get((value, device))
        if known is None:
            op = value.producer
            assert op is not None
            at = CPU if is_number(value) else device
            operands = [self.clone(operand, at) for operand in op.operands]
            types = [on_device(value.type) if at != CPU and isinstance(value.type, SequenceType) else value.type]
            made = op.replace(operands=operands, device=at, result_types=types)
            made.result.hint = value.hint
            self.ops.append(made)
            known = self.clones[value, device] = made.result
        return known

    def element(self, value: Value, device: Device, where: Position | None) -> Value:
        """`value` as an array: a number of the host becomes one of a single element, filled on the device."""
        used = self.use(value, device)
        if not is_number(used) or device == CPU:
            return used
        return self.add(
            "broadcast_to", [used], TensorType(used.tensor.dtype, (1,)), {"shape": (1,), "axes": ()}, device, where
        )

    def add(
        self,
        name: str,
        operands: Sequence[Value],
        type: TensorType,
        attrs: dict[str, object],
        device: Device,
        where: Position | None,
    ) -> Value:
        op = Op(name, operands, [type], attrs=attrs, device=device, where=where)
        self.ops.append(op)
        return op.result

    # ---- ops ----

    def op(self, op: Op) -> None:
        device = self.placement.runs_on[op]
        if op.declared in (VARIABLE_READ, VARIABLE_WRITE):
            self.touch(op, device)
        elif op.declared is prims.TO_DEVICE:
            self.values[op.result] = self.use(op.operands[0], device)
        elif is_passing(op):
            self.passing(op)
        elif op.declared.is_control:
            self.structured(op)
        elif op.declared is SEQUENCE_ADD:
            sequence, index, element = op.operands
            operands = [self.use(sequence, device), self.use(index, CPU), self.element(element, device, op.where)]
            types = [self.type_at(result) for result in op.results]
            self.finish(op, op.replace(operands=operands, device=device, result_types=types))
        elif device != CPU and any(is_number(result) for result in op.results):
            self.number_on_device(op, device)
        else:
            operands = []
            for number, operand in enumerate(op.operands):
                used = self.use(operand, operand_device(op, number, device))
                if is_number(operand) and not is_number(used):
                    # Fusion puts this into the kernel: it reads the one element.
                    used = self.add("reshape", [used], operand.tensor, {"shape": ()}, device, op.where)
                operands.append(used)
            types = [self.type_at(result) for result in op.results]
            self.finish(op, op.replace(operands=operands, device=device, result_types=types))

    def finish(self, op: Op, made: Op) -> None:
        self.ops.append(made)
        for old, new in zip(op.results, made.results, strict=True):
            new.hint = old.hint
            self.values[old] = new

    def passing(self, op: Op) -> None:
        """A call or a frame: its operands come from where they are taken, its results are where they are given."""
        operands = [
            self.element(operand, self.placement.of(taken), op.where)
            for operand, taken in zip(op.operands, self.placement.taken_by(op), strict=False)
        ] or [self.use(operand, CPU) for operand in op.operands]
        effects = tuple(self.effect(effect) for effect in op.effects)
        types = [self.type_at(result) for result in op.results]
        devices = tuple(self.placement.of(result) for result in op.results)
        attrs = {**op.attrs, "devices": devices} if any(device != CPU for device in devices) else op.attrs
        self.finish(op, op.replace(operands=operands, attrs=attrs, effects=effects, device=CPU, result_types=types))

    def effect(self, effect: Effect) -> Effect:
        """An effect on the Variable as it is now."""
        return effect if effect.target is None else Effect(effect.kind, self.variable(effect.target))

    def touch(self, op: Op, device: Device) -> None:
        """A read or write of a Variable, where it lives; the number of a member is the host's."""
        variable = self.variable(op.attrs["variable"])
        values = op.operands[: op.declared is VARIABLE_WRITE]
        operands = [self.element(value, device, op.where) for value in values]
        operands += [self.use(number, CPU) for number in op.operands[len(values) :]]
        effects = tuple(Effect(effect.kind, variable) for effect in op.effects)
        attrs = {**op.attrs, "variable": variable}
        types = [self.type_at(result) for result in op.results]
        made = op.replace(operands=operands, attrs=attrs, effects=effects, device=device, result_types=types)
        self.finish(op, made)

    def number_on_device(self, op: Op, device: Device) -> None:
        """An op whose result is one number, kept on the device as an array of one element."""
        types = [on_device(result.type) for result in op.results]
        if op.declared is SEQUENCE_GET:
            operands = [self.use(operand, device) for operand in op.operands]
            self.finish(op, op.replace(operands=operands, device=device, result_types=types))
        elif op.declared.kind == "elementwise":
            operands = [self.element(operand, device, op.where) for operand in op.operands]
            self.finish(op, op.replace(operands=operands, device=device, result_types=types))
        elif op.declared in (prims.RESHAPE, prims.STOP_GRADIENT):
            source = self.element(op.operands[0], device, op.where)
            made = Op(prims.RESHAPE, [source], types, attrs={"shape": (1,)}, device=device, where=op.where)
            self.finish(op, made)
        elif op.declared.kind == "reduction" and op.operands[0].tensor.shape:
            source = self.use(op.operands[0], device)
            # The axis that stays comes first, unless the first one must be that whose size the program finds.
            first = int(source.tensor.is_static)
            shape = (1, *source.tensor.shape) if first else (*source.tensor.shape, 1)
            axes = tuple(axis + first for axis in range(source.tensor.ndim))
            wide = self.add("reshape", [source], source.tensor.with_shape(shape), {"shape": shape}, device, op.where)
            given = {"axes": axes} if "axes" in op.attrs else {"axis": first}
            if "axis" in op.attrs and source.tensor.ndim != 1:
                raise AssertionError(f"{op.name} to a number along one of {source.tensor.ndim} axes")
            attrs = {**op.attrs, **given}
            self.finish(op, op.replace(operands=[wide], attrs=attrs, device=device, result_types=types))
        else:
            raise UnsupportedError(
                f"`{op.name}` with a single number as its result does not run on the GPU yet",
                where=op.where,
                hint="compute it outside of the GPU region",
            )

    def structured(self, op: Op) -> None:
        label = op.attrs.get("label")
        attrs = dict(op.attrs)
        if isinstance(label, Label):
            attrs["label"] = self.labels[label] = Label(label.name)
        operands: list[Value] = []
        if op.declared.is_loop:
            loop = Loop(op)
            operands = [self.use(value, CPU) for value in loop.bounds]
            for param, value in zip(loop.carried, loop.initial, strict=True):
                operands.append(self.element(value, self.placement.of(param), op.where))
        else:
            operands = [self.use(value, CPU) for value in op.operands]
        blocks = []
        for block in op.blocks:
            blocks.append(self.block(block, () if is_condition(op, block) else op.results))
        types = [self.type_at(result) for result in op.results]
        self.finish(op, op.replace(operands=operands, attrs=attrs, blocks=blocks, device=CPU, result_types=types))

    def end(self, end: End, targets: tuple[Value, ...]) -> End:
        label = end.target
        if label is not None:
            targets = self.placement.targets[label]
        elif end.kind == "return":
            targets = self.returned or ()
        operands = []
        for number, operand in enumerate(end.operands):
            takes = targets[number] if number < len(targets) else None
            device = self.placement.of(takes) if takes is not None else CPU
            operands.append(self.element(operand, device, end.where))
        return End(end.kind, tuple(operands), self.labels[label] if label is not None else None, end.where)


def on_device(type: Type) -> Type:
    """The type that a value has on a device: numbers are arrays of one element there."""
    if isinstance(type, SequenceType):
        element = on_device(type.element)
        assert isinstance(element, TensorType | SequenceType)
        return SequenceType(element, type.bound)
    if isinstance(type, FrameType):
        return type
    return type if type.shape else TensorType(type.dtype, (1,))
