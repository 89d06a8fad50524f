"""Statements of a loop over vectors: neighbours along its axis are read, computed and written at once.

Tested by `tests/kernels/test_kernels.py` and `tests/kernels/test_schedule.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import commonprefix

from staged.backends.cpu.nest.vectors import VectorSpeller, VectorTypes
from staged.code.expr import (
    Call,
    Cast,
    Conditional,
    Expr,
    Index,
    Infix,
    Items,
    Literal,
    Name,
    Variable,
    address,
    literal,
)
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.nest.statements import Statements, stored
from staged.code.nest.value import Value, is_zero
from staged.code.scalars import spell
from staged.code.tree import Assign, Declare
from staged.code.types import SHORT_INDEX, CType, lanes
from staged.ir.declaration import prims
from staged.ir.loops import Axis, Bound, Compute, Load, LoadPair, Operand, PositionOf, Store, StorePair
from staged.ir.sizes import Extent
from staged.ir.types import DType

ELEMENT = "element"


class VectorStatements:
    """Lowers statements on vectors where a loop over vectors is open, and leaves the others to `scalars`."""

    def __init__(self, low: Lowering, scalars: Statements, vector_bytes: int) -> None:
        self.low = low
        self.scalars = scalars
        self.types = VectorTypes(vector_bytes, low.schedule.lanes, low.schedule.item_bytes)
        self.vector = self.types.vector
        self.speller = VectorSpeller(self.types, low.need, self.named_mask)
        self.axis: Axis | None = None
        """The axis whose neighbours are taken in vectors."""
        self.left: Expr | None = None
        """The number of items for a vector that may be a part of one."""
        self.drawn: set[Operand] = set()
        """Element numbers, for random numbers, of which each lane has its own."""
        low.statements |= {
            Load: self.load,
            Store: self.store,
            Compute: self.compute,
            PositionOf: self.position,
            LoadPair: self.load_pair,
            StorePair: self.store_pair,
        }

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.low.schedule.lanes

    def type(self, dtype: DType) -> CType:
        """The type of a vector; one of bools is a mask."""
        return lanes(dtype, self.lanes, self.types.type(dtype))

    def named_mask(self, mask: Expr) -> Expr:
        """A mask that may be written twice."""
        return mask if isinstance(mask, Name) else self.low.constant("mask", CType(self.types.mask()), mask)

    def settled(self, value: Value) -> Name | Index:
        """A vector with a name, whose lanes can be taken."""
        if value.is_vector and isinstance(value.expr, Name | Index):
            return value.expr
        return self.low.constant("x", self.type(value.dtype), self.speller.splat(value))

    # ---- statements ----

    def load(self, s: Load) -> None:
        """Neighbours, or what guards leave of these."""
        low = self.low
        guards = low.open_guards(s.guards)
        if self.axis is None or not s.index.moves(self.axis) or guards is None:
            self.scalars.load(s)
            return
        self.load_from(s, address(*low.place(s.array, s.index)), guards)

    def load_from(self, s: Load, place: Expr, guards: Sequence[Bound] = ()) -> None:
        """The vector at an address."""
        low, dtype = self.low, s.array.dtype
        vector = self.speller.load(dtype, place, self.left_in(s))
        if guards:
            assert s.fill is not None
            condition = low.condition(guards)
            fill = self.speller.splat(Value(low.number(s.fill), dtype))
            if not dtype.is_bool:
                # What is read may lie at any address: a type of its own to the compiler.
                vector = Cast(self.types.type(dtype), vector)
            vector = Conditional(condition, vector, fill)
        low.bind(s.target, self.vector(vector, dtype), self.type, low.loads_in_place and not guards)

    def store(self, s: Store) -> None:
        low = self.low
        if self.axis is None or not s.index.moves(self.axis):
            self.scalars.store(s)
            return
        value = low.operand(s.value)
        self.write(s.array.dtype, address(*low.place(s.array, s.index)), value, self.left_in(s))

    def write(self, dtype: DType, place: Expr, value: Value, count: Expr | None = None) -> None:
        """A vector to an address."""
        target, vector = self.speller.store(dtype, place, value, count)
        self.low.code.add(stored(target, vector, self.speller.load(dtype, place, count)))

    def left_in(self, s: Load | Store) -> Expr | None:
        """The number of items of a part of a vector in memory; None for a whole one.

        Exact: an array of workspace has whole vectors, and a thread's piece of the items begins with one. A row of
        such an array may end with a part.
        """
        has_room = s.array.role == "scratch" and len(s.index.terms) == 1 and not s.index.offset
        return None if has_room else self.left

    def compute(self, s: Compute) -> None:
        low = self.low
        operands = [low.operand(o) for o in s.operands]
        if s.op.kind == "random" and self.axis is not None and s.operands[-1] in self.drawn:
            self.draw(s, [o.expr for o in operands])
        elif not any(o.is_vector for o in operands):
            if s.op is prims.ADD and all(is_zero(o.expr) for o in operands):  # guards leave only fill values
                low.values[s.target] = Value(operands[0].expr, s.target.dtype)
            else:
                self.scalars.compute(s)
        else:
            factors = low.factors(s.target)
            if factors is not None:
                vector: Expr | None = self.speller.fma(factors, operands[0].expr, s.target.dtype)
            else:
                vector = self.speller.spell(s.op.name, operands, s.target.dtype, s.attrs)
            if vector is None:
                self.call(s, operands)
                return
            self.bind(s, vector)

    def bind(self, s: Compute, vector: Expr) -> None:
        """Give the result of a statement its value."""
        named = not s.target.is_part and s.target.name != s.op.name
        self.low.bind(s.target, self.vector(vector, s.target.dtype), self.type, True, named)

    def position(self, s: PositionOf) -> None:
        low, dtype = self.low, s.target.dtype
        stride = s.index.stride(self.axis) if self.axis is not None else 0
        self.drawn.discard(s.target)
        if stride == 0:
            self.scalars.position(s)
            return
        number = self.scalars.number_of(s)
        if s.target.name == ELEMENT:
            # Random numbers: a vector of them is made from the number of its first element.
            low.values[s.target] = Value(number, dtype)
            self.drawn.add(s.target)
            return
        steps = Items(tuple(self.lane(lane * stride, dtype) for lane in range(self.lanes)), self.types.type(dtype))
        low.bind(s.target, self.vector(Infix("+", number, steps), dtype), self.type, False)

    def lane(self, distance: Extent, dtype: DType) -> Expr:
        """The distance of a lane from the first one, as a number of the program."""
        return literal(distance, dtype) if isinstance(distance, int) else Cast(dtype.c_name, self.low.size(distance))

    # ---- random numbers and functions ----

    def draw(self, s: Compute, operands: Sequence[Expr]) -> None:
        """A vector of random numbers."""
        low, dtype = self.low, s.target.dtype
        suffix = {"random_bits": "u32v", "bernoulli": "i32v"}.get(s.op.name, f"{dtype}v")
        function = f"st_{s.op.name}_{suffix}"
        low.need(function)
        self.bind(s, Call(function, tuple(operands)))

    def call(self, s: Compute, operands: Sequence[Value]) -> None:
        """A function on vectors, or lane by lane."""
        low, dtype = self.low, s.target.dtype
        function = self.speller.function(s.op.name, operands[0].dtype, dtype)
        if function is not None:
            self.bind(s, Call(function, tuple(map(self.speller.splat, operands))))
            return
        whole = [self.settled(o) for o in operands]
        result = self.result(s)
        with self.each_lane(unroll=True) as lane:
            inputs = [Index(x, lane) for x in whole]
            number = spell(s.op.name, [o.dtype for o in operands], dtype, inputs, s.attrs, low.need)
            low.code.add(Assign(Index(result, lane), number))

    @contextmanager
    def each_lane(self, unroll: bool = False) -> Iterator[Variable]:
        """A loop over the lanes of a vector."""
        lane, count = Variable("lane", SHORT_INDEX), self.lanes
        with self.low.loop(lane, ZERO, Literal(str(count)), unroll=count * unroll):
            yield lane

    def result(self, s: Compute) -> Name:
        """The variable for a vector that is filled lane by lane."""
        low = self.low
        variable = low.element(s.target.name, self.type(s.target.dtype))
        low.code.add(Declare(variable, is_const=False))
        low.values[s.target] = self.vector(variable, s.target.dtype)
        return variable

    # ---- pairs of neighbours ----

    def load_pair(self, s: LoadPair) -> None:
        """Pairs of neighbours: in a loop over vectors two vectors, sorted into even and odd lanes."""
        low, array, dtype = self.low, self.low.arrays[s.array], s.array.dtype
        if self.axis is None:
            self.scalars.load_pair(s)
            return
        type = self.type(dtype)
        row = commonprefix([s.first.name, s.second.name])
        whole = [low.variable(f"{row}{half}", type) for half in ("low", "high")]
        for number, variable in enumerate(whole):
            place = address(array, low.index(s.index + number * self.lanes))
            low.code.add(Declare(variable, self.speller.load(dtype, place, self.left_in_half(number))))
        for offset, target in enumerate((s.first, s.second)):
            picks = [2 * lane + offset for lane in range(self.lanes)]
            value = self.vector(self.shuffled(dtype, whole[0], whole[1], picks), dtype)
            low.bind(target, value, self.type, False)

    def store_pair(self, s: StorePair) -> None:
        low, array, dtype = self.low, self.low.arrays[s.array], s.array.dtype
        if self.axis is None:
            self.scalars.store_pair(s)
            return
        one, other = (self.settled(low.operand(value)) for value in (s.first, s.second))
        count = self.lanes // 2
        for half in (0, 1):
            picks = [lane for n in range(count) for lane in (half * count + n, self.lanes + half * count + n)]
            place = address(array, low.index(s.index + half * self.lanes))
            self.write(
                dtype, place, self.vector(self.shuffled(dtype, one, other, picks), dtype), self.left_in_half(half)
            )

    def left_in_half(self, half: int) -> Expr | None:
        """The number of items in the first or the second vector of pairs; None for whole vectors."""
        if self.left is None:
            return None
        items = Infix("*", self.left, Literal("2"))
        if half == 0:
            return items
        return Conditional(
            Infix(">", self.left, Literal(str(self.lanes // 2))),
            Infix("-", items, Literal(str(self.lanes))),
            ZERO,
        )

    def shuffled(self, dtype: DType, x: Expr, y: Expr, picks: Sequence[int]) -> Expr:
        """Lanes of two vectors."""
        self.low.need("shuffle")
        kind = Name(self.types.mask(dtype.size))
        return Call("ST_SHUFFLE", (kind, x, y, *(Literal(str(pick)) for pick in picks)))
