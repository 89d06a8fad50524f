"""The invariants of the IR, checked between passes.

1. Every operand is made before it is used, in the same block or one around it, and only once.
2. Every block ends; `yield` gives as many values as its op takes, of the types it says.
3. `break` and `continue` name a label that is around them and pass its carried values, with their types.
4. A structured op has the operands, blocks, results, attributes and effects that `ir/structure.py` declares for it; a
   branch that
    yields gives the op's result types.
5. A loop's carried values keep their types.
6. `return` gives the function's result types, the same everywhere.
7. Reads and writes name a Variable that the function lists, with its type.
8. `composite`, `kernel` and transforms' blocks use nothing but their parameters and constants made inside; so does the
   body of a function that is called.
9. A call gives its function what it takes and has its results' types; it has the effects of what the function does.
10. Frames are saved and loaded with the fields that their record lists; functions and frames are listed by the program
    alone.
11. A `dim` op gives a symbolic dimension its size for the rest of its block. Ops on arrays of that size stand where it
    has one; control flow, sequences and frames only pass such arrays on, and may do so elsewhere.

When it objects it names the pass, shows the op and its Python line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from staged.ir.declaration import prims
from staged.ir.functions import every_function, function_table, result_types
from staged.ir.nodes import Block, FrameRecord, Function, Label, Op, Value, free_values
from staged.ir.printer import print_op
from staged.ir.signature import Structured
from staged.ir.sizes import Dim
from staged.ir.structure import CALL, FRAME_NULL, JVP, SCOPE, VJP
from staged.ir.types import TensorType, Type, dims_of, f32
from staged.ir.views import Call, Derivative, Frame, Loop

Labels = dict[Label, tuple[Type, ...]]
"""The loops and scopes around a block, with the types that their ends pass."""


class VerificationError(AssertionError):
    """An invariant of the IR is broken: a bug of ours, never the user's."""


def verify_if_asked(function: Function, after: str) -> None:
    """`verify` where STAGED_VERIFY is set, as it is in the tests: it looks for faults of ours, at a tenth of the time
    of staging.
    """
    if os.environ.get("STAGED_VERIFY", "0") not in ("", "0"):
        verify(function, after)


def verify(function: Function, after: str = "construction") -> None:
    """Raise `VerificationError` naming the pass `after` if the program `function` breaks an invariant."""
    names = [other.name for other in function.functions]
    if len(set(names)) < len(names) or any(other.functions or other.frames for other in function.functions):
        raise VerificationError(f"after {after}: functions are listed twice, or by a function that is no program")
    for each in every_function(function):
        _Verifier(each, after, function).run()


class _Verifier:
    def __init__(self, function: Function, after: str, program: Function) -> None:
        self.function = function
        self.called = function_table(program)
        self.frames: dict[str, FrameRecord] = {record.name: record for record in program.frames}
        self.after = after
        self.seen: set[Value] = set()
        self.variables = set(function.variables)
        self.returns: tuple[Type, ...] | None = None
        self.sized: set[Dim] = {dim for param in function.params for dim in dims_of(param.type)}

    def fail(self, message: str, op: Op | None = None) -> None:
        place = ""
        if op is not None:
            place = f"\n  {print_op(op)}" + (f"\n  from {op.where}" if op.where else "")
        raise VerificationError(f"after {self.after}: {message} (function `{self.function.name}`){place}")

    def run(self) -> None:
        self.block(self.function.block, set(), {}, None)

    def declare(self, values: Sequence[Value], visible: set[Value], op: Op | None) -> None:
        for value in values:
            if value in self.seen:
                self.fail(f"value {value.hint or '?'} is made twice", op)
            self.seen.add(value)
            visible.add(value)

    def block(self, block: Block, visible: set[Value], labels: Labels, owner: Op | None) -> None:
        visible = set(visible)
        around, self.sized = self.sized, set(self.sized)
        self.declare(block.params, visible, owner)
        for op in block.ops:
            self.op(op, visible, labels)
            self.declare(op.results, visible, op)
            if op.declared is prims.DIM:
                self.sized.add(op.attrs["dim"])
        self.sized = around
        for operand in block.end.operands:
            if operand not in visible:
                self.fail(f"the end `{block.end.kind}` uses {operand} before it is made", owner)
        self.end(block, labels, owner)

    def op(self, op: Op, visible: set[Value], labels: Labels) -> None:
        for operand in op.operands:
            if operand not in visible:
                self.fail(f"operand {operand} is used before it is made or outside its block", op)
        if isinstance(op.declared, Structured):
            for fault in op.declared.faults(op):
                self.fail(f"`{op.name}` is not as declared: {fault}", op)
        if op.declared.kind not in ("structured", "composite", "launch") and not op.declared.is_of_storage:
            takes_halves = op.declared is prims.MATMUL and op.attrs.get("dtype") is f32
            for value in op.results if takes_halves else (*op.operands, *op.results):
                if isinstance(value.type, TensorType) and value.type.dtype.is_half:
                    self.fail(f"`{op.name}` computes with {value.type}: it takes f32, and a cast rounds the result", op)
        if not op.declared.is_carrier:
            for value in (*op.operands, *op.results):
                for dim in dims_of(value.type):
                    if dim not in self.sized:
                        self.fail(
                            f"the size of {value.type} is not known here: no `dim` op for {dim} stands before it", op
                        )
        for effect in op.effects:
            if effect.target is not None and effect.target not in self.variables:
                self.fail(f"variable {effect.target.name} is not listed by the function", op)
        for index, result in enumerate(op.results):
            if result.producer is not op or result.index != index:
                self.fail("a result does not know its producer", op)
        inner = dict(labels)
        if op.declared.is_loop:
            inner[op.attrs["label"]] = self.loop(Loop(op))
        elif op.declared is SCOPE:
            inner[op.attrs["label"]] = tuple(result.type for result in op.results)
        elif op.declared is CALL:
            self.call(Call(op))
        elif op.declared.is_of_frames:
            self.frame(Frame(op))
        elif op.declared in (VJP, JVP):
            self.derivative(Derivative(op))
        if op.declared.is_closed:
            for body in op.blocks:
                loose = free_values(body)
                if loose:
                    self.fail(f"its block uses {loose[0]} from outside", op)
            inner = {}
        for block in op.blocks:
            self.block(block, visible, inner, op)

    def call(self, call: Call) -> None:
        callee, op = self.called.get(call.function), call.op
        if callee is None:
            self.fail("the function that it calls is not listed", op)
            return
        if [operand.type for operand in op.operands] != [param.type for param in callee.params]:
            self.fail(f"arguments differ in type from the parameters of `{callee.name}`", op)
        if tuple(result.type for result in op.results) != result_types(callee):
            self.fail(f"results differ in type from what `{callee.name}` returns", op)

    def frame(self, frame: Frame) -> None:
        record = self.frames.get(frame.record)
        if record is None:
            self.fail("it names no frame that the program lists", frame.op)
        elif frame.op.declared is not FRAME_NULL:
            if [field.type for field in frame.fields] != [type for _, type in record.fields]:
                self.fail(f"its fields differ in type from those of {frame.value.type}", frame.op)

    def derivative(self, derivative: Derivative) -> None:
        op = derivative.op
        captures = [value.type for value in derivative.captures]
        if captures != [param.type for param in derivative.primal.params]:
            self.fail("captures differ in type from the block's parameters", op)
        if len(derivative.directions) != len(derivative.of if op.declared is VJP else derivative.wrt):
            self.fail(f"{len(derivative.directions)} directions, which is not one for each that it names", op)
        if not all(0 <= number < len(captures) for number in derivative.wrt):
            self.fail("it is with respect to a capture that it does not have", op)

    def loop(self, loop: Loop) -> tuple[Type, ...]:
        """The types that it carries."""
        carried = tuple(value.type for value in loop.carried)
        if tuple(value.type for value in loop.initial) != carried:
            self.fail("initial values differ in type from the carried ones", loop.op)
        if tuple(value.type for value in loop.final) != carried:
            self.fail("results differ in type from the carried values", loop.op)
        for block in loop.op.blocks:
            if tuple(param.type for param in loop.carried_in(block)) != carried:
                self.fail("block parameters differ in type from the carried values", loop.op)
        return carried

    def end(self, block: Block, labels: Labels, owner: Op | None) -> None:
        end = block.end
        types = tuple(operand.type for operand in end.operands)
        if end.is_of_loop:
            if end.target is None or end.target not in labels:
                self.fail(f"`{end.kind}` names a loop that is not around it", owner)
            elif labels[end.target] != types:
                self.fail(f"`{end.kind}` passes {types}, its loop carries {labels[end.target]}", owner)
        elif end.kind == "return":
            if self.returns is None:
                self.returns = types
            elif self.returns != types:
                self.fail(f"`return` of {types}, elsewhere {self.returns}", owner)
        elif end.kind == "yield":
            if owner is None:
                self.fail("the body of a function returns, it does not yield")
            else:
                expected = Loop(owner).yields(block) if owner.declared.is_loop else None
                if isinstance(owner.declared, Structured) and expected is None:
                    expected = owner.declared.yields(owner, block)
                if expected is not None and expected != types:
                    self.fail(f"yields {types}, the op takes {expected}", owner)
        elif end.kind != "raise":
            self.fail(f"unknown end `{end.kind}`", owner)
