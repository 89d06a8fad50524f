"""`st.optimize.minimize` on functions with known minima, beside SciPy's conventions, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.optimize import OptimizeResult, minimize
from tests.errors.said import refusals

METHODS = ("L-BFGS", "Newton-CG")


def rosenbrock(x):
    return st.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11.0) ** 2 + (x[0] + x[1] ** 2 - 7.0) ** 2


def beale(x):
    a, b = x[0], x[1]
    return (1.5 - a + a * b) ** 2 + (2.25 - a + a * b**2) ** 2 + (2.625 - a + a * b**3) ** 2


def with_branches(x):
    total = 0.0
    for k in st.range(x.shape[0]):
        if x[k] > 1.0:
            total += (x[k] - 1.0) ** 2
        else:
            total += 3.0 * (x[k] - 1.0) ** 2
    return total


PROBLEMS = {
    "rosenbrock": (rosenbrock, np.full(10, -1.2), np.ones(10)),
    "himmelblau": (himmelblau, np.array([5.0, 5.0]), np.array([3.0, 2.0])),
    "beale": (beale, np.array([1.0, 1.0]), np.array([3.0, 0.5])),
    "branches": (with_branches, np.array([-2.0, 0.5, 4.0]), np.ones(3)),
    "one number": (lambda x: st.cosh(x[0] - 2.0), np.array([9.0]), np.array([2.0])),
    "ill-conditioned": (lambda x: st.sum(10.0 ** st.arange(8, dtype=st.f64) * x * x), np.ones(8), np.zeros(8)),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_minima_are_found(problem, method):
    function, start, minimum = PROBLEMS[problem]
    found = minimize(function, start, method=method)
    assert found.success and found.status == 0
    assert found.message == "the gradient is small, or the value does not change any more"
    np.testing.assert_allclose(found.x, minimum, atol=1e-4)
    assert 0 < found.nit <= 200 and found.nfev > found.nit
    value, slope = st.value_and_grad(function)(st.asarray(found.x))
    np.testing.assert_allclose(found.fun, value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.jac, slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_no_more_evaluations_than_scipys(method):
    """SciPy 1.15: L-BFGS-B takes 79 evaluations to 5.6e-10, Newton-CG 72 and 64 Hessians."""
    found = minimize(rosenbrock, np.full(10, -1.2), method=method)
    assert found.fun < 1e-12 and found.nfev <= 100


def test_trees_arguments_and_f32():
    def squares(model, x, y):
        return st.mean((x @ model["w"] + model["b"] - y) ** 2)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    w = np.float32([1.0, -2.0, 0.5])
    start = {"w": np.zeros(3, np.float32), "b": np.zeros((), np.float32)}
    found = minimize(squares, start, args=(x, x @ w + np.float32(0.25)))
    assert isinstance(found, OptimizeResult) and found.x["w"].dtype == np.float32
    np.testing.assert_allclose(found.x["w"], w, atol=1e-3)
    np.testing.assert_allclose(found.x["b"], 0.25, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_ends(method):
    few = minimize(rosenbrock, np.full(10, -1.2), method=method, options={"maxiter": 3})
    assert (few.nit, few.status, bool(few.success)) == (3, 1, False) and "maxiter" in few.message
    there = minimize(rosenbrock, np.ones(4), method=method)
    assert (there.nit, there.nfev, there.status) == (0, 1, 0)
    nan = minimize(lambda x: st.sqrt(x[0]), np.array([-1.0]), method=method)
    assert nan.status == 2 and not nan.success and "NaN" in nan.message
    loose = minimize(rosenbrock, np.full(10, -1.2), method=method, tol=10.0)
    assert loose.success and np.abs(loose.jac).max() <= 10.0


@pytest.mark.parametrize("method", METHODS)
def test_it_is_part_of_a_program_with_a_derivative(method):
    """The minimum of (x - a)^2 + x^4 moves with a: dx/da = 1 / (1 + 6 x^2)."""

    def at(a):
        return minimize(lambda x: st.sum((x - a) ** 2 + x**4), st.zeros(1, dtype=st.f64), method=method, tol=1e-12).x[0]

    x, slope = st.function(lambda a: st.value_and_grad(at)(a))(np.float64(1.0))
    assert abs(2.0 * (x - 1.0) + 4.0 * x**3) < 1e-8
    assert abs(slope - 1.0 / (1.0 + 6.0 * x**2)) < 1e-5


def test_batches_by_vmap():
    rows = np.array([[5.0, 5.0], [-4.0, 4.0]])
    found = st.function(lambda rows: st.vmap(lambda x: minimize(himmelblau, x).x)(rows))(rows)
    np.testing.assert_allclose(found, [[3.0, 2.0], [-2.805118, 3.131312]], atol=1e-5)


test_refusals = refusals(
    (lambda: minimize(rosenbrock, np.ones(2), method="simplex"), st.ArgumentError, "method is one of"),
    (lambda: minimize(rosenbrock, np.ones(2), options={"disp": True}), st.ArgumentError, "has the options"),
    (lambda: minimize(rosenbrock, np.ones(2), method="Newton-CG", options={"maxcor": 3}), st.ArgumentError, "maxcor"),
    (lambda: minimize(rosenbrock, np.array([1, 2])), st.DTypeError, "floats of one dtype"),
    (lambda: minimize(rosenbrock, {"a": np.ones(2), "b": np.float32([1.0])}), st.DTypeError, "f32, f64"),
    (lambda: minimize(lambda x: x, np.ones(2)), st.ShapeError, r"returns one number, got \(2,\)"),
    (lambda: minimize(lambda x: st.astype(x[0], st.f32), np.ones(2)), st.DTypeError, "the value f32"),
    (lambda: minimize(rosenbrock, np.ones(0)), st.ShapeError, "x0 has no elements"),
    (lambda: minimize(rosenbrock, np.ones(2), options={"maxcor": 0}), st.ArgumentError, "maxcor is at least 1"),
    (lambda: minimize(rosenbrock, np.ones(2), options={"maxiter": -3}), st.ArgumentError, "maxiter is at least 0"),
)  # fmt: skip


FALLING = {
    "a plane": (lambda x: -st.sum(x), 3, "falls without end"),
    "a hill": (lambda x: -st.sum(x * x), 3, "falls without end"),
    "a steep hill": (lambda x: -st.sum(st.exp(x)), 3, "falls without end"),
    "a pole": (lambda x: st.sum(st.log(x)), 2, "no step leads down"),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FALLING)
def test_a_function_without_a_minimum_is_no_success(name, method, dtype):
    function, status, message = FALLING[name]
    found = minimize(function, np.array([1.5, 0.7], dtype), method=method)
    assert not found.success and found.status == status
    assert message in found.message


@pytest.mark.parametrize("method", METHODS)
def test_a_value_without_bound_ends_the_search(method):
    found = minimize(lambda x: -st.exp(x[0]) * 1e300, np.array([5.0]), method=method)
    assert found.fun == -np.inf and found.status == 3 and not found.success
    assert found.nit < 5
