"""cuBLAS on the emulated device against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_library import Array, Buffer, Library

RANDOM = np.random.default_rng(3)
TYPES = [pytest.param("S", np.float32, 1e-5, id="f32"), pytest.param("D", np.float64, 1e-12, id="f64")]
Typed = Any


@pytest.fixture(scope="module")
def library() -> Library:
    return Library("cublas", "cublas_v2.h")


@pytest.fixture
def handle(library: Library) -> Iterator[Any]:
    """A handle of cuBLAS; what the test leaves behind fails it."""
    with library.clean():
        made = library.made("cublasCreate_v2", "cublasHandle_t")
        yield made
        library.do("cublasDestroy_v2", made)


def _random(*shape: int, dtype: Typed = np.float32) -> Array:
    return RANDOM.standard_normal(shape).astype(dtype)


def _op(transposed: bool) -> str:
    return "CUBLAS_OP_T" if transposed else "CUBLAS_OP_N"


# ---- vectors ----


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
def test_vectors(library: Library, handle: Any, letter: str, dtype: Typed, tolerance: float) -> None:
    x, y = _random(7, dtype=dtype), _random(7, dtype=dtype)
    on_x, on_y, factor = library.put(x), library.put(y), library.scalar(2.5, dtype)
    type = "float" if letter == "S" else "double"
    dot = library.asked(f"cublas{letter}dot_v2", type, handle, 7, on_x, 1, on_y, 1)
    norm = library.asked(f"cublas{letter}nrm2_v2", type, handle, 7, on_x, 1)
    total = library.asked(f"cublas{letter}asum_v2", type, handle, 7, on_x, 1)
    np.testing.assert_allclose([dot, norm, total], [x @ y, np.linalg.norm(x), np.abs(x).sum()], rtol=tolerance)
    library.do(f"cublas{letter}axpy_v2", handle, 7, factor, on_x, 1, on_y, 1)
    np.testing.assert_allclose(on_y.read(), y + dtype(2.5) * x, rtol=tolerance)
    library.do(f"cublas{letter}scal_v2", handle, 7, factor, on_x, 1)
    np.testing.assert_allclose(on_x.read(), dtype(2.5) * x, rtol=tolerance)
    library.do(f"cublas{letter}copy_v2", handle, 7, on_x, 1, on_y, 1)
    assert np.array_equal(on_y.read(), on_x.read())


def test_a_step_between_elements_and_a_negative_one(library: Library, handle: Any) -> None:
    x, y = _random(9), _random(3)
    on_x, on_y = library.put(x), library.put(y)
    dot = library.asked("cublasSdot_v2", "float", handle, 3, on_x, 4, on_y, -1)
    assert dot == pytest.approx(x[::4] @ y[::-1], rel=1e-5)


def test_a_norm_does_not_overflow_before_it_must(library: Library, handle: Any) -> None:
    x = library.put(np.array([3e30, 4e30], np.float32))
    assert library.asked("cublasSnrm2_v2", "float", handle, 2, x, 1) == pytest.approx(5e30, rel=1e-6)


def test_results_and_factors_on_the_device(library: Library, handle: Any) -> None:
    x, result, factor = library.put(_random(5)), library.room(1), library.put(np.array([0.5], np.float32))
    library.do("cublasSetPointerMode_v2", handle, "CUBLAS_POINTER_MODE_DEVICE")
    library.do("cublasSscal_v2", handle, 5, factor, x, 1)
    library.do("cublasSdot_v2", handle, 5, x, 1, x, 1, result)
    now = x.read()
    np.testing.assert_allclose(result.read(), [now @ now], rtol=1e-5)


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_gemv(library: Library, handle: Any, letter: str, dtype: Typed, tolerance: float, transposed: bool) -> None:
    a = _random(4, 6, dtype=dtype)  # column-major: 6 rows, 4 columns
    x, y = _random(6 if transposed else 4, dtype=dtype), _random(4 if transposed else 6, dtype=dtype)
    on_y = library.put(y)
    alpha, beta = library.scalar(1.5, dtype), library.scalar(-1.0, dtype)
    library.do(
        f"cublas{letter}gemv_v2", handle, _op(transposed), 6, 4, alpha, library.put(a), 6, library.put(x), 1, beta,
        on_y, 1,
    )  # fmt: skip
    matrix = a if transposed else a.T
    np.testing.assert_allclose(on_y.read(), 1.5 * matrix @ x - y, rtol=tolerance, atol=tolerance)


def test_gemv_of_a_batch(library: Library, handle: Any) -> None:
    a, x, y = _random(3, 4, 6), _random(3, 4), library.room(3, 6)
    one, zero = library.scalar(1.0), library.scalar(0.0)
    library.do(
        "cublasSgemvStridedBatched", handle, "CUBLAS_OP_N", 6, 4, one, library.put(a), 6, 24, library.put(x), 1, 4,
        zero, y, 1, 6, 3,
    )  # fmt: skip
    np.testing.assert_allclose(y.read(), np.einsum("bnm,bn->bm", a, x), rtol=1e-5, atol=1e-5)


def test_of_no_columns_gemv_leaves_its_result_alone(library: Library, handle: Any) -> None:
    """As BLAS has it, even where beta is 0: a program that counts on zeros there is found out."""
    y, one, zero = library.put(np.array([1.0, 2.0], np.float32)), library.scalar(1.0), library.scalar(0.0)
    nothing = library.put(np.zeros((1,), np.float32))
    library.do("cublasSgemv_v2", handle, "CUBLAS_OP_N", 2, 0, one, nothing, 2, nothing, 1, zero, y, 1)
    assert y.read().tolist() == [1.0, 2.0]


def test_ger(library: Library, handle: Any) -> None:
    a, x, y = _random(4, 6), _random(6), _random(4)
    on_a = library.put(a)
    library.do("cublasSger_v2", handle, 6, 4, library.scalar(2.0), library.put(x), 1, library.put(y), 1, on_a, 6)
    np.testing.assert_allclose(on_a.read(), a + 2.0 * np.outer(y, x), rtol=1e-5, atol=1e-5)


# ---- matrices ----


@pytest.mark.parametrize(("letter", "dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gemm_with_leading_dimensions(
    library: Library, handle: Any, letter: str, dtype: Typed, tolerance: float, transpose_a: bool, transpose_b: bool
) -> None:
    m, n, k = 5, 3, 7
    a = _random(*((m, k + 2) if transpose_a else (k, m + 2)), dtype=dtype)  # two rows that do not belong to it
    b = _random(*((k, n + 1) if transpose_b else (n, k + 1)), dtype=dtype)
    c = _random(n, m + 3, dtype=dtype)
    on_c = library.put(c)
    library.do(
        f"cublas{letter}gemm_v2", handle, _op(transpose_a), _op(transpose_b), m, n, k, library.scalar(0.5, dtype),
        library.put(a), a.shape[1], library.put(b), b.shape[1], library.scalar(2.0, dtype), on_c, m + 3,
    )  # fmt: skip
    op_a = a[:, :k] if transpose_a else a[:, :m].T
    op_b = b[:, :n] if transpose_b else b[:, :k].T
    wanted = c.copy()
    wanted[:, :m] = (0.5 * op_a @ op_b).T + 2.0 * c[:, :m]
    np.testing.assert_allclose(on_c.read(), wanted, rtol=tolerance, atol=tolerance)


def test_row_major_by_the_order_of_the_operands(library: Library, handle: Any) -> None:
    a, b, c = _random(4, 6), _random(6, 5), library.room(4, 5)
    one, zero = library.scalar(1.0), library.scalar(0.0)
    no = "CUBLAS_OP_N"
    library.do("cublasSgemm_v2", handle, no, no, 5, 4, 6, one, library.put(b), 5, library.put(a), 6, zero, c, 5)
    np.testing.assert_allclose(c.read(), a @ b, rtol=1e-5, atol=1e-5)


def test_beta_zero_reads_no_c_and_alpha_zero_no_a(library: Library, handle: Any) -> None:
    nan, c = library.room(4), library.room(4)
    zero, no = library.scalar(0.0), "CUBLAS_OP_N"
    library.do("cublasSgemm_v2", handle, no, no, 2, 2, 2, zero, nan, 2, nan, 2, zero, c, 2)
    assert c.read().tolist() == [0.0, 0.0, 0.0, 0.0]


def _batch(library: Library, handle: Any, function: str, a: Any, b: Any, c: Any, batch: int) -> None:
    one, zero, no = library.scalar(1.0), library.scalar(0.0), "CUBLAS_OP_N"
    library.do(function, handle, no, no, 2, 3, 4, one, *a, *b, zero, *c, batch)


def test_gemm_of_a_batch_with_one_factor_for_all(library: Library, handle: Any) -> None:
    a, b, c = _random(4, 2), _random(5, 3, 4), library.room(5, 3, 2)
    operands = (library.put(a), 2, 0), (library.put(b), 4, 12), (c, 2, 6)
    _batch(library, handle, "cublasSgemmStridedBatched", *operands, 5)
    np.testing.assert_allclose(c.read(), b @ a, rtol=1e-5, atol=1e-5)


def test_gemm_of_pointers(library: Library, handle: Any) -> None:
    a, b = _random(2, 4, 2), _random(2, 3, 4)
    parts = [[library.put(half) for half in pair] for pair in (a, b)] + [[library.room(3, 2), library.room(3, 2)]]

    def on_device(matrices: list[Buffer]) -> Buffer:
        """Their addresses, there too."""
        return library.put(np.array([int(library.ffi.cast("intptr_t", each.pointer)) for each in matrices]))

    operands = [(on_device(each), ld) for each, ld in zip(parts, (2, 4, 2), strict=True)]
    _batch(library, handle, "cublasSgemmBatched", operands[0], operands[1], operands[2], 2)
    np.testing.assert_allclose([part.read() for part in parts[2]], b @ a, rtol=1e-5, atol=1e-5)


def test_geam_transposes_and_adds(library: Library, handle: Any) -> None:
    a, b, c = _random(3, 5), _random(5, 3), library.room(3, 5)
    library.do(
        "cublasSgeam", handle, "CUBLAS_OP_N", "CUBLAS_OP_T", 5, 3, library.scalar(2.0), library.put(a), 5,
        library.scalar(-1.0), library.put(b), 3, c, 5,
    )  # fmt: skip
    np.testing.assert_allclose(c.read(), 2.0 * a - b.T, rtol=1e-6)
    zero = library.scalar(0.0)
    library.do(
        "cublasSgeam", handle, "CUBLAS_OP_T", "CUBLAS_OP_N", 5, 3, library.scalar(1.0), library.put(b), 3, zero, None,
        5, c, 5,
    )  # fmt: skip
    assert np.array_equal(c.read(), b.T)


def test_tf32_is_asked_for_and_rounds_the_factors(library: Library, handle: Any) -> None:
    one = np.array([[1.0 + 2.0**-12]], np.float32)
    c, unit, zero, no = library.room(1), library.scalar(1.0), library.scalar(0.0), "CUBLAS_OP_N"

    def square() -> float:
        library.do(
            "cublasSgemm_v2", handle, no, no, 1, 1, 1, unit, library.put(one), 1, library.put(one), 1, zero, c, 1
        )
        return float(c.read()[0])

    assert square() > 1.0
    library.do("cublasSetMathMode", handle, "CUBLAS_TF32_TENSOR_OP_MATH")
    assert square() == 1.0


def test_the_typed_form_is_the_plain_one(library: Library, handle: Any) -> None:
    a, b, plain, typed = _random(4, 6), _random(6, 5), library.room(4, 5), library.room(4, 5)
    one, zero, no = library.scalar(1.0), library.scalar(0.0), "CUBLAS_OP_N"
    on_a, on_b, f32 = library.put(a), library.put(b), "CUDA_R_32F"
    library.do("cublasSgemm_v2", handle, no, no, 5, 4, 6, one, on_b, 5, on_a, 6, zero, plain, 5)
    library.do(
        "cublasGemmEx", handle, no, no, 5, 4, 6, one, on_b, f32, 5, on_a, f32, 6, zero, typed, f32, 5,
        "CUBLAS_COMPUTE_32F", "CUBLAS_GEMM_DEFAULT",
    )  # fmt: skip
    assert np.array_equal(plain.read(), typed.read())


def test_work_goes_to_the_stream_of_the_handle(library: Library, handle: Any) -> None:
    stream = library.made("cudaStreamCreateWithFlags", "cudaStream_t", 1)
    library.do("cublasSetStream_v2", handle, stream)
    assert library.asked("cublasGetStream_v2", "cudaStream_t", handle) == stream
    x = library.put(_random(3))
    library.do("cudaStreamDestroy", stream)
    library.refused("is not a live stream", "cublasSscal_v2", handle, 3, library.scalar(1.0), x, 1)
    library.do("cublasSetStream_v2", handle, None)


# ---- misuse ----


def _gemm(library: Library, handle: Any, **other: Any) -> list[Any]:
    """Arguments of a product of 4 x 3 and 3 x 2 matrices, some of them replaced."""
    arguments = {
        "handle": handle, "transa": "CUBLAS_OP_N", "transb": "CUBLAS_OP_N", "m": 4, "n": 2, "k": 3,
        "alpha": library.scalar(1.0), "A": library.room(12), "lda": 4, "B": library.room(6), "ldb": 3,
        "beta": library.scalar(0.0), "C": library.room(8), "ldc": 4,
    }  # fmt: skip
    return list({**arguments, **other}.values())


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("the leading dimension of A is 3, less than its 4 rows", {"lda": 3}),
        ("the leading dimension of C is 2, less than its 4 rows", {"ldc": 2}),
        ("B: 0x", {"n": 9}),  # more columns than the allocation has
        ("a size is negative", {"k": -1}),
        ("9 is not an operation", {"transa": 9}),
        ("A is NULL, not an address of the device", {"A": None}),
    ],
)
def test_a_product_that_does_not_fit_is_refused(
    library: Library, handle: Any, words: str, other: dict[str, Any]
) -> None:
    library.refused(words, "cublasSgemm_v2", *_gemm(library, handle, **other))


def test_addresses_on_the_wrong_side_are_refused(library: Library, handle: Any) -> None:
    host = library.ffi.new("float[12]")
    library.refused("A is an address of the host", "cublasSgemm_v2", *_gemm(library, handle, A=host))
    device = library.put(np.ones(1, np.float32))
    library.refused("alpha is an address of the device", "cublasSgemm_v2", *_gemm(library, handle, alpha=device))
    library.do("cublasSetPointerMode_v2", handle, "CUBLAS_POINTER_MODE_DEVICE")
    library.refused("alpha is an address of the host", "cublasSgemm_v2", *_gemm(library, handle))


def test_a_result_over_an_operand_is_refused(library: Library, handle: Any) -> None:
    both = library.room(12)
    library.refused("C and A overlap", "cublasSgemm_v2", *_gemm(library, handle, A=both, C=both))


def test_a_dead_handle_is_refused_and_counted(library: Library) -> None:
    with library.clean():
        made = library.made("cublasCreate_v2", "cublasHandle_t")
        live, created = library.emulator.objects()["cublasHandle"]
        calls = library.emulator.counts().library_calls
        library.do("cublasDestroy_v2", made)
        assert library.emulator.objects()["cublasHandle"] == (live - 1, created)
        assert library.emulator.counts().library_calls == calls + 1
        library.refused("the handle was destroyed before", "cublasDestroy_v2", made)
        library.refused("the handle was destroyed before", "cublasSgemm_v2", *_gemm(library, made))
        library.refused("the handle is not a handle or descriptor", "cublasDestroy_v2", None)


def test_a_handle_is_for_the_device_that_was_set_when_it_was_made(library: Library) -> None:
    choose = library.emulator.function("cudaSetDevice", "int (*)(int)")
    with library.clean():
        library.emulator.configure("devices=2")
        made = library.made("cublasCreate_v2", "cublasHandle_t")
        assert choose(1) == 0
        library.refused("the handle is of device 0, and device 1 is set", "cublasSgemm_v2", *_gemm(library, made))
        assert choose(0) == 0
        library.do("cublasDestroy_v2", made)
    library.emulator.configure("")


@pytest.mark.parametrize("mode", [0, 1], ids=["global", "of this thread"])
def test_a_handle_cannot_be_made_while_a_stream_is_captured(library: Library, mode: int) -> None:
    place, graph = library.ffi.new("void **"), library.ffi.new("void **")
    call = library.emulator.function
    with library.clean():
        assert call("cudaStreamCreate", "int (*)(void **)")(place) == 0
        assert call("cudaStreamBeginCapture", "int (*)(void *, int)")(place[0], mode) == 0
        library.refused("not while a stream is captured", "cublasCreate_v2", library.ffi.new("cublasHandle_t *"))
        assert call("cudaStreamEndCapture", "int (*)(void *, void **)")(place[0], graph) != 0
        assert call("cudaStreamDestroy", "int (*)(void *)")(place[0]) == 0
