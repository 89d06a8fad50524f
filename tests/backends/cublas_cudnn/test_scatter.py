"""Scatters of a device, which are gathers by the elements of the result, against NumPy: sizes at which a loop is none."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.backends.cublas_cudnn.harness import on_gpu


def scattered(x, i, u, at):
    put, one = x, x
    put[i] = u
    one[at] = u[0]
    one[at] += 2.0

    def picked(x):
        return st.sum(x[i] * u) + x[at] * 3.0 if x.ndim == 1 else st.sum(x[i] * u) + st.sum(x[at]) * 3.0

    return st.scatter_add(x, i, u), put, one, st.grad(picked)(x)


def unmoved(x, i, u, at):
    return st.scatter_add(x, i, u), x


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("columns", [0, 1, 40])
def test_rows_are_added_and_put(rows, columns, emulated_device):
    """`columns` 0 is an array without a second axis. The program scatters 0, 1 and 35 rows."""
    shape = (rows, columns) if columns else (rows,)
    cases, right = [], []
    for count in (0, 1, 35):
        random = np.random.default_rng(rows + columns)
        x = random.integers(-9, 9, shape).astype(np.float32)
        u = random.integers(-9, 9, (max(count, 1), *shape[1:])).astype(np.float32)
        i = random.integers(-rows, rows, max(count, 1))
        if not count:  # nothing is meant for any row
            u, i = u[:0], i[:0]
        cases.append((x, i, u, rows - 1))
        added, put = x.copy(), x.copy()
        np.add.at(added, i, u)
        put[i] = u
        results = [added, put]
        if count:
            one, gradient = x.copy(), np.zeros_like(x)
            one[rows - 1] = u[0] + 2.0
            np.add.at(gradient, i, u)
            gradient[rows - 1] += 3.0
            results += [one, gradient]
        right.append(results)

    def run(empty, single, many):
        return unmoved(*empty), scattered(*single), scattered(*many)

    for count, found, wanted in zip((0, 1, 35), on_gpu(run)(*cases), right, strict=True):
        for number, (got, result) in enumerate(zip(found, wanted, strict=True)):
            np.testing.assert_array_equal(got, result, err_msg=f"result {number} of {count} rows")


@pytest.mark.parametrize("shape", [(5,), (40, 3), (7, 40)])
def test_what_nothing_is_added_to_keeps_the_sign_of_its_zero(shape, emulated_device):
    x = np.full(shape, -0.0, np.float32)
    u = np.zeros((6, *shape[1:]), np.float32)
    u[[2, 3, 4, 5]] = np.array([-0.0, -0.0, -0.0, -1e-45], np.float32).reshape(4, *(1 for _ in shape[1:]))
    i = np.array([1, 3, 1, 2, 2, 4])  # 0.0 and -0.0, 0.0, -0.0 twice, a number whose reciprocal is as that of -0.0
    added = x.copy()
    np.add.at(added, i, u)
    found = on_gpu(lambda x, i, u: st.scatter_add(x, i, u))(x, i, u)
    np.testing.assert_array_equal(found, added)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(added))


def test_one_index_of_a_later_axis_is_no_loop_over_indices(emulated_device):
    """The loop that is left goes over the result, of which each iteration changes an element of its own."""
    random = np.random.default_rng(5)
    shapes = [(rows, columns) for rows in (0, 1, 2, 33) for columns in (1, 2, 33)]
    arrays = [random.integers(-9, 9, shape).astype(dtype) for shape in shapes for dtype in (np.uint32, np.float32)]
    updates = [random.integers(-9, 9, (len(x), 1)).astype(x.dtype) for x in arrays]
    places = [np.array([x.shape[1] - 1]) for x in arrays]

    def run(arrays, updates, places):
        found = []
        for x, u, i in zip(arrays, updates, places, strict=True):
            put = x
            put[:, i] = u
            found += [st.scatter_add(x, i, u, axis=1), put]
        return found

    found = on_gpu(run)(arrays, updates, places)
    for number, (x, u) in enumerate(zip(arrays, updates, strict=True)):
        added, put = x.copy(), x.copy()
        added[:, -1] += u[:, 0]
        put[:, -1] = u[:, 0]
        np.testing.assert_array_equal(found[2 * number], added)
        np.testing.assert_array_equal(found[2 * number + 1], put)
