"""Placement: every op runs on one device, every value lives where it was made, and a `copy` op stands at each crossing.

An op asks for the device of the region it was traced in (`op.device`). What that means here:

- Control flow, prints, asserts and arithmetic on the host's numbers run on the host, wherever they were written: a loop
  counter or a learning rate reaches a kernel by value and needs no copy.
- A number computed from a device array stays there, as an array of one element; only a print, a decision (`if`, `while`,
  an index) or a result moves it.
- Constants are made on the device that wants them.
- What only looks at a piece of an array (`y[i]`) runs where the array is, so that only the piece moves.

A value crosses once per direction: before its first foreign use, outside of every loop in which it does not change, and
inside a branch if only that branch needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from staged.errors import UnsupportedError
from staged.ir.nodes import Block, End, Function, Label, Op, Value, VariableRef, walk_ops
from staged.ir.types import CPU, Device, FrameType, SequenceType, TensorType, Type
from staged.ops.primitive import PRIMITIVES
from staged.source import Position

STRUCTURED = frozenset(("if", "for", "while", "scope"))
LOOPS = frozenset(("for", "while"))
_PIECES = frozenset(("reshape", "stop_gradient", "slice", "dynamic_slice"))
"""Ops that run where their operand is: their result is a piece of it."""
_RENAMED = frozenset(("broadcast_to", "reshape", "permute", "slice", "pad", "stop_gradient"))
"""Ops that make a constant of a constant."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy between devices in the program's text.

    `why` is 'input', 'variable', 'constant' or 'value' towards a device, and 'result', 'print', 'decision', 'variable' or
    'value' (a computation on the host) from it.
    """

    what: str
    source: Device
    target: Device
    nbytes: int
    why: str
    where: Position | None

    def __str__(self) -> str:
        place = f"  {self.where.short}  {self.where.text}" if self.where else ""
        return f"{self.what}: {self.source} -> {self.target}, {self.nbytes:,} bytes, {self.why}{place}"


def transfers(function: Function) -> tuple[Transfer, ...]:
    """The copies of a placed function, in program order (a copy in a loop is listed once)."""
    found = []
    for op in walk_ops(function.block):
        if op.name == "copy":
            attrs, size = op.attrs, op.operands[0].tensor.nbytes
            found.append(Transfer(attrs["what"], attrs["source"], op.device, size, attrs["why"], op.where))
    return tuple(found)


def place(function: Function) -> Function:
    """`function` with its ops on their devices and `copy` ops where values cross (see the module's docstring).

    `copy` has one operand and one result of the same type (from a device, a number comes as an array of one element);
    its device is the one it copies to, its attrs are `what` (a name for people), `source` and `why`. A program of one device has none.
    """
    if all(op.device == CPU for op in walk_ops(function.block)):
        return function
    homes = _Homes(function)
    crossings = _Crossings(function, homes)
    return function.with_block(_Placer(homes, crossings).block(function.block, ()))


# ---- where values live --------------------------------------------------------------------------


class _Homes:
    """Where each value lives and each op runs: the smallest assignment in which what meets in a loop or branch agrees."""

    def __init__(self, function: Function) -> None:
        self.home: dict[Value, Device] = dict.fromkeys(function.params, CPU)
        self.constants: set[Value] = set()
        self.targets: dict[Label, tuple[Value, ...]] = {}
        self.runs_on: dict[Op, Device] = {}
        self.changed = True
        while self.changed:  # a value only ever moves from the host to a device, so this ends
            self.changed = False
            self.visit(function.block, ())

    def of(self, value: Value) -> Device:
        return self.home.get(value, CPU)

    def live_on(self, value: Value, device: Device) -> None:
        if self.of(value) == CPU and device != CPU:
            self.home[value] = device
            self.changed = True

    def join(self, targets: Sequence[Value], sources: Sequence[Value]) -> None:
        for target, source in zip(targets, sources, strict=False):
            self.live_on(target, self.of(source))

    def visit(self, block: Block, results: tuple[Value, ...]) -> None:
        for op in block.ops:
            if op.name in STRUCTURED:
                self.visit_structured(op)
                continue
            if self.is_constant(op):
                self.constants.update(op.results)
                continue
            device = self.runs_on[op] = self.device(op)
            for result in op.results:
                self.live_on(result, device)
        end = block.end
        if end.kind == "yield":
            self.join(results, end.operands)
        elif end.target is not None:
            self.join(self.targets[end.target], end.operands)

    def visit_structured(self, op: Op) -> None:
        self.runs_on[op] = CPU
        carried: tuple[Value, ...] = ()
        if op.name in LOOPS:
            carried = carried_params(op)
            self.join(carried, initial_operands(op))
        label = op.attrs.get("label")
        if isinstance(label, Label):
            self.targets[label] = carried if op.name in LOOPS else op.results
        if op.name == "while":
            self.visit(op.blocks[0], ())
            self.visit(op.blocks[1], op.results)
        else:
            for block in op.blocks:
                self.visit(block, op.results)
        # All names of one carried value live in one place.
        self.join(carried, op.results)
        self.join(op.results, carried)
        if op.name == "while":
            self.join(op.blocks[0].params, carried)

    def is_constant(self, op: Op) -> bool:
        if op.name == "constant":
            return not isinstance(op.attrs["value"], tuple)
        if op.name == "absent":
            return True
        if op.name == "iota":
            return not op.operands
        return op.name in _RENAMED and all(operand in self.constants for operand in op.operands)

    def device(self, op: Op) -> Device:
        """Where an op without control flow runs."""
        if op.name in ("variable_read", "variable_write"):
            return home_of_variable(op.attrs["variable"])
        if not op.results or op.name == "constant" or any(effect.kind == "io" for effect in op.effects):
            return CPU
        sequence = next((v for v in (*op.operands, *op.results) if isinstance(v.type, SequenceType)), None)
        if sequence is not None:
            return self.of(sequence)
        around = [self.of(operand) for operand in op.operands]
        elsewhere = next((device for device in around if device != CPU), CPU)
        if all(is_number(value) for value in (*op.operands, *op.results)):
            moves = op.device != CPU and (is_elementwise(op) or op.name in _PIECES)
            return elsewhere if moves else CPU
        if op.name in _PIECES and around[0] != CPU:
            return around[0]
        return op.device


def home_of_variable(variable: VariableRef) -> Device:
    """Where a Variable lives: one of Python's, and a single number, on the host."""
    return CPU if variable.outer or not variable.type.shape else variable.device


def is_number(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape


def is_elementwise(op: Op) -> bool:
    return op.name in PRIMITIVES and PRIMITIVES[op.name].kind == "elementwise"


def carried_params(op: Op) -> tuple[Value, ...]:
    """The body's parameters for what a loop carries."""
    return op.blocks[-1].params[1:] if op.name == "for" else op.blocks[-1].params


def initial_operands(op: Op) -> tuple[Value, ...]:
    return op.operands[3:] if op.name == "for" else op.operands


# ---- where values cross -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One level on the way to a use: the op number `index` of `block`; `in_loop`: the block is a loop's."""

    block: Block
    index: int
    in_loop: bool


@dataclass(slots=True)
class _Crossing:
    """A value that is used on another device, with all its uses there."""

    value: Value
    device: Device
    why: str
    where: Position | None
    uses: list[tuple[_Step, ...]] = field(default_factory=list)


class _Crossings:
    """Every crossing of a function, and before which op it takes place."""

    def __init__(self, function: Function, homes: _Homes) -> None:
        self.homes = homes
        self.found: dict[tuple[Value, Device], _Crossing] = {}
        self.depth: dict[Value, int] = {}
        self.params = set(function.params)
        self.visit(function.block, (), (), False)
        self.before: dict[tuple[Block, int], list[_Crossing]] = {}
        for crossing in self.found.values():
            self.before.setdefault(self.position(crossing), []).append(crossing)

    def visit(self, block: Block, path: tuple[_Step, ...], targets: tuple[Value, ...], in_loop: bool) -> None:
        self.depth.update(dict.fromkeys(block.params, len(path)))
        for index, op in enumerate(block.ops):
            here = (*path, _Step(block, index, in_loop))
            self.visit_op(op, here)
            self.depth.update(dict.fromkeys(op.results, len(path)))
        end, here = block.end, (*path, _Step(block, len(block.ops), in_loop))
        if end.kind == "yield":
            self.meet(targets, end, here)
        elif end.target is not None:
            self.meet(self.homes.targets[end.target], end, here)
        else:
            for operand in end.operands:
                self.use(operand, CPU, "result", end.where, here)

    def meet(self, targets: tuple[Value, ...], end: End, here: tuple[_Step, ...]) -> None:
        """The operands of an end become `targets`; those without one decide a `while`."""
        for number, operand in enumerate(end.operands):
            target = targets[number] if number < len(targets) else None
            device = self.homes.of(target) if target is not None else CPU
            self.use(operand, device, "value" if target is not None else "decision", end.where, here)

    def visit_op(self, op: Op, here: tuple[_Step, ...]) -> None:
        if op.name not in STRUCTURED:
            if op in self.homes.runs_on:
                for number, operand in enumerate(op.operands):
                    device = operand_device(op, number, self.homes.runs_on[op])
                    self.use(operand, device, _why(op, number), op.where, here)
            return
        if op.name in LOOPS:
            initial = initial_operands(op)
            for operand in op.operands[: len(op.operands) - len(initial)]:
                self.use(operand, CPU, "decision", op.where, here)
            for param, operand in zip(carried_params(op), initial, strict=True):
                self.use(operand, self.homes.of(param), "value", op.where, here)
        else:
            for operand in op.operands:
                self.use(operand, CPU, "decision", op.where, here)
        for number, block in enumerate(op.blocks):
            is_condition = op.name == "while" and number == 0
            self.visit(block, here, () if is_condition else op.results, op.name in LOOPS)

    def use(self, value: Value, device: Device, why: str, where: Position | None, here: tuple[_Step, ...]) -> None:
        home = self.homes.of(value)
        if value in self.homes.constants or home == device or isinstance(value.type, SequenceType):
            return
        if is_number(value) and home == CPU:
            return  # kernels take it by value
        crossing = self.found.get((value, device))
        if crossing is None:
            if device != CPU:
                why = self.what_it_is(value)
            crossing = self.found[value, device] = _Crossing(value, device, why, where)
        crossing.uses.append(here)

    def what_it_is(self, value: Value) -> str:
        if value in self.params:
            return "input"
        producer = value.producer.name if value.producer is not None else ""
        return {"variable_read": "variable", "constant": "constant"}.get(producer, "value")

    def position(self, crossing: _Crossing) -> tuple[Block, int]:
        """Before the first op that leads to a use, in the innermost block around all uses, outside of needless loops."""
        first = crossing.uses[0]
        made_at = self.depth[crossing.value]
        level = made_at
        while (
            all(len(use) > level + 1 and use[level + 1].block is first[level + 1].block for use in crossing.uses)
            and not first[level + 1].in_loop
        ):
            level += 1
        return first[level].block, min(use[level].index for use in crossing.uses)


def operand_device(op: Op, number: int, device: Device) -> Device:
    """Where an op wants its operand: where it runs, but the host decides which piece of an array is meant."""
    return CPU if op.name in ("dynamic_slice", "dynamic_update") and is_number(op.operands[number]) else device


def _why(op: Op, number: int) -> str:
    if op.name.startswith(("print", "progress")):
        return "print"
    if op.name in ("assert", "raise", "index_check", "dim") or operand_device(op, number, op.device) != op.device:
        return "decision"
    return "variable" if op.name == "variable_write" else "value"


# ---- the placed program -------------------------------------------------------------------------


class _Placer:
    """Writes the program anew: ops on their devices, copies in place, numbers on a device as arrays of one element."""

    def __init__(self, homes: _Homes, crossings: _Crossings) -> None:
        self.homes = homes
        self.before = crossings.before
        self.values: dict[Value, Value] = {}
        self.copies: dict[tuple[Value, Device], Value] = {}
        self.clones: dict[tuple[Value, Device], Value] = {}
        self.labels: dict[Label, Label] = {}
        self.ops: list[Op] = []

    def block(self, block: Block, targets: tuple[Value, ...]) -> Block:
        outer, self.ops = self.ops, []
        outer_clones, self.clones = self.clones, dict(self.clones)
        params = [self.param(param) for param in block.params]
        for index, op in enumerate(block.ops):
            self.cross(block, index)
            if op not in self.homes.runs_on:
                continue  # a constant: made where it is used
            self.op(op)
        self.cross(block, len(block.ops))
        end = self.end(block.end, targets)
        made = Block(params, self.ops, end)
        self.ops, self.clones = outer, outer_clones
        return made

    def param(self, param: Value) -> Value:
        made = Value(self.type_at(param), None, param.index, param.hint)
        self.values[param] = made
        return made

    def type_at(self, value: Value) -> Type:
        return value.type if self.homes.of(value) == CPU else on_device(value.type)

    def cross(self, block: Block, index: int) -> None:
        for crossing in self.before.get((block, index), ()):
            value, home = crossing.value, self.homes.of(crossing.value)
            type = value.type if crossing.device == CPU else on_device(value.type)
            what = value.hint or (value.producer.name if value.producer is not None else "a value")
            attrs = {"what": what, "source": home, "why": crossing.why}
            op = Op("copy", [self.values[value]], [type], attrs=attrs, device=crossing.device, where=crossing.where)
            op.result.hint = value.hint
            self.ops.append(op)
            self.copies[value, crossing.device] = op.result

    # ---- values ----

    def use(self, value: Value, device: Device) -> Value:
        """What stands for `value` on `device`; a number of the host or a constant stays a number everywhere."""
        if value in self.homes.constants:
            return self.clone(value, device)
        if self.homes.of(value) == device or (is_number(value) and self.homes.of(value) == CPU):
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
            made = op.replace(operands=[self.clone(operand, device) for operand in op.operands], device=at)
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
        device = self.homes.runs_on[op]
        if op.name in STRUCTURED:
            self.structured(op)
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

    def number_on_device(self, op: Op, device: Device) -> None:
        """An op whose result is one number, kept on the device as an array of one element."""
        types = [on_device(result.type) for result in op.results]
        if op.name in ("sequence_get", "variable_read"):
            operands = [self.use(operand, device) for operand in op.operands]
            self.finish(op, op.replace(operands=operands, device=device, result_types=types))
        elif is_elementwise(op):
            operands = [self.element(operand, device, op.where) for operand in op.operands]
            self.finish(op, op.replace(operands=operands, device=device, result_types=types))
        elif op.name in ("reshape", "stop_gradient"):
            source = self.element(op.operands[0], device, op.where)
            made = Op("reshape", [source], types, attrs={"shape": (1,)}, device=device, where=op.where)
            self.finish(op, made)
        elif op.name in PRIMITIVES and PRIMITIVES[op.name].kind == "reduction" and op.operands[0].tensor.shape:
            source = self.use(op.operands[0], device)
            shape = (1, *source.tensor.shape)
            axes = tuple(axis + 1 for axis in range(source.tensor.ndim))
            wide = self.add("reshape", [source], source.tensor.with_shape(shape), {"shape": shape}, device, op.where)
            given = {"axes": axes} if "axes" in op.attrs else {"axis": 1}
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
        if op.name in LOOPS:
            initial = initial_operands(op)
            operands = [self.use(value, CPU) for value in op.operands[: len(op.operands) - len(initial)]]
            for param, value in zip(carried_params(op), initial, strict=True):
                operands.append(self.element(value, self.homes.of(param), op.where))
        else:
            operands = [self.use(value, CPU) for value in op.operands]
        blocks = []
        for number, block in enumerate(op.blocks):
            is_condition = op.name == "while" and number == 0
            blocks.append(self.block(block, () if is_condition else op.results))
        types = [self.type_at(result) for result in op.results]
        self.finish(op, op.replace(operands=operands, attrs=attrs, blocks=blocks, device=CPU, result_types=types))

    def end(self, end: End, targets: tuple[Value, ...]) -> End:
        label = end.target
        if label is not None:
            targets = self.homes.targets[label]
        operands = []
        for number, operand in enumerate(end.operands):
            takes = targets[number] if number < len(targets) and end.kind != "return" else None
            device = self.homes.of(takes) if takes is not None else CPU
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
