"""A nest on its way to code: the names of its arrays, values and loops, its indices, the code so far.

Objects that hold a `Lowering` lower the statements; each says in the table `statements` which. Names are chosen where a
variable is made: whether a value is written in place depends on its width without names and numbers.

Tested by `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from staged.code.expr import (
    Expr,
    Infix,
    Junction,
    Literal,
    Name,
    Variable,
    Words,
    infix_sum,
    literal,
    print_expr,
)
from staged.code.extents import size_expr
from staged.code.kernel_text import Site
from staged.code.nest.uses import count_uses, loads_before_changes, products_of_sums, stored_once
from staged.code.nest.value import Value
from staged.code.tree import CodeBuilder, Declare, Parameter, Unused
from staged.code.types import INDEX, SHORT_INDEX, CType, Space, pointer, scalar
from staged.code.writer import Names
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Bound,
    Constant,
    Load,
    Local,
    Nest,
    Operand,
    Segment,
    Statement,
    guarded_part,
)
from staged.ir.schedule import Schedule
from staged.ir.sizes import Extent, at_bounds, bounds_of, surely
from staged.ir.types import DType, f32, f64

_INLINE_WIDTH = 60
"""Expressions longer than this get a name."""
_STORED_WIDTH = 100
"""The same for an expression that is all of what a statement stores, or adds to a total."""


class _OfOneLength(Words):
    """Names of one length. Kernels that differ only in names, numbers and indices then name the same expressions."""

    def variable(self, variable: Variable) -> str:
        return "i" if variable.type in (INDEX, SHORT_INDEX) else "of_a_value"


_OF_ONE_LENGTH = _OfOneLength()
_INDEX = re.compile(r"\(*\b(?:i|\d[\w.]*)\b\)*(?: [-+*/%] \(*(?:i|\d[\w.]*)\b\)*)*")
"""A number, or what an index is computed of."""
ZERO = Literal("0")
Range = tuple[Expr, Expr]
Base = tuple[ArrayRef, frozenset[tuple[Axis | Local, Extent]], Extent]


class Lowering:
    """One nest under way."""

    def __init__(self, nest: Nest, schedule: Schedule, site: Site) -> None:
        self.nest = nest
        self.schedule = schedule
        self.site = site
        self.code = CodeBuilder()
        self.names = Names()
        self.snippets: set[str] = set()
        self.statements: dict[type[Statement], Callable[[Any], None]] = {}
        """The lowering function for each type of statement."""
        self.index_type = INDEX
        """The type of iteration counters and element numbers."""
        self.arrays: dict[ArrayRef, Expr] = {}
        self.values: dict[Local, Value] = {}
        self.named: dict[Extent, Expr] = {}
        """Sizes that variables hold."""
        self.axes: dict[Axis, Expr] = {}
        """The present index of each open loop."""
        self.ranges: dict[Axis, Range] = {}
        """From where to where loops go that do not go over all of their axis."""
        self.origins: dict[Axis, Expr] = {}
        self.least: dict[Axis, int] = {}
        """The least number of items of a loop whose end the program finds."""
        """The first position on its axis of a loop that counts from 0: the columns of a tile."""
        self.moving: frozenset[Axis] = frozenset()
        """The axes inside of the tile or row whose pointers `bases` has."""
        self.bases: dict[Base, Variable] = {}
        """The places in arrays from which elements are counted inside of the loops that are written out."""
        self.starts: dict[frozenset[tuple[Axis | Local, Extent]], Variable] = {}
        """By the terms of an index: the number of the first element of a tile's row, in arrays with such indices."""
        self.segments: dict[Axis, Segment] = {}
        """The piece of an axis that is being written, where guards say different things of different pieces."""
        self.uses: dict[Local, tuple[int, int]] = {}
        """See `count_uses`."""
        self.products: set[Local] = set()
        """Products that are only added to sums: text of a fused multiply-add."""
        self.sums: dict[Local, Local] = {}
        """By new value of a sum in workspace: the product that is added to it."""
        self.stored: set[Local] = set()
        """Values whose one use is to be stored, or added to a total."""
        self.ends: dict[tuple[Expr, Expr, int], Variable] = {}
        """The ends of whole iterations, by range and number of items, as far as this block knows them."""
        self.totals: set[Local] = set()
        """The results of reductions. Rounded, such a sum keeps its name."""
        self.loop_names: list[str] = []
        self.parameter_names: set[str] = set()
        self.loads_in_place = False
        """True if the load under way may be written where its value is used."""

    def need(self, *names: str) -> None:
        self.snippets.update(names)

    def body(self, body: tuple[Statement, ...]) -> None:
        """The statements of one loop body."""
        self.uses.update(count_uses(body))
        reduced, added = products_of_sums(body, self.uses)
        self.products |= {*reduced, *added.values()}
        self.stored |= stored_once(body, self.uses)
        self.sums |= added
        outer = self.loads_in_place
        early = loads_before_changes(body, self.uses)
        for s in body:
            self.loads_in_place = isinstance(s, Load) and s.target in early
            self.statements[type(s)](s)
        self.loads_in_place = outer

    # ---- names and values ----

    def variable(self, hint: str, type: CType) -> Variable:
        """A variable with a name of its own in the scope that is open."""
        return Variable(self.names.fresh(hint), type)

    def element(self, hint: str, type: CType) -> Variable:
        """A variable for an element: `x_j` where `x` is the array and `j` the loop, `new_x` outside of loops."""
        if self.names.identifier(hint) in self.parameter_names:
            hint = f"{hint}_{self.loop_names[-1]}" if self.loop_names else f"new_{hint}"
        return Variable(self.names.fresh(hint), type)

    def constant(self, hint: str, type: CType, value: Expr) -> Variable:
        """Declare a constant."""
        variable = self.variable(hint, type)
        self.code.add(Declare(variable, value))
        return variable

    def bind(
        self, target: Local, value: Value, type: Callable[[DType], CType], in_place: bool, named: bool = False
    ) -> None:
        """Give `target` its value: in place where it is used once here, else as a constant, whose type `type` says."""
        if target in self.products:
            self.values[target] = value
            return
        is_stored = target in self.stored
        width = _STORED_WIDTH if is_stored else _INLINE_WIDTH
        is_used_once = self.uses.get(target) == (1, 0)
        if in_place and is_used_once and (is_stored or not named) and self.is_short(value.expr, width):
            self.values[target] = value
            return
        variable = self.element(target.name, type(value.dtype))
        self.code.add(Declare(variable, value.expr))
        self.values[target] = Value(variable, value.dtype, value.lanes)

    def is_short(self, expr: Expr, width: int) -> bool:
        """Return whether an expression has at most this width, whatever its names, numbers and indices are."""
        return len(_INDEX.sub("10", print_expr(expr, 0, _OF_ONE_LENGTH))) <= width

    def bind_scalar(self, target: Local, expr: Expr, in_place: bool = True, named: bool = False) -> None:
        """The same for a number."""
        self.bind(target, Value(expr, target.dtype), scalar, in_place, named)

    def factors(self, sum_: Local) -> tuple[Expr, Expr] | None:
        """The factors of the product that is added to a number of workspace, if `sum_` is its new value."""
        product = self.sums.get(sum_)
        return None if product is None else factors_of(self.values[product])

    def size(self, extent: Extent) -> Expr:
        """A size in terms of the parameters that hold dimensions."""
        return size_expr(extent, lambda dim: self.values[self.nest.counts[dim]].expr, self.named)

    def dimensions(self) -> list[Variable]:
        """The parameters that hold dimensions."""
        held = (self.values[count].expr for count in self.nest.counts.values())
        return [expr for expr in held if isinstance(expr, Variable)]

    def operand(self, operand: Operand) -> Value:
        if isinstance(operand, Constant):
            return Value(self.number(operand), operand.dtype)
        return self.values[operand]

    def number(self, constant: Constant) -> Expr:
        if constant.dtype.is_float and not math.isfinite(constant.value):
            self.need("math")
        return literal(constant.value, constant.dtype)

    def parameters(self) -> list[Parameter]:
        """The parameters for the nest's inputs that have no address and for its outputs, with separate names."""
        found: list[Variable] = []
        for source in self.nest.inputs:
            if source in self.arrays:
                continue
            if isinstance(source, Local):
                found.append(self.variable(source.name, scalar(source.dtype)))
                self.values[source] = Value(found[-1], source.dtype)
            else:
                found.append(self.variable(source.name, global_pointer(source.dtype, is_const=True)))
                self.arrays[source] = found[-1]
        for output in self.nest.outputs:
            name = self.names.fresh(output.name, others=[f"new_{output.name}"])
            found.append(Variable(name, global_pointer(output.dtype)))
            self.arrays[output] = found[-1]
        return [Parameter(variable) for variable in found]

    def unused(self, variable: Expr, note: str = "") -> None:
        """Say that a variable is not used."""
        assert isinstance(variable, Name)
        self.code.add(Unused((variable,), note))

    # ---- blocks ----

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names of their own for what is declared meanwhile."""
        self.names, ends = Names(self.names), self.ends
        self.ends = dict(ends)
        yield
        assert self.names.outer is not None
        self.names, self.ends = self.names.outer, ends

    @contextmanager
    def block(self) -> Iterator[None]:
        """Braces, with names of their own inside."""
        with self.scope(), self.code.block():
            yield

    @contextmanager
    def branch(self, condition: Expr) -> Iterator[None]:
        """Inside, code is executed if the condition holds, with its own names."""
        with self.scope(), self.code.branch(condition):
            yield

    @contextmanager
    def loop(
        self, index: Variable, start: Expr, stop: Expr, step: Expr | None = None, unroll: int = 0
    ) -> Iterator[None]:
        """A loop, with names of its own inside."""
        with self.scope(), self.code.loop(index, start, stop, step, unroll):
            yield

    # ---- loops ----

    def range_of(self, axis: Axis) -> Range:
        """The first iteration of a loop over an axis and the end of its iterations."""
        return self.ranges[axis] if axis in self.ranges else (ZERO, self.iterations(axis))

    def iterations(self, axis: Axis) -> Expr:
        """The number of iterations of a loop over all of an axis."""
        return self.size(axis.size)

    def scoped(self, axis: Axis) -> Variable:
        """The index of a loop that is opened."""
        index = self.variable("s" if axis in self.origins else axis.word or axis.name, self.index_type)
        self.axes[axis] = self.on_axis(axis, index)
        self.loop_names.append(index.text)
        return index

    def on_axis(self, axis: Axis, index: Expr) -> Expr:
        """The position of an iteration on its axis."""
        return Infix("+", self.origins[axis], index) if axis in self.origins else index

    def leave(self, index: Variable) -> None:
        """The loop that `scoped` opened is over: the next one may have its name."""
        self.loop_names.pop()
        self.names.used.discard(index.text)

    # ---- indices ----

    def index(self, index: Affine) -> Expr:
        """An index in terms of the loops that are open."""
        terms: list[Expr] = []
        start = self.starts.get(frozenset(index.terms))
        if start is not None:
            columns = (self.axes[name] for name, _ in index.terms if isinstance(name, Axis) and name in self.origins)
            terms += [start, *(column.right for column in columns if isinstance(column, Infix))]
        for name, stride in sorted(index.terms if start is None else (), key=lambda term: -abs(at_bounds(term[1]))):
            part = self.axes[name] if isinstance(name, Axis) else self.values[name].expr
            match part:
                case Literal(text):
                    if text != "0":
                        terms.append(self.size(int(text) * stride))
                case Infix("+", left, right) if stride == 1:
                    terms += [left, right]
                case _ if stride != 0:
                    terms.append(Infix("*", part, self.size(stride)) if stride != 1 else part)
        if index.offset != 0 or not terms:
            terms.append(self.size(index.offset))
        return infix_sum(terms)

    def place(self, array: ArrayRef, index: Affine) -> tuple[Expr, Expr]:
        """A pointer into an array, and the index of an element from there."""
        fixed, rest = self.parts(index)
        base = self.bases.get(base_of(array, fixed))
        return (self.arrays[array], self.index(index)) if base is None else (base, self.index(rest))

    def parts(self, index: Affine) -> tuple[Affine, Affine]:
        """The part of an index that does not change inside of a tile or row, and the other one."""
        rest = tuple(term for term in index.terms if isinstance(term[0], Axis) and term[0] in self.moving)
        return Affine(tuple(term for term in index.terms if term not in rest), index.offset), Affine(rest)

    def open_guards(self, guards: Sequence[Bound]) -> list[Bound] | None:
        """The guards that the piece of a loop that is being written does not decide; None:
        one of them fails in all of it."""
        found: list[Bound] = []
        for guard in guards:
            axis = next((axis for axis in guard.index.axes if axis in self.segments), None)
            if axis is None:
                found.append(guard)
            elif not self.holds(guard, axis):
                return None
        return found

    def holds(self, guard: Bound, axis: Axis) -> bool:
        """Return whether a guard holds in the piece of an axis that is being written."""
        (first, stop), (begin, end) = guarded_part(guard, axis), self.segments[axis]
        return first != stop and (first == begin or surely(lambda: first <= begin < stop and end <= stop))

    def condition(self, bounds: Sequence[Bound]) -> Expr:
        """Return whether all of these indices lie inside of their axes."""
        if len(bounds) == 1 and bounds[0].extent == 1 and {step for _, step in bounds[0].index.terms} == {-1, 1}:
            (one, _), (other, _) = sorted(bounds[0].index.terms, key=lambda term: -at_bounds(term[1]))
            return Infix("==", self.index(Affine.of(one)), self.index(Affine.of(other) + -bounds[0].index.offset))
        parts: list[Expr] = []
        for bound in bounds:
            inside = self.index(bound.index)
            is_local = any(isinstance(name, Local) for name, _ in bound.index.terms)
            if is_local or any(bounds_of(size)[0] < 0 for size in bound.index.sizes):
                parts.append(Infix(">=", inside, ZERO))
            parts.append(Infix("<", inside, self.size(bound.extent)))
        return parts[0] if len(parts) == 1 else Junction("&&", tuple(parts))


def factors_of(value: Value) -> tuple[Expr, Expr] | None:
    """The factors, if a value is a product of floats."""
    product = value.expr
    if isinstance(product, Infix) and product.op == "*" and value.dtype in (f32, f64):
        return product.left, product.right
    return None


def base_of(array: ArrayRef, fixed: Affine) -> Base:
    """The key of a place in an array in `Lowering.bases`."""
    return array, frozenset(fixed.terms), fixed.offset


def global_pointer(dtype: DType, is_const: bool = False) -> CType:
    """The type of an array in the memory of all threads."""
    return pointer(scalar(dtype), Space.GLOBAL, is_const)
