"""Placement, first part: on which device each value lives and each op runs.

Tested by `tests/passes/placement/test_place.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from staged.ir.declaration import prims
from staged.ir.functions import every_function, function_table, result_types
from staged.ir.nodes import Block, Function, Label, Op, Value, VariableRef, walk_ops
from staged.ir.sequences import holds_frames
from staged.ir.storage import is_tensor, root_of
from staged.ir.structure import (
    ABSENT,
    CALL,
    FRAME_LOAD,
    FRAME_SAVE,
    IF,
    SCOPE,
    SEQUENCE_EMPTY,
    VARIABLE_READ,
    VARIABLE_WRITE,
)
from staged.ir.types import CPU, Device, SequenceType, TensorType
from staged.ir.views import Branch, Call, Frame, Loop, is_condition
from staged.passes.placement.device_reads import computed_on_device, read_on_device
from staged.passes.placement.host_values import HostValues


class Placement:
    """The device of each value and op of a program: the smallest assignment in which values that meet in a loop, a
    branch or a call agree.

    A parameter or a result of a function has one device for all its callers, and so has a field of a frame. A
    parameter is on the device where the function computes with it there, or where any caller has it there: so the
    outermost caller makes the copy.

    Exact: every value has one home, whichever path makes it; a crossing copies bits, so where an op runs changes its
    rounding alone.
    """

    def __init__(self, program: Function) -> None:
        self.program = program
        self.home: dict[Value, Device] = dict(zip(program.params, devices_of_params(program), strict=True))
        self.carried: dict[Value, Value] = {}
        """By each further name of what a loop carries (its result, what its condition sees), the name in the loop's
        body.
        """
        self.variables: dict[VariableRef, Device] = {}
        """The Variables that live on a device."""
        for variable in program.variables:
            if variable.type.shape and variable.device != CPU:
                self.variables[variable] = variable.device
        self.functions = function_table(program)
        self.params = {param for function in program.functions for param in function.params}
        self.results: dict[str, tuple[Value, ...]] = {
            name: tuple(Value(type) for type in result_types(function)) for name, function in self.functions.items()
        }
        """A value for each result of each function, on whichever path it returns."""
        self.kept = _kept_results(program)
        """The same for the program's own results, if they may stay on a device; empty if the host receives them all."""
        self.fields: dict[str, tuple[Value, ...]] = {
            record.name: tuple(Value(type) for _, type in record.fields) for record in program.frames
        }
        """A value for each field of each frame."""
        self.read_on_device = read_on_device(program)
        self.computed_on_device = computed_on_device(program)
        self.run_once = frozenset(_run_once(program.block))
        self.host = HostValues(program, self.read_on_device)
        self.recorded = self.recorded_decisions(program)
        self.constants: set[Value] = set()
        self.targets: dict[Label, tuple[Value, ...]] = {}
        self.scopes: set[Label] = set()
        self.runs_on: dict[Op, Device] = {}
        self.changed = True
        # This ends: what loops carry moves once, from the host to a device, and other values follow their operands.
        while self.changed:
            self.changed = False
            for function in every_function(program):
                self.returned = self.results.get(function.name, ()) if function is not program else self.kept
                self.visit(function.block, ())

    def of(self, value: Value) -> Device:
        return self.home.get(self.carried.get(value, value), CPU)

    def of_variable(self, variable: VariableRef) -> Device:
        """The device of a Variable: the device that made it, computes with its elements or writes them, else on the
        host.
        """
        return self.variables.get(variable, CPU)

    def keep_on(self, variable: VariableRef, device: Device) -> None:
        if device != CPU and variable not in self.variables and not variable.part:
            self.variables.update(dict.fromkeys((variable, *variable.members), device))
            self.changed = True

    def want(self, value: Value, device: Device) -> None:
        """A device computes with `value`: a Variable that it reads there stays there from now on, and so does what a
        function takes.
        """
        root = root_of(value)
        if root in self.params:
            if is_tensor(root):
                self.live_on(root, device)
        elif root.producer is not None and root.producer.declared is VARIABLE_READ and value.tensor.shape:
            self.keep_on(root.producer.attrs["variable"], device)

    def live_on(self, value: Value, device: Device) -> None:
        # The caller receives a result of a weak type as a Python number.
        is_python_number = value in self.kept and isinstance(value.type, TensorType) and value.type.weak
        if self.of(value) == CPU and device != CPU and not holds_frames(value.type) and not is_python_number:
            self.home[self.carried.get(value, value)] = device
            self.changed = True

    def join(self, targets: Sequence[Value], sources: Sequence[Value]) -> None:
        for target, source in zip(targets, sources, strict=False):
            if self.is_record_of_decisions(target):
                continue
            self.live_on(target, self.of(source))
            if self.of(target) != CPU and isinstance(source.type, TensorType):
                self.want(source, self.of(target))
            elif self.of(target) != CPU and not self.is_record_of_decisions(source):
                self.live_on(source, self.of(target))  # sequences never cross

    def is_record_of_decisions(self, value: Value) -> bool:
        """Return whether a loop keeps numbers in `value` that only the host reads: its own decisions, which it need not
        copy back.
        """
        type = value.type
        if not isinstance(type, SequenceType) or value.producer is None or value in self.read_on_device:
            return False
        while isinstance(type, SequenceType):
            type = type.element
        return isinstance(type, TensorType) and not type.shape and value.producer.declared.is_control

    def visit(self, block: Block, results: tuple[Value, ...]) -> None:
        for op in block.ops:
            if op.declared.is_control:
                self.visit_structured(op)
                continue
            if is_passing(op):
                self.visit_passing(op)
                continue
            if self.is_constant(op):
                self.constants.update(op.results)
                continue
            device = self.runs_on[op] = self.device(op)
            if op.declared is VARIABLE_WRITE:
                self.keep_on(op.attrs["variable"], self.of(op.operands[0]))
            elif device != CPU:
                for operand in op.operands:
                    if isinstance(operand.type, TensorType):
                        self.want(operand, device)
            for result in op.results:
                self.live_on(result, device)
                if device != CPU and self.of(result) not in (CPU, device):
                    # An operand has moved to another device since: a view, or an op on numbers, follows it.
                    self.home[result] = device
                    self.changed = True
        end = block.end
        if end.kind == "yield":
            self.join(results, end.operands)
        elif end.kind == "return":
            self.join(self.returned, end.operands)
        elif end.target is not None and end.target not in self.scopes:
            self.join(self.targets[end.target], end.operands)

    def visit_passing(self, op: Op) -> None:
        """Arguments, results and fields are on the devices that the function and the frame have them on."""
        self.runs_on[op] = CPU
        taken, given = self.taken_by(op), self.given_by(op)
        for param, result in Call(op).in_place if op.declared is CALL else ():
            self.join([taken[param]], [given[result]])
            self.join([given[result]], [taken[param]])
        for target, operand in zip(taken, op.operands, strict=False):
            if target not in self.recorded:
                self.join([target], [operand])
        self.join(op.results, given)

    def recorded_decisions(self, program: Function) -> set[Value]:
        """The fields with numbers that only the host looks at: what it has decided it need not ask the device for
        again.
        """
        found = {field for fields in self.fields.values() for field in fields if is_number(field)}
        for function in every_function(program):
            for op in walk_ops(function.block):
                if op.declared is FRAME_LOAD:
                    given = zip(op.results, self.given_by(op), strict=True)
                    found -= {field for result, field in given if result in self.read_on_device}
        return found

    def taken_by(self, op: Op) -> tuple[Value, ...]:
        """The values that the operands of a call become, or those of `frame_save`."""
        if op.declared is CALL:
            return self.functions[Call(op).function].params
        return self.fields[Frame(op).record] if op.declared is FRAME_SAVE else ()

    def given_by(self, op: Op) -> tuple[Value, ...]:
        """The values that become the results of a call, or of `frame_load`."""
        if op.declared is CALL:
            return self.results[Call(op).function]
        return self.fields[Frame(op).record] if op.declared is FRAME_LOAD else ()

    def visit_structured(self, op: Op) -> None:
        self.runs_on[op] = CPU
        carried: tuple[Value, ...] = ()
        if op.declared.is_loop:
            loop = Loop(op)
            carried = loop.carried
            self.note_names(loop)
            self.join(carried, loop.initial)
        label = op.attrs.get("label")
        if isinstance(label, Label):
            self.targets[label] = carried if op.declared.is_loop else op.results
        if op.declared.is_loop:
            for block in op.blocks:
                self.visit(block, () if is_condition(op, block) else op.results)
        else:
            if isinstance(label, Label):
                self.scopes.add(label)
            for block in op.blocks:
                self.visit(block, ())
            self.meet(op)

    def meet(self, op: Op) -> None:
        """The results of a branch: on the device where all paths make them there, or where the device computes with
        them.

        Else the host takes them, and the paths that make them on the device bring them: the others copy nothing. What a
        loop or a function may run often stays where it is, so that it is copied once, after the last time.
        """
        ends = [end for _, end in Branch(op).ends()]
        for number, result in enumerate(op.results):
            sources = [end.operands[number] for end in ends]
            made = [source for source in sources if source not in self.constants]
            anywhere = (
                op not in self.run_once or result in self.computed_on_device or not isinstance(result.type, TensorType)
            )
            if anywhere or all(self.of(source) != CPU for source in made):
                for source in sources:
                    self.join([result], [source])

    def note_names(self, loop: Loop) -> None:
        """All names of one carried value are on one device, whichever of its iterations or exits is seen first."""
        named = list(zip(loop.final, loop.carried, strict=True))
        if loop.condition is not None:
            named += zip(loop.carried_in(loop.condition), loop.carried, strict=True)
        for name, value in named:
            if not self.is_record_of_decisions(name):
                self.carried[name] = value

    def is_constant(self, op: Op) -> bool:
        if op.declared is prims.CONSTANT:
            return not isinstance(op.attrs["value"], tuple)
        if op.declared in (ABSENT, SEQUENCE_EMPTY):
            return True
        if op.declared is prims.IOTA:
            return not op.operands
        return op.declared.is_move and all(operand in self.constants for operand in op.operands)

    def device(self, op: Op) -> Device:
        """The device that an op without control flow runs on."""
        if op.declared in (VARIABLE_READ, VARIABLE_WRITE):
            return self.of_variable(op.attrs["variable"])
        if not op.results or op.declared is prims.CONSTANT or any(effect.kind == "io" for effect in op.effects):
            return CPU
        sequence = next((v for v in (*op.operands, *op.results) if isinstance(v.type, SequenceType)), None)
        if sequence is not None:
            return self.of(sequence)
        around = [self.of(operand) for operand in op.operands]
        elsewhere = next((device for device in around if device != CPU), CPU)
        if all(is_number(value) for value in (*op.operands, *op.results)):
            # An index that picks a piece is the host's: it knows where the piece is.
            moves = op.declared.kind == "elementwise" or op.declared.is_view
            if not moves or op.device == CPU or op.declared is prims.INDEX_CHECK or elsewhere == CPU:
                return CPU
            return CPU if self.host.runs_here(op, self.of) else elsewhere
        if op.declared is prims.TO_DEVICE:
            return op.device
        if op.declared.is_view and around[0] != CPU:
            return CPU if self.host.runs_here(op, self.of) else around[0]
        if op.declared.is_view and op.result not in self.read_on_device:
            return CPU  # only what the host decides looks at it: the array stays there
        return op.device


def _run_once(block: Block) -> Iterator[Op]:
    """The branches that run at most once in a call of the program: those inside no loop and no function."""
    for op in block.ops:
        if op.declared in (IF, SCOPE):
            yield op
            for inner in op.blocks:
                yield from _run_once(inner)


def devices_of_params(function: Function) -> tuple[Device, ...]:
    """The device of each parameter: the host, unless the caller has the array on a device."""
    return function.param_devices or (CPU,) * len(function.params)


def is_passing(op: Op) -> bool:
    """Return whether an op of the host passes values on, to a function or into a frame."""
    return op.declared is CALL or op.declared.is_of_frames


def _kept_results(program: Function) -> tuple[Value, ...]:
    """A value for each result of a program that leaves results on devices; empty for other programs."""
    return tuple(map(Value, result_types(program))) if program.options.keeps_results else ()


def is_number(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape
