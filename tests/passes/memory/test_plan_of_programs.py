"""Programs whose values nearly share a buffer, against what Python says: each was, or would be, overwritten too early."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend

X = np.arange(3.0, dtype=np.float32)


def a_loop_goes_on_with_what_was_written(v, x, c):
    w = x * 2.0
    v.value = w
    for _ in st.range(2):
        w = w * 0.5 + 1.0
    return w


def a_while_goes_on_with_what_was_written(v, x, c):
    w = x * 2.0
    v.value = w
    while w[1] < 10.0 * c:
        w = w + 3.0
    return w


def a_branch_changes_what_was_written(v, x, c):
    w = x * 2.0
    v.value = w
    if c > 0:
        w = w + 1.0
    return w


def a_branch_changes_a_part_before_the_next_write(v, x, c):
    w = x * 2.0
    v.value = w
    if c > 0:
        w[0] = 7.0
    v.value = x - 1.0
    return w


def the_value_read_outlives_two_writes(v, x, c):
    old = v.value
    v.value = x + 1.0
    w = v.value * 2.0
    v.value = w
    w[1] = old[0]
    return w, old


def written_and_changed_in_a_loop(v, x, c):
    w = x * 2.0
    for i in st.range(3):
        v.value = w
        w[i] = w[i] + v.value[2]
    return w


def written_before_an_early_return(v, x, c):
    w = x * 2.0
    v.value = w
    w = w + 1.0
    if c > 0:
        return w
    v.value = w
    w[0] = 5.0
    return w


EXPECTED = {
    a_loop_goes_on_with_what_was_written: ([1.5, 2, 2.5], [0, 2, 4]),
    a_while_goes_on_with_what_was_written: ([9, 11, 13], [0, 2, 4]),
    a_branch_changes_what_was_written: ([1, 3, 5], [0, 2, 4]),
    a_branch_changes_a_part_before_the_next_write: ([7, 2, 4], [-1, 0, 1]),
    the_value_read_outlives_two_writes: (([2, 50, 6], [50, 60, 70]), [2, 4, 6]),
    written_and_changed_in_a_loop: ([4, 6, 8], [4, 6, 4]),
    written_before_an_early_return: ([1, 3, 5], [0, 2, 4]),
}


@pytest.mark.parametrize("program", EXPECTED, ids=lambda program: program.__name__)
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_a_variable_keeps_what_was_written(program, way):
    results, state = EXPECTED[program]
    v = st.Variable(np.float32([50, 60, 70]))

    @st.function
    def run(x, c):
        return program(v, x, c)

    if way == "eager":
        with st.eager():
            found = run(X, 1.0)
    else:
        found = run(X, 1.0)
    pairs = zip(found, results, strict=True) if isinstance(found, tuple) else [(found, results)]
    for got, right in pairs:
        np.testing.assert_array_equal(np.asarray(got), np.float32(right))
    np.testing.assert_array_equal(np.asarray(v.value), np.float32(state))


def test_a_variable_keeps_what_was_written_in_a_region(emulated_device):
    v = st.Variable(np.float32([50, 60, 70]))

    @st.function
    def run(x, c):
        with with_backend(GPU, x):
            return a_loop_goes_on_with_what_was_written(v, x, c)

    np.testing.assert_array_equal(run(X, 1.0), np.float32([1.5, 2, 2.5]))
    np.testing.assert_array_equal(np.asarray(v.value), np.float32([0, 2, 4]))


def into_itself(a, p):
    """Every op that changes its first operand, with that operand as another one too."""
    put = a + 1.0
    put[p] = put
    added = a + 1.0
    added = st.scatter_add(added, p, added)
    slid = a + 1.0
    slid[1:] = slid[:-1]
    turned = a + 1.0
    turned[:] = turned[::-1]
    table = st.reshape(a, (1, 5)) * st.ones((5, 1))
    table[p] = table.T
    places = st.astype(a, st.i64)
    places[places] = places + 0
    moved = 4 - st.astype(a, st.i64)
    moved[moved] = moved
    return put, added, slid, turned, table, places, moved


@pytest.mark.parametrize("where", ["host", "region"])
def test_an_array_is_scattered_into_itself_as_it_was(where, emulated_device):
    a, p = np.arange(5, dtype=np.float32), np.array([2, 0, 1, 4, 0])

    def run(a, p):
        if where == "host":
            return into_itself(a, p)
        with with_backend(GPU, a, p):
            return into_itself(a, p)

    put, added, slid, turned = a + 1, a + 1, a + 1, a + 1
    put[p] = put.copy()
    np.add.at(added, p, added.copy())
    slid[1:] = slid[:-1].copy()
    turned[:] = turned[::-1].copy()
    table = np.tile(a, (5, 1))
    table[p] = table.T.copy()
    moved = 4 - np.arange(5)
    moved[moved.copy()] = moved.copy()
    for got, right in zip(st.function(run)(a, p), (put, added, slid, turned, table, np.arange(5), moved), strict=True):
        np.testing.assert_array_equal(got, right)


def test_results_that_share_the_callers_array_are_kept_apart():
    @st.function
    def run(m, w, n, c):
        for _ in st.range(n):
            m = m * 2.0
            if c > 3.0:
                return w, m
            m, w = w, m
        w[0] = 9.0
        return m, w

    for got, right in zip(run(X, X + 10, 1, 0.0), ([10, 11, 12], [9, 2, 4]), strict=True):
        np.testing.assert_array_equal(got, np.float32(right))
    for got, right in zip(run(X, X + 10, 1, 4.0), ([10, 11, 12], [0, 2, 4]), strict=True):
        np.testing.assert_array_equal(got, np.float32(right))
