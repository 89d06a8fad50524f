"""Eigenvalues and singular values by reflections and QR steps, in programs of the CPU: hard matrices, dtypes, batches.

Matrices of fewer columns and devices have rotations, whose tests are in `test_linalg.py`; eager mode calls NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.library.linalg.spectral import LEAST
from staged.library.linalg.tridiagonal import PANEL, parts_of
from staged.testing import compare_trees

Matrix = np.ndarray[Any, Any]

RNG = np.random.default_rng(5)
N = 63
"""Three blocks of Wilkinson's, four panels of which the last one is not whole."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eigh": lambda a: st.linalg.eigh(a),
    "svd": lambda a: st.linalg.svd(a, full_matrices=False),
}


@cache
def program(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """The program that all tests of one function, shape and dtype have in common."""
    return st.function(FUNCTIONS[name])


def eigh(a: Matrix) -> Any:
    return program("eigh", a.shape, a.dtype)(a)


def svd(a: Matrix) -> Any:
    return program("svd", a.shape, a.dtype)(a)


def random(*shape: int, dtype: Any = np.float64) -> Matrix:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else x).astype(dtype)


def hermitian(*shape: int, dtype: Any = np.float64) -> Matrix:
    x = random(*shape, dtype=dtype)
    return np.asarray(x + x.conj().mT)


def of_values(values: Any) -> Matrix:
    """A symmetric matrix of these eigenvalues."""
    basis, _ = np.linalg.qr(random(N, N))
    return np.asarray((basis * values) @ basis.T)


def beside(number: float) -> Matrix:
    return np.diag(np.full(N - 1, number), 1)


def glued(glue: float) -> Matrix:
    """Wilkinson's W21+, three times, joined by small numbers: each eigenvalue is one of six that nearly agree."""
    inside = np.where(np.arange(1, N) % 21 == 0, glue, 1.0)
    return np.diag(np.abs(np.arange(N) % 21 - 10.0)) + np.diag(inside, 1) + np.diag(inside, -1)


def without_rows(a: Matrix) -> Matrix:
    a = a.copy()
    a[20:40] = a[:, 20:40] = 0.0
    return a


GRADED = 10.0 ** np.linspace(0, -15, N)
FAR = 10.0 ** np.linspace(0, -300, N)

SYMMETRIC: dict[str, Matrix] = {
    "random": hermitian(N, N),
    "wilkinson": np.diag(np.abs(np.arange(N) - 31.0)) + beside(1.0) + beside(1.0).T,
    "glued": glued(1e-8),
    "glued and turned": (lambda q: q @ glued(1e-12) @ q.T)(np.linalg.qr(random(N, N))[0]),
    "graded": of_values(GRADED),
    "graded rows": GRADED[:, None] * hermitian(N, N) * GRADED,
    "graded upwards": GRADED[::-1, None] * hermitian(N, N) * GRADED[::-1],
    "far graded": FAR[:, None] * hermitian(N, N) * FAR,
    "far graded upwards": FAR[::-1, None] * hermitian(N, N) * FAR[::-1],
    "clustered": of_values(1.0 + 1e-14 * RNG.standard_normal(N)),
    "two values": of_values(np.where(np.arange(N) < 30, 1.0, -1.0)),
    "repeated": of_values(np.repeat([1.0, 2.0, 3.0], 21)),
    "ones": np.ones((N, N)),
    "rank 3": (lambda x: x @ x.T)(random(N, 3)),
    "zeros": np.zeros((N, N)),
    "identity": -np.eye(N),
    "diagonal": np.diag(RNG.standard_normal(N)),
    "one number": np.diag((np.arange(N) == 7) * 1.0),
    "tiny": 1e-300 * hermitian(N, N),
    "huge": 1e300 * hermitian(N, N),
    "hilbert": 1.0 / (np.arange(N)[:, None] + np.arange(N) + 1.0),
    "differences": 2.0 * np.eye(N) - beside(1.0) - beside(1.0).T,
    "no diagonal": beside(1.0) + beside(1.0).T,
    "other way round": np.eye(N)[::-1].copy(),
    "rows of zeros": without_rows(hermitian(N, N)),
}

OTHERS: dict[str, Matrix] = {
    "general": random(N, N),
    "bidiagonal": np.eye(N) + beside(1.0),
    "shift": beside(1.0),
    "zeros on the diagonal": np.diag((np.arange(N) % 5 != 2) * 1.0) + beside(1.0),
    "zero first": np.diag((np.arange(N) != 0) * 1.0) + beside(1.0),
    "zero last": np.diag((np.arange(N) != N - 1) * 1.0) + beside(1.0),
    "kahan": 0.3 ** np.arange(N)[:, None] * (np.eye(N) - 0.95 * np.triu(np.ones((N, N)), 1)),
    "rank 5": random(N, 5) @ random(5, N),
}

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def check_basis(q: Matrix) -> None:
    """Columns are orthonormal to some roundings for each."""
    n = q.shape[-1]
    error = np.abs(q.conj().mT @ q - np.eye(n)).max(initial=0.0)
    assert error < 2 * max(n, 10) * np.finfo(q.dtype).eps


def largest(a: Matrix) -> float:
    return float(np.abs(a).max(initial=0.0)) or 1.0


def check_eigh(a: Matrix, found: Any) -> None:
    """Residual, basis and values of symmetric matrices, in units of the largest eigenvalue."""
    values, vectors = map(np.asarray, found)
    scale = largest(a)
    assert np.isfinite(vectors).all()
    check_basis(vectors)
    unit = a / scale
    norm = np.linalg.norm(unit, 2, axis=(-2, -1)).max()
    atol = a.shape[-1] * np.finfo(a.dtype).eps * norm
    w = values / scale
    assert np.abs(unit @ vectors - vectors * w[..., None, :]).max() <= atol
    np.testing.assert_allclose(w, np.linalg.eigvalsh(unit), rtol=0, atol=atol)


def check_svd(a: Matrix, found: Any) -> None:
    u, values, vh = map(np.asarray, found)
    scale = largest(a)
    assert np.isfinite(u).all() and np.isfinite(vh).all()
    check_basis(u)
    check_basis(vh.conj().mT)
    unit = a / scale
    norm = np.linalg.norm(unit, 2, axis=(-2, -1)).max()
    atol = max(a.shape[-2:]) * np.finfo(a.dtype).eps * norm
    assert (values >= 0).all() and (np.diff(values) <= 0).all()
    assert np.abs((u * (values / scale)[..., None, :]) @ vh - unit).max() <= atol
    np.testing.assert_allclose(values / scale, np.linalg.svd(unit)[1], rtol=0, atol=atol)


def test_programs_have_no_rotations_from_a_size_on() -> None:
    """Or nothing below tests what it says."""
    for n in (LEAST - 1, LEAST):
        text = st.function(lambda a: (st.linalg.eigh(a), st.linalg.svd(a))).stage(random(n, n)).source
        assert ("is_rotated" in text) == (n < LEAST)
        assert ("qr_steps" in text) == (n >= LEAST)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_hard_symmetric_matrices(name: str) -> None:
    check_eigh(SYMMETRIC[name], eigh(SYMMETRIC[name]))


@pytest.mark.parametrize("name", SYMMETRIC | OTHERS)
def test_singular_values_of_hard_matrices(name: str) -> None:
    a = {**SYMMETRIC, **OTHERS}[name]
    check_svd(a, svd(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: Any) -> None:
    for a in (hermitian(N, N, dtype=dtype), SYMMETRIC["graded"].astype(dtype), SYMMETRIC["glued"].astype(dtype)):
        check_eigh(a, eigh(a))
        check_svd(a, svd(a))
    for a in (SYMMETRIC["rank 3"].astype(dtype), random(N, 4, dtype=dtype) @ random(4, N, dtype=dtype)):
        check_svd(a, svd(a))


@pytest.mark.parametrize("n", [LEAST, 2 * PANEL, 2 * PANEL + 1])
def test_sizes_around_whole_panels(n: int) -> None:
    """In a complex matrix of whole panels the last column has no number below, but a diagonal that is nearly real."""
    for dtype in (np.float64, np.complex128):
        a = hermitian(n, n, dtype=dtype)
        check_eigh(a, eigh(a))
        check_svd(a, svd(a))


def test_the_part_that_is_left_becomes_smaller() -> None:
    n = 250
    assert len(parts_of(-(-n // PANEL), False)) > 1
    a = hermitian(n, n)
    check_eigh(a, eigh(a))
    a = random(n, n)
    check_svd(a, svd(a))


def test_tall_and_wide_matrices() -> None:
    for shape in ((40, 20), (20, 40), (100, 17)):
        a = random(*shape)
        check_svd(a, svd(a))


def test_batches_of_any_number_of_axes() -> None:
    a = hermitian(2, 3, 17, 17)
    check_eigh(a, eigh(a))
    check_svd(a, svd(a))
    a = random(3, 21, 18, dtype=np.complex64)
    check_svd(a, svd(a))
    empty = np.zeros((2, 0, 20, 20))
    assert [x.shape for x in eigh(empty)] == [(2, 0, 20), (2, 0, 20, 20)]


def test_a_batch_of_a_size_that_the_program_finds() -> None:
    a = hermitian(4, 20, 20)

    @st.function
    def some_of(a: Any, n: Any) -> Any:
        some = a[: st.dim("matrices", n, max=4)]
        return st.sum(st.linalg.eigvalsh(some), 0), st.sum(st.linalg.svdvals(some), 0)

    right = np.linalg.eigvalsh(a[:3]).sum(0), np.linalg.svd(a[:3])[1].sum(0)
    compare_trees(some_of(a, 3), right, rtol=1e-12, atol=1e-12)


def test_mapped() -> None:
    a = hermitian(3, 2, 18, 18)
    for function, check in ((st.linalg.eigh, check_eigh), (st.linalg.svd, check_svd)):
        check(a, st.function(st.vmap(function))(a))
        check(a, st.function(st.vmap(function, in_axes=1, out_axes=1))(a))


def test_values_alone_and_the_upper_triangle() -> None:
    a = random(24, 24, dtype=np.complex128)

    @st.function
    def values(a: Any) -> Any:
        return st.linalg.eigvalsh(a), st.linalg.eigvalsh(a, UPLO="U"), st.linalg.svdvals(a), st.linalg.matrix_rank(a)

    right = np.linalg.eigvalsh(a), np.linalg.eigvalsh(a, "U"), np.linalg.svd(a)[1], np.array(24)
    compare_trees(values(a), right, rtol=1e-12, atol=1e-12)
    buffer = re.compile(r"\.rows(_re)? = ")  # of the vectors that steps turn
    texts = [st.function(f).stage(a).source for f in (lambda a: st.linalg.eigh(a), lambda a: st.linalg.eigvalsh(a))]
    assert [bool(buffer.search(text)) for text in texts] == [True, False]


def test_a_region_has_rotations_and_eager_mode_the_same_values(emulated_device: Any) -> None:
    a = hermitian(20, 20)

    @st.function
    def on_device(a: Any) -> Any:
        with st.with_backend(st.GPU, a):
            return st.linalg.eigh(a), st.linalg.svd(a, full_matrices=False)

    with st.eager():
        eager = st.linalg.eigh(a), st.linalg.svd(a, full_matrices=False)
    assert "is_rotated" in on_device.stage(a).source
    for found in (on_device(a), eager):
        check_eigh(a, found[0])
        check_svd(a, found[1])


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_programs_end_where_a_number_is_none(number: float) -> None:
    """All results of that matrix are NaN, and the others of the batch are right."""
    a = hermitian(3, 20, 20)
    right = a.copy()
    a[1, 7, 3] = a[1, 3, 7] = number
    for function, check in ((eigh, check_eigh), (svd, check_svd)):
        found = [np.asarray(x) for x in function(a)]
        assert all(np.isnan(x[1]).all() for x in found)
        check(right[[0, 2]], [x[[0, 2]] for x in found])
        small = [np.asarray(x) for x in function(a[1, :8, :8])]  # by rotations
        assert np.isnan(small[1 if function is svd else 0]).all()


# ---- derivatives ------------------------------------------------------------------------------------


def of_eigh(a: Any) -> Any:
    values, vectors = st.linalg.eigh(a + a.mT.conj())
    some = vectors[..., :3]
    return st.sum(st.sin(values)) + st.sum(st.abs(some @ some.mT.conj()) ** 2 * WEIGHTS)


def of_svd(a: Any) -> Any:
    u, values, vh = st.linalg.svd(a, full_matrices=False)
    product = u[..., :2] @ vh[..., :2, :]
    return st.sum(st.sin(values)) + st.sum(st.abs(product) ** 2 * WEIGHTS)


WEIGHTS = RNG.standard_normal((18, 18))


@pytest.mark.parametrize("function", [of_eigh, of_svd])
def test_derivatives(function: Callable[..., Any]) -> None:
    a, b = random(18, 18), random(18, 18)
    st.check_grads(function, (a,), rtol=1e-5)
    st.check_grads(lambda a, b: function(st.complex(a, b)), (a, b), rtol=1e-5)


def test_derivatives_of_eager_mode_are_the_same() -> None:
    a = random(18, 18)
    for function in (of_eigh, of_svd):
        found = st.function(st.value_and_grad(function))(a)
        with st.eager():
            compare_trees(found, st.value_and_grad(function)(a), rtol=1e-9, atol=1e-10)
