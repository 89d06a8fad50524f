"""Elements of values as statements: a value is evaluated on demand, at the indices that are used.

Each value evaluates its operands first, and every statement is placed in the outermost loop in which its indices are
known. A computed element is remembered to the end of its loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from staged.ir.declaration import prims
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
    Operand,
    PositionOf,
    Reduction,
    Statement,
    Store,
    Tile,
)
from staged.ir.names import is_users_name, name_of, short
from staged.ir.nodes import Block, Op, Value
from staged.ir.numbers import as_held, same_number
from staged.ir.sizes import Extent, bounds_of
from staged.ir.types import DType, i64
from staged.kernels.axes import Analysis, AxisConflict, Dims, Structure
from staged.kernels.indices import Indices, linear, reshaped, sorted_terms
from staged.kernels.kinds import array_of, is_inlined, is_scalar, shape_of
from staged.kernels.words import words_in

Key = tuple[Value, Indices, tuple[Bound, ...], str]
"""An evaluated element: value, indices, bounds of the read, and the fill outside (as text: 0.0 and -0.0 differ)."""


class Scope:
    """Statements of one loop body under construction."""

    def __init__(self, axes: frozenset[Axis]) -> None:
        self.axes = axes
        self.statements: list[Statement] = []
        self.memo: dict[Key, Operand] = {}


class Evaluation:
    """The loops that are open, and what is known in each."""

    analysis: Analysis
    structure: Structure

    def __init__(self, name: str, block: Block) -> None:
        self.name = name
        self.block = block
        self.results = block.end.operands
        self.words = words_in(block)
        self.scopes = [Scope(frozenset())]
        self.inputs: dict[Value, ArrayRef | Local] = {}
        for param in block.params:
            hint = param.hint or "number"
            if is_scalar(param):
                self.inputs[param] = Local(hint, param.tensor.dtype)
            else:
                self.inputs[param] = array_of(hint, param, "input")
        self.outputs = [array_of(v.hint or self.words.get(v, "out"), v, "output") for v in self.results]
        self.scratch: list[ArrayRef] = []
        self.axes_of: dict[Local, frozenset[Axis]] = {}
        self.saved: dict[Value, tuple[ArrayRef, Affine]] = {}
        self.stages: dict[Value, int] = {}
        self.stage = 0

    def stage_of(self, value: Value) -> int:
        """The number of passes that must end before `value` can be computed."""
        if value not in self.stages:
            op = value.producer
            if op is None:
                stage = 0
            else:
                stage = max((self.stage_of(operand) for operand in op.operands), default=0)
                if op.declared.kind == "reduction" and op not in self.structure.finals:
                    stage += 1
            self.stages[value] = stage
        return self.stages[value]

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
            # Nothing to walk: a loop of one iteration still starts and ends the totals.
            scope = self.scopes[-1]
            own = {id(r) for r in reductions}
            inner = [s for s in scope.statements if isinstance(s, Accumulate) and id(s.reduction) in own]
            for s in inner:
                scope.statements.remove(s)
            scope.statements.append(Loop(Axis("once", 1), tuple(inner), reductions))

    @contextmanager
    def tiled(self, axis: Axis, size: int) -> Iterator[None]:
        """A piece of an axis at a time; the loops inside go over the piece."""
        self.scopes.append(Scope(self.scopes[-1].axes))
        yield
        done = self.scopes.pop()
        self.scopes[-1].statements.append(Tile(axis, size, tuple(done.statements)))

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
        """`operand` is the value of `value` from here to the end of the innermost scope."""
        if isinstance(operand, Local):
            self.axes_of[operand] = axes
        self.scopes[-1].memo[value, self.canonical(value), (), ""] = operand

    # ---- values ----

    def affine(self, dims: Dims) -> Indices:
        """Index expressions of runs of axes."""
        out: list[Affine] = []
        for run in dims:
            index = Affine()
            stride: Extent = 1
            for axis in reversed(self.analysis.space.leaves(run)):
                index, stride = index + Affine.of(axis, stride), stride * axis.size
            out.append(sorted_terms(index))
        return tuple(out)

    def canonical(self, value: Value) -> Indices:
        return self.affine(self.analysis.runs[value])

    def store(self, value: Value, array: ArrayRef) -> Store:
        dims = self.canonical(value)
        return Store(array, linear(dims, shape_of(value)), self.eval(value, dims))

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
        """The operand that holds element `at` of `value`.

        Exact: an op is computed with the same operands as alone, division too; what was computed once in a scope is
        taken again only for the same element, the same bounds and the same number around, to the sign of zero.
        """
        # Two pads of one value may differ in nothing but what they fill in.
        key: Key = (value, at, guards, repr(fill) if guards else "")
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        op = value.producer
        hint = value.hint
        if op is None:
            source = self.inputs[value]
            if isinstance(source, Local):
                return self.guarded(source, guards)
            return self.load(key, source, linear(at, shape_of(value)), guards, fill, hint)
        if is_inlined(op):
            return self.eval_free(op, value, at, guards, fill)
        if guards:
            raise AxisConflict
        if value in self.saved and self.stage_of(value) < self.stage and at == self.canonical(value):
            array, index = self.saved[value]
            return self.load(key, array, index, (), None, hint)
        if op.declared.kind == "reduction":
            raise AxisConflict
        if op.declared.elements == "gathered":
            return self.eval_gather(op, at, key)
        operands = [self.eval(operand, at if operand.tensor.shape else ()) for operand in op.operands]
        attrs = dict(op.attrs)
        if op.declared.kind == "random":
            element = linear(at, shape_of(value))
            if attrs.pop("first", False):
                first = operands.pop()
                element += Affine.of(first) if isinstance(first, Local) else int(first.value)
            operands.append(self.position(element, i64, "element"))
        target = Local(self.words[value], value.tensor.dtype, not is_users_name(hint))
        scope = self.put(Compute(target, op.declared, tuple(operands), attrs, op.where), self.operand_axes(operands))
        scope.memo[key] = target
        return target

    def scope_of(self, local: Local) -> Scope:
        """The outermost scope in which a local is known."""
        return next(scope for scope in self.scopes if self.axes_of[local] <= scope.axes)

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
        if not index.terms and isinstance(index.offset, int):
            return Constant(as_held(index.offset, dtype), dtype)
        target = Local(hint, dtype)
        self.put(PositionOf(target, index), self.operand_axes((), index))
        return target

    def eval_free(self, op: Op, value: Value, at: Indices, guards: tuple[Bound, ...], fill: Constant | None) -> Operand:
        """An op that moves elements: its operand at another index.

        Exact: elements are copied. `guards` are the bounds within which the operand may be read, `fill` stands outside
        of all of them: a frame in a frame of another number has no such form.
        """
        declared, attrs = op.declared, op.attrs
        if declared is prims.CONSTANT:
            number = attrs["value"]
            if isinstance(number, tuple):
                raise AxisConflict
            return self.guarded(Constant(number, value.tensor.dtype), guards)
        if declared is prims.IOTA:
            return self.guarded(self.position(at[attrs["axis"]], value.tensor.dtype, "position"), guards)
        source = op.operands[0]
        shape = shape_of(source)
        if declared is prims.STOP_GRADIENT:
            return self.eval(source, at, guards, fill)
        if declared is prims.BROADCAST_TO:
            inner = tuple(Affine() if n == 1 else at[a] for n, a in zip(shape, attrs["axes"], strict=True))
            return self.eval(source, inner, guards, fill)
        if declared is prims.PERMUTE:
            moved = [Affine()] * len(shape)
            for position, axis in enumerate(attrs["axes"]):
                moved[axis] = at[position]
            return self.eval(source, tuple(moved), guards, fill)
        if declared is prims.RESHAPE:
            return self.eval(source, reshaped(at, shape_of(value), shape), guards, fill)
        if declared is prims.PAD:
            inner = tuple(index + -low for index, low in zip(at, attrs["low"], strict=True))
            bounds = tuple(
                Bound(index, n)
                for index, n, low, high in zip(inner, shape, attrs["low"], attrs["high"], strict=True)
                if low != 0 or high != 0
            )
            around = Constant(as_held(attrs["value"], value.tensor.dtype), value.tensor.dtype)
            if guards and not (fill is not None and same_number(fill.value, around.value)):
                raise AxisConflict  # a frame in a frame of another number: fusion makes an array of the inner one first
            return self.eval(source, inner, (*guards, *bounds), around)
        if declared is prims.SLICE:
            steps = attrs.get("step", (1,) * len(shape))
            inner = tuple(index * step + start for index, step, start in zip(at, steps, attrs["start"], strict=True))
            return self.eval(source, inner, guards, fill)
        assert declared is prims.DYNAMIC_SLICE, op.name
        starts = [self.eval(start, ()) for start in op.operands[1:]]
        inner = tuple(
            index + (Affine.of(start) if isinstance(start, Local) else Affine((), int(start.value)))
            for index, start in zip(at, starts, strict=True)
        )
        return self.eval(source, inner, guards, fill)

    def guarded(self, operand: Operand, guards: tuple[Bound, ...]) -> Operand:
        """A number that is in no array.

        Exact: where nothing bounds it; under a pad it must be read from memory, so that fusion makes an array of it.
        """
        if guards:
            raise AxisConflict
        return operand

    def eval_gather(self, op: Op, at: Indices, key: Key) -> Operand:
        """An element at a computed index.

        Exact: the index is checked before anything is read with it, and where the program gets there only.
        """
        table, indices = op.operands
        axis = op.attrs["axis"]
        rank = len(shape_of(indices))
        along = at if op.declared is prims.TAKE_ALONG else at[axis : axis + rank]
        index = self.eval(indices, along)
        checked = Local(f"{short(name_of(table))}_index".lstrip("_"), i64)
        extent = shape_of(table)[axis]
        check = CheckIndex(checked, index, extent, op.where, op.attrs.get("meaning", "index"))
        axes = self.operand_axes((index,))
        if not axes:  # one index for all places, of which there may be none
            axes = frozenset(each for each in self.operand_axes((), *along) if bounds_of(each.size)[0] < 1)
        checking = self.put(check, axes)
        after = at[axis + 1 :] if op.declared is prims.TAKE_ALONG else at[axis + rank :]
        result = self.eval(table, (*at[:axis], Affine.of(checked), *after))
        # Known where the index is checked and the element read, whichever is further in; a number is known everywhere.
        reading = self.scope_of(result) if isinstance(result, Local) and result in self.axes_of else checking
        (reading if checking.axes <= reading.axes else checking).memo[key] = result
        return result
