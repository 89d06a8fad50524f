"""Draws from distributions, made of uniform ones by the inverse of the distribution's function.

A draw is a function of its parameters, so that derivatives by these pass through it. Everything is computed in f64 and
rounded once: a back end's logarithms change no choice. Uniform numbers lie strictly between 0 and 1. Source: Devroye,
Non-Uniform Random Variate Generation, 1986, chapter II; Gumbel's maximum for choices: Maddison, Tarlow and Minka, 2014;
without replacement: Vieira, 2014.
"""

from __future__ import annotations

import math
from typing import Any

from staged.errors import ArgumentError
from staged.ir.sizes import Extent, smallest
from staged.ir.types import DType, f32, f64, i64
from staged.library.draws.random import (
    check_parameters,
    draw_shape,
    integers,
    kept_below,
    normal,
    permutation,
    row_axis,
    shared_axis,
    uniform,
)
from staged.library.elementwise.activations import softmax
from staged.library.linalg.triangular import cholesky
from staged.library.sequences.loop import scan
from staged.library.special.error_functions import ndtr, ndtri
from staged.ops.array import Array
from staged.ops.checks import check_sizes, stop_unless
from staged.ops.choice import stop_gradient, where
from staged.ops.comparisons import clip, logical_and
from staged.ops.dimension import as_extent
from staged.ops.elementwise import abs_, cos, exp, isfinite, log, log1p, maximum, sign, sin, sqrt, square
from staged.ops.index import take
from staged.ops.promote import (
    as_array,
    as_float,
    broadcast_shapes,
    cast,
    check_argument,
    check_dtype,
    is_number,
    shape_error,
)
from staged.ops.public import Option, public
from staged.ops.reduction import argmax, count_nonzero, max_
from staged.ops.shape import expand_dims, moveaxis, reshape, slice_axis, squeeze
from staged.ops.source import iota, one_hot, static_shape, zeros


def _between(shape: Any, dtype: DType, generator: Any, shard: int | None) -> Array:
    """Uniform numbers of f64, above 0 and below 1, of as many bits as `dtype` has."""
    draw = uniform(shape, dtype=dtype, generator=generator, shard=shard)
    return cast(draw, f64) + 2.0**-25 if dtype is f32 else maximum(draw, 2.0**-54)


def _placed(draw: Array, loc: Any, scale: Any, dtype: DType) -> Array:
    """loc + scale * draw, in `dtype`."""
    draw = cast(draw, dtype)
    if not (is_number(scale) and scale == 1):
        draw = draw * as_array(scale, dtype)
    return draw if is_number(loc) and loc == 0 else draw + as_array(loc, dtype)


def _start(
    name: str, shape: Any, dtype: Any, generator: Any, shard: int | None, scale: Any = 1.0, loc: Any = 0.0
) -> tuple[Array, DType]:
    wanted = check_dtype(dtype)
    check_parameters(lambda scale: scale >= 0, f"random.{name}: scale is at least 0", scale)
    return _between(draw_shape(name, shape, loc, scale), wanted, generator, shard), wanted


@public("random.exponential")
def exponential(
    shape: Any = (), *, scale: Option = 1.0, dtype: Any = f32, generator: Any = None, shard: int | None = None
) -> Array:
    """Floats from the exponential distribution with mean `scale`, of `shape`. NumPy `Generator.exponential`.

    `shard` is that of `uniform`.
    """
    u, wanted = _start("exponential", shape, dtype, generator, shard, scale)
    return _placed(-log1p(-u), 0, scale, wanted)


@public("random.laplace")
def laplace(
    shape: Any = (),
    *,
    loc: Option = 0.0,
    scale: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats with the density exp(-|x - loc| / scale) / (2 scale), of `shape`. NumPy `Generator.laplace`.

    `shard` is that of `uniform`.
    """
    u, wanted = _start("laplace", shape, dtype, generator, shard, scale, loc)
    side = u - 0.5
    return _placed(-sign(side) * log1p(-2.0 * abs_(side)), loc, scale, wanted)


@public("random.logistic")
def logistic(
    shape: Any = (),
    *,
    loc: Option = 0.0,
    scale: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats below x with probability sigmoid((x - loc) / scale), of `shape`. NumPy `Generator.logistic`.

    `shard` is that of `uniform`.
    """
    u, wanted = _start("logistic", shape, dtype, generator, shard, scale, loc)
    return _placed(log(u) - log1p(-u), loc, scale, wanted)


@public("random.gumbel")
def gumbel(
    shape: Any = (),
    *,
    loc: Option = 0.0,
    scale: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats below x with probability exp(-exp(-(x - loc) / scale)), of `shape`. NumPy `Generator.gumbel`.

    `shard` is that of `uniform`.
    """
    u, wanted = _start("gumbel", shape, dtype, generator, shard, scale, loc)
    return _placed(-log(-log(u)), loc, scale, wanted)


@public("random.cauchy")
def cauchy(
    shape: Any = (),
    *,
    loc: Option = 0.0,
    scale: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats from Cauchy's distribution, of `shape`: their mean does not exist. torch `Tensor.cauchy_`.

    `shard` is that of `uniform`.
    """
    u, wanted = _start("cauchy", shape, dtype, generator, shard, scale, loc)
    angle = (u - 0.5) * math.pi
    return _placed(sin(angle) / cos(angle), loc, scale, wanted)


@public("random.truncated_normal")
def truncated_normal(
    shape: Any = (),
    *,
    low: Option = -2.0,
    high: Option = 2.0,
    mean: Option = 0.0,
    std: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats from the normal distribution with this mean and standard deviation, given that they are in [low, high).

    Also for bounds far from the mean. torch `nn.init.trunc_normal_`. `shard` is that of `uniform`.
    """
    wanted = check_dtype(dtype)
    computed = f32 if wanted.is_half else wanted
    check_parameters(lambda std: std > 0, "random.truncated_normal: std is above 0", std)
    check_parameters(lambda low, high: low < high, "random.truncated_normal: low is below high", low, high)
    u = _between(draw_shape("truncated_normal", shape, low, high, mean, std), computed, generator, shard)
    first, last, middle, width = (cast(as_array(x, computed), f64) for x in (low, high, mean, std))
    below, above = (first - middle) / width, (last - middle) / width
    # In the tail above 0 probabilities are near 1: there the mirrored one, whose probabilities are near 0.
    is_mirrored = below > 0
    a, b = where(is_mirrored, -above, below), where(is_mirrored, -below, above)
    z: Array
    if all(map(is_number, (low, high, mean, std))):
        near = (high - mean) / std if low <= mean else (mean - low) / std
        z = _far_below(u, a, b) if near < _FAR else _inverse(u, a, b)
    else:
        is_far = b < _FAR
        far = _far_below(u, where(is_far, a, 2.0 * _FAR), where(is_far, b, _FAR))
        z = where(is_far, far, _inverse(u, where(is_far, -1.0, a), where(is_far, 1.0, b)))
    found = cast(cast(middle + width * where(is_mirrored, -z, z), computed), wanted)
    return kept_below(maximum(found, cast(first, wanted)), low, high)


_FAR = -30.0
"""The upper bound below which probabilities of the normal distribution are near the smallest numbers of f64."""


def _inverse(u: Array, a: Array, b: Array) -> Array:
    """The number that is above a share u of the normal distribution between a and b."""
    start, end = ndtr(a), ndtr(b)
    return clip(ndtri(start + u * (end - start)), a, b)


def _far_below(u: Array, a: Array, b: Array) -> Array:
    """`_inverse` for b < `_FAR`, as b - d.

    P(x < b - d) / P(x < b) is exp(-B d - d^2 / 2 - log(1 + d / B) + 1 / B^2 - 1 / (B + d)^2) for B = -b. The error of
    the exponent is below 1e-8. Two of Newton's steps find d.
    """
    size = -b

    def logarithm(d: Array) -> Array:
        return d * (size + 0.5 * d) + log1p(d / size) - (1.0 / square(size) - 1.0 / square(size + d))

    wanted = -log(u + (1.0 - u) * exp(-logarithm(b - a)))
    d = 2.0 * wanted / (size + sqrt(square(size) + 2.0 * wanted))
    for _ in range(2):
        t = 1.0 / (size + d)
        d = d - (logarithm(d) - wanted) / (size + d + t - 2.0 * t * square(t))
    return maximum(b - d, a)


@public("random.multivariate_normal")
def multivariate_normal(
    mean: Any, cov: Any, shape: Any = (), *, dtype: Any = f32, generator: Any = None, shard: int | None = None
) -> Array:
    """Vectors from the normal distribution with this mean and covariance. NumPy `Generator.multivariate_normal`.

    Shapes: mean (..., k), cov (..., k, k) positive definite; the result is `shape` + (..., k). Derivatives pass through
    the Cholesky factor of `cov`. `shard` is that of `uniform`, for an axis before the last.
    """
    middle, spread = as_array(mean, check_dtype(dtype)), as_array(cov, check_dtype(dtype))
    if not middle.ndim or spread.ndim < 2 or spread.shape[-2:] != middle.shape[-1:] * 2:
        raise shape_error("random.multivariate_normal needs a vector and a matrix of its size", middle, spread)
    rows = broadcast_shapes(middle.shape[:-1], spread.shape[:-2])
    whole = (*static_shape(shape, "random.multivariate_normal"), *rows, middle.shape[-1])
    axis = row_axis("multivariate_normal", shard, len(whole))
    z = normal(whole, dtype=dtype, generator=generator, shard=axis)
    return middle + squeeze(cholesky(spread) @ expand_dims(z, -1), -1)


@public("gumbel_softmax")
def gumbel_softmax(
    logits: Any,
    tau: Option = 1.0,
    hard: bool = False,
    *,
    axis: int = -1,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """softmax((logits + g) / tau) along `axis`, with numbers g of Gumbel's distribution. torch `gumbel_softmax`.

    With `hard`, the result is 1 for the largest element and 0 for others. The derivative is that of the softmax.
    `shard` is that of `random.uniform`.
    Source: Jang, Gu and Poole, Categorical reparameterization with Gumbel-softmax, 2017.
    """
    array = as_float(logits)
    noise = gumbel(array.shape, dtype=array.dtype, generator=generator, shard=shard)
    soft = softmax((array + noise) / tau, axis)
    if not hard:
        return soft
    chosen = moveaxis(one_hot(argmax(soft, axis), array.shape[axis], soft.dtype), -1, axis)
    return chosen + (soft - stop_gradient(soft))


# ---- choices ----------------------------------------------------------------------------------------


@public("random.categorical")
def categorical(logits: Any, shape: Any = (), *, generator: Any = None, shard: int | None = None) -> Array:
    """Classes, as i64, drawn with the probabilities softmax(logits) along the last axis. JAX `random.categorical`.

    Shapes: logits (..., classes); the result is `shape` + (...). `shard` is that of `uniform`.
    """
    array = as_float(logits)
    if not array.ndim or array.shape[-1] == 0:
        raise shape_error(f"random.categorical needs classes in the last axis, got {array.type}", array)
    stop_unless(
        isfinite(max_(array, -1)), "random.categorical: logits are numbers or -inf, and one of each row is above that"
    )
    whole = (*static_shape(shape, "random.categorical"), *array.shape)
    axis = shared_axis("random.categorical", shard, len(whole) - 1)
    draws = gumbel(whole, dtype=f64, generator=generator, shard=axis)
    return argmax(cast(array, f64) + draws, -1)


@public("random.choice")
def choice(
    a: Any,
    shape: Any = (),
    *,
    replace: bool = True,
    p: Any = None,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Elements of 0 ... a - 1, or rows of an array `a`, with probabilities `p` or equal ones. NumPy `Generator.choice`.

    Without `replace` none is drawn twice; with `p` too, each next one has the probability it has among those left. `p`
    need not add up to 1. `shard` is that of `uniform`, for draws with replacement.
    """
    count, rows = as_extent(a), None
    if count is None:
        rows = as_array(a)
        if not rows.ndim:
            raise shape_error(
                f"random.choice takes a number that is known while staging or an array, got {rows.type}", rows
            )
        count = rows.shape[0]
    wanted = static_shape(shape, "random.choice")
    check_sizes(count > 0, f"random.choice: there is something to choose from, got {count}", error=ArgumentError)
    size = math.prod(wanted)
    if not replace:
        check_argument(shard is None, "random.choice: ranks share draws with replacement only")
        message = f"random.choice: without replacement there are at most {count} draws, got {size}"
        check_sizes(size <= count, message, error=ArgumentError)
    if p is None:
        index = (
            integers(count, shape=wanted, generator=generator, shard=shard)
            if replace
            else slice_axis(permutation(count, generator=generator), 0, 0, size)
        )
    else:
        weights = as_float(p)
        if weights.shape != (count,):
            raise shape_error(f"random.choice needs {count} probabilities, got {weights.type}", weights)
        stop_unless(
            logical_and(weights >= 0, weights < math.inf), "random.choice: probabilities are numbers, at least 0"
        )
        least = smallest(size, 1) if replace else size
        stop_unless(
            count_nonzero(weights) >= least,
            "random.choice: there are as many probabilities above 0 as draws without replacement, and one for others",
        )
        logits = log(cast(weights, f64))
        index = (
            categorical(logits, wanted, generator=generator, shard=shard)
            if replace
            else _largest(logits + gumbel((count,), dtype=f64, generator=generator), size)
        )
    index = reshape(index, wanted)
    return index if rows is None else take(rows, index, 0)


def _largest(keys: Array, count: Extent) -> Array:
    """The places of the `count` largest keys of a vector, the largest first."""
    place, number = iota(keys.shape), iota((count,))

    def step(t: Array, keys: Array, found: Array) -> list[Array]:
        best = argmax(keys, 0)
        return [where(place == best, -math.inf, keys), where(number == t, best, found)]

    return scan(
        count if isinstance(count, int) else as_array(count),
        [keys, zeros((count,), dtype=i64)],
        step,
        ("keys", "chosen"),
    )[1]
