"""The structure of a program in C: the user's loops and conditions, recognisable, with the user's names.

`EMITS` has a row for each kind of op: a method `emit_<op>`, here or in one of the emitters beside. Tensor work is in
kernels, which are separate functions.

Tested by `tests/backends/native/test_golden.py` and `tests/backends/native/test_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from staged.backends.host.body import BodyEmitter
from staged.backends.host.calls import Calls, Signature
from staged.backends.host.counts import literal_int
from staged.backends.host.effects import Effects
from staged.backends.host.frames import Frames
from staged.backends.host.handles import Handles
from staged.backends.host.loops import LoopFrame, layer_of, position_of, step_of, updates_layers
from staged.backends.host.ranks import COLLECTIVES, emit_collective, emit_compare, emit_number, emit_start, emit_wait
from staged.backends.host.sequences import Sequences
from staged.backends.host.shared_loops import PartNames, finish_part
from staged.backends.host.values import Values
from staged.backends.host.variables import Variables
from staged.code.expr import (
    Conditional,
    Expr,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    Variable,
    call,
    member,
    names_in,
)
from staged.code.tree import Assign, Comment, Do, For, ForAny, If, Jump, While
from staged.code.tree import Label as Target
from staged.code.types import INDEX
from staged.errors import UnsupportedError, located
from staged.ir import structure as s
from staged.ir.buffers import Buffer, SharedLoop
from staged.ir.declaration import prims
from staged.ir.names import name_of, rank
from staged.ir.nodes import Block, End, EndKind, Function, Label, Op, Value
from staged.ir.numbers import fits
from staged.ir.op_table import OpTable
from staged.ir.storage import is_absent, is_tensor, root_of, view_of
from staged.ir.trips import COUNTED, iteration_counters
from staged.ir.types import SequenceType, TensorType, i64
from staged.ir.views import Loop
from staged.ops.custom import CUSTOM_OP


class ControlFlow:
    """Emits the whole body of one function: the ops of its blocks, and how they end."""

    def __init__(self, body: BodyEmitter, signatures: Mapping[str, Signature], handles: Handles | None = None) -> None:
        self.body = body
        self.handles = handles or Handles(body)
        self.sequences = Sequences(body, self.handles)
        self.frames = Frames(body)
        self.calls = Calls(body, signatures)
        self.values = Values(body)
        self.effects = Effects(body)
        self.variables = Variables(body)
        self.loops: dict[Label, LoopFrame] = {}
        self.part_names: PartNames | None = None
        self.in_step = False
        """True from the first loop of a block that updates the layers of a model on, up to the block's last write."""

    def emit(self, function: Function) -> None:
        """The statements of a function."""
        self.frames.begin(function.block)
        self.block(function.block)
        self.end(function.block, None)

    # ---- blocks ----

    def block(self, block: Block) -> None:
        """The ops of a block; `end` writes how it ends."""
        around, step = self.in_step, step_of(block)
        for number, op in enumerate(block.ops):
            self.in_step = around or number in step
            first = len(self.body.code.body)
            self.op(op, block)
            self.body.note_origin(op, first)
        self.in_step = around

    def op(self, op: Op, block: Block) -> None:
        for result in op.results:
            self.body.home[result] = block
        if op.declared.is_opaque:
            self.body.emit_kernel_call(op)
            return
        emit = EMITS.get(op.declared)
        if emit is not None:
            around = dict(self.body.sizes)
            emit(self, op)
            if op.blocks:
                self.body.sizes = around  # dimensions of its blocks have no size after it
        elif op.results and view_of(op.results[0]) is not None:
            self.values.emit_view(op)
        elif op.declared is prims.RESHAPE and is_tensor(op.operands[0]):
            self.values.emit_element(op)
        elif all(not is_tensor(result) for result in op.results) and all(not is_tensor(o) for o in op.operands):
            with located(op.where):
                self.values.emit_scalar(op)
        else:
            row = "add a row to `EMITS` of staged/backends/host/structure.py"
            if op.declared.kind != "structured":
                row = "for a separate kernel add a row to `LOWERS` of staged/kernels/lower_alone.py"
            raise UnsupportedError(
                f"the {self.body.backend} back end has no way to write `{op.name}` outside of a kernel, and fusion "
                "makes none of it",
                where=op.where,
                hint=row,
            )

    # ---- if ----

    def emit_if(self, op: Op) -> None:
        self.body.where(op.where)
        for result in op.results:
            self.declare_result(result)
        then, other = op.blocks
        condition = self.body.scalar(op.operands[0])
        with self.body.code.nested() as first:
            self.block(then)
            self.end(then, op)
        with self.body.code.nested() as second:
            if not _is_empty(other, op, self.body):
                self.body.last_where = None
                self.block(other)
                self.end(other, op)
        self.body.code.add(If(condition, tuple(first), tuple(second)))
        self.body.last_where = None

    def declare_result(self, result: Value) -> None:
        """A C variable for a scalar that several paths assign."""
        if is_tensor(result):
            return
        if isinstance(result.type, SequenceType) and not self.body.is_handle(result):
            self.body.scalars[result] = self.body.bases[result] = self.sequences.residuals.place_of(result)
        elif result in self.body.joined:
            self.body.scalars[result] = self.body.scalars[self.body.joined[result]]
        else:
            self.body.scalars[result] = self.body.changing(name_of(result), self.body.c_type(result))

    # ---- loops ----

    def emit_for(self, op: Op) -> None:
        shared = self.body.plan.shared.get(op)
        if shared is not None:
            self.emit_shared_for(op, shared)
            return
        loop = Loop(op)
        body, carried = loop.body, loop.carried
        start, stop, step = map(self.body.scalar, loop.bounds)
        self.body.where(op.where)
        self.begin_carried(loop)
        index = Variable(self.body.name(loop.index.hint or "i"), INDEX)
        span = self.body.ranges.of_index(loop.bounds)
        if span is not None:
            self.body.ranges.known[loop.index] = span
        self.body.scalars[loop.index] = index
        stop = self.body.settled(stop, "stop")
        step_literal = literal_int(step)
        if step_literal is None:
            step = self.body.settled(step, "step")  # not 0: the program has checked
            is_up = Infix(">", step, Literal("0"))
            condition: Expr = Conditional(is_up, Infix("<", index, stop), Infix(">", index, stop))
        else:
            condition = Infix("<" if step_literal > 0 else ">", index, stop)
        onwards: Assign | Do
        if step_literal in (1, -1):
            onwards = Do(Prefix("++" if step_literal == 1 else "--", index))
        elif self.may_pass_end(*loop.bounds[1:]):
            self.body.need("advance")
            onwards = Assign(index, call("st_advance", index, step))
        elif step_literal is not None and step_literal < 0:
            onwards = Assign(index, Literal(str(-step_literal)), "-")
        else:
            onwards = Assign(index, step, "+")
        position = index if loop.by_index else position_of(index, literal_int(start), step_literal)
        counter = self.sequences.begin_trips(op, position)
        mark = self.mark_iterations(op)
        frame = self.enter(op, carried, counter)
        around, self.body.layer = self.body.layer, layer_of(op, index) or self.body.layer
        with self.body.code.nested() as inner:
            self.poll(op)
            if mark is not None:
                self.body.release_store(mark)
            self.sequences.begin_iteration(op)
            self.block(body)
            self.end(body, op)
            self.finish_body(frame)
        self.body.layer = around
        self.add_loop(op, ForAny(index, start, condition, onwards, tuple(inner)))
        self.leave(op, frame)
        self.bind_results(op, carried)

    def add_loop(self, op: Op, loop: ForAny) -> None:
        """Add a `for` whose body has been written."""
        self.body.code.add(loop)

    def emit_shared_for(self, op: Op, shared: SharedLoop) -> None:
        """A loop whose iterations threads share (see `shared_loops.py`)."""
        loop = Loop(op)
        start, stop, _ = map(self.body.scalar, loop.bounds)
        self.body.where(op.where)
        self.begin_carried(loop)
        index = Variable(self.body.name(loop.index.hint or "i"), INDEX)
        self.body.scalars[loop.index] = index
        span = self.body.ranges.of_index(loop.bounds)
        if span is not None:
            self.body.ranges.known[loop.index] = span
        is_from_zero = literal_int(start) == 0
        start, stop = self.body.settled(start, "start"), self.body.settled(stop, "stop")
        if self.part_names is None:
            self.part_names = PartNames(self.body)
        names, noted = self.part_names, self.body.last_where
        around, self.body.thread = self.body.thread, names.thread
        frame = self.enter(op, loop.carried)
        with self.body.code.nested() as inner:
            self.poll(op)
            self.block(loop.body)
            self.end(loop.body, op)
        first, last = (bound if is_from_zero else Infix("+", start, bound) for bound in (names.begin, names.end))
        function, given = finish_part(self.body, op, names, shared, For(index, first, last, tuple(inner)))
        self.body.thread = around
        self.leave(op, frame)
        self.body.last_where = noted
        self.body.need("share_loop")
        items = stop if is_from_zero else Infix("-", stop, start)
        self.body.code.do("ST_SHARE_LOOP", member("host", "team"), items, Name(function), *given)
        self.poll(op)  # a part ends early where it is to stop
        self.body.last_where = None
        self.bind_results(op, loop.carried)

    def may_pass_end(self, stop: Value, step: Value) -> bool:
        """Return whether the counter of a `for`, one step beyond its last index,
        may be a number that int64_t has not."""
        end, by = self.body.ranges.of(stop), self.body.ranges.of(step)
        return end is None or by is None or not fits((end[0] + 1 + min(by[0], 0), end[1] - 1 + max(by[1], 0)), i64)

    def emit_while(self, op: Op) -> None:
        loop = Loop(op)
        condition, body, carried = loop.condition, loop.body, loop.carried
        assert condition is not None
        self.body.where(op.where)
        self.begin_carried(loop)
        for seen, param in zip(condition.params, carried, strict=True):
            if is_tensor(seen):
                self.body.pointers[seen] = self.body.pointer(param)
            else:
                self.body.scalars[seen] = self.body.scalars[param]
        counter = self.sequences.begin_trips(op, None)
        mark = self.mark_iterations(op)
        frame = self.enter(op, carried, counter)
        # The condition is an expression of the `while` itself where that is all there is to it.
        with self.body.code.nested() as before:
            self.block(condition)
            self.body.settle()
        test = self.body.scalar(condition.end.operands[0])
        simple = all(isinstance(statement, Comment) for statement in before)
        with self.body.code.nested() as inner:
            if mark is not None:
                self.body.release_store(mark)
            if not simple:
                self.body.code.body += before
                self.body.code.add(If(Prefix("!", test), (Jump("break"),)))
            self.poll(op)
            self.sequences.begin_iteration(op)
            self.block(body)
            self.end(body, op)
            self.finish_body(frame)
        self.body.code.add(While(test if simple else None, tuple(inner)))
        self.leave(op, frame)
        self.bind_results(op, carried)

    def begin_carried(self, loop: Loop) -> None:
        """Carried scalars and handles become C variables; carried tensors start in their buffer."""
        for number in iteration_counters(loop):
            self.body.ranges.known.update(dict.fromkeys((loop.carried[number], loop.final[number]), COUNTED))
        for index, (param, value) in enumerate(zip(loop.carried, loop.initial, strict=True), len(loop.bounds)):
            if is_tensor(param):
                self.move(param, value)
            else:
                given = self.handles.taken(loop.op, index, value)
                hint = max(param.hint, loop.op.results[index - len(loop.bounds)].hint, key=rank)
                self.body.scalars[param] = self.body.changing(hint or name_of(value), self.body.c_type(param), given)

    def mark_iterations(self, op: Op) -> Name | None:
        """For a loop whose iterations leave nothing of what they take from the store: the mark to which each iteration
        gives back.
        """
        passed = [value for _, end in Loop(op).ends() for value in end.operands]
        if self.body.plan.handles.refer(passed) or not any(self.body.takes_store(block) for block in op.blocks):
            return None
        return self.body.keep_store("kept")

    def move(self, target: Value, source: Value) -> None:
        """Copy a tensor into the buffer of `target`, unless the plan has both in one, or there is nothing to copy."""
        if is_absent(source) or not self.body.plan.is_copied(target):
            return
        to, origin = self.body.pointer(target), self.body.pointer(source)
        if to != origin:
            self.body.copy(to, origin, target.tensor)

    def finish_body(self, frame: LoopFrame) -> None:
        if frame.used_next:
            self.body.code.add(Target(frame.next_label))
        if frame.counter is not None:
            self.body.code.add(Do(Prefix("++", frame.counter)))

    def poll(self, op: Op) -> None:
        """Ctrl-C is noticed between iterations, so that no optimiser step is left half done.

        Every loop does it, however short: the text must not depend on trip counts. A loop that updates the layers of a
        model does not, nor what comes after it before the block's last write: the step is not complete.
        """
        if self.in_step or updates_layers(op):
            return
        self.body.need("stop")
        with self.body.code.branch(call("st_stop_requested", "host")):
            if self.body.thread is not None:
                self.body.code.add(Jump("return"))
                return
            self.body.code.add(Jump("return", value=call("st_interrupted", "host", self.body.site_of(op.where))))

    def enter(self, op: Op, carried: tuple[Value, ...], counter: Name | None = None) -> LoopFrame:
        self.body.c_loops += 1
        frame = LoopFrame(op, carried, self.body.c_loops, counter)
        self.loops[op.attrs["label"]] = frame
        self.body.last_where = None
        return frame

    def leave(self, op: Op, frame: LoopFrame) -> None:
        self.body.c_loops -= 1
        if frame.used_exit:
            self.body.code.add(Target(frame.exit_label))
        self.body.last_where = None

    def bind_results(self, op: Op, carried: tuple[Value, ...]) -> None:
        for result, param in zip(op.results, carried, strict=False):
            if is_tensor(result):
                if self.body.plan.is_copied(param):
                    self.body.pointers[result] = self.body.pointer(param)
            else:
                self.body.scalars[result] = self.body.scalars[param]
        for result in Loop(op).collected:
            self.body.bases.setdefault(result, Literal("0"))
        self.sequences.finish(op)

    def emit_scope(self, op: Op) -> None:
        for result in op.results:
            self.declare_result(result)
        frame = LoopFrame(op, op.results, self.body.c_loops, is_scope=True)
        self.loops[op.attrs["label"]] = frame
        (body,) = op.blocks
        with self.body.code.block():
            self.block(body)
            self.end(body, op)
        if frame.used_exit:
            self.body.code.add(Target(frame.exit_label))

    # ---- ends ----

    def end(self, block: Block, owner: Op | None) -> None:
        end = block.end
        if end.kind == "yield":
            assert owner is not None
            if owner.declared.is_loop:
                frame = self.loops[owner.attrs["label"]]
                count = len(frame.carried)
                # First what this iteration leaves behind: the carried values are about to be overwritten.
                self.sequences.collect(owner, end.operands[count:])
                self.pass_on(end, frame.carried, end.operands[:count])
            else:
                if owner.where is not None and end.where is not None and end.where.line != owner.where.line:
                    self.body.where(end.where)  # a `return` in the branch, and not the end of the branch itself
                self.pass_on(end, owner.results, end.operands)
        elif end.is_of_loop:
            assert end.target is not None
            frame = self.loops[end.target]
            # What it passes on was computed by lines before it.
            self.pass_on(end, frame.carried, end.operands)
            self.body.where(end.where)
            self.jump(end.kind, frame)
        elif end.kind == "return":
            self.body.where(end.where)
            self.calls.emit_return(end)
        else:
            self.body.leave_with_error()

    def jump(self, kind: EndKind, frame: LoopFrame) -> None:
        if kind == "break":
            if not frame.is_scope and frame.depth == self.body.c_loops:
                self.body.code.add(Jump("break"))
                return
            frame.exit_label = frame.exit_label or self.body.name(f"end_{frame.op.attrs['label'].name}")
            frame.used_exit = True
            self.body.code.add(Jump(f"goto {frame.exit_label}"))
        elif frame.depth == self.body.c_loops and frame.counter is None:
            self.body.code.add(Jump("continue"))
        else:
            frame.next_label = frame.next_label or self.body.name(f"next_{frame.op.attrs['label'].name}")
            frame.used_next = True
            self.body.code.add(Jump(f"goto {frame.next_label}"))

    def pass_on(self, end: End, targets: tuple[Value, ...], sources: tuple[Value, ...]) -> None:
        """Assign all targets from all sources at once: what a later assignment reads is settled first."""
        pairs = [(target, source) for target, source in zip(targets, sources, strict=True)]
        staged: list[tuple[Expr, Buffer, TensorType]] = []
        for index, (target, source) in enumerate(pairs):
            temporary = self.body.plan.staging.get((end, index))
            if temporary is not None:
                self.body.copy(self.body.field(temporary), self.body.pointer(source), target.tensor)
                staged.append((self.body.pointer(target), temporary, target.tensor))
        for index, (target, source) in enumerate(pairs):
            if is_tensor(target) and (end, index) not in self.body.plan.staging:
                self.move(target, source)
        for pointer, temporary, type in staged:
            self.body.copy(pointer, self.body.field(temporary), type)
        self.sequences.pass_on(pairs)
        self.body.settle()
        scalars = [
            (self.body.scalars[target], self.handles.taken(end, index, source), target, source)
            for index, (target, source) in enumerate(pairs)
            if not is_tensor(target) and target in self.body.scalars
        ]
        # Sequences that are kept in one place begin there together.
        scalars = list({entry[0]: entry for entry in scalars if entry[0] != entry[1]}.values())
        written = {str(entry[0]) for entry in scalars}
        settled = []
        for name, expression, target, source in scalars:
            if len(scalars) > 1 and names_in(expression) & (written - {str(name)}):
                expression = self.body.local(f"{target.hint or 't'}_next", self.body.c_type(target), expression)
            settled.append((name, expression, source))
        # An assignment that computes nothing needs no comment. These come first, so each comment is above its line.
        for name, expression, source in sorted(settled, key=lambda entry: not _is_at_hand(entry[1])):
            if source.producer is not None and not _is_at_hand(expression):
                self.body.where(source.producer.where)
            self.body.update(name, expression)


# ---- small questions ----------------------------------------------------------------------------


def _is_at_hand(expression: Expr) -> bool:
    """Return whether a value is a number or has a name already, so that the assignment computes nothing."""
    return isinstance(expression, Name | Literal | Member)


def _is_empty(block: Block, owner: Op, body: BodyEmitter) -> bool:
    """Return whether a branch has nothing to write: no ops, and yields what is already in place."""
    if any(op.declared is not s.ABSENT for op in block.ops) or block.end.kind != "yield":
        return False
    for result, operand in zip(owner.results, block.end.operands, strict=True):
        if is_absent(operand):
            continue
        if not is_tensor(result) or body.plan.place[result] is not body.plan.place.get(root_of(operand)):
            return False
    return True


EMITS: OpTable[Callable[[ControlFlow, Op], None]] = OpTable(
    {
        s.IF: ControlFlow.emit_if,
        s.FOR: ControlFlow.emit_for,
        s.WHILE: ControlFlow.emit_while,
        s.SCOPE: ControlFlow.emit_scope,
        s.CALL: lambda flow, op: flow.calls.emit_call(op),
        s.FRAME_SAVE: lambda flow, op: flow.frames.emit_frame_save(op),
        s.FRAME_LOAD: lambda flow, op: flow.frames.emit_frame_load(op),
        s.FRAME_NULL: lambda flow, op: flow.frames.emit_frame_null(op),
        s.SEQUENCE_EMPTY: lambda flow, op: flow.sequences.emit_sequence_empty(op),
        s.SEQUENCE_GET: lambda flow, op: flow.sequences.emit_sequence_get(op),
        s.SEQUENCE_ZEROS: lambda flow, op: flow.handles.emit_sequence_zeros(op),
        s.SEQUENCE_ADD: lambda flow, op: flow.handles.emit_sequence_add(op),
        s.SEQUENCE_SUM: lambda flow, op: flow.handles.emit_sequence_sum(op),
        s.ABSENT: lambda flow, op: flow.sequences.emit_absent(op),
        s.VARIABLE_READ: lambda flow, op: flow.variables.emit_read(op),
        s.VARIABLE_WRITE: lambda flow, op: flow.variables.emit_write(op),
        s.REDUCE_START: lambda flow, op: emit_start(flow.body, op),
        s.REDUCE_WAIT: lambda flow, op: emit_wait(flow.body, op),
        s.COPY: lambda flow, op: flow.body.emit_copy(op),
        s.PRINT: lambda flow, op: flow.effects.emit_print(op),
        s.ASSERT: lambda flow, op: flow.effects.emit_assert(op),
        s.RAISE: lambda flow, op: flow.effects.emit_raise(op),
        s.CLOCK: lambda flow, op: flow.effects.emit_clock(op),
        s.FILE_OPEN: lambda flow, op: flow.effects.emit_file_open(op),
        s.FILE_CLOSE: lambda flow, op: flow.effects.emit_file_close(op),
        s.SAVE: lambda flow, op: flow.effects.emit_save(op),
        s.CALLBACK: lambda flow, op: flow.effects.emit_callback(op),
        s.PROGRESS_START: lambda flow, op: flow.effects.emit_progress(op),
        s.PROGRESS_UPDATE: lambda flow, op: flow.effects.emit_progress(op),
        s.PROGRESS_END: lambda flow, op: flow.effects.emit_progress(op),
        prims.CONSTANT: lambda flow, op: flow.values.emit_constant(op),
        prims.DIM: lambda flow, op: flow.values.emit_dim(op),
        CUSTOM_OP: lambda flow, op: flow.effects.emit_custom_op(op),
        s.COMPARE_RANKS: lambda flow, op: emit_compare(flow.body, op),
        prims.RANK: lambda flow, op: emit_number(flow.body, op),
        prims.RANKS: lambda flow, op: emit_number(flow.body, op),
        **dict.fromkeys(COLLECTIVES, lambda flow, op: emit_collective(flow.body, op)),
    }
)
"""The statements of an op that is not in a kernel."""
