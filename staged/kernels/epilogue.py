"""The epilogue of a matrix product or convolution: what happens to each finished element, as a loop nest on a tile.

The nest's loops are `batch`, `row` and `col`; its first input is the tile of finished elements, the others are arrays
and numbers. A back end runs it over the pieces of the result as its kernel finishes them. A prologue is such a nest for
an operand of a matrix product, before its elements are multiplied.

Tested by `tests/kernels/test_contractions.py`, `tests/kernels/test_groups.py` and `tests/kernels/test_prologues.py`.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.loops import Affine, Axis, Load, LoadPair, Local, Loop, Nest, Statement, map_indices, walk
from staged.ir.nodes import Block, Op, Value
from staged.ir.sizes import Extent, product
from staged.ir.types import Shape
from staged.kernels.axes import AxisConflict
from staged.kernels.kinds import shape_of
from staged.kernels.lower import Lowering, find_in_place

AXES = ("batch", "row", "col")
"""The names of the axes of an epilogue."""


def matrix_shape(root: Op) -> tuple[Extent, Extent, Extent]:
    """(batch, rows, columns) of a contraction's result."""
    shape = shape_of(root.results[0])
    if root.declared is prims.MATMUL:
        return product(shape[:-2]), shape[-2], shape[-1]
    if root.declared is prims.CONV2D_BACKWARD_WEIGHT:
        return 1, shape[0], product(shape[1:])
    return shape[0], shape[1], product(shape[2:])


def lower_epilogue(root: Op, body: Block) -> Nest:
    """The nest of an epilogue block (parameters: accumulator, inputs). Raises AxisConflict where it has no such form.

    Exact: elementwise on finished elements: those of the tile's own place, each once, in any order of pieces.
    """
    # How far rows go is the product's business: the epilogue gets the tiles that there are.
    axes = [Axis(name, extent) for name, extent in zip(AXES, matrix_shape(root), strict=True)]
    return _over(_Epilogue("epilogue", body).nest(), axes, shape_of(root.results[0]))


def lower_prologue(operand: Value, body: Block) -> Nest:
    """The nest of a prologue block (parameters: the operand of a matrix product, inputs; result: what is multiplied).
    Raises AxisConflict where it has no such form.

    Exact: elementwise on the operand's elements: those of their own places, in any order, any number of times.
    """
    shape = shape_of(operand)
    axes = [Axis(name, extent) for name, extent in zip(AXES, (product(shape[:-2]), *shape[-2:]), strict=True)]
    return _over(_Epilogue("prologue", body).nest(), axes, shape)


class _Epilogue(Lowering):
    def finish(self, body: list[Statement], items: int) -> Nest:  # type: ignore[override]
        inputs = tuple(self.inputs[param] for param in self.block.params)
        in_place = tuple((o, i) for o, i in find_in_place(body, self.outputs, inputs) if i > 0)
        return Nest(self.name, inputs, tuple(self.outputs), (), tuple(body), 1, in_place)


def _over(nest: Nest, axes: list[Axis], shape: Shape) -> Nest:
    """The nest with its loops replaced by batch, row and column; indices must be whole steps of these."""
    loops: list[Loop] = []
    hoisted: list[Statement] = []
    body = nest.body
    while True:
        inner = [s for s in body if isinstance(s, Loop)]
        if not inner:
            break
        if len(inner) != 1 or inner[0].reductions:
            raise AxisConflict
        hoisted += [s for s in body if s is not inner[0]]
        loops.append(inner[0])
        body = inner[0].body
    if product(loop.axis.size for loop in loops) != product(shape):
        raise AxisConflict
    groups = _grouped([loop.axis for loop in loops], [axis.size for axis in axes])

    def change(index: Affine) -> Affine:
        terms: list[tuple[Axis | Local, Extent]] = [t for t in index.terms if isinstance(t[0], Local)]
        for axis, members in zip(axes, groups, strict=True):
            stride = index.stride(members[-1]) if members else 0
            step = stride
            for member in reversed(members):
                if index.stride(member) != step:
                    raise AxisConflict
                step = step * member.size
            if stride != 0:
                terms.append((axis, stride))
        return Affine(tuple(terms), index.offset)

    batch, row, col = axes
    column = Loop(col, map_indices(body, change))
    line = Loop(row, (*map_indices(tuple(hoisted), change), column))
    _check_accumulator(line, nest, axes)
    return Nest(nest.name, nest.inputs, nest.outputs, (), (Loop(batch, (line,)),), 1, nest.in_place)


def _check_accumulator(line: Loop, nest: Nest, axes: list[Axis]) -> None:
    """A tile holds the elements of its own place alone: one that is wanted elsewhere (`flip(x @ w)`) is not there."""
    batch, row, col = axes
    steps = ((batch, row.size * col.size), (row, col.size), (col, 1))
    for statement in walk((line,)):
        if isinstance(statement, Load | LoadPair) and statement.array is nest.inputs[0]:
            index = statement.index
            moved = index.offset != 0 or any(axis.extent > 1 and index.stride(axis) != step for axis, step in steps)
            if moved or isinstance(statement, LoadPair) or statement.guards:
                raise AxisConflict


def _grouped(axes: list[Axis], sizes: list[Extent]) -> list[list[Axis]]:
    groups: list[list[Axis]] = []
    left = list(axes)
    for size in sizes:
        group: list[Axis] = []
        while left and product(axis.size for axis in group) != size:
            group.append(left.pop(0))
        if product(axis.size for axis in group) != size:
            raise AxisConflict
        groups.append(group)
    if left:
        raise AxisConflict
    return groups
