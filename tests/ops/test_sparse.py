"""Sparse matrices: products are the dense matrix's, with derivatives by elements and operands; the rest is refused."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals, refuses

RNG = np.random.default_rng(4)
DENSE = np.where(RNG.random((5, 7)) < 0.35, RNG.standard_normal((5, 7)), 0.0)
DENSE[2] = 0.0  # a row without elements
A = st.sparse.csr_matrix(DENSE)
X, M, Y = RNG.standard_normal(7), RNG.standard_normal((7, 3)), RNG.standard_normal((5, 2))


def products(a, x, m, y):
    return [a @ x, a @ m, a.T @ y, a.T @ y[:, 0], a.todense(), a.T.T @ x]


EXPECTED = [DENSE @ X, DENSE @ M, DENSE.T @ Y, DENSE.T @ Y[:, 0], DENSE, DENSE @ X]


def test_products_are_those_of_the_dense_matrix():
    with st.eager():
        compare_trees(products(A, X, M, Y), EXPECTED, rtol=1e-13, atol=1e-14)
    compare_trees(st.function(products)(A, X, M, Y), EXPECTED, rtol=1e-13, atol=1e-14)
    captured = st.function(lambda x: (A @ x, A.shape, A.nnz))(X)
    compare_trees(captured, (EXPECTED[0], (5, 7), int(np.count_nonzero(DENSE))), rtol=1e-13)


def on_a_device(a, x, m, y):
    with st.with_backend(st.GPU, a, x, m, y):
        return products(a, x, m, y)


def test_a_device_gives_the_same(emulated_device):
    compare_trees(st.function(on_a_device)(A, X, M, Y), EXPECTED, rtol=1e-13, atol=1e-14)


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch):
    opencl_device.require()
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    compare_trees(st.function(on_a_device)(A, X, M, Y), EXPECTED, rtol=1e-13, atol=1e-14)


def test_derivatives_by_elements_and_operands():
    def f(data, x, m, y):
        return products(A.with_data(data), x, m, y)[:4]

    st.check_grads(st.function(f), (np.asarray(A.data), X, M, Y), rtol=1e-6)
    d_data = st.function(lambda data: st.grad(lambda d: st.sum((A.with_data(d) @ X) ** 2))(data))(np.asarray(A.data))
    rows, columns = np.nonzero(DENSE)
    np.testing.assert_allclose(d_data, (2 * (DENSE @ X)[:, None] * X)[rows, columns], rtol=1e-12)


def test_mapped_over_the_dense_operand():
    found = st.function(lambda m: (st.vmap(lambda x: A @ x)(m.T), st.vmap(lambda y: A.T @ y, in_axes=1)(Y)))(M)
    compare_trees(found, ((DENSE @ M).T, (DENSE.T @ Y).T), rtol=1e-13)


def test_parts_in_any_order_that_add_up():
    data, indices, indptr = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 1], np.int32), np.array([0, 3, 3, 4])

    @st.function
    def f(data, indices, indptr):
        a = st.sparse.csr_matrix((data, indices, indptr), (3, 3))
        return a.todense(), a @ np.array([1.0, 10.0, 100.0])

    compare_trees(f(data, indices, indptr), (np.array([[2.0, 0, 4], [0, 0, 0], [0, 4, 0]]), np.array([402.0, 0.0, 40.0])))
    scipy_sparse = pytest.importorskip("scipy.sparse", reason="needs SciPy")
    theirs = scipy_sparse.csr_matrix((data, indices, indptr), shape=(3, 3))
    for given in (theirs, theirs.tocoo(), scipy_sparse.csr_array(theirs)):
        made = st.sparse.csr_matrix(given)
        np.testing.assert_array_equal(made @ X[:3], theirs @ X[:3])


def test_scipys_words():
    def words(a, x, y):
        return a.toarray(), a.dot(x), a.transpose().dot(y), a.T.toarray(), a.transpose().transpose().dot(x)

    expected = (DENSE, DENSE @ X, DENSE.T @ Y, DENSE.T, DENSE @ X)
    with st.eager():
        compare_trees(words(A, X, Y), expected, rtol=1e-13, atol=1e-14)
    compare_trees(st.function(words)(A, X, Y), expected, rtol=1e-13, atol=1e-14)


def test_elements_at_places_in_any_order():
    rows, columns = np.array([3, 0, 3, 1, 0]), np.array([2, 1, 2, 0, 0])
    data = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    expected = np.zeros((5, 3))
    np.add.at(expected, (rows, columns), data)

    def made(data, rows, columns):
        return st.sparse.csr_matrix((data, (rows, columns)), (5, 3)).todense()

    with st.eager():
        compare_trees(made(data, rows, columns), expected)
    compare_trees(st.function(made)(data, rows, columns), expected)
    with pytest.raises(ValueError, match="rows are 0 to 4"):
        st.function(made)(data, rows + 2, columns)
    with pytest.raises(st.ShapeError, match="a row and a column for each element"):
        made(data, rows[1:], columns)
    with pytest.raises(st.ArgumentError, match="`shape` is"):
        st.sparse.csr_matrix((data, (rows, columns)))


def test_conjugate_gradients_with_a_sparse_matrix():
    """Poisson's equation on 64 places, as a user would solve it."""
    n = 64
    matrix = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    a = st.sparse.csr_matrix(matrix)

    @st.function
    def solve(a, b):
        x = st.zeros_like(b)
        r = b - a @ x
        p, rs = r, st.sum(r * r)
        for _ in st.range(64):
            q = a @ p
            step = rs / st.maximum(st.sum(p * q), 1e-300)
            x = x + step * p
            r = r - step * q
            new = st.sum(r * r)
            p = r + new / st.maximum(rs, 1e-300) * p
            rs = new
        return x

    b = RNG.standard_normal(n)
    np.testing.assert_allclose(solve(a, b), np.linalg.solve(matrix, b), rtol=1e-8)


STOPPED = {
    "columns": (np.array([0, 3]), np.array([0, 1, 2]), "columns are 0 to 2"),
    "negative": (np.array([0, -1]), np.array([0, 1, 2]), "columns are 0 to 2"),
    "order": (np.array([0, 1]), np.array([0, 3, 2]), "row ends do not decrease"),
    "end": (np.array([0, 1]), np.array([0, 1, 1]), "rows begin at 0 and end at 2"),
    "begin": (np.array([0, 1]), np.array([1, 1, 2]), "rows begin at 0 and end at 2"),
}


@pytest.mark.parametrize("name", STOPPED)
def test_places_that_do_not_fit_stop_with_the_line(name):
    indices, indptr, words = STOPPED[name]

    def make(indices, indptr):
        return st.sparse.csr_matrix((np.ones(2), indices, indptr), (2, 3)) @ np.ones(3)

    for run in (make, st.function(make)):
        with refuses(st.ProgramError, words) as stopped:
            run(indices, indptr)
        assert "test_sparse.py" in str(stopped.value)


REFUSED = {
    "sum": (lambda: A + A, st.UnsupportedError, "no `\\+`"),
    "scaled": (lambda: 2.0 * A, st.UnsupportedError, "no `\\*`"),
    "array": (lambda: X * A, st.UnsupportedError, "no `\\*`"),
    "element": (lambda: A[0, 1], st.UnsupportedError, "by index"),
    "from_the_left": (lambda: np.ones(5) @ A, st.UnsupportedError, "A.T @ x.T"),
    "two": (lambda: A @ A.T, st.UnsupportedError, "two sparse"),
    "batch": (lambda: A @ np.ones((2, 7, 3)), st.ShapeError, "of 7 rows"),
    "rows": (lambda: A.T @ X, st.ShapeError, "of 5 rows"),
    "shape": (lambda: st.sparse.csr_matrix((X, X, X)), st.ArgumentError, "`shape` is"),
    "elements": (lambda: A.with_data(X[:2]), st.ShapeError, "elements, got"),
    "ends": (lambda: st.sparse.csr_matrix((np.ones(1), [0], [0, 1]), (2, 2)), st.ShapeError, "3 row ends"),
    "vector": (lambda: st.sparse.csr_matrix(X), st.ShapeError, "or a matrix"),
    "program": (lambda: st.function(lambda x: st.sparse.csr_matrix(x) @ X)(DENSE), st.UnsupportedError, "not known"),
}

test_refused_with_words = refusals(REFUSED)
