"""Rules of `simplify` for comparisons and checks that the types or ranges of operands decide; see `algebra.py`.

Tested by `tests/passes/test_rules.py`.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.nodes import PURE, Op, Value
from staged.ir.numbers import fits, limits
from staged.passes.algebra import Emitter, number_of, rule


@rule(prims.EQUAL, prims.NOT_EQUAL, prims.LESS, prims.LESS_EQUAL, prims.GREATER, prims.GREATER_EQUAL)
def compare_with_itself(op: Op, emit: Emitter) -> Value | None:
    """n == n  ->  True;  n < n  ->  False;  not for floats, where NaN differs from itself

    Why: compilers warn of it, and this is how a user's `0 <= i <= i` comes out.
    Exact: for integers and bools.
    """
    a, b = op.operands
    if a is not b or a.tensor.dtype.is_float:
        return None
    return emit.full(op.result.tensor, op.declared in (prims.EQUAL, prims.LESS_EQUAL, prims.GREATER_EQUAL))


@rule(prims.EQUAL, prims.NOT_EQUAL, prims.LESS, prims.LESS_EQUAL, prims.GREATER, prims.GREATER_EQUAL)
def compare_with_limit(op: Op, emit: Emitter) -> Value | None:
    """n < 0 -> False, of an unsigned n; n <= 255 -> True, of a byte, cast to another dtype too; n == 256 -> False

    Why: compilers warn of it.
    Exact: for integers and bools, which are never beyond the limits of their dtype, nor of that they were cast from
    without a loss.
    """
    a, b = op.operands if op.declared not in (prims.GREATER, prims.GREATER_EQUAL) else op.operands[::-1]
    first, second = _limits_of(a), _limits_of(b)
    if first is None or second is None:
        return None
    if op.declared in (prims.EQUAL, prims.NOT_EQUAL):
        apart = first[1] < second[0] or second[1] < first[0]
        return emit.full(op.result.tensor, op.declared is prims.NOT_EQUAL) if apart else None
    strict = op.declared in (prims.LESS, prims.GREATER)
    if first[1] < second[0] or not strict and first[1] == second[0]:
        return emit.full(op.result.tensor, True)
    if first[0] > second[1] or strict and first[0] == second[1]:
        return emit.full(op.result.tensor, False)
    return None


@rule(prims.FLOOR_DIVIDE, prims.REMAINDER)
def divide_by_a_positive_number(op: Op, emit: Emitter) -> Value | None:
    """a // max(n, 1)  ->  the same, without a check

    Why: threads share no loop that may stop the program.
    Exact: for divisors of which the range says that they are above 0.
    """
    span = emit.ranges.of(op.operands[1]) if op.effects else None
    if span is None or span[0] <= 0:
        return None
    (result,) = emit.intern(op.declared, op.operands, [op.result.type], op.attrs, PURE)
    return result


def _limits_of(value: Value) -> tuple[int, int] | None:
    """The lowest and the highest integer that `value` may hold, by its dtype or that which it was cast from."""
    dtype, number = value.tensor.dtype, number_of(value)
    if dtype.is_float:
        return None
    if number is not None:
        return int(number), int(number)
    cast = value.made_by(prims.CAST)
    return limits(cast.operands[0].tensor.dtype if cast is not None and _keeps_integers(cast) else dtype)


@rule(prims.EQUAL, prims.NOT_EQUAL, prims.LESS, prims.LESS_EQUAL, prims.GREATER, prims.GREATER_EQUAL)
def compare_as_stored(op: Op, emit: Emitter) -> Value | None:
    """cast(x) < n  ->  x < cast(n), for elements of narrow integers and one number that their dtype has

    Why: a vector has eight times as many bytes as i64. A Python integer beside an array is compared as it is, which
    takes i64 where it may be any.
    Exact: the cast of x loses nothing, and that of n neither, by its range.
    """
    for this, (wide, other) in enumerate((op.operands, op.operands[::-1])):
        cast, scalar = wide.made_by(prims.CAST), other.behind(prims.BROADCAST_TO)
        if cast is None or not wide.tensor.shape or scalar.tensor.shape or not _keeps_integers(cast):
            continue
        (x,) = cast.operands
        if x.tensor.dtype.is_bool or not fits(emit.ranges.of(scalar), x.tensor.dtype):
            continue
        number = emit.emit(prims.CAST, [scalar], dtype=x.tensor.dtype)
        number = emit.emit(prims.BROADCAST_TO, [number], shape=x.tensor.shape, axes=())
        return emit.emit(op.declared, [number, x] if this else [x, number])
    return None


def _keeps_integers(cast: Op) -> bool:
    """Return whether a cast is of integers that its dtype has all."""
    source = cast.operands[0].tensor.dtype
    return not source.is_float and fits(limits(source), cast.result.tensor.dtype)


@rule(prims.EQUAL, prims.NOT_EQUAL)
def compare_masked(op: Op, emit: Emitter) -> Value | None:
    """(n & 3) == 4  ->  False;  (n | 3) == 4  ->  False;  the same for `!=`, where no n can have these bits

    Why: compilers warn of it.
    Exact: of the bits of two's complement, in which Python's integers compute with masks below 0 too; of a cast that
    loses nothing.
    """
    for masked, other in (op.operands, op.operands[::-1]):
        wanted, maker = number_of(other), masked.producer
        if wanted is None or other.tensor.dtype.is_float or maker is None:
            continue
        while maker.declared is prims.CAST and _keeps_integers(maker) and maker.operands[0].producer is not None:
            maker = maker.operands[0].producer
        if maker.declared not in (prims.BITWISE_AND, prims.BITWISE_OR):
            continue
        for mask in map(number_of, maker.operands):
            if mask is None:
                continue
            impossible = int(wanted) & ~int(mask) if maker.declared is prims.BITWISE_AND else int(mask) & ~int(wanted)
            if impossible:
                return emit.full(op.result.tensor, op.declared is prims.NOT_EQUAL)
    return None
