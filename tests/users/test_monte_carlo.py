"""Options by simulation: prices, delta and vega by derivatives of the simulation, and the moments of the draws."""

import numpy as np
from scipy.stats import norm

import staged as st

SPOT, STRIKE, RATE, SIGMA, YEARS = 100.0, 105.0, 0.03, 0.2, 1.0


@st.function(seed=7)
def european(spot, sigma, blocks, block=50_000):
    """Price, its standard error, delta and vega, over blocks of antithetic pairs."""

    def price(spot, sigma, z):
        ends = lambda z: spot * st.exp((RATE - 0.5 * sigma**2) * YEARS + sigma * st.sqrt(YEARS) * z)
        pay = lambda z: st.maximum(ends(z) - STRIKE, 0.0)
        each = np.exp(-RATE * YEARS) * 0.5 * (pay(z) + pay(-z))
        return each.mean(), (each**2).mean()

    total, squares, delta, vega = 0.0, 0.0, 0.0, 0.0
    for _ in st.range(blocks):
        z = st.random.normal((block,), dtype=st.f64)
        (mean, square), (d, v) = st.value_and_grad(price, argnums=(0, 1), has_aux=True)(spot, sigma, z)
        total += mean
        squares += square
        delta += d
        vega += v
    mean = total / blocks
    return mean, st.sqrt((squares / blocks - mean**2) / (blocks * block)), delta / blocks, vega / blocks


def test_price_and_slopes_are_those_of_black_and_scholes():
    price, error, delta, vega = european(np.float64(SPOT), np.float64(SIGMA), 8)
    d1 = (np.log(SPOT / STRIKE) + (RATE + SIGMA**2 / 2) * YEARS) / (SIGMA * np.sqrt(YEARS))
    d2 = d1 - SIGMA * np.sqrt(YEARS)
    closed = SPOT * norm.cdf(d1) - STRIKE * np.exp(-RATE * YEARS) * norm.cdf(d2)
    assert abs(price - closed) < 4 * error < 0.1
    np.testing.assert_allclose(delta, norm.cdf(d1), rtol=5e-3)
    np.testing.assert_allclose(vega, SPOT * norm.pdf(d1) * np.sqrt(YEARS), rtol=1e-2)


@st.function(seed=1)
def geometric_asian(paths, days=12):
    z = st.random.normal((paths, days), dtype=st.f64)
    dt = YEARS / days
    logs = np.log(SPOT) + st.cumsum((RATE - 0.5 * SIGMA**2) * dt + SIGMA * np.sqrt(dt) * z, axis=1)
    pay = np.exp(-RATE * YEARS) * st.maximum(st.exp(logs.mean(axis=1)) - STRIKE, 0.0)
    return pay.mean(), pay.std() / st.sqrt(paths)


def test_an_asian_option_of_the_geometric_mean():
    price, error = st.function(lambda: geometric_asian(100_000))()
    days, dt = 12, YEARS / 12
    mean = np.log(SPOT) + (RATE - 0.5 * SIGMA**2) * dt * (days + 1) / 2
    var = SIGMA**2 * dt * (days + 1) * (2 * days + 1) / (6 * days)
    d = (mean - np.log(STRIKE) + var) / np.sqrt(var)
    closed = np.exp(-RATE * YEARS) * (np.exp(mean + var / 2) * norm.cdf(d) - STRIKE * norm.cdf(d - np.sqrt(var)))
    assert abs(price - closed) < 4 * error < 0.2


def test_moments_of_the_draws():
    @st.function(seed=5)
    def moments(n=400_000):
        z = st.random.normal((n,), dtype=st.f64)
        return [st.mean(z**k) for k in range(1, 5)], st.quantile(z, np.array([0.05, 0.5, 0.95]))

    powers, quantiles = moments()
    n = 400_000
    for power, exact, variance in zip(powers, (0, 1, 0, 3), (1, 2, 15, 96), strict=True):
        assert abs(power - exact) < 4 * np.sqrt(variance / n)
    np.testing.assert_allclose(quantiles, norm.ppf([0.05, 0.5, 0.95]), atol=0.015)
