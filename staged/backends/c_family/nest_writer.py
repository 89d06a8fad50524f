"""What every writer of a loop nest shares: the C names of its arrays, values and loops, its indices, the text so far."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from staged.backends.c_family.expr import Expr, Infix, Literal, Name, infix_sum, literal, scaled
from staged.backends.c_family.kernel_text import Site
from staged.backends.c_family.nest_uses import may_stop
from staged.backends.c_family.vectors import Vec, VectorSpeller, VectorTypes
from staged.backends.c_family.writer import Names, Writer, c_identifier
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Bound,
    Constant,
    Local,
    Nest,
    Operand,
    Statement,
    walk,
)
from staged.ir.machine import Machine
from staged.ir.schedule import Schedule
from staged.ir.types import Dim

_INLINE_WIDTH = 60
"""Expressions longer than this get a name."""


class NestWriter(ABC):
    """A nest under way. The layers above it write statements, in vectors too, totals and loops."""

    index_type = "int64_t"
    """What counts turns and elements."""

    def __init__(self, nest: Nest, schedule: Schedule, machine: Machine, site: Site) -> None:
        self.nest = nest
        self.schedule = schedule
        self.machine = machine
        self.site = site
        self.w = Writer()
        self.names = Names()
        self.snippets: set[str] = set()
        self.types = VectorTypes(machine.vector_bytes, schedule.lanes, schedule.item_bytes)
        self.speller = VectorSpeller(self.types, self.need, self.named_mask)
        self.arrays: dict[ArrayRef, Name] = {}
        self.values: dict[Local, Vec] = {}
        self.axes: dict[Axis, Expr] = {}
        """Where each loop that is open is."""
        self.ranges: dict[Axis, tuple[str, str]] = {}
        """From where to where loops go that do not go over all of their axis."""
        self.origins: dict[Axis, str] = {}
        """Where on its axis a loop begins whose turns count from 0: the columns of a tile."""
        self.segments: dict[Axis, tuple[int, int]] = {}
        """The piece of an axis that is being written, where guards say different things of different pieces."""
        self.vector_axis: Axis | None = None
        """The axis whose neighbours are taken in vectors."""
        self.uses: dict[Local, tuple[int, int]] = {}
        """See `count_uses`."""
        self.unrolled: Name | None = None
        """The number of a vector among those of one turn."""
        self.ends: dict[tuple[str, str, int], str] = {}
        """Where whole turns of so many items end, in a range from here to there: what is known in this block."""
        self.stored_twice: set[ArrayRef] = set()
        """The arrays of which a loop computes elements twice: such a result must not overwrite an operand."""
        self.repeated = 0
        """How many lanes of the vector under way were taken in before."""
        self.loop_names: list[str] = []
        self.parameter_names: set[str] = set()
        self.drawn: set[Operand] = set()
        """Element numbers, for random numbers, of which each lane has its own."""
        self.sizes_read: set[Local] = set()
        self.left_out: set[ArrayRef] = set()
        """Arrays of which some piece of a loop reads nothing."""
        self.loaded: set[ArrayRef] = set()
        self.can_fail = any(may_stop(s) for s in walk(nest.body))

    def need(self, *names: str) -> None:
        self.snippets.update(names)

    def named_mask(self, mask: Expr) -> Expr:
        """A mask that may be written twice."""
        if isinstance(mask, Name):
            return mask
        name = self.names.fresh("mask")
        self.w.line(f"const {self.types.mask()} {name} = {mask};")
        return Name(name)

    @abstractmethod
    def body(self, body: tuple[Statement, ...]) -> None:
        """The statements of one loop body."""

    # ---- names and values ----

    def fresh(self, hint: str) -> str:
        """A name for an element: `x_j` where `x` is the array and `j` the loop."""
        if c_identifier(hint) in self.parameter_names and self.loop_names:
            hint = f"{hint}_{self.loop_names[-1]}"
        return self.names.fresh(hint)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A C block with names of its own."""
        self.names, ends = Names(self.names), self.ends
        self.ends = dict(ends)
        with self.w.block(head):
            yield
        assert self.names.outer is not None
        self.names, self.ends = self.names.outer, ends

    def bind(self, target: Local, expression: Expr, varies: bool, inline: bool, named: bool) -> None:
        """Give `target` its text: in place where it is used once here, else as a constant."""
        dtype = target.dtype
        direct, nested = self.uses.get(target, (0, 0))
        if inline and direct == 1 and not nested and not named and len(str(expression)) <= _INLINE_WIDTH:
            self.values[target] = Vec(expression, dtype, varies)
            return
        name = self.fresh(target.name)
        type = self.types.type(dtype) if varies else dtype.c_name
        self.w.line(f"const {type} {name} = {expression};")
        self.values[target] = Vec(Name(name), dtype, varies)

    def size(self, dim: Dim) -> Expr:
        """The parameter that holds the size of a dimension."""
        self.sizes_read.add(self.nest.counts[dim])
        return self.values[self.nest.counts[dim]].expr

    def operand(self, operand: Operand) -> Vec:
        if isinstance(operand, Constant):
            return Vec(self.number(operand), operand.dtype, False)
        return self.values[operand]

    def number(self, constant: Constant) -> Expr:
        if constant.dtype.is_float and not math.isfinite(constant.value):
            self.need("math")
        return literal(constant.value, constant.dtype)

    # ---- loops ----

    def range_of(self, axis: Axis) -> tuple[str, str]:
        """The first turn of a loop over an axis and the end of its turns, as C."""
        return self.ranges[axis] if axis in self.ranges else ("0", self.turns(axis))

    def turns(self, axis: Axis) -> str:
        """How many turns a loop over all of an axis has, as C."""
        if axis.dim is None:
            return str(axis.extent)
        return str(self.size(axis.dim)) if axis.factor == 1 else f"{self.size(axis.dim)} * {axis.factor}"

    def scoped(self, axis: Axis) -> str:
        """A name for the index of a loop that is opened."""
        name = self.names.fresh(axis.name)
        self.axes[axis] = Name(name)
        self.loop_names.append(name)
        return name

    def leave(self, name: str) -> None:
        """The loop that `scoped` named is over: the next one may have its name."""
        self.loop_names.pop()
        self.names.used.discard(name)

    # ---- indices ----

    def index(self, index: Affine) -> Expr:
        """An index in terms of the loops that are open."""
        terms: list[Expr] = []
        for name, stride in sorted(index.terms, key=lambda term: -abs(term[1])):
            part = self.axes[name] if isinstance(name, Axis) else self.values[name].expr
            if isinstance(part, Literal):
                if part.text != "0":
                    terms.append(Literal(str(int(part.text) * stride)))
                continue
            term = scaled(part, stride)
            if term is not None:
                terms.append(term)
        if index.offset or not terms:
            terms.append(Literal(str(index.offset)))
        return infix_sum(terms)

    def open_guards(self, guards: Sequence[Bound]) -> list[Bound] | None:
        """The guards that the piece of a loop that is being written does not decide; None: one of them fails in all of it."""
        found: list[Bound] = []
        for guard in guards:
            axis = next((axis for axis in guard.index.axes if axis in self.segments), None)
            if axis is None:
                found.append(guard)
            elif not 0 <= self.segments[axis][0] + guard.index.offset < guard.extent:
                return None
        return found

    def condition(self, bounds: Sequence[Bound]) -> Expr:
        """Whether all of these indices lie inside of their axes."""
        parts: list[Expr] = []
        for bound in bounds:
            inside = self.index(bound.index)
            parts += [Infix(">=", inside, Literal("0")), Infix("<", inside, Literal(str(bound.extent)))]
        condition = parts[0]
        for part in parts[1:]:
            condition = Infix("&&", condition, part)
        return condition
