"""cuSOLVER, and cuBLAS's triangular systems, on the emulated device against NumPy and SciPy, called from Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from cuda_library import Array, Buffer, Library

RANDOM = np.random.default_rng(3)
TYPES = [pytest.param("S", np.float32, 1e-4, id="f32"), pytest.param("D", np.float64, 1e-11, id="f64")]
N, M, LD = 7, 9, 11
UPPER, LOWER = "CUBLAS_FILL_MODE_UPPER", "CUBLAS_FILL_MODE_LOWER"


@pytest.fixture(scope="module")
def library() -> Library:
    return Library("cusolver", "cusolverDn.h")


@pytest.fixture(scope="module")
def cublas() -> Library:
    return Library("cublas", "cublas_v2.h")


@pytest.fixture
def handle(library: Library) -> Iterator[Any]:
    """A handle of cuSOLVER; what the test leaves behind fails it."""
    with library.clean():
        made = library.made("cusolverDnCreate", "cusolverDnHandle_t")
        yield made
        library.do("cusolverDnDestroy", made)


def by_columns(library: Library, a: Array) -> Buffer:
    """A matrix by columns, `LD` elements apart; what lies between them is NaN."""
    held = np.full((a.shape[1], LD), np.nan, a.dtype)
    held[:, : a.shape[0]] = a.T
    return library.put(held)


def read(buffer: Buffer, rows: int) -> Array:
    held = buffer.read()
    assert np.isnan(held[:, rows:]).all()
    return held[:, :rows].T


def numbers(library: Library, *shape: int) -> Buffer:
    return library.put(np.full(shape, -1, np.int32))


def room(library: Library, handle: Any, letter: str, routine: str, *sizes: Any) -> tuple[int, Buffer]:
    """The elements that `bufferSize` says, and a workspace of that size."""
    size = library.asked(f"cusolverDn{letter}{routine}_bufferSize", "int", handle, *sizes)
    return size, library.room(size, dtype=np.float32 if letter == "S" else np.float64)


def random(*shape: int, dtype: Any = np.float64) -> Array:
    return RANDOM.standard_normal(shape).astype(dtype)


# ---- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("uplo", [UPPER, LOWER])
def test_cholesky(library: Library, handle: Any, uplo: str, letter: str, dtype: Any, tolerance: float) -> None:
    x = random(N, N, dtype=dtype)
    a = x @ x.T + np.eye(N, dtype=dtype)
    on_device, info = by_columns(library, a), numbers(library, 1)
    size, work = room(library, handle, letter, "potrf", uplo, N, None, LD)
    library.do(f"cusolverDn{letter}potrf", handle, uplo, N, on_device, LD, work, size, info)
    found, expected = read(on_device, N), np.linalg.cholesky(a)
    triangle = np.tril(found) if uplo == LOWER else np.triu(found).T
    np.testing.assert_allclose(triangle, expected, rtol=tolerance, atol=tolerance)
    assert info.read() == 0
    a[4, 4] = -1.0
    on_device = by_columns(library, a)
    library.do(f"cusolverDn{letter}potrf", handle, uplo, N, on_device, LD, work, size, info)
    assert info.read() == 5


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("columns", [N, M - 3])
def test_lu(library: Library, handle: Any, columns: int, letter: str, dtype: Any, tolerance: float) -> None:
    a = random(N, columns, dtype=dtype)
    on_device, pivots, info = by_columns(library, a), numbers(library, min(N, columns)), numbers(library, 1)
    _, work = room(library, handle, letter, "getrf", N, columns, None, LD)
    library.do(f"cusolverDn{letter}getrf", handle, N, columns, on_device, LD, work, pivots, info)
    expected, places = scipy.linalg.lu_factor(a)
    np.testing.assert_allclose(read(on_device, N), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(pivots.read(), places + 1)
    order = by_columns(library, np.arange(N, dtype=dtype)[:, None])
    library.do(f"cusolverDn{letter}laswp", handle, 1, order, LD, 1, min(N, columns), pivots, 1)
    p, _, _ = scipy.linalg.lu(a)
    np.testing.assert_array_equal(read(order, N)[:, 0], np.argmax(p.T, axis=1))
    assert info.read() == 0


def test_lu_of_a_singular_matrix_names_the_first_zero(library: Library, handle: Any) -> None:
    a = random(N, N)
    a[:, 2], a[:, 5] = 0.0, 0.0
    on_device, pivots, info = by_columns(library, a), numbers(library, N), numbers(library, 1)
    _, work = room(library, handle, "D", "getrf", N, N, None, LD)
    library.do("cusolverDnDgetrf", handle, N, N, on_device, LD, work, pivots, info)
    assert info.read() == 3
    factors = read(on_device, N)
    order = np.arange(N)
    for step, place in enumerate(pivots.read() - 1):
        order[[step, place]] = order[[place, step]]
    np.testing.assert_allclose((np.tril(factors, -1) + np.eye(N)) @ np.triu(factors), a[order], atol=1e-12)


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
def test_qr(library: Library, handle: Any, letter: str, dtype: Any, tolerance: float) -> None:
    a = random(M, N, dtype=dtype)
    a[1:, 0] = 0.0  # its reflection does nothing
    whole = np.zeros((M, M), dtype)
    whole[:, :N] = a
    on_device, tau, info = by_columns(library, whole), library.room(N, dtype=dtype), numbers(library, 1)
    size, work = room(library, handle, letter, "geqrf", M, N, None, LD)
    library.do(f"cusolverDn{letter}geqrf", handle, M, N, on_device, LD, tau, work, size, info)
    assert info.read() == 0
    r = np.triu(read(on_device, M)[:N, :N])
    size, work = room(library, handle, letter, "orgqr", M, M, N, None, LD, None)
    library.do(f"cusolverDn{letter}orgqr", handle, M, M, N, on_device, LD, tau, work, size, info)
    q = read(on_device, M)
    expected_q, expected_r = scipy.linalg.qr(a)
    np.testing.assert_allclose(q @ np.vstack([r, np.zeros((M - N, N))]), a, atol=10 * tolerance)
    np.testing.assert_allclose(q.T @ q, np.eye(M), atol=10 * tolerance)
    np.testing.assert_allclose(q[:, :N], expected_q[:, :N], atol=10 * tolerance)  # LAPACK's signs
    np.testing.assert_allclose(r, expected_r[:N], atol=10 * tolerance)
    assert info.read() == 0


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("uplo", [UPPER, LOWER])
@pytest.mark.parametrize("mode", ["VECTOR", "NOVECTOR"])
def test_eigenvalues(
    library: Library, handle: Any, mode: str, uplo: str, letter: str, dtype: Any, tolerance: float
) -> None:
    a = random(N, N, dtype=dtype)
    jobz = f"CUSOLVER_EIG_MODE_{mode}"
    on_device, w, info = by_columns(library, a), library.room(N, dtype=dtype), numbers(library, 1)
    size, work = room(library, handle, letter, "syevd", jobz, uplo, N, None, LD, None)
    library.do(f"cusolverDn{letter}syevd", handle, jobz, uplo, N, on_device, LD, w, work, size, info)
    side = "U" if uplo == UPPER else "L"
    np.testing.assert_allclose(w.read(), np.linalg.eigvalsh(a, side), atol=10 * tolerance)
    v = read(on_device, N)
    if mode == "NOVECTOR":
        assert np.isnan(v).all()  # the matrix is lost
    else:
        whole = np.tril(a if side == "L" else a.T)
        whole = whole + np.tril(whole, -1).T
        np.testing.assert_allclose(v * w.read() @ v.T, whole, atol=10 * tolerance)
    assert info.read() == 0


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
def test_singular_values(library: Library, handle: Any, letter: str, dtype: Any, tolerance: float) -> None:
    cases = [random(M, N, dtype=dtype), random(M, 2, dtype=dtype) @ random(2, N, dtype=dtype), np.zeros((M, N), dtype)]
    size, work = room(library, handle, letter, "gesvd", M, N)
    for a in (*cases, 1e-30 * cases[0]):
        expected = np.linalg.svd(a, compute_uv=False)
        enough = 10 * tolerance * max(float(expected[0]), 1e-38)
        s, u, vt = (library.room(*shape, dtype=dtype) for shape in ((N,), (N, LD), (N, LD)))
        info, on_device = numbers(library, 1), by_columns(library, a)
        call = f"cusolverDn{letter}gesvd"
        library.do(call, handle, ord("S"), ord("S"), M, N, on_device, LD, s, u, LD, vt, LD, work, size, None, info)
        np.testing.assert_allclose(s.read(), expected, atol=enough)
        left, right = read(u, M), read(vt, N)
        np.testing.assert_allclose(left * s.read() @ right, a, atol=enough)
        np.testing.assert_allclose(left.T @ left, np.eye(N), atol=10 * tolerance)
        np.testing.assert_allclose(right @ right.T, np.eye(N), atol=10 * tolerance)
        assert np.isnan(on_device.read()).all() and info.read() == 0
        on_device = by_columns(library, a)
        none = (None, 1, None, 1)
        library.do(call, handle, ord("N"), ord("N"), M, N, on_device, LD, s, *none, work, size, None, info)
        np.testing.assert_allclose(s.read(), expected, atol=enough)


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("side", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("uplo", [UPPER, LOWER])
@pytest.mark.parametrize("operation", ["N", "T"])
@pytest.mark.parametrize("diagonal", ["NON_UNIT", "UNIT"])
def test_triangular_systems(
    cublas: Library, side: str, uplo: str, operation: str, diagonal: str, letter: str, dtype: Any, tolerance: float
) -> None:
    with cublas.clean():
        made = cublas.made("cublasCreate_v2", "cublasHandle_t")
        size = N if side == "LEFT" else 4
        a, b = random(size, size, dtype=dtype) + 3 * np.eye(size, dtype=dtype), random(N, 4, dtype=dtype)
        on_device = by_columns(cublas, b)
        words = (f"CUBLAS_SIDE_{side}", uplo, f"CUBLAS_OP_{operation}", f"CUBLAS_DIAG_{diagonal}")
        factor = cublas.scalar(2.0, dtype)
        given = (N, 4, factor, by_columns(cublas, a), LD, on_device, LD)
        cublas.do(f"cublas{letter}trsm_v2", made, *words, *given)
        triangle = np.triu(a) if uplo == UPPER else np.tril(a)
        if diagonal == "UNIT":
            triangle = triangle - np.diag(np.diag(a)) + np.eye(size)
        triangle = triangle.T if operation == "T" else triangle
        x = read(on_device, N)
        np.testing.assert_allclose(
            triangle @ x if side == "LEFT" else x @ triangle, 2 * b, rtol=1e-2, atol=100 * tolerance
        )
        cublas.do("cublasDestroy_v2", made)


# ---- misuse -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("the leading dimension of A is 6, less than its 7 rows", {"lda": 6}),
        ("A has 7 rows and -1 columns", {"n": -1}),
        ("A: 0x", {"n": 70}),  # more columns than the allocation has
        ("the workspace: 0x", {"work": "short"}),
        ("devIpiv: 0x", {"pivots": "short"}),
        ("devInfo is NULL, not an address of the device", {"info": None}),
        ("A and the workspace overlap", {"work": "A"}),
    ],
)
def test_lu_that_does_not_fit_is_refused(library: Library, handle: Any, words: str, other: dict[str, Any]) -> None:
    _, work = room(library, handle, "D", "getrf", N, N, None, LD)
    arguments = {
        "m": N, "n": N, "A": library.room(50, LD, dtype=np.float64), "lda": LD, "work": work,
        "pivots": numbers(library, N), "info": numbers(library, 1),
    }  # fmt: skip
    named = {"short": library.room(2, dtype=np.float64), "A": arguments["A"]}
    given = {key: named.get(value, value) for key, value in other.items()}
    library.refused(words, "cusolverDnDgetrf", handle, *{**arguments, **given}.values())


def test_a_workspace_of_other_sizes_is_refused(library: Library, handle: Any) -> None:
    a, info, work = library.room(M, M, dtype=np.float64), numbers(library, 1), library.room(4000, dtype=np.float64)
    w, tau = library.room(M, dtype=np.float64), library.room(M, dtype=np.float64)
    plain, whole = "CUSOLVER_EIG_MODE_NOVECTOR", "CUSOLVER_EIG_MODE_VECTOR"
    of_values, _ = room(library, handle, "D", "syevd", plain, UPPER, N, None, M, None)
    library.refused("and bufferSize said", "cusolverDnDsyevd", handle, whole, UPPER, N, a, M, w, work, of_values, info)
    of_fewer, _ = room(library, handle, "D", "geqrf", M, N - 1, None, M)
    library.refused("and bufferSize said", "cusolverDnDgeqrf", handle, M, N, a, M, tau, work, of_fewer, info)
    of_fewer, _ = room(library, handle, "D", "orgqr", M, N - 1, N - 1, None, M, None)
    library.refused("and bufferSize said", "cusolverDnDorgqr", handle, M, N, N - 1, a, M, tau, work, of_fewer, info)
    of_fewer, _ = room(library, handle, "D", "gesvd", M, N - 1)
    jobs, none = (ord("N"), ord("N")), (None, 1, None, 1)
    library.refused(
        "and bufferSize said", "cusolverDnDgesvd", handle, *jobs, M, N, a, M, w, *none, work, of_fewer, None, info
    )


def test_shapes_that_a_function_does_not_have_are_refused(library: Library, handle: Any) -> None:
    place = library.ffi.new("int *")
    library.refused("A has 7 rows, less than its 9 columns", "cusolverDnDgesvd_bufferSize", handle, N, M, place)
    sizes = (N, M, N, None, LD, None)
    library.refused("9 columns of 7 reflections have 7 rows", "cusolverDnDorgqr_bufferSize", handle, *sizes, place)
    library.refused("7 is no triangle", "cusolverDnDpotrf_bufferSize", handle, 7, N, None, LD, place)
    library.refused("7 is no jobz", "cusolverDnDsyevd_bufferSize", handle, 7, UPPER, N, None, LD, None, place)
    not_supported = library.lib.CUSOLVER_STATUS_NOT_SUPPORTED
    jobs = (ord("A"), ord("A"))
    given = (handle, *jobs, M, N, None, M, None, None, M, None, N, None, 0, None, None)
    assert library.status("cusolverDnDgesvd", *given) == not_supported


def test_results_vary_unless_they_must_not(library: Library, handle: Any) -> None:
    a, info, found = random(N, N), numbers(library, 1), {1: set[bytes](), 2: set[bytes]()}
    plain = "CUSOLVER_EIG_MODE_NOVECTOR"
    size, work = room(library, handle, "D", "syevd", plain, UPPER, N, None, LD, None)
    for mode in (1, 2):
        library.do("cusolverDnSetDeterministicMode", handle, mode)
        for _ in range(6):
            w = library.room(N, dtype=np.float64)
            given = (UPPER, N, by_columns(library, a), LD, w, work, size, info)
            library.do("cusolverDnDsyevd", handle, plain, *given)
            found[mode].add(w.read().tobytes())
    assert len(found[1]) == 1 and len(found[2]) > 1
    library.refused("3 is no mode", "cusolverDnSetDeterministicMode", handle, 3)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_with_which_an_iteration_might_not_end_are_found(library: Library, handle: Any, number: float) -> None:
    a = random(N, N)
    a[1, 4] = number
    on_device, w, info = by_columns(library, a), library.room(N, dtype=np.float64), numbers(library, 1)
    mode = "CUSOLVER_EIG_MODE_VECTOR"
    size, work = room(library, handle, "D", "syevd", mode, UPPER, N, None, LD, None)
    # The other triangle may have them.
    library.do("cusolverDnDsyevd", handle, mode, LOWER, N, on_device, LD, w, work, size, info)
    assert np.isfinite(w.read()).all()
    library.do("cusolverDnDsyevd", handle, mode, UPPER, N, by_columns(library, a), LD, w, work, size, info)
    library.expect_violation()
    assert "with which the iteration might not end" in library.emulator.last_violation()


def test_no_graph_has_a_call(library: Library, handle: Any) -> None:
    place, graph = library.ffi.new("void **"), library.ffi.new("void **")
    call = library.emulator.function
    a, tau, info = library.room(N, N, dtype=np.float64), library.room(N, dtype=np.float64), numbers(library, 1)
    size, work = room(library, handle, "D", "geqrf", N, N, None, N)
    assert call("cudaStreamCreate", "int (*)(void **)")(place) == 0
    stream = library.ffi.cast("cudaStream_t", place[0])
    library.do("cusolverDnSetStream", handle, stream)
    assert call("cudaStreamBeginCapture", "int (*)(void *, int)")(place[0], 1) == 0
    library.refused(
        "it is not known whether a graph may have the call",
        "cusolverDnDgeqrf",
        handle,
        N,
        N,
        a,
        N,
        tau,
        work,
        size,
        info,
    )
    call("cudaStreamEndCapture", "int (*)(void *, void **)")(place[0], graph)
    if graph[0] != library.ffi.NULL:
        assert call("cudaGraphDestroy", "int (*)(void *)")(graph[0]) == 0
    library.do("cusolverDnSetStream", handle, None)
    assert call("cudaStreamDestroy", "int (*)(void *)")(place[0]) == 0


def test_exchanges_with_rows_that_are_not_there_are_found(library: Library, handle: Any) -> None:
    rows, pivots = library.room(N, dtype=np.float64), library.put(np.array([1, 2, 9], np.int32))
    library.do("cusolverDnDlaswp", handle, 1, rows, N, 1, 3, pivots, 1)
    library.expect_violation()
    assert "row 3 is exchanged with row 9 of 7" in library.emulator.last_violation()


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("the leading dimension of A is 3, less than its 4 rows", {"lda": 3}),
        ("the leading dimension of B is 6, less than its 7 rows", {"ldb": 6}),
        ("A: 0x", {"n": 5}),
        ("A and B overlap", {"B": "A"}),
        ("7 is no side", {"side": 7}),
        ("7 is no triangle", {"uplo": 7}),
        ("7 is no diagonal", {"diagonal": 7}),
        ("alpha is NULL", {"alpha": None}),
    ],
)
def test_systems_that_do_not_fit_are_refused(cublas: Library, words: str, other: dict[str, Any]) -> None:
    with cublas.clean():
        made = cublas.made("cublasCreate_v2", "cublasHandle_t")
        arguments = {
            "side": "CUBLAS_SIDE_RIGHT", "uplo": UPPER, "trans": "CUBLAS_OP_N", "diagonal": "CUBLAS_DIAG_NON_UNIT",
            "m": N, "n": 4, "alpha": cublas.scalar(1.0), "A": cublas.room(16), "lda": 4, "B": cublas.room(4 * LD),
            "ldb": LD,
        }  # fmt: skip
        if other.get("B") == "A":
            other, arguments["A"] = {}, arguments["B"]
        if other.get("n"):
            arguments["lda"] = 5
        cublas.refused(words, "cublasStrsm_v2", made, *{**arguments, **other}.values())
        cublas.do("cublasDestroy_v2", made)
