"""Find the local values of a program, which may differ between ranks. All others are replicated: equal on all ranks.

`st.rank()`, a shard, and what other ranks sent are local, and so is every value that is computed from a local one, or
under a condition that is local. The result of a reduction over ranks is replicated. The analysis is a fixed point over
loops, branches and functions: a value that is local once stays local. After it, `check` raises located errors.

Tested by `tests/passes/ranks/test_locality.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.nodes import Block, End, Function, Label, Op, Value, VariableRef, walk_ops
from staged.ir.sizes import Dim, Size, dims_in
from staged.ir.structure import (
    CALL,
    CALLBACK,
    CLOCK,
    CUSTOM_VJP,
    FILE_CLOSE,
    FILE_OPEN,
    IF,
    JVP,
    PRINT,
    SAVE,
    SCOPE,
    VARIABLE_READ,
    VARIABLE_WRITE,
    VJP,
)  # fmt: skip
from staged.ir.types import TensorType, dims_of
from staged.ir.views import Branch, Call, CustomVjp, Derivative, Loop
from staged.ops.ranks import Collective, rows_of
from staged.passes.ranks.draws import Draws
from staged.passes.ranks.errors import (
    Cause,
    drifting,
    local_cotangent,
    local_loss,
    not_replicated,
    shared_file,
    unequal_sizes,
    waiting,
)

Exits = dict[tuple[str, Label | None], Cause]
"""By how some ranks may go on elsewhere ("break", "continue" or "return") and from where, the reason."""
_INSIDE = "it is used with a local value"


class Locality(Draws):
    """The local values of a program and of the functions that it calls."""

    def __init__(self, program: Function) -> None:
        super().__init__(program)
        self.program = program
        self.variables: dict[VariableRef, Cause] = {}
        """The local Variables."""
        self.dims: dict[Dim, Cause] = {}
        """The sizes that differ between ranks."""
        self.controls: dict[str, Cause] = {}
        """By function that is called under a local condition, the reason."""
        self.returned: dict[tuple[str, int], Cause] = {}
        """By function and number, the local results."""
        self.left: dict[Label, Cause] = {}
        """The loops whose number of iterations differs between ranks."""
        self.by_each: set[Op] = set()
        """The prints and files of local values: those of each rank."""
        self.families = [ref for each in every_function(program) for ref in each.variables if ref.members]
        self.declared()
        while self.is_changing:
            self.is_changing = False
            self.sweep()

    def check(self) -> None:
        """Raise the first error: of the order of messages, of a Variable, of a size or of a derivative."""
        self.is_checking = True
        self.sweep()

    def sweep(self) -> None:
        """Visit all functions once."""
        for function in every_function(self.program):
            exits = self.block(function.block, self.controls.get(function.name))
            if function is not self.program:
                self.results(function, exits.get(("return", None)))

    # ---- facts ----

    def declared(self) -> None:
        """Note the arguments that are declared local, and their sizes: only those of replicated arrays are equal."""
        program = self.program
        local = set(program.local_params)
        equal: set[Dim] = set()
        for number, param in enumerate(program.params):
            if number not in local:
                equal.update(dims_of(param.type))
        for number in program.local_params:
            name = f"the argument `{program.param_paths[number]}`"
            self.local[program.params[number]] = Cause(f"it is {name}, which is declared local", program.where)
            for dim in dims_of(program.params[number].type):
                if dim not in equal:
                    self.dims.setdefault(dim, Cause(f"it is a size of {name}, which is declared local", program.where))
        sizes = {str(dim): cause for dim, cause in self.dims.items()}
        for path, param in zip(program.param_paths, program.params, strict=False):
            if path in sizes and param not in self.local and isinstance(param.type, TensorType) and param.type.weak:
                self.local[param] = sizes[path]

    def cause_of(self, values: Sequence[Value], control: Cause | None = None) -> Cause | None:
        """The reason why one of the values is local."""
        if control is not None:
            return control
        return next((self.local[value] for value in values if value in self.local), None)

    def needs_local(self, value: Value, cause: Cause) -> None:
        """A local value is computed from this one: a sequence is then local itself, an array gets a `vary`."""
        if not isinstance(value.type, TensorType):
            self.note(value, cause)

    def note_variable(self, variable: VariableRef, cause: Cause) -> None:
        """The Variable is local, and so is each family that it is in, with all its members."""
        families = [family for family in self.families if variable is family or variable in family.members]
        for each in chain([variable], families, *(family.members for family in families)):
            if each not in self.variables:
                self.variables[each] = cause
                self.is_changing = True

    def results(self, function: Function, early: Cause | None) -> None:
        """Note the local results of a function."""
        for end in returns(function.block):
            for number, value in enumerate(end.operands):
                cause = self.cause_of([value], early)
                if cause is not None and (function.name, number) not in self.returned:
                    self.returned[function.name, number] = cause
                    self.is_changing = True
                if (function.name, number) in self.returned:
                    self.needs_local(value, self.returned[function.name, number])

    # ---- blocks and ops ----

    def block(self, block: Block, control: Cause | None) -> Exits:
        """Visit a block. `control` is the reason why only some ranks may run it."""
        exits: Exits = {}
        for op in block.ops:
            found = self.op(op, control)
            for way, cause in found.items():
                exits.setdefault(way, cause)
                control = control or cause  # what follows runs on the ranks that did not leave
        end = block.end
        if control is not None and (end.is_of_loop or end.kind == "return"):
            exits.setdefault((end.kind, end.target), control)
        return exits

    def op(self, op: Op, control: Cause | None) -> Exits:
        declared = op.declared
        exits: Exits = {}
        if declared in (IF, SCOPE):
            exits = self.branch(op, control)
        elif declared.is_loop:
            exits = self.loop(op, control)
        elif declared in (VJP, JVP):
            self.derivative(op, control)
        elif declared is CUSTOM_VJP:
            self.custom(op, control)
        elif isinstance(declared, Collective):
            self.collective(op, declared, control)
        elif declared is CALL:
            self.call(op, control)
        elif declared.is_closed and not declared.is_opaque:
            self.closed(op, control)
        else:
            self.plain(op, control)
        for value, wants in zip(op.operands, self.wants_local(op), strict=True):
            if wants and value not in self.local:
                self.needs_local(value, Cause(_INSIDE, op.where))
        if control is None:
            self.draws(op)
        return exits

    def plain(self, op: Op, control: Cause | None) -> None:
        """An op without blocks that run in its place."""
        declared = op.declared
        cause = self.cause_of(op.operands, control) or self.cause_of_sizes(op)
        if declared is prims.RANK:
            cause = Cause("it is `st.rank()`", op.where)
        elif declared is CLOCK:
            cause = Cause("it is a time on the clock of this rank", op.where)
        elif declared is CALLBACK:
            cause = Cause("it is computed by Python on each rank", op.where)
        elif declared in (PRINT, FILE_OPEN, FILE_CLOSE, SAVE):
            self.show(op, cause)
        elif declared is VARIABLE_READ:
            cause = self.read(op, cause)
        elif declared is VARIABLE_WRITE:
            self.write(op, control)
        elif declared is prims.DIM and cause is not None and op.attrs["dim"] not in self.dims:
            self.dims[op.attrs["dim"]] = cause
            self.is_changing = True
        for result in op.results:
            self.note(result, cause)

    def cause_of_sizes(self, op: Op) -> Cause | None:
        """The reason why a size that an op depends on is local."""
        if not self.dims:
            return None
        dims = chain(_dims_in_attrs(op.attrs), *(dims_of(result.type) for result in op.results))
        return next((self.dims[dim] for dim in dims if dim in self.dims), None)

    def show(self, op: Op, cause: Cause | None) -> None:
        """A print, or the use of a file: that of rank 0, or of each rank, for which `cause` is the reason."""
        if op.declared in (FILE_OPEN, SAVE):
            of_file = self.cause_of(op.operands[: len(op.operands) - len(op.attrs.get("arrays", ()))])
        elif op.declared is FILE_CLOSE or op.attrs["file"] == "file":
            of_file = self.cause_of(op.operands[-1:])
        else:
            of_file = cause
        if of_file is not None:
            self.by_each.add(op)
        elif cause is not None and self.is_checking and op.declared is not FILE_CLOSE:
            raise shared_file(op, cause)

    def collective(self, op: Op, declared: Collective, control: Cause | None) -> None:
        if self.is_checking:
            self.check_collective(op, declared, control)
        if not declared.is_replicated or control is not None:
            rows = op.result.tensor.shape[0] if declared is prims.SHARD and rows_of(op) is not None else None
            for result in op.results:
                self.note(result, control or Cause(f"it comes from `st.{op.name}`", op.where, rows=rows))

    def check_collective(self, op: Op, declared: Collective, control: Cause | None) -> None:
        if control is not None:  # of a `shard`, the derivative communicates
            raise waiting(op, control)
        if declared.takes_replicated and (cause := self.cause_of(op.operands)) is not None:
            raise not_replicated(op, cause)
        for dim in chain.from_iterable(dims_of(value.type) for value in op.operands):
            if dim in self.dims:
                raise unequal_sizes(op, dim, self.dims[dim])

    def read(self, op: Op, cause: Cause | None) -> Cause | None:
        """The reason why the value of a Variable is local."""
        variable: VariableRef = op.attrs["variable"]
        if variable.local and variable not in self.variables:
            self.note_variable(variable, Cause(f"it is the local Variable `{variable.name}`", op.where))
        if cause is not None and not variable.outer:
            self.note_variable(variable, cause)  # a Variable of the program itself may have a derivative
        return self.variables.get(variable, cause)

    def write(self, op: Op, control: Cause | None) -> None:
        """A write of a Variable. A Variable of the program itself is local if a local value is written to it."""
        variable: VariableRef = op.attrs["variable"]
        of_value = self.cause_of(op.operands)
        cause = control or of_value
        if cause is None:
            return
        if not variable.outer or variable.local:
            self.note_variable(variable, cause)
        elif self.is_checking:
            raise drifting(op, variable, cause, is_of_value=control is None)

    # ---- control flow ----

    def branch(self, op: Op, control: Cause | None) -> Exits:
        cause = self.cause_of(op.operands, control) if op.declared is IF else control
        # A `raise` ends the job: all ranks that are left take the other branch.
        rest = [block for block in op.blocks if block.end.kind != "raise"]
        inside = control if len(rest) == 1 else cause
        exits: Exits = {}
        for block in op.blocks:
            for way, reason in self.block(block, inside if block in rest else cause).items():
                exits.setdefault(way, reason)
        early = exits.pop(("break", op.attrs["label"]), None) if op.declared is SCOPE else None
        self.passes([end for _, end in Branch(op).ends()], op.results, control, early or inside)
        return exits

    def passes(
        self, ends: Sequence[End], targets: Sequence[Value], control: Cause | None = None, choice: Cause | None = None
    ) -> None:
        """Ends pass values to targets, which are local if a value is, or if different values meet by a local choice."""
        for place, target in enumerate(targets):
            values = dict.fromkeys(end.operands[place] for end in ends if place < len(end.operands))
            cause = self.cause_of(list(values), control) or (choice if len(values) > 1 else None)
            self.note(target, cause)
            if target in self.local:
                for value in values:
                    self.needs_local(value, self.local[target])
                    if control is None:
                        self.joins(value, self.local[target])

    def loop(self, op: Op, control: Cause | None) -> Exits:
        loop = Loop(op)
        inside = control or _of(self.cause_of(loop.bounds), "trip count") or self.left.get(loop.label)
        if loop.condition is not None:
            self.enter(loop.carried_in(loop.condition), loop.initial, inside)
            self.block(loop.condition, inside)
            inside = inside or self.cause_of(loop.condition.end.operands)
            # The condition is computed once more than the body: it runs under itself.
            self.block(loop.condition, inside)
        self.enter(loop.carried, loop.initial, inside)
        for index in loop.indices:
            self.note(index, inside)
        exits = self.block(loop.body, inside)
        skipped = exits.pop(("continue", loop.label), None)
        if exits and loop.label not in self.left:  # also by a `return`, or by a `break` of a loop around it
            self.left[loop.label] = next(iter(exits.values()))
            self.is_changing = True
        exits.pop(("break", loop.label), None)
        self.passes([end for _, end in loop.ends()], [*loop.final, *loop.collected], inside, skipped)
        everywhere = [loop.carried, loop.final]
        if loop.condition is not None:
            everywhere.append(loop.carried_in(loop.condition))
        for together in zip(*everywhere, strict=True):
            cause = self.cause_of(together)
            for value in together:
                self.note(value, cause)
        return exits

    def enter(self, params: Sequence[Value], given: Sequence[Value], control: Cause | None) -> None:
        for param, value in zip(params, given, strict=True):
            self.note(param, self.cause_of([value], control))

    # ---- closed blocks, and functions ----

    def closed(self, op: Op, control: Cause | None) -> None:
        """A block whose parameters are the operands, and whose results are what it yields."""
        (block,) = op.blocks
        # A collective in a `vmap` is one message of all elements.
        inside = control or _of(self.cause_of_sizes(op), f"size of `{op.name}`")
        self.enter(block.params, op.operands[: len(block.params)], inside)
        self.block(block, inside)
        self.passes([block.end], op.results, inside)

    def custom(self, op: Op, control: Cause | None) -> None:
        """A primal with the user's derivative. If an operand is local, all operands are."""
        parts = CustomVjp(op)
        primal, forward, backward = op.blocks
        inside = self.cause_of(op.operands, control)
        for param in (*primal.params, *forward.params):
            self.note(param, inside)
        self.block(primal, control)
        self.block(forward, control)
        residuals = backward.params[: len(parts.residuals)]
        self.passes([primal.end], op.results)
        self.passes([forward.end], [*op.results, *residuals])
        for param, result in zip(backward.params[len(residuals) :], _differentiable(op), strict=True):
            self.note(param, self.local.get(result))
        self.block(backward, control)
        params = [primal.params[number] for number in parts.wrt]
        for value, param in zip(backward.end.operands, params, strict=True):
            if self.is_checking and value in self.local and param not in self.local:
                raise local_cotangent(op, param, self.local[value])

    def derivative(self, op: Op, control: Cause | None) -> None:
        parts = Derivative(op)
        block = parts.primal
        self.enter(block.params, parts.captures, control)
        if op.declared is JVP:
            for number, tangent in zip(parts.wrt, parts.directions, strict=True):
                self.note(block.params[number], self.cause_of([tangent], control))
        self.block(block, control)
        outputs: int = op.attrs["outputs"]
        self.passes([block.end], op.results[:outputs], control)
        derived = op.results[outputs:]
        if op.declared is JVP:
            moving = [v for v in block.end.operands[:outputs] if is_differentiable(v)]
            for value, tangent in zip(moving, derived, strict=True):
                self.note(tangent, self.cause_of([value], control))
            return
        for number, cotangent in zip(parts.wrt, derived, strict=True):
            self.note(cotangent, self.local.get(block.params[number]))
        if self.is_checking:
            for number, direction in zip(parts.of, parts.directions, strict=True):
                self.check_seed(op, block.end.operands[number], direction)

    def check_seed(self, op: Op, value: Value, direction: Value) -> None:
        """The cotangent of a replicated value is replicated. That of a local value is local if an input is
        replicated: the input's cotangent is the sum over the ranks.
        """
        cause = self.local.get(value)
        if cause is None:
            if direction in self.local:
                raise local_cotangent(op, value, self.local[direction])
        elif direction not in self.local:
            parts = Derivative(op)
            for param in (parts.primal.params[number] for number in parts.wrt):
                if param not in self.local:
                    raise local_loss(op, value, cause, param)

    def call(self, op: Op, control: Cause | None) -> None:
        function = self.functions[Call(op).function]
        if control is not None and function.name not in self.controls:
            self.controls[function.name] = control
            self.is_changing = True
        self.enter(function.params, op.operands, control)
        for number, result in enumerate(op.results):
            self.note(result, control or self.returned.get((function.name, number)))

    # ---- where a `vary` belongs ----

    def wants_local(self, op: Op) -> Sequence[bool]:
        """For each operand of an op, whether it must be local."""
        declared, local = op.declared, self.local
        if declared.is_loop:
            loop = Loop(op)
            return [*(False for _ in loop.bounds), *(param in local for param in loop.carried)]
        if declared is IF:
            return [False]
        if declared is CALL:
            return [param in local for param in self.functions[Call(op).function].params]
        if declared in (VJP, JVP):
            parts = Derivative(op)
            params = [param in local for param in parts.primal.params]
            if declared is JVP:
                return [*params, *(params[number] for number in parts.wrt)]
            return [*params, *(parts.primal.end.operands[number] in local for number in parts.of)]
        if declared.is_closed and not declared.is_opaque:
            return [param in local for param in op.blocks[0].params]
        if isinstance(declared, Collective):
            return [not declared.takes_replicated for _ in op.operands]
        if declared is VARIABLE_WRITE:
            return [op.attrs["variable"] in self.variables for _ in op.operands]
        is_local = any(value in local for value in (*op.operands, *op.results))
        return [is_local for _ in op.operands]

    def passed(self, function: Function) -> Mapping[End, Sequence[bool]]:
        """For each value that an end of a block of a function passes on, whether it must be local."""
        found: dict[End, Sequence[bool]] = {}
        for op in walk_ops(function.block, into_opaque=False):
            for end, targets in ends_of(op):
                wants = [target in self.local for target in targets]
                found[end] = (wants + [False] * len(end.operands))[: len(end.operands)]
        for end in returns(function.block):
            found[end] = [(function.name, number) in self.returned for number, _ in enumerate(end.operands)]
        return found


def _of(cause: Cause | None, of: str) -> Cause | None:
    """The reason why the trip count of a loop, or a size, is local."""
    return None if cause is None else replace(cause, of=of)


def is_differentiable(value: Value) -> bool:
    """Return whether a value may have a derivative."""
    return isinstance(value.type, TensorType) and value.type.dtype.is_inexact


def ends_of(op: Op) -> list[tuple[End, Sequence[Value]]]:
    """The ends by which the blocks of an op pass values on, each with the values that receive them."""
    declared = op.declared
    if declared.is_opaque or not op.blocks:
        return []
    if declared.is_loop:
        loop = Loop(op)
        return [(end, [*loop.final, *loop.collected]) for _, end in loop.ends()]
    if declared.is_control:
        return [(end, op.results) for _, end in Branch(op).ends()]
    if declared is CUSTOM_VJP:
        parts = CustomVjp(op)
        primal, forward, backward = op.blocks
        residuals = backward.params[: len(parts.residuals)]
        cotangents = [primal.params[number] for number in parts.wrt]
        return [(primal.end, op.results), (forward.end, [*op.results, *residuals]), (backward.end, cotangents)]
    (block,) = op.blocks
    return [(block.end, op.results)]


def returns(block: Block) -> list[End]:
    """The ends of a function that return."""
    found = [block.end] if block.end.kind == "return" else []
    for op in block.ops:
        if op.declared.is_control:
            for inner in op.blocks:
                found += returns(inner)
    return found


def _differentiable(op: Op) -> list[Value]:
    return [result for result in op.results if is_differentiable(result)]


def _dims_in_attrs(attrs: Mapping[str, Any]) -> list[Dim]:
    """The dimensions in the attributes of an op."""
    found: list[Dim] = []
    for value in attrs.values():
        for size in value if isinstance(value, tuple) else (value,):
            if isinstance(size, Size):
                found += dims_in(size)
    return found
