"""The exponential of matrices, by Pade's approximation of order 13 after scaling.

Source: Higham, The scaling and squaring method for the matrix exponential revisited, 2005; the derivative is a block of
the exponential of a matrix twice as large (Van Loan, 1978).
"""

from __future__ import annotations

from typing import Any

from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.composite import composite
from staged.ops.elementwise import abs_, maximum
from staged.ops.joining import concat
from staged.ops.loop import repeat_while
from staged.ops.lu import solved
from staged.ops.matrices import BATCHES, adjoint, block, product, size_of, square
from staged.ops.primitive import Sample
from staged.ops.public import public
from staged.ops.reduction import any_, max_, sum_
from staged.ops.source import eye, ones, zeros

_COEFFICIENTS = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Of x^0 to x^13, in the numerator; the denominator has those of odd powers negative."""
_BOUND = 5.371920351148152
"""The norm up to which order 13 is exact to the last place of f64."""
_DOUBLINGS = 2.0**64


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


@composite(
    "expm",
    vjp=lambda ct, y, x: [_slope(adjoint(x), ct)],
    jvp=lambda tangents, y, operands: _slope(operands[0], tangents[0]),
    **BATCHES,
    samples=[Sample(((3, 3),), differentiate=())],
)
def _expm(x: Array) -> Array:
    if not size_of(x):
        return x
    size = max_(sum_(abs_(x), -2, keepdims=True), -1, keepdims=True)
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
