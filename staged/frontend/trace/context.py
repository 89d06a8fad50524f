"""The trace: what records a staged function, and what it knows of arrays, Variables and objects of Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from staged.call.guards.reads import Reads
from staged.errors import LeakError, article
from staged.frontend.trace.attempts import TraceState
from staged.frontend.trace.captured import name_of_captured, whole_behind, whole_view
from staged.frontend.trace.dtypes import unsupported_dtype
from staged.frontend.trace.effects import check_effect
from staged.frontend.trace.lifetimes import OfTrace
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.strict import Strict
from staged.ir.builder import Builder, OpenBlock
from staged.ir.declaration import prims
from staged.ir.names import as_name
from staged.ir.nodes import Op, Value
from staged.ir.sizes import Dim
from staged.ir.types import TensorType, Type, dims_of, dtype_of
from staged.ops.array import Array, StagedArray
from staged.ops.context import context_or_none
from staged.ops.primitive import Primitive
from staged.ops.shape import permute_dims, reshape
from staged.source import Position, here


def _no_numbers(trace: TraceContext, generator: Any) -> tuple[Array, Array, Array]:
    raise AssertionError("this trace draws no random numbers")


@dataclass
class RandomNumbers(OfTrace):
    """The source of random numbers (`generator.py`)."""

    generator: Any = None
    """The generator of random ops that name none."""
    draw: Callable[[TraceContext, Any], tuple[Array, Array, Array]] = _no_numbers


class TraceContext(TraceState):
    """Records one staged function."""

    def __init__(self, name: str, builder: Builder) -> None:
        super().__init__(builder, self.position)
        self.fixed_position: Position | None = None
        """The position of new ops, where it is not that of the expression that is being evaluated."""
        self.hidden_input = self._hidden
        self.name = name
        self.made: dict[int, object] = {}
        """Lists, dicts and objects made while tracing, by id."""
        self.given: dict[int, object] = {}
        """Static arguments and what is in them, by id: they may be changed, but are older than the trace."""
        self.reads = Reads(self.is_made)
        self.running_locals: tuple[Locals, ...] = ()
        """The locals of the calls that are running, innermost last."""
        self.strict: Strict | None = None
        """The innermost region, if it takes nothing that it does not name."""
        self.arguments: dict[Value, str] = {}
        """The arguments of the program by their values: names for `static=`."""
        self.block_of: dict[Value, OpenBlock] = {}
        """The block in which a value was made, and may be used."""

    # ---- recording ----

    def position(self) -> Position | None:
        """The position of a new op."""
        return self.fixed_position or here(3)  # called by what is called to record an op

    def bind(self, primitive: Primitive, operands: Any, attrs: dict[str, Any]) -> tuple[Array, ...]:
        operands = [operand if type(operand) is StagedArray else self.read(operand) for operand in operands]
        if self.strict is not None:
            for operand in operands:
                self.strict.check(self, operand)
        block_of, current = self.block_of, self.builder.current
        assert current is not None
        values = [
            operand.value
            if type(operand) is StagedArray and operand.owner is self and block_of.get(operand.value) is current
            else self.value_of(operand)
            for operand in operands
        ]
        results = self.handles(self.recorded(primitive, values, attrs, self.fixed_position or here(2)))
        if self.dims:
            for dim in {dim: None for array in (*operands, *results) for dim in dims_of(array.type)}:
                self.check_dim(dim, current)
            if primitive is prims.EXTENT:
                self.check_dim(attrs["dim"], current)
        for result in results:
            block_of[result.value] = current
        return results

    def check_dim(self, dim: Dim, block: OpenBlock) -> None:
        """Raise where a dimension is used that has its size in a block which has ended."""
        home = next((home for known, home in self.dims if known == dim), None)
        if home is not None and not _is_around(home, block):
            raise LeakError(
                f"the size of dimension `{dim.name}` is known only inside the branch, loop or transform that has ended",
                where=self.locate(),
                hint="give the dimension its size before the branch or loop, or write the elements into an array of a "
                "fixed "
                "size inside: `x[:n] = part`",
            )

    def read(self, operand: Array) -> Array:
        """The value of a Variable now; any other operand as it is."""
        if type(operand) is StagedArray:
            return operand
        reader = getattr(type(operand), "__staged_read__", None)
        return reader(operand) if reader is not None else operand

    def is_visible(self, leaf: object) -> bool:
        """Return whether a leaf can be used here: the block that a staged value was made in has not ended."""
        home = self.block_of.get(leaf.value) if isinstance(leaf, StagedArray) else None
        return home is None or _is_around(home, self.builder.current)

    def value_of(self, array: Array) -> Value:
        if type(array) is StagedArray and array.owner is self:
            value = array.value
        else:
            value = super().value_of(self.read(array))
        home, current = self.block_of.get(value), self.builder.current
        if home is not None and home is not current and not _is_around(home, current):
            name = f"`{value.hint}`" if value.hint else "a staged value"
            made = f", line {value.producer.where.line}" if value.producer and value.producer.where else ""
            raise LeakError(
                f"{name} ({value.type}{made}) was made inside a branch, loop or transform that has ended",
                where=self.locate(),
                hint="return it, or assign it to a local name that is bound before the branch or loop",
            )
        return value

    def emit_op(self, op: Op) -> tuple[StagedArray, ...]:
        """Append a ready op; handles for its results."""
        self.builder.append(op)
        current = self.builder.current
        assert current is not None
        for result in op.results:
            self.block_of[result] = current
            if self.dims:
                for dim in dims_of(result.type):
                    self.check_dim(dim, current)
        return self.handles(op)

    def emit(self, op: Op) -> tuple[Array, ...]:
        return self.emit_op(op)

    def constant(self, value: Any, type: TensorType) -> Array:
        made = super().constant(value, type)
        assert isinstance(made, StagedArray)
        if made.value.producer is not None:  # else a hidden input, which is visible everywhere
            self.block_of[made.value] = self.block
        return made

    def open_block(self, types: tuple[Type, ...] = (), hints: tuple[str, ...] = ()) -> OpenBlock:
        """A block inside the current one, not entered yet (see `entered`); its end may come later."""
        names = [*hints, *("" for _ in types[len(hints) :])]
        params = list(map(Value, types, names))
        opened = OpenBlock(params, self.builder.current)
        for param in params:
            self.block_of[param] = opened
        return opened

    @property
    def is_staged_control(self) -> bool:
        """Return whether a staged branch or loop is open."""
        return bool(self.conditional)

    @property
    def is_certain(self) -> bool:
        return not self.conditional

    def is_made(self, owner: object) -> bool:
        """Return whether the trace has made an object: it is the same in every trace."""
        return id(owner) in self.made and id(owner) not in self.given

    def next_random(self, generator: Any = None) -> tuple[Array, Array, Array]:
        check_effect("random", "random numbers are drawn")
        numbers = self.of(RandomNumbers)
        return numbers.draw(self, numbers.generator if generator is None else generator)

    def read_now(self, value: Any) -> None:
        self.reads.consumed(value)

    def lift(self, array: Any) -> Array:
        """A handle for an array of Python's. A transpose or another shape of an array with a name is made from that
        one.
        """
        if type(array) is np.ndarray and id(array) not in self.hidden:
            known = (other for other, _ in self.hidden.values() if type(other) is np.ndarray)
            owner = next((other for other in known if whole_view(array, other)), None)
            owner = whole_behind(array) if owner is None else owner
            if owner is not None:
                view = whole_view(array, owner)
                assert view is not None, "an array that is behind another one shows the same memory"
                shape, axes = view
                return permute_dims(reshape(super().lift(owner), shape), axes)
        return super().lift(array)

    def note_offered(self, array: Any) -> None:
        """An object of a class of Python's is guarded by its attributes; one of C's cannot be guarded."""
        if is_of_python(type(array)):
            self.reads.consumed(array)
        elif not self.is_made(array):
            self.reads.reason(
                f"{article(type(array).__name__)} from outside is read, which is no array of NumPy's: pass it as an "
                "argument"
            )

    def _hidden_name(self, array: Any) -> str:
        """The user's name for an array, unlike those of the other inputs."""
        base = as_name(name_of_captured(array)) or f"hidden_{len(self.hidden)}"
        taken = {value.hint for _, value in self.hidden.values()} | {param.hint for param in self.arguments}
        return next(
            name for count in itertools.count(1) if (name := base if count == 1 else f"{base}_{count}") not in taken
        )

    def _hidden(self, array: Any) -> Value:
        known = self.hidden.get(id(array))
        if known is None:
            self.reads.array_type(array)
            type_ = _type_of_array(array, self)
            value = self._made_before(array, type_)
            if value is None:
                value = Value(type_, self._hidden_name(array))
            known = self.hidden[id(array)] = (array, value)
            self.met.append(known)
        elif self.retired:
            self.retired = [each for each in self.retired if each[1] is not known[1]]
        return known[1]

    def _made_before(self, array: Any, type_: TensorType) -> Value | None:
        """The value that stood for an equal array in an attempt that was taken back: what NumPy computes there is made
        anew.
        """
        for number, (other, value) in enumerate(self.retired):
            if value.type == type_ and np.asarray(other).tobytes() == np.asarray(array).tobytes():
                del self.retired[number]
                if self.hidden.get(id(other), (None, None))[1] is value:
                    del self.hidden[id(other)]
                self.kept_alive.append(other)
                return value
        return None


def _is_around(home: OpenBlock, block: OpenBlock | None) -> bool:
    while block is not None and block is not home:
        block = block.parent
    return block is home


_HEAP_TYPE = 1 << 9


def is_of_python(cls: type) -> bool:
    """Return whether a class and its bases are written in Python: those of C have types of their own,
    or a `__new__`."""
    return all(
        base is object
        or (base.__flags__ & _HEAP_TYPE and not isinstance(vars(base).get("__new__"), BuiltinFunctionType))
        for base in cls.__mro__
    )


def _type_of_array(array: Any, trace: TraceContext) -> TensorType:
    dtype = dtype_of(array.dtype)
    if dtype is None:
        raise unsupported_dtype("a closed-over array", array, trace.locate())
    return TensorType(dtype, tuple(array.shape))


def current_trace() -> TraceContext | None:
    """The trace in force; None in eager mode and in plain Python."""
    context = context_or_none()
    return context if type(context) is TraceContext else None


def note_made(value: object) -> None:
    """Note that converted code made a mutable object in the open constructs."""
    trace = current_trace()
    if trace is not None:
        trace.made[id(value)] = value
        for body in trace.bodies:
            body.made[id(value)] = value
