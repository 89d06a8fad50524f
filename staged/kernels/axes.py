"""The loop axes of each value in a kernel.

Every dimension of a value is a run of *atomic axes*: `reshape (a, b) -> (a*b,)` makes one dimension of two axes, and
two dimensions that must agree are split at common factors. Values are visited from the results towards the inputs, so
that each use of an input has its own axes (`x + x.T` reads `x` twice).

Tested by `tests/kernels/test_evaluation.py` and `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from staged.ir.declaration import prims
from staged.ir.loops import Axis
from staged.ir.nodes import Op, Value
from staged.ir.numbers import Number, as_held, same_number
from staged.ir.sizes import Extent, exact_quotient, product
from staged.ir.types import Shape
from staged.kernels.kinds import is_elementwise, is_inlined, shape_of

Run = tuple[Axis, ...]
Dims = tuple[Run, ...]


class AxisConflict(Exception):
    """These ops cannot share one set of loops."""


class Space:
    """Axes that have been found equal or split into factors."""

    def __init__(self) -> None:
        self.parts: dict[Axis, Run] = {}

    def leaves(self, run: Run) -> list[Axis]:
        """The run, in axes that are not split further."""
        out: list[Axis] = []
        for axis in run:
            out += self.leaves(self.parts[axis]) if axis in self.parts else [axis]
        return out

    def unify(self, a: Run, b: Run) -> None:
        """Make two runs equal by splitting axes at common factors.

        Exact: for runs of as many elements, both walked in row-major order. Unifying one pair may change another
        (`(i, j)` with `(j, i)`): each axis is looked up when it is reached.
        """
        left, right = self.leaves(a), self.leaves(b)
        while left and right:
            left[:1], right[:1] = self.leaves((left[0],)), self.leaves((right[0],))
            x, y = left[0], right[0]
            if x is y or x.size == y.size:
                if x is not y:
                    self.parts[x] = (y,)
                left.pop(0)
                right.pop(0)
            elif (rest := exact_quotient(x.size, y.size)) is not None:
                left[:1] = self._split(x, y, rest)
            elif (rest := exact_quotient(y.size, x.size)) is not None:
                right[:1] = self._split(y, x, rest)
            else:
                raise AxisConflict
        if left or right:
            raise AxisConflict

    def _split(self, axis: Axis, first: Axis, size: Extent) -> list[Axis]:
        """Divide an axis into `first` and one of `size` inside of it."""
        rest = Axis(axis.name, size)
        self.parts[axis] = (first, rest)
        return [first, rest]

    def regroup(self, run: Run, shape: Shape) -> Dims:
        """One row-major run, cut into dimensions of these extents.

        Exact: for a shape of as many elements. Without elements nothing is walked.
        """
        left = self.leaves(run)
        if 0 in shape:
            # Nothing is walked: any axes will do.
            return tuple(() if extent == 1 else (Axis("i", extent),) for extent in shape)
        dims: list[Run] = []
        for extent in shape:
            taken: list[Axis] = []
            while (missing := exact_quotient(extent, product(a.size for a in taken))) != 1:
                if not left or missing is None:
                    raise AxisConflict
                left[:1] = self.leaves((left[0],))  # split by now, if it stands here twice
                axis = left.pop(0)
                if exact_quotient(missing, axis.size) is None:
                    inside = exact_quotient(axis.size, missing)
                    if inside is None:
                        raise AxisConflict
                    axis, rest = self._split(axis, Axis(axis.name, missing), inside)
                    left.insert(0, rest)
                taken.append(axis)
            dims.append(tuple(taken))
        if left:
            raise AxisConflict
        return tuple(dims)


class Analysis:
    """The axes of every value that some ops compute, seen from the values that leave them.

    `is_boundary(value)` says which values come from outside; ops that are inlined (`kinds.is_inlined`) are walked
    through.
    """

    def __init__(self, results: Sequence[Value], is_boundary: Callable[[Value], bool]) -> None:
        self.space = Space()
        self.is_boundary = is_boundary
        self.results = tuple(results)
        self.runs: dict[Value, Dims] = {}
        self.reduced: dict[Op, Run] = {}
        self.phantoms: set[Axis] = set()
        self.padded: dict[Axis, Number] = {}
        """Axes under a pad, with the number that stands around."""
        self.operand_dims: dict[Op, Dims] = {}
        self.walks: list[tuple[Value, Dims]] = []
        """The ways in which values from outside are walked through."""
        self.counter = 0
        for result in results:
            dims = self.fresh(shape_of(result))
            self.visit(result, dims)
            self.runs.setdefault(result, dims)
        self.unify_results()
        self.unify_reductions()
        for dims in self.runs.values():
            axes = self.leaves(dims)
            if len(set(axes)) != len(axes):
                raise AxisConflict

    def fresh(self, shape: Shape) -> Dims:
        """New axes; a dimension of one element needs none."""
        return tuple(() if extent == 1 else (self.new_axis(extent),) for extent in shape)

    def new_axis(self, extent: Extent) -> Axis:
        self.counter += 1
        return Axis(f"i{self.counter}", extent)

    def leaves(self, dims: Dims) -> list[Axis]:
        return [axis for run in dims for axis in self.space.leaves(run)]

    def axes(self, value: Value) -> frozenset[Axis]:
        """The loops that the elements of a computed value differ along."""
        return frozenset(self.leaves(self.runs[value]))

    def reduced_axes(self, op: Op) -> frozenset[Axis]:
        return frozenset(self.space.leaves(self.reduced[op]))

    def visit(self, value: Value, dims: Dims) -> None:
        """`value` is wanted along `dims`.

        Exact: an elementwise op is computed at each place that is read, as often as it is; a reduction or a gather is
        not computed again at computed places, and nothing is computed under a pad, where an index may be outside.
        """
        op = value.producer
        if self.is_boundary(value) or op is None:
            self.walks.append((value, dims))
            return
        if is_inlined(op):
            self.visit_free(op, value, dims)
            return
        if any(axis in self.phantoms for axis in self.leaves(dims)):
            # Elements at computed places: computed again there, which only elementwise ops allow.
            # Not under a pad: outside of its range nothing may be read.
            if not is_elementwise(op) or any(axis in self.padded for axis in self.leaves(dims)):
                raise AxisConflict
            for operand in op.operands:
                self.visit(operand, dims)
            return
        if value in self.runs:
            for known, wanted in zip(self.runs[value], dims, strict=True):
                self.space.unify(known, wanted)
            return
        self.runs[value] = dims
        if op.declared.kind == "reduction":
            self.visit_reduction(op, dims)
        elif op.declared.elements == "gathered":
            self.visit_gather(op, dims)
        elif is_elementwise(op):
            for operand in op.operands:
                self.visit(operand, dims if operand.tensor.shape else ())
        else:
            raise AxisConflict

    def visit_free(self, op: Op, value: Value, dims: Dims) -> None:
        """An op that moves elements: its operand is wanted along other axes.

        Exact: elements are copied. Of a frame in a frame both must be of one number, to the sign of zero: an element is
        read or it is not, and there is one number for all the rest.
        """
        declared, attrs = op.declared, op.attrs
        if declared in (prims.CONSTANT, prims.IOTA):
            return
        source = op.operands[0]
        shape = shape_of(source)
        if declared is prims.STOP_GRADIENT:
            self.visit(source, dims)
        elif declared is prims.BROADCAST_TO:
            self.visit(source, tuple(() if n == 1 else dims[a] for n, a in zip(shape, attrs["axes"], strict=True)))
        elif declared is prims.PERMUTE:
            moved: list[Run] = [()] * len(shape)
            for position, axis in enumerate(attrs["axes"]):
                moved[axis] = dims[position]
            self.visit(source, tuple(moved))
        elif declared is prims.RESHAPE:
            whole = tuple(axis for run in dims for axis in run)
            if any(axis in self.phantoms for axis in self.leaves(dims)):
                if [n for n in shape if n != 1] != [n for n in shape_of(value) if n != 1]:
                    raise AxisConflict
            self.visit(source, self.space.regroup(whole, shape))
        elif declared in (prims.SLICE, prims.DYNAMIC_SLICE, prims.PAD):
            moves = self.shifted(op, value)
            inner = tuple(self.phantom(n) if moved else d for n, moved, d in zip(shape, moves, dims, strict=True))
            if declared is prims.PAD:
                fill = as_held(attrs["value"], value.tensor.dtype)
                around = [self.padded[axis] for axis in self.leaves(dims) if axis in self.padded]
                if not all(same_number(fill, other) for other in around):
                    raise AxisConflict
                self.padded |= {axis: fill for run, moved in zip(inner, moves, strict=True) if moved for axis in run}
            self.visit(source, inner)
            for operand in op.operands[1:]:
                self.visit(operand, ())
        else:
            raise AssertionError(f"`{op.name}` moves elements, but no rule says how")

    def phantom(self, extent: Extent) -> Run:
        axis = self.new_axis(extent)
        self.phantoms.add(axis)
        return (axis,)

    def shifted(self, op: Op, value: Value) -> list[bool]:
        """For each dimension of a slice or pad, whether its operand is walked differently from its result.

        Exact: in steps of 1, equally many elements are all of them, in order; a reverse has steps of -1.
        """
        before, after = shape_of(op.operands[0]), shape_of(value)
        steps = op.attrs.get("step", (1,) * len(before))
        return [a != b or step != 1 for a, b, step in zip(before, after, steps, strict=True)]

    def visit_reduction(self, op: Op, dims: Dims) -> None:
        """A reduction: its operand is wanted along the result's axes and along new ones, which it sums up.

        Exact: every element is taken once. The order of a sum is the schedule's, which sizes alone decide; places rise
        (`with_rising_places`).
        """
        shape = shape_of(op.operands[0])
        gone = (op.attrs["axis"],) if "axis" in op.attrs else op.attrs["axes"]
        kept = iter(dims)
        whole: list[Run] = []
        run: list[Axis] = []
        for number, extent in enumerate(shape):
            if number in gone:
                part = () if extent == 1 else (self.new_axis(extent),)
                run += part
                whole.append(part)
            else:
                whole.append(next(kept))
        self.reduced[op] = tuple(run)
        self.operand_dims[op] = tuple(whole)
        self.visit(op.operands[0], tuple(whole))

    def visit_gather(self, op: Op, dims: Dims) -> None:
        """A gather: the table is wanted at computed places of one axis.

        Exact: elements are copied; what is computed there must be elementwise (see `visit`).
        """
        table, indices = op.operands
        axis = op.attrs["axis"]
        extent = shape_of(table)[axis]
        if op.declared is prims.TAKE:
            rank = len(shape_of(indices))
            self.visit(indices, dims[axis : axis + rank])
            self.visit(table, (*dims[:axis], self.phantom(extent), *dims[axis + rank :]))
        else:
            assert op.declared is prims.TAKE_ALONG, f"{op.name} gathers no elements"
            self.visit(indices, dims)
            self.visit(table, (*dims[:axis], self.phantom(extent), *dims[axis + 1 :]))

    def unify_results(self) -> None:
        """Results of one shape share their loops, also where they have only inputs in common.

        Exact: every element is computed as before, in another order.
        """
        first: dict[Shape, Value] = {}
        for result in self.results:
            if result not in self.runs:
                continue
            other = first.setdefault(shape_of(result), result)
            if other is not result:
                for a, b in zip(self.runs[other], self.runs[result], strict=True):
                    self.space.unify(a, b)

    def unify_reductions(self) -> None:
        """Reductions over as many elements share the loop they reduce.

        Exact: each walks its own elements in row-major order. Where that cannot be one loop (`x` and its transpose) an
        axis comes twice in a value, and the ops do not share loops.
        """
        seen: list[Op] = []
        for op in self.reduced:
            size = product(axis.size for axis in self.reduced[op])
            for other in seen:
                if product(axis.size for axis in self.reduced[other]) == size:
                    self.space.unify(self.reduced[other], self.reduced[op])
                    break
            else:
                seen.append(op)


class Structure:
    """The shape of a kernel's loops: `rows` (independent iterations) around `inside` (the axes of reductions).

    `finals` are reductions of the rows' results to one number.
    Exact: no value needs a total before all of its terms are there: values that depend on a final have no axes, and all
    others run over `rows`, or over `rows` and `inside`.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        a = analysis
        everything: set[Axis] = set()
        for value in a.runs:
            everything |= a.axes(value)
        reductions = sorted(a.reduced, key=lambda op: -_size(a.axes(op.results[0]) | a.reduced_axes(op)))
        self.finals: tuple[Op, ...] = ()
        if reductions:
            main = reductions[0]
            self.inside = a.reduced_axes(main)
            self.rows = a.axes(main.results[0])
            if self.rows & self.inside:
                raise AxisConflict
            finals = []
            for op in reductions:
                gone, kept = a.reduced_axes(op), a.axes(op.results[0])
                if gone == self.inside and kept == self.rows:
                    continue
                if kept or not self.rows or not (gone == self.rows or gone == self.rows | self.inside):
                    raise AxisConflict
                finals.append(op)
            self.finals = tuple(finals)
        else:
            self.inside = frozenset()
            self.rows = frozenset(everything)
        self.domain = self.rows | self.inside
        if not everything <= self.domain:
            raise AxisConflict
        self.check_levels()
        self.check_places()

    def with_rising_places(self, order: Sequence[Axis]) -> list[Axis]:
        """`order` with the axes that an argmax walks in the order in which its places rise, in the positions that they
        have there.

        Exact: the first of ties is the one that the loops come to first; other reductions take their elements in any
        order.
        """
        rising = list(order)
        for run in self.placed_runs():
            inside = iter(run)
            rising = [next(inside) if axis in run else axis for axis in rising]
        return rising

    def placed_runs(self) -> list[list[Axis]]:
        """The axes that each reduction to a place walks, the slowest first."""
        return [self.analysis.space.leaves(run) for op, run in self.analysis.reduced.items() if "axis" in op.attrs]

    def check_places(self) -> None:
        order = self.with_rising_places([*self.rows, *self.inside])
        loops = [axis for part in (self.rows, self.inside) for axis in order if axis in part]
        if any([axis for axis in loops if axis in run] != run for run in self.placed_runs()):
            raise AxisConflict

    def check_levels(self) -> None:
        a = self.analysis
        allowed = {self.domain, self.rows} if self.inside else {self.domain}
        late = self.depends_on_finals()
        for result in a.results:
            if result in a.runs:
                axes = a.axes(result)
                if axes not in allowed and not (result in late and not axes):
                    raise AxisConflict
        if any(a.axes(value) for value in late):
            raise AxisConflict

    def depends_on_finals(self) -> set[Value]:
        late: set[Value] = {op.results[0] for op in self.finals}
        if not late:
            return late
        known: dict[Value, bool] = {}

        def is_late(value: Value) -> bool:
            if value not in known:
                op = value.producer
                outside = self.analysis.is_boundary(value) or op is None
                known[value] = value in late or (not outside and op is not None and any(map(is_late, op.operands)))
            return known[value]

        return {value for value in self.analysis.runs if is_late(value)}

    @property
    def size(self) -> int:
        """Number of points of the innermost loops."""
        return _size(self.domain)


def _size(axes: frozenset[Axis]) -> int:
    return prod(axis.extent for axis in axes)
