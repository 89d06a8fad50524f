"""Running totals: how the reductions of a loop start, take in values and end.

A reduction has one scalar, and beside it a few vectors where a loop over vectors feeds it, each with every so many items;
they are added up in a fixed order in the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.c_family.expr import Call, Expr, Index, Infix, Literal, Name
from staged.backends.c_family.kernel_text import Site
from staged.backends.c_family.scalars import EXTREMES, spell
from staged.backends.c_family.support.lanes import reduce_snippet
from staged.backends.c_family.vector_plan import feeding_loop, may_repeat
from staged.backends.c_family.vector_statements import VectorStatements
from staged.backends.c_family.vectors import Vec
from staged.ir.loops import (
    Accumulate,
    Compute,
    Load,
    Local,
    Loop,
    Nest,
    PositionOf,
    Reduction,
    Tile,
    identity,
    segments,
    walk,
)
from staged.ir.machine import Machine
from staged.ir.schedule import Schedule
from staged.ir.types import DType, bool_


@dataclass(slots=True)
class Total:
    """A reduction under way: its scalar variable, and its vectors where a vector loop feeds it."""

    scalar: Name
    vector: Name | None
    wide: bool
    """The result itself is a vector (the vectors run across rows)."""
    whole: bool = False
    """Nothing but whole vectors is taken in: the scalar is only made at the end."""


class TotalsEmitter(VectorStatements):
    """The part of a loop emitter that writes reductions."""

    def __init__(self, nest: Nest, schedule: Schedule, machine: Machine, site: Site) -> None:
        super().__init__(nest, schedule, machine, site)
        self.totals: dict[Reduction, Total] = {}

    def start(self, reduction: Reduction, loop: Loop | Tile) -> None:
        dtype = reduction.target.dtype
        name = self.names.fresh(reduction.target.name)
        feeding = feeding_loop(reduction, loop, self.schedule)
        if reduction.op in ("argmax", "argmin"):
            compared = accumulated_dtype(reduction, loop)
            best = self.names.fresh("best")
            self.w.line(f"{compared.c_name} {best} = {self.number(identity(reduction.op, compared))};")
            self.w.line(f"int64_t {name} = -1;")
            self.totals[reduction] = Total(Name(name), Name(best), False)
            return
        start = self.number(identity(reduction.op, dtype))
        wide = self.vector_axis is not None and self.varies_inside(reduction, loop)
        if wide:
            type = self.types.type(dtype)
            self.w.line(f"{type} {name} = {self.speller.splat(Vec(start, dtype, False))};")
            self.totals[reduction] = Total(Name(name), None, True)
            return
        vector: Name | None = None
        if feeding is not None:
            type = self.types.type(dtype)
            vector = Name(self.names.fresh(f"{reduction.target.name}_v"))
            count = self.schedule.vectors_per_turn(feeding)
            splat = str(self.speller.splat(Vec(start, dtype, False)))
            if str(start) in ("0", "0.0", "0.0f"):
                self.w.line(f"{type} {vector}[{count}] = {{0}};")
            else:
                self.w.line(f"{type} {vector}[{count}] = {{{', '.join([splat] * count)}}};")
        whole = feeding is not None and self.types.is_native(dtype) and self.is_whole(feeding, loop)
        if not whole:
            self.w.line(f"{dtype.c_name} {name} = {start};")
        self.totals[reduction] = Total(Name(name), vector, False, whole)

    def is_whole(self, loop: Loop, outer: Loop | Tile) -> bool:
        """Whether a vector loop in `outer`, or `outer` itself, has no single items left over."""
        axis, lanes = loop.axis, self.schedule.lanes
        if axis in self.ranges or axis.dim is not None:
            return False
        if any(isinstance(s, Tile) and s.axis is axis for s in (outer, *walk(outer.body))):
            return False
        pieces = ((0, axis.extent), *segments(loop))
        repeats = may_repeat(loop, self.speller)
        return all((high - low) % lanes == 0 or repeats and high - low >= lanes for low, high in pieces)

    def varies_inside(self, reduction: Reduction, loop: Loop | Tile) -> bool:
        """In a loop over vectors across rows: whether what is taken in differs by lane."""
        varying = {local for local, v in self.values.items() if v.varies}
        axis = self.vector_axis
        assert axis is not None
        for s in walk(loop.body):
            match s:
                case Load(target, _, index):
                    if index.stride(axis):
                        varying.add(target)
                case PositionOf(target, index):
                    if index.stride(axis):
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
        total = self.totals[s.reduction]
        value = self.operand(s.value)
        op, dtype = s.reduction.op, s.reduction.target.dtype
        if op in ("argmax", "argmin"):
            assert s.position is not None and total.vector is not None
            best, x = total.vector, self.plain(value)
            nan = f" || ({x} != {x} && {best} == {best})" if value.dtype.is_float else ""
            beats = "" if self.is_least(op.removeprefix("arg"), value) else f" || {x} {EXTREMES[op]} {best}{nan}"
            with self.w.block(f"if ({total.scalar} < 0{beats})"):
                self.w.line(f"{best} = {x};")
                self.w.line(f"{total.scalar} = {self.index(s.position)};")
            return
        if total.wide or (self.vector_axis is not None and total.vector is not None):
            target: Expr = total.scalar
            if not total.wide:
                assert total.vector is not None
                target = Index(total.vector, self.unrolled or Literal("0"))
                if self.repeated and op == "sum":
                    value = self.without_repeated(value, dtype)
            self.combine_vectors(op, target, value, dtype)
            return
        self.take_in(op, total.scalar, value, dtype)

    def is_least(self, op: str, value: Vec) -> bool:
        """Whether a value is a constant that is beyond no other integer: compilers warn of a comparison that is never true."""
        return not value.dtype.is_float and str(value.expr) == str(self.number(identity(op, value.dtype)))

    def without_repeated(self, value: Vec, dtype: DType) -> Vec:
        """`value` with 0 in the lanes whose items are in the sum already.

        Exact: the lanes that are in the sum already become +0, also where they hold NaN or infinity.
        """
        lanes, mask = ", ".join(map(str, range(self.schedule.lanes))), self.types.mask()
        fresh = self.names.fresh("is_new")
        self.w.line(f"const {mask} {fresh} = ({mask}){{{lanes}}} >= {self.repeated};")
        zero = Vec(self.number(identity("sum", dtype)), dtype, False)
        return Vec(self.speller.select(Vec(Name(fresh), bool_, True), value, zero), dtype, True)

    def take_in(self, op: str, total: Expr, value: Vec, dtype: DType) -> None:
        """One more number into a scalar total."""
        x = value.expr
        if op in ("sum", "prod"):
            if dtype.is_float:
                self.w.line(f"{total} {'+' if op == 'sum' else '*'}= {x};")
            else:
                both = spell("add" if op == "sum" else "multiply", [dtype, dtype], dtype, [total, x], {}, self.need)
                self.w.line(f"{total} = {both};")
        elif op in ("any", "all"):
            self.w.line(f"{total} = {Infix('||' if op == 'any' else '&&', total, x)};")
        elif dtype.is_bool or not self.is_least(op, value):
            self.take_extreme(op, total, self.plain(value), dtype)

    def take_extreme(self, op: str, total: Expr, x: Expr, dtype: DType) -> None:
        if dtype.is_bool:
            self.w.line(f"{total} = {Infix('||' if op == 'max' else '&&', total, x)};")
            return
        nan = f" || {x} != {x}" if dtype.is_float else ""
        with self.w.block(f"if ({x} {EXTREMES[op]} {total}{nan})"):
            self.w.line(f"{total} = {x};")

    def plain(self, value: Vec) -> Expr:
        """A scalar that may be repeated."""
        if isinstance(value.expr, Name | Literal):
            return value.expr
        name = Name(self.names.fresh("x"))
        self.w.line(f"const {value.dtype.c_name} {name} = {value.expr};")
        return name

    def combine_vectors(self, op: str, target: Expr, value: Vec, dtype: DType) -> None:
        if op == "sum":
            if dtype.is_float:
                self.w.line(f"{target} += {value.expr};")
            else:
                both = self.speller.wrapping("+", dtype, Vec(target, dtype, True), value)
                self.w.line(f"{target} = {both};")
            return
        x = Vec(Name(self.settled(value)), dtype, True)
        name = "maximum" if op == "max" else "minimum"
        function = self.speller.function(name, dtype)
        if function is not None:
            self.w.line(f"{function}(&{target}, &{x.expr}, &{target});")
        else:
            self.w.line(f"{target} = {self.speller.extreme(name, x, Vec(target, dtype, True))};")

    def finish(self, reduction: Reduction, loop: Loop | Tile) -> None:
        total = self.totals[reduction]
        dtype = reduction.target.dtype
        if total.vector is not None and reduction.op not in ("argmax", "argmin"):
            feeding = feeding_loop(reduction, loop, self.schedule)
            assert feeding is not None
            count = self.schedule.vectors_per_turn(feeding)
            half = count
            while half > 1:  # pairs, then pairs of pairs: always the same order
                keep = (half + 1) // 2
                for n in range(half - keep):
                    self.combine_vectors(
                        reduction.op,
                        Index(total.vector, Literal(str(n))),
                        Vec(Index(total.vector, Literal(str(n + keep))), dtype, True),
                        dtype,
                    )
                half = keep
            if not self.types.is_native(dtype):
                with self.block(f"for (int lane = 0; lane < {self.schedule.lanes}; ++lane)"):
                    lane = Index(Index(total.vector, Literal("0")), Name("lane"))
                    self.take_in(reduction.op, total.scalar, Vec(lane, dtype, False), dtype)
                self.values[reduction.target] = Vec(total.scalar, dtype, total.wide)
                return
            function = reduce_snippet(reduction.op, dtype.name)
            self.need(function)
            horizontal = Call(function, (total.vector,))
            if total.whole:
                self.w.line(f"const {dtype.c_name} {total.scalar} = {horizontal};")
            else:
                self.take_in(reduction.op, total.scalar, Vec(horizontal, dtype, False), dtype)
        self.values[reduction.target] = Vec(total.scalar, dtype, total.wide)


def accumulated_dtype(reduction: Reduction, loop: Loop | Tile) -> DType:
    return next(s.value.dtype for s in walk(loop.body) if isinstance(s, Accumulate) and s.reduction is reduction)
