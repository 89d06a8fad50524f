"""The Gaussian process of the examples: density and derivatives against PyTorch's, predictions against NumPy's."""

from __future__ import annotations

import numpy as np

import staged as st
from examples.gaussian_process import regress
from tests.torch_reference import reference

X, Y = regress.measurements()


def by_torch(torch, x, y, start):
    scales = torch.tensor(start, requires_grad=True)
    x, y = torch.tensor(x), torch.tensor(y)
    width, height, noise = torch.exp(scales)
    covariance = height**2 * torch.exp(-0.5 * ((x[:, None] - x[None, :]) / width) ** 2) + noise**2 * torch.eye(len(x), dtype=x.dtype)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance)
    surprise = -normal.log_prob(y)
    surprise.backward()
    return surprise.detach(), scales.grad


def test_the_density_and_its_derivatives_are_torchs():
    start = np.array([0.3, -0.2, -1.5])
    surprise, slopes = reference(by_torch, X, Y, start)
    scales = regress.Scales(*map(np.array, start))
    found, own = st.function(lambda s: st.value_and_grad(lambda s: regress.surprise(s, X, Y))(s))(scales)
    np.testing.assert_allclose(found, surprise, rtol=1e-10)
    np.testing.assert_allclose(own, slopes, rtol=1e-8)


def test_what_is_found_is_a_minimum_and_predicts_as_numpy_does(capfd):
    scales, surprise, iterations = regress.fit(X, Y, regress.START)
    assert "iterations" in capfd.readouterr().out and 0 < iterations < 50
    for index in range(3):
        for step in (-0.05, 0.05):
            moved = [np.array(each + step * (index == place)) for place, each in enumerate(scales)]
            assert regress.surprise(regress.Scales(*moved), X, Y) > surprise
    width, height, noise = np.exp(np.array(scales))
    at = np.linspace(0.0, 6.0, 9)
    covariance = lambda a, b: height**2 * np.exp(-0.5 * ((a[:, None] - b[None, :]) / width) ** 2)  # noqa: E731
    inverse = np.linalg.inv(covariance(X, X) + noise**2 * np.eye(len(X)))
    mean = covariance(at, X) @ inverse @ Y
    variance = height**2 - np.sum(covariance(at, X) @ inverse * covariance(at, X), 1)
    found, spread = regress.predict(X, Y, at, scales)
    np.testing.assert_allclose(found, mean, atol=1e-8)
    np.testing.assert_allclose(spread, np.sqrt(variance), atol=1e-8)
