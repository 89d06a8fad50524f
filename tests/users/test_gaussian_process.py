"""A Gaussian process: its likelihood, hyperparameters by L-BFGS, predictions with their variance."""

import numpy as np
import scipy.optimize

import staged as st


def kernel(p, a, b):
    return st.exp(p[0]) * st.exp(-0.5 * (a[:, None] - b) ** 2 / st.exp(p[1]))


def negative_log_likelihood(p, x, y):
    factor = st.linalg.cholesky(kernel(p, x, x) + st.exp(p[2]) * st.eye(len(x), dtype=x.dtype))
    z = st.linalg.solve_triangular(factor, y, upper=False)
    return 0.5 * z @ z + st.log(st.diagonal(factor)).sum() + 0.5 * len(x) * np.log(2 * np.pi)


@st.function
def fit(x, y, guess):
    return st.optimize.minimize(negative_log_likelihood, guess, args=(x, y))


@st.function
def predict(p, x, y, places):
    k = kernel(p, x, x) + st.exp(p[2]) * st.eye(len(x), dtype=x.dtype)
    cross = kernel(p, places, x)
    mean = cross @ st.linalg.solve(k, y)
    variance = st.exp(p[0]) - st.einsum("ij,ji->i", cross, st.linalg.solve(k, cross.T))
    return mean, variance


RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 20))
Y = np.sin(X) + 0.1 * RNG.normal(size=20)
GUESS = np.array([0.5, 0.5, -2.0])


def in_numpy(p, x, y):
    k = np.exp(p[0] - 0.5 * (x[:, None] - x) ** 2 / np.exp(p[1])) + np.exp(p[2]) * np.eye(len(x))
    return 0.5 * y @ np.linalg.solve(k, y) + 0.5 * np.linalg.slogdet(k)[1] + 0.5 * len(x) * np.log(2 * np.pi)


def test_the_likelihood_and_its_gradient():
    value, slope = st.function(st.value_and_grad(negative_log_likelihood))(GUESS, X, Y)
    np.testing.assert_allclose(value, in_numpy(GUESS, X, Y), rtol=1e-10)
    np.testing.assert_allclose(slope, scipy.optimize.approx_fprime(GUESS, in_numpy, 1e-7, X, Y), rtol=1e-4)


def test_hyperparameters_are_scipys_and_predictions_numpys():
    found = fit(X, Y, GUESS)
    expected = scipy.optimize.minimize(in_numpy, GUESS, args=(X, Y), tol=1e-9)
    assert found.success
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.fun, expected.fun, rtol=1e-8)
    places = np.linspace(0, 6, 9)
    mean, variance = predict(found.x, X, Y, places)
    p = found.x
    k = np.exp(p[0] - 0.5 * (X[:, None] - X) ** 2 / np.exp(p[1])) + np.exp(p[2]) * np.eye(20)
    cross = np.exp(p[0] - 0.5 * (places[:, None] - X) ** 2 / np.exp(p[1]))
    np.testing.assert_allclose(mean, cross @ np.linalg.inv(k) @ Y, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        variance, np.exp(p[0]) - np.diag(cross @ np.linalg.inv(k) @ cross.T), rtol=1e-6, atol=1e-9
    )
