"""Items that make no whole vector: results of loops whose last vector could cover some items twice."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

SHAPES = [(20, 5, 20), (12, 3, 35), (9, 17), (17, 1, 33), (33, 31), (1, 19), (64, 65)]


def test_totals_of_columns_take_every_item_once():
    """A loop that adds to totals in memory reads what it writes: no vector of it is repeated."""
    arrays = [np.random.default_rng(n).uniform(-1, 1, shape).astype(np.float32) for n, shape in enumerate(SHAPES)]

    @st.function
    def run(arrays):
        return [
            (st.sum(st.exp(x), axis=0), st.max(st.tanh(x), axis=0), st.mean(st.log1p(x * x), axis=0)) for x in arrays
        ]

    for x, results in zip(arrays, run(arrays), strict=True):
        wide = x.astype(np.float64)
        right = (np.exp(wide).sum(0), np.tanh(wide).max(0), np.log1p(wide * wide).mean(0))
        for got, wanted in zip(results, right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_totals_of_rows_take_every_item_once():
    """A last vector that covers items twice takes those lanes out of sums, and may keep them in extremes."""
    arrays = [
        np.random.default_rng(n).uniform(-1, 1, (3, n)).astype(np.float32) for n in (1, 15, 16, 17, 31, 33, 65, 130)
    ]

    @st.function
    def run(arrays):
        return [
            (
                st.sum(st.exp(x), axis=1),
                st.max(st.exp(x), axis=1),
                st.prod(1.0 + 0.01 * x, axis=1),
                st.softmax(x, axis=1),
            )
            for x in arrays
        ]

    for x, results in zip(arrays, run(arrays), strict=True):
        wide = x.astype(np.float64)
        e = np.exp(wide)
        right = (e.sum(1), e.max(1), np.prod(1 + 0.01 * wide, 1), e / e.sum(1, keepdims=True))
        for got, wanted in zip(results, right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_what_is_no_number_in_a_lane_that_is_covered_twice_counts_once():
    """Infinity is masked, not multiplied by 0: the sum is infinite, and NaN in the row that has it alone."""
    arrays = []
    for n in (17, 19, 31, 33):
        x = np.random.default_rng(n).uniform(-1, 1, (n + 3, n)).astype(np.float32)
        x[np.arange(n), np.arange(n)] = 200.0  # exp: infinity, in every lane once
        x[n, n - 3], x[n + 1, n - 2], x[n + 2, :] = np.nan, -np.inf, -np.inf
        arrays.append(x)

    @st.function
    def run(arrays):
        return [(st.sum(st.exp(x), axis=1), st.max(st.exp(x), axis=1), st.min(st.exp(x), axis=1)) for x in arrays]

    with np.errstate(over="ignore"):
        for x, results in zip(arrays, run(arrays), strict=True):
            e = np.exp(x)
            for got, wanted in zip(results, (e.sum(1), e.max(1), e.min(1)), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_lanes_beyond_a_size_that_the_program_finds_are_not_in_totals():
    @st.function(dims={"x": (3, "N <= 200")}, target="x86-64-v3")
    def run(x):
        e = st.exp(x)
        return st.sum(e, axis=1), st.max(e, axis=1), st.min(x, axis=1)

    with np.errstate(over="ignore"):
        for n in (130, 1, 15, 16, 17, 63, 64, 200):  # what memory holds beyond a row is of longer rows
            x = np.random.default_rng(n).uniform(-1, 1, (3, n)).astype(np.float32)
            x[1, n - 1], x[2, n // 2] = 200.0, np.nan
            e = np.exp(x)
            right = e.sum(1), e.max(1), x.min(1)
            for got, wanted in zip(run(x), right, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert "is_item & (i32v)e" in run.stage(x).source and "++j" not in run.stage(x).source


def test_pairs_beyond_a_size_that_the_program_finds_are_masked():
    @st.function(dims={"x": (1, 3, 4, "N <= 40")}, target="x86-64-v3")
    def run(x):
        return st.value_and_grad(lambda x: st.sum(st.max_pool2d(x, 2) ** 2))(x)

    for n in (2, 9, 10, 17, 33, 40):
        x = np.random.default_rng(n).uniform(1, 2, (1, 3, 4, n)).astype(np.float32)
        windows = x[..., : n // 2 * 2].reshape(1, 3, 2, 2, n // 2, 2)
        largest = windows.max((3, 5), keepdims=True)
        right = np.zeros_like(x)
        right[..., : n // 2 * 2] = np.where(windows == largest, 2 * largest, 0).reshape(1, 3, 4, -1)
        value, gradient = run(x)
        np.testing.assert_allclose(value, (largest**2).sum(), rtol=1e-5)
        np.testing.assert_array_equal(gradient, right)
    assert "left > 4 ?" in run.stage(x).source and "++x" not in run.stage(x).source


def test_what_is_computed_in_place_is_computed_once():
    """A result in its operand's memory: a repeated vector would read what the one before it wrote."""
    ones = [np.linspace(0.9, 1.1, size).astype(np.float32) for size in (1, 15, 17, 31, 33, 100)]

    @st.function
    def run(arrays, ones, n):
        found = []
        for x, one in zip(arrays, ones, strict=True):
            for _ in st.range(n):
                x = st.exp(x) - one
            found.append(x)
        return found

    arrays = [np.linspace(-1, 0.4, 3 * one.size).astype(np.float32).reshape(3, one.size) for one in ones]
    for x, one, got in zip(arrays, ones, run(arrays, ones, 3), strict=True):
        right = x.astype(np.float64)
        for _ in range(3):
            right = np.exp(right) - one
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("columns", "last"), [(48, None), (50, 42), (8, None), (9, 1)])
def test_the_last_vector_of_a_row_is_computed_in_the_same_loop(columns: int, last: int | None) -> None:
    x = np.linspace(-2, 2, 3 * columns, dtype=np.float32).reshape(3, columns)
    program = st.function(lambda x: st.tanh(x[:, ::-1][:, ::-1] + x[:, :1]), target="x86-64-v3").stage(x)
    assert program.source.count("st_tanh_f32v(") == 1
    assert ("int64_t at = " in program.source) is (last is not None)
    assert last is None or f"j < {last} ? j : {last};" in program.source
    np.testing.assert_allclose(program(x), np.tanh(x + x[:, :1]), rtol=1e-6)


def test_what_is_used_once_is_written_where_it_is_stored() -> None:
    x, d = np.linspace(-1, 1, 64, dtype=np.float32), np.ones(64, np.float32)

    @st.function(target="x86-64-v3")
    def step(x, d):
        x += st.exp(-d)
        return x

    source = step.stage(x, d).source
    assert "= *(const f32v_u *)(x + i) + st_exp_f32v(-*(const f32v_u *)(d + i));" in source
    np.testing.assert_allclose(step(x, d), x + np.exp(-d), atol=1e-6)


def test_a_sum_into_memory_is_an_addition_in_place() -> None:
    x = np.arange(70 * 64, dtype=np.float32).reshape(70, 64)
    program = st.function(lambda x: st.sum(x, axis=0), target="x86-64-v3").stage(x)
    assert "_total + j) += *(const f32v_u *)(x + i * 64 + j);" in program.source
    np.testing.assert_array_equal(program(x), x.sum(axis=0))


@pytest.mark.parametrize(
    ("before", "condition"), [(0, "i < 5 ? x[i * 3 + j]"), (1, "i - 1 >= 0 && i - 1 < 5 ? x[i * 3 + j - 3]")]
)
def test_an_index_is_compared_with_zero_if_it_can_be_negative(before: int, condition: str) -> None:
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    program = st.function(lambda x: st.sum(st.pad(x, ((before, 2), (0, 0))), axis=1), target="x86-64-v3").stage(x)
    assert condition in program.source
    np.testing.assert_array_equal(program(x), np.pad(x, ((before, 2), (0, 0))).sum(axis=1))


def test_a_kernel_that_is_one_piece_has_no_range() -> None:
    x = np.arange(8, dtype=np.float32)
    program = st.function(lambda x: st.sum(x), target="x86-64-v3").stage(x)
    assert "static void sum(const float *x, float *x_total) {" in program.source
    assert program(x) == x.sum()


def test_ragged_rows_have_one_loop_whose_last_vector_overlaps_or_in_place_is_a_part():
    x, rows = np.arange(2250, dtype=np.float32).reshape(45, 50), np.array([7, 0, 44])
    copied = st.function(lambda x, rows: x[rows], target="x86-64-v3")
    source = copied.stage(x, rows).source
    assert "j < 42 ? j : 42" in source and "x_2[" not in source and source.count("for (int64_t j") == 1, source
    np.testing.assert_array_equal(copied(x, rows), x[rows])
    v = st.Variable(x.copy())

    @st.function(target="x86-64-v3")
    def scaled(y):
        v.value = v.value * 0.5 + y

    source = scaled.stage(x[0]).source
    assert " ? j : " not in source and source.count("for (int64_t j") == 1 and "50 - j" in source, source
    scaled(x[0])
    np.testing.assert_array_equal(v.value, x * 0.5 + x[0])
