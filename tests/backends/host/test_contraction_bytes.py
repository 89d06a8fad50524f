"""Products of i8 in i32 in register tiles: exact for every size, orientation, vector width, number of threads and
epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.cpu.contraction.bytes import FEW_ROWS
from staged.ir.machine import MACHINES
from tests.backends.host.test_contraction_dots import TARGETS, runs
from tests.ops.test_contraction import integers, wide


def straight(a: Any, b: Any) -> Any:
    return st.matmul(a, b, dtype=st.i32)


def turned(a: Any, b: Any) -> Any:
    return st.matmul(a, st.matrix_transpose(b), dtype=st.i32)


def scaled(a: Any, b: Any, scale: Any, bias: Any) -> Any:
    y = st.astype(straight(a, b), st.f32) * scale + bias
    return st.relu(y), st.sum(y > 0.0)


ORIENTATIONS: list[tuple[Callable[..., Any], Callable[[Any], Any]]] = [
    (straight, lambda b: b),
    (turned, lambda b: np.ascontiguousarray(b.swapaxes(-1, -2))),
]
# Rests of every size in k; of rows and columns of tiles of one, two and more vectors; sums of one group.
SIZES = [
    *((64, 64, 64), (5, 16, 130), (7, 33, 97), (13, 66, 70), (33, 127, 41), (100, 5, 25), (70, 4, 47), (61, 7, 33)),
    *((257, 20, 300), (130, 1000, 9), (1000, 9, 16), (6, 2050, 17)),
]


def every(function: Callable[..., Any], pairs: Any) -> Any:
    return [function(a, b) for a, b in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("function", "stored"), ORIENTATIONS)
def test_sums_are_exact(target: str, function: Callable[..., Any], stored: Callable[[Any], Any]) -> None:
    check(function, stored, runs(target), SIZES)


@pytest.mark.parametrize(("function", "stored"), ORIENTATIONS)
def test_some_sums_are_exact(function: Callable[..., Any], stored: Callable[[Any], Any]) -> None:
    check(function, stored, "native", SIZES[1:4])


def check(function: Callable[..., Any], stored: Callable[[Any], Any], target: str, sizes: Any) -> None:
    program = st.function(every, target=target)
    pairs = [(integers(m, k), integers(k, n)) for m, k, n in sizes]
    given = [(a, stored(b)) for a, b in pairs]
    source = program.stage(function, given).source
    for (m, k, n), (a, b), y in zip(sizes, pairs, program(function, given), strict=True):
        assert f"({m}, {k}) @ ({k}, {n}), i8 in i32" in source and f"sums of {k} products" in source
        np.testing.assert_array_equal(y, wide(a, b, np.int64))


@pytest.mark.parametrize("target", TARGETS)
def test_extremes_are_exact(target: str) -> None:
    program = st.function(lambda a, b, bt: (straight(a, b), turned(a, bt)), target=runs(target))
    m, k, n = 19, 131, 37
    for left in (-128, 127):
        for right in (-128, 127):
            a, b = np.full((m, k), left, np.int8), np.full((k, n), right, np.int8)
            for y in program(a, b, b.T.copy()):
                np.testing.assert_array_equal(y, np.full((m, n), left * right * k))


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize(("function", "stored"), ORIENTATIONS)
def test_rows_and_columns_are_shared_by_threads(
    function: Callable[..., Any], stored: Callable[[Any], Any], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGED_NUM_THREADS", threads)
    # Row blocks alone, column blocks alone, both, and neither.
    check(function, stored, "native", [(700, 70, 40), (9, 140, 700), (500, 131, 500), (50, 40, 50)])


@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_gets_each_sum_once(target: str) -> None:
    program = st.function(scaled, target=runs(target))
    for m, k, n in ((33, 100, 41), (500, 25, 10), (70, 65, 263)):
        a, b = integers(m, k), integers(k, n)
        scale, bias = np.random.default_rng(1).standard_normal((2, n)).astype(np.float32)
        y = wide(a, b).astype(np.float64) * scale + bias
        found, count = program(a, b, scale, bias)
        np.testing.assert_allclose(found, np.maximum(y, 0), rtol=1e-5, atol=1e-2)
        assert count == np.sum(y > 0)


@pytest.mark.parametrize(("function", "stored"), ORIENTATIONS)
def test_batches(function: Callable[..., Any], stored: Callable[[Any], Any]) -> None:
    for a, b in (
        (integers(2, 3, 40, 100), integers(2, 3, 100, 50)),
        (integers(3, 257, 20), integers(3, 20, 33)),
    ):
        np.testing.assert_array_equal(st.function(function)(a, stored(b)), wide(a, b, np.int64))


def test_sums_wrap_around() -> None:
    a = np.full((2 * FEW_ROWS, 140_000), -128, np.int8)
    expected = np.int64(140_000 * 128**2 - 2**32)
    np.testing.assert_array_equal(st.function(turned)(a, np.tile(a, (4, 1))), np.full((8, 32), expected))


@pytest.mark.parametrize(
    ("shapes", "form"),
    [
        (((64, 64), (64, 64)), "tiles"),
        (((64, 4), (4, 64)), "tiles"),
        (((64, 3), (3, 64)), "a nest"),
        (((2, 64), (64, 3)), "a nest"),
    ],
)
def test_tiny_products_are_nests(shapes: Any, form: str) -> None:
    a, b = (integers(*shape) for shape in shapes)
    source = st.function(straight, target=MACHINES["x86-64-v3"].name).stage(a, b).source
    assert ("st_dot_i8" in source) == (form == "tiles")
