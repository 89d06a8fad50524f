"""The structure of a program in C: control flow, scalars, Variables, prints, calls of kernels.

One `emit_<construct>` per kind of op. Tensor work is in kernels, which are functions of their own; here are the user's
loops and conditions, recognisable, with the user's names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from staged.backends.c_family.expr import (
    Call,
    Expr,
    Index,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    infix_sum,
    literal,
    scaled,
)
from staged.backends.c_family.messages import emit_failure, emit_print
from staged.backends.c_family.progress import emit_progress
from staged.backends.c_family.scalars import ARITHMETIC, scalar_expression
from staged.backends.c_family.writer import Names, Writer, c_string
from staged.errors import UnsupportedError
from staged.ir.buffers import Buffer, Plan, Stack, sequence_storage
from staged.ir.nodes import Block, End, Function, Label, Op, Value, VariableRef
from staged.ir.order import OPAQUE, is_tensor, root_of, structural_blocks, structural_ops, view_of
from staged.ir.ranges import Ranges
from staged.ir.types import SequenceType, TensorType, i64
from staged.source import Position

INDEX = TensorType(i64)


@dataclass
class LoopFrame:
    """What an `End` needs to know of the loop or scope that it leaves or goes on with."""

    op: Op
    carried: tuple[Value, ...]
    depth: int
    """Number of C loops around it, its own included."""
    trip: str = ""
    exit_label: str = ""
    next_label: str = ""
    is_scope: bool = False
    used_exit: bool = False
    used_next: bool = False


@dataclass
class ProgramText:
    """What the structure emitter hands to the program writer."""

    body: Writer
    snippets: set[str] = field(default_factory=set)
    called: list[Op] = field(default_factory=list)
    parallel: list[Op] = field(default_factory=list)
    sites: list[Position | None] = field(default_factory=list)
    constants: list[tuple[str, Value]] = field(default_factory=list)


class StructureEmitter:
    """Emits the body of one function."""

    backend = "native"

    def __init__(
        self,
        function: Function,
        plan: Plan,
        kernels: Mapping[Op, Any],
        names: Names,
        call_kernel: Callable[[StructureEmitter, Op, list[Expr], list[Expr]], None],
        site_of: Callable[[Position | None], int],
        check_nan: bool = False,
    ) -> None:
        self.function = function
        self.plan = plan
        self.kernels = kernels
        self.file_names = names
        self.local_names = Names(names)
        self.call_kernel = call_kernel
        self.site_of = site_of
        self.check_nan = check_nan
        self.text = ProgramText(Writer())
        self.scalars: dict[Value, Expr] = {}
        self.pointers: dict[Value, Expr] = {}
        self.bases: dict[Value, Expr] = {}
        self.frames: dict[Label, LoopFrame] = {}
        self.c_loops = 0
        self.fields: dict[Buffer | Stack, str] = {}
        self.use_count = _count_uses(function)
        self.home: dict[Value, Block] = {}
        self.only_use = _only_uses(function)
        self.ranges = Ranges()
        self.has_loops = any(op.name in ("for", "while") for op in structural_ops(function.block))
        self.last_where: Position | None = None
        self.collected_into = _collected_into(function)
        self.loop_trip: dict[Op, str] = {}
        self.scalar_variables: dict[VariableRef, Expr] = {}

    @property
    def w(self) -> Writer:
        return self.text.body

    # ---- names and places ----

    def name(self, hint: str) -> str:
        """A fresh C name for a local."""
        return self.local_names.fresh(hint or "t")

    def need(self, *snippets: str) -> None:
        """Ask for support snippets by name."""
        self.text.snippets.update(snippets)

    def c_type(self, value: Value) -> str:
        return "int64_t" if isinstance(value.type, SequenceType) else value.tensor.dtype.c_name

    def scalar(self, value: Value) -> Expr:
        """The C expression for a scalar; for a sequence, where it starts in its storage."""
        return self.bases[value] if isinstance(value.type, SequenceType) else self.scalars[value]

    def pointer(self, value: Value) -> Expr:
        """The C expression for a tensor's first element."""
        if value in self.pointers:
            return self.pointers[value]
        return self.field(self.plan.place[value])

    def field(self, buffer: Buffer | Stack) -> Expr:
        """How a buffer is reached: `m->h`, `args->images`, or the name of a constant."""
        if isinstance(buffer, Buffer) and buffer.kind == "constant":
            return Name(self.fields[buffer])
        base = "args" if isinstance(buffer, Buffer) and buffer.kind in ("input", "output", "variable") else "m"
        return Member(Name(base), self.fields[buffer])

    def operand(self, value: Value) -> Expr:
        return self.pointer(value) if is_tensor(value) else self.scalar(value)

    def where(self, position: Position | None) -> None:
        """A comment with the Python line, once per line."""
        if position is None:
            return
        if self.last_where is not None and (position.file, position.line) == (
            self.last_where.file,
            self.last_where.line,
        ):
            return
        self.last_where = position
        self.w.comment(f"{position.short}  {position.text}")

    def fail_check(self) -> None:
        """After something that may have failed: stop the program."""
        with self.w.block("if (host->error_kind != ST_OK)"):
            self.w.line("return host->error_kind;")

    # ---- blocks ----

    def block(self, block: Block) -> None:
        """The ops of a block, then its end."""
        for op in block.ops:
            self.op(op, block)

    def op(self, op: Op, block: Block) -> None:
        for result in op.results:
            self.home[result] = block
        if op.name in OPAQUE:
            self.emit_kernel_call(op)
            return
        method = getattr(self, f"emit_{op.name}", None)
        if method is not None:
            method(op)
        elif op.results and view_of(op.results[0]) is not None:
            self.emit_view(op)
        elif op.name == "reshape" and is_tensor(op.operands[0]):
            self.emit_element(op)
        elif all(not is_tensor(result) for result in op.results) and all(not is_tensor(o) for o in op.operands):
            self.emit_scalar(op)
        else:
            raise UnsupportedError(
                f"the {self.backend} back end has no way to write `{op.name}` outside of a kernel", where=op.where
            )

    # ---- scalars ----

    def emit_constant(self, op: Op) -> None:
        value = op.result
        if is_tensor(value):
            return  # a table of the file, placed by the plan
        self.scalars[value] = literal(op.attrs["value"], value.tensor.dtype)

    def emit_scalar(self, op: Op) -> None:
        """A scalar op: a C expression, written in place where it is used once, else a local."""
        operands = [self.scalar(operand) for operand in op.operands]
        value = op.result
        expression = self.index_arithmetic(op, operands) or scalar_expression(op, operands, self)
        if not op.effects and self.use_count.get(value, 0) == 1 and self.may_wait(op):
            self.scalars[value] = expression
            return
        self.where(op.where)
        self.declare(value, expression)
        if op.effects:
            self.fail_check()

    def index_arithmetic(self, op: Op, operands: list[Expr]) -> Expr | None:
        """`batch * 100` as it stands, where the ranges of loop indices show that nothing can overflow."""
        if op.name not in ARITHMETIC or not op.result.tensor.dtype.is_integer:
            return None
        span = self.ranges.of(op.result)
        limit = 1 << (8 * op.result.tensor.dtype.size - 1)
        if span is None or not (-limit <= span[0] and span[1] < limit) or op.result.tensor.dtype.kind != "i":
            return None
        return Infix(ARITHMETIC[op.name], *operands)

    def may_wait(self, op: Op) -> bool:
        """Whether the expression can stand where it is used: in the same block, and the user gave it no name of its own.

        Carried scalars change only where a block ends (and `pass_on` settles what it reads before it writes), so inside a
        block an expression keeps its meaning. A named value goes into an end (`total += loss`), else it is a local.
        """
        value = op.result
        use = self.only_use.get(value)
        if use is None or use[0] is not self.home[value]:
            return False
        return not value.hint or use[1]

    def declare(self, value: Value, expression: Expr) -> None:
        name = self.name(value.hint)
        self.w.line(f"const {self.c_type(value)} {name} = {expression};")
        self.scalars[value] = Name(name)

    # ---- views ----

    def emit_view(self, op: Op) -> None:
        value, source = op.result, op.operands[0]
        base = self.pointer(source)
        offset = self.view_offset(op, source)
        if offset is None:
            self.pointers[value] = base
            return
        self.where(op.where)
        name = self.name(value.hint or source.hint)
        self.w.line(f"const {self.c_type(value)} *const {name} = {Infix('+', base, offset)};")
        self.pointers[value] = Name(name)

    def emit_element(self, op: Op) -> None:
        """An array of one element as the number it holds."""
        self.where(op.where)
        self.declare(op.result, Index(self.pointer(op.operands[0]), Literal("0")))

    def view_offset(self, op: Op, source: Value) -> Expr | None:
        """Elements from the start of what is viewed, None for the very start."""
        if op.name in ("reshape", "stop_gradient"):
            return None
        strides = _strides(source.tensor.shape)
        if op.name == "slice":
            offset = sum(start * stride for start, stride in zip(op.attrs["start"], strides, strict=True))
            return Literal(str(offset)) if offset else None
        terms = []
        for start, stride, extent, size in zip(
            op.operands[1:], strides, source.tensor.shape, op.attrs["sizes"], strict=True
        ):
            if size == extent:
                continue
            term = scaled(self.scalar(start), stride)
            if term is not None and not (isinstance(term, Literal) and term.text == "0"):
                terms.append(term)
        return infix_sum(terms) if terms else None

    # ---- kernels ----

    def emit_kernel_call(self, op: Op) -> None:
        self.where(op.where)
        outputs: list[Expr] = []
        for result in op.results:
            if is_tensor(result):
                outputs.append(self.pointer(result))
            else:
                name = self.name(result.hint)
                self.w.line(f"{self.c_type(result)} {name};")
                self.scalars[result] = Name(name)
                outputs.append(Prefix("&", Name(name)))
        inputs = [self.operand(operand) for operand in op.operands]
        self.text.called.append(op)
        self.call_kernel(self, op, inputs, outputs)
        if self.check_nan:
            for result, made, pointer in zip(op.results, op.blocks[0].end.operands, outputs, strict=True):
                self.emit_finite_check(result, made, pointer)

    def emit_finite_check(self, result: Value, made: Value, pointer: Expr) -> None:
        """Asked for by `check_nan=True`: name the first NaN or infinity, and the Python line that made it."""
        dtype = result.tensor.dtype
        if not dtype.is_float:
            return
        self.need(f"check_finite_{dtype}")
        where = made.producer.where if made.producer is not None else None
        name = c_string(result.hint or made.hint or (made.producer.name if made.producer else "a value"))
        site = self.site_of(where)
        with self.w.block(f"if (!st_check_finite_{dtype}(host, {site}, {name}, {pointer}, {result.tensor.size}))"):
            self.w.line("return host->error_kind;")

    # ---- Variables ----

    def emit_variable_read(self, op: Op) -> None:
        variable: VariableRef = op.attrs["variable"]
        value = op.result
        if not is_tensor(value):
            self.where(op.where)
            self.declare(value, self.variable_scalar(variable))
        elif op in self.plan.copied_reads:
            self.where(op.where)
            self.copy(self.pointer(value), self.variable_pointer(variable), value.tensor)

    def emit_variable_write(self, op: Op) -> None:
        variable: VariableRef = op.attrs["variable"]
        (value,) = op.operands
        if not is_tensor(value):
            self.where(op.where)
            self.assign(self.variable_scalar(variable), self.scalar(value))
            return
        target = self.variable_pointer(variable)
        if str(target) != str(self.pointer(value)):
            self.where(op.where)
            self.copy(target, self.pointer(value), variable.type)

    def variable_scalar(self, variable: VariableRef) -> Expr:
        if variable.outer:
            return Prefix("*", Member(Name("args"), self.variable_fields[variable]))
        if variable not in self.scalar_variables:
            raise AssertionError(f"inner scalar variable {variable.name} has no place")
        return self.scalar_variables[variable]

    variable_fields: dict[VariableRef, str]

    def variable_pointer(self, variable: VariableRef) -> Expr:
        for buffer in self.plan.buffers:
            if buffer.variable is variable:
                return self.field(buffer)
        raise AssertionError(f"variable {variable.name} has no buffer")

    def copy(self, target: Expr, source: Expr, type: TensorType) -> None:
        self.need("memcpy")
        self.w.line(f"memcpy({target}, {source}, {type.size} * sizeof({type.dtype.c_name}));")

    # ---- if ----

    def emit_if(self, op: Op) -> None:
        self.where(op.where)
        for result in op.results:
            self.declare_result(result)
        then, other = op.blocks
        condition = self.scalar(op.operands[0])
        with_else = not _is_empty(other, op, self)
        with self.w.block(f"if ({condition})"):
            self.block(then)
            self.end(then, op)
        if with_else:
            self.w.lines[-1] += " else {"
            self.w.depth += 1
            self.last_where = None
            self.block(other)
            self.end(other, op)
            self.w.depth -= 1
            self.w.line("}")
        self.last_where = None

    def declare_result(self, result: Value) -> None:
        """A C variable for a scalar that several paths assign."""
        if is_tensor(result):
            return
        name = self.name("first" if isinstance(result.type, SequenceType) else result.hint)
        self.w.line(f"{self.c_type(result)} {name};")
        self.scalars[result] = Name(name)
        if isinstance(result.type, SequenceType):
            self.bases[result] = Name(name)

    # ---- loops ----

    def emit_for(self, op: Op) -> None:
        (body,) = op.blocks
        start, stop, step = (self.scalar(operand) for operand in op.operands[:3])
        self.where(op.where)
        carried = body.params[1:]
        self.begin_carried(carried, op.operands[3:])
        index = self.name(body.params[0].hint or "i")
        span = self.ranges.of_index(list(op.operands))
        if span is not None:
            self.ranges.known[body.params[0]] = span
        self.scalars[body.params[0]] = Name(index)
        stop = self.settled(stop, "stop")
        step_literal = _literal_int(step)
        if step_literal is None:
            step = self.settled(step, "step")
            self.need("host")
            with self.w.block(f"if ({step} == 0)"):
                self.w.line(
                    f'st_fail(host, ST_VALUE_ERROR, {self.site_of(op.where)}, "range() step must not be zero");'
                )
                self.w.line("return host->error_kind;")
            condition = f"{step} > 0 ? {index} < {stop} : {index} > {stop}"
            advance = f"{index} += {step}"
        else:
            condition = f"{index} < {stop}" if step_literal > 0 else f"{index} > {stop}"
            advance = (
                f"++{index}"
                if step_literal == 1
                else f"--{index}"
                if step_literal == -1
                else f"{index} += {step_literal}"
            )
        trip = self.begin_trips(op, index if (_literal_int(start), step_literal) == (0, 1) else "")
        frame = self.enter(op, carried, trip)
        with self.w.block(f"for (int64_t {index} = {start}; {condition}; {advance})"):
            self.poll(op)
            self.block(body)
            self.end(body, op)
            self.finish_body(op, frame, trip != index)
        self.leave(op, frame)
        self.bind_results(op, carried)

    def emit_while(self, op: Op) -> None:
        condition, body = op.blocks
        self.where(op.where)
        carried = body.params
        self.begin_carried(carried, op.operands)
        for seen, param in zip(condition.params, carried, strict=True):
            if is_tensor(seen):
                self.pointers[seen] = self.pointer(param)
            else:
                self.scalars[seen] = self.scalars[param]
        trip = self.begin_trips(op, "")
        frame = self.enter(op, carried, trip)
        # The condition is an expression of the `while` itself where that is all there is to it.
        outer, self.text.body = self.text.body, Writer()
        self.w.depth = outer.depth + 1
        self.block(condition)
        inner, self.text.body = self.text.body, outer
        test = self.scalar(condition.end.operands[0])
        simple = not any(line.strip() and not line.strip().startswith("//") for line in inner.lines)
        with self.w.block(f"while ({test})" if simple else "for (;;)"):
            if not simple:
                self.w.lines += inner.lines
                with self.w.block(f"if ({Prefix('!', test)})"):
                    self.w.line("break;")
            self.poll(op)
            self.block(body)
            self.end(body, op)
            self.finish_body(op, frame, bool(trip))
        self.leave(op, frame)
        self.bind_results(op, carried)

    def settled(self, expression: Expr, hint: str) -> Expr:
        """A name or literal, so that C reading it on every turn repeats neither work nor effects."""
        if isinstance(expression, Name | Literal) or _literal_int(expression) is not None:
            return expression
        name = self.name(hint)
        self.w.line(f"const int64_t {name} = {expression};")
        return Name(name)

    def begin_carried(self, carried: tuple[Value, ...], initial: tuple[Value, ...]) -> None:
        """Carried scalars become C variables; carried tensors start in their buffer."""
        for param, value in zip(carried, initial, strict=True):
            if is_tensor(param):
                self.move(param, value)
            elif isinstance(param.type, SequenceType):
                raise UnsupportedError("a sequence cannot be carried by a loop")
            else:
                name = self.name(param.hint or value.hint)
                self.w.line(f"{self.c_type(param)} {name} = {self.scalar(value)};")
                self.scalars[param] = Name(name)

    def move(self, target: Value, source: Value) -> None:
        """Copy a tensor into the buffer of `target`, unless the plan has put both in one."""
        to, origin = self.pointer(target), self.pointer(source)
        if str(to) != str(origin):
            self.copy(to, origin, target.tensor)

    def begin_trips(self, op: Op, index: str) -> str:
        """The name of the trip counter where residuals are collected: the index itself if it counts from 0 by 1."""
        collected = op.attrs.get("collected", 0)
        if not collected:
            return ""
        if not index:
            index = self.name("trip")
            self.w.line(f"int64_t {index} = 0;")
        self.loop_trip[op] = index
        for result in op.results[-collected:]:
            self.bases[result] = self.sequence_base(result)
        return index

    def sequence_base(self, result: Value) -> Expr:
        """Where the elements of a collected sequence start, in elements of its storage."""
        storage = self.plan.sequences[result]
        outer = self.collected_into.get(result)
        if isinstance(storage, Stack):
            self.need("stack")
            if outer is None:
                stack: Stack | None = storage
                while stack is not None:
                    self.w.line(f"st_stack_reset({self.field(stack)});")
                    stack = stack.inner
                return Literal("0")
            name = self.name("first")
            self.w.line(f"const int64_t {name} = {self.field(storage)}->length;")
            return Name(name)
        if outer is None:
            return Literal("0")
        outer_loop, outer_result = outer
        assert isinstance(result.type, SequenceType)
        _, count = sequence_storage(result.type)
        assert count is not None
        offset = scaled(Name(self.loop_trip[outer_loop]), count) or Literal("0")
        base = self.bases[outer_result]
        return offset if str(base) == "0" else Infix("+", base, offset)

    def finish_body(self, op: Op, frame: LoopFrame, count_trips: bool) -> None:
        if frame.used_next:
            self.w.line(f"{frame.next_label}:;")
        if count_trips and op in self.loop_trip:
            self.w.line(f"++{self.loop_trip[op]};")

    def poll(self, op: Op) -> None:
        """Ctrl-C is noticed where loops turn, so that no optimiser step is left half done.

        Every loop does it, however short: the text must not depend on trip counts.
        """
        self.need("stop")
        with self.w.block("if (st_stop_requested(host))"):
            self.w.line(f"return st_interrupted(host, {self.site_of(op.where)});")

    def enter(self, op: Op, carried: tuple[Value, ...], trip: str) -> LoopFrame:
        self.c_loops += 1
        frame = LoopFrame(op, carried, self.c_loops, trip)
        self.frames[op.attrs["label"]] = frame
        self.last_where = None
        return frame

    def leave(self, op: Op, frame: LoopFrame) -> None:
        self.c_loops -= 1
        if frame.used_exit:
            self.w.line(f"{frame.exit_label}:;")
        self.last_where = None

    def bind_results(self, op: Op, carried: tuple[Value, ...]) -> None:
        for result, param in zip(op.results, carried, strict=False):
            if is_tensor(result):
                self.pointers[result] = self.pointer(param)
            else:
                self.scalars[result] = self.scalars[param]
        collected = op.attrs.get("collected", 0)
        for result in op.results[len(op.results) - collected :] if collected else ():
            self.bases.setdefault(result, Literal("0"))

    def emit_scope(self, op: Op) -> None:
        for result in op.results:
            self.declare_result(result)
        frame = LoopFrame(op, op.results, self.c_loops, is_scope=True)
        self.frames[op.attrs["label"]] = frame
        (body,) = op.blocks
        with self.w.block(""):
            self.block(body)
            self.end(body, op)
        if frame.used_exit:
            self.w.line(f"{frame.exit_label}:;")

    # ---- ends ----

    def end(self, block: Block, owner: Op | None) -> None:
        end = block.end
        if end.kind == "yield":
            assert owner is not None
            if owner.name in ("for", "while"):
                frame = self.frames[owner.attrs["label"]]
                count = len(frame.carried)
                # First what this turn leaves behind: the carried values are about to be overwritten.
                self.collect(owner, end.operands[count:])
                self.pass_on(end, frame.carried, end.operands[:count])
            else:
                self.pass_on(end, owner.results, end.operands)
        elif end.kind in ("break", "continue"):
            assert end.target is not None
            frame = self.frames[end.target]
            self.where(end.where)
            self.pass_on(end, frame.carried, end.operands)
            self.jump(end.kind, frame)
        elif end.kind == "return":
            self.where(end.where)
            self.emit_return(end)
        else:
            self.w.line("return host->error_kind;")

    def jump(self, kind: str, frame: LoopFrame) -> None:
        if kind == "break":
            if not frame.is_scope and frame.depth == self.c_loops:
                self.w.line("break;")
                return
            frame.exit_label = frame.exit_label or self.name(f"end_{frame.op.attrs['label'].name}")
            frame.used_exit = True
            self.w.line(f"goto {frame.exit_label};")
        elif frame.depth == self.c_loops and frame.op not in self.loop_trip:
            self.w.line("continue;")
        else:
            frame.next_label = frame.next_label or self.name(f"next_{frame.op.attrs['label'].name}")
            frame.used_next = True
            self.w.line(f"goto {frame.next_label};")

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
        scalars = [
            (self.scalars[target], self.scalar(source), target, source)
            for target, source in pairs
            if not is_tensor(target) and target in self.scalars
        ]
        scalars = [entry for entry in scalars if str(entry[0]) != str(entry[1])]
        written = {str(entry[0]) for entry in scalars}
        settled = []
        for name, expression, target, source in scalars:
            if len(scalars) > 1 and _mentions(expression, written - {str(name)}):
                next_name = self.name(f"{target.hint or 't'}_next")
                self.w.line(f"const {self.c_type(target)} {next_name} = {expression};")
                expression = Name(next_name)
            settled.append((name, expression, source))
        for name, expression, source in settled:
            if source.producer is not None and self.only_use.get(source, (None, False))[1]:
                self.where(source.producer.where)
            self.assign(name, expression)

    def assign(self, target: Expr, source: Expr) -> None:
        match source:
            case Infix(op, left, right) if op in "+-*/" and str(left) == str(target):
                self.w.line(f"{target} {op}= {right};")
            case _:
                self.w.line(f"{target} = {source};")

    def collect(self, op: Op, values: tuple[Value, ...]) -> None:
        """Keep this iteration's residuals."""
        if not values:
            return
        trip = Name(self.loop_trip[op])
        for result, value in zip(op.results[-len(values) :], values, strict=True):
            storage = self.plan.sequences[result]
            if isinstance(value.type, SequenceType) and isinstance(storage, Buffer):
                continue  # the inner loop has written into its range of the same storage
            type = storage.element if isinstance(storage, Stack) else value.tensor
            base = self.bases[result]
            if isinstance(storage, Stack):
                self.need("stack")
                source = self.pointer(value) if is_tensor(value) else None
                if source is None:
                    name = self.name("kept")
                    self.w.line(f"const {type.dtype.c_name} {name} = {self.scalar(value)};")
                    source = Prefix("&", Name(name))
                count = f"{type.size} * " if type.size != 1 else ""
                push = f"st_stack_push(host, {self.field(storage)}, {source}, {count}sizeof({type.dtype.c_name}))"
                with self.w.block(f"if ({push} != ST_OK)"):
                    self.w.line("return host->error_kind;")
                continue
            position = trip if str(base) == "0" else Infix("+", base, trip)
            if is_tensor(value):
                offset = scaled(position, type.size) or Literal("0")
                self.copy(Infix("+", self.field(storage), offset), self.pointer(value), type)
            else:
                self.w.line(f"{Index(self.field(storage), position)} = {self.scalar(value)};")

    def emit_sequence_empty(self, op: Op) -> None:
        """Nobody reads it: it starts anywhere."""
        self.bases[op.result] = Literal("0")

    def emit_sequence_get(self, op: Op) -> None:
        sequence, index = op.operands
        storage = self.plan.sequences[sequence]
        base, trip = self.bases[sequence], self.scalar(index)
        position = trip if str(base) == "0" else Infix("+", base, trip)
        value = op.result
        if isinstance(value.type, SequenceType):
            if isinstance(storage, Stack):
                assert storage.inner is not None, "a stack of sequences holds where they start"
                starts = Name(f"((const int64_t *){Member(self.field(storage), 'data')})")
                self.plan.sequences[value] = storage.inner
                self.bases[value] = self.settled(Index(starts, position), "first")
                return
            _, count = sequence_storage(value.type)
            assert count is not None
            self.plan.sequences[value] = storage
            self.bases[value] = self.settled(scaled(position, count) or Literal("0"), "first")
            return
        self.where(op.where)
        element = value.tensor
        name = self.name(value.hint)
        c_type = element.dtype.c_name
        data: Expr = self.field(storage)
        if isinstance(storage, Stack):
            data = Name(f"((const {c_type} *){Member(data, 'data')})")
        if is_tensor(value):
            offset = scaled(position, element.size) or Literal("0")
            self.w.line(f"const {c_type} *const {name} = {Infix('+', data, offset)};")
            self.pointers[value] = Name(name)
        else:
            self.w.line(f"const {c_type} {name} = {Index(data, position)};")
            self.scalars[value] = Name(name)

    # ---- results, effects ----

    def emit_return(self, end: End) -> None:
        for index, value in enumerate(end.operands):
            target = Member(Name("args"), self.output_fields[index])
            if not is_tensor(value):
                self.w.line(f"*{target} = {self.scalar(value)};")
            elif str(self.pointer(value)) != str(target):
                self.copy(target, self.pointer(value), value.tensor)
        self.before_return(end)
        self.w.line("return ST_OK;")

    def before_return(self, end: End) -> None:
        """What a back end has to wait for before the caller may read the results: nothing here."""

    output_fields: list[str]

    def emit_print(self, op: Op) -> None:
        self.where(op.where)
        self.need(*emit_print(self.w, op, self.operand))

    def emit_progress(self, op: Op) -> None:
        self.where(op.where)
        self.need(*emit_progress(self.w, op, self.operand))

    emit_progress_start = emit_progress_update = emit_progress_end = emit_progress

    def emit_clock(self, op: Op) -> None:
        """`time.perf_counter()`: read here, once, whatever the expression around it."""
        self.need("clock")
        self.where(op.where)
        self.declare(op.result, Call("st_clock", ()))

    def emit_assert(self, op: Op) -> None:
        self.where(op.where)
        with self.w.block(f"if ({Prefix('!', self.scalar(op.operands[0]))})"):
            self.fail(op, op.attrs.get("kind", "assertion"), op.operands[1:], "assertion failed")
            self.w.line("return host->error_kind;")

    def emit_raise(self, op: Op) -> None:
        self.where(op.where)
        with self.w.block(""):
            self.fail(op, op.attrs["kind"], op.operands, "")

    def fail(self, op: Op, kind: str, values: tuple[Value, ...], what: str) -> None:
        """Say what went wrong: `what`, then the user's message (whose operand numbers count from the first of `values`)."""
        parts = op.attrs.get("parts", ())
        if what:
            parts = (f"{what}: ", *parts) if parts else (what,)
        self.need(*emit_failure(self.w, kind, parts, values, self.site_of(op.where), self.operand))


# ---- small questions ----------------------------------------------------------------------------


def _strides(shape: tuple[Any, ...]) -> list[int]:
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return strides[::-1]


def _literal_int(expression: Expr) -> int | None:
    text = str(expression)
    try:
        return int(text)
    except ValueError:
        return None


def _mentions(expression: Expr, names: set[str]) -> bool:
    match expression:
        case Name(text):
            return text in names
        case Literal():
            return False
    return any(re.search(rf"\b{re.escape(name)}\b", str(expression)) for name in names)


def _is_empty(block: Block, owner: Op, emitter: StructureEmitter) -> bool:
    """Whether a branch has nothing to write: no ops, and yields what is already in place."""
    if block.ops or block.end.kind != "yield":
        return False
    for result, operand in zip(owner.results, block.end.operands, strict=True):
        if not is_tensor(result) or emitter.plan.place[result] is not emitter.plan.place[root_of(operand)]:
            return False
    return True


def _count_uses(function: Function) -> dict[Value, int]:
    counts: dict[Value, int] = {}
    for block in structural_blocks(function.block):
        for operand in block.end.operands:
            counts[operand] = counts.get(operand, 0) + 1
    for op in structural_ops(function.block):
        for operand in op.operands:
            counts[operand] = counts.get(operand, 0) + 1
    return counts


def _only_uses(function: Function) -> dict[Value, tuple[Block, bool]]:
    """For values used once: the block of the use, and whether it is the block's end."""
    found: dict[Value, tuple[Block, bool]] = {}
    for block in structural_blocks(function.block):
        for op in block.ops:
            for operand in op.operands:
                found[operand] = (block, False)
        for operand in block.end.operands:
            found[operand] = (block, True)
    return found


def _collected_into(function: Function) -> dict[Value, tuple[Op, Value]]:
    """For a sequence that an outer loop collects: that loop, and its sequence of sequences."""
    into: dict[Value, tuple[Op, Value]] = {}
    for op in structural_ops(function.block):
        collected = op.attrs.get("collected", 0)
        if collected:
            for result, value in zip(op.results[-collected:], op.blocks[-1].end.operands[-collected:], strict=True):
                if isinstance(value.type, SequenceType):
                    _enter(value, (op, result), into)
    return into


def _enter(value: Value, collector: tuple[Op, Value], into: dict[Value, tuple[Op, Value]]) -> None:
    """Note who collects `value`, and with it what it is in the branches of an `if`."""
    into[value] = collector
    if value.producer is not None and value.producer.name == "if":
        for block in value.producer.blocks:
            if block.end.kind == "yield":
                _enter(block.end.operands[value.index], collector, into)
