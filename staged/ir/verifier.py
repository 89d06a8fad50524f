"""The invariants of the IR, checked between passes.

1. Every operand is made before it is used, in the same block or one around it, and only once.
2. Every block ends; `yield` gives as many values as its op takes, of the types it says.
3. `break` and `continue` name a label that is around them and pass its carried values, with their types.
4. `if` has a bool scalar condition; a branch that yields gives the op's result types.
5. A loop's carried values keep their types; its index is an i64 scalar.
6. `return` gives the function's result types, the same everywhere.
7. Reads and writes name a Variable that the function lists, with its type.
8. `composite`, `kernel` and transforms' blocks use nothing but their parameters and constants made inside; so does the body of
   a function that is called.
9. A call gives its function what it takes and has its results' types; it has the effects of what the function does.
10. Frames are saved and loaded with the fields that their record lists; functions and frames are listed by the program alone.
11. A `dim` op gives a symbolic dimension its size for the rest of its block. Ops on arrays of that size stand where it has one;
    control flow, sequences and frames only pass such arrays on, and may do so elsewhere.

When it objects it names the pass, shows the op and its Python line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from staged.ir.functions import every_function, function_table, result_types
from staged.ir.nodes import Block, FrameRecord, Function, Label, Op, Value, free_values
from staged.ir.printer import print_op
from staged.ir.types import Dim, FrameType, SequenceType, TensorType, Type, bool_, dims_of, i64

_CARRIERS = {"if", "for", "while", "scope", "call"}
"""Ops that pass values on as they are; with sequences and frames, they need not know how large these are."""
_CLOSED = {"composite", "kernel", "vjp", "jvp", "vmap", "checkpoint", "custom_vjp"}


class VerificationError(AssertionError):
    """An invariant of the IR is broken: a bug of ours, never the user's."""


def verify_if_asked(function: Function, after: str) -> None:
    """`verify` where STAGED_VERIFY is set, as it is in the tests: it looks for faults of ours, at a tenth of the time of staging."""
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

    def define(self, values: Sequence[Value], visible: set[Value], op: Op | None) -> None:
        for value in values:
            if value in self.seen:
                self.fail(f"value {value.hint or '?'} is made twice", op)
            self.seen.add(value)
            visible.add(value)

    def block(self, block: Block, visible: set[Value], labels: dict[Label, tuple[Type, ...]], owner: Op | None) -> None:
        visible = set(visible)
        around, self.sized = self.sized, set(self.sized)
        self.define(block.params, visible, owner)
        for op in block.ops:
            self.op(op, visible, labels)
            self.define(op.results, visible, op)
            if op.name == "dim":
                self.sized.add(op.attrs["dim"])
        self.sized = around
        for operand in block.end.operands:
            if operand not in visible:
                self.fail(f"the end `{block.end.kind}` uses {operand} before it is made", owner)
        self.end(block, labels, owner)

    def op(self, op: Op, visible: set[Value], labels: dict[Label, tuple[Type, ...]]) -> None:
        for operand in op.operands:
            if operand not in visible:
                self.fail(f"operand {operand} is used before it is made or outside its block", op)
        if op.name not in _CARRIERS and not op.name.startswith(("sequence_", "frame_")):
            for value in (*op.operands, *op.results):
                for dim in dims_of(value.type):
                    if dim not in self.sized:
                        self.fail(f"the size of {value.type} is not known here: no `dim` op for {dim} stands before it", op)
        for effect in op.effects:
            if effect.target is not None and effect.target not in self.variables:
                self.fail(f"variable {effect.target.name} is not listed by the function", op)
        for index, result in enumerate(op.results):
            if result.producer is not op or result.index != index:
                self.fail("a result does not know its producer", op)
        inner = dict(labels)
        label = op.attrs.get("label")
        if op.name in ("for", "while"):
            carried = _carried_types(op)
            assert isinstance(label, Label)
            inner[label] = carried
            self.loop(op, carried)
        elif op.name == "scope":
            assert isinstance(label, Label)
            inner[label] = tuple(result.type for result in op.results)
        elif op.name == "call":
            self.call(op)
        elif op.name in ("frame_save", "frame_load", "frame_null"):
            self.frame(op)
        elif op.name == "if":
            if not op.operands or op.operands[0].type not in _CONDITIONS:
                self.fail("`if` needs a bool scalar", op)
        if op.name in _CLOSED:
            for body in op.blocks:
                loose = free_values(body)
                if loose:
                    self.fail(f"its block uses {loose[0]} from outside", op)
            inner = {}
        for block in op.blocks:
            self.block(block, visible, inner, op)

    def call(self, op: Op) -> None:
        callee = self.called.get(op.attrs["function"])
        if callee is None:
            self.fail("the function that it calls is not listed", op)
            return
        if [operand.type for operand in op.operands] != [param.type for param in callee.params]:
            self.fail(f"arguments differ in type from the parameters of `{callee.name}`", op)
        if tuple(result.type for result in op.results) != result_types(callee):
            self.fail(f"results differ in type from what `{callee.name}` returns", op)

    def frame(self, op: Op) -> None:
        saved = op.operands[0] if op.name == "frame_load" else op.result
        fields = op.results if op.name == "frame_load" else op.operands
        if not isinstance(saved.type, FrameType) or saved.type.name not in self.frames:
            self.fail("it names no frame that the program lists", op)
        elif op.name != "frame_null":
            expected = [type for _, type in self.frames[saved.type.name].fields]
            if [field.type for field in fields] != expected:
                self.fail(f"its fields differ in type from those of {saved.type}", op)

    def loop(self, op: Op, carried: tuple[Type, ...]) -> None:
        first = 3 if op.name == "for" else 0
        if tuple(value.type for value in op.operands[first:]) != carried:
            self.fail("initial values differ in type from the carried ones", op)
        if op.name == "for":
            for value in (*op.operands[:3], op.blocks[0].params[0]):
                if not isinstance(value.type, TensorType) or value.type.shape or value.type.dtype is not i64:
                    self.fail("loop bounds and index are i64 scalars", op)
        collected = op.attrs.get("collected", 0)
        if tuple(result.type for result in op.results[: len(op.results) - collected]) != carried:
            self.fail("results differ in type from the carried values", op)
        for block, skip in zip(op.blocks, (1,) if op.name == "for" else (0, 0), strict=True):
            if tuple(param.type for param in block.params[skip:]) != carried:
                self.fail("block parameters differ in type from the carried values", op)

    def end(self, block: Block, labels: dict[Label, tuple[Type, ...]], owner: Op | None) -> None:
        end = block.end
        types = tuple(operand.type for operand in end.operands)
        if end.kind in ("break", "continue"):
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
                expected = _yield_types(owner, block)
                if expected is not None and expected != types:
                    self.fail(f"yields {types}, the op takes {expected}", owner)
        elif end.kind != "raise":
            self.fail(f"unknown end `{end.kind}`", owner)


_CONDITIONS = {TensorType(bool_), TensorType(bool_, (), True)}


def _carried_types(op: Op) -> tuple[Type, ...]:
    skip = 1 if op.name == "for" else 0
    return tuple(param.type for param in op.blocks[-1].params[skip:])


def _yield_types(op: Op, block: Block) -> tuple[Type, ...] | None:
    if op.name == "while" and block is op.blocks[0]:
        return (block.end.operands[0].type,) if block.end.operands[0].type in _CONDITIONS else (TensorType(bool_),)
    results = [result.type for result in op.results]
    if op.name in ("for", "while"):
        collected = op.attrs.get("collected", 0)
        carried = results[: len(results) - collected]
        elements = [t.element for t in results[len(results) - collected :] if isinstance(t, SequenceType)]
        return (*carried, *elements)
    if op.name in ("vjp", "jvp"):
        return tuple(results[: op.attrs["outputs"]])
    if op.name in ("vmap", "custom_vjp"):
        return None  # unbatched types; a forward and a backward block with yields of their own
    return tuple(results)
