"""Rules of `simplify` for sums of which one part is zero almost everywhere: it is added where it is not. They are
entered in `algebra.RULES`.

Reverse mode writes `accumulate` for such sums, in which a zero of either sign may count as nothing. In an `add` the
zeros must be of the sign that adds nothing, bit by bit.

Tested by `tests/passes/test_rules.py` and `tests/passes/test_simplify.py`.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.sizes import Extent
from staged.ir.types import TensorType, i64
from staged.passes.algebra import Emitter, adds_nothing, number_of, rule


@rule(prims.ADD, prims.ACCUMULATE)
def add_side_by_side(op: Op, emit: Emitter) -> Value | None:
    """pad(u) + pad(v), where v begins in the axis where u ends  ->  pad(concat(u, v))

    Why: the cotangent of what `split` cut up is its pieces, put together; as a sum it is written once for each of them.
    Exact: for integers, and floats padded with -0.0; of cotangents every zero is nothing.
    """
    first, second = (_place_along_axis(x, op) for x in op.operands)
    if first is None or second is None or first[0] != second[0]:
        return None
    axis = first[0]
    pieces = (first[1:], second[1:]) if first[2] == second[1] else (second[1:], first[1:])
    if pieces[0][1] != pieces[1][0]:
        return None
    whole = op.result.tensor.shape[axis]
    joined = emit.emit(prims.CONCAT, [piece for _, _, piece in pieces], axis=axis)
    low: list[Extent] = [0] * op.result.tensor.ndim
    high = [*low]
    low[axis], high[axis] = pieces[0][0], whole - pieces[1][1]
    fills = [pad.attrs["value"] for x in op.operands if (pad := x.made_by(prims.PAD))]
    return emit.emit(prims.PAD, [joined], low=tuple(low), high=tuple(high), value=fills[0])


def _place_along_axis(x: Value, total: Op) -> tuple[int, Extent, Extent, Value] | None:
    """(axis, begin, end, u) if `x` is `u` at that place of an axis, and around it what adds nothing to `total`."""
    op = x.made_by(prims.PAD)
    if op is None or not adds_nothing(op.attrs["value"], total):
        return None
    axes = [axis for axis, around in enumerate(zip(op.attrs["low"], op.attrs["high"], strict=True)) if around != (0, 0)]
    (piece,) = op.operands
    if len(axes) != 1:
        return None
    begin: Extent = op.attrs["low"][axes[0]]
    return axes[0], begin, begin + piece.tensor.shape[axes[0]], piece


@rule(prims.ADD, prims.ACCUMULATE)
def add_into_place(op: Op, emit: Emitter) -> Value | None:
    """x + dynamic_update(zeros, u, start)  ->  dynamic_update(x, dynamic_slice(x, start) + u, start)

    Why: the cotangent of `x[i]` is zero but for one place; adding it whole in a loop over `i` costs the square.
    Exact: for integers, and floats in an array of -0.0; of cotangents every zero is nothing.
    """
    for total, term in (op.operands, op.operands[::-1]):
        update = term.made_by(prims.DYNAMIC_UPDATE)
        if update is not None and adds_nothing(number_of(update.operands[0]), op):
            _, piece, *start = update.operands
            before = emit.emit(prims.DYNAMIC_SLICE, [total, *start], sizes=piece.tensor.shape)
            return emit.emit(prims.DYNAMIC_UPDATE, [total, emit.emit(op.declared, [before, piece]), *start])
    return None


@rule(prims.ADD, prims.ACCUMULATE)
def add_into_slice(op: Op, emit: Emitter) -> Value | None:
    """x + pad(u), where u is a small part of x  ->  dynamic_update(x, dynamic_slice(x, place) + u, place)

    Why: as for `add_into_place`, for `x[2:4]`. A large part is left to fusion, which adds it in its loop.
    Exact: as for `add_into_place`.
    """
    for total, term in (op.operands, op.operands[::-1]):
        pad = term.made_by(prims.PAD)
        if pad is None or not adds_nothing(pad.attrs["value"], op):
            continue
        (piece,) = pad.operands
        if term.tensor.is_static and piece.tensor.size * 8 <= term.tensor.size:
            start = [emit.full(TensorType(i64), low) for low in pad.attrs["low"]]
            before = emit.emit(prims.DYNAMIC_SLICE, [total, *start], sizes=piece.tensor.shape)
            return emit.emit(prims.DYNAMIC_UPDATE, [total, emit.emit(op.declared, [before, piece]), *start])
    return None


@rule(prims.ADD, prims.ACCUMULATE)
def add_into_scattered(op: Op, emit: Emitter) -> Value | None:
    """x + scatter_add(zeros, indices, u)  ->  scatter_add(x, indices, u), where the indices are checked already

    Why: as for `add_into_place`; the gradient of an embedding touches few of its rows.
    Exact: for integers, which add up to the same in any order; cotangents are added in any order. Of `add` of floats it
    is not.
    """
    if op.declared is prims.ADD and op.result.tensor.dtype.is_float:
        return None
    for total, term in (op.operands, op.operands[::-1]):
        for declared in (prims.SCATTER_ADD, prims.SCATTER_ADD_ALONG):
            scatter = term.made_by(declared)
            if scatter is not None and not scatter.effects and number_of(scatter.operands[0]) == 0:
                return emit.intern(declared, [total, *scatter.operands[1:]], [op.result.type], scatter.attrs, ())[0]
    return None


@rule(prims.ACCUMULATE)
def accumulate_is_add(op: Op, emit: Emitter) -> Value | None:
    """accumulate(a, b)  ->  a + b, where no rule above has found that one of them is mostly nothing

    Exact: addition is one of the sums that `accumulate` may mean.
    """
    return emit.emit(prims.ADD, op.operands)
