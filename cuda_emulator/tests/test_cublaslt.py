"""cublasLt on the emulated device against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_library import Array, Buffer, Library

RANDOM = np.random.default_rng(4)
M, N, K = 5, 3, 4  # D = op(A) op(B) is M x N, and everything lies by columns: as the transpose for NumPy


@pytest.fixture(scope="module")
def loaded() -> Library:
    return Library("cublasLt", "cublasLt.h")


class Products:
    """Products of one session: makes descriptors, and destroys them at its end."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.handle = library.made("cublasLtCreate", "cublasLtHandle_t")
        self._made: list[tuple[str, Any]] = []
        self._alive: list[Any] = []

    def layout(self, rows: int, columns: int, ld: int | None = None, **attributes: Any) -> Any:
        """Of a matrix by columns; attributes as ORDER="CUBLASLT_ORDER_ROW" or BATCH_COUNT=3."""
        made = self._make("MatrixLayout", "CUDA_R_32F", rows, columns, ld or rows)
        self._set("cublasLtMatrixLayoutSetAttribute", "CUBLASLT_MATRIX_LAYOUT_", made, attributes)
        return made

    def matmul(self, compute: str = "CUBLAS_COMPUTE_32F", /, **attributes: Any) -> Any:
        """A product's descriptor; attributes as TRANSA="CUBLAS_OP_T" or BIAS_POINTER=buffer."""
        made = self._make("MatmulDesc", compute, "CUDA_R_32F")
        self._set("cublasLtMatmulDescSetAttribute", "CUBLASLT_MATMUL_DESC_", made, attributes)
        return made

    def algorithms(self, matmul: Any, layouts: list[Any], memory: int) -> list[Any]:
        """The heuristics' offers for a workspace of so many bytes."""
        library, preference = self.library, self._make("MatmulPreference")
        attributes = {"MAX_WORKSPACE_BYTES": library.ffi.new("uint64_t *", memory)}
        self._set("cublasLtMatmulPreferenceSetAttribute", "CUBLASLT_MATMUL_PREF_", preference, attributes)
        results, returned = library.ffi.new("cublasLtMatmulHeuristicResult_t[4]"), library.ffi.new("int *")
        library.do("cublasLtMatmulAlgoGetHeuristic", self.handle, matmul, *layouts, preference, 4, results, returned)
        self._alive.append(results)  # its elements do not keep it
        return [results[i] for i in range(returned[0])]

    def arguments(
        self, matmul: Any, a: Any, b: Any, d: Any, layouts: list[Any] | None = None, c: Any = None, beta: float = 0.0
    ) -> list[Any]:
        """Arguments of cublasLtMatmul without an algorithm: plain layouts where there are none."""
        la, lb, lc, ld = layouts or [self.layout(M, K), self.layout(K, N), self.layout(M, N), self.layout(M, N)]
        one, more = self.library.scalar(1.0), self.library.scalar(beta)
        return [self.handle, matmul, one, a, la, b, lb, more, c, lc, d, ld, None, None, 0, None]

    def do(self, *arguments: Any, **more: Any) -> None:
        self.library.do("cublasLtMatmul", *self.arguments(*arguments, **more))

    def close(self) -> None:
        while self._made:
            kind, made = self._made.pop()
            self.library.do(f"cublasLt{kind}Destroy", made)
        self.library.do("cublasLtDestroy", self.handle)

    def _make(self, kind: str, *arguments: Any) -> Any:
        made = self.library.made(f"cublasLt{kind}Create", f"cublasLt{kind}_t", *arguments)
        self._made.append((kind, made))
        return made

    def _set(self, function: str, prefix: str, made: Any, attributes: dict[str, Any]) -> None:
        ffi = self.library.ffi
        for name, value in attributes.items():
            match value:
                case str():
                    place = ffi.new("int *", getattr(self.library.lib, value))
                case Buffer():
                    place = ffi.new("void **", value.pointer)
                case int():
                    place = ffi.new("int32_t *" if name == "BATCH_COUNT" else "int64_t *", value)
                case _:
                    place = value
            size = ffi.sizeof(ffi.typeof(place).item)
            self.library.do(function, made, f"{prefix}{name}", place, size)


@pytest.fixture
def products(loaded: Library) -> Iterator[Products]:
    with loaded.clean():
        made = Products(loaded)
        yield made
        made.close()


def _random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def _same(actual: Array, wanted: Array) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_a_product_with_transposes_and_another_c(products: Products, transpose_a: bool, transpose_b: bool) -> None:
    put, room = products.library.put, products.library.room
    a, b, c, d = _random(M, K), _random(K, N), _random(M, N), room(N, M)
    op = {False: "CUBLAS_OP_N", True: "CUBLAS_OP_T"}
    matmul = products.matmul(TRANSA=op[transpose_a], TRANSB=op[transpose_b])
    layouts = [
        products.layout(*((K, M) if transpose_a else (M, K))), products.layout(*((N, K) if transpose_b else (K, N))),
        products.layout(M, N), products.layout(M, N),
    ]  # fmt: skip
    on_a, on_b = put(a if transpose_a else a.T), put(b if transpose_b else b.T)
    products.do(matmul, on_a, on_b, d, layouts, c=put(c.T), beta=2.0)
    _same(d.read().T, a @ b + 2.0 * c)


def test_matrices_by_rows_and_a_batch_with_one_b(products: Products) -> None:
    a, b, d = _random(2, M, K), _random(K, N), products.library.room(2, M, N)
    row = {"ORDER": "CUBLASLT_ORDER_ROW", "BATCH_COUNT": 2}
    layouts = [
        products.layout(M, K, K, **row, STRIDED_BATCH_OFFSET=M * K), products.layout(K, N, N, **row, STRIDED_BATCH_OFFSET=0),
        products.layout(M, N, N, **row, STRIDED_BATCH_OFFSET=M * N),
        products.layout(M, N, N, **row, STRIDED_BATCH_OFFSET=M * N),
    ]  # fmt: skip
    products.do(products.matmul(), products.library.put(a), products.library.put(b), d, layouts)
    _same(d.read(), a @ b)


# ---- epilogues ----


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))))


ACTIVATIONS = {"": lambda x: x, "RELU": lambda x: np.fmax(x, 0.0), "GELU": _gelu}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_bias_and_activation(products: Products, activation: str, bias: bool) -> None:
    name = "_".join([activation] * bool(activation) + ["BIAS"] * bias) or "DEFAULT"
    a, b, added, d = _random(M, K), _random(K, N), _random(M), products.library.room(N, M)
    attributes: dict[str, Any] = {"BIAS_POINTER": products.library.put(added)} if bias else {}
    matmul = products.matmul(EPILOGUE=f"CUBLASLT_EPILOGUE_{name}", **attributes)
    a[0, 0] = np.nan  # relu of NaN is 0 there
    products.do(matmul, products.library.put(a.T), products.library.put(b.T), d)
    _same(d.read().T, ACTIVATIONS[activation](a @ b + (added[:, None] if bias else 0.0)))


@pytest.mark.parametrize(("activation", "ld", "bytes"), [("RELU", 128, 16 * N), ("GELU", 8, 4 * 8 * N)])
def test_the_gradient_of_an_activation_from_what_it_kept(
    products: Products, activation: str, ld: int, bytes: int
) -> None:
    put, room = products.library.put, products.library.room
    a, b, bias = _random(M, K), _random(K, N), _random(M)
    aux, d = put(np.zeros(bytes, np.uint8)), room(N, M)
    kept: dict[str, Any] = {"EPILOGUE_AUX_POINTER": aux, "EPILOGUE_AUX_LD": ld, "BIAS_POINTER": put(bias)}
    forward = products.matmul(EPILOGUE=f"CUBLASLT_EPILOGUE_{activation}_AUX_BIAS", **kept)
    products.do(forward, put(a.T), put(b.T), d)
    before = a @ b + bias[:, None]
    _same(d.read().T, ACTIVATIONS[activation](before))

    step = 1e-3
    around = [ACTIVATIONS[activation](before.astype(np.float64) + side * step) for side in (1, -1)]
    slope = (around[0] - around[1]) / (2.0 * step)
    da, db, sums = _random(M, K), _random(K, N), room(M)
    kept["BIAS_POINTER"] = sums
    backward = products.matmul(EPILOGUE=f"CUBLASLT_EPILOGUE_D{activation}_BGRAD", **kept)
    products.do(backward, put(da.T), put(db.T), d)
    wanted = slope * (da @ db)
    np.testing.assert_allclose(d.read().T, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums.read(), wanted.sum(axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "size"), [("BGRADA", M), ("BGRADB", N)])
def test_the_gradient_of_a_bias_from_an_operand(products: Products, name: str, size: int) -> None:
    a, b, sums, d = _random(M, K), _random(K, N), products.library.room(size), products.library.room(N, M)
    matmul = products.matmul(EPILOGUE=f"CUBLASLT_EPILOGUE_{name}", BIAS_POINTER=sums)
    products.do(matmul, products.library.put(a.T), products.library.put(b.T), d)
    _same(d.read().T, a @ b)
    _same(sums.read(), a.sum(axis=1) if name == "BGRADA" else b.sum(axis=0))


def test_tf32_is_a_compute_type(products: Products) -> None:
    number, d = products.library.put(np.array([1.0 + 2.0**-12], np.float32)), products.library.room(1)
    layouts = [products.layout(1, 1) for _ in range(4)]
    products.do(products.matmul(), number, number, d, layouts)
    assert d.read()[0] > 1.0
    products.do(products.matmul("CUBLAS_COMPUTE_32F_FAST_TF32"), number, number, d, layouts)
    assert d.read()[0] == 1.0


# ---- algorithms, and misuse ----


def test_an_algorithm_has_the_workspace_that_it_was_chosen_with(products: Products) -> None:
    put = products.library.put
    a, b, d = _random(M, K), _random(K, N), products.library.room(N, M)
    matmul = products.matmul()
    layouts = [products.layout(M, K), products.layout(K, N), products.layout(M, N), products.layout(M, N)]
    assert [found.workspaceSize for found in products.algorithms(matmul, layouts, 0)] == [0]
    best = products.algorithms(matmul, layouts, 1 << 20)[0]
    assert best.workspaceSize > 0
    chosen = products.library.ffi.new("cublasLtMatmulAlgo_t *", best.algo)
    arguments = products.arguments(matmul, put(a.T), put(b.T), d, layouts)
    arguments[12] = chosen
    words = f"the workspace has 0 bytes and needs {best.workspaceSize}"
    products.library.refused(words, "cublasLtMatmul", *arguments)
    arguments[13:15] = put(np.zeros(best.workspaceSize, np.uint8)), best.workspaceSize
    products.library.do("cublasLtMatmul", *arguments)
    _same(d.read().T, a @ b)
    arguments[1] = products.matmul(EPILOGUE="CUBLASLT_EPILOGUE_RELU")
    words = "the algorithm was chosen for another product, or not at all"
    products.library.refused(words, "cublasLtMatmul", *arguments)


def test_what_does_not_fit_is_refused(products: Products) -> None:
    library = products.library
    a, b, d = library.room(K, M), library.room(N, K), library.room(N, M)
    good = [products.layout(M, K), products.layout(K, N), products.layout(M, N), products.layout(M, N)]

    def refused(words: str, matmul: Any, layouts: list[Any], a: Any, b: Any, d: Any) -> None:
        library.refused(words, "cublasLtMatmul", *products.arguments(matmul, a, b, d, layouts))

    refused("do not fit", products.matmul(TRANSA="CUBLAS_OP_T"), good, a, b, d)
    refused("the leading dimension of A is 3", products.matmul(), [products.layout(M, K, 3), *good[1:]], a, b, d)
    bias: dict[str, Any] = {"EPILOGUE": "CUBLASLT_EPILOGUE_BIAS"}
    refused("the bias is NULL", products.matmul(**bias), good, a, b, d)
    refused("is not inside a live", products.matmul(**bias, BIAS_POINTER=library.room(M - 1)), good, a, b, d)
    late = library.ffi.cast("char *", library.room(M + 1).pointer) + 4
    place = library.ffi.new("void **", late)
    refused("the bias is not at a multiple of 16 bytes", products.matmul(**bias, BIAS_POINTER=place), good, a, b, d)
    sums: dict[str, Any] = {"EPILOGUE": "CUBLASLT_EPILOGUE_BGRADA", "BIAS_POINTER": place}
    refused("the bias is not at a multiple of 16 bytes", products.matmul(**sums), good, a, b, d)
    aux: dict[str, Any] = {
        "EPILOGUE": "CUBLASLT_EPILOGUE_RELU_AUX",
        "EPILOGUE_AUX_POINTER": library.room(999),
        "EPILOGUE_AUX_LD": 64,
    }
    refused("a multiple of 128", products.matmul(**aux), good, a, b, d)
    refused("D and A overlap", products.matmul(), good, a, b, a)
    library.refused(
        "the value has 4 bytes, not 8", "cublasLtMatrixLayoutSetAttribute", good[0], 4, library.scalar(1.0), 4
    )
