"""The exponential of matrices, by Pade's approximation of order 13 after balancing and scaling.

The derivative is a block of the exponential of a matrix twice as large. Sources: Higham, The scaling and squaring
method for the matrix exponential revisited, 2005. Van Loan, 1978. Osborne, On pre-conditioning of matrices, 1960.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.ir.types import TensorType, bool_, i64
from staged.library.linalg.diagonals import diagonal
from staged.library.linalg.lu import solved
from staged.library.linalg.matrices import BATCHES, adjoint, block, greatest, product, size_of, square
from staged.library.sequences.loop import repeat_while
from staged.library.special.elementary import exp2
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import clip
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, log2, maximum, round_
from staged.ops.joining import concat
from staged.ops.primitive import Sample
from staged.ops.promote import constant
from staged.ops.public import public
from staged.ops.reduction import any_, sum_
from staged.ops.shape import expand_dims
from staged.ops.source import eye, ones, zeros

_COEFFICIENTS = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Of x^0 to x^13, in the numerator; the denominator has those of odd powers negative."""
_BOUND = 5.371920351148152
"""The norm up to which order 13 is exact to the last place of f64."""
_DOUBLINGS = 2.0**64
_SWEEPS = 100
"""The most sweeps of balancing: some 5 are enough."""


def _pade(x: Array) -> Array:
    """exp(x) for matrices of a norm up to `_BOUND`."""
    unit = eye(size_of(x), dtype=x.dtype)
    c = [coefficient / _COEFFICIENTS[0] for coefficient in _COEFFICIENTS]
    x2 = product(x, x)
    x4 = product(x2, x2)
    x6 = product(x4, x2)

    def half(first: int) -> Array:
        high = product(x6, c[first + 12] * x6 + c[first + 10] * x4 + c[first + 8] * x2)
        return high + c[first + 6] * x6 + c[first + 4] * x4 + c[first + 2] * x2 + c[first] * unit

    odd, even = product(x, half(1)), half(0)
    return solved(even - odd, even + odd)


def _slope(x: Array, t: Array) -> Array:
    """The derivative of the exponential at x along t."""
    n, axis = size_of(x), x.ndim - 2
    empty = zeros(x.shape, x.dtype)
    whole = concat([concat([x, t], axis + 1), concat([empty, x], axis + 1)], axis)
    return block(_expm(whole)[0], (0, n), (n, 2 * n))


def _balance(x: Array) -> Array:
    """The d (..., n) for which the rows of x[i, j] * d[j] / d[i] are about as large as its columns."""
    size = abs_(x)
    diagonals = diagonal(size, 0, -2, -1)
    size = where(eye(size_of(x), dtype=bool_), 0.0, size)
    most = float(np.finfo(size.dtype.numpy).maxexp // 8)

    def step(powers: Array, is_left: Array, count: Array) -> list[Array]:
        d = exp2(powers)
        scaled = size / expand_dims(d, -1) * expand_dims(d, -2)
        rows, columns = maximum(sum_(scaled, -1), diagonals), maximum(sum_(scaled, -2), diagonals)
        both = (rows > 0) & (columns > 0)
        gap = log2(where(both, rows, 1.0)) - log2(where(both, columns, 1.0))
        # Half of the way, since rows and columns change together. Small gaps cost a digit, and no sweeps.
        change = where(abs_(gap) > 6.0, round_(0.25 * gap), 0.0)
        after = clip(powers + change, -most, most)
        return [after, any_(after != powers), count + 1]

    initial = [zeros(x.shape[:-1], size.dtype), constant(True, TensorType(bool_)), constant(0, TensorType(i64))]
    powers, _, _ = repeat_while(
        lambda powers, is_left, count: is_left & (count < _SWEEPS), initial, step, ("powers", "is_left", "sweeps")
    )
    return exp2(powers)


@composite(
    "expm",
    vjp=lambda ct, y, x: [_slope(adjoint(x), ct)],
    jvp=lambda tangents, y, operands: _slope(operands[0], tangents[0]),
    **BATCHES,
    samples=[Sample(((3, 3),), differentiate=())],
)
def _expm(x: Array) -> Array:
    if size_of(x) == 0:
        return x
    d = _balance(x)
    y = _unbalanced(x / expand_dims(d, -1) * expand_dims(d, -2))
    return y * expand_dims(d, -1) / expand_dims(d, -2)


def _unbalanced(x: Array) -> Array:
    size = greatest(sum_(abs_(x), -2, keepdims=True), -1)
    scale = ones(size.shape, size.dtype)

    def grow(scale: Array) -> list[Array]:
        return [where(scale * _BOUND < size, scale * 2.0, scale)]

    (scale,) = repeat_while(
        lambda scale: any_((scale * _BOUND < size) & (scale < _DOUBLINGS)), [scale], grow, ("scale",)
    )

    def double(y: Array, left: Array) -> list[Array]:
        return [where(left > 1.0, product(y, y), y), maximum(left * 0.5, 1.0)]

    y, _ = repeat_while(lambda y, left: any_(left > 1.0), [_pade(x / scale), scale], double, ("power", "left"))
    return y


@public("linalg.matrix_exp")
def matrix_exp(a: Any) -> Array:
    """The exponentials of square matrices: 1 + a + a a / 2 + ... SciPy `linalg.expm`; torch `linalg.matrix_exp`."""
    return _expm(square("matrix_exp", a))[0]


@public("linalg.expm")
def expm(a: Any) -> Array:
    """`matrix_exp`, by SciPy's name."""
    return matrix_exp(a)
