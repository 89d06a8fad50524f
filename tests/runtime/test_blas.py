"""`STAGED_BLAS`: products by a library that the user links, here by one of a few lines that counts its calls."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.runtime.machine import native_machine
from staged.system import target

RNG = np.random.default_rng(0)

GEMM = """
void PREFIXcblas_LETTERgemm(int order, int ta, int tb, int m, int n, int k, TYPE alpha, const TYPE *a, int lda, const TYPE *b,
        int ldb, TYPE beta, TYPE *c, int ldc) {
    ++calls;
    if (order != 101 || lda < (ta == 111 ? k : m) || ldb < (tb == 111 ? n : k) || ldc < n) {
        for (int i = 0; i < m * n; ++i) {
            c[i / n * ldc + i % n] = -1e30f;
        }
        return;
    }
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            TYPE total = 0;
            for (int p = 0; p < k; ++p) {
                total += (ta == 111 ? a[i * lda + p] : a[p * lda + i]) * (tb == 111 ? b[p * ldb + j] : b[j * ldb + p]);
            }
            c[i * ldc + j] = alpha * total + (beta == 0 ? 0 : beta * c[i * ldc + j]);
        }
    }
}
"""

Blas = Callable[[], int]


def library(folder: Path, prefix: str = "") -> Path:
    text = "int calls;\n"
    for letter, type in (("s", "float"), ("d", "double")):
        text += GEMM.replace("PREFIX", prefix).replace("LETTER", letter).replace("TYPE", type)
    (folder / "blas.c").write_text(text)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "blas.c", "-o", "libtiny_blas.so"], cwd=folder, check=True)
    return folder / "libtiny_blas.so"


@pytest.fixture
def blas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Blas:
    """The library of `STAGED_BLAS`; what it returns is the number of calls since the last time."""
    path = library(tmp_path)
    monkeypatch.setenv("STAGED_BLAS", str(path))
    monkeypatch.setenv("STAGED_NUM_THREADS", "1")  # its counter is a plain one
    counter = ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "calls")

    def calls() -> int:
        found, counter.value = counter.value, 0
        return found

    return calls


def matrix(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_all_forms(blas: Blas, dtype: Any) -> None:
    a, b = matrix(33, 40, dtype=dtype), matrix(40, 21, dtype=dtype)
    forms = {
        "plain": lambda a, b: (a @ b, a, b),
        "left": lambda a, b: (a.T @ b, a.T, b),
        "right": lambda a, b: (a @ b.T, a, b.T),
        "both": lambda a, b: (a.T @ b.T, a.T, b.T),
    }
    for name, form in forms.items():
        x = a.T.copy() if name in ("left", "both") else a
        y = b.T.copy() if name in ("right", "both") else b
        program = st.function(lambda x, y, form=form: form(x, y)[0])
        np.testing.assert_allclose(program(x, y), a @ b, rtol=1e-4, atol=1e-4)
        assert blas() == 1, name
    column = matrix(20_000, 1, dtype=dtype)
    np.testing.assert_allclose(st.function(lambda x: x.T @ x)(column), column.T @ column, rtol=1e-3)
    assert blas() == 1


def test_batches_and_what_follows(blas: Blas) -> None:
    a, b, bias = matrix(5, 30, 40), matrix(5, 40, 20), matrix(20)

    @st.function
    def layer(a: Any, b: Any, bias: Any) -> Any:
        y = a @ b + bias
        return st.relu(y), st.sum(y, axis=0)

    y = a @ b + bias
    found, total = layer(a, b, bias)
    np.testing.assert_allclose(found, np.maximum(y, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total, y.sum(0), rtol=1e-4, atol=1e-4)
    assert blas() == 5


@pytest.mark.parametrize("count", [0, 1, 17])
def test_sizes_that_the_program_finds(blas: Blas, count: int) -> None:
    a, b, c = matrix(17, 70), matrix(70, 30), matrix(17, 30)

    @st.function
    def first_rows(a: Any, b: Any, c: Any, count: Any) -> Any:
        n = st.dim("N", count, max=17)
        return st.sum(a[0:n] @ b, axis=0), a[0:n].T @ c[0:n]

    rows, sums = first_rows(a, b, c, count)
    np.testing.assert_allclose(rows, (a @ b)[:count].sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums, a[:count].T @ c[:count], rtol=1e-4, atol=1e-4)
    assert blas() == 2


def test_gradients(blas: Blas) -> None:
    x, w = matrix(33, 40, dtype=np.float64), matrix(40, 21, dtype=np.float64)

    @st.function
    def gradient(x: Any, w: Any) -> Any:
        return st.grad(lambda x, w: st.sum((x @ w) ** 2), argnums=(0, 1))(x, w)

    d_x, d_w = gradient(x, w)
    np.testing.assert_allclose(d_x, 2 * (x @ w) @ w.T)
    np.testing.assert_allclose(d_w, 2 * x.T @ (x @ w))
    assert blas() == 3


def test_small_products_and_integers_stay_in_the_program(blas: Blas) -> None:
    small, integers = matrix(8, 8), np.ones((40, 40), np.int32)
    np.testing.assert_allclose(st.function(lambda x: x @ x)(small), small @ small, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(st.function(lambda x: x @ x)(integers), integers @ integers)
    assert blas() == 0


def test_a_program_with_a_device_has_products_of_its_own(blas: Blas, emulated_device: Any) -> None:
    x = matrix(40, 40)

    @st.function
    def program(x: Any) -> Any:
        y = x @ x
        with with_backend(GPU):
            z = st.tanh(y)
        return z

    np.testing.assert_allclose(program(x), np.tanh(x @ x), rtol=1e-4, atol=1e-4)
    assert blas() == 0


def test_threads_share_no_loop_that_calls_it(blas: Blas, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library may have threads as well."""
    monkeypatch.setattr("staged.system.native_machine", lambda: replace(native_machine(), cores=2))
    x = np.stack([matrix(64, 64)] * 8)

    def program(x: Any) -> Any:
        y = st.zeros((8, 64, 64))
        for i in st.range(8):
            y[i] = x[i] @ x[0]
        return y

    assert "ST_SHARE_LOOP" not in st.function(program).stage(x).source
    monkeypatch.delenv("STAGED_BLAS")
    assert "ST_SHARE_LOOP" in st.function(program).stage(x).source


def test_programs_of_both_kinds_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = matrix(40, 40)

    def staged() -> Any:
        return st.function(lambda x: x @ x, target="portable").stage(x).source

    plain = staged()
    monkeypatch.setenv("STAGED_BLAS", str(library(tmp_path, "my_")))
    monkeypatch.setenv("STAGED_BLAS_SYMBOLS", "my_{}")
    assert "cblas" not in plain and "my_cblas_sgemm(101" in staged()
    np.testing.assert_allclose(st.function(lambda x: x @ x, target="portable")(x), x @ x, rtol=1e-4, atol=1e-4)
    assert target("c99").blas is None
    monkeypatch.delenv("STAGED_BLAS")
    assert staged() == plain


def test_an_exported_folder_links_it(blas: Blas, tmp_path: Path) -> None:
    x = matrix(40, 40)
    program = st.function(lambda x: st.tanh(x @ x)).stage(x)
    folder = tmp_path / "exported"
    program.export(str(folder))
    subprocess.run(["make"], cwd=folder, check=True, capture_output=True)
    np.save(folder / "x.npy", x)
    linked = subprocess.run(
        ["ldd", *(f for f in folder.iterdir() if f.stat().st_mode & 0o100 and f.is_file())],
        capture_output=True,
        text=True,
    )
    assert "libtiny_blas.so" in linked.stdout
    assert "libtiny_blas.so" in (folder / "Makefile").read_text()


@pytest.mark.parametrize(
    ("chosen", "symbols", "error", "message"),
    [
        ("/nowhere/libblas.so", "", st.DependencyError, "not there: /nowhere/libblas.so"),
        ("-lno_such_blas", "", st.CompilerError, "does not find the BLAS that STAGED_BLAS=-lno_such_blas names"),
        ("no_such_blas", "", st.CompilerError, "cannot find -lno_such_blas"),
        ("-lm -Wl,--no-undefined", "", st.CompilerError, "undefined reference to `cblas_sgemm"),
        ("-lm", "", st.CompilerError, "undefined symbol: cblas_sgemm"),
        ("'-lm", "", st.DependencyError, "cannot be read as linker flags"),
        ("-lm", "scipy_", st.DependencyError, "is the form of a name"),
    ],
)
def test_a_library_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, chosen: str, symbols: str, error: type[Exception], message: str
) -> None:
    monkeypatch.setenv("STAGED_BLAS", chosen)
    monkeypatch.setenv("STAGED_BLAS_SYMBOLS", symbols)
    with pytest.raises(error, match=message):
        st.function(lambda x: x @ x)(matrix(40, 40))


def test_the_library_that_comes_with_scipy(scipys_blas: None) -> None:
    a, b = matrix(200, 300), matrix(150, 300)
    np.testing.assert_allclose(st.function(lambda a, b: a @ b.T)(a, b), a @ b.T, rtol=1e-4, atol=1e-4)
