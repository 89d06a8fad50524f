"""A list of Python numbers at a staged index: a table of constants, each as weak as a number."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

X = np.array([0.5, -0.25])
NODES = (0.1, 0.2, 0.7)


@st.function
def tables(x, single, k, n):
    weights = [0.1, 0.2, 0.7]
    steps = [1, 2, 4]
    flags = [True, False, True]
    grid = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    total, signs = x * 0.0, 0
    for i in st.range(3):
        total += x * weights[i]
        if flags[i]:
            signs += steps[i]
    row = grid[k]
    changed = [1.5, 2.5, 3.5]
    if n > 1:
        changed[1] = 0.1
    return {
        "total": total,
        "signs": signs,
        "beside f64": x * weights[k],
        "beside f32": single * weights[k],
        "closed over": x * NODES[k],
        "wrapped": x * weights[k - 3],
        "row": x * row[0] + row[1],
        "both": x * grid[k][k - 1],
        "changed": x * changed[k],
        "of numbers": weights[k] * 3.0,
        "power": 2 ** steps[k],
    }


def expected(n):
    w, grid = [0.1, 0.2, 0.7], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    return {
        "total": X * 0.0 + X * w[0] + X * w[1] + X * w[2],
        "signs": 5,
        "beside f64": X * 0.2,
        "beside f32": np.ones(2, np.float32) * np.float32(0.2),
        "closed over": X * 0.2,
        "wrapped": X * 0.2,
        "row": X * grid[1][0] + grid[1][1],
        "both": X * grid[1][0],
        "changed": X * (0.1 if n > 1 else 2.5),
        "of numbers": 0.2 * 3.0,
        "power": 4,
    }


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_elements_of_lists_at_a_staged_index_are_numbers(mode) -> None:
    for n in (1, 2):
        if mode == "eager":
            with st.eager():
                found = tables(X, np.ones(2, np.float32), 1, n)
        else:
            found = tables(X, np.ones(2, np.float32), 1, n)
        for name, want in expected(n).items():
            np.testing.assert_allclose(np.asarray(found[name]), want, rtol=1e-15, err_msg=name)
        assert np.asarray(found["beside f32"]).dtype == np.float32
        assert isinstance(found["of numbers"], float) and isinstance(found["power"], int)


def test_an_index_out_of_range_stops_with_the_line() -> None:
    @st.function
    def pick(k):
        return [0.1, 0.2][k]

    with pytest.raises(IndexError, match="index 2 is out of range for an axis of 2 elements"):
        pick(2)
    assert pick(-1) == 0.2


def test_the_gradient_goes_by_staged_numbers_of_a_list() -> None:
    @st.function
    def slope(a, k):
        return st.grad(lambda a: [a * 2.0, a * a, 1.0][k] * 3.0)(a)

    assert slope(5.0, 1) == 30.0
    assert slope(5.0, 0) == 6.0
    assert slope(5.0, 2) == 0.0


def test_a_list_of_arrays_is_refused_with_a_way_out() -> None:
    @st.function
    def pick(x, k):
        return [x, x + 1.0][k]

    with pytest.raises(st.StagedValueError) as caught:
        pick(X, 1)
    assert "st.asarray(items)[i]" in str(caught.value)


# ---- an index that is known while staging, and guarded ------------------------------------------------


@st.function
def guarded(x, n, runs):
    i, seen, last = 2, 0.0, -1.0
    if i < n and x[i] > 0:
        seen = x[i]
    either = n <= i or x[i] > 0
    chosen = x[i] if i < n else 7.0
    for _ in st.range(runs):
        last = x[5]
    written = x * 1.0
    if n > 2:
        written[2] = 9.0
    count = 0
    while i < n and count < 3:
        count += 1
        seen += x[2]
    return seen, either, chosen, last, written


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_an_access_that_a_condition_guards_is_checked_when_it_is_reached(mode) -> None:
    def run(*arguments):
        if mode == "compiled":
            return guarded(*arguments)
        with st.eager():
            return guarded(*arguments)

    seen, either, chosen, last, written = run(X, 2, 0)
    assert (float(seen), bool(either), float(chosen), float(last)) == (0.0, True, 7.0, -1.0)
    np.testing.assert_array_equal(written, X)
    with pytest.raises(IndexError, match="index 5 is out of range for an axis of 2 elements") as caught:
        run(X, 2, 1)
    assert "last = x[5]" in str(caught.value)
    with pytest.raises(IndexError, match="index 2 is out of range for an axis of 2 elements"):
        run(X, 3, 0)


def test_an_access_that_runs_in_any_case_is_refused_while_staging() -> None:
    @st.function
    def plain(x, n):
        if n > 0:
            x = x + 1.0
        return x[2]

    with pytest.raises(IndexError, match=r"index 2 is out of range for axis 0 of \(2,\)"):
        plain.stage(X, 1)


def test_an_element_of_an_empty_array_stops_only_where_it_is_reached() -> None:
    @st.function
    def first(x, n, i):
        y = 0.0
        if n > 0:
            y = x[0]
        if n > 1:
            y = x[i]
            x[i] = 1.0
        return y, x

    assert first(np.ones(0), 0, 0)[0] == 0.0
    for n in (1, 2):
        with pytest.raises(IndexError, match="index 0 is out of range for an axis of 0 elements"):
            first(np.ones(0), n, 0)


def test_a_textbook_heapsort_of_any_length() -> None:
    @st.function
    def heapsort(x):
        n = x.shape[0]
        for start in st.range(n // 2 - 1, -1, -1):
            x = sift(x, start, n)
        for end in st.range(n - 1, 0, -1):
            x[0], x[end] = x[end], x[0]
            x = sift(x, 0, end)
        return x

    def sift(x, root, end):
        while 2 * root + 1 < end:
            child = 2 * root + 1
            if child + 1 < end and x[child] < x[child + 1]:
                child = child + 1
            if x[root] >= x[child]:
                break
            x[root], x[child] = x[child], x[root]
            root = child
        return x

    for n in (1, 2, 3, 8):
        x = np.random.default_rng(n).standard_normal(n)
        np.testing.assert_array_equal(heapsort(x), np.sort(x))
