"""Draws by rejection: against SciPy's distributions, derivatives of quantiles, equal draws everywhere, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.library.draws.rejection import _gamma_slope
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals, refuses

stats = pytest.importorskip("scipy.stats", reason="needs SciPy")

N = 20000
ALPHAS = (0.05, 0.7, 1.0, 3.5, 40.0, 2e5)
RATES = (0.2, 4.0, 9.99, 10.0, 33.3, 5000.0, 1e8)
TRIALS = ((20, 0.3), (15, 0.9), (40, 0.25), (100, 0.5), (1000, 0.98), (10**7, 0.31), (10**9, 2e-9))


def all_draws(seed, dtype=st.f64):
    st.seed(seed)
    return {
        "gamma": [st.random.gamma(a, (N,), scale=2.0, dtype=dtype) for a in ALPHAS],
        "beta": [st.random.beta(a, b, (N,), dtype=dtype) for a, b in ((0.3, 0.8), (2.0, 5.0), (90.0, 30.0))],
        "dirichlet": st.random.dirichlet(np.array([0.2, 1.0, 4.0]), (N,), dtype=dtype),
        "poisson": [st.random.poisson(rate, (N,)) for rate in RATES],
        "binomial": [st.random.binomial(n, p, (N,)) for n, p in TRIALS],
        "normal": st.random.multivariate_normal(np.array([1.0, -2.0]), COV, (N,), dtype=dtype),
    }


COV = np.array([[2.0, -0.6], [-0.6, 0.5]])


def distance(x, below):
    """Kolmogorov's and Smirnov's: beyond 1.95 / sqrt(n) in one of a thousand."""
    x = np.sort(np.asarray(x, np.float64))
    steps = np.arange(N + 1) / N
    return max(np.abs(below(x) - steps[1:]).max(), np.abs(below(x) - steps[:-1]).max())


def assert_numbers(x, law):
    """Whole numbers: the shares of the numbers up to each agree as closely as draws do; so do the moments."""
    values, counts = np.unique(x, return_counts=True)
    assert np.abs(np.cumsum(counts) / N - law.cdf(values)).max() < 1.95 / math.sqrt(N)
    assert abs(x.mean() - law.mean()) < 4 * law.std() / math.sqrt(N)
    assert abs(x.std() / law.std() - 1) < 0.04


@pytest.mark.parametrize("dtype", [st.f32, st.f64])
def test_draws_are_distributed_as_they_should_be(dtype):
    found = st.function(lambda seed: all_draws(seed, dtype))(7)
    for a, x in zip(ALPHAS, found["gamma"], strict=True):
        if dtype is st.f64 or a > 0.1:  # the draws of 0.05 are below the smallest f32
            assert distance(x, stats.gamma(a, scale=2.0).cdf) < 1.95 / math.sqrt(N), a
    for (a, b), x in zip(((0.3, 0.8), (2.0, 5.0), (90.0, 30.0)), found["beta"], strict=True):
        assert distance(x, stats.beta(a, b).cdf) < 1.95 / math.sqrt(N), (a, b)
    shares = found["dirichlet"]
    np.testing.assert_allclose(shares.sum(-1), 1.0, rtol=1e-6)
    for n, a in enumerate((0.2, 1.0, 4.0)):
        assert distance(shares[:, n], stats.beta(a, 5.2 - a).cdf) < 1.95 / math.sqrt(N), a
    for rate, x in zip(RATES, found["poisson"], strict=True):
        assert_numbers(x, stats.poisson(rate))
    for (n, p), x in zip(TRIALS, found["binomial"], strict=True):
        assert_numbers(x, stats.binom(n, p))
    normal = found["normal"]
    np.testing.assert_allclose(normal.mean(0), [1.0, -2.0], atol=0.05)
    np.testing.assert_allclose(np.cov(normal.T), COV, atol=0.06)


def few(a, rate, p):
    st.seed(3)
    return {
        "gamma": st.random.gamma(a, dtype=st.f64),
        "narrow": st.random.gamma(a, (50, 7)),
        "beta": st.random.beta(a, 2.0, dtype=st.f64),
        "dirichlet": st.random.dirichlet(a, (2,), dtype=st.f64),
        "poisson": st.random.poisson(rate, (50, 7)),
        "binomial": st.random.binomial(30 * rate, p),
        "normal": st.random.multivariate_normal(a, np.eye(7), dtype=st.f64),
        "one": st.random.poisson(40.0),
        "next": st.random.uniform((3,), dtype=st.f64),
    }


GIVEN = np.geomspace(0.01, 900.0, 7), np.linspace(0.0, 60.0, 7).round(), np.linspace(0.0, 1.0, 7)


def test_eager_mode_programs_and_generators_draw_the_same():
    program = st.function(few)(*GIVEN)
    with st.eager():
        compare_trees(few(*GIVEN), program, rtol=1e-6)
    noise = st.random.Generator(3)
    st.seed(3)
    for name, given in {
        "gamma": (GIVEN[0],), "beta": (GIVEN[0], 1.0), "dirichlet": (GIVEN[0],), "poisson": (GIVEN[1],),
        "binomial": (9, GIVEN[2]), "multivariate_normal": (np.zeros(2), COV),
    }.items():  # fmt: skip
        np.testing.assert_array_equal(getattr(noise, name)(*given), getattr(st.random, name)(*given))


def on_a_device(a, rate, p):
    with st.with_backend(st.GPU, a, rate, p):
        return few(a, rate, p)


def test_a_device_draws_the_same(emulated_device):
    compare_trees(st.function(on_a_device)(*GIVEN), st.function(few)(*GIVEN), rtol=1e-6)


@pytest.mark.slow
def test_an_opencl_device_draws_the_same(monkeypatch):
    opencl_device.require()
    expected = st.function(few)(*GIVEN)
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    compare_trees(st.function(on_a_device)(*GIVEN), expected, rtol=1e-6)


# ---- derivatives ----------------------------------------------------------------------------------


def test_the_slope_of_a_gamma_draw_is_that_of_its_quantile():
    """Against differences of SciPy's inverse function, where it is accurate, and against torch's `_standard_gamma_grad`."""
    alpha, u = np.meshgrid([0.3, 0.9, 1.7, 5.0, 30.0, 400.0], [0.01, 0.2, 0.5, 0.8, 0.99], indexing="ij")
    x = stats.gamma.ppf(u, alpha)
    step = 1e-5 * alpha
    differences = (stats.gamma.ppf(u, alpha + step) - stats.gamma.ppf(u, alpha - step)) / (2 * step)
    found = np.asarray(_gamma_slope(wrap(alpha), wrap(np.log(x)))) * x
    np.testing.assert_allclose(found, differences, rtol=1e-6)
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    theirs = torch._standard_gamma_grad(torch.tensor(alpha), torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, theirs, rtol=2e-3)  # an approximation in torch


def test_the_slope_is_a_number_where_the_draw_is_not():
    """x is below the smallest f64: log x = (log u + lgamma(alpha + 1)) / alpha there, u its quantile."""
    alpha, log_x = np.array([1e-4, 1e-3]), np.array([-9000.0, -800.0])
    stretched = [float(st.lgamma(a + 1)) for a in alpha]
    quantile = alpha * log_x - stretched  # log u
    slope = (np.asarray(st.digamma(alpha + 1)) * alpha - (quantile + stretched)) / alpha**2
    np.testing.assert_allclose(_gamma_slope(wrap(alpha), wrap(log_x)), slope, rtol=1e-9)


def test_gradients_of_draws_keep_their_quantiles():
    def draws(a, scale):
        st.seed(5)
        return st.random.gamma(a, (4, 3), scale=scale, dtype=st.f64)

    a, scale, step = np.array([0.6, 2.0, 11.0]), 1.5, 1e-6
    x = st.function(draws)(a, scale)
    u = stats.gamma.cdf(x, a, scale=scale)
    differences = (stats.gamma.ppf(u, a + step, scale=scale) - stats.gamma.ppf(u, a - step, scale=scale)) / (2 * step)
    w = np.arange(12.0).reshape(4, 3)
    d_a, d_scale = st.function(
        lambda a, scale: st.grad(lambda a, scale: st.sum(draws(a, scale) * w), argnums=(0, 1))(a, scale)
    )(a, scale)
    np.testing.assert_allclose(d_a, (differences * w).sum(0), rtol=1e-6)
    np.testing.assert_allclose(d_scale, (x * w).sum() / scale, rtol=1e-12)
    tangent = st.function(lambda a, t: st.jvp(lambda a: draws(a, scale), (a,), (t,))[1])(a, np.ones(3))
    np.testing.assert_allclose(tangent, differences, rtol=1e-6)


def test_means_of_gradients_are_gradients_of_means():
    """d E[x] / d a of beta draws is b / (a + b)^2, of a dirichlet's first share (A - a) / A^2, by 40,000 draws."""

    def means(a, b, alpha):
        st.seed(8)
        return st.mean(st.random.beta(a, b, (2 * N,), dtype=st.f64)), st.mean(
            st.random.dirichlet(alpha, (2 * N,), dtype=st.f64)[:, 0]
        )

    @st.function
    def slopes(a, b, alpha):
        first = st.grad(lambda a, b: means(a, b, alpha)[0], argnums=(0, 1))(a, b)
        return first, st.grad(lambda alpha: means(a, b, alpha)[1])(alpha)

    (d_a, d_b), d_alpha = slopes(2.0, 3.0, np.array([0.5, 1.0, 2.5]))
    np.testing.assert_allclose([d_a, d_b], [3 / 25, -2 / 25], rtol=0.05)
    np.testing.assert_allclose(d_alpha, [3.5 / 16, -0.5 / 16, -0.5 / 16], rtol=0.1)


def test_gradients_of_a_multivariate_normal_pass_through_its_factor():
    def draws(mean, factor):
        st.seed(2)
        return st.random.multivariate_normal(mean, factor @ factor.T, (3,), dtype=st.f64)

    mean, factor = np.array([0.5, 1.0]), np.array([[1.0, 0.0], [0.4, 0.7]])
    st.check_grads(st.function(draws), (mean, factor), rtol=1e-6)


@pytest.mark.parametrize("name", ["poisson", "binomial"])
def test_draws_of_whole_numbers_have_no_derivative(name):
    draw = st.random.poisson if name == "poisson" else lambda x: st.random.binomial(9, x)
    x = np.array([0.5, 0.2])

    @st.function
    def refused(x):
        return st.grad(lambda x: st.sum(draw(x)))(x)

    with pytest.raises(st.GradientError, match="i64"):
        refused(x)

    @st.function
    def as_constants(x):
        st.seed(1)
        found = st.grad(lambda x: st.sum(draw(x) * x))(x)
        st.seed(1)
        return found, draw(x)

    found, drawn = as_constants(x)
    np.testing.assert_array_equal(found, drawn)


# ---- what is refused ------------------------------------------------------------------------------

STOPPED = {
    "gamma": (lambda x: st.random.gamma(x), [1.0, 0.0], "`a` is above 0"),
    "gamma_nan": (lambda x: st.random.gamma(x), [1.0, math.nan], "`a` is above 0"),
    "gamma_infinite": (lambda x: st.random.gamma(x), [math.inf], "`a` is above 0"),
    "beta": (lambda x: st.random.beta(1.0, x), [-1.0], "`b` is above 0"),
    "dirichlet": (lambda x: st.random.dirichlet(x), [1.0, -1.0], "`alpha` is above 0"),
    "poisson": (lambda x: st.random.poisson(x), [1.0, -1e-9], "`rate` is at least 0"),
    "poisson_nan": (lambda x: st.random.poisson(x), [math.nan], "`rate` is at least 0"),
    "binomial": (lambda x: st.random.binomial(3, x), [1.0, 1.01], "`p` is between 0 and 1"),
    "binomial_n": (lambda x: st.random.binomial(x, 0.5), [-1.0], "`n` is at least 0"),
    "normal": (lambda x: st.random.multivariate_normal(np.zeros(2), st.outer(x, x)), [1.0, -2.0], "positive definite"),
    "choice": (lambda x: st.random.choice(3, p=x), [0.5, -0.1, 0.6], "probabilities are numbers"),
    "choice_nan": (lambda x: st.random.choice(3, p=x), [0.5, math.nan, 0.6], "probabilities are numbers"),
    "choice_infinite": (lambda x: st.random.choice(3, p=x), [0.5, math.inf, 0.6], "probabilities are numbers"),
    "choice_zeros": (lambda x: st.random.choice(3, (2,), p=x), [0.0, 0.0, 0.0], "as many probabilities above 0"),
    "too_few": (lambda x: st.random.choice(3, (2,), replace=False, p=x), [0.0, 1.0, 0.0], "as many probabilities above 0"),
    "categorical": (lambda x: st.random.categorical(x), [0.5, math.nan], "logits are numbers"),
    "categorical_zeros": (lambda x: st.random.categorical(x), [-math.inf, -math.inf], "logits are numbers"),
    "categorical_infinite": (lambda x: st.random.categorical(x), [0.0, math.inf], "logits are numbers"),
}


@pytest.mark.parametrize("name", STOPPED)
def test_parameters_that_are_none_stop_the_program_with_the_line(name, emulated_device):
    draw, given, words = STOPPED[name]

    @st.function
    def program(x):
        return draw(x)

    @st.function
    def on_device(x):
        with st.with_backend(st.GPU, x):
            return draw(x)

    for run in (program, on_device, draw):
        with refuses(st.ProgramError, words) as stopped:
            run(np.array(given))
        assert "test_rejection.py" in str(stopped.value)


REFUSED = {
    "shape": (lambda: st.random.gamma(np.ones(3), (2,)), st.ShapeError, "do not fit draws"),
    "dtype": (lambda: st.random.gamma(1.0, dtype=st.i32), st.DTypeError, "makes floats"),
    "no_shares": (lambda: st.random.dirichlet(1.0), st.ShapeError, "shares in the last axis"),
    "matrix": (lambda: st.random.multivariate_normal(np.zeros(3), COV), st.ShapeError, "a matrix of"),
}

test_refused_with_words = refusals(REFUSED)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: st.random.gamma(np.array([1j])),
        lambda: st.random.gamma(1.0, scale=1j),
        lambda: st.random.dirichlet(np.array([1j, 2.0])),
        lambda: st.random.poisson(1j),
    ],
    ids=["gamma", "scale", "dirichlet", "poisson"],
)
def test_complex_parameters_are_refused(draw):
    with pytest.raises(st.DTypeError, match="not defined for complex numbers"):
        draw()


def test_a_draw_that_is_not_here_has_a_hint():
    with pytest.raises(AttributeError, match="'staged.random' has no attribute 'multinomial': use `st.random.cat"):
        st.random.multinomial  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean `random.uniform`"):
        st.random.unifrom  # noqa: B018
