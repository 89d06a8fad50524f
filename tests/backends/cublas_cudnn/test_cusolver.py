"""Cholesky factors by cuSOLVER, on the emulated device."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from tests.backends.cublas_cudnn.harness import on_gpu

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(3)
BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def positive(*shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    a = RANDOM.standard_normal(shape)
    return np.asarray(a @ a.mT / shape[-1] + np.eye(shape[-1]), dtype)


def cholesky(a: Any) -> Any:
    return st.linalg.cholesky(a)


@BOTH
@pytest.mark.parametrize("shape", [(32, 32), (2, 2, 33, 33)])
def test_factors_agree(shape: tuple[int, ...], dtype: Any) -> None:
    a = positive(*shape, dtype=dtype)
    program = on_gpu(cholesky).stage(np.tril(a))
    assert f"cusolverDn{'S' if dtype == np.float32 else 'D'}potrf(" in program.source
    close = 1e-12 if dtype == np.float64 else 1e-5
    for given in (np.tril(a), np.tril(a) + np.triu(np.full_like(a, np.nan), 1)):  # the other triangle is unused
        np.testing.assert_allclose(program(given), np.linalg.cholesky(a), rtol=close, atol=close)


def test_two_sizes_share_the_handle_and_the_workspace(device: Emulator) -> None:
    def both(a: Any, b: Any) -> Any:
        return st.linalg.cholesky(a), st.linalg.cholesky(b)

    a, b = positive(32, 32), positive(40, 40)
    for found, given in zip(on_gpu(both)(a, b), (a, b), strict=True):
        np.testing.assert_allclose(found, np.linalg.cholesky(given), atol=1e-12)


def test_a_loop_agrees() -> None:
    def loop(a: Any) -> Any:
        total = st.zeros_like(a)
        for _ in range(4):
            total = total + st.linalg.cholesky(a + total @ total.T)
        return total

    a = positive(32, 32)
    total = np.zeros_like(a)
    for _ in range(4):
        total = total + np.linalg.cholesky(a + total @ total.T)
    np.testing.assert_allclose(on_gpu(loop)(a), total, rtol=1e-9, atol=1e-9)


def test_the_gradient_agrees() -> None:
    def loss(a: Any) -> Any:
        return st.sum(st.linalg.cholesky(a) ** 3)

    a = positive(32, 32)
    program = on_gpu(st.grad(loss)).stage(a)
    assert "cusolverDnDpotrf(" in program.source
    np.testing.assert_allclose(program(a), st.function(st.grad(loss))(a), rtol=1e-9, atol=1e-9)


def test_one_that_is_not_positive_definite_stops_the_program_in_the_users_line() -> None:
    a = positive(3, 32, 32)
    a[1, 20, 20] = -1.0
    with pytest.raises(ValueError, match="not positive definite") as caught:
        on_gpu(cholesky)(a)
    assert "return st.linalg.cholesky(a)" in str(caught.value)


@pytest.mark.parametrize("shape", [(31, 31), (5, 32, 32)])
def test_small_matrices_and_large_batches_have_kernels(shape: tuple[int, ...]) -> None:
    a = positive(*shape)
    program = on_gpu(cholesky).stage(a)
    assert "potrf" not in program.source
    np.testing.assert_allclose(program(a), np.linalg.cholesky(a), atol=1e-12)


def test_an_exported_folder_links_it(tmp_path: Path) -> None:
    program = on_gpu(cholesky).stage(positive(32, 32))
    assert "cusolver_potrf" in str(program.explain())
    program.export(str(tmp_path / "exported"))
    assert "-lcusolver" in (tmp_path / "exported" / "Makefile").read_text()
    built = subprocess.run(["make", "emu"], cwd=tmp_path / "exported", capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
