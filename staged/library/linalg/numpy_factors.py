"""Factors of matrices by NumPy, which eager mode uses in place of the loops of our kernels: a thousand times faster.

All numbers of a matrix with NaN or infinities are NaN, as those of our kernels. Signs are LAPACK's: of `qr` the same as
those of our kernels, of eigenvectors and singular vectors arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Matrices = np.ndarray[Any, Any]


def _factors(compute: Callable[[Matrices], Sequence[Matrices]], a: Matrices, read: Matrices) -> tuple[Matrices, ...]:
    """The factors of matrices whose parts `read` are finite, and NaN for others."""
    is_finite = np.asarray(np.isfinite(read).all((-2, -1)))
    results = _converged(compute, np.where(is_finite[..., None, None], a, 0))
    for result in results:
        result[~is_finite] = np.nan
    return results


def _converged(compute: Callable[[Matrices], Sequence[Matrices]], a: Matrices) -> tuple[Matrices, ...]:
    """The factors, and NaN for a matrix whose iteration does not end."""
    try:
        return tuple(np.array(result) for result in compute(a))
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return tuple(np.full_like(result, np.nan) for result in compute(np.zeros_like(a)))
        return tuple(np.stack(results) for results in zip(*(_converged(compute, one) for one in a), strict=True))


def eigh(a: Matrices) -> tuple[Matrices, ...]:
    """The eigenvalues (..., n), ascending, and eigenvectors (..., n, n) of the Hermitian matrices with these lower
    triangles."""
    return _factors(np.linalg.eigh, a, np.tril(a))


def svd(a: Matrices) -> tuple[Matrices, ...]:
    """u (..., m, n), the singular values (..., n), descending, and v (..., n, n), not turned, for m >= n."""

    def compute(a: Matrices) -> tuple[Matrices, ...]:
        u, values, vh = np.linalg.svd(a, full_matrices=False)
        return u, values, vh.conj().swapaxes(-1, -2)

    return _factors(compute, a, a)


def qr(a: Matrices) -> tuple[Matrices, ...]:
    """q (..., m, n) and r (..., n, n), for m >= n."""
    return _factors(np.linalg.qr, a, a)


def qr_complete(a: Matrices) -> tuple[Matrices, ...]:
    """q (..., m, m) and r (..., m, n), for m >= n."""
    n = a.shape[-1]
    q, r = _factors(lambda a: np.linalg.qr(a, "complete"), a, a)
    r[..., n:, :] = 0.0
    return q, r
