"""Lowering: the block of a `kernel` op becomes a loop nest.

Three forms, chosen by what the kernel reduces and by what is contiguous:

- *rows*: loops over the independent axes around one or more passes over the reduced ones (softmax: maximum; exponentials
  and their sum; quotient). Without reductions there is one pass and no reduced axis.
- *columns*: the reduced axes are outside and the contiguous one is kept: one walk through memory in its order, totals in
  a scratch row.
- *lanes*: as rows, but the vectors run across rows (a reduction over few leading elements).

Values are pulled: each result asks for its operands at the indices it needs, and every statement lands in the outermost
loop in which its indices are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import prod

from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Bound,
    CheckIndex,
    Compute,
    Constant,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    PositionOf,
    Reduction,
    Statement,
    Store,
    Tile,
    collapse,
    forwards,
    identity,
    walk,
)
from staged.ir.nodes import Block, Op, Value
from staged.ir.types import DType, i64
from staged.kernels.axes import Analysis, AxisConflict, Dims, Structure
from staged.kernels.kinds import (
    ALONE,
    EXPENSIVE,
    FREE,
    GATHERS,
    RANDOM,
    REDUCTIONS,
    array_of,
    extents,
    is_scalar,
    shape_of,
)

Indices = tuple[Affine, ...]
Key = tuple[Value, Indices, tuple[Bound, ...], Constant | None]
"""What a scope has evaluated: an element of a value, in which bounds it may be read, and what stands outside of them."""

COLUMN_TILE = 2048
"""Columns whose running totals stay in the first-level cache while all rows pass by."""
SAVED_ROW_BYTES = 256 << 10
"""Rows up to this size keep a dear value between passes; longer ones compute it again."""
SHORT_REDUCTION = 8
"""Reductions of leading axes up to this length keep their totals in registers."""
MANY_QUOTIENTS = 16
"""Divisions by the same number from which on one inverse pays."""


def lower(op: Op) -> Nest:
    """The loop nest of a `kernel` op. Raises AxisConflict if its ops do not share loops (fusion makes no such kernel)."""
    body = op.blocks[0]
    name = op.attrs.get("name", "kernel")
    alone = [inner for inner in body.ops if inner.name in ALONE]
    if alone:
        from staged.kernels.lower_alone import lower_alone

        return lower_alone(name, body)
    return Lowering(name, body).nest()


class Scope:
    """Statements of one loop body under construction."""

    def __init__(self, axes: frozenset[Axis]) -> None:
        self.axes = axes
        self.statements: list[Statement] = []
        self.memo: dict[Key, Operand] = {}
        self.inverses: dict[Local, tuple[Local, Local]] = {}
        """For a divisor: the scale and the inverse that stand for it (see `divide_by_row`)."""


class Lowering:
    """One kernel on its way to a loop nest."""

    def __init__(self, name: str, block: Block) -> None:
        self.name = name
        self.block = block
        self.results = block.end.operands
        self.scopes = [Scope(frozenset())]
        self.inputs: dict[Value, ArrayRef | Local] = {}
        for number, param in enumerate(block.params):
            hint = param.hint or f"input_{number}"
            if is_scalar(param):
                self.inputs[param] = Local(hint, param.tensor.dtype)
            else:
                self.inputs[param] = array_of(hint, param, "input")
        self.outputs = [
            array_of(v.hint or (v.producer.name if v.producer else "out"), v, "output") for v in self.results
        ]
        self.scratch: list[ArrayRef] = []
        self.axes_of: dict[Local, frozenset[Axis]] = {}
        self.saved: dict[Value, tuple[ArrayRef, Affine]] = {}
        self.stages: dict[Value, int] = {}
        self.stage = 0

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
            and all(op.name in COMBINE for op in self.analysis.reduced)
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
            Reduction(Local(op.results[0].hint or op.name, op.results[0].tensor.dtype), op.name)
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
                operand = op.operands[0]
                self.put(Accumulate(reduction, self.eval(operand, self.affine(self.analysis.operand_dims[op]))))
        for store in stores:
            self.put(store)

    def one_pass(self, number: int, inside: list[Axis]) -> None:
        a, s = self.analysis, self.structure
        mains = [op for op in a.reduced if op not in self.final_of and self.stage_of(op.operands[0]) == number]
        reductions = {
            op: Reduction(Local(op.results[0].hint or op.name, op.results[0].tensor.dtype), op.name) for op in mains
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
            total = ArrayRef(f"{op.results[0].hint or op.name}_total", op.results[0].tensor.dtype, stride, "scratch")
            totals[op] = (total, index)
            self.scratch.append(total)
        elements = [
            (v, array)
            for v, array in zip(self.results, self.outputs, strict=True)
            if a.axes(v) == self.structure.domain
        ]
        # Several kept axes become one loop if all arrays allow it, which is known only afterwards: no tiles then.
        with self.nested(rows), self.tiled(tail[0]) if len(tail) == 1 else nullcontext():
            with self.nested(tail):
                for op, (total, index) in totals.items():
                    self.put(Store(total, index, identity(op.name, total.dtype)))
            with self.nested([*inside, *tail]):
                updates: list[Store] = []
                for op, (total, index) in totals.items():
                    value = self.eval(op.operands[0], self.affine(a.operand_dims[op]))
                    before = Local("total", total.dtype)
                    self.put(Load(before, total, index), frozenset(self.scopes[-1].axes))
                    after = Local("total", total.dtype)
                    self.put(Compute(after, COMBINE[op.name], (before, value), {}), frozenset(self.scopes[-1].axes))
                    updates.append(Store(total, index, after))
                updates += [self.store(value, array) for value, array in elements]
                for update in updates:
                    self.put(update)
            with self.nested(tail):
                for op, (total, index) in totals.items():
                    target = Local(op.results[0].hint or op.name, total.dtype)
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
        return order

    def name_axes(self) -> None:
        letters = "ijklmnopqrs"
        fresh: dict[Axis, Axis] = {}
        for number, axis in enumerate(self.order):
            fresh[axis] = Axis(letters[number] if number < len(letters) else f"i{number}", axis.extent, axis.dim)
        for old, new in fresh.items():
            self.analysis.space.parts[old] = (new,)
        self.order = [fresh[axis] for axis in self.order]
        self.structure = Structure(self.analysis)

    def stage_of(self, value: Value) -> int:
        """How many passes must be over before `value` can be computed."""
        if value not in self.stages:
            op = value.producer
            if op is None:
                stage = 0
            else:
                stage = max((self.stage_of(operand) for operand in op.operands), default=0)
                if op.name in REDUCTIONS and op not in self.structure.finals:
                    stage += 1
            self.stages[value] = stage
        return self.stages[value]

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
        """Dear values that a later pass wants again are kept in scratch, a row at a time."""
        a, s = self.analysis, self.structure
        length = prod(axis.extent for axis in inside)
        index, stride = Affine(), 1
        for axis in reversed(inside):
            index, stride = index + Affine.of(axis, stride), stride * axis.extent
        wanted: dict[Value, None] = {}

        def look(value: Value, number: int) -> None:
            op = value.producer
            if op is None or op.name in REDUCTIONS and self.stage_of(value) <= number:
                return
            if op.name not in FREE and not s.inside.isdisjoint(a.axes(value) if value in a.runs else ()):
                if self.stage_of(value) < number and op.name in EXPENSIVE | GATHERS:
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

    # ---- scopes ----

    @contextmanager
    def nested(self, axes: Sequence[Axis], reductions: tuple[Reduction, ...] = ()) -> Iterator[None]:
        """Loops over `axes`, one inside the other."""
        depth = len(self.scopes)
        for axis in axes:
            self.scopes.append(Scope(self.scopes[-1].axes | {axis}))
        yield
        while len(self.scopes) > depth:
            done = self.scopes.pop()
            axis = axes[len(self.scopes) - depth]
            outermost = len(self.scopes) == depth
            self.scopes[-1].statements.append(Loop(axis, tuple(done.statements), reductions if outermost else ()))
        if not axes and reductions:
            # Nothing to walk: a loop of one turn still starts and ends the totals.
            scope = self.scopes[-1]
            own = {id(r) for r in reductions}
            inner = [s for s in scope.statements if isinstance(s, Accumulate) and id(s.reduction) in own]
            for s in inner:
                scope.statements.remove(s)
            scope.statements.append(Loop(Axis("once", 1), tuple(inner), reductions))

    @contextmanager
    def tiled(self, axis: Axis) -> Iterator[None]:
        self.scopes.append(Scope(self.scopes[-1].axes))
        yield
        done = self.scopes.pop()
        self.scopes[-1].statements.append(Tile(axis, COLUMN_TILE, tuple(done.statements)))

    def put(self, statement: Statement, axes: frozenset[Axis] | None = None) -> Scope:
        """Add a statement to the outermost scope that has `axes` (default: the innermost scope)."""
        scope = self.scopes[-1]
        if axes is not None:
            scope = next(s for s in self.scopes if axes <= s.axes)
        scope.statements.append(statement)
        if isinstance(statement, Load | Compute | PositionOf | CheckIndex):
            self.axes_of[statement.target] = axes if axes is not None else scope.axes
        return scope

    def define(self, value: Value, operand: Operand, axes: frozenset[Axis]) -> None:
        """`operand` stands for `value` from here to the end of the innermost scope."""
        if isinstance(operand, Local):
            self.axes_of[operand] = axes
        self.scopes[-1].memo[value, self.canonical(value), (), None] = operand

    # ---- values ----

    def affine(self, dims: Dims) -> Indices:
        """Index expressions of runs of axes."""
        out: list[Affine] = []
        for run in dims:
            index, stride = Affine(), 1
            for axis in reversed(self.analysis.space.leaves(run)):
                index, stride = index + Affine.of(axis, stride), stride * axis.extent
            out.append(sorted_terms(index))
        return tuple(out)

    def canonical(self, value: Value) -> Indices:
        return self.affine(self.analysis.runs[value])

    def store(self, value: Value, array: ArrayRef) -> Store:
        dims = self.canonical(value)
        return Store(array, linear(dims, extents(value)), self.eval(value, dims))

    def operand_axes(self, operands: Sequence[Operand], *indices: Affine) -> frozenset[Axis]:
        axes: set[Axis] = set()
        for operand in operands:
            if isinstance(operand, Local):
                axes |= self.axes_of.get(operand, frozenset())
        for index in indices:
            for name, _ in index.terms:
                axes |= {name} if isinstance(name, Axis) else self.axes_of.get(name, frozenset())
        return frozenset(axes)

    def eval(self, value: Value, at: Indices, guards: tuple[Bound, ...] = (), fill: Constant | None = None) -> Operand:
        """The operand that holds element `at` of `value`."""
        # Two pads of one value may differ in nothing but what they fill in.
        key: Key = (value, at, guards, fill if guards else None)
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        op = value.producer
        hint = value.hint
        if op is None:
            source = self.inputs[value]
            if isinstance(source, Local):
                return self.guarded(source, guards)
            return self.load(key, source, linear(at, extents(value)), guards, fill, hint)
        if op.name in FREE:
            return self.eval_free(op, value, at, guards, fill)
        if guards:
            raise AxisConflict
        if value in self.saved and self.stage_of(value) < self.stage and at == self.canonical(value):
            array, index = self.saved[value]
            return self.load(key, array, index, (), None, hint)
        if op.name in REDUCTIONS:
            raise AxisConflict
        if op.name in GATHERS:
            return self.eval_gather(op, at, key)
        operands = [self.eval(operand, at if operand.tensor.shape else ()) for operand in op.operands]
        if op.name in RANDOM:
            operands.append(self.position(linear(at, extents(value)), i64, "element"))
        if op.name == "divide" and self.divides_rows(operands):
            quotient = self.divide_by_row(operands, hint)
            self.scope_of(quotient).memo[key] = quotient
            return quotient
        target = Local(hint or op.name, value.tensor.dtype)
        scope = self.put(
            Compute(target, op.name, tuple(operands), dict(op.attrs), op.where), self.operand_axes(operands)
        )
        scope.memo[key] = target
        return target

    def scope_of(self, local: Local) -> Scope:
        """The outermost scope in which a local is known."""
        return next(scope for scope in self.scopes if self.axes_of[local] <= scope.axes)

    def divides_rows(self, operands: Sequence[Operand]) -> bool:
        """Whether many numbers are divided by the same one."""
        x, divisor = operands
        if not isinstance(x, Local) or not isinstance(divisor, Local):
            return False
        more = self.axes_of.get(x, frozenset()) - self.axes_of.get(divisor, frozenset())
        return prod(axis.extent for axis in more) >= MANY_QUOTIENTS

    def divide_by_row(self, operands: Sequence[Operand], hint: str) -> Local:
        """x / d as x * s * (1 / (d * s)): one division for all; s, a power of two, keeps the inverse in range."""
        x, divisor = operands
        assert isinstance(x, Local) and isinstance(divisor, Local)
        dtype = x.dtype
        known = next((scope.inverses[divisor] for scope in self.scopes if divisor in scope.inverses), None)
        if known is None:
            scale, scaled, inverse = (Local(name, dtype) for name in ("scale", "multiply", "inverse"))
            axes = self.operand_axes((divisor,))
            scope = self.put(Compute(scale, "division_scale", (divisor,), {}), axes)
            self.put(Compute(scaled, "multiply", (divisor, scale), {}), axes)
            self.put(Compute(inverse, "divide", (Constant(1.0, dtype), scaled), {}), axes)
            known = scope.inverses[divisor] = (scale, inverse)
        scale, inverse = known
        within, quotient = Local("multiply", dtype), Local(hint or "multiply", dtype)
        self.put(Compute(within, "multiply", (x, scale), {}), self.operand_axes((x, scale)))
        self.put(Compute(quotient, "multiply", (within, inverse), {}), self.operand_axes((within, inverse)))
        return quotient

    def load(
        self,
        key: Key,
        array: ArrayRef,
        index: Affine,
        guards: tuple[Bound, ...],
        fill: Constant | None,
        hint: str,
    ) -> Operand:
        target = Local(hint or array.name, array.dtype)
        axes = self.operand_axes((), index, *(g.index for g in guards))
        scope = self.put(Load(target, array, index, guards, fill), axes)
        scope.memo[key] = target
        return target

    def position(self, index: Affine, dtype: DType, hint: str) -> Operand:
        if not index.terms:
            return Constant(index.offset, dtype)
        target = Local(hint, dtype)
        self.put(PositionOf(target, index), self.operand_axes((), index))
        return target

    def eval_free(self, op: Op, value: Value, at: Indices, guards: tuple[Bound, ...], fill: Constant | None) -> Operand:
        name, attrs = op.name, op.attrs
        if name == "constant":
            number = attrs["value"]
            if isinstance(number, tuple):
                raise AxisConflict
            return self.guarded(Constant(number, value.tensor.dtype), guards)
        if name == "iota":
            return self.guarded(self.position(at[attrs["axis"]], value.tensor.dtype, "index"), guards)
        source = op.operands[0]
        shape = extents(source)
        if name == "stop_gradient":
            return self.eval(source, at, guards, fill)
        if name == "broadcast_to":
            inner = tuple(Affine() if n == 1 else at[a] for n, a in zip(shape, attrs["axes"], strict=True))
            return self.eval(source, inner, guards, fill)
        if name == "permute":
            moved = [Affine()] * len(shape)
            for position, axis in enumerate(attrs["axes"]):
                moved[axis] = at[position]
            return self.eval(source, tuple(moved), guards, fill)
        if name == "reshape":
            return self.eval(source, reshaped(at, extents(value), shape), guards, fill)
        if name == "pad":
            inner = tuple(index + -low for index, low in zip(at, attrs["low"], strict=True))
            bounds = tuple(
                Bound(index, n)
                for index, n, low, high in zip(inner, shape, attrs["low"], attrs["high"], strict=True)
                if low or high
            )
            return self.eval(source, inner, (*guards, *bounds), fill or Constant(attrs["value"], value.tensor.dtype))
        if name == "slice":
            steps = attrs.get("step", (1,) * len(shape))
            inner = tuple(index * step + start for index, step, start in zip(at, steps, attrs["start"], strict=True))
            return self.eval(source, inner, guards, fill)
        assert name == "dynamic_slice", name
        starts = [self.eval(start, ()) for start in op.operands[1:]]
        inner = tuple(
            index + (Affine.of(start) if isinstance(start, Local) else Affine((), int(start.value)))
            for index, start in zip(at, starts, strict=True)
        )
        return self.eval(source, inner, guards, fill)

    def guarded(self, operand: Operand, guards: tuple[Bound, ...]) -> Operand:
        if guards:
            raise AxisConflict  # padding of a number: fusion makes an array of it first
        return operand

    def eval_gather(self, op: Op, at: Indices, key: Key) -> Operand:
        table, indices = op.operands
        axis = op.attrs["axis"]
        rank = len(extents(indices))
        along = at if op.name == "take_along" else at[axis : axis + rank]
        index = self.eval(indices, along)
        checked = Local("index", i64)
        extent = shape_of(table)[axis]
        checking = self.put(CheckIndex(checked, index, extent, op.where), self.operand_axes((index,)))
        after = at[axis + 1 :] if op.name == "take_along" else at[axis + rank :]
        result = self.eval(table, (*at[:axis], Affine.of(checked), *after))
        # Known where the index is checked and the element read, whichever is further in; a number is known everywhere.
        reading = self.scope_of(result) if isinstance(result, Local) and result in self.axes_of else checking
        (reading if checking.axes <= reading.axes else checking).memo[key] = result
        return result


def linear(at: Indices, shape: Sequence[int]) -> Affine:
    """Row-major element number."""
    index, stride = Affine(), 1
    for part, extent in zip(reversed(at), reversed(shape), strict=True):
        index, stride = index + part * stride, stride * extent
    return sorted_terms(index)


def sorted_terms(index: Affine) -> Affine:
    """The same index with its largest stride first, so that equal indices compare and print alike."""
    return Affine(tuple(sorted(index.terms, key=lambda t: (-abs(t[1]), t[0].name))), index.offset)


def reshaped(at: Indices, before: Sequence[int], after: Sequence[int]) -> Indices:
    """Indices into a reshaped array: each axis goes to the dimension that its stride falls into."""
    if 0 in after:
        return (Affine(),) * len(after)  # never walked
    if [n for n in before if n != 1] == [n for n in after if n != 1]:
        kept = iter([index for index, n in zip(at, before, strict=True) if n != 1])
        return tuple(next(kept) if n != 1 else Affine() for n in after)
    whole = linear(at, before)
    out: list[Affine] = []
    stride = 1
    terms = list(whole.terms)
    offset = whole.offset
    for extent in reversed(after):
        mine = [(n, s) for n, s in terms if stride <= s < stride * extent]
        for name, step in mine:
            if not isinstance(name, Axis) or step % stride or step * (name.extent - 1) >= stride * extent:
                raise AxisConflict
        terms = [t for t in terms if t not in mine]
        offset, here = divmod(offset, extent)
        out.append(sorted_terms(Affine(tuple((n, s // stride) for n, s in mine), here)))
        stride *= extent
    if terms:
        raise AxisConflict
    return tuple(reversed(out))


COMBINE = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}


def find_in_place(
    body: Sequence[Statement], outputs: Sequence[ArrayRef], inputs: Sequence[ArrayRef | Local]
) -> Iterator[tuple[int, int]]:
    """(output, input) pairs where every element is read, at the same index, before it is written."""
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


def same_index(a: Affine, b: Affine) -> bool:
    return a.offset == b.offset and dict(a.terms) == dict(b.terms)
