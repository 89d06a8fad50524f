"""Functions of `st.linalg` that are few calls of others: products of many matrices, diagonals, norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.library.elementwise.normalization import norm as norm_
from staged.library.linalg import diagonals
from staged.library.linalg.einsum import einsum
from staged.ops.array import Array
from staged.ops.contraction import outer as outer_
from staged.ops.promote import as_array, cast, check_dtype, promoted, shape_error
from staged.ops.public import public
from staged.ops.wide_numbers import settled


@public("linalg.multi_dot")
def multi_dot(arrays: Sequence[Any]) -> Array:
    """The product of matrices in the cheapest order. NumPy and torch `linalg.multi_dot`.

    The first may be a row and the last a column: vectors, whose axis the result lacks.
    """
    factors = promoted(*arrays)
    last = len(factors) - 1
    if last < 1 or any(x.ndim != 2 and not (x.ndim == 1 and n in (0, last)) for n, x in enumerate(factors)):
        types = ", ".join(str(x.type) for x in factors)
        raise shape_error(f"linalg.multi_dot takes two or more matrices, vectors at the ends, got {types}", *factors)
    letters = "".join(chr(ord("a") + number) for number in range(last + 2))
    if last + 2 > 26:
        raise shape_error(f"linalg.multi_dot takes up to 25 matrices, got {last + 1}")
    terms = [letters[number : number + 2] for number in range(last + 1)]
    terms[0] = terms[0][2 - factors[0].ndim :]
    terms[last] = terms[last][: factors[last].ndim]
    ends = letters[: factors[0].ndim - 1] + letters[last + 1 : last + factors[last].ndim]
    return einsum(f"{','.join(terms)}->{ends}", *factors)


@public("linalg.diagonal")
def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices in the last two axes. NumPy and Array API `linalg.diagonal`."""
    return diagonals.diagonal(x, offset, -2, -1)


@public("linalg.trace")
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of matrices in the last two axes; dtypes as in `sum`.

    NumPy and Array API `linalg.trace`.
    """
    return diagonals.trace(x if dtype is None else cast(as_array(x), check_dtype(dtype)), offset, -2, -1)


@public("linalg.outer")
def outer(x1: Any, x2: Any, /) -> Array:
    """The products of each element of a vector with each of another: (m,), (n,) -> (m, n). Array API `linalg.outer`."""
    first, second = map(as_array, settled(x1, x2))
    if first.ndim != 1 or second.ndim != 1:
        raise shape_error(f"linalg.outer takes two vectors, got {first.type} and {second.type}", first, second)
    return outer_(first, second)


@public("linalg.vector_norm")
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The `ord`-norm over `axis` (None: of all elements). NumPy and Array API `linalg.vector_norm`; see `norm`."""
    return norm_(x, ord, axis, keepdims)
