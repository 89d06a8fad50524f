"""Products of f16 and bf16 in f32, which convert what they copy: values against f64's of the same halves, exactly one
write per element, no access out of bounds; and whole programs, without an array of f32 beside the halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import staged as st
from staged.ir.machine import Machine
from staged.ir.types import DType, bf16, f16
from tests.backends.host.contraction_harness import machines
from tests.backends.host.test_contraction_matmul import SHAPES, TARGETS, WIDEST, check

HALVES = [pytest.param(bf16, id="bf16"), pytest.param(f16, id="f16")]
NUMPY: dict[DType, Any] = {bf16: ml_dtypes.bfloat16, f16: np.float16}


@pytest.mark.slow
@pytest.mark.parametrize("stored", HALVES)
@pytest.mark.parametrize("machine", TARGETS)
def test_product_of_every_transposition(machine: Machine, stored: DType) -> None:
    for m, n, k in SHAPES:
        for transposes in ("NN", "TN", "NT", "TT"):
            check(m, n, k, machine=machine, transposes=transposes, stored=stored)


@pytest.mark.parametrize("stored", HALVES)
@pytest.mark.parametrize(("m", "n", "k"), [(7, 17, 1), (13, 31, 29), (33, 47, 61), (37, 64, 48)])
def test_some_products(m: int, n: int, k: int, stored: DType) -> None:
    for transposes in ("NN", "TN", "NT", "TT"):
        check(m, n, k, transposes=transposes, stored=stored)
    check(m, n, k, machine=machines()[0], transposes="TT", stored=stored)
    check(m, n, k, c_transposed=True, transposes="NT", stored=stored)


@pytest.mark.parametrize("stored", HALVES)
def test_epilogue_receives_every_element_once(stored: DType) -> None:
    for machine in machines():
        check(33, 47, 61, machine=machine, mode="epilogue", stored=stored)
        check(64, 10, 128, machine=machine, mode="epilogue", transposes="TT", stored=stored)


@pytest.mark.parametrize(("batch", "broadcast"), [((2, 3), ""), ((2, 3), "a"), ((2, 3), "b")])
def test_batches(batch: tuple[int, ...], broadcast: str) -> None:
    for m, n, k in [(20, 35, 18), (1, 20, 30)]:
        check(m, n, k, batch=batch, broadcast=broadcast, transposes="NT", stored=bf16)
        check(m, n, k, batch=batch, broadcast=broadcast, mode="epilogue", pieces=2, stored=f16)


@pytest.mark.parametrize(("machine", "stored"), [(machines()[0], bf16), (WIDEST, bf16), (WIDEST, f16)])
def test_few_rows_or_columns(machine: Machine, stored: DType) -> None:
    """Small caches make these sizes count as large: both skinny forms run, whole and in strips."""
    for cores in (1, 3):
        small = replace(machine, cores=cores, l1=1024, l2=4096)
        for rows, long, k in ((1, 257, 261), (3, 72, 70), (4, 130, 100)):
            for transposes in ("NN", "TT") if rows % 2 else ("TN", "NT"):
                check(rows, long, k, machine=small, transposes=transposes, pieces=3, stored=stored)
                check(long, rows, k, machine=small, transposes=transposes, pieces=3, stored=stored)
        check(2, 90, 131, machine=small, mode="epilogue", transposes="TT", pieces=2, batch=(2,), stored=stored)
        check(90, 2, 131, machine=small, mode="epilogue", transposes="TN", stored=stored)


@pytest.mark.parametrize("stored", HALVES)
def test_items_of_threads_and_long_sums(stored: DType) -> None:
    small = replace(WIDEST, cores=3, l1=4096, l2=32768)
    for transposes in ("NN", "TN", "NT", "TT"):
        check(200, 300, 100, machine=small, transposes=transposes, pieces=5, stored=stored)
    for transposes in ("NN", "TT"):
        check(20, 35, 2049, transposes=transposes, stored=stored)
        check(61, 40, 4099, machine=small, transposes=transposes, mode="epilogue", pieces=2, stored=stored)


# ---- programs --------------------------------------------------------------------------------------


def halves(dtype: DType, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(NUMPY[dtype])


def summed_in_f32(a: Any, b: Any) -> Any:
    return st.matmul(a, b, dtype=st.f32)


Case = tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...], tuple[int, ...]]
PROGRAMS: list[Case] = [
    (summed_in_f32, lambda a, b: a @ b, (40, 70), (70, 33)),
    (lambda a, b: summed_in_f32(a, b.T), lambda a, b: a @ b.T, (40, 70), (33, 70)),
    (lambda a, b: summed_in_f32(a.T, b), lambda a, b: a.T @ b, (70, 40), (70, 33)),
    (lambda a, b: summed_in_f32(a.T, b.T), lambda a, b: a.T @ b.T, (70, 40), (33, 70)),
    (summed_in_f32, lambda a, b: a @ b, (2, 3, 20, 70), (70, 33)),
    (
        lambda a, b: summed_in_f32(a, st.matrix_transpose(b)),
        lambda a, b: a @ b.swapaxes(1, 2),
        (6, 20, 30),
        (6, 21, 30),
    ),
    (lambda a, b: st.relu(summed_in_f32(a, b) + 1.0), lambda a, b: np.maximum(a @ b + 1.0, 0), (40, 70), (70, 33)),
    (lambda a, b: summed_in_f32(a, b), lambda a, b: a @ b, (1, 300), (300, 500)),
]


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("dtype", HALVES)
def test_programs_multiply_halves_as_they_are_stored(dtype: DType, target: str) -> None:
    for function, plain, first, second in PROGRAMS:
        a, b = halves(dtype, *first), halves(dtype, *second)
        program = st.function(function, target=target)
        source = program.stage(a, b).source
        assert f"{dtype} in f32" in source and "float *cast" not in source
        np.testing.assert_allclose(program(a, b), plain(a.astype("d"), b.astype("d")), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", HALVES)
def test_results_in_halves_are_rounded_once(dtype: DType) -> None:
    a, b = halves(dtype, 64, 200), halves(dtype, 200, 48)
    y = st.function(lambda a, b: a @ b)(a, b)
    np.testing.assert_array_equal(y, st.function(summed_in_f32)(a, b).astype(NUMPY[dtype]))


def test_infinities_nan_and_subnormal_numbers_are_multiplied_as_such() -> None:
    a, b = np.ones((9, 40), NUMPY[bf16]), np.eye(40, 33, dtype=NUMPY[bf16])
    a[0, 0], a[1, 1], a[2, 2] = np.inf, np.nan, 1e-39
    y = st.function(summed_in_f32)(a, b + 0)
    assert np.isinf(y[0, 0]) and np.isnan(y[0, 1:]).all() and np.isnan(y[1]).all()
    assert y[2, 2] == np.float32(a[2, 2]) != 0


def test_rows_that_the_program_finds() -> None:
    def first_rows(a: Any, b: Any, count: Any) -> Any:
        n = st.dim("N", count, max=97)
        return st.sum(summed_in_f32(a[0 : 0 + n], b), axis=0)

    a, b = halves(bf16, 97, 70), halves(bf16, 70, 33)
    program = st.function(first_rows)
    for rows in (0, 1, 40, 97):
        expected = (a[:rows].astype("d") @ b.astype("d")).sum(0)
        np.testing.assert_allclose(program(a, b, np.int64(rows)), expected, rtol=1e-4, atol=1e-4)


def test_the_derivative_multiplies_halves() -> None:
    def loss(w: Any, x: Any) -> Any:
        return st.sum(st.astype(x @ w, st.f32) ** 2)

    x, w = halves(bf16, 48, 70), halves(bf16, 70, 33)
    program = st.function(st.grad(loss))
    assert program.stage(w, x).source.count("bf16 in f32") == 2
    y = (x.astype("d") @ w.astype("d")).astype(NUMPY[bf16]).astype("d")
    expected = x.astype("d").T @ (2 * y).astype(NUMPY[bf16]).astype("d")
    np.testing.assert_allclose(np.asarray(program(w, x)).astype("d"), expected, rtol=1e-2, atol=1.0)
