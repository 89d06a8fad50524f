"""Totals that a loop over vectors feeds: beside its number a reduction has a few vectors, each with every so many
items.

They are added up in a fixed order in the end.

Tested by `tests/backends/host/test_vector_plan.py` and `tests/kernels/test_cascade.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.cpu.nest.vector_plan import feeding_loop, masks_last, may_repeat
from staged.backends.cpu.nest.vector_statements import VectorStatements
from staged.code.expr import Call, Expr, Index, Infix, Items, Literal, Variable
from staged.code.nest.lowering import ZERO, factors_of
from staged.code.nest.totals import Totals
from staged.code.nest.value import Value, is_zero
from staged.code.operators import ARITHMETIC, EXTREMES
from staged.code.scalars import spell
from staged.code.support.lanes import reduce_snippet
from staged.code.support.library import snippets
from staged.code.tree import Assign, Declare
from staged.code.types import scalar
from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Compute,
    Load,
    Local,
    Loop,
    PositionOf,
    Reduction,
    Tile,
    identity,
    segments,
    walk,
)
from staged.ir.sizes import at_bounds
from staged.ir.types import bool_


@dataclass(frozen=True, slots=True)
class VectorTotal:
    """A reduction that vectors feed."""

    number: Variable
    vectors: Variable | None
    """None: the number itself is a vector, since vectors run across rows."""
    is_whole: bool = False
    """True if only whole vectors are taken in: the number is only made at the end."""


class VectorTotals:
    """Lowers reductions that vectors feed, and leaves the others to `totals`."""

    def __init__(self, vectors: VectorStatements, totals: Totals) -> None:
        self.low = vectors.low
        self.vectors = vectors
        self.vector = vectors.vector
        self.totals = totals
        self.open: dict[Reduction, VectorTotal] = {}
        self.unrolled: Expr | None = None
        """The number of a vector among those of one iteration."""
        self.repeated = 0
        """The number of lanes of the present vector that were added before."""
        self.items: Value | None = None
        """The lanes of the present vector that have items, if some may be empty."""
        self.low.statements[Accumulate] = self.accumulate

    def start(self, reduction: Reduction, loop: Loop | Tile) -> None:
        low, vectors, dtype = self.low, self.vectors, reduction.target.dtype
        self.open.pop(reduction, None)
        feeding = feeding_loop(reduction, loop, low.schedule)
        is_wide = vectors.axis is not None and self.varies_inside(reduction, loop)
        if reduction.op.is_position or not is_wide and feeding is None:
            self.totals.start(reduction, loop)
            return
        start = low.number(identity(reduction.op, dtype))
        type = vectors.type(dtype)
        splat = Items((ZERO,)) if is_zero(start) else vectors.speller.splat(Value(start, dtype))
        if is_wide:
            number = low.element(reduction.target.name, type)
            low.code.add(Declare(number, splat, is_const=False))
            self.open[reduction] = VectorTotal(number, None)
            return
        assert feeding is not None
        number = low.element(reduction.target.name, scalar(dtype))
        several = low.variable(f"{reduction.target.name}_v", type)
        count = low.schedule.vectors_per_iteration(feeding)
        first = splat if is_zero(start) else Items((splat,) * count)
        low.code.add(Declare(several, first, is_const=False, sizes=(Literal(str(count)),)))
        is_whole = self.horizontal(reduction) is not None and self.is_whole(feeding, loop)
        if not is_whole:
            low.code.add(Declare(number, start, is_const=False))
        self.open[reduction] = VectorTotal(number, several, is_whole)

    def is_whole(self, loop: Loop, outer: Loop | Tile) -> bool:
        """Return whether a vector loop in `outer`, or `outer` itself, has no single items left over."""
        axis, lanes = loop.axis, self.vectors.lanes
        if masks_last(loop):
            known = (last - first for first, last in segments(loop) if isinstance(first, int) and isinstance(last, int))
            return all(length % lanes == 0 for length in known)
        if axis in self.low.ranges or not axis.is_static:
            return False
        if any(isinstance(s, Tile) and s.axis is axis for s in (outer, *walk(outer.body))):
            return False
        pieces = ((0, axis.extent), *((at_bounds(low), at_bounds(high)) for low, high in segments(loop)))
        repeats = may_repeat(loop, self.vectors.speller)
        return all((high - low) % lanes == 0 or repeats and high - low >= lanes for low, high in pieces)

    def varies_inside(self, reduction: Reduction, loop: Loop | Tile) -> bool:
        """In a loop over vectors across rows: whether what is taken in differs by lane."""
        varying = {local for local, v in self.low.values.items() if v.is_vector}
        axis = self.vectors.axis
        assert axis is not None
        for s in walk(loop.body):
            match s:
                case Load(target, _, index) | PositionOf(target, index):
                    if index.moves(axis):
                        varying.add(target)
                case Compute(target, _, operands):
                    if any(o in varying for o in operands if isinstance(o, Local)):
                        varying.add(target)
                case Accumulate(r, value) if r is reduction:
                    return isinstance(value, Local) and value in varying
                case Accumulate(r, value):
                    if value in varying:
                        varying.add(r.target)
        return False

    def accumulate(self, s: Accumulate) -> None:
        total = self.open.get(s.reduction)
        if total is None:
            self.totals.accumulate(s)
            return
        value = self.low.operand(s.value)
        if total.vectors is None:
            self.combine(s.reduction, total.number, value)
        elif self.vectors.axis is None:
            self.totals.take_in(s.reduction, total.number, value)
        else:
            if self.items is not None:
                value = self.chosen(s.reduction, value, self.items)
            if self.repeated and not s.reduction.op.is_extreme:
                value = self.chosen(s.reduction, value, self.lanes("is_new", ">=", Literal(str(self.repeated))))
            self.combine(s.reduction, Index(total.vectors, self.unrolled or ZERO), value)

    def lanes(self, name: str, relation: str, count: Expr) -> Value:
        """A mask with a name: the lanes whose numbers have this relation to a count."""
        lanes = Items(tuple(Literal(str(lane)) for lane in range(self.vectors.lanes)), self.vectors.types.mask())
        return self.vector(self.low.constant(name, self.vectors.type(bool_), Infix(relation, lanes, count)), bool_)

    def chosen(self, reduction: Reduction, value: Value, mask: Value) -> Value:
        """`value` in the lanes of a mask, with the initial value (0 of a sum) in the other lanes.

        Exact: these lanes become +0 in a sum, even if they hold NaN or infinity.
        """
        dtype = reduction.target.dtype
        start = Value(self.low.number(identity(reduction.op, dtype)), dtype)
        return self.vector(self.vectors.speller.select(mask, value, start), dtype)

    def combine(self, reduction: Reduction, target: Expr, value: Value) -> None:
        """One more vector into a vector of totals."""
        low, speller, name, dtype = self.low, self.vectors.speller, reduction.combine.name, reduction.target.dtype
        factors = factors_of(value) if reduction.combine is prims.ADD and value.dtype is dtype else None
        if factors is not None:
            low.code.add(Assign(target, speller.fma(factors, target, dtype)))
            return
        if dtype.is_float and name in ARITHMETIC:
            low.code.add(Assign(target, value.expr, ARITHMETIC[name]))
            return
        total = self.vector(target, dtype)
        both = (total, value)
        if name in EXTREMES:
            both = (self.vector(self.vectors.settled(value), dtype), total)  # the total is selected if both are equal
        function = speller.function(name, dtype, dtype)
        if function is not None:
            low.code.add(Assign(target, Call(function, tuple(map(speller.splat, both)))))
            return
        vector = speller.spell(name, both, dtype, {})
        if vector is not None:
            low.code.add(Assign(target, vector))
            return
        x = self.vectors.settled(value)
        with self.vectors.each_lane() as lane:
            number = spell(name, [dtype, dtype], dtype, [Index(target, lane), Index(x, lane)], {}, low.need)
            low.code.add(Assign(Index(target, lane), number))

    def horizontal(self, reduction: Reduction, vectors: int = 1) -> str | None:
        """The support function that combines all lanes of vectors, if it exists."""
        dtype = reduction.target.dtype
        if dtype.is_bool or dtype.is_half:
            return None
        name = reduce_snippet(reduction.op.name, self.vectors.types.type(dtype), vectors)
        return name if name in snippets() else None

    def finish(self, reduction: Reduction, loop: Loop | Tile) -> None:
        total, low, dtype = self.open.get(reduction), self.low, reduction.target.dtype
        if total is None:
            self.totals.finish(reduction, loop)
            return
        low.values[reduction.target] = Value(total.number, dtype, self.vectors.lanes if total.vectors is None else 1)
        if total.vectors is None:
            return
        feeding = feeding_loop(reduction, loop, low.schedule)
        assert feeding is not None
        left = low.schedule.vectors_per_iteration(feeding)
        # The lanes of other vectors are added one by one, after the items that do not fill a vector.
        has_function = total.is_whole or self.vectors.types.is_native(dtype)
        function = self.horizontal(reduction, left) if has_function else None
        if function is None:
            self.in_pairs(reduction, total.vectors, left)
            function = self.horizontal(reduction) if has_function else None
        if function is None:
            with self.vectors.each_lane() as lane:
                element = Index(Index(total.vectors, ZERO), lane)
                self.totals.take_in(reduction, total.number, Value(element, dtype))
            return
        low.need(function)
        horizontal = Call(function, (total.vectors,))
        if total.is_whole and low.uses.get(reduction.target) == (1, 0):
            low.values[reduction.target] = Value(horizontal, dtype)
        elif total.is_whole:
            low.code.add(Declare(total.number, horizontal))
        else:
            self.totals.take_in(reduction, total.number, Value(horizontal, dtype))

    def in_pairs(self, reduction: Reduction, vectors: Variable, left: int) -> None:
        """Combine pairs of vectors, then pairs of pairs: always in the same order."""
        while left > 1:
            keep = (left + 1) // 2
            for n in range(left - keep):
                one, other = (Index(vectors, Literal(str(number))) for number in (n, n + keep))
                self.combine(reduction, one, self.vector(other, reduction.target.dtype))
            left = keep
