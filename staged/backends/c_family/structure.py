"""The structure of a program in C: control flow, scalars, Variables, prints, calls of kernels.

One `emit_<construct>` per kind of op. Tensor work is in kernels, which are functions of their own; here are the user's
loops and conditions, recognisable, with the user's names.

Tested by `tests/backends/native/test_golden.py` and `tests/backends/native/test_functions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staged.backends.c_family.body import literal_int
from staged.backends.c_family.calls import CallEmitter
from staged.backends.c_family.code.tree import Assign, Comment, Do, ForAny, If, Jump, While
from staged.backends.c_family.code.tree import Label as Target
from staged.backends.c_family.code.types import INDEX
from staged.backends.c_family.expr import (
    Conditional,
    Expr,
    Infix,
    Literal,
    Name,
    Prefix,
    Variable,
    call,
    names_in,
)
from staged.errors import UnsupportedError, located
from staged.ir.buffers import Buffer
from staged.ir.declaration import prims
from staged.ir.names import name_of
from staged.ir.nodes import Block, End, Label, Op, Value
from staged.ir.numbers import fits
from staged.ir.storage import is_absent, is_tensor, root_of, view_of
from staged.ir.structure import ABSENT
from staged.ir.types import SequenceType, TensorType, i64
from staged.ir.views import Loop


@dataclass
class LoopFrame:
    """The loop or scope that an `End` leaves or continues."""

    op: Op
    carried: tuple[Value, ...]
    depth: int
    """Number of C loops around it, its own included."""
    trip: Name | None = None
    exit_label: str = ""
    next_label: str = ""
    is_scope: bool = False
    used_exit: bool = False
    used_next: bool = False


class StructureEmitter(CallEmitter):
    """Emits the whole body of one function: the ops of its blocks, and how they end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.frames: dict[Label, LoopFrame] = {}
        self.c_loops = 0
        """The number of C loops around the present position."""

    # ---- blocks ----

    def block(self, block: Block) -> None:
        """The ops of a block; `end` writes how it ends."""
        for op in block.ops:
            self.op(op, block)

    def op(self, op: Op, block: Block) -> None:
        for result in op.results:
            self.home[result] = block
        if op.declared.is_opaque:
            self.emit_kernel_call(op)
            return
        method = getattr(self, f"emit_{op.name}", None)
        if method is not None:
            around = dict(self.sizes)
            method(op)
            if op.blocks:
                self.sizes = around  # dimensions of its blocks have no size after it
        elif op.results and view_of(op.results[0]) is not None:
            self.emit_view(op)
        elif op.declared is prims.RESHAPE and is_tensor(op.operands[0]):
            self.emit_element(op)
        elif all(not is_tensor(result) for result in op.results) and all(not is_tensor(o) for o in op.operands):
            with located(op.where):
                self.emit_scalar(op)
        else:
            row = f"write `emit_{op.name}` in staged/backends/c_family/body.py"
            if op.declared.kind != "structured":
                row = "for a kernel of its own add a row to `_LOWER` of staged/kernels/lower_alone.py"
            raise UnsupportedError(
                f"the {self.backend} back end has no way to write `{op.name}` outside of a kernel, and fusion makes "
                "none of it",
                where=op.where,
                hint=row,
            )

    def settle(self) -> None:
        """Before a decision, or before numbers change: a back end that holds back what it is to write writes it now."""

    # ---- if ----

    def emit_if(self, op: Op) -> None:
        self.where(op.where)
        for result in op.results:
            self.declare_result(result)
        then, other = op.blocks
        condition = self.scalar(op.operands[0])
        with_else = not _is_empty(other, op, self)
        with self.code.nested() as first:
            self.block(then)
            self.end(then, op)
        with self.code.nested() as second:
            if with_else:
                self.last_where = None
                self.block(other)
                self.end(other, op)
        self.code.add(If(condition, tuple(first), tuple(second)))
        self.last_where = None

    def declare_result(self, result: Value) -> None:
        """A C variable for a scalar that several paths assign."""
        if is_tensor(result):
            return
        is_place = isinstance(result.type, SequenceType) and not self.is_handle(result)
        self.scalars[result] = self.changing("first" if is_place else name_of(result), self.c_type(result))
        if is_place:
            self.bases[result] = self.scalars[result]

    # ---- loops ----

    def emit_for(self, op: Op) -> None:
        loop = Loop(op)
        body, carried = loop.body, loop.carried
        start, stop, step = map(self.scalar, loop.bounds)
        self.where(op.where)
        self.begin_carried(loop)
        index = Variable(self.name(loop.index.hint or "i"), INDEX)
        span = self.ranges.of_index(loop.bounds)
        if span is not None:
            self.ranges.known[loop.index] = span
        self.scalars[loop.index] = index
        stop = self.settled(stop, "stop")
        step_literal = literal_int(step)
        if step_literal is None:
            step = self.settled(step, "step")  # not 0: the program has checked
            is_up = Infix(">", step, Literal("0"))
            condition: Expr = Conditional(is_up, Infix("<", index, stop), Infix(">", index, stop))
        else:
            condition = Infix("<" if step_literal > 0 else ">", index, stop)
        onwards: Assign | Do
        if step_literal in (1, -1):
            onwards = Do(Prefix("++" if step_literal == 1 else "--", index))
        elif self.may_pass_end(*loop.bounds[1:]):
            self.need("advance")
            onwards = Assign(index, call("st_advance", index, step))
        elif step_literal is not None and step_literal < 0:
            onwards = Assign(index, Literal(str(-step_literal)), "-")
        else:
            onwards = Assign(index, step, "+")
        trip = self.begin_trips(op, index if (literal_int(start), step_literal) == (0, 1) else None)
        mark = self.mark_iterations(op)
        frame = self.enter(op, carried, trip)
        with self.code.nested() as inner:
            self.poll(op)
            if mark is not None:
                self.release_store(mark)
            self.begin_iteration(op)
            self.block(body)
            self.end(body, op)
            self.finish_body(op, frame, trip is not index)
        self.code.add(ForAny(index, start, condition, onwards, tuple(inner)))
        self.leave(op, frame)
        self.bind_results(op, carried)

    def may_pass_end(self, stop: Value, step: Value) -> bool:
        """Return whether the counter of a `for`, one step beyond its last index,
        may be a number that int64_t has not."""
        end, by = self.ranges.of(stop), self.ranges.of(step)
        return end is None or by is None or not fits((end[0] + 1 + min(by[0], 0), end[1] - 1 + max(by[1], 0)), i64)

    def emit_while(self, op: Op) -> None:
        loop = Loop(op)
        condition, body, carried = loop.condition, loop.body, loop.carried
        assert condition is not None
        self.where(op.where)
        self.begin_carried(loop)
        for seen, param in zip(condition.params, carried, strict=True):
            if is_tensor(seen):
                self.pointers[seen] = self.pointer(param)
            else:
                self.scalars[seen] = self.scalars[param]
        trip = self.begin_trips(op, None)
        mark = self.mark_iterations(op)
        frame = self.enter(op, carried, trip)
        # The condition is an expression of the `while` itself where that is all there is to it.
        with self.code.nested() as before:
            self.block(condition)
            self.settle()
        test = self.scalar(condition.end.operands[0])
        simple = all(isinstance(statement, Comment) for statement in before)
        with self.code.nested() as inner:
            if mark is not None:
                self.release_store(mark)
            if not simple:
                self.code.body += before
                self.code.add(If(Prefix("!", test), (Jump("break"),)))
            self.poll(op)
            self.begin_iteration(op)
            self.block(body)
            self.end(body, op)
            self.finish_body(op, frame, trip is not None)
        self.code.add(While(test if simple else None, tuple(inner)))
        self.leave(op, frame)
        self.bind_results(op, carried)

    def begin_carried(self, loop: Loop) -> None:
        """Carried scalars and handles become C variables; carried tensors start in their buffer."""
        for index, (param, value) in enumerate(zip(loop.carried, loop.initial, strict=True), len(loop.bounds)):
            if is_tensor(param):
                self.move(param, value)
            else:
                given = self.taken(loop.op, index, value)
                self.scalars[param] = self.changing(param.hint or name_of(value), self.c_type(param), given)

    def mark_iterations(self, op: Op) -> Name | None:
        """For a loop whose iterations leave nothing of what they take from the store: the mark to which each iteration
        gives back.
        """
        passed = [value for _, end in Loop(op).ends() for value in end.operands]
        if self.plan.handles.refer(passed) or not any(self.takes_store(block) for block in op.blocks):
            return None
        return self.keep_store("kept")

    def move(self, target: Value, source: Value) -> None:
        """Copy a tensor into the buffer of `target`,
        unless the plan has put both in one or there is nothing to copy."""
        if is_absent(source):
            return
        to, origin = self.pointer(target), self.pointer(source)
        if str(to) != str(origin):
            self.copy(to, origin, target.tensor)

    def finish_body(self, op: Op, frame: LoopFrame, count_trips: bool) -> None:
        if frame.used_next:
            self.code.add(Target(frame.next_label))
        if count_trips and op in self.loop_trip:
            self.code.add(Do(Prefix("++", self.loop_trip[op])))

    def poll(self, op: Op) -> None:
        """Ctrl-C is noticed between iterations, so that no optimiser step is left half done.

        Every loop does it, however short: the text must not depend on trip counts.
        """
        self.need("stop")
        with self.code.branch(call("st_stop_requested", "host")):
            self.code.add(Jump("return", value=call("st_interrupted", "host", self.site_of(op.where))))

    def enter(self, op: Op, carried: tuple[Value, ...], trip: Name | None) -> LoopFrame:
        self.c_loops += 1
        frame = LoopFrame(op, carried, self.c_loops, trip)
        self.frames[op.attrs["label"]] = frame
        self.last_where = None
        return frame

    def leave(self, op: Op, frame: LoopFrame) -> None:
        self.c_loops -= 1
        if frame.used_exit:
            self.code.add(Target(frame.exit_label))
        self.last_where = None

    def bind_results(self, op: Op, carried: tuple[Value, ...]) -> None:
        for result, param in zip(op.results, carried, strict=False):
            if is_tensor(result):
                self.pointers[result] = self.pointer(param)
            else:
                self.scalars[result] = self.scalars[param]
        for result in Loop(op).collected:
            self.bases.setdefault(result, Literal("0"))
        self.finish_handles(op)

    def emit_scope(self, op: Op) -> None:
        for result in op.results:
            self.declare_result(result)
        frame = LoopFrame(op, op.results, self.c_loops, is_scope=True)
        self.frames[op.attrs["label"]] = frame
        (body,) = op.blocks
        with self.code.block():
            self.block(body)
            self.end(body, op)
        if frame.used_exit:
            self.code.add(Target(frame.exit_label))

    # ---- ends ----

    def end(self, block: Block, owner: Op | None) -> None:
        end = block.end
        if end.kind == "yield":
            assert owner is not None
            if owner.declared.is_loop:
                frame = self.frames[owner.attrs["label"]]
                count = len(frame.carried)
                # First what this iteration leaves behind: the carried values are about to be overwritten.
                self.collect(owner, end.operands[count:])
                self.pass_on(end, frame.carried, end.operands[:count])
            else:
                if owner.where is not None and end.where is not None and end.where.line != owner.where.line:
                    self.where(end.where)  # a `return` in the branch, and not the end of the branch itself
                self.pass_on(end, owner.results, end.operands)
        elif end.kind in ("break", "continue"):
            assert end.target is not None
            frame = self.frames[end.target]
            # What it passes on was computed by lines before it.
            self.pass_on(end, frame.carried, end.operands)
            self.where(end.where)
            self.jump(end.kind, frame)
        elif end.kind == "return":
            self.where(end.where)
            self.emit_return(end)
        else:
            self.leave_with_error()

    def jump(self, kind: str, frame: LoopFrame) -> None:
        if kind == "break":
            if not frame.is_scope and frame.depth == self.c_loops:
                self.code.add(Jump("break"))
                return
            frame.exit_label = frame.exit_label or self.name(f"end_{frame.op.attrs['label'].name}")
            frame.used_exit = True
            self.code.add(Jump(f"goto {frame.exit_label}"))
        elif frame.depth == self.c_loops and frame.op not in self.loop_trip:
            self.code.add(Jump("continue"))
        else:
            frame.next_label = frame.next_label or self.name(f"next_{frame.op.attrs['label'].name}")
            frame.used_next = True
            self.code.add(Jump(f"goto {frame.next_label}"))

    def pass_on(self, end: End, targets: tuple[Value, ...], sources: tuple[Value, ...]) -> None:
        """Assign all targets from all sources at once: what a later assignment reads is settled first."""
        pairs = [(target, source) for target, source in zip(targets, sources, strict=True)]
        staged: list[tuple[Expr, Buffer, TensorType]] = []
        for index, (target, source) in enumerate(pairs):
            temporary = self.plan.staging.get((end, index))
            if temporary is not None:
                self.copy(self.field(temporary), self.pointer(source), target.tensor)
                staged.append((self.pointer(target), temporary, target.tensor))
        for index, (target, source) in enumerate(pairs):
            if is_tensor(target) and (end, index) not in self.plan.staging:
                self.move(target, source)
        for pointer, temporary, type in staged:
            self.copy(pointer, self.field(temporary), type)
        self.settle()
        scalars = [
            (self.scalars[target], self.taken(end, index, source), target, source)
            for index, (target, source) in enumerate(pairs)
            if not is_tensor(target) and target in self.scalars
        ]
        scalars = [entry for entry in scalars if str(entry[0]) != str(entry[1])]
        written = {str(entry[0]) for entry in scalars}
        settled = []
        for name, expression, target, source in scalars:
            if len(scalars) > 1 and names_in(expression) & (written - {str(name)}):
                expression = self.local(f"{target.hint or 't'}_next", self.c_type(target), expression)
            settled.append((name, expression, source))
        for name, expression, source in settled:
            if source.producer is not None and self.only_use.get(source, (None, False))[1]:
                self.where(source.producer.where)
            self.update(name, expression)


# ---- small questions ----------------------------------------------------------------------------


def _is_empty(block: Block, owner: Op, emitter: StructureEmitter) -> bool:
    """Return whether a branch has nothing to write: no ops, and yields what is already in place."""
    if any(op.declared is not ABSENT for op in block.ops) or block.end.kind != "yield":
        return False
    for result, operand in zip(owner.results, block.end.operands, strict=True):
        if is_absent(operand):
            continue
        if not is_tensor(result) or emitter.plan.place[result] is not emitter.plan.place.get(root_of(operand)):
            return False
    return True
