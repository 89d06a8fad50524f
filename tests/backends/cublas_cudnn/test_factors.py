"""LU and QR factors, eigenvalues, singular values by cuSOLVER, triangular systems by cuBLAS: on the emulated device."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import staged as st
from cuda_emulator import Emulator
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import on_gpu

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(11)
BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])
Matrix = np.ndarray[Any, Any]


def matrix(*shape: int, dtype: Any = np.float64) -> Matrix:
    return RANDOM.standard_normal(shape).astype(dtype)


def regular(*shape: int, dtype: Any = np.float64) -> Matrix:
    """Matrices far from singular ones, whose rows LU factors exchange."""
    return np.asarray(matrix(*shape) / shape[-1] ** 0.5 + 2.0 * np.eye(shape[-1])[::-1], dtype)


def symmetric(a: Matrix) -> Matrix:
    """The matrix of which `a` has the lower triangle."""
    return np.tril(a) + np.tril(a, -1).mT


def close(dtype: Any) -> float:
    return 1e-10 if dtype == np.float64 else 2e-4


def found(f: Callable[..., Any], *arguments: Any, by: str) -> Any:
    """The results of a program that calls these functions for factors and systems, and no others."""
    program = on_gpu(f).stage(*arguments)
    letter = "S" if arguments[0].dtype == np.float32 else "D"
    called = re.findall(rf"_CHECK\(site, (?:cusolverDn{letter}(\w+)|cublas{letter}(trsm))\(", program.source)
    assert {name or other for name, other in called} == set(by.split())
    return program(*arguments)


# ---- values -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("batch", [(), (2, 2)], ids=str)
def test_triangular_systems(batch: tuple[int, ...], dtype: Any) -> None:
    n = 33
    a = regular(*batch, n, n, dtype=dtype)[..., ::-1, :].copy()
    b, c = matrix(*batch, n, 5, dtype=dtype), matrix(n, dtype=dtype)

    def f(a: Any, b: Any, c: Any) -> Any:
        solve = st.linalg.solve_triangular
        found = []
        for upper in (False, True):
            from_right, unit = solve(a, b.mT, upper=upper, left=False), solve(a, b, upper=upper, unitriangular=True)
            found.append((solve(a, b, upper=upper), from_right, unit))
        return found, solve(a if a.ndim == 2 else a[0, 0], c, upper=True)

    (lower, upper), vector = found(f, a, b, c, by="trsm")
    for triangle, (x, from_right, of_unit) in ((np.tril(a), lower), (np.triu(a), upper)):
        np.testing.assert_allclose(x, np.linalg.solve(triangle, b), rtol=close(dtype), atol=close(dtype))
        expected = np.linalg.solve(triangle.mT, b).mT
        np.testing.assert_allclose(from_right, expected, rtol=close(dtype), atol=close(dtype))
        unit = triangle * (1.0 - np.eye(n)) + np.eye(n)
        np.testing.assert_allclose(unit @ of_unit, b, rtol=1e-3, atol=1e-3)
    first = a.reshape(-1, n, n)[0]
    np.testing.assert_allclose(vector, scipy.linalg.solve_triangular(first, c), rtol=close(dtype), atol=close(dtype))


def test_a_triangle_that_is_its_own_right_side() -> None:
    a = np.tril(regular(32, 32)[::-1])

    def f(a: Any) -> Any:
        t = st.tril(a)
        return st.linalg.solve_triangular(t, t, upper=False)

    np.testing.assert_allclose(found(f, a, by="trsm"), np.eye(32), atol=1e-12)


@BOTH
@pytest.mark.parametrize("shape", [(40, 40), (2, 2, 33, 33)], ids=str)
def test_lu_factors_and_what_follows(shape: tuple[int, ...], dtype: Any) -> None:
    a, b = regular(*shape, dtype=dtype), matrix(*shape, dtype=dtype)

    def f(a: Any, b: Any) -> Any:
        linalg = st.linalg
        return linalg.lu_factor(a), linalg.lu(a), linalg.solve(a, b), linalg.inv(a), linalg.det(a), linalg.slogdet(a)

    (factors, pivots), (p, lower, upper), x, inverse, det, (sign, log) = found(f, a, b, by="getrf laswp trsm")
    batches = (each.reshape(-1, *each.shape[len(shape) - 2 :]) for each in (a, factors, pivots))
    for one, own, chosen in zip(*batches, strict=True):
        expected, places = scipy.linalg.lu_factor(one)
        np.testing.assert_allclose(own, expected, rtol=close(dtype), atol=close(dtype))
        np.testing.assert_array_equal(chosen, places + 1)
    np.testing.assert_allclose(p @ lower @ upper, a, rtol=close(dtype), atol=close(dtype))
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=close(dtype), atol=close(dtype))
    np.testing.assert_allclose(inverse, np.linalg.inv(a), rtol=close(dtype), atol=close(dtype))
    np.testing.assert_allclose(det, np.linalg.det(a), rtol=10 * close(dtype))
    np.testing.assert_allclose((sign, log), np.linalg.slogdet(a), rtol=close(dtype))


@BOTH
@pytest.mark.parametrize("shape", [(32, 32), (2, 2, 40, 33), (33, 50)], ids=str)
def test_qr_factors(shape: tuple[int, ...], dtype: Any) -> None:
    a = matrix(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        return st.linalg.qr(a), st.linalg.qr(a, mode="complete")

    (q, r), (whole, whole_r) = found(f, a, by="geqrf orgqr")
    expected_q, expected_r = np.linalg.qr(a)
    np.testing.assert_allclose(np.abs(q), np.abs(expected_q), rtol=close(dtype), atol=close(dtype))
    np.testing.assert_allclose(np.abs(r), np.abs(expected_r), rtol=close(dtype), atol=close(dtype))
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    for left, right in ((q, r), (whole, whole_r)):
        np.testing.assert_allclose(left @ right, a, rtol=close(dtype), atol=close(dtype))
        unit = np.broadcast_to(np.eye(left.shape[-1]), (*shape[:-2], left.shape[-1], left.shape[-1]))
        np.testing.assert_allclose(left.mT @ left, unit, atol=close(dtype))
    assert whole.shape[-1] == shape[-2]


@BOTH
@pytest.mark.parametrize("shape", [(32, 32), (2, 2, 33, 33)], ids=str)
def test_eigenvalues(shape: tuple[int, ...], dtype: Any) -> None:
    a = matrix(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        return st.linalg.eigvalsh(a, UPLO="U"), st.linalg.eigh(a)  # which needs the larger workspace

    others, (values, vectors) = found(f, a, by="syevd")
    expected = np.linalg.eigvalsh(a)
    np.testing.assert_allclose(values, expected, rtol=close(dtype), atol=10 * close(dtype))
    np.testing.assert_allclose(others, np.linalg.eigvalsh(a, "U"), rtol=close(dtype), atol=10 * close(dtype))
    product = vectors * values[..., None, :] @ vectors.mT
    np.testing.assert_allclose(product, symmetric(a), rtol=close(dtype), atol=10 * close(dtype))


@BOTH
@pytest.mark.parametrize("shape", [(32, 32), (2, 2, 40, 33), (33, 50)], ids=str)
def test_singular_values(shape: tuple[int, ...], dtype: Any) -> None:
    a = matrix(*shape, dtype=dtype)

    def f(a: Any) -> Any:
        return st.linalg.svd(a, full_matrices=False), st.linalg.svdvals(a), st.linalg.pinv(a), st.linalg.matrix_rank(a)

    (u, values, vh), others, inverse, rank = found(f, a, by="gesvd")
    expected = np.linalg.svd(a, compute_uv=False)
    np.testing.assert_allclose(values, expected, rtol=close(dtype), atol=10 * close(dtype))
    np.testing.assert_allclose(others, expected, rtol=close(dtype), atol=10 * close(dtype))
    np.testing.assert_allclose(u * values[..., None, :] @ vh, a, rtol=close(dtype), atol=10 * close(dtype))
    for basis in (u.mT @ u, vh @ vh.mT):
        np.testing.assert_allclose(basis, np.broadcast_to(np.eye(basis.shape[-1]), basis.shape), atol=close(dtype))
    np.testing.assert_allclose(a @ inverse @ a, a, rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(rank, np.linalg.matrix_rank(a))


# ---- gradients --------------------------------------------------------------------------------------


def systems(a: Any, b: Any) -> Any:
    x = st.linalg.solve(a, b)
    return st.sum(st.linalg.solve_triangular(a @ a.T, x, upper=True) ** 2) + st.linalg.slogdet(a).logabsdet


def factors(a: Any, b: Any) -> Any:
    q, r = st.linalg.qr(b)
    factor, _ = st.linalg.lu_factor(a)
    return st.sum(q**4) + st.sum(r**4) + st.sum(factor**3)  # whatever the signs of columns


def values(a: Any, b: Any) -> Any:
    w, v = st.linalg.eigh(a + a.T)
    u, s, _ = st.linalg.svd(b, full_matrices=False)
    return st.sum(w**2) + st.sum(v[:, 0] ** 4) + st.sum(u[:, 0] ** 4) + st.sum(s**3)


@pytest.mark.parametrize(
    ("loss", "by"),
    [(systems, "getrf laswp trsm"), (factors, "geqrf getrf laswp orgqr trsm"), (values, "gesvd syevd")],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_gradients_are_those_of_the_host(loss: Callable[..., Any], by: str) -> None:
    a, b = regular(32, 32), matrix(40, 33) if loss is not systems else matrix(32, 3)
    gradient = st.grad(loss, argnums=(0, 1))

    def f(a: Any, b: Any) -> Any:
        return gradient(a, b)

    compare_trees(found(f, a, b, by=by), st.function(f)(a, b), rtol=1e-7, atol=1e-8)


def test_a_function_of_one_matrix_is_mapped() -> None:
    a = regular(4, 32, 32)
    mapped = st.vmap(lambda a: (st.linalg.inv(a), st.linalg.eigvalsh(a)))
    inverse, eigenvalues = found(lambda a: mapped(a), a, by="getrf laswp trsm syevd")
    np.testing.assert_allclose(inverse, np.linalg.inv(a), atol=1e-10)
    np.testing.assert_allclose(eigenvalues, np.linalg.eigvalsh(a), atol=1e-10)


# ---- what is wrong, and what is special ---------------------------------------------------------------


def test_a_singular_matrix_means_what_it_means_on_the_host() -> None:
    a = regular(3, 32, 32)
    a[1] = np.ones((32, 32))

    def solve(a: Any) -> Any:
        return st.linalg.solve(a, a)

    with pytest.raises(ValueError, match=r"linalg.solve: the matrix is singular") as caught:
        on_gpu(solve)(a)
    assert "return st.linalg.solve(a, a)" in str(caught.value)

    def factored(a: Any) -> Any:
        return st.linalg.lu_factor(a), st.linalg.det(a), st.linalg.slogdet(a)

    # No reader of the order of rows: it is not computed.
    compare_trees(found(factored, a, by="getrf"), st.function(factored)(a), rtol=1e-9, atol=1e-9)


def test_matrices_of_lower_rank_and_equal_values() -> None:
    column = matrix(33, 2)
    a = np.stack([column @ column.T, np.eye(33), np.zeros((33, 33))])

    def f(a: Any) -> Any:
        return st.linalg.svd(a), st.linalg.eigh(a), st.linalg.matrix_rank(a), st.linalg.qr(a)

    (u, s, vh), (w, v), rank, (q, r) = found(f, a, by="gesvd syevd geqrf orgqr")
    np.testing.assert_array_equal(rank, [2, 33, 0])
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-10)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=1e-10)
    np.testing.assert_allclose(q @ r, a, atol=1e-10)
    for basis in (u.mT @ u, vh @ vh.mT, v.mT @ v, q.mT @ q):
        np.testing.assert_allclose(basis, np.broadcast_to(np.eye(33), basis.shape), atol=1e-10)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_nan_and_infinity_give_nan_and_the_other_matrices_are_right(number: float) -> None:
    whole = matrix(3, 32, 32)
    a = whole.copy()
    a[1, 20, 4] = number

    def f(a: Any) -> Any:
        linalg = st.linalg
        return linalg.eigh(a), linalg.svd(a), linalg.eigvalsh(a), linalg.svdvals(a), linalg.lu(a)[0]

    eigen, singular, w, s, p = found(f, a, by="syevd gesvd getrf laswp")
    for each in (*eigen, *singular, w, s):
        assert np.isnan(each[1]).all() and np.isfinite(each[[0, 2]]).all()
    np.testing.assert_allclose(w[[0, 2]], np.linalg.eigvalsh(whole)[[0, 2]], atol=1e-10)
    np.testing.assert_allclose(s[[0, 2]], np.linalg.svd(whole, compute_uv=False)[[0, 2]], atol=1e-10)
    # The row that LU takes at each step is one of the matrix, whatever is in it.
    np.testing.assert_array_equal(np.sort(np.argmax(p, -1), -1), np.broadcast_to(np.arange(32), (3, 32)))


def test_the_other_triangle_of_a_symmetric_matrix_is_unused() -> None:
    a = matrix(32, 32)
    given = np.tril(a) + np.triu(np.full_like(a, np.nan), 1)
    w, v = found(lambda a: st.linalg.eigh(a), given, by="syevd")
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=1e-10)
    assert np.isfinite(v).all()


@pytest.mark.parametrize("shape", [(31, 31), (5, 32, 32), (0, 32, 32)], ids=str)
def test_small_matrices_and_large_batches_have_kernels(shape: tuple[int, ...]) -> None:
    a = regular(*shape)

    def f(a: Any) -> Any:
        return st.linalg.lu_factor(a)[0], st.linalg.solve_triangular(a, a[..., :2], upper=True), st.linalg.qr(a).R

    compare_trees(found(f, a, by=""), st.function(f)(a), rtol=1e-6, atol=1e-8)


def test_complex_matrices_and_right_sides_of_no_column_have_kernels() -> None:
    a = regular(32, 32)

    def f(a: Any) -> Any:
        return st.linalg.eigvalsh(a + 1j * a), st.linalg.solve_triangular(a, a[:, :0], upper=True)

    eigenvalues, nothing = found(f, a, by="")
    np.testing.assert_allclose(eigenvalues, np.linalg.eigvalsh(a + 1j * a), atol=1e-10)
    assert nothing.shape == (32, 0)


def test_the_same_bits_come_each_time_unless_a_region_lets_them_differ() -> None:
    a = matrix(33, 32)

    def f(a: Any) -> Any:
        return st.linalg.svdvals(a), st.linalg.eigvalsh(a[:32]), st.linalg.qr(a).R

    def runs(staged: Any) -> list[bytes]:
        return [b"".join(np.asarray(each).tobytes() for each in staged(a)) for _ in range(4)]

    assert len(set(runs(on_gpu(f)))) == 1
    loose = on_gpu(f, deterministic=False)
    assert "CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS" in loose.stage(a).source
    compare_trees(loose(a), on_gpu(f)(a), rtol=1e-10, atol=1e-10)


# ---- programs ---------------------------------------------------------------------------------------


def test_a_loop_makes_handles_and_workspaces_once(device: Emulator) -> None:
    def loop(a: Any, n: Any) -> Any:
        total = st.zeros_like(a)
        for _ in st.range(n):
            w, v = st.linalg.eigh(a + total)
            q, r = st.linalg.qr(a + total)
            total = st.tanh(v * w @ v.T / st.linalg.svdvals(a + total)[0] + st.linalg.solve(a, q @ r))
        return total

    a = regular(32, 32)
    made = []
    for n in (2, 5):
        before, objects = device.counts(), device.objects()
        np.testing.assert_allclose(on_gpu(loop)(a, n), st.function(loop)(a, n), atol=1e-10)
        now = device.objects()
        kinds = [now[kind][1] - objects.get(kind, (0, 0))[1] for kind in ("cusolverDnHandle", "cublasHandle")]
        assert kinds == [1, 1]
        made.append((device.counts() - before).allocations)
    assert made[0] == made[1]


def test_graphs_have_triangular_systems_and_no_call_of_cusolver(device: Emulator) -> None:
    def loop(a: Any, b: Any, n: Any) -> Any:
        for _ in st.range(n):
            lower = st.linalg.cholesky(a + b @ b.T)
            b = st.tanh(st.linalg.solve_triangular(lower, b, upper=False))
            b = st.sum(b * b, axis=0) + st.linalg.solve_triangular(lower, st.sin(b @ b.T) @ b, upper=False)
            b = b / (1.0 + st.sqrt(st.sum(b * b)))
        return b

    a, b = np.eye(32) * 2.0, matrix(32, 3)
    staged = on_gpu(loop)
    source = staged.stage(a, b, 6).source
    turns = re.findall(r"^static int do_\w+_turn\w*\(.*?^}", source, re.MULTILINE | re.DOTALL)
    assert turns and any("solution" in turn for turn in turns)
    assert not any("factor(" in turn for turn in turns) and "cusolverDnDpotrf" in source
    expected = st.function(loop)(a, b, 6)
    for words in ("eager forward", "lazy shuffled seed=3"):
        device.configure(words)
        before = device.counts()
        np.testing.assert_allclose(staged(a, b, 6), expected, rtol=1e-9, atol=1e-9)
        assert (device.counts() - before).graph_launches > 0


def test_checks_for_nan_leave_what_is_spoilt_alone() -> None:
    @st.function(check_nan=True)
    def f(a: Any) -> Any:
        with st.with_backend(st.GPU, a):
            return st.linalg.eigvalsh(a), st.linalg.svdvals(a), st.linalg.solve(a, a)

    a = regular(32, 32)
    w, s, unit = f(a)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=1e-10)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-10)
    np.testing.assert_allclose(unit, np.eye(32), atol=1e-10)


def test_an_exported_folder_links_them_and_has_the_same_bytes(tmp_path: Path) -> None:
    a = regular(40, 32, 32)[:4]

    def f(a: Any) -> Any:
        linalg = st.linalg
        return linalg.solve(a, a), linalg.eigh(a), linalg.svd(a), linalg.qr(a)

    first, second = (on_gpu(f).stage(a) for _ in range(2))
    assert first.source == second.source
    first.export(str(tmp_path / "exported"))
    makefile = (tmp_path / "exported" / "Makefile").read_text()
    assert "-lcusolver" in makefile and "-lcublas" in makefile
    built = subprocess.run(["make", "emu"], cwd=tmp_path / "exported", capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
