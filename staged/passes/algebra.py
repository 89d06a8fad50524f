"""The rules of `simplify`: each looks at one op, whose operands are simplified already, and gives what it equals.

Floats: only rules that keep NaN and infinities as they are (so `x * 0` stays; the sign of a zero may change).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from staged.ir.nodes import Op, Value
from staged.ir.ranges import Ranges
from staged.ir.types import Dim, DType, Extent, TensorType, Type, i64
from staged.ops.primitive import PRIMITIVES

Number = int | float | bool


class Emitter(Protocol):
    """How a rule makes new ops: at the place of the op it replaces, simplified in their turn."""

    ranges: Ranges
    transforms: int

    def emit(self, name: str, operands: Sequence[Value], **attrs: Any) -> Value: ...

    def full(self, type: TensorType, number: Number) -> Value: ...

    def place(
        self, name: str, operands: Sequence[Value], types: Sequence[Type], attrs: Any, effects: Any
    ) -> Sequence[Value]: ...


Rule = Callable[[Op, Emitter], Value | None]
RULES: dict[str, list[Rule]] = defaultdict(list)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule for the ops of these names."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name].append(function)
        return function

    return enter


# ---- numbers ------------------------------------------------------------------------------------


def number_of(value: Value) -> Number | None:
    """The number that every element of `value` is, if that is known."""
    producer = value.producer
    while producer is not None and producer.name == "broadcast_to":
        producer = producer.operands[0].producer
    if producer is None or producer.name != "constant":
        return None
    number = producer.attrs["value"]
    return number if isinstance(number, bool | int | float) else None


def made_by(value: Value, name: str) -> Op | None:
    """The op that makes `value`, if it is a `name`."""
    producer = value.producer
    return producer if producer is not None and producer.name == name else None


def fold_constants(op: Op, emit: Emitter) -> Value | None:
    """An elementwise op on known numbers  ->  the number

    Leaves: results that are NaN or infinite, and what would stop the program: both are the program's to show.
    """
    primitive = PRIMITIVES.get(op.name)
    if primitive is None or primitive.kind != "elementwise" or not op.operands:
        return None
    if any(isinstance(value, Dim) for value in op.attrs.values()):
        return None  # a check against what the program knows alone
    numbers = [number_of(operand) for operand in op.operands]
    if any(number is None for number in numbers):
        return None
    given = [np.asarray(n, v.tensor.dtype.numpy) for n, v in zip(numbers, op.operands, strict=True)]
    if op.name in ("floor_divide", "remainder", "pow") and not given[-1] > 0:
        return None
    with np.errstate(all="ignore"):
        number = np.asarray(primitive.reference(*given, **op.attrs)).item()
    if isinstance(number, float) and not math.isfinite(number):
        return None
    return emit.full(op.result.tensor, number)


# ---- arithmetic ---------------------------------------------------------------------------------


def empty_result(op: Op, emit: Emitter) -> Value | None:
    """An array without elements is as good as any other of its type."""
    type_ = op.result.type
    if op.effects or op.name not in PRIMITIVES or not isinstance(type_, TensorType) or not type_.is_static:
        return None
    if type_.size or op.name == "constant":
        return None
    if op.name == "broadcast_to" and op.operands[0].producer and op.operands[0].producer.name == "constant":
        return None  # it is that already
    return emit.full(type_, 0)


@rule("sum", "prod", "any", "all")
def reduction_of_nothing(op: Op, emit: Emitter) -> Value | None:
    """sum over no elements  ->  0, prod  ->  1, any  ->  False, all  ->  True"""
    (x,) = op.operands
    if not x.tensor.is_static or x.tensor.size:
        return None
    return emit.full(op.result.tensor, 1 if op.name in ("prod", "all") else 0)


@rule("sum", "prod", "max", "min", "any", "all")
def reduction_of_one(op: Op, emit: Emitter) -> Value | None:
    """sum(x) over axes of one element  ->  reshape(x)"""
    (x,) = op.operands
    if any(x.tensor.shape[axis] != 1 for axis in op.attrs["axes"]) or x.tensor.dtype != op.result.tensor.dtype:
        return None
    return emit.emit("reshape", [x], shape=op.result.tensor.shape)


@rule("matmul", "conv2d", "conv2d_backward_input", "conv2d_backward_weight")
def product_of_nothing(op: Op, emit: Emitter) -> Value | None:
    """x @ y, where one of them has no elements  ->  0"""
    if not any(operand.tensor.is_static and operand.tensor.size == 0 for operand in op.operands):
        return None
    return emit.full(op.result.tensor, 0)


@rule("dynamic_slice", "dynamic_update")
def start_of_whole_axis(op: Op, emit: Emitter) -> Value | None:
    """A slice of a whole axis starts at 0, whatever its index is called: nobody needs to be told."""
    sizes = op.attrs["sizes"] if op.name == "dynamic_slice" else op.operands[1].tensor.shape
    given = op.operands[1:] if op.name == "dynamic_slice" else op.operands[2:]
    extents = op.operands[0].tensor.shape
    starts = [
        emit.full(start.tensor, 0) if size == extent and number_of(start) is None else start
        for start, size, extent in zip(given, sizes, extents, strict=True)
    ]
    if all(new is old for new, old in zip(starts, given, strict=True)):
        return None
    return emit.emit(op.name, [*op.operands[: -len(starts)], *starts], **op.attrs)


@rule("argmax", "argmin")
def position_of_one(op: Op, emit: Emitter) -> Value | None:
    """argmax(x) along an axis of one element  ->  0"""
    if op.operands[0].tensor.shape[op.attrs["axis"]] != 1:
        return None
    return emit.full(op.result.tensor, 0)


@rule("add")
def add_zero(op: Op, emit: Emitter) -> Value | None:
    """x + 0  ->  x"""
    a, b = op.operands
    if number_of(b) == 0:
        return a
    return b if number_of(a) == 0 else None


@rule("add")
def add_negative(op: Op, emit: Emitter) -> Value | None:
    """x + -y  ->  x - y"""
    a, b = op.operands
    if turned := made_by(b, "negative"):
        return emit.emit("subtract", [a, turned.operands[0]])
    if turned := made_by(a, "negative"):
        return emit.emit("subtract", [b, turned.operands[0]])
    return None


@rule("add")
def add_side_by_side(op: Op, emit: Emitter) -> Value | None:
    """pad(u) + pad(v), where v begins in the axis where u ends  ->  pad(concat(u, v))

    Why: the cotangent of what `split` cut up is its pieces, put together; as a sum it is written once for each of them.
    """
    first, second = map(_place_along_axis, op.operands)
    if first is None or second is None or first[0] != second[0]:
        return None
    axis = first[0]
    pieces = sorted((first[1:], second[1:]), key=lambda piece: piece[0])
    if pieces[0][1] != pieces[1][0]:
        return None
    whole = op.result.tensor.shape[axis]
    if not isinstance(whole, int):
        return None
    joined = emit.emit("concat", [piece for _, _, piece in pieces], axis=axis)
    low, high = ([0] * op.result.tensor.ndim for _ in range(2))
    low[axis], high[axis] = pieces[0][0], whole - pieces[1][1]
    return emit.emit("pad", [joined], low=tuple(low), high=tuple(high), value=0)


def _place_along_axis(x: Value) -> tuple[int, int, int, Value] | None:
    """(axis, begin, end, u) if `x` is `u` at that place of an axis, and 0 around it."""
    op = made_by(x, "pad")
    if op is None or op.attrs["value"] != 0 or min(*op.attrs["low"], *op.attrs["high"]) < 0:
        return None
    axes = [axis for axis, around in enumerate(zip(op.attrs["low"], op.attrs["high"], strict=True)) if any(around)]
    (piece,) = op.operands
    if len(axes) != 1 or not isinstance(extent := piece.tensor.shape[axes[0]], int):
        return None
    begin: int = op.attrs["low"][axes[0]]
    return axes[0], begin, begin + extent, piece


@rule("add")
def add_into_place(op: Op, emit: Emitter) -> Value | None:
    """x + dynamic_update(zeros, u, start)  ->  dynamic_update(x, dynamic_slice(x, start) + u, start)

    Why: the cotangent of `x[i]` is zero but for one place; adding it whole in a loop over `i` costs the square.
    """
    for total, term in (op.operands, op.operands[::-1]):
        update = made_by(term, "dynamic_update")
        if update is not None and number_of(update.operands[0]) == 0:
            _, piece, *start = update.operands
            before = emit.emit("dynamic_slice", [total, *start], sizes=piece.tensor.shape)
            return emit.emit("dynamic_update", [total, emit.emit("add", [before, piece]), *start])
    return None


@rule("add")
def add_into_slice(op: Op, emit: Emitter) -> Value | None:
    """x + pad(u), where u is a small part of x  ->  dynamic_update(x, dynamic_slice(x, place) + u, place)

    Why: as for `add_into_place`, for `x[2:4]`. A large part is left to fusion, which adds it as it goes along.
    """
    for total, term in (op.operands, op.operands[::-1]):
        pad = made_by(term, "pad")
        if pad is None or pad.attrs["value"] != 0 or min(*pad.attrs["low"], *pad.attrs["high"]) < 0:
            continue
        (piece,) = pad.operands
        if term.tensor.is_static and piece.tensor.size * 8 <= term.tensor.size:
            start = [emit.full(TensorType(i64), low) for low in pad.attrs["low"]]
            before = emit.emit("dynamic_slice", [total, *start], sizes=piece.tensor.shape)
            return emit.emit("dynamic_update", [total, emit.emit("add", [before, piece]), *start])
    return None


@rule("add")
def add_into_scattered(op: Op, emit: Emitter) -> Value | None:
    """x + scatter_add(zeros, indices, u)  ->  scatter_add(x, indices, u)

    Why: as for `add_into_place`; the gradient of an embedding touches few of its rows.
    """
    for total, term in (op.operands, op.operands[::-1]):
        for name in ("scatter_add", "scatter_add_along"):
            scatter = made_by(term, name)
            if scatter is not None and not scatter.effects and number_of(scatter.operands[0]) == 0:
                return emit.emit(name, [total, *scatter.operands[1:]], **scatter.attrs)
    return None


@rule("subtract")
def subtract_zero(op: Op, emit: Emitter) -> Value | None:
    """x - 0  ->  x;  0 - x  ->  -x;  x - -y  ->  x + y"""
    a, b = op.operands
    if number_of(b) == 0:
        return a
    if number_of(a) == 0:
        return emit.emit("negative", [b])
    turned = made_by(b, "negative")
    return emit.emit("add", [a, turned.operands[0]]) if turned else None


@rule("multiply")
def multiply_by_one(op: Op, emit: Emitter) -> Value | None:
    """x * 1  ->  x;  x * -1  ->  -x;  for integers x * 0  ->  0"""
    for x, other in (op.operands, op.operands[::-1]):
        number = number_of(other)
        if number == 1:
            return x
        if number == -1:
            return emit.emit("negative", [x])
        if number == 0 and op.result.tensor.dtype.is_integer:
            return other
    return None


@rule("multiply")
def multiply_negatives(op: Op, emit: Emitter) -> Value | None:
    """-a * -b  ->  a * b;  -a * number  ->  a * -number"""
    a, b = op.operands
    left, right = made_by(a, "negative"), made_by(b, "negative")
    if left and right:
        return emit.emit("multiply", [left.operands[0], right.operands[0]])
    for turned, other in ((left, b), (right, a)):
        number = number_of(other)
        if turned and number is not None:
            return emit.emit("multiply", [turned.operands[0], emit.full(other.tensor, -number)])
    return None


@rule("divide")
def divide_by_number(op: Op, emit: Emitter) -> Value | None:
    """x / 1  ->  x;  x / 2^n  ->  x * 2^-n, which is exact"""
    a, b = op.operands
    number = number_of(b)
    if number is None or not number:
        return None
    if number == 1:
        return a
    mantissa, exponent = math.frexp(number)
    if abs(mantissa) == 0.5 and abs(exponent) < 100:
        return emit.emit("multiply", [a, emit.full(b.tensor, 1 / number)])
    return None


@rule("negative")
def negative_of_negative(op: Op, emit: Emitter) -> Value | None:
    """-(-x)  ->  x;  -(a - b)  ->  b - a"""
    (x,) = op.operands
    if turned := made_by(x, "negative"):
        return turned.operands[0]
    difference = made_by(x, "subtract")
    return emit.emit("subtract", difference.operands[::-1]) if difference else None


@rule("maximum", "minimum")
def extremum_of_same(op: Op, emit: Emitter) -> Value | None:
    """maximum(x, x)  ->  x;  and where the ranges of two indices do not overlap, the one that wins"""
    a, b = op.operands
    if a is b:
        return a
    if a.tensor.shape or not a.tensor.dtype.is_integer:
        return None
    first, second = emit.ranges.of(a), emit.ranges.of(b)
    if first is None or second is None:
        return None
    if op.name == "minimum":
        first, second = second, first
    if first[0] >= second[1]:
        return a if op.name == "maximum" else b
    if second[0] >= first[1]:
        return b if op.name == "maximum" else a
    return None


@rule("floor_divide", "remainder")
def division_that_cannot_fail(op: Op, emit: Emitter) -> Value | None:
    """An integer division by a number other than zero has no effect: it cannot stop the program."""
    number = number_of(op.operands[1])
    if not op.effects or not number:
        return None
    return emit.place(op.name, op.operands, [op.result.type], op.attrs, ())[0]


# ---- bools and choices --------------------------------------------------------------------------


@rule("select")
def select_known(op: Op, emit: Emitter) -> Value | None:
    """select(True, a, b)  ->  a;  select(c, a, a)  ->  a;  select(not c, a, b)  ->  select(c, b, a)"""
    condition, a, b = op.operands
    if a is b:
        return a
    number = number_of(condition)
    if number is not None:
        return a if number else b
    inverted = made_by(condition, "logical_not")
    return emit.emit("select", [inverted.operands[0], b, a]) if inverted else None


@rule("logical_and", "logical_or")
def logic_with_known(op: Op, emit: Emitter) -> Value | None:
    """x and True  ->  x;  x and False  ->  False;  x and x  ->  x;  the same for `or`"""
    a, b = op.operands
    if a is b:
        return a
    for x, other in ((a, b), (b, a)):
        number = number_of(other)
        if number is not None:
            return x if bool(number) == (op.name == "logical_and") else other
    return None


@rule("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
def compare_with_itself(op: Op, emit: Emitter) -> Value | None:
    """n == n  ->  True;  n < n  ->  False;  not for floats, where NaN differs from itself

    Why: compilers warn of it, and this is how a user's `0 <= i <= i` comes out.
    """
    a, b = op.operands
    if a is not b or a.tensor.dtype.is_float:
        return None
    return emit.full(op.result.tensor, op.name in ("equal", "less_equal", "greater_equal"))


@rule("equal", "not_equal")
def compare_masked(op: Op, emit: Emitter) -> Value | None:
    """(n & 3) == 4  ->  False;  (n | 3) == 4  ->  False;  the same for `!=`, where no n can have these bits

    Why: compilers warn of it.
    """
    for masked, other in (op.operands, op.operands[::-1]):
        wanted, maker = number_of(other), masked.producer
        if wanted is None or other.tensor.dtype.is_float or maker is None:
            continue
        if maker.name not in ("bitwise_and", "bitwise_or"):
            continue
        for mask in map(number_of, maker.operands):
            if mask is None:
                continue
            impossible = int(wanted) & ~int(mask) if maker.name == "bitwise_and" else int(mask) & ~int(wanted)
            if impossible:
                return emit.full(op.result.tensor, op.name == "not_equal")
    return None


@rule("logical_not")
def not_of_not(op: Op, emit: Emitter) -> Value | None:
    """not not x  ->  x"""
    inverted = made_by(op.operands[0], "logical_not")
    return inverted.operands[0] if inverted else None


# ---- casts --------------------------------------------------------------------------------------


@rule("cast")
def cast_of_cast(op: Op, emit: Emitter) -> Value | None:
    """A cast to its own type  ->  x;  a number  ->  the number;  cast(cast(x, wider), t)  ->  cast(x, t)"""
    (x,) = op.operands
    wanted = op.result.tensor
    if x.type == wanted:
        return x
    number = number_of(x)
    if number is not None and not (wanted.dtype.is_integer and isinstance(number, float)):
        return emit.full(wanted, np.asarray(number).astype(wanted.dtype.numpy).item())
    inner = made_by(x, "cast")
    if inner is not None and _holds(x.tensor.dtype, inner.operands[0].tensor.dtype):
        return emit.emit("cast", [inner.operands[0]], **op.attrs)
    return None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    return wide is narrow or bool(np.can_cast(narrow.numpy, wide.numpy, "safe"))


# ---- shapes -------------------------------------------------------------------------------------


@rule("broadcast_to")
def broadcast_of_broadcast(op: Op, emit: Emitter) -> Value | None:
    """broadcast(x) to its own shape  ->  x;  broadcast(broadcast(x))  ->  broadcast(x), past added extents of one"""
    (x,) = op.operands
    shape, axes = op.attrs["shape"], op.attrs["axes"]
    if x.tensor.shape == shape and tuple(axes) == tuple(range(len(shape))):
        return x
    if inner := made_by(x, "broadcast_to"):
        composed = tuple(axes[axis] for axis in inner.attrs["axes"])
        return emit.emit("broadcast_to", [inner.operands[0]], shape=shape, axes=composed)
    if inner := made_by(x, "reshape"):
        source = inner.operands[0]
        kept = [axis for axis, extent in enumerate(x.tensor.shape) if extent != 1]
        if tuple(x.tensor.shape[axis] for axis in kept) == source.tensor.shape:
            return emit.emit("broadcast_to", [source], shape=shape, axes=tuple(axes[axis] for axis in kept))
    return None


@rule("reshape")
def reshape_of_reshape(op: Op, emit: Emitter) -> Value | None:
    """reshape(x) to its own shape  ->  x;  reshape(reshape(x))  ->  reshape(x);  of one number  ->  that number"""
    (x,) = op.operands
    if x.tensor.shape == op.attrs["shape"]:
        return x
    if inner := made_by(x, "reshape"):
        return emit.emit("reshape", [inner.operands[0]], shape=op.attrs["shape"])
    return _of_number(op, emit)


@rule("permute")
def permute_of_permute(op: Op, emit: Emitter) -> Value | None:
    """permute in order  ->  x;  permute(permute(x))  ->  permute(x);  moving only extents of one  ->  reshape"""
    (x,) = op.operands
    axes = tuple(op.attrs["axes"])
    if axes == tuple(range(len(axes))):
        return x
    if inner := made_by(x, "permute"):
        composed = tuple(inner.attrs["axes"][axis] for axis in axes)
        return emit.emit("permute", [inner.operands[0]], axes=composed)
    found = _of_number(op, emit)
    if found is not None:
        return found
    moved = [axis for axis in axes if x.tensor.shape[axis] != 1]
    if moved == sorted(moved):
        return emit.emit("reshape", [x], shape=op.result.tensor.shape)
    return None


@rule("slice")
def slice_of_all(op: Op, emit: Emitter) -> Value | None:
    """x[:]  ->  x;  a slice of one number  ->  that number"""
    (x,) = op.operands
    if x.tensor.shape == op.result.tensor.shape and all(step == 1 for step in op.attrs["step"]):
        return x
    return _of_number(op, emit)


@rule("pad")
def pad_by_nothing(op: Op, emit: Emitter) -> Value | None:
    """pad by zero elements  ->  x"""
    return op.operands[0] if op.operands[0].tensor.shape == op.result.tensor.shape else None


@rule("pad")
def pad_of_one_element(op: Op, emit: Emitter) -> Value | None:
    """pad(u) of a single element  ->  dynamic_update(full, u, place)

    Why: the cotangent of `x[0]` is one number in an array of zeros: written at its place, not asked for at every place.
    """
    (piece,) = op.operands
    if not piece.tensor.is_static or piece.tensor.size != 1 or min(op.attrs["low"]) < 0:
        return None
    if not op.result.tensor.is_static or op.result.tensor.size < 2:
        return None
    if any(low >= extent for low, extent in zip(op.attrs["low"], op.result.tensor.shape, strict=True)):
        return None
    start = [emit.full(TensorType(i64), low) for low in op.attrs["low"]]
    return emit.emit("dynamic_update", [emit.full(op.result.tensor, op.attrs["value"]), piece, *start])


@rule("concat")
def concat_of_one(op: Op, emit: Emitter) -> Value | None:
    """concat of one array  ->  it"""
    return op.operands[0] if len(op.operands) == 1 else None


@rule("concat")
def concat_of_concats(op: Op, emit: Emitter) -> Value | None:
    """concat(concat(x, y), z) along one axis  ->  concat(x, y, z)"""
    inner = [made_by(x, "concat") for x in op.operands]
    if not any(made is not None and made.attrs["axis"] == op.attrs["axis"] for made in inner):
        return None
    pieces: list[Value] = []
    for x, made in zip(op.operands, inner, strict=True):
        pieces += made.operands if made is not None and made.attrs["axis"] == op.attrs["axis"] else (x,)
    return emit.emit("concat", pieces, axis=op.attrs["axis"])


def _of_number(op: Op, emit: Emitter) -> Value | None:
    number = number_of(op.operands[0])
    return None if number is None else emit.full(op.result.tensor, number)


@rule("matmul")
def fold_transpose_into_matmul(op: Op, emit: Emitter) -> Value | None:
    """matmul(transpose(a), b)  ->  matmul(a, b, transpose_a=True)

    Why: a matrix product takes a transpose as a flag; making one reads and writes the whole matrix.
    """
    operands, attrs = list(op.operands), dict(op.attrs)
    changed = False
    for number, flag in enumerate(("transpose_a", "transpose_b")):
        transpose = made_by(operands[number], "permute")
        if transpose is not None:
            axes = tuple(transpose.attrs["axes"])
            rank = len(axes)
            if axes == (*range(rank - 2), rank - 1, rank - 2):
                operands[number] = transpose.operands[0]
                attrs[flag] = not attrs.get(flag, False)
                changed = True
    return emit.emit("matmul", operands, **attrs) if changed else None


# ---- reductions ---------------------------------------------------------------------------------


@rule("sum", "prod", "max", "min", "any", "all")
def reduce_nothing(op: Op, emit: Emitter) -> Value | None:
    """A reduction over no axes  ->  x"""
    (x,) = op.operands
    return x if not op.attrs["axes"] and x.type == op.result.type else None


@rule("sum")
def sum_of_broadcast(op: Op, emit: Emitter) -> Value | None:
    """sum of x over axes along which it was only repeated  ->  x times how often

    Why: the gradient of a mean of a mean, of a bias on a constant.
    """
    repeat = made_by(op.operands[0], "broadcast_to")
    if repeat is None or op.result.type != repeat.operands[0].tensor.with_shape(op.result.tensor.shape):
        return None
    (x,) = repeat.operands
    shape, placed, reduced = repeat.attrs["shape"], repeat.attrs["axes"], op.attrs["axes"]
    if set(placed) & set(reduced) or not all(isinstance(shape[axis], int) for axis in reduced):
        return None
    times = math.prod(shape[axis] for axis in reduced)
    left = [axis for axis in range(len(shape)) if axis not in reduced]
    scaled = emit.emit("multiply", [x, emit.full(x.tensor, times)])
    remaining: tuple[Extent, ...] = tuple(shape[axis] for axis in left)
    return emit.emit("broadcast_to", [scaled], shape=remaining, axes=tuple(left.index(axis) for axis in placed))


# ---- indices ------------------------------------------------------------------------------------


@rule("index_check")
def index_known_to_fit(op: Op, emit: Emitter) -> Value | None:
    """An index whose range is within the extent, with room for the window behind it, needs no check."""
    (index,) = op.operands
    extent = op.attrs["extent"]
    found = emit.ranges.of(index)
    width = op.attrs.get("width", 1)
    width = width.max if isinstance(width, Dim) else width
    if found is None or width is None or not isinstance(extent, int) or not 0 <= found[0] <= found[1] <= extent - width:
        return None
    return index if index.type == op.result.type else None


@rule("dynamic_slice")
def read_what_was_written(op: Op, emit: Emitter) -> Value | None:
    """dynamic_slice(dynamic_update(x, u, start), start)  ->  u, where all of u is read"""
    x, *start = op.operands
    update = made_by(x, "dynamic_update")
    if update is None or list(update.operands[2:]) != start or update.operands[1].type != op.result.type:
        return None
    return update.operands[1]


@rule("stop_gradient")
def forget_stop_gradient(op: Op, emit: Emitter) -> Value | None:
    """stop_gradient(x)  ->  x, where no transform is left that would ask"""
    return None if emit.transforms else op.operands[0]
