"""Statements on single numbers, as any back end of the C family has them.

Tested by `tests/kernels/test_kernels.py` and `tests/kernels/test_declarations.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from staged.code.expr import (
    Call,
    Cast,
    Conditional,
    Expr,
    Index,
    Infix,
    Literal,
    Name,
    address,
)
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.nest.uses import may_stop
from staged.code.nest.value import Value
from staged.code.scalars import Spell, random_call, spell
from staged.code.tree import Assign, Do, If, Jump
from staged.code.types import INDEX
from staged.ir.declaration import prims
from staged.ir.loops import (
    Address,
    ArrayRef,
    CallSupport,
    CheckIndex,
    Compute,
    Copy,
    Guarded,
    Load,
    LoadPair,
    Operand,
    PositionOf,
    Store,
    StorePair,
)
from staged.ir.sizes import Size
from staged.ir.types import i64


class Statements:
    """Lowers statements on single numbers. `record` is where they report what stops the program;
    `stops` says which may."""

    def __init__(
        self,
        low: Lowering,
        record: Expr,
        stops: Callable[[Compute | CheckIndex], bool] = may_stop,
        spell: Spell = spell,
    ) -> None:
        self.low = low
        self.record = record
        self.stops = stops
        self.spell = spell
        low.statements |= {
            Load: self.load,
            Store: self.store,
            LoadPair: self.load_pair,
            StorePair: self.store_pair,
            Compute: self.compute,
            PositionOf: self.position,
            CheckIndex: self.check_index,
            Guarded: self.guarded,
            Copy: self.copy,
            CallSupport: self.call,
        }

    def load(self, s: Load) -> None:
        low = self.low
        guards = low.open_guards(s.guards)
        if guards is None:
            assert s.fill is not None
            low.values[s.target] = Value(low.number(s.fill), s.array.dtype)
            return
        element: Expr = Index(*low.place(s.array, s.index))
        if guards:
            assert s.fill is not None
            element = Conditional(low.condition(guards), element, low.number(s.fill))
        low.bind_scalar(s.target, element, low.loads_in_place and not guards)

    def store(self, s: Store) -> None:
        low = self.low
        low.code.add(stored(Index(*low.place(s.array, s.index)), low.operand(s.value).expr))

    def load_pair(self, s: LoadPair) -> None:
        low = self.low
        for offset, target in enumerate((s.first, s.second)):
            low.bind_scalar(target, Index(low.arrays[s.array], low.index(s.index + offset)), in_place=False)

    def store_pair(self, s: StorePair) -> None:
        low = self.low
        for offset, value in enumerate((s.first, s.second)):
            place = Index(low.arrays[s.array], low.index(s.index + offset))
            low.code.add(Assign(place, low.operand(value).expr))

    def compute(self, s: Compute) -> None:
        low = self.low
        operands = [low.operand(operand) for operand in s.operands]
        exprs = [operand.expr for operand in operands]
        result, named = s.target.dtype, not s.target.is_part and s.target.name != s.op.name
        factors = low.factors(s.target)
        if s.op.kind == "random":
            expr = random_call(s.op.name, result, exprs, low.need)
        elif self.stops(s):
            low.need(f"checked_{s.op.name}_{result}")
            site = Literal(str(low.site(s.where)))
            expr = Call(f"st_checked_{s.op.name}_{result}", (self.record, site, *exprs))
            named = True
        elif factors is not None:
            expr = self.spell("fma", [result] * 3, result, [*factors, exprs[0]], {}, low.need)
        else:
            expr = self.spell(s.op.name, [operand.dtype for operand in operands], result, exprs, s.attrs, low.need)
        is_rounded_total = s.op is prims.CAST and s.operands[0] in low.totals
        low.bind_scalar(s.target, expr, named=named and not is_rounded_total)

    def position(self, s: PositionOf) -> None:
        self.low.bind_scalar(s.target, self.number_of(s))

    def number_of(self, s: PositionOf) -> Expr:
        """A position as a number of the program."""
        number = self.low.index(s.index)
        return number if s.target.dtype is i64 else Cast(s.target.dtype.c_name, number)

    def extent(self, s: CheckIndex) -> Expr:
        """The elements that an index may mean."""
        return self.low.size(s.extent)

    def check_index(self, s: CheckIndex) -> None:
        low = self.low
        low.need(f"check_{s.meaning}")
        site, given = Literal(str(low.site(s.where))), low.operand(s.index).expr
        place = Call(f"st_check_{s.meaning}", (self.record, site, given, self.extent(s)))
        index = low.constant(s.target.name, INDEX, place)
        low.code.add(If(Infix("<", index, ZERO), (Jump("return"),)))
        low.values[s.target] = Value(index, i64)

    def guarded(self, s: Guarded) -> None:
        with self.low.branch(self.low.condition(s.bounds)):
            self.low.body(s.body)

    def copy(self, s: Copy) -> None:
        """The rest of an array that is changed in part; in place there is nothing to do."""
        low = self.low
        low.need("memcpy")
        target, size = low.arrays[s.target], size_of(low, s.target)
        if s.source is None:
            low.code.add(Do(Call("memset", (target, ZERO, size))))
            return
        source = low.arrays[s.source]
        low.code.add(If(Infix("!=", target, source), (Do(Call("memcpy", (target, source, size))),)))

    def call(self, s: CallSupport) -> None:
        low = self.low
        low.need(s.snippet)
        low.code.add(Do(Call(s.function, tuple(map(self.argument, s.arguments)))))

    def argument(self, given: ArrayRef | Address | Operand | Size | None) -> Expr:
        """An argument of a support function."""
        low = self.low
        match given:
            case None:
                return Name("NULL")
            case ArrayRef():
                return low.arrays[given]
            case Address(array, index):
                return address(low.arrays[array], low.index(index))
            case Size():
                return low.size(given)
        return low.operand(given).expr


def stored(target: Expr, value: Expr, loaded: Expr | None = None) -> Assign:
    """The statement that stores a value: `target += x` if the value is `target + x`.

    `loaded` is the target as an expression loads it.
    """
    match value:
        case Infix("+" | "-" | "*" | "/" as op, left, right) if left == (loaded or target):
            return Assign(target, right, op)
    return Assign(target, value)


def size_of(low: Lowering, array: ArrayRef) -> Expr:
    """The bytes of an array that there are."""
    count = low.size(array.count)
    if isinstance(array.count, Size):
        count = Cast("size_t", count)
    return Infix("*", count, Call("sizeof", (Name(array.dtype.c_name),)))
