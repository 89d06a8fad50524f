"""Loop nests of the ops that are a kernel each: joining, scattering, updating, pooling, shuffling, scanning,
sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from staged.ir.declaration import declaration_of, prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    Axis,
    Bound,
    CallSupport,
    CheckIndex,
    Compute,
    Constant,
    Guarded,
    LoadPair,
    Local,
    Loop,
    Nest,
    Operand,
    PositionOf,
    Reduction,
    Statement,
    Store,
    StorePair,
)
from staged.ir.nodes import Block, Op
from staged.ir.op_table import OpTable
from staged.ir.size_functions import last_index
from staged.ir.sizes import Extent, product, surely
from staged.ir.types import bool_, i32, i64, row_major
from staged.kernels.kinds import shape_of
from staged.kernels.parts import Parts, axis_name, loops, without
from staged.kernels.scans import recurrence, running_place, running_total
from staged.kernels.sorting import sorting

JOINED = 8
"""The most arrays that one loop joins: a processor follows a few streams of memory at a time."""


def has_own_kernel(op: Op) -> bool:
    """Return whether an op is a kernel by itself, with a loop tree of its own."""
    return op.declared in LOWERS


def lower_alone(name: str, body: Block) -> Nest:
    """The nest of a kernel that holds one op with a kernel of its own."""
    op = next(filter(has_own_kernel, body.ops))
    return LOWERS[op.declared](name, Parts(body, op))


def _concat(name: str, p: Parts) -> Nest:
    """Neighbours of one size, up to `JOINED`, share a loop."""
    axis = p.op.attrs["axis"]
    shape = shape_of(p.op.results[0])
    rows, width = product(shape[:axis]), product(shape[axis:])
    outer = Axis("i", rows)
    pieces: list[Loop] = []
    offset: Extent = 0
    for number, piece_shape in enumerate(p.shapes):
        width_here = product(piece_shape[axis:])
        if number % JOINED == 0 or pieces[-1].axis.size != width_here:
            pieces.append(Loop(Axis("j", width_here), ()))
        inner, before = pieces[-1].axis, pieces[-1].body
        value, load = p.load(p.array(number), Affine.of(outer, width_here) + Affine.of(inner))
        target = Affine.of(outer, width) + Affine.of(inner) + offset
        pieces[-1] = Loop(inner, (*before, load, Store(p.outputs[0], target, value)))
        offset += width_here
    return p.nest(name, loops([outer], pieces) if rows != 1 else without(pieces, outer), rows != 1)


def _dynamic_update(name: str, p: Parts) -> Nest:
    whole, part = p.shapes[0], p.shapes[1]
    out = p.outputs[0]
    axes = [Axis(axis_name(number), extent) for number, extent in enumerate(p.shapes[1])]
    source = Affine()
    target = Affine()
    for axis, small, large in zip(axes, row_major(*part), row_major(*whole), strict=True):
        source, target = source + Affine.of(axis, small), target + Affine.of(axis, large)
    for number, (large, n, m) in enumerate(zip(row_major(*whole), whole, part, strict=True)):
        if n != m:
            target = target + Affine.of(p.scalar(2 + number), large)
    first, in_place = p.begin()
    if p.op.operands[1] not in p.number:  # a number, as an array of one element
        made = p.op.operands[1].made_by(prims.RESHAPE, prims.BROADCAST_TO)
        assert made is not None
        element = p.element(made.operands[0])
        return p.nest(name, [first, *loops(axes, [Store(out, target, element)])], False, in_place)
    value, load = p.load(p.array(1), source)
    return p.nest(name, [first, *loops(axes, [load, Store(out, target, value)])], False, in_place)


def _scatter(name: str, p: Parts) -> Nest:
    """Writing rows, or combining them with those there: the array, then row by row where the indices say.

    Exact: updates in the order of their places, so that of equal places the last stands and sums have one order;
    indices are checked first.
    """
    axis = p.op.attrs["axis"]
    shape, indices = p.shapes[0], p.shapes[1]
    before, extent, after = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    outer, place, inner = Axis("i", before), Axis("j", product(indices)), Axis("k", after)
    out = p.outputs[0]
    index, load_index = p.load(p.array(1), Affine.of(place))
    checked = Local("target", i64)
    check = CheckIndex(checked, index, shape[axis], p.op.where)
    update, load = p.load(p.array(2), Affine.of(outer, place.size * after) + Affine.of(place, after) + Affine.of(inner))
    target = Affine.of(outer, extent * after) + Affine.of(checked, after) + Affine.of(inner)
    is_write = p.op.declared is prims.SCATTER
    write = (
        [Store(out, target, update)]
        if is_write
        else p.add_to(out, target, update, declaration_of(p.op.attrs.get("by", "add")))
    )
    first, in_place = p.begin()
    body = [first, *loops([outer, place], [load_index, check, Loop(inner, (load, *write))])]
    return p.nest(name, body, False, in_place)


def _scatter_along(name: str, p: Parts) -> Nest:
    axis = p.op.attrs["axis"]
    shape, indices = p.shapes[0], p.shapes[1]
    axes = [Axis(axis_name(number), extent) for number, extent in enumerate(p.shapes[1])]
    source, target = Affine(), Affine()
    checked = Local("target", i64)
    for number, (loop, small, large) in enumerate(zip(axes, row_major(*indices), row_major(*shape), strict=True)):
        source = source + Affine.of(loop, small)
        target = target + (Affine.of(checked, large) if number == axis else Affine.of(loop, large))
    index, load_index = p.load(p.array(1), source)
    update, load = p.load(p.array(2), source)
    inner = [
        load_index,
        CheckIndex(checked, index, shape[axis], p.op.where),
        load,
        *p.add_to(p.outputs[0], target, update, declaration_of(p.op.attrs.get("by", "add"))),
    ]
    first, in_place = p.begin()
    return p.nest(name, [first, *loops(axes, inner)], False, in_place)


class _Window:
    """Loops and indices of pooling: planes, positions in the result, positions in the window."""

    def __init__(self, p: Parts, inner: Sequence[Extent], outer: Sequence[Extent]) -> None:
        attrs = p.op.attrs
        (self.kh, self.kw), (sh, sw), (ph, pw) = attrs["kernel"], attrs["stride"], attrs["padding"]
        apart_y, apart_x = attrs.get("dilation", (1, 1))  # means have none
        n, c, self.height, self.width = inner
        self.plane = Axis("plane", n * c)
        self.y, self.x = Axis("y", outer[2]), Axis("x", outer[3])
        self.dy, self.dx = Axis("dy", self.kh), Axis("dx", self.kw)
        self.row = Affine.of(self.y, sh) + Affine.of(self.dy, apart_y) + -ph
        self.column = Affine.of(self.x, sw) + Affine.of(self.dx, apart_x) + -pw
        self.position = self.row * self.width + self.column
        self.element = Affine.of(self.plane, self.height * self.width) + self.position
        self.window = Affine.of(self.plane, outer[2] * outer[3]) + Affine.of(self.y, outer[3]) + Affine.of(self.x)
        bounds = []
        if ph or not surely(lambda: last_index(outer[2]) * sh + apart_y * (self.kh - 1) < self.height):
            bounds.append(Bound(self.row, self.height))
        if pw or not surely(lambda: last_index(outer[3]) * sw + apart_x * (self.kw - 1) < self.width):
            bounds.append(Bound(self.column, self.width))
        self.bounds = tuple(bounds)

    def inside(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Only where the window is over the image, not over its padding."""
        return (Guarded(self.bounds, tuple(body)),) if self.bounds else tuple(body)

    def over_window(self, body: Sequence[Statement], reductions: tuple[Reduction, ...] = ()) -> Loop:
        return Loop(self.dy, (Loop(self.dx, self.inside(body)),), reductions)

    def over_planes(self, body: Sequence[Statement]) -> list[Statement]:
        return loops([self.plane, self.y, self.x], body)


def _is_pairs(p: Parts) -> bool:
    """Windows of 2 x 2 side by side, nothing padded: neighbours come in pairs."""
    attrs = p.op.attrs
    sides = attrs["kernel"] == attrs["stride"] == (2, 2) and attrs["padding"] == (0, 0)
    return bool(sides and attrs["dilation"] == (1, 1))


def _max_pool_pairs(name: str, p: Parts, w: _Window) -> Nest:
    """The largest of four, and its place, by three comparisons: the first of ties, the first NaN."""
    source = p.array(0)
    start = Affine.of(w.plane, w.height * w.width) + Affine.of(w.y, 2 * w.width) + Affine.of(w.x, 2)
    place = Affine.of(w.y, 2 * w.width) + Affine.of(w.x, 2)
    places = 1 in p.result_numbers
    body: list[Statement] = []
    best: Operand | None = None
    best_at: Operand | None = None
    for dy, row in enumerate(("upper", "lower")):
        pair = Local(f"{row}_left", source.dtype), Local(f"{row}_right", source.dtype)
        body.append(LoadPair(*pair, source, start + dy * w.width))
        for dx in (0, 1):
            at = Local(f"{pair[dx].name}_place", i32)
            if places:
                body.append(PositionOf(at, place + (dy * w.width + dx)))
            if best is None:
                best, best_at = pair[dx], at
                continue
            wins = larger(body, pair[dx], best)
            winner = f"best_of_{2 * dy + dx + 1}"
            chosen, chosen_at = Local(winner, source.dtype), Local(f"{winner}_place", i32)
            if 0 in p.result_numbers or (dy, dx) != (1, 1):  # the last decides about places alone
                body.append(Compute(chosen, prims.SELECT, (wins, pair[dx], best), {}))
            if places:
                assert best_at is not None
                body.append(Compute(chosen_at, prims.SELECT, (wins, at, best_at), {}))
            best, best_at = chosen, chosen_at
    for output, result in zip(p.outputs, p.result_numbers, strict=True):
        value = best if result == 0 else best_at
        assert value is not None
        body.append(Store(output, w.window, value))
    return p.nest(name, w.over_planes(body), True)


def larger(body: list[Statement], x: Local, best: Operand) -> Local:
    """Return whether `x` replaces `best`: it is larger, or it is the first NaN.

    Exact: IEEE: the first of ties, and the first NaN, wins; of -0.0 and 0.0 the first.
    """
    if not x.dtype.is_float:
        wins = Local(f"{x.name}_wins", bool_)
        body.append(Compute(wins, prims.GREATER, (x, best), {}))
        return wins
    stays, wins, number = (Local(each, bool_, True) for each in ("stays", "replaces", "is_number"))
    both = Local(f"{x.name}_wins", bool_)
    body.append(Compute(stays, prims.LESS_EQUAL, (x, best), {}))
    body.append(Compute(wins, prims.LOGICAL_NOT, (stays,), {}))
    body.append(Compute(number, prims.EQUAL, (best, best), {}))
    body.append(Compute(both, prims.LOGICAL_AND, (wins, number), {}))
    return both


def _max_pool_pairs_backward(name: str, p: Parts) -> Nest:
    """Every element of the input is in at most one window: its cotangent there, or 0."""
    shape = p.op.attrs["input_shape"]
    w = _Window(p, shape, p.shapes[0])
    out = p.outputs[0]
    zero = Constant(0.0 if out.dtype.is_float else 0, out.dtype)
    ct, load = p.load(p.array(0), w.window)
    index, load_index = p.load(p.array(1), w.window)
    start = Affine.of(w.plane, w.height * w.width) + Affine.of(w.y, 2 * w.width) + Affine.of(w.x, 2)
    place = Affine.of(w.y, 2 * w.width) + Affine.of(w.x, 2)
    inner: list[Statement] = [load, load_index]
    for dy, row in enumerate(("upper", "lower")):
        parts: list[Local] = []
        for dx, pixel in enumerate((f"{row}_left", f"{row}_right")):
            at, here, part = Local(f"{pixel}_place", i32), Local(f"{pixel}_wins", bool_), Local(f"d_{pixel}", out.dtype)
            inner.append(PositionOf(at, place + (dy * w.width + dx)))
            inner.append(Compute(here, prims.EQUAL, (index, at), {}))
            inner.append(Compute(part, prims.SELECT, (here, ct, zero), {}))
            parts.append(part)
        inner.append(StorePair(out, start + dy * w.width, parts[0], parts[1]))
    # An odd height or width leaves a row or a column without a window.
    first_of_plane, width, height = Affine.of(w.plane, w.height * w.width), w.width // 2 * 2, w.height // 2 * 2
    rows: list[Statement] = loops([w.x], inner)
    if (odd := w.width - width) != 0:
        column = Axis("column", odd)
        edge = first_of_plane + Affine.of(w.y, 2 * w.width) + width + Affine.of(column)
        rows.append(Loop(column, tuple(Store(out, edge + dy * w.width, zero) for dy in (0, 1))))
    planes: list[Statement] = loops([w.y], rows)
    if (odd := w.height - height) != 0:
        element = Axis("j", odd * w.width)
        planes.append(Loop(element, (Store(out, first_of_plane + height * w.width + Affine.of(element), zero),)))
    return p.nest(name, loops([w.plane], planes), True)


def _max_pool2d(name: str, p: Parts) -> Nest:
    if _is_pairs(p):
        return _max_pool_pairs(name, p, _Window(p, p.shapes[0], shape_of(p.op.results[0])))
    w = _Window(p, p.shapes[0], shape_of(p.op.results[0]))
    source = p.array(0)
    best = Reduction(Local("winner_place", i64), prims.ARGMAX)
    value, load = p.load(source, w.element)
    search = w.over_window([load, Accumulate(best, value, w.position)], (best,))
    body: list[Statement] = [search]
    for output, result in zip(p.outputs, p.result_numbers, strict=True):
        if result == 0:
            largest, again = p.load(source, Affine.of(w.plane, w.height * w.width) + Affine.of(best.target))
            body += [again, Store(output, w.window, largest)]
        else:
            position = Local("position", output.dtype)
            body += [Compute(position, prims.CAST, (best.target,), {}), Store(output, w.window, position)]
    return p.nest(name, w.over_planes(body), True)


def _max_pool2d_backward(name: str, p: Parts) -> Nest:
    if _is_pairs(p):
        return _max_pool_pairs_backward(name, p)
    shape, outer = p.op.attrs["input_shape"], p.shapes[0]
    plane, size, windows = Axis("plane", shape[0] * shape[1]), shape[2] * shape[3], outer[2] * outer[3]
    out = p.outputs[0]
    element, window = Axis("j", size), Axis("k", windows)
    zero = Store(
        out, Affine.of(plane, size) + Affine.of(element), Constant(0.0 if out.dtype.is_float else 0, out.dtype)
    )
    at = Affine.of(plane, windows) + Affine.of(window)
    index, load_index = p.load(p.array(1), at)
    value, load = p.load(p.array(0), at)
    place = Local("winner_place", i64)
    target = Affine.of(plane, size) + Affine.of(place)
    inner = [load_index, Compute(place, prims.CAST, (index,), {}), load, *p.add_to(out, target, value)]
    return p.nest(name, loops([plane], [Loop(element, (zero,)), Loop(window, tuple(inner))]), True)


def _avg_pool2d(name: str, p: Parts) -> Nest:
    w = _Window(p, p.shapes[0], shape_of(p.op.results[0]))
    dtype = p.outputs[0].dtype
    total = Reduction(Local("total", dtype), prims.SUM)
    value, load = p.load(p.array(0), w.element)
    mean = Local("mean", dtype)
    count = Constant(float(w.kh * w.kw), dtype)
    body: list[Statement] = [
        w.over_window([load, Accumulate(total, value)], (total,)),
        Compute(mean, prims.DIVIDE, (total.target, count), {}),
        Store(p.outputs[0], w.window, mean),
    ]
    return p.nest(name, w.over_planes(body), True)


def _avg_pool2d_backward(name: str, p: Parts) -> Nest:
    shape = p.op.attrs["input_shape"]
    w = _Window(p, shape, p.shapes[0])
    out = p.outputs[0]
    element = Axis("j", w.height * w.width)
    zero = Store(out, Affine.of(w.plane, element.size) + Affine.of(element), Constant(0.0, out.dtype))
    value, load = p.load(p.array(0), w.window)
    share = Local("share", out.dtype)
    divide = Compute(share, prims.DIVIDE, (value, Constant(float(w.kh * w.kw), out.dtype)), {})
    spread = w.over_window(p.add_to(out, w.element, share))
    inner = loops([w.y, w.x], [load, divide, spread])
    return p.nest(name, loops([w.plane], [Loop(element, (zero,)), *inner]), True)


def _permutation(name: str, p: Parts) -> Nest:
    key = tuple(p.scalar(number) for number in range(3))
    call = CallSupport("st_permutation", "st_permutation", (p.outputs[0], CallSupport.size(p.op.attrs["n"]), *key))
    return p.nest(name, [call], False)


LOWERS: OpTable[Callable[[str, Parts], Nest]] = OpTable(
    {
        prims.CONCAT: _concat,
        prims.DYNAMIC_UPDATE: _dynamic_update,
        prims.SCATTER: _scatter,
        prims.SCATTER_ADD: _scatter,
        prims.SCATTER_ADD_ALONG: _scatter_along,
        prims.SCATTER_REDUCE: _scatter,
        prims.SCATTER_REDUCE_ALONG: _scatter_along,
        prims.MAX_POOL2D: _max_pool2d,
        prims.MAX_POOL2D_BACKWARD: _max_pool2d_backward,
        prims.AVG_POOL2D: _avg_pool2d,
        prims.AVG_POOL2D_BACKWARD: _avg_pool2d_backward,
        prims.PERMUTATION: _permutation,
        prims.SORT: sorting,
        prims.CUMSUM: running_total(prims.ADD, 0.0),
        prims.CUMPROD: running_total(prims.MULTIPLY, 1.0),
        prims.LOGCUMSUMEXP: running_total(prims.LOGADDEXP, -inf),
        prims.LINEAR_RECURRENCE: recurrence,
        prims.CUMARGMAX: running_place(prims.LESS, prims.MAX),
        prims.CUMARGMIN: running_place(prims.GREATER, prims.MIN),
    }
)
"""Ops that are a kernel by themselves: how each becomes a nest."""
