"""Running totals: how the reductions of a loop start, take in values and end.

Tested by `tests/kernels/test_kernels.py` and `tests/kernels/test_places.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from staged.code.expr import Expr, Infix, Junction, Literal, Name, Variable
from staged.code.nest.lowering import ZERO, Lowering, factors_of
from staged.code.nest.value import Value
from staged.code.operators import ARITHMETIC, EXTREMES
from staged.code.scalars import Spell, beats, spell
from staged.code.tree import Assign, Declare, If
from staged.code.types import INDEX, scalar
from staged.ir.declaration import prims
from staged.ir.loops import Accumulate, Begin, Compute, Loop, Reduction, Take, Tile, identity, walk
from staged.ir.types import DType

SEVERAL = (2, 0)
"""See `count_uses`."""


@dataclass(frozen=True, slots=True)
class Total:
    """A reduction under way: its variable, and beside a place the element that is there."""

    variable: Variable
    best: Variable | None = None


class Totals:
    """Lowers reductions of single numbers."""

    def __init__(self, low: Lowering, spell: Spell = spell) -> None:
        self.low = low
        self.spell = spell
        self.open: dict[Reduction, Total] = {}
        low.statements |= {Accumulate: self.accumulate, Begin: self.begin, Take: self.take}

    def start(self, reduction: Reduction, loop: Loop | Tile) -> None:
        """Declare the total of a loop that follows."""
        low, dtype = self.low, reduction.target.dtype
        if reduction.op.is_position:
            compared = accumulated_dtype(reduction, loop)
            place, best = low.element(reduction.target.name, INDEX), low.variable("best", scalar(compared))
            low.code.add(Declare(best, low.number(identity(reduction.op, compared)), is_const=False))
            low.code.add(Declare(place, Literal("-1"), is_const=False))
            self.open[reduction] = Total(place, best)
            return
        total = low.element(reduction.target.name, scalar(dtype))
        low.code.add(Declare(total, low.number(identity(reduction.op, dtype)), is_const=False))
        self.open[reduction] = Total(total)

    def accumulate(self, s: Accumulate) -> None:
        """One more value into a total."""
        total, value = self.open[s.reduction], self.low.operand(s.value)
        if s.reduction.op.is_position:
            self.take_place(s, total, value)
        else:
            self.take_in(s.reduction, total.variable, value)

    def finish(self, reduction: Reduction, loop: Loop | Tile) -> None:
        """The total is the value of the reduction from here on."""
        self.low.values[reduction.target] = Value(self.open[reduction].variable, reduction.target.dtype)
        self.low.totals.add(reduction.target)

    def begin(self, s: Begin) -> None:
        """Declare the state of a fold."""
        low = self.low
        for local, start in zip(s.fold.state, s.fold.starts, strict=True):
            variable = low.variable(local.name, scalar(local.dtype))
            low.code.add(Declare(variable, low.number(start), is_const=False))
            low.values[local] = Value(variable, local.dtype)

    def take(self, s: Take) -> None:
        """Merge one more state into that of a fold."""
        low, merge = self.low, s.fold.merge
        for local, value in zip((*merge.left, *merge.right), (*s.fold.state, *s.values), strict=True):
            low.values[local] = Value(self.plain(low.operand(value)), local.dtype)
        for compute in merge.body:
            low.uses[compute.target] = SEVERAL  # with a name: the state that it is computed of changes
            low.statements[Compute](compute)
        results = [low.operand(result).expr for result in merge.results]
        for local, result in zip(s.fold.state, results, strict=True):
            low.code.add(Assign(low.values[local].expr, result))

    def take_place(self, s: Accumulate, total: Total, value: Value) -> None:
        assert s.position is not None and total.best is not None
        best, x = total.best, self.plain(value)
        terms: list[Expr] = [Infix("<", total.variable, ZERO)]
        if not self.is_least(s.reduction, value):
            terms.append(Infix(EXTREMES[s.reduction.combine.name], x, best))
            if value.dtype.is_float:
                terms.append(Junction("&&", (Infix("!=", x, x), Infix("==", best, best))))
        place = Assign(total.variable, self.low.index(s.position))
        self.low.code.add(If(any_of(terms), (Assign(best, x), place)))

    def take_in(self, reduction: Reduction, total: Expr, value: Value) -> None:
        """One more number into a total."""
        low, x, combine = self.low, value.expr, reduction.combine
        dtype = reduction.target.dtype
        factors = factors_of(value) if combine is prims.ADD and value.dtype is dtype else None
        if factors is not None:
            low.code.add(Assign(total, self.spell("fma", [dtype] * 3, dtype, [*factors, total], {}, low.need)))
        elif dtype.is_float and combine.name in ARITHMETIC:
            low.code.add(Assign(total, x, ARITHMETIC[combine.name]))
        elif dtype.is_bool or combine.name not in EXTREMES:
            low.code.add(Assign(total, self.spell(combine.name, [dtype, dtype], dtype, [total, x], {}, low.need)))
        elif not self.is_least(reduction, value):
            x = self.plain(value)
            low.code.add(If(beats(combine.name, dtype, x, total), (Assign(total, x),)))

    def is_least(self, reduction: Reduction, value: Value) -> bool:
        """Return whether a value is a constant that is beyond no other integer: compilers warn of a comparison that is
        never true.
        """
        return not value.dtype.is_float and value.expr == self.low.number(identity(reduction.op, value.dtype))

    def plain(self, value: Value) -> Expr:
        """A number that may be repeated."""
        if isinstance(value.expr, Name | Literal):
            return value.expr
        return self.low.constant("x", scalar(value.dtype), value.expr)


def any_of(terms: Sequence[Expr]) -> Expr:
    """Return whether one of several conditions holds."""
    return terms[0] if len(terms) == 1 else Junction("||", tuple(terms))


def accumulated_dtype(reduction: Reduction, loop: Loop | Tile) -> DType:
    """The dtype of what a reduction takes in."""
    return next(s.value.dtype for s in walk(loop.body) if isinstance(s, Accumulate) and s.reduction is reduction)
