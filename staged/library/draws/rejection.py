"""Draws by rejection: gamma, and what is made of it (beta, dirichlet), Poisson's and binomial numbers.

Element e of an op tries until one is accepted, attempt t on the words of two blocks of the generator:

    first, second = philox(counter words = [e, stream + 2 t + (0, 1), counter low, counter high], key)

so that an element depends on no other one, and draws are the same in eager mode, C, CUDA and OpenCL (but for the last
bits of logarithms). Everything is f64, rounded once.

Derivatives by the parameters of gamma are implicit ones: the quantile of a draw stays as it is. For log x they are an
integral from x to the end on whose side x is, whose integrand has one sign: nothing cancels. Beta and dirichlet draws
are quotients of gamma draws, and have the derivatives of these. Draws of whole numbers have none.

Sources: Marsaglia and Tsang, A simple method for generating gamma variables, 2000; Hoermann, The transformed rejection
method for generating Poisson random variables, 1993, and The generation of binomial random variates, 1993; Figurnov,
Mohamed and Mnih, Implicit reparameterization gradients, 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.types import DType, Shape, TensorType, f32, f64, i64
from staged.library.draws.philox import philox, unit_f64
from staged.library.draws.random import (
    check_key,
    check_parameters,
    draw_shape,
    elements_from,
    from_first,
    key_of,
    parts_drawn,
    row_axis,
)
from staged.library.elementwise.activations import sigmoid, softmax
from staged.library.special.gamma_functions import digamma
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.context import bind
from staged.ops.elementwise import exp, expm1, log1p, maximum, minimum, sqrt, square
from staged.ops.primitive import BadSample, Primitive, Sample, primitive
from staged.ops.promote import (
    as_array,
    axis_of,
    broadcast,
    cast,
    check_dtype,
    check_real,
    dtype_error,
    is_number,
    shape_error,
)
from staged.ops.public import Option, public
from staged.ops.reduction import sum_
from staged.ops.shape import expand_dims
from staged.ops.source import static_shape

Data = np.ndarray[Any, Any]
_LOW = 0xFFFFFFFF

_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.0092554621827127, 0.0083305634333631,
)  # fmt: skip
"""The error of Stirling's formula for log k!, k < 10; `st_stirling_tail` of the C support is the same."""


# ---- meaning: the draws in NumPy --------------------------------------------------------------------


def _blocks(key: Sequence[Any], elements: Data, attempt: int) -> tuple[Data, Data]:
    """The words of both blocks of an attempt: (4, n) each."""
    seed, stream, counter = (int(value) & 0xFFFFFFFFFFFFFFFF for value in key)
    found = []
    for number in (0, 1):
        states = np.zeros((4, elements.size), np.uint32)
        states[0] = elements & _LOW
        states[1], states[2], states[3] = (stream + 2 * attempt + number) & _LOW, counter & _LOW, counter >> 32
        found.append(philox(states, (seed & _LOW, seed >> 32)))
    return found[0], found[1]


def _accepted(key: Sequence[Any], where_: Data, found: Data, attempt: Callable[..., tuple[Data, Data]]) -> None:
    """Write the first accepted draw of each element of `where_`: `attempt(elements, first, second)` makes (draws,
    accepted)."""
    left, number = np.flatnonzero(where_), 0
    while left.size:
        draws, is_accepted = attempt(left, *_blocks(key, left, number))
        found[left[is_accepted]] = draws[is_accepted]
        left, number = left[~is_accepted], number + 1


def _log_gamma_draw(seed: Data, stream: Data, counter: Data, alpha: Data) -> Data:
    key, a = (seed, stream, counter), alpha.reshape(-1)
    found = np.full(a.shape, np.nan)
    is_valid = (a > 0) & (a < np.inf)
    d = np.where(a < 1, a + 1.0, a) - 1.0 / 3.0
    every = np.flatnonzero(is_valid)
    boost = np.zeros(a.shape)
    _, second = _blocks(key, every, 0)
    boost[every] = np.where(a[every] < 1, np.log(unit_f64(second[2], second[3]) + 2.0**-53) / a[every], 0.0)

    def attempt(left: Data, first: Data, second: Data) -> tuple[Data, Data]:
        size = d[left]
        radius = np.sqrt(-2.0 * np.log(unit_f64(first[0], first[1]) + 2.0**-53))
        z = radius * np.cos(2.0 * math.pi * unit_f64(first[2], first[3]))
        w = 1.0 + z / np.sqrt(9.0 * size)
        v = w * w * w
        with np.errstate(invalid="ignore", divide="ignore"):
            u = unit_f64(second[0], second[1]) + 2.0**-53
            log_v = np.log(v)
            is_accepted = (w > 0) & (np.log(u) < 0.5 * z * z + size * (1.0 - v + log_v))
        return np.log(size) + log_v, is_accepted

    _accepted(key, is_valid, found, attempt)
    return np.asarray((found + boost).reshape(alpha.shape))


def _tail(k: Data) -> Data:
    """The error of Stirling's formula: log k! - (log(2 pi) / 2 + (k + 1/2) log(k + 1) - (k + 1))."""
    w = 1.0 / (k + 1.0)
    far = w * (1 / 12 - w * w * (1 / 360 - w * w / 1260))
    return np.where(k < 10, np.array(_TAILS)[np.clip(k, 0, 9).astype(int)], far)


def _by_inversion(start: Data, ratio: Callable[[float], Data], u: Data) -> Data:
    """The smallest k with probability(0) + ... + probability(k) >= u; `ratio(k)` leads from that of k - 1 to k's."""
    found, total, share = np.zeros(u.shape), start.copy(), start.copy()
    for k in range(1, 200):
        further = u > total
        if not further.any():
            break
        share = share * ratio(float(k))
        total = np.where(further, total + share, total)
        found = np.where(further, k, found)
    return found


def _poisson_draw(seed: Data, stream: Data, counter: Data, rate: Data) -> Data:
    key, lam = (seed, stream, counter), rate.reshape(-1)
    found = np.full(lam.shape, -1.0)
    is_small, is_large = (lam >= 0) & (lam < 10), (lam >= 10) & (lam <= 2.0**53)
    small = np.flatnonzero(is_small)
    first, _ = _blocks(key, small, 0)
    found[small] = _by_inversion(np.exp(-lam[small]), lambda k: lam[small] / k, unit_f64(first[0], first[1]))

    def attempt(left: Data, first: Data, second: Data) -> tuple[Data, Data]:
        size = lam[left]
        b = 0.931 + 2.53 * np.sqrt(size)
        a = 0.02483 * b - 0.059
        u, v = unit_f64(first[0], first[1]) - 0.5, unit_f64(first[2], first[3]) + 2.0**-53
        side = 0.5 - np.abs(u)
        with np.errstate(all="ignore"):
            place = (2.0 * a / side + b) * u + size + 0.43
            is_there = (place >= 0) & (place < 2.0**62)
            k = np.floor(place)
            is_inside = (side >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
            is_far = (side < 0.013) & (v > side)
            height = np.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (side * side) + b))
            gap = k + 1.0 - size
            chance = gap - k * np.log1p(gap / size) - 0.5 * np.log(k + 1.0) - 0.5 * math.log(2.0 * math.pi) - _tail(k)
            return k, is_there & (is_inside | (~is_far & (height <= chance)))

    _accepted(key, is_large, found, attempt)
    return found.astype(np.int64).reshape(rate.shape)


def _binomial_draw(seed: Data, stream: Data, counter: Data, trials: Data, p: Data) -> Data:
    key, n, chance = (seed, stream, counter), trials.reshape(-1), p.reshape(-1)
    is_valid = (n >= 0) & (n <= 2.0**53) & (chance >= 0) & (chance <= 1)
    less = np.minimum(chance, 1.0 - chance)  # of the rarer of the two, and mirrored
    found = np.full(n.shape, -1.0)
    is_small = is_valid & (n * less < 10)
    small = np.flatnonzero(is_small)
    first, _ = _blocks(key, small, 0)
    odds, count = less[small] / (1.0 - less[small]), n[small]
    start = np.exp(count * np.log1p(-less[small]))
    k = _by_inversion(start, lambda k: np.maximum(count - k + 1.0, 0.0) / k * odds, unit_f64(first[0], first[1]))
    found[small] = np.minimum(k, count)

    def attempt(left: Data, first: Data, second: Data) -> tuple[Data, Data]:
        count, q = n[left], less[left]
        ratio = q / (1.0 - q)
        spread = np.sqrt(count * q * (1.0 - q))
        b = 1.15 + 2.53 * spread
        a = 0.0248 * b + 0.01 * q - 0.0873
        m = np.floor((count + 1.0) * q)
        u, v = unit_f64(first[0], first[1]) - 0.5, unit_f64(first[2], first[3]) + 2.0**-53
        side = 0.5 - np.abs(u)
        with np.errstate(all="ignore"):
            k = np.floor((2.0 * a / side + b) * u + count * q + 0.5)
            is_there = (k >= 0) & (k <= count)
            is_inside = (side >= 0.07) & (v <= 0.92 - 4.2 / b)
            height = np.log(v * (2.83 + 5.1 / b) * spread / (a / (side * side) + b))
            limit = (m + 0.5) * np.log((m + 1.0) / (ratio * (count - m + 1.0)))
            limit = limit + (count + 1.0) * np.log((count - m + 1.0) / (count - k + 1.0))
            limit = limit + (k + 0.5) * np.log(ratio * (count - k + 1.0) / (k + 1.0))
            limit = limit + _tail(m) + _tail(count - m) - _tail(k) - _tail(count - k)
            return k, is_there & (is_inside | (height <= limit))

    _accepted(key, is_valid & ~is_small, found, attempt)
    mirrored = np.where(is_valid & (chance > 0.5), n - found, found)
    return mirrored.astype(np.int64).reshape(trials.shape)


# ---- the derivative of a gamma draw -----------------------------------------------------------------

_TERMS = [float(k) for k in range(20)]
_SIGNS = [(-1.0) ** k / math.factorial(k) for k in range(20)]
"""The coefficients of exp(-x)."""


@cache
def _quadrature() -> list[list[float]]:
    """Return 40 points of Gauss and Legendre in [0, 1], and their weights."""
    points: list[list[float]] = ((np.polynomial.legendre.leggauss(40) + np.array([[1.0], [0.0]])) / 2.0).tolist()
    return points


def _gamma_slope(alpha: Array, log_x: Array) -> Array:
    """d log x / d alpha of a draw x of gamma(alpha), at its quantile; both f64.

    = integral of |psi(alpha) - log(t)| (t / x)^alpha exp(x - t) dt / t, over t < x where log x < psi(alpha), else over
    t > x. For x < 1 a series in x; else 40 points of Gauss and Legendre in log(t / x), up to where the integrand is
    exp(-40) of the first.
    """
    number, sign, place, weight = (as_array(each, f64) for each in (_TERMS, _SIGNS, *_quadrature()))
    gap = expand_dims(digamma(alpha) - log_x, -1)
    a, log_x = expand_dims(alpha, -1), expand_dims(log_x, -1)
    is_near = log_x < 0
    inner = where(is_near, log_x, -1.0)
    order = a + number
    terms = sign * exp(number * inner) * (gap / order + 1.0 / square(order))
    near = exp(exp(inner)) * sum_(terms, -1, keepdims=True)
    a, gap, x = where(is_near, 1.0, a), where(is_near, 0.0, gap), exp(where(is_near, 0.0, minimum(log_x, 700.0)))
    is_below = gap > 0
    reach = 40.0 / x
    root = sqrt(2.0 * reach)
    below = minimum(root + reach, 40.0 / maximum(a - x, 1e-30))
    end = where(is_below, below, minimum(root, log1p(reach + root)))
    side = where(is_below, -1.0, 1.0)
    t = side * end * place
    parts = weight * (t - gap) * exp(a * t - x * expm1(t))
    far = side * end * sum_(parts, -1, keepdims=True)
    return where(is_near, near, far)[..., 0]


# ---- the primitives -------------------------------------------------------------------------------

_KEY = (np.array(7, np.int64), np.array(2, np.int64), np.array(5, np.int64))
_WHOLE = (
    "a draw is a whole number, which jumps as its parameters change: pass them through `st.stop_gradient`, and weight "
    "the logarithm of the draw's probability by what it leads to (the score function's estimate)"
)


def _draws(
    name: str,
    reference: Callable[..., Data],
    parameters: Sequence[Sequence[Any]],
    result: DType,
    doc: str,
    **fields: Any,
) -> Primitive:
    def infer(seed: TensorType, stream: TensorType, counter: TensorType, *given: TensorType) -> TensorType:
        check_key(name, seed, stream, counter)
        if any(one.dtype is not f64 for one in given):
            raise DTypeError(f"{name} takes parameters of f64, got {' and '.join(map(str, given))}")
        if any(one.shape != given[0].shape for one in given):
            raise ShapeError(f"{name} takes parameters of one shape, got {' and '.join(map(str, given))}")
        return TensorType(result, given[0].shape)

    arrays = [tuple(np.asarray(one, np.float64) for one in case) for case in parameters]
    count = len(arrays[0])
    wrong = (TensorType(i64),) * 3 + (TensorType(f32, (2,)),) * count
    return primitive(
        name=name,
        kind="random",
        expensive=True,
        vector="never",
        infer=from_first(infer),
        reference=elements_from(reference),
        samples=[Sample((*_KEY, *case), dtypes=(f64,), differentiate=()) for case in arrays],
        bad=[BadSample(wrong, DTypeError, "parameters of f64")],
        doc=doc,
        **fields,
    )


def _gamma_vjp(ct: Array, y: Array, *operands: Array, first: bool = False) -> list[Any]:
    found: list[Any] = [None] * len(operands)
    return [*found[:3], ct * _gamma_slope(operands[3], y), *found[4:]]


_gamma_op = _draws(
    "log_gamma_draw",
    _log_gamma_draw,
    [([[0.1, 0.9, 1.0], [2.5, 30.0, 1e6]],), (0.5,), (np.zeros((0, 3)),), ([np.nan, -1.0, np.inf, 3.0],)],
    f64,
    "The logarithm of a draw of gamma(alpha), for each alpha: it is a number also where the draw is not. NaN where "
    "alpha is not above 0, or infinite.",
    vjp=_gamma_vjp,
    jvp=lambda tangents, y, operands, first=False: (
        None if tangents[3] is None else tangents[3] * _gamma_slope(operands[3], y)
    ),
)
_poisson_op = _draws(
    "poisson_draw",
    _poisson_draw,
    [([0.0, 0.3, 9.9, 10.0, 77.0, 1e9],), (4.0,), (np.zeros((2, 0)),), ([np.nan, -1.0, np.inf],)],
    i64,
    "A number of events of a mean, for each; -1 where it is none, or above 2^53.",
    why_not_differentiable=_WHOLE,
)
_binomial_op = _draws(
    "binomial_draw",
    _binomial_draw,
    [
        ([0.0, 1.0, 20.0, 30.0, 100.0, 1e9], [0.5, 1.0, 0.3, 0.9, 0.45, 0.7]),
        (5.0, 0.5),
        (np.zeros((2, 0)),) * 2,
        ([np.nan, -1.0, 5.0, 5.0], [0.5, 0.5, 1.5, np.nan]),
    ],
    i64,
    "A number of successes in n trials of probability p, for each; -1 where n or p is none, or n above 2^53.",
    why_not_differentiable=_WHOLE,
)


# ---- public ---------------------------------------------------------------------------------------


def _parameter(x: Any, dtype: DType) -> Array:
    """A parameter as the draw has it: rounded to the dtype of the draws."""
    return cast(as_array(x, dtype), f64)


def _drawn(op: Primitive, parameters: Sequence[Array], shape: Shape, generator: Any, shard: int | None) -> Array:
    """Draws of `shape`, or of this rank, see `parts_drawn`."""
    key = key_of(generator)
    axis = 0 if shard is None else axis_of(shard, len(shape), op.name)
    behind = len(shape) - axis
    if axis and any(each.ndim >= behind and each.shape[-behind] != 1 for each in parameters):
        raise shape_error(
            f"with `shard={shard}`, parameters have one number along that axis", *parameters, hint="share axis 0"
        )

    def draw(shape: Shape, *first: Array, **attrs: Any) -> Array:
        return bind(op, [*key, *(broadcast(each, shape) for each in parameters), *first], **attrs)

    return parts_drawn(draw, op.name, shape, shard)


def _log_gamma(
    name: str, what: str, alpha: Any, shape: Shape, dtype: DType, generator: Any, shard: int | None
) -> Array:
    check_parameters(lambda a: (a > 0) & (a < math.inf), f"random.{name}: {what} is above 0 and finite", alpha)
    return _drawn(_gamma_op, [_parameter(alpha, dtype)], shape, generator, shard)


def _float(name: str, dtype: Any) -> DType:
    wanted = check_dtype(dtype)
    if not wanted.is_float:
        raise dtype_error(f"random.{name} makes floats, not {wanted}")
    return wanted


@public("random.gamma")
def gamma(
    a: Option,
    shape: Any = (),
    *,
    scale: Option = 1.0,
    dtype: Any = f32,
    generator: Any = None,
    shard: int | None = None,
) -> Array:
    """Floats with the density x^(a - 1) exp(-x / scale) / (gamma(a) scale^a), of `shape`, or one for each `a`.

    NumPy `Generator.gamma`, whose `shape` is `a` and `size` is `shape`; torch `Gamma`, JAX `random.gamma`. Derivatives
    by `a` are implicit (Figurnov, Mohamed and Mnih, 2018). An `a` that is not above 0 stops the program with the line.
    `shard` is that of `uniform`; along an axis other than 0, parameters have one number.
    """
    wanted = _float("gamma", dtype)
    check_parameters(lambda s: s >= 0, "random.gamma: scale is at least 0", scale)
    needed = draw_shape("gamma", shape, a, scale)
    draw = cast(exp(_log_gamma("gamma", "`a`", a, needed, wanted, generator, shard)), wanted)
    return draw if is_number(scale) and scale == 1 else draw * as_array(scale, wanted)


@public("random.beta")
def beta(
    a: Option, b: Option, shape: Any = (), *, dtype: Any = f32, generator: Any = None, shard: int | None = None
) -> Array:
    """Floats in [0, 1] with the density x^(a - 1) (1 - x)^(b - 1) / B(a, b), of `shape`. NumPy `Generator.beta`.

    Derivatives by `a` and `b` are those of two gamma draws. `shard` is that of `gamma`.
    """
    wanted = _float("beta", dtype)
    needed = draw_shape("beta", shape, a, b)
    first = _log_gamma("beta", "`a`", a, needed, wanted, generator, shard)
    return cast(sigmoid(first - _log_gamma("beta", "`b`", b, needed, wanted, generator, shard)), wanted)


@public("random.dirichlet")
def dirichlet(
    alpha: Any, shape: Any = (), *, dtype: Any = f32, generator: Any = None, shard: int | None = None
) -> Array:
    """Rows of shares that add up to 1, with the density prod(x^(alpha - 1)) / B(alpha). NumPy `Generator.dirichlet`.

    Shapes: alpha (..., k); the result is `shape` + (..., k). Derivatives by `alpha` are those of gamma draws.
    `shard` is that of `gamma`, for an axis before the last.
    """
    wanted = _float("dirichlet", dtype)
    given = as_array(alpha)
    check_real("random.dirichlet", given)
    given = cast(given, wanted)
    if not given.ndim or given.shape[-1] == 0:
        raise shape_error(f"random.dirichlet needs shares in the last axis, got {given.type}", given)
    whole = (*static_shape(shape, "random.dirichlet"), *given.shape)
    axis = row_axis("dirichlet", shard, len(whole))
    return cast(softmax(_log_gamma("dirichlet", "`alpha`", given, whole, wanted, generator, axis), -1), wanted)


@public("random.poisson")
def poisson(rate: Option = 1.0, shape: Any = (), *, generator: Any = None, shard: int | None = None) -> Array:
    """Numbers of events whose mean is `rate`, as i64, of `shape`, or one for each rate. NumPy `Generator.poisson`.

    They have no derivative by `rate`. A rate below 0 or above 2^53 stops the program with the line. `shard` is that of
    `gamma`.
    """
    check_parameters(
        lambda x: (x >= 0) & (x <= 2.0**53), "random.poisson: `rate` is at least 0, and at most 2**53", rate
    )
    return _drawn(_poisson_op, [_parameter(rate, f64)], draw_shape("poisson", shape, rate), generator, shard)


@public("random.binomial")
def binomial(n: Option, p: Option, shape: Any = (), *, generator: Any = None, shard: int | None = None) -> Array:
    """Numbers of successes in `n` trials of probability `p`, as i64, of `shape`, or one for each. NumPy
    `Generator.binomial`.

    They have no derivative by `p`. A negative `n`, and a `p` that is no probability, stop the program with the line.
    `shard` is that of `gamma`.
    """
    check_parameters(lambda x: (x >= 0) & (x <= 2.0**53), "random.binomial: `n` is at least 0, and at most 2**53", n)
    check_parameters(lambda x: (x >= 0) & (x <= 1), "random.binomial: `p` is between 0 and 1", p)
    parameters = [_parameter(n, f64), _parameter(p, f64)]
    return _drawn(_binomial_op, parameters, draw_shape("binomial", shape, n, p), generator, shard)
