"""The sums of a register tile as a call of a function that all kernels of a program share.

    for r < 13: for s < 32: total[32*r + s] = 0
    for k < 256:
      for r < 13: for s < 32: total[32*r + s] += a[256*r + k] * b[32*k + s]
    for r < 13: for s < 32: c[64*r + s] = total[32*r + s]

    ->  st_product_f32_13x2(a, 256, 1, b, 32, 256, 256, c, 64, false)

Exact: the function accumulates the terms in the same order and the same chains.

Tested by `tests/kernels/test_tile_calls.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import shared_function
from staged.backends.cpu.contraction.vectors import Vector
from staged.backends.cpu.nest.row_tiles import with_row_tiles, without
from staged.code.support.library import Snippet
from staged.code.support.vectors import vector_snippet
from staged.ir.declaration import prims
from staged.ir.loops import (
    Address,
    Affine,
    ArrayRef,
    Axis,
    CallSupport,
    Compute,
    Constant,
    Guarded,
    Load,
    Loop,
    Nest,
    Operand,
    Statement,
    Store,
    Tile,
    walk,
)
from staged.ir.machine import Machine
from staged.ir.named_loops import with_body
from staged.ir.schedule import Schedule, WriteOut
from staged.ir.sizes import Extent, Size, at_bounds
from staged.ir.types import bool_

LEAST_TERMS = 64
"""Terms of sums that go to an epilogue through memory: the way of shorter ones is a large part of the work."""
Body = tuple[Statement, ...]
Argument = ArrayRef | Address | Operand | Size | None


@dataclass(frozen=True)
class Element:
    """The statements of a pair of loops over the rows and columns of a tile."""

    row: Axis
    column: Axis
    body: Body

    @staticmethod
    def of(s: Statement) -> Element | None:
        """The pair of loops that a statement is."""
        match s:
            case Loop(row, (Loop(column, body),)) if not any(isinstance(inner, Loop | Tile) for inner in body):
                return Element(row, column, body)
        return None

    def start(self, index: Affine) -> Affine:
        """The index of the first element of the tile."""
        return without(index, self.row, self.column)


@dataclass(frozen=True)
class Sums:
    """The sums of a tile: products of elements of two operands, over the loop `axis`, in chains."""

    tile: Element
    axis: Axis
    left: Load
    right: Load
    chain: int

    def function(self, vector: Vector, c: Address, c_row: Extent) -> tuple[ProductTile, tuple[Argument, ...]]:
        """The function that computes the tile at `c`, and its arguments."""
        tile, axis = self.tile, self.axis
        rows, vectors = tile.row.extent, tile.column.extent // vector.lanes
        a, b = (Address(s.array, without(tile.start(s.index), axis)) for s in (self.left, self.right))
        strides = integers(*(self.left.index.stride(each) for each in (tile.row, axis)))
        steps = integers(self.right.index.stride(axis), axis.extent, self.chain)
        no = Constant(False, bool_)
        return ProductTile(vector, rows, vectors), (a, *strides, b, *steps, c, *integers(c_row), no)


@dataclass
class TileCalls:
    """Takes the sums of tiles out of one nest."""

    schedule: Schedule
    machine: Machine

    def __post_init__(self) -> None:
        self.support: dict[Snippet, None] = {}
        self.axes: set[Axis] = set()
        """The axes of tiles that are calls."""

    def body(self, body: Body) -> Body:
        """The statements with calls in place of sums."""
        out: list[Statement] = []
        rest = body
        while rest:
            called = self.called(rest)
            if called is None:
                out.append(self.inside(rest[0]))
                rest = rest[1:]
            else:
                out.append(called[0])
                rest = called[1]
        return tuple(out)

    def inside(self, s: Statement) -> Statement:
        """A statement with calls inside; the same object if nothing changes, since schedules refer to loops."""
        if not isinstance(s, Loop | Tile | Guarded) or (body := self.body(s.body)) == s.body:
            return s
        return with_body(s, lambda _: body)

    def called(self, body: Body) -> tuple[CallSupport, Body] | None:
        """The call in place of the sums that a body begins with, and the statements after these; None without sums."""
        if len(body) < 2 or (total := zeroed(body[0])) is None or (sums := sums_of(body[1], total)) is None:
            return None
        tile, dtype = sums.tile, total.dtype
        vector = Vector(dtype, self.machine.lanes(dtype.size))
        if not dtype.is_float or self.schedule.lanes != vector.lanes or tile.column.extent % vector.lanes:
            return None
        c_row: Extent = tile.column.extent
        out, c, rest = tile, Address(total, Affine()), body[2:]
        if rest and (copied := copied_to(rest[0], total)) is not None:
            out, store = copied
            c, c_row, rest = Address(store.array, out.start(store.index)), store.index.stride(out.row), rest[1:]
        elif sums.axis.extent < LEAST_TERMS:
            return None
        function, arguments = sums.function(vector, c, c_row)
        self.axes |= {tile.row, tile.column, out.row, out.column}
        self.support[function.snippet] = None
        is_shared = function.is_shared(sums.axis.extent)
        if is_shared:
            self.support[shared_function(function)] = None
        name = function.name if is_shared else function.inline
        arguments = arguments if is_shared else (*integers(*function.sizes), *arguments)
        return CallSupport(name, vector_snippet(dtype.name), arguments), rest


def with_tile_calls(nest: Nest, schedule: Schedule, machine: Machine) -> tuple[Nest, Schedule, tuple[Snippet, ...]]:
    """The nest with calls in place of the sums of its tiles, its schedule, and the functions."""
    calls = TileCalls(schedule, machine)
    body = calls.body(nest.body)
    if not calls.support:
        return nest, schedule, ()
    directives = tuple(
        WriteOut(tuple(axis for axis in d.axes if axis not in calls.axes)) if isinstance(d, WriteOut) else d
        for d in schedule.directives
    )
    nest, schedule = with_row_tiles(replace(nest, body=body), replace(schedule, directives=directives))
    used = {array for s in walk(nest.body) for array in arrays_of(s)}
    scratch = tuple(array for array in nest.scratch if array in used)
    return replace(nest, scratch=scratch), schedule, tuple(calls.support)


def arrays_of(s: Statement) -> Sequence[ArrayRef]:
    """The arrays that a statement itself reads or writes."""
    if isinstance(s, CallSupport):
        return s.arrays
    return (s.array,) if isinstance(s, Load | Store) else ()


def integers(*numbers: Extent) -> tuple[Constant | Size, ...]:
    """Arguments."""
    return tuple(map(CallSupport.size, numbers))


def zeroed(s: Statement) -> ArrayRef | None:
    """The array in registers that a pair of loops fills with zeros."""
    element = Element.of(s)
    match element and element.body:
        case (Store(array, _, Constant(0)),) if array.role == "registers":
            return array
    return None


def copied_to(s: Statement, total: ArrayRef) -> tuple[Element, Store] | None:
    """A pair of loops that copies totals, and its store."""
    element = Element.of(s)
    match element and element.body:
        case (Load(value, array), Store() as store) if array is total and store.value is value:
            assert element is not None
            return (element, store) if store.index.stride(element.column) == 1 else None
    return None


def sums_of(s: Statement, total: ArrayRef) -> Sums | None:
    """The sums that a loop adds to totals."""
    match s:
        case Tile(axis, size, (zeros, Loop(inner) as loop, joined)) if inner is axis:
            part = zeroed(zeros)
            if part is None or not joins(joined, part, total):
                return None
            found = sums_of(loop, part)
            return None if found is None else replace(found, chain=size)
        case Loop(axis, (inner,)) if (tile := Element.of(inner)) is not None:
            operands = operands_of(tile, total)
            return None if operands is None else Sums(tile, axis, *operands, axis.extent)
    return None


def operands_of(tile: Element, total: ArrayRef) -> tuple[Load, Load] | None:
    """The loads of the left and of the right operand of the products that are added to totals."""
    loads: dict[Operand, Load] = {s.target: s for s in tile.body if isinstance(s, Load)}
    match [s for s in tile.body if not isinstance(s, Load)]:
        case [
            Compute(term, prims.MULTIPLY, (one, other)),
            Compute(after, prims.ADD, (before, added)),
            Store(array, index, stored),
        ] if added is term and stored is after and array is total and {one, other, before} == {*loads}:
            pair = sorted((loads[one], loads[other]), key=lambda load: at_bounds(load.index.stride(tile.column)))
            left, right = pair
            strides = [load.index.stride(axis) for load in pair for axis in (tile.row, tile.column)]
            plain = not any(load.guards or load.array.dtype is not total.dtype for load in pair)
            if plain and strides[1:] == [0, 0, 1] and loads[before].array is total and loads[before].index == index:
                return left, right
    return None


def joins(s: Statement, part: ArrayRef, total: ArrayRef) -> bool:
    """Return whether a pair of loops adds partial totals to totals."""
    element = Element.of(s)
    match element and element.body:
        case (Load(x, one), Load(y, other), Compute(after, prims.ADD, given), Store(array, _, stored)):
            return {x, y} == {*given} and stored is after and array is total and {one, other} == {part, total}
    return False
