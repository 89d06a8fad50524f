"""The body of a function in C: the names, places and statements that the emitters of its ops share, Variables and calls
of kernels.

A back end with memories of its own derives its `BodyEmitter` from this one. The other emitters are beside it and work
on it: numbers and views (`values.py`), what loops collect (`sequences.py`), frames, calls, prints and checks
(`effects.py`), and control flow, which puts all of them together (`structure.py`).

Tested by `tests/backends/native/test_golden.py` and `tests/backends/native/test_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from staged.backends.host.argument_fields import ArgumentField
from staged.backends.host.counts import literal_int, without_cast
from staged.backends.host.loop_structs import Slot
from staged.backends.host.program_text import ProgramText
from staged.backends.host.sections import key_of, origin_of
from staged.backends.host.short_kernels import CLEARED_BYTES, MOST_BYTES, element_write, is_zero_fill
from staged.backends.host.value_uses import collected_into, count_uses, joined_numbers, only_uses
from staged.code.expr import (
    Cast,
    Expr,
    Index,
    Infix,
    Items,
    Literal,
    Member,
    Name,
    Place,
    Prefix,
    Sizeof,
    Variable,
    call,
    infix_sum,
    literal,
    member,
    scaled,
)
from staged.code.extents import size_expr
from staged.code.kernel_text import KernelText
from staged.code.nest.value import is_zero
from staged.code.tree import Assign, CodeBuilder, Declare, If, Jump
from staged.code.types import INDEX, CType, Space, pointer, scalar, word
from staged.code.writer import Names, c_string
from staged.ir.buffers import Buffer, Plan, Stack
from staged.ir.names import name_of, users_name
from staged.ir.nodes import Block, End, FrameRecord, Function, Op, Value, VariableRef
from staged.ir.ranges import Ranges
from staged.ir.sequences import takes_store
from staged.ir.sizes import Dim, Extent, product
from staged.ir.storage import is_tensor, structural_ops
from staged.ir.structure import CALL
from staged.ir.transfers import Transfer
from staged.ir.trips import constant_of
from staged.ir.types import CPU, Device, FrameType, SequenceType, TensorType, dims_of
from staged.ir.views import Call as CallView
from staged.source import Position

OK = Name("ST_OK")
ERROR_KIND = Member(Name("host"), "error_kind")
LEAVE = Jump("return", value=ERROR_KIND)
"""Leaves a function with the error that `host` describes."""
SEQUENCE = word("st_sequence")
FRAMES = member("m", "frames")
"""The program's store."""
NOTHING = Items((Name("NULL"), Literal("0")))
"""A handle of no elements."""


def placed(address: Expr, device: Device) -> Expr:
    """An address, which knows the device into whose memory it points."""
    return address if device == CPU else Place(address, device)


class BodyEmitter:
    """Emits Variables and calls of kernels, with the names and places that the program's text uses."""

    backend = "native"

    def __init__(
        self,
        function: Function,
        plan: Plan,
        kernels: Mapping[Op, Any],
        names: Names,
        call_kernel: Callable[[Any, Op, list[Expr], list[Expr]], None],
        site_of: Callable[[Position | None], int],
        check_nan: bool = False,
    ) -> None:
        self.function = function
        self.plan = plan
        self.kernels = kernels
        self.local_names = Names(names)
        self.call_kernel = call_kernel
        self.site_of = site_of
        self.check_nan = check_nan
        self.text = ProgramText()
        self.scalars: dict[Value, Expr] = {}
        self.pointers: dict[Value, Expr] = {}
        self.bases: dict[Value, Expr] = {}
        self.fields: dict[Buffer | Stack, str] = {}
        self.slots: Mapping[Buffer, Slot] = {}
        """By array of what a loop keeps, the field of the struct of an iteration."""
        self.places: dict[Buffer | Stack, Expr] = {}
        """Buffers that are not fields of the program's structs: parameters and locals of a function."""
        self.use_count = count_uses(function)
        self.joined = joined_numbers(function)
        self.home: dict[Value, Block] = {}
        self.only_use = only_uses(function)
        self.ranges = Ranges()
        self.has_loops = any(op.declared.is_loop for op in structural_ops(function.block))
        self.last_where: Position | None = None
        self.asked_at: Position | None = None
        """The Python line of the op that is being written."""
        self.collected_into = collected_into(function)
        self.loop_trip: dict[Op, Expr] = {}
        """By loop that collects, the number of iterations before the present one."""
        self.scalar_variables: dict[VariableRef, Expr] = {}
        self.parameters: dict[str, CType] = {}
        """The C parameters of the function, by name."""
        self.thread: Variable | None = None
        """The number of the thread, in a part of a loop that threads share."""
        self.layer: tuple[str, Expr, str] | None = None
        """In a loop over layers: the number of this layer, and what is before and after it in the layer's name."""
        self.results: list[Expr] = []
        """The places of the function's results, as pointers."""
        self.mark: Name | None = None
        """The mark in the store at the function's entry, to which it is reset; None if it is not."""
        self.uploaded: set[str] = set()
        """The fields of inputs on the host that are copied to a device, perhaps after the program has returned."""
        self.c_loops = 0
        """The number of C loops around the present position."""
        self.own_copies: dict[Op | End | None, Sequence[Transfer]] = {}
        """The copies that the back end adds, by the op or end at which they are made."""
        self.records: Mapping[str, FrameRecord] = {}
        self.frame_fields: Mapping[str, tuple[str, ...]] = {}
        """By record, the C names of a frame's fields."""
        self.storing: frozenset[str] = frozenset()
        """The functions of the program that take memory of its store."""
        self.messages = 0
        """The number of messages to other ranks that are under way at the present position."""
        self.sizes: dict[Dim, Expr] = {}
        """The sizes of dimensions, in the blocks that are open."""

    @property
    def code(self) -> CodeBuilder:
        """The statements, to which more are added."""
        return self.text.body

    # ---- names and places ----

    def name(self, hint: str) -> str:
        """A fresh C name for a local."""
        return self.local_names.fresh(hint or "t")

    def kept_name(self, hint: str) -> str:
        """A fresh C name for a value that a loop keeps; not that of a function with a number."""
        outer = self.local_names.outer
        return self.name(f"kept_{hint}" if outer is not None and outer.taken(outer.identifier(hint)) else hint)

    def file_name(self, hint: str, others: Iterable[str] = ()) -> str:
        """A fresh C name for a function."""
        assert self.local_names.outer is not None
        name = self.local_names.outer.fresh(hint, others=others)
        while name in self.local_names.used:
            name = self.local_names.outer.fresh(hint, others=others)
        self.local_names.used.add(name)
        return name

    def scratch(self, type: str) -> Expr:
        """The workspace of this thread, as a pointer of this type."""
        place = member("m", "scratch")
        own = place if self.thread is None else Infix("+", place, Infix("*", self.thread, Name("SCRATCH_BYTES")))
        return own if type == "unsigned char *" else Cast(type, own)

    def need(self, *snippets: str) -> None:
        """Ask for support snippets by name."""
        for name in snippets:
            self.text.snippets.setdefault(name, self.asked_at)

    def c_type(self, value: Value) -> CType:
        """The type of a number or a handle, or of the elements of an array."""
        if isinstance(value.type, SequenceType):
            return SEQUENCE if value in self.plan.handles.values else INDEX
        return self.frame_type(value.type) if isinstance(value.type, FrameType) else scalar(value.tensor.dtype)

    def frame_type(self, type: FrameType) -> CType:
        """The C type of a frame: a pointer to its record."""
        return pointer(word(self.frame_names[type.name]), Space.GLOBAL, is_const=True)

    # ---- statements ----

    def local(self, hint: str, type: CType, value: Expr | None = None, has_effects: bool = False) -> Name:
        """Declare a local that does not change, under a fresh name."""
        return self.declared(self.name(hint), type, value, has_effects=has_effects)

    def changing(self, hint: str, type: CType, value: Expr | None = None) -> Name:
        """Declare a local that may change, under a fresh name."""
        return self.declared(self.name(hint), type, value, is_const=False)

    def declared(
        self, name: str, type: CType, value: Expr | None = None, is_const: bool = True, has_effects: bool = False
    ) -> Name:
        """Declare a local."""
        variable = Variable(name, type)
        self.code.add(Declare(variable, value, is_const, has_effects=has_effects))
        return variable

    def assign(self, target: Expr, value: Expr, op: str = "") -> None:
        self.code.add(Assign(target, value, op))

    def leave_with_error(self) -> None:
        """Return the kind of the error that `host` describes."""
        self.code.add(self.leaving())

    def leave_if(self, condition: Expr, aligns: bool = False) -> None:
        """Return the kind of the error that `host` describes where a condition holds."""
        self.code.add(If(condition, (self.leaving(),), aligns=aligns))

    def leaving(self) -> Jump:
        """The statement that returns the kind of an error; in a loop over layers the message names the layer."""
        if self.layer is None or self.thread is not None:
            return LEAVE
        self.need("in_layer")
        before, number, after = self.layer
        words = (Literal(c_string(before)), Cast("long long", number), Literal(c_string(after)))
        return Jump("return", value=call("st_in_layer", "host", *words))

    def try_(self, call: Expr, aligns: bool = False) -> None:
        """A call of a function that may fail."""
        self.leave_if(Infix("!=", call, OK), aligns)

    def scalar(self, value: Value) -> Expr:
        """The C expression for a scalar or a handle; for another sequence, where it starts in its storage."""
        is_place = isinstance(value.type, SequenceType) and value not in self.plan.handles.values
        return self.bases[value] if is_place else self.scalars[value]

    def pointer(self, value: Value) -> Expr:
        """The C expression for a tensor's first element."""
        if value in self.pointers:
            return self.pointers[value]
        return self.field(self.plan.place[value])

    def field(self, buffer: Buffer | Stack) -> Expr:
        """The expression for a buffer: `m->h`, `args->images`, or the name of a constant or a parameter."""
        if isinstance(buffer, Stack):
            buffer = buffer.holder
        if buffer in self.places:
            return self.places[buffer]
        if isinstance(buffer, Buffer) and buffer.history is not None:
            return self.field(buffer.history)
        if isinstance(buffer, Buffer) and buffer in self.slots:
            return self.slots[buffer].at(Literal("0"))
        if isinstance(buffer, Buffer) and buffer.element is not None and buffer.variable is not None:
            return self.member(buffer.variable, buffer.element)
        if isinstance(buffer, Buffer) and buffer.kind == "variable":
            assert buffer.variable is not None
            return self.argument_fields[buffer.variable].at(self.args)
        if isinstance(buffer, Buffer) and buffer.kind == "constant":
            return Name(self.fields[buffer])
        base = "args" if isinstance(buffer, Buffer) and buffer.is_argument else "m"
        return Member(Name(base), self.fields[buffer])

    def operand(self, value: Value) -> Expr:
        return self.pointer(value) if is_tensor(value) else self.scalar(value)

    def where(self, position: Position | None) -> None:
        """A comment with the Python line, once per line."""
        if position is None:
            return
        self.asked_at = position
        last = self.last_where
        if last is not None and (position.file, position.line) == (last.file, last.line):
            return
        self.last_where = position
        of = "gradient of " if position.phase == "backward" else ""
        self.code.comment(f"{of}{position.short}  {position.text}")

    def note_origin(self, op: Op, first: int) -> None:
        """Note that the statements from number `first` on were written for an op."""
        places = (self.plan.place.get(result) for result in op.results)
        origin = origin_of(op, [place for place in places if place is not None])
        self.text.origins.update((key_of(each), origin) for each in self.code.body[first:])

    def fail_check(self) -> None:
        """After something that may have failed: stop the program."""
        self.leave_if(Infix("!=", ERROR_KIND, OK))

    # ---- scalars ----

    def declare(self, value: Value, expression: Expr, has_effects: bool = False) -> None:
        self.scalars[value] = self.local(name_of(value), self.c_type(value), expression, has_effects)

    # ---- sizes ----

    def extent(self, extent: Extent) -> Expr:
        """The size of an axis: a number, or the name of what holds it."""
        return size_expr(extent, self.sizes.__getitem__)

    def count(self, type: TensorType) -> Expr:
        """The number of elements that a value of this type has, of type size_t or a literal.

        Where its dimension has no size (it is only passed on), the room that it has.
        """
        if type.is_static or not all(dim in self.sizes for dim in dims_of(type)):
            return Literal(str(type.size))
        return Cast("size_t", self.extent(product(type.shape)))

    def nbytes(self, type: TensorType) -> Expr:
        """The number of bytes that they have."""
        return Infix("*", self.count(type), Sizeof(type.dtype.c_name))

    # ---- kernels ----

    def emit_kernel_call(self, op: Op) -> None:
        if op in self.plan.unfilled:
            return
        self.where(op.where)
        if self.emit_short_kernel(op):
            return
        outputs: list[Expr] = []
        kernel = self.kernels[op]
        may_fail = isinstance(kernel, KernelText) and kernel.can_fail
        for result in op.results:
            if is_tensor(result):
                outputs.append(self.pointer(result))
            else:
                # A kernel that may fail can leave before it has a result, and compilers see that.
                begun = literal(0, result.tensor.dtype) if op.effects or may_fail else None
                name = self.scalars[result] = self.changing(name_of(result), self.c_type(result), begun)
                outputs.append(Prefix("&", name))
        inputs = [self.operand(operand) for operand in op.operands]
        self.text.called.append(op)
        self.call_kernel(self, op, inputs, outputs)
        if self.messages:
            self.code.do("st_poll_messages")
        if self.check_nan:
            inner = op.blocks[0].end.operands if op.blocks else op.results
            unread = op.attrs.get("partly_made", ())
            for number, (result, made, pointer) in enumerate(zip(op.results, inner, outputs, strict=True)):
                if number not in unread:
                    self.emit_finite_check(result, made, pointer)

    def emit_short_kernel(self, op: Op) -> bool:
        """A kernel that is one statement, if it is one: zeros in an array, or a number put into it."""
        if op.device != CPU:
            return False
        if is_zero_fill(op):
            self.fill_with_zeros(self.pointer(op.result), op.result.tensor)
            return True
        write = element_write(op)
        if write is None:
            return False
        if write.array is not None and self.pointer(op.result) != self.pointer(op.operands[write.array]):
            return False
        terms = [scaled(self.scalar(op.operands[start]), stride) for start, stride in write.starts]
        place = infix_sum([term for term in terms if term is not None and not is_zero(term)])
        value = self.scalar(op.operands[write.value])
        self.assign(Index(self.pointer(op.result), place), value)
        if self.check_nan:
            self.emit_finite_check(op.result, op.blocks[0].end.operands[0], self.pointer(op.result))
        return True

    def emit_finite_check(self, result: Value, made: Value, pointer: Expr) -> None:
        """Asked for by `check_nan=True`: name the first NaN or infinity, and the Python line that made it."""
        if result.tensor.dtype.is_float:
            self.leave_if(Prefix("!", self.finite_check(result, made, pointer)))

    def finite_check(self, result: Value, made: Value, pointer: Expr) -> Expr:
        """The call that answers whether the elements are numbers, and else notes what is wrong."""
        dtype = result.tensor.dtype
        self.need(f"check_finite_{dtype}")
        where = made.producer.where if made.producer is not None else None
        name = Literal(c_string(users_name(result, made)))
        count = without_cast(self.count(result.tensor))
        return call(f"st_check_finite_{dtype}", "host", self.site_of(where), name, pointer, count)

    # ---- Variables ----

    def emit_copy(self, op: Op) -> None:
        """A value crosses between host and device: back ends of devices write it."""
        raise AssertionError(f"the {self.backend} back end has one memory")

    argument_fields: Mapping[VariableRef, ArgumentField]
    """By Variable of the caller, and by family of them: the place in the argument struct."""
    args: Expr = Name("args")
    """The pointer to the argument struct."""
    has_team: bool
    """Whether the program may have threads."""
    frame_names: Mapping[str, str]
    family_fields: Mapping[VariableRef, str]
    """By family that the program creates, the field of `Buffers` that has its members."""
    kept_names: Mapping[Stack, str]
    """The C names of the structs that stacks hold, and of their fields."""

    def member(self, family: VariableRef, number: Value) -> Expr:
        """A member of a family: its first element, or the number that it is."""
        known = constant_of(number)
        index = self.scalar(number) if known is None else Literal(str(known))
        if family in self.argument_fields:
            place = self.argument_fields[family].at(self.args, index)
            return placed(place, family.device) if family.type.shape else Prefix("*", place)
        members = self.members(family)
        if not family.type.shape:
            return Index(members, index)
        offset = scaled(index, family.type.size)
        return members if offset is None or is_zero(offset) else Infix("+", members, offset)

    def members(self, family: VariableRef) -> Expr:
        """The array with all members of a family that the program creates."""
        return Member(Name("m"), self.family_fields[family])

    def variable_array(self, variable: VariableRef) -> Expr:
        """The first element of an array that is a Variable."""
        for buffer in self.plan.buffers:
            if buffer.variable is variable:
                return self.field(buffer)
        raise AssertionError(f"variable {variable.name} has no buffer")

    def update(self, target: Expr, source: Expr) -> None:
        """Assign a value, as `target += value` where it is one."""
        match source:
            case Infix(op, left, right) if op in "+-*/" and left == target:
                self.assign(target, right, op)
            case _:
                self.assign(target, source)

    def copy(self, target: Expr, source: Expr, type: TensorType) -> None:
        self.need("memcpy")
        self.code.do("memcpy", target, source, self.nbytes(type))

    def fill_with_zeros(self, target: Expr, type: TensorType) -> None:
        if self.has_team and type.nbytes > MOST_BYTES and isinstance(self.count(type), Literal):
            self.need("clear")
            array = member("host", "team"), type.nbytes, CLEARED_BYTES, Name("st_clear"), target
            self.code.do("st_parallel", *array)
        else:
            self.code.do("memset", target, 0, self.nbytes(type))

    def settled(self, expression: Expr, hint: str) -> Expr:
        """A name or literal, so that C reading it on every iteration repeats neither work nor effects."""
        if isinstance(expression, Name | Literal) or literal_int(expression) is not None:
            return expression
        return self.local(hint, INDEX, expression)

    # ---- the program's store ----

    def is_handle(self, value: Value) -> bool:
        return value in self.plan.handles.values

    def takes_store(self, block: Block) -> bool:
        """Return whether anything in `block` takes memory of the store."""
        return any(
            takes_store(op, self.plan.handles) or (op.declared is CALL and CallView(op).function in self.storing)
            for op in structural_ops(block)
        )

    def keep_store(self, hint: str) -> Name:
        """Note how much of the store is in use; returns the mark."""
        self.need("frames")
        return self.local(hint, INDEX, call("st_frames_mark", FRAMES))

    def release_store(self, mark: Name) -> None:
        self.code.do("st_frames_release", FRAMES, mark)

    def new_frame(self, record: str) -> Expr:
        """The call that takes a record from the store."""
        return call("st_frames_push", "host", FRAMES, Sizeof(record))

    def keep(self, slot: Expr, result: Value, value: Value) -> None:
        """Copy an array into this iteration's slot of what the loop collects, unless it was made there."""
        place = self.plan.kept.get(result)
        target = slot if place is None else self.places[place]
        origin = self.pointer(value)
        if target != origin:
            self.copy(target, origin, value.tensor)

    def pushed(self, stack: Stack, source: Expr, item_bytes: Expr, type: TensorType) -> Expr:
        """The call that puts an item onto a stack: of an array with fewer rows than it may have,
        those that there are."""
        item = "host", self.field(stack), source, item_bytes
        if isinstance(self.count(type), Literal):
            return call("st_stack_push", *item)
        return call("st_stack_push_part", *item, self.nbytes(type))

    # ---- what a back end may do at other points ----

    def settle(self) -> None:
        """Before a decision, or before numbers change: a back end that holds back what it is to write writes it now."""

    def begin_function(self) -> None:
        """Code at the beginning of a back end's functions: none here."""

    def before_return(self, end: End) -> None:
        """Code of a back end before the caller may read the results: none here."""
