"""Lowering: the block of a `kernel` op becomes a loop nest.

Three forms, chosen by what the kernel reduces and by what is contiguous:

- *rows*: loops over the independent axes around one or more passes over the reduced ones (softmax: maximum;
  exponentials and their sum; quotient). Without reductions there is one pass and no reduced axis.
- *columns*: the reduced axes are outside and the contiguous one is kept: one walk through memory in its order, totals
  in a scratch row.
- *lanes*: as rows, but the vectors run across rows (a reduction over few leading elements).

What stands in the loops is `evaluation.py`'s: results ask for their operands at the indices they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from math import prod

from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Compute,
    Load,
    Local,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
    Tile,
    collapse,
    forwards,
    identity,
    walk,
)
from staged.ir.nodes import Op, Value
from staged.kernels.axes import Analysis, Dims, Structure
from staged.kernels.evaluation import Evaluation
from staged.kernels.indices import same_index
from staged.kernels.kinds import extents, is_inlined
from staged.kernels.lower_alone import has_own_kernel, lower_alone
from staged.kernels.parts import axis_name
from staged.kernels.scans import COLUMN_TILE

SAVED_ROW_BYTES = 256 << 10
"""Rows up to this size keep an expensive value between passes; longer ones recompute it."""
SHORT_REDUCTION = 8
"""Reductions of leading axes up to this length keep their totals in registers."""


def lower(op: Op) -> Nest:
    """The loop nest of a `kernel` op. Raises AxisConflict if its ops do not share loops (fusion makes no such
    kernel)."""
    body = op.blocks[0]
    name = op.attrs.get("name", "kernel")
    if any(map(has_own_kernel, body.ops)):
        return lower_alone(name, body)
    return Lowering(name, body).nest()


class Lowering(Evaluation):
    """One kernel on its way to a loop nest."""

    # ---- the whole nest ----

    def nest(self) -> Nest:
        self.analysis = Analysis(self.results, lambda value: value.producer is None)
        self.structure = Structure(self.analysis)
        self.order = self.axis_order()
        self.name_axes()
        if 0 in (axis.extent for axis in self.order) and not self.structure.inside:
            return self.finish([], 1)
        s = self.structure
        inside = [axis for axis in self.order if axis in s.inside]
        rows = [axis for axis in self.order if axis in s.rows]
        contiguous = self.order[-1] if self.order else None
        if (
            inside
            and contiguous in s.rows
            and not s.finals
            and self.passes() == 1
            and not any(op.declared.is_position for op in self.analysis.reduced)
        ):
            tail = [axis for axis in rows if self.order.index(axis) > self.order.index(inside[-1])]
            kept = prod(axis.extent for axis in tail)
            if prod(a.extent for a in inside) > SHORT_REDUCTION and kept <= 1 << 16:
                return self.columns(rows[: len(rows) - len(tail)], inside, tail)
        return self.rows(rows, inside, contiguous)

    def finish(self, body: Sequence[Statement], items: int) -> Nest:
        inputs = tuple(self.inputs[param] for param in self.block.params)
        in_place = tuple(find_in_place(body, self.outputs, inputs))
        statements = collapse(forwards(tuple(body)))
        first = next((s for s in statements if isinstance(s, Loop | Tile)), None)
        if items != 1:
            assert first is not None
            items = first.axis.extent
        return Nest(self.name, inputs, tuple(self.outputs), tuple(self.scratch), statements, items, in_place)

    def rows(self, rows: list[Axis], inside: list[Axis], contiguous: Axis | None) -> Nest:
        finals = [
            Reduction(Local(self.words[op.results[0]], op.results[0].tensor.dtype), op.declared)
            for op in self.structure.finals
        ]
        self.final_of = dict(zip(self.structure.finals, finals, strict=True))
        lanes = bool(inside) and contiguous in self.structure.rows
        if not lanes:
            self.choose_saved(inside)
        with self.nested(rows, tuple(finals)):
            self.row_body(inside)
        for op, reduction in self.final_of.items():
            self.define(op.results[0], reduction.target, frozenset())
        for value, array in zip(self.results, self.outputs, strict=True):
            if self.is_late(value):
                self.put(Store(array, Affine(), self.eval(value, (Affine(),) * len(extents(value)))))
        return self.finish(self.scopes[0].statements, 1 if finals or not rows else 2)

    def row_body(self, inside: list[Axis]) -> None:
        """All passes over one row, then what the row leaves."""
        passes = self.passes()
        for number in range(passes):
            self.stage = number
            self.one_pass(number, inside)
        self.stage = passes
        row = self.structure.rows
        stores: list[Store] = []
        if inside:
            for value, array in zip(self.results, self.outputs, strict=True):
                if self.analysis.axes(value) == row and not self.is_late(value):
                    stores.append(self.store(value, array))
        for op, reduction in self.final_of.items():
            if self.analysis.reduced_axes(op) == row:
                self.accumulate(op, reduction)
        for store in stores:
            self.put(store)

    def one_pass(self, number: int, inside: list[Axis]) -> None:
        a, s = self.analysis, self.structure
        mains = [op for op in a.reduced if op not in self.final_of and self.stage_of(op.operands[0]) == number]
        reductions = {
            op: Reduction(Local(self.words[op.results[0]], op.results[0].tensor.dtype), op.declared) for op in mains
        }
        stored = [
            (value, array)
            for value, array in zip(self.results, self.outputs, strict=True)
            if (
                a.axes(value) == s.domain
                and self.stage_of(value) == number
                and not (inside and a.axes(value) == s.rows)
            )
            and not self.is_late(value)
        ]
        last = self.passes() - 1
        with self.nested(inside, tuple(reductions.values())):
            for op, reduction in reductions.items():
                self.accumulate(op, reduction)
            for op, reduction in self.final_of.items():
                if a.reduced_axes(op) != s.rows and number == last:
                    self.accumulate(op, reduction)
            for value, (array, index) in self.saved.items():
                if self.stage_of(value) == number:
                    self.put(Store(array, index, self.eval(value, self.canonical(value))))
            stores = [self.store(value, array) for value, array in stored]
            for store in stores:
                self.put(store)
        for op, reduction in reductions.items():
            self.define(op.results[0], reduction.target, s.rows)

    def accumulate(self, op: Op, reduction: Reduction) -> None:
        dims = self.affine(self.analysis.operand_dims[op])
        value = self.eval(op.operands[0], dims)
        position = dims[op.attrs["axis"]] if "axis" in op.attrs else None
        self.put(Accumulate(reduction, value, position))

    def columns(self, rows: list[Axis], inside: list[Axis], tail: list[Axis]) -> Nest:
        """One walk in memory order; the totals of all kept columns wait in scratch."""
        a = self.analysis
        self.final_of = {}
        totals: dict[Op, tuple[ArrayRef, Affine]] = {}
        index, stride = Affine(), 1
        for axis in reversed(tail):
            index, stride = index + Affine.of(axis, stride), stride * axis.extent
        for op in a.reduced:
            total = ArrayRef(f"{self.words[op.results[0]]}_total", op.results[0].tensor.dtype, stride, "scratch")
            totals[op] = (total, index)
            self.scratch.append(total)
        elements = [
            (v, array)
            for v, array in zip(self.results, self.outputs, strict=True)
            if a.axes(v) == self.structure.domain
        ]
        # Several kept axes become one loop if all arrays allow it, which is known only afterwards: no tiles then.
        with self.nested(rows), self.tiled(tail[0], COLUMN_TILE) if len(tail) == 1 else nullcontext():
            with self.nested(tail):
                for op, (total, index) in totals.items():
                    self.put(Store(total, index, identity(op.declared, total.dtype)))
            with self.nested([*inside, *tail]):
                updates: list[Store] = []
                for op, (total, index) in totals.items():
                    value = self.eval(op.operands[0], self.affine(a.operand_dims[op]))
                    before = Local(f"old_{total.name}", total.dtype)
                    self.put(Load(before, total, index), frozenset(self.scopes[-1].axes))
                    after, combine = Local(f"new_{total.name}", total.dtype), op.declared.combine
                    assert combine is not None
                    self.put(Compute(after, combine, (before, value), {}), frozenset(self.scopes[-1].axes))
                    updates.append(Store(total, index, after))
                updates += [self.store(value, array) for value, array in elements]
                for update in updates:
                    self.put(update)
            with self.nested(tail):
                for op, (total, index) in totals.items():
                    target = Local(self.words[op.results[0]], total.dtype)
                    self.put(Load(target, total, index))
                    self.define(op.results[0], target, self.structure.rows)
                stores = [
                    self.store(value, array)
                    for value, array in zip(self.results, self.outputs, strict=True)
                    if a.axes(value) != self.structure.domain
                ]
                for store in stores:
                    self.put(store)
        return self.finish(self.scopes[0].statements, 2 if rows or len(tail) == 1 else 1)

    # ---- order, passes, what is kept between them ----

    def axis_order(self) -> list[Axis]:
        """Loops from the outside in: the innermost is the one along which most arrays are contiguous."""
        a, s = self.analysis, self.structure
        stored: list[Dims] = [a.runs[v] for v in self.results if a.axes(v) == s.domain]
        walks = [dims for _, dims in a.walks]
        votes: dict[Axis, int] = {}
        for dims in (*stored, *walks):
            leaves = a.leaves(dims)
            if leaves and leaves[-1] in s.domain:
                size = prod(axis.extent for axis in leaves)
                votes[leaves[-1]] = votes.get(leaves[-1], 0) + size
        candidates = [*stored, *walks, *(a.operand_dims[op] for op in a.reduced), *a.runs.values()]
        whole = [dims for dims in candidates if set(a.leaves(dims)) == s.domain]
        best = max(
            whole, key=lambda dims: votes.get(a.leaves(dims)[-1], 0) if dims and a.leaves(dims) else 0, default=None
        )
        order: list[Axis] = []
        for dims in ([best] if best is not None else []) + candidates:
            order += [axis for axis in a.leaves(dims) if axis not in order and axis in s.domain]
        return s.with_rising_places(order)

    def name_axes(self) -> None:
        fresh: dict[Axis, Axis] = {}
        for number, axis in enumerate(self.order):
            fresh[axis] = Axis(axis_name(number), axis.size)
        for old, new in fresh.items():
            self.analysis.space.parts[old] = (new,)
        self.order = [fresh[axis] for axis in self.order]
        self.structure = Structure(self.analysis)

    def passes(self) -> int:
        a, s = self.analysis, self.structure
        needed = [
            self.stage_of(op.operands[0]) for op in a.reduced if op not in s.finals or a.reduced_axes(op) != s.rows
        ]
        needed += [
            self.stage_of(v) for v in self.results if a.axes(v) == s.domain and (s.rows != s.domain or not s.inside)
        ]
        return max(needed, default=0) + 1

    def choose_saved(self, inside: list[Axis]) -> None:
        """Keep expensive values that a later pass uses in scratch, a row at a time."""
        a, s = self.analysis, self.structure
        length = prod(axis.extent for axis in inside)
        index, stride = Affine(), 1
        for axis in reversed(inside):
            index, stride = index + Affine.of(axis, stride), stride * axis.extent
        wanted: dict[Value, None] = {}

        def look(value: Value, number: int) -> None:
            op = value.producer
            if op is None or op.declared.kind == "reduction" and self.stage_of(value) <= number:
                return
            if not is_inlined(op) and not s.inside.isdisjoint(a.axes(value) if value in a.runs else ()):
                if self.stage_of(value) < number and (op.declared.expensive or op.declared.elements == "gathered"):
                    wanted[value] = None
                    return
            for operand in op.operands:
                look(operand, number)

        for number in range(1, self.passes()):
            for op in a.reduced:
                if self.stage_of(op.operands[0]) == number:
                    look(op.operands[0], number)
            for value in self.results:
                if self.stage_of(value) == number and a.axes(value) == s.domain:
                    look(value, number)
        for value in wanted:
            if a.axes(value) >= s.inside and length * value.tensor.dtype.size <= SAVED_ROW_BYTES:
                array = ArrayRef(value.hint or "row", value.tensor.dtype, length, "scratch")
                self.scratch.append(array)
                self.saved[value] = (array, index)

    def is_late(self, value: Value) -> bool:
        return value in self.late

    @property
    def late(self) -> set[Value]:
        if not hasattr(self, "_late"):
            self._late = self.structure.depends_on_finals() if self.structure.finals else set()
        return self._late


def find_in_place(
    body: Sequence[Statement], outputs: Sequence[ArrayRef], inputs: Sequence[ArrayRef | Local]
) -> Iterator[tuple[int, int]]:
    """(output, input) pairs in which every element is read, at the same index, before it is written.

    Exact: one store; each load of the operand before it, unguarded, of the same element, dtype and size. Loops without
    iterations store nothing.
    """
    accesses = [s for s in walk(tuple(body)) if isinstance(s, Load | Store)]
    for o, output in enumerate(outputs):
        stores = [n for n, s in enumerate(accesses) if isinstance(s, Store) and s.array is output]
        if len(stores) != 1:
            continue
        store = accesses[stores[0]]
        for i, source in enumerate(inputs):
            if not isinstance(source, ArrayRef) or source.size != output.size or source.dtype != output.dtype:
                continue
            loads = [(n, s) for n, s in enumerate(accesses) if isinstance(s, Load) and s.array is source]
            if all(n < stores[0] and not s.guards and same_index(s.index, store.index) for n, s in loads):
                yield o, i
