"""The rules of `simplify`: each looks at one op, whose operands are simplified already, and gives what it equals. Here
those that compute; `comparisons.py` has those that compare, `movement.py` those that move elements, `partial_sums.py`
those for sums that are mostly of zeros.

A rule gives the same bits, of NaN, infinities and the sign of a zero too (so `x * 0` and `x + 0` of floats stay); the
line of its docstring that begins with `Exact:` says when that is so. Sums of cotangents (`accumulate`) alone may take a
zero for nothing.

Tested by `tests/passes/test_rules.py` and `tests/passes/test_simplify.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from staged.errors import StagedError
from staged.ir.declaration import Declaration, prims, reductions
from staged.ir.nodes import Op, Value
from staged.ir.numbers import Number, as_held, fits, initial_value, limits
from staged.ir.ranges import Ranges
from staged.ir.sizes import Extent, Size
from staged.ir.types import DType, TensorType, Type
from staged.ops.primitive import Primitive


class Emitter(Protocol):
    """Makes the new ops of a rule: at the place of the op that it replaces, simplified themselves."""

    ranges: Ranges
    transforms: int

    def emit(self, primitive: Declaration, operands: Sequence[Value], **attrs: Any) -> Value: ...

    def existing(self, primitive: Declaration, operands: Sequence[Value], **attrs: Any) -> Value | None: ...

    def full(self, type: TensorType, number: Number) -> Value: ...

    def intern(
        self, declared: Declaration, operands: Sequence[Value], types: Sequence[Type], attrs: Any, effects: Any
    ) -> Sequence[Value]: ...


Rule = Callable[[Op, Emitter], Value | None]
RULES: dict[Declaration, list[Rule]] = defaultdict(list)


def rule(*declarations: Declaration) -> Callable[[Rule], Rule]:
    """Enter a rule for these ops."""

    def enter(function: Rule) -> Rule:
        for declared in declarations:
            RULES[declared].append(function)
        return function

    return enter


# ---- numbers ------------------------------------------------------------------------------------


def number_of(value: Value) -> Number | None:
    """The number that every element of `value` is, if that is known."""
    made = value.behind(prims.BROADCAST_TO).made_by(prims.CONSTANT)
    number = None if made is None else made.attrs["value"]
    return number if isinstance(number, bool | int | float) else None


def adds_nothing(number: Number | None, op: Op) -> bool:
    """Return whether a sum with this number is the other operand: an integer 0, the float -0.0 (-0.0 + 0.0 is 0.0), any
    0 of a cotangent.
    """
    if number is None or number != 0:
        return False
    return op.declared is prims.ACCUMULATE or not op.result.tensor.dtype.is_float or math.copysign(1.0, number) < 0


def fold_constants(op: Op, emit: Emitter) -> Value | None:
    """An elementwise op on known numbers  ->  the number

    Leaves: results that are NaN or infinite, and what would stop the program: both are the program's to show.
    Exact: the op's own meaning in its dtype; maths functions (`exp`) may differ from the program's by their rounding.
    """
    primitive = op.declared
    if not isinstance(primitive, Primitive) or primitive.kind != "elementwise" or not op.operands:
        return None
    if any(isinstance(value, Size) for value in op.attrs.values()):
        return None  # a check against what the program knows alone
    numbers = [number_of(operand) for operand in op.operands]
    if any(number is None for number in numbers):
        return None
    given = [
        np.asarray(as_held(n, v.tensor.dtype), v.tensor.dtype.numpy)
        for n, v in zip(numbers, op.operands, strict=True)
        if n is not None
    ]
    if op.declared in (prims.FLOOR_DIVIDE, prims.REMAINDER, prims.POW) and not given[-1] > 0:
        return None
    try:
        with np.errstate(all="ignore"):
            number = np.asarray(primitive.reference(*given, **op.attrs)).item()
    except StagedError:
        return None  # it stops the program, where the program gets there
    if isinstance(number, float) and not math.isfinite(number):
        return None
    return emit.full(op.result.tensor, number)


# ---- arithmetic ---------------------------------------------------------------------------------


def empty_result(op: Op, emit: Emitter) -> Value | None:
    """An op that gives an array without elements  ->  such an array

    Exact: two of them differ in nothing; an op with effects stays, except for a check of no elements.
    """
    type_ = op.result.type
    if op.declared.kind == "structured" or not isinstance(type_, TensorType) or not type_.is_static:
        return None
    if op.effects and op.declared.kind != "elementwise":
        indices = op.operands[1].tensor if op.declared.kind == "index" else None
        if indices is None or not indices.is_static or indices.size:
            return None
    if type_.size or op.declared is prims.CONSTANT:
        return None
    if (
        op.declared is prims.BROADCAST_TO
        and op.operands[0].producer
        and op.operands[0].producer.declared is prims.CONSTANT
    ):
        return None  # it is that already
    return emit.full(type_, 0)


@rule(*reductions())
def reduction_of_nothing(op: Op, emit: Emitter) -> Value | None:
    """sum over no elements  ->  0, prod  ->  1, any  ->  False, all  ->  True

    Exact: by the meaning of these ops; `max` and `min` of nothing are refused before.
    """
    (x,) = op.operands
    if not x.tensor.is_static or x.tensor.size or op.declared.is_extreme:
        return None
    return emit.full(op.result.tensor, initial_value(op.declared, op.result.tensor.dtype))


@rule(*reductions())
def reduction_of_one(op: Op, emit: Emitter) -> Value | None:
    """sum(x) over axes of one element, or over none  ->  reshape(x), for a sum of floats + 0

    Exact: a sum begins at 0, so that the sum of -0.0 is 0.0; a product begins at 1, and x * 1 is x; extremes begin at
    x.
    """
    (x,) = op.operands
    if any(x.tensor.shape[axis] != 1 for axis in op.attrs["axes"]) or x.tensor.dtype != op.result.tensor.dtype:
        return None
    return _from_zero(op, emit.emit(prims.RESHAPE, [x], shape=op.result.tensor.shape), emit)


def _from_zero(op: Op, x: Value, emit: Emitter) -> Value:
    """The result of a sum that came to `x`: a sum of floats begins at 0.0, so that it is never -0.0."""
    if op.declared is not prims.SUM or not x.tensor.dtype.is_float:
        return x
    return emit.emit(prims.ADD, [x, emit.full(x.tensor, 0.0)])


@rule(prims.MATMUL, prims.CONV2D, prims.CONV2D_BACKWARD_INPUT, prims.CONV2D_BACKWARD_WEIGHT)
def product_of_nothing(op: Op, emit: Emitter) -> Value | None:
    """x @ y, where one of them has no elements, or a convolution whose windows see padding alone  ->  0

    Exact: every element of the result is a sum of no products; NaN in the other operand is in none of them.
    """
    is_empty = any(operand.tensor.is_static and operand.tensor.size == 0 for operand in op.operands)
    if not is_empty and (op.declared is prims.MATMUL or _sees_image(op)):
        return None
    return emit.full(op.result.tensor, 0)


def _sees_image(op: Op) -> bool:
    """Return whether any window of a convolution, or of one of its gradients, covers a pixel of the image, which one
    of a size that the program finds may do.
    """
    first, second = (operand.tensor.shape for operand in op.operands)
    image, weight, out = {
        prims.CONV2D: (first, second, op.result.tensor.shape),
        prims.CONV2D_BACKWARD_INPUT: (op.attrs.get("input_shape", ()), second, first),
        prims.CONV2D_BACKWARD_WEIGHT: (first, op.attrs.get("weight_shape", ()), second),
    }[op.declared]
    steps = (op.attrs["stride"], op.attrs["dilation"], op.attrs["padding"])
    return all(
        isinstance(size, Size)
        or any(0 <= o * stride + tap * dilation - padding < size for o in range(places) for tap in range(taps))
        for size, taps, places, stride, dilation, padding in zip(image[2:], weight[2:], out[2:], *steps, strict=True)
    )


@rule(prims.ARGMAX, prims.ARGMIN)
def position_of_one(op: Op, emit: Emitter) -> Value | None:
    """argmax(x) along an axis of one element  ->  0

    Exact: for NaN too: the only element is the first one.
    """
    if op.operands[0].tensor.shape[op.attrs["axis"]] != 1:
        return None
    return emit.full(op.result.tensor, 0)


@rule(prims.ADD, prims.ACCUMULATE)
def add_zero(op: Op, emit: Emitter) -> Value | None:
    """x + 0  ->  x

    Exact: for integers; for floats where the zero is -0.0, since -0.0 + 0.0 is 0.0; of cotangents every zero is
    nothing.
    """
    a, b = op.operands
    if adds_nothing(number_of(b), op):
        return a
    return b if adds_nothing(number_of(a), op) else None


@rule(prims.ADD, prims.ACCUMULATE)
def add_negative(op: Op, emit: Emitter) -> Value | None:
    """x + -y  ->  x - y

    Exact: IEEE defines x - y as x + -y; integers wrap around alike.
    """
    a, b = op.operands
    if turned := b.made_by(prims.NEGATIVE):
        return emit.emit(prims.SUBTRACT, [a, turned.operands[0]])
    if turned := a.made_by(prims.NEGATIVE):
        return emit.emit(prims.SUBTRACT, [b, turned.operands[0]])
    return None


@rule(prims.SUBTRACT)
def subtract_zero(op: Op, emit: Emitter) -> Value | None:
    """x - 0  ->  x;  0 - x  ->  -x;  x - -y  ->  x + y

    Exact: for integers; for floats x - 0.0 (not x - -0.0) and -0.0 - x (not 0.0 - x, which is 0.0 at 0.0), and x - -y.
    """
    a, b = op.operands
    left, right = number_of(a), number_of(b)
    if right == 0 and (not a.tensor.dtype.is_float or math.copysign(1.0, right) > 0):
        return a
    if adds_nothing(left, op):
        return emit.emit(prims.NEGATIVE, [b])
    turned = b.made_by(prims.NEGATIVE)
    return emit.emit(prims.ADD, [a, turned.operands[0]]) if turned else None


@rule(prims.MULTIPLY)
def multiply_by_one(op: Op, emit: Emitter) -> Value | None:
    """x * 1  ->  x;  x * -1  ->  -x;  for integers x * 0  ->  0

    Exact: of floats too, signs of zeros included (NaN stays NaN); x * 0 of a float is NaN for infinities and NaN, and
    stays.
    """
    for x, other in (op.operands, op.operands[::-1]):
        number = number_of(other)
        if number == 1:
            return x
        if number == -1:
            return emit.emit(prims.NEGATIVE, [x])
        if number == 0 and op.result.tensor.dtype.is_integer:
            return other
    return None


@rule(prims.MULTIPLY)
def multiply_negatives(op: Op, emit: Emitter) -> Value | None:
    """-a * -b  ->  a * b;  -a * number  ->  a * -number

    Exact: the sign of a float's product is that of its factors, zeros included; integers wrap around, the number too.
    """
    a, b = op.operands
    left, right = a.made_by(prims.NEGATIVE), b.made_by(prims.NEGATIVE)
    if left and right:
        return emit.emit(prims.MULTIPLY, [left.operands[0], right.operands[0]])
    for turned, other in ((left, b), (right, a)):
        number = number_of(other)
        if turned and number is not None:
            return emit.emit(prims.MULTIPLY, [turned.operands[0], emit.full(other.tensor, -number)])
    return None


@rule(prims.DIVIDE)
def divide_by_number(op: Op, emit: Emitter) -> Value | None:
    """x / 1  ->  x;  x / 2^n  ->  x * 2^-n

    Exact: where 2^-n is a number of the dtype: quotient and product are then the same number, rounded once. No other
    reciprocal.
    """
    a, b = op.operands
    number = number_of(b)
    if number is None or not number:
        return None
    if number == 1:
        return a
    mantissa, exponent = math.frexp(number)
    if abs(mantissa) == 0.5 and abs(exponent) < 100:
        return emit.emit(prims.MULTIPLY, [a, emit.full(b.tensor, 1 / number)])
    return None


@rule(prims.NEGATIVE)
def negative_of_negative(op: Op, emit: Emitter) -> Value | None:
    """-(-x)  ->  x;  -(a - b)  ->  b - a

    Exact: -(-x) always; the other for integers, as -(a - a) of floats is -0.0.
    """
    (x,) = op.operands
    if turned := x.made_by(prims.NEGATIVE):
        return turned.operands[0]
    difference = None if x.tensor.dtype.is_float else x.made_by(prims.SUBTRACT)
    return emit.emit(prims.SUBTRACT, difference.operands[::-1]) if difference else None


@rule(prims.MAXIMUM, prims.MINIMUM)
def extremum_of_same(op: Op, emit: Emitter) -> Value | None:
    """maximum(x, x)  ->  x;  and where the ranges of two indices do not overlap, the one that wins

    Exact: of one value with itself, NaN included; ranges are those of integers that do not wrap around.
    """
    a, b = op.operands
    if a is b:
        return a
    if a.tensor.shape or not a.tensor.dtype.is_integer:
        return None
    first, second = emit.ranges.of(a), emit.ranges.of(b)
    if first is None or second is None:
        return None
    if first[0] >= second[1]:
        larger, smaller = a, b
    elif second[0] >= first[1]:
        larger, smaller = b, a
    else:
        return None
    return larger if op.declared is prims.MAXIMUM else smaller


@rule(prims.FLOOR_DIVIDE, prims.REMAINDER)
def division_that_cannot_fail(op: Op, emit: Emitter) -> Value | None:
    """n // 3 that may stop the program  ->  n // 3 that cannot

    Exact: for integers by any number but 0; the least integer by -1 wraps around, and stops nothing.
    """
    number = number_of(op.operands[1])
    if not op.effects or not number:
        return None
    return emit.intern(op.declared, op.operands, [op.result.type], op.attrs, ())[0]


# ---- bools and choices --------------------------------------------------------------------------


@rule(prims.SELECT)
def select_known(op: Op, emit: Emitter) -> Value | None:
    """select(True, a, b)  ->  a;  select(c, a, a)  ->  a;  select(not c, a, b)  ->  select(c, b, a)

    Exact: a choice copies bits; both values are computed anyway.
    """
    condition, a, b = op.operands
    if a is b:
        return a
    number = number_of(condition)
    if number is not None:
        return a if number else b
    inverted = condition.made_by(prims.LOGICAL_NOT)
    return emit.emit(prims.SELECT, [inverted.operands[0], b, a]) if inverted else None


@rule(prims.LOGICAL_AND, prims.LOGICAL_OR)
def logic_with_known(op: Op, emit: Emitter) -> Value | None:
    """x and True  ->  x;  x and False  ->  False;  x and x  ->  x;  the same for `or`

    Exact: of bools; what could stop the program is an op of its own and stays.
    """
    a, b = op.operands
    if a is b:
        return a
    for x, other in ((a, b), (b, a)):
        number = number_of(other)
        if number is not None:
            return x if bool(number) == (op.declared is prims.LOGICAL_AND) else other
    return None


@rule(prims.BITWISE_OR, prims.BITWISE_XOR, prims.BITWISE_LEFT_SHIFT, prims.BITWISE_RIGHT_SHIFT)
def bits_with_nothing(op: Op, emit: Emitter) -> Value | None:
    """n | 0  ->  n;  n ^ 0  ->  n;  n << 0  ->  n;  n >> 0  ->  n

    Why: compilers see through it, and warn of what they then know.
    Exact: always.
    """
    a, b = op.operands
    if number_of(b) == 0:
        return a
    return b if number_of(a) == 0 and op.declared in (prims.BITWISE_OR, prims.BITWISE_XOR) else None


@rule(prims.LOGICAL_NOT)
def not_of_not(op: Op, emit: Emitter) -> Value | None:
    """not not x  ->  x

    Exact: of bools.
    """
    inverted = op.operands[0].made_by(prims.LOGICAL_NOT)
    return inverted.operands[0] if inverted else None


# ---- casts --------------------------------------------------------------------------------------


@rule(prims.CAST)
def cast_of_cast(op: Op, emit: Emitter) -> Value | None:
    """A cast to its own type  ->  x;  a number  ->  the number;  cast(cast(x, wider), t)  ->  cast(x, t)

    Exact: where `wider` has every value of x's dtype (f64 has not every i64) and both ways into an integer treat what
    does not fit alike: integers wrap around, floats do not.
    """
    (x,) = op.operands
    wanted = op.result.tensor
    if x.type == wanted:
        return x
    number = number_of(x)
    if number is not None and not (wanted.dtype.is_integer and isinstance(number, float)):
        return emit.full(wanted, as_held(number, x.tensor.dtype))
    inner = x.made_by(prims.CAST)
    if inner is None:
        return None
    (source,) = inner.operands
    first, wide = source.tensor.dtype, x.tensor.dtype
    wraps = first.is_integer and wide.is_float and wanted.dtype.is_integer and not fits(limits(first), wanted.dtype)
    return emit.emit(prims.CAST, [source], **op.attrs) if _holds(wide, first) and not wraps else None


@rule(prims.FIT)
def number_known_to_fit(op: Op, emit: Emitter) -> Value | None:
    """An integer whose range is within the dtype that it adopts  ->  a cast, without a check

    Exact: ranges are those of integers that do not wrap around. Without the effect of a check it has been made before.
    """
    (x,) = op.operands
    wanted = op.result.tensor.dtype
    return emit.emit(prims.CAST, [x], dtype=wanted) if not op.effects or fits(emit.ranges.of(x), wanted) else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Return whether every value of `narrow` is one of `wide`."""
    if wide is narrow or narrow.is_bool:
        return True
    if narrow.is_integer and wide.is_float:
        bits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[wide.name]  # f32 has all integers to 2^24
        return max(map(abs, limits(narrow))) <= 1 << bits
    if narrow.is_integer:
        return fits(limits(narrow), wide)
    return wide.is_float and wide.size > narrow.size


# ---- reductions ---------------------------------------------------------------------------------


@rule(prims.MAX, prims.MIN, prims.ANY, prims.ALL)
def extreme_of_broadcast(op: Op, emit: Emitter) -> Value | None:
    """max of x over axes along which it was only repeated  ->  x, repeated along the others

    Exact: the same number taken twice is that number, NaN and the sign of zero too. Not of no elements.
    """
    found = _past_repeats(op)
    if found is None:
        return None
    x, _, shape, axes = found
    return emit.emit(prims.BROADCAST_TO, [x], shape=shape, axes=axes)


@rule(prims.ARGMAX, prims.ARGMIN)
def place_in_broadcast(op: Op, emit: Emitter) -> Value | None:
    """argmax of x over an axis along which it was only repeated  ->  0

    Exact: of equal elements the first is taken, of NaN too. Not of no elements.
    """
    return None if _past_repeats(op) is None else emit.full(op.result.tensor, 0)


def _past_repeats(op: Op) -> tuple[Value, int, tuple[Extent, ...], tuple[int, ...]] | None:
    """(array that a reduction's operand repeats along all reduced axes, count above 0,
    shape and axes without these)."""
    repeat = op.operands[0].made_by(prims.BROADCAST_TO)
    if repeat is None:
        return None
    shape, placed = repeat.attrs["shape"], repeat.attrs["axes"]
    reduced = op.attrs["axes"] if "axes" in op.attrs else (op.attrs["axis"],)
    if set(placed) & set(reduced) or not all(isinstance(shape[axis], int) and shape[axis] > 0 for axis in reduced):
        return None
    times = math.prod(shape[axis] for axis in reduced)
    left = [axis for axis in range(len(shape)) if axis not in reduced]
    return repeat.operands[0], times, tuple(shape[axis] for axis in left), tuple(left.index(axis) for axis in placed)


@rule(prims.SUM)
def sum_of_broadcast(op: Op, emit: Emitter) -> Value | None:
    """sum of x over axes along which it was only repeated  ->  x times how often

    Why: the gradient of a mean of a mean, of a bias on a constant.
    Exact: for integers, which wrap around alike; of floats it is the sum rounded fewer times, begun at 0. Not of no
    elements.
    """
    found = _past_repeats(op)
    if found is None or op.result.type != found[0].tensor.with_shape(op.result.tensor.shape):
        return None
    x, times, shape, axes = found
    scaled = _from_zero(op, emit.emit(prims.MULTIPLY, [x, emit.full(x.tensor, times)]), emit)
    return emit.emit(prims.BROADCAST_TO, [scaled], shape=shape, axes=axes)
