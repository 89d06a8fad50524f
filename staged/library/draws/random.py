"""Counter-based random numbers: Philox4x32-10, the same bits in eager mode, C and CUDA.

Every random op has the operands (seed, stream, counter), i64 scalars: `stream` tells call sites apart, `counter` counts
executions. Nothing is carried from one number to the next, so any element can be made alone. `philox.py` has the
mapping.

With `first`, the last operand is the number of the first element: so a rank draws its rows of a larger array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError, article
from staged.ir.numbers import limits
from staged.ir.sizes import product
from staged.ir.types import DType, Shape, TensorType, bool_, f32, f64, i32, i64, u32, u64
from staged.library.draws import philox
from staged.library.draws.philox import LOW_WORD, Data
from staged.library.sequences.loop import scan
from staged.library.special.elementary import nextafter
from staged.ops.array import Array
from staged.ops.checks import check_sizes, stop_unless
from staged.ops.choice import where
from staged.ops.comparisons import bitwise_right_shift, logical_and
from staged.ops.context import bind, current_context
from staged.ops.dimension import as_extent, size_number
from staged.ops.dynamic_slice import dynamic_slice
from staged.ops.elementwise import maximum
from staged.ops.index import take
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    as_array,
    axis_of,
    broadcast_shapes,
    cast,
    check_argument,
    check_dtype,
    check_fits,
    check_real,
    dtype_error,
    is_number,
    shape_error,
    whole,
)
from staged.ops.public import Option, public
from staged.ops.ranks import rank, static_ranks
from staged.ops.reduction import any_
from staged.ops.shape import broadcast_to
from staged.ops.source import static_shape

# ---- the primitives -------------------------------------------------------------------------------


def check_key(name: str, *key: TensorType) -> None:
    for what, operand in zip(("seed", "stream", "counter"), key, strict=True):
        if operand.shape or operand.dtype is not i64:
            raise DTypeError(f"{name}: the {what} is an i64 scalar, got {operand}")


def _check_float(name: str, dtype: DType) -> None:
    if not dtype.is_float:
        raise DTypeError(f"{name} makes floats, not {dtype}", hint="use `st.random.integers` for integers")


def _infer_floats(name: str) -> Callable[..., TensorType]:
    def infer(seed: TensorType, stream: TensorType, counter: TensorType, shape: Shape, dtype: DType) -> TensorType:
        check_key(name, seed, stream, counter)
        _check_float(name, dtype)
        return TensorType(dtype, shape)

    return infer


def _infer_bits(seed: TensorType, stream: TensorType, counter: TensorType, shape: Shape) -> TensorType:
    check_key("random_bits", seed, stream, counter)
    return TensorType(u32, shape)


def _infer_bernoulli(
    seed: TensorType, stream: TensorType, counter: TensorType, p: TensorType, shape: Shape
) -> TensorType:
    check_key("bernoulli", seed, stream, counter)
    if p.shape or p.dtype is not f32:
        raise DTypeError(f"bernoulli: the probability is an f32 scalar, got {p}")
    return TensorType(bool_, shape)


def from_first(infer: Callable[..., TensorType]) -> Callable[..., TensorType]:
    """A type rule for operands that may end with the number of the first element."""

    def with_first(*operands: TensorType, first: bool = False, **attrs: Any) -> TensorType:
        if first and (operands[-1].shape or operands[-1].dtype is not i64):
            raise DTypeError(
                f"the number of the first element must be an i64 scalar, got {operands[-1]}",
                hint="cast it: `st.astype(n, st.i64)`",
            )
        return infer(*(operands[:-1] if first else operands), **attrs)

    return with_first


def elements_from(reference: Callable[..., Data]) -> Callable[..., Data]:
    """The meaning of an op whose operands may end with the number of the first element."""

    def with_first(*operands: Data, first: bool = False, **attrs: Any) -> Data:
        if not first:
            return reference(*operands, **attrs)
        *rest, last = operands
        begin = int(last)
        if "shape" in attrs:
            shape = attrs.pop("shape")
            return reference(*rest, shape=(begin + math.prod(shape),), **attrs)[begin:].reshape(shape)
        seed, stream, counter, *given = rest
        shape = given[0].shape
        longer = [np.concatenate([np.ones(begin), one.reshape(-1)]) for one in given]
        return reference(seed, stream, counter, *longer)[begin:].reshape(shape)

    return with_first


def _infer_permutation(seed: TensorType, stream: TensorType, counter: TensorType, n: int) -> TensorType:
    check_key("permutation", seed, stream, counter)
    return TensorType(i64, (n,))


_KEY = (np.array(7, np.int64), np.array(2, np.int64), np.array(5, np.int64))
_BAD_KEY = (TensorType(i64), TensorType(i32), TensorType(i64))
_WHY = "random draws do not depend on floats"


def _random(name: str, cases: list[dict[str, Any]], p: Any = None, **fields: Any) -> Primitive:
    more = () if p is None else (np.array(p, np.float32),)
    more_types = () if p is None else (TensorType(f32),)
    samples = [Sample((*_KEY, *more), case) for case in cases]
    if "kind" not in fields:
        samples += [Sample((*_KEY, *more, np.array(7, np.int64)), {**case, "first": True}) for case in cases[:1]]
        fields["infer"], fields["reference"] = from_first(fields["infer"]), elements_from(fields["reference"])
    return primitive(
        name=name,
        samples=samples,
        bad=[BadSample((*_BAD_KEY, *more_types), DTypeError, "the stream is an i64 scalar", cases[0])],
        why_not_differentiable=_WHY,
        **{"kind": "random", "expensive": True, **fields},
    )


_SHAPES: list[Shape] = [(2, 3), (), (0, 4), (9,)]
_FLOAT_CASES: list[dict[str, Any]] = [{"shape": shape, "dtype": dtype} for dtype in (f32, f64) for shape in _SHAPES]

_bits_op = _random(
    "random_bits",
    [{"shape": shape} for shape in _SHAPES],
    infer=_infer_bits,
    reference=philox.bits,
    doc="Random u32 words.",
)
_uniform_op = _random(
    "uniform",
    _FLOAT_CASES,
    infer=_infer_floats("uniform"),
    reference=philox.uniform,
    doc="Floats spread evenly over [0, 1).",
)
_normal_op = _random(
    "normal",
    _FLOAT_CASES,
    infer=_infer_floats("normal"),
    reference=philox.normal,
    doc="Floats from the standard normal distribution.",
)
_bernoulli_op = _random(
    "bernoulli",
    [{"shape": shape} for shape in _SHAPES],
    0.3,
    infer=_infer_bernoulli,
    reference=philox.bernoulli,
    doc="True with probability p.",
)
_permutation_op = _random(
    "permutation",
    [{"n": 1}, {"n": 10}, {"n": 0}],
    infer=_infer_permutation,
    reference=philox.permutation,
    doc="0 .. n - 1 in random order.",
    kind="shuffle",
    expensive=False,
)


# ---- public ---------------------------------------------------------------------------------------


def key_of(generator: Any) -> list[Array]:
    """(seed, stream, counter) of one execution of a random op, from the context."""
    if generator is not None and not hasattr(type(generator), "__staged_generator__"):
        raise dtype_error(f"a generator is a `st.random.Generator`, got {article(type(generator).__name__)}")
    return [cast(part, i64) for part in current_context().next_random(generator)]


def drawn(op: Primitive, operands: Sequence[Array], shape: Shape, shard: int | None, **attrs: Any) -> Array:
    """Elements of `shape`; with `shard`, the part of this rank of a draw that is as many times larger along that axis
    as there are ranks.
    """

    def draw(shape: Shape, *first: Array, **more: Any) -> Array:
        return bind(op, [*operands, *first], shape=shape, **attrs, **more)

    return parts_drawn(draw, op.name, shape, shard)


def shared_axis(name: str, shard: int | None, ndim: int) -> int | None:
    """`shard` counted from the front."""
    return None if shard is None else axis_of(shard, ndim, name)


def row_axis(name: str, shard: int | None, ndim: int) -> int | None:
    """`shard` counted from the front, for draws of rows, which ranks cannot share: the last axis."""
    axis = shared_axis(f"random.{name}", shard, ndim)
    if axis == ndim - 1:
        raise shape_error(f"random.{name}: ranks share an axis before the last, got `shard={shard}`", hint="`shard=0`")
    return axis


def parts_drawn(draw: Callable[..., Array], name: str, shape: Shape, shard: int | None) -> Array:
    """`draw(shape)`, or the part of this rank; `draw(shape, number, first=True)` begins at the number of an element."""
    if shard is None:
        return draw(shape)
    axis = axis_of(shard, len(shape), name)
    if axis == 0:
        return draw(shape, rank() * size_number(product(shape)), first=True)
    rows = shape[axis]
    # Not `st.shard`, which all ranks must call: a draw is allowed where ranks take different branches.
    whole = draw((*shape[:axis], rows * static_ranks(), *shape[axis + 1 :]))
    return dynamic_slice(whole, rank() * size_number(rows), rows, axis)


def check_parameters(holds: Callable[..., Any], message: str, *parameters: Any) -> None:
    """Check parameters: numbers now, arrays when the program runs."""
    check_real(message.partition(":")[0], *map(as_array, parameters))
    if all(map(is_number, parameters)):
        check_argument(holds(*parameters), f"{message}, got {' and '.join(map(str, parameters))}")
    else:
        stop_unless(holds(*(cast(as_array(given), f64) for given in parameters)), message)


def draw_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """The shape of the draws: as NumPy has it, one for each parameter unless it is given."""
    wanted = static_shape(shape, f"random.{name}")
    needed = broadcast_shapes(*(as_array(one).shape for one in parameters))
    if wanted in ((), needed):
        return needed
    try:
        fits = broadcast_shapes(wanted, needed) == wanted
    except ShapeError:
        fits = False
    if not fits:
        raise shape_error(
            f"random.{name}: parameters of shape {needed} do not fit draws of shape {wanted}",
            hint="without `shape` there is one draw for each parameter",
        )
    return wanted


@public("random.bits")
def bits(shape: Any = (), *, generator: Any = None, shard: int | None = None) -> Array:
    """Random u32 words of `shape`, from `generator` or the default one. `shard` is that of `uniform`."""
    return drawn(_bits_op, key_of(generator), static_shape(shape, "random.bits"), shard)


@public("random.uniform")
def uniform(
    shape: Any = (),
    *,
    low: Option = 0.0,
    high: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats spread evenly over [low, high), of `shape`, from `generator` or the default one.

    The same numbers in eager mode and every back end (f64 with other bounds than 0 and 1: to the last bit but one).

    With `shard`, an axis, the result is local: the part of this rank of a larger draw, which the ranks share along that
    axis. Without it all ranks draw the same numbers, except for rows of sharded `st.batches`: if axis 0 is that of the
    batch, each rank draws the numbers of its rows.
    """
    wanted = check_dtype(dtype)
    computed = f32 if wanted.is_half else wanted
    check_parameters(lambda low, high: low <= high, "random.uniform: low is at most high", low, high)
    draw = drawn(_uniform_op, key_of(generator), draw_shape("uniform", shape, low, high), shard, dtype=computed)
    numbers = is_number(low) and is_number(high)
    if not (numbers and (low, high) == (0.0, 1.0)):
        # In f64 the product of two f32 is exact, so that a fused multiply-add gives the same bits as two operations.
        first, last = (as_array(bound, computed) for bound in (low, high))
        draw = cast(cast(draw, f64) * cast(last - first, f64) + cast(first, f64), computed)
    if numbers and _largest(low, high, computed).astype(wanted.numpy) < wanted.numpy.type(high):
        return cast(draw, wanted)
    return kept_below(cast(draw, wanted), low, high)


def _largest(low: float, high: float, dtype: DType) -> Any:
    """The largest number that `uniform` computes between bounds."""
    kind: Any = dtype.numpy.type
    largest = 1.0 - (2.0**-24 if dtype is f32 else 2.0**-53)
    return kind(largest * float(kind(high) - kind(low)) + float(kind(low)))


def kept_below(x: Array, low: Any, high: Any) -> Array:
    """`x`, or the number before `high` for elements that were rounded to `high`; `low` if both bounds are equal."""
    first, last = (as_array(bound, x.dtype) for bound in (low, high))
    before = as_array(_before(high, x.dtype)) if is_number(high) else nextafter(last, -math.inf)
    return where(x < last, x, maximum(before, first))


def _before(high: float, dtype: DType) -> Any:
    return np.nextafter(dtype.numpy.type(high), dtype.numpy.type(-math.inf))


@public("random.normal")
def normal(
    shape: Any = (),
    *,
    mean: Option = 0.0,
    std: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats from the normal distribution with the given mean and standard deviation, of `shape`, from `generator` or
    the default one.

    Back ends agree within 4 ulp, since their logarithms and sines differ. `shard` is that of `uniform`.
    """
    wanted = check_dtype(dtype)
    check_parameters(lambda std: std >= 0, "random.normal: std is at least 0", std)
    draw = drawn(_normal_op, key_of(generator), draw_shape("normal", shape, mean, std), shard, dtype=wanted)
    if not (is_number(std) and std == 1):
        draw = draw * as_array(std, wanted)
    return draw if is_number(mean) and mean == 0 else draw + as_array(mean, wanted)


@public("random.bernoulli")
def bernoulli(p: Option = 0.5, shape: Any = None, *, generator: Any = None, shard: int | None = None) -> Array:
    """Bools that are true with probability `p`, of `shape`, from `generator` or the default one. JAX `bernoulli`.

    `p` is a number, or an array of probabilities that is broadcast to `shape`, by default its own shape. `shard` is
    that of `uniform`.
    """
    chance = as_array(p, f32)
    check_parameters(lambda p: (p >= 0) & (p <= 1), "random.bernoulli: a probability is between 0 and 1", p)
    wanted = chance.shape if shape is None else static_shape(shape, "random.bernoulli")
    if not chance.shape:
        return drawn(_bernoulli_op, [*key_of(generator), chance], wanted, shard)
    chances = cast(chance, f32)
    return uniform(wanted, generator=generator, shard=shard) < (
        chances if shape is None else broadcast_to(chances, wanted)
    )


def bernoulli_of(seed: Array, stream: Array, counter: Array, p: float, shape: Shape) -> Array:
    """Bools that are true with probability `p`, of a key that is known already, so that they can be made twice."""
    return bind(_bernoulli_op, [seed, stream, counter, as_array(p, f32)], shape=shape)


@public("random.integers")
def integers(
    low: Any, high: Any = None, shape: Any = (), dtype: Any = i64, *, generator: Any = None, shard: int | None = None
) -> Array:
    """Integers in [low, high), or [0, low) if `high` is None; the bounds may be staged. NumPy `Generator.integers`.

    Probabilities of values differ by at most range / 2^32, relatively, and for ranges above 2^31 by range / 2^96. The
    program stops with the line if staged bounds are in the wrong order, or do not fit in `dtype`. `shard` is that of
    `uniform`.
    """
    wanted = check_dtype(dtype)
    if not wanted.is_integer:
        raise dtype_error(f"random.integers makes integers, not {wanted}")
    bounds = (0, low) if high is None else (low, high)
    if all(isinstance(bound, int | np.integer) for bound in bounds):
        least, past = map(int, bounds)
        check_argument(least < past, f"random.integers: low is below high, got {least} and {past}")
        check_fits(least, wanted)
        check_fits(past - 1, wanted)
        if past - least > _ONE_WORD:
            check_argument(
                past - least < 2**64, f"random.integers: the bounds are less than 2**64 apart, got {least} and {past}"
            )
            key, whole_shape = key_of(generator), static_shape(shape, "random.integers")
            return cast(
                _of_three_words(key, whole_shape, as_array(np.uint64(past - least)), shard) + _integer(least), wanted
            )
    first, last = map(_integer, bounds)
    wanted_shape, key = draw_shape("integers", shape, *bounds), key_of(generator)
    found = bitwise_right_shift(cast(drawn(_bits_op, key, wanted_shape, shard), i64) * (last - first), 32) + first
    if not all(isinstance(bound, int | np.integer) for bound in bounds):
        lowest, highest = limits(wanted)
        fits = logical_and(first >= lowest, last - 1 <= min(highest, 2**63 - 1))
        stop_unless(first < last, "random.integers: low is below high")
        stop_unless(fits, f"random.integers: the bounds fit in {wanted}")
        if wanted.size > 2:
            span = cast(last - first, u64)
            is_wide = cast(any_(span > _ONE_WORD), i64)
            (found,) = scan(
                is_wide, [found], lambda t, _: [_of_three_words(key, wanted_shape, span, shard) + first], ("drawn",)
            )
    return cast(found, wanted)


_ONE_WORD = 2**31
"""The largest range for which 32 random bits are enough."""


def _of_three_words(key: list[Array], shape: Shape, span: Array, shard: int | None) -> Array:
    """R * span / 2^96 of numbers R of 96 random bits, rounded down, as i64; `span` is u64.

    The long multiplication of numbers of 32-bit digits.
    """
    axis = shared_axis("random.integers", shard, len(shape))
    words = cast(drawn(_bits_op, key, (*shape, 3), axis), u64)
    low, high = span & LOW_WORD, bitwise_right_shift(span, 32)
    digits, parts, carry = [words[..., place] for place in range(3)], [], as_array(0, u64)
    for digit in digits:
        product = digit * low + carry
        parts.append(product & LOW_WORD)
        carry = bitwise_right_shift(product, 32)
    top = as_array(0, u64)
    for digit, part in zip(digits, [*parts[1:], carry], strict=True):
        top = digit * high + part + bitwise_right_shift(top, 32)
    return cast(top, i64)


def _integer(bound: Any) -> Array:
    array = as_array(bound)
    if not array.dtype.is_integer:
        raise dtype_error(f"random.integers needs integer bounds, got {array.type}", array)
    return cast(array, i64)


@public("random.permutation")
def permutation(n: Any, *, generator: Any = None) -> Array:
    """The integers 0 .. n - 1 in random order, as i64, from `generator` or the default one.

    `n` is known while staging, or a size. Of an array, its rows in random order. NumPy and JAX `permutation`.
    """
    if isinstance(n, list | tuple) or isinstance(n, Array | np.ndarray) and n.ndim:
        rows = as_array(n)
        return take(rows, permutation(rows.shape[0], generator=generator), 0)
    size = as_extent(whole(n))
    if size is None:
        raise shape_error(f"random.permutation needs a size known while staging, got {n!r}")
    check_sizes(size >= 0, f"random.permutation: a size is not negative, got {size}")
    return bind(_permutation_op, key_of(generator), n=size)
