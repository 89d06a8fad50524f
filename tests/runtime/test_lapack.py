"""`STAGED_BLAS`: factors of matrices by a LAPACK that the user links, here the one that comes with SciPy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.native.lapack.ways import OFFERS
from staged.runtime.blas import chosen_blas
from staged.testing import compare_trees
from tests.runtime.test_blas import library as tiny_blas

RNG = np.random.default_rng(5)
ALL = pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}
"""Functions of real matrices that have another name for complex ones."""


@pytest.fixture
def lapack(scipys_blas: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of `STAGED_BLAS`, which computes all matrices of two columns or more."""
    for name, offer in OFFERS.items():
        monkeypatch.setitem(OFFERS, name, offer._replace(least=2, least_complex=2))


def matrix(*shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    drawn = RNG.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        return (drawn + 1j * RNG.standard_normal(shape)).astype(dtype)
    return drawn.astype(dtype)


def adjoint(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.conj(a.mT)


def symmetric(*shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Positive definite matrices; Hermitian ones of a complex dtype."""
    a = matrix(*shape, dtype=np.result_type(dtype, np.float64))
    return np.asarray(a @ adjoint(a) / shape[-1] + np.eye(shape[-1]), dtype)


def linked(f: Callable[..., Any], *arguments: Any, calls: str = "") -> Any:
    """The results of a program that calls these functions of LAPACK, and no others."""
    program = st.function(f).stage(*arguments)
    called = set(re.findall(r"scipy_(?:cblas_)?(\w+?)_?\(", program.source))
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[arguments[0].dtype.char]
    names = COMPLEX if letter in "cz" else {}
    assert called == {letter + names.get(name, name) for name in calls.split()}
    return program(*arguments)


def plain(monkeypatch: pytest.MonkeyPatch, f: Callable[..., Any], *arguments: Any) -> Any:
    """The results in eager mode, without the library."""
    with monkeypatch.context() as without:
        without.delenv("STAGED_BLAS")
        return f(*arguments)


def tolerance(dtype: Any) -> float:
    return 1e-10 if np.finfo(dtype).bits == 64 else 2e-4


SHAPES = pytest.mark.parametrize("shape", [(9, 9), (2, 3, 5, 5)])


@ALL
@SHAPES
def test_cholesky_factors(lapack: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: Any) -> None:
    a = symmetric(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        lower = st.linalg.cholesky(st.tril(a))  # the other triangle is unused
        return lower, st.linalg.cholesky(st.triu(a), upper=True)

    found = linked(f, a, calls="potrf")
    compare_trees(found, plain(monkeypatch, f, a), rtol=tolerance(dtype), atol=tolerance(dtype))
    np.testing.assert_allclose(found[0], np.linalg.cholesky(a), rtol=1e-3, atol=1e-4)


@ALL
@SHAPES
def test_lu_factors_and_what_follows(
    lapack: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: Any
) -> None:
    a, b = matrix(*shape, dtype=dtype) + 2 * np.eye(shape[-1], dtype=dtype)[::-1], matrix(*shape, dtype=dtype)

    def f(a: Any, b: Any) -> Any:
        linalg = st.linalg
        return linalg.lu_factor(a), linalg.lu(a), linalg.solve(a, b), linalg.inv(a), linalg.det(a), linalg.slogdet(a)

    found = linked(f, a, b, calls="getrf trsm")
    compare_trees(found, plain(monkeypatch, f, a, b), rtol=100 * tolerance(dtype), atol=10 * tolerance(dtype))
    p, lower, upper = found[1]
    np.testing.assert_allclose(p @ lower @ upper, a, rtol=1e-4, atol=1e-4)


@ALL
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems(lapack: None, monkeypatch: pytest.MonkeyPatch, upper: bool, dtype: Any) -> None:
    a, b, c = symmetric(3, 7, 7, dtype=dtype), matrix(3, 7, 4, dtype=dtype), matrix(7, dtype=dtype)

    def f(a: Any, b: Any, c: Any) -> Any:
        solve = st.linalg.solve_triangular
        unit = solve(a, b, upper=upper, unitriangular=True)
        return solve(a, b, upper=upper), unit, solve(a[0], c, upper=upper), solve(a, b.mT, upper=upper, left=False)

    found = linked(f, a, b, c, calls="trsm")
    compare_trees(found, plain(monkeypatch, f, a, b, c), rtol=tolerance(dtype), atol=tolerance(dtype))
    np.testing.assert_allclose((np.triu if upper else np.tril)(a) @ found[0], b, rtol=1e-3, atol=1e-4)


@ALL
@pytest.mark.parametrize("shape", [(6, 6), (3, 20, 7), (2, 4, 9)])
def test_qr_factors(lapack: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: Any) -> None:
    a = matrix(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        return st.linalg.qr(a), st.linalg.qr(a, mode="complete")

    found = linked(f, a, calls="geqrf orgqr")
    (q, r), (whole, _) = found
    compare_trees(found[0], plain(monkeypatch, f, a)[0], rtol=tolerance(dtype), atol=tolerance(dtype))
    np.testing.assert_allclose(whole @ adjoint(whole), np.broadcast_to(np.eye(shape[-2]), whole.shape), atol=1e-4)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    np.testing.assert_array_equal(np.diagonal(r, 0, -2, -1).imag, 0)


@ALL
@SHAPES
def test_eigenvalues(lapack: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: Any) -> None:
    a = matrix(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        return st.linalg.eigh(a), st.linalg.eigvalsh(a, UPLO="U")

    found = linked(f, a, calls="syevd")
    (values, vectors), others = found
    (own, own_vectors), own_others = plain(monkeypatch, f, a)
    compare_trees((values, others), (own, own_others), rtol=10 * tolerance(dtype), atol=10 * tolerance(dtype))
    np.testing.assert_allclose(np.abs(np.sum(vectors.conj() * own_vectors, -2)), 1.0, rtol=1e-3)
    a = np.tril(a, -1) + adjoint(np.tril(a, -1)) + np.eye(shape[-1]) * a.real
    np.testing.assert_allclose(vectors * values[..., None, :] @ adjoint(vectors), a, rtol=1e-4, atol=1e-4)


@ALL
@pytest.mark.parametrize("shape", [(6, 6), (3, 20, 7), (2, 4, 9)])
def test_singular_values(lapack: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: Any) -> None:
    a = matrix(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        rank = st.linalg.matrix_rank(a)
        return st.linalg.svd(a, full_matrices=False), st.linalg.svdvals(a), st.linalg.pinv(a), rank

    found = linked(f, a, calls="gesdd")
    (u, values, vh), others, inverse, rank = found
    (own_u, own, own_vh), *own_others = plain(monkeypatch, f, a)
    close = 20 * tolerance(dtype)
    compare_trees((values, others, inverse, rank), (own, *own_others), rtol=close, atol=close)
    np.testing.assert_allclose(np.abs(np.sum(u.conj() * own_u, -2)), 1.0, rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.sum(vh.conj() * own_vh, -1)), 1.0, rtol=1e-3)
    np.testing.assert_allclose(u * values[..., None, :] @ vh, a, rtol=1e-4, atol=1e-4)


def test_whole_bases(lapack: None) -> None:
    a = matrix(9, 4)
    u, values, vh = linked(lambda a: st.linalg.svd(a), a, calls="gesdd geqrf orgqr")
    np.testing.assert_allclose(u.T @ u, np.eye(9), atol=1e-12)
    np.testing.assert_allclose(u[:, :4] * values @ vh, a)


# ---- gradients --------------------------------------------------------------------------------------


def test_gradients_of_symmetric_matrices(lapack: None) -> None:
    def loss(a: Any) -> Any:
        a = a + a.T
        values, vectors = st.linalg.eigh(a)
        return st.sum(st.linalg.cholesky(a) ** 3) + st.sum(vectors[:, 0] ** 4) + st.sum(values**2)

    a = symmetric(4, 4)
    assert "dsyevd" in st.function(st.grad(loss)).stage(a).source
    st.check_grads(loss, (a,), modes=("rev",))


def test_gradients_of_square_matrices(lapack: None) -> None:
    def loss(a: Any, b: Any) -> Any:
        return st.sum(st.linalg.solve(a, b) ** 2) + st.sum(st.linalg.svdvals(a) ** 3)

    a, b = symmetric(4, 4) + np.diag(np.arange(4.0)), matrix(4, 3)
    assert "dgesdd" in st.function(st.grad(loss)).stage(a, b).source
    st.check_grads(loss, (a, b), modes=("rev",))


def test_gradients_of_complex_matrices(lapack: None) -> None:
    def loss(re: Any, im: Any) -> Any:
        linalg, z = st.linalg, st.complex(re, im)
        hermitian = z @ st.conj(z.mT) + st.eye(4)
        values, vectors = linalg.eigh(hermitian)
        total = st.sum(st.abs(linalg.cholesky(hermitian)) ** 3) + st.sum(st.abs(vectors[:, 0]) ** 4) + st.sum(values**2)
        q, r = linalg.qr(z)
        return total + st.sum(st.real(q * r)) + st.sum(st.abs(linalg.solve(z, z.mT))) + st.sum(linalg.svdvals(z) ** 3)

    draws = np.random.default_rng(5)  # the same in each order of the tests: some matrices are almost singular
    parts = (draws.standard_normal((4, 4)) + np.diag(np.arange(4.0)), draws.standard_normal((4, 4)))
    text = st.function(st.grad(loss, argnums=(0, 1))).stage(*parts).source
    assert all(f"scipy_z{name}_(" in text for name in ("heevd", "potrf", "ungqr", "getrf", "gesdd"))
    st.check_grads(loss, parts, modes=("rev",))


def test_a_function_of_one_matrix_is_mapped(lapack: None) -> None:
    a = symmetric(5, 4, 4)
    found = linked(st.vmap(lambda a: st.linalg.cholesky(a)), a, calls="potrf")
    np.testing.assert_allclose(found, np.linalg.cholesky(a))


# ---- what is wrong, and what is special ---------------------------------------------------------------


def test_matrices_without_factors_stop_the_program_in_the_users_line(lapack: None) -> None:
    good = symmetric(5, 5)
    bad = good.copy()
    bad[3, 3] = -1.0

    def cholesky(a: Any) -> Any:
        return st.linalg.cholesky(a)

    def solve(a: Any) -> Any:
        return st.linalg.solve(a, a)

    for f, one, call, line in (
        (cholesky, bad, "potrf", "return st.linalg.cholesky"),
        (solve, np.ones((5, 5)), "getrf trsm", "return st.linalg.solve"),
    ):
        batch = np.stack([good, one, good])
        with pytest.raises(ValueError, match="singular|not positive definite") as caught:
            linked(f, batch, calls=call)
        assert line in str(caught.value)
        linked(f, np.stack([good, good, good]), calls=call)


def test_nan_and_infinity_give_nan_and_other_matrices_of_the_batch_are_right(
    lapack: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (np.nan, np.inf):
        a = symmetric(3, 6, 6)
        whole = a.copy()
        a[1, 4, 2] = number

        def f(a: Any) -> Any:
            linalg = st.linalg
            return linalg.eigh(a), linalg.svd(a), linalg.eigvalsh(a), linalg.svdvals(a)

        found = linked(f, a, calls="syevd gesdd")
        own = plain(monkeypatch, f, a)
        for mine, other in zip((*found[0], *found[1], *found[2:]), (*own[0], *own[1], *own[2:]), strict=True):
            assert np.isnan(mine[1]).all() and np.isnan(other[1]).any()
            assert np.isfinite(mine[[0, 2]]).all()
        np.testing.assert_allclose(found[2][[0, 2]], np.linalg.eigvalsh(whole)[[0, 2]])
        # The row that LU takes at each step is one of the matrix, whatever is in it.
        order = np.argmax(linked(lambda a: st.linalg.lu(a)[0], a, calls="getrf"), -1)
        np.testing.assert_array_equal(np.sort(order, -1), np.broadcast_to(np.arange(6), (3, 6)))


def test_the_other_triangle_of_a_symmetric_matrix_is_unused(lapack: None) -> None:
    a = symmetric(6, 6)
    values, _ = linked(lambda a: st.linalg.eigh(a), np.tril(a) + np.triu(np.full((6, 6), np.nan), 1), calls="syevd")
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a))


@pytest.mark.parametrize("shape", [(0, 0), (0, 5, 5), (1, 1), (3, 1, 1)])
def test_matrices_without_work_stay_in_the_program(
    lapack: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    def f(a: Any) -> Any:
        linalg = st.linalg
        return linalg.cholesky(a), linalg.lu(a), linalg.qr(a), linalg.solve(a, a), linalg.eigvalsh(a), linalg.svdvals(a)

    a = np.abs(matrix(*shape)) + 1.0
    compare_trees(linked(f, a), plain(monkeypatch, f, a), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_small_matrices_stay_in_the_program(lapack: None, monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """Those below the least size for their dtype."""
    a = matrix(6, 6, dtype=dtype)
    own, other = ("least", "least_complex") if dtype is np.float64 else ("least_complex", "least")
    sizes = {own: 7, other: 2}
    monkeypatch.setitem(OFFERS, "svd", OFFERS["svd"]._replace(**sizes))
    monkeypatch.setitem(OFFERS, "qr", OFFERS["qr"]._replace(**sizes))
    np.testing.assert_allclose(linked(lambda a: st.linalg.svdvals(a), a), np.linalg.svd(a, compute_uv=False))


def test_no_imaginary_part_of_a_hermitian_diagonal_is_read(lapack: None) -> None:
    a = symmetric(6, 6, dtype=np.complex128)

    def f(a: Any) -> Any:
        return st.linalg.cholesky(a), st.linalg.eigvalsh(a), st.linalg.eigh(a)

    shown = a.copy()
    np.einsum("ii->i", shown).imag = np.nan
    lower, values, (others, vectors) = linked(f, shown, calls="potrf syevd")
    np.testing.assert_allclose(lower, np.linalg.cholesky(a))
    np.testing.assert_allclose(np.stack([values, others]), np.stack([np.linalg.eigvalsh(a)] * 2))
    np.testing.assert_allclose(a @ vectors, vectors * values)


# ---- programs ---------------------------------------------------------------------------------------


def test_several_threads_and_nan_checks(lapack: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_NUM_THREADS", "2")
    a = symmetric(40, 30, 30)

    @st.function(check_nan=True)
    def f(a: Any) -> Any:
        u, values, vh = st.linalg.svd(a)
        return st.linalg.cholesky(a), st.linalg.eigvalsh(a), u * values[..., None, :] @ vh

    lower, values, product = f(a)
    np.testing.assert_allclose(lower, np.linalg.cholesky(a))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a))
    np.testing.assert_allclose(product, a, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_an_exported_folder_links_it(lapack: None, tmp_path: Path, dtype: Any) -> None:
    a = symmetric(20, 20, dtype=dtype)

    def f(a: Any) -> Any:
        linalg = st.linalg
        return linalg.eigh(a), linalg.eigvalsh(a), linalg.cholesky(a), linalg.qr(a), linalg.solve(a, a), linalg.svd(a)

    program = st.function(f).stage(a)
    folder = tmp_path / "exported"
    program.export(str(folder))
    built = subprocess.run(["make", "CFLAGS=-O1 -Wall -Wextra -Wconversion -Werror"], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "scipy_openblas" in (folder / "Makefile").read_text()


def test_a_library_without_lapack_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STAGED_BLAS", str(tiny_blas(tmp_path)))
    with pytest.raises(st.CompilerError, match=r"has no LAPACK, which this program's `st.linalg` calls.*getrf"):
        st.function(lambda a: st.linalg.lu_factor(a))(matrix(80, 80))


def test_the_reference_library_has_its_lapack_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_BLAS", "reference")
    program = st.function(lambda a: st.linalg.lu_factor(a), target="portable").stage(matrix(80, 80))
    assert "dgetrf_(&n, &n, x, &n, places, &info);" in program.source
    flags = chosen_blas()
    assert flags is not None and (*flags.lapack, *flags.link) == ("-llapack", "-lcblas", "-lblas")


def test_targets_of_plain_c_have_their_own(lapack: None) -> None:
    a = symmetric(20, 20)
    program = st.function(lambda a: st.linalg.cholesky(a), target="c99").stage(a)
    assert "dpotrf_" not in program.source
