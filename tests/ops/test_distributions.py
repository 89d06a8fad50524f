"""Distributions: the draws against their functions, derivatives, devices, choices, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st
from staged.testing import compare_trees
from tests.errors.said import refusals

N = 20000
ERF = np.vectorize(math.erf)


def normal_below(x):
    return 0.5 * (1.0 + ERF(x / math.sqrt(2.0)))


def truncated(x, a=-1.0, b=2.5):
    return (normal_below(x) - normal_below(a)) / (normal_below(b) - normal_below(a))


def mills(x):
    """The probability below -x over the density there: a continued fraction."""
    fraction = x
    for k in range(30, 0, -1):
        fraction = x + k / fraction
    return 1.0 / fraction


def far_below(x, high=-40.0):
    return np.exp(-0.5 * (x - high) * (x + high)) * mills(-x) / mills(-high)


# name: (draw, the probability below x)
DISTRIBUTIONS = {
    "exponential": (lambda **how: st.random.exponential((N,), scale=2.0, **how), lambda x: 1 - np.exp(-x / 2)),
    "laplace": (
        lambda **how: st.random.laplace((N,), loc=1.0, scale=0.5, **how),
        lambda x: np.where(x < 1, 0.5 * np.exp(2 * x - 2), 1 - 0.5 * np.exp(2 - 2 * x)),
    ),
    "logistic": (lambda **how: st.random.logistic((N,), loc=-1.0, **how), lambda x: 1 / (1 + np.exp(-x - 1))),
    "gumbel": (lambda **how: st.random.gumbel((N,), scale=3.0, **how), lambda x: np.exp(-np.exp(-x / 3))),
    "cauchy": (lambda **how: st.random.cauchy((N,), loc=2.0, **how), lambda x: np.arctan(x - 2) / math.pi + 0.5),
    "truncated_normal": (
        lambda **how: st.random.truncated_normal((N,), low=-1.0, high=6.0, mean=1.0, std=2.0, **how),
        lambda x: truncated((x - 1) / 2),
    ),
    "truncated_tail": (
        lambda **how: st.random.truncated_normal((N,), low=9.0, high=30.0, **how),
        lambda x: 1 - np.vectorize(math.erfc)(x / math.sqrt(2)) / math.erfc(9 / math.sqrt(2)),
    ),
    "far_below": (lambda **how: st.random.truncated_normal((N,), low=-43.0, high=-40.0, **how), far_below),
    "far_above": (
        lambda **how: st.random.truncated_normal((N,), low=np.float32(41.0), high=43.0, mean=1.0, **how),
        lambda x: 1 - far_below(1 - x),
    ),
}


def all_draws(seed, dtype):
    st.seed(seed)
    return {name: draw(dtype=dtype) for name, (draw, _) in DISTRIBUTIONS.items()}


@pytest.mark.parametrize("dtype", [st.f32, st.f64])
def test_draws_are_distributed_as_they_should_be(dtype) -> None:
    """Kolmogorov's and Smirnov's distance: beyond 1.95 / sqrt(n) in one of a thousand."""
    found = st.function(lambda seed: all_draws(seed, dtype))(7)
    for name, (_, below) in DISTRIBUTIONS.items():
        x = np.sort(np.asarray(found[name], np.float64))
        assert np.isfinite(x).all(), name
        steps = np.arange(N + 1) / N
        distance = max(np.abs(below(x) - steps[1:]).max(), np.abs(below(x) - steps[:-1]).max())
        assert distance < 1.95 / math.sqrt(N), f"{name}: {distance}"


def test_eager_mode_programs_and_generators_draw_the_same() -> None:
    program = st.function(lambda seed: all_draws(seed, st.f64))(5)
    with st.eager():
        compare_trees(all_draws(5, st.f64), program, rtol=1e-11, atol=1e-13)
    st.seed(3)
    noise = st.random.Generator(3)
    for name in ("exponential", "laplace", "logistic", "gumbel", "cauchy", "truncated_normal"):
        np.testing.assert_array_equal(getattr(noise, name)((4,)), getattr(st.random, name)((4,)))
    np.testing.assert_array_equal(noise.categorical(np.zeros(9), (5,)), st.random.categorical(np.zeros(9), (5,)))
    np.testing.assert_array_equal(noise.choice(9, (5,)), st.random.choice(9, (5,)))


def choices(logits, p):
    st.seed(11)
    return {
        "categorical": st.random.categorical(logits, (6000,)),
        "choice": st.random.choice(4, (6000,)),
        "choice_p": st.random.choice(4, (50, 120), p=p),
        "choice_rows": st.random.choice(np.arange(10.0).reshape(5, 2), (3,)),
        "no_replacement": st.random.choice(9, (9,), replace=False),
        "no_replacement_p": st.random.choice(4, (3,), replace=False, p=p),
    }


P = np.array([0.1, 0.5, 0.0, 0.4])
LOGITS = np.log(np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 1e-300]]))


def chi_square(found, shares) -> float:
    counts = np.bincount(np.asarray(found).ravel(), minlength=len(shares))
    expected = np.asarray(shares) * counts.sum()
    there = expected > 1e-9
    assert not counts[~there].any()
    return float(((counts - expected)[there] ** 2 / expected[there]).sum())


def test_choices_have_their_probabilities() -> None:
    found = st.function(choices)(LOGITS, P)
    with st.eager():
        compare_trees(choices(LOGITS, P), found)
    # Beyond 16.3 with three degrees of freedom in one of a thousand.
    assert chi_square(found["categorical"][:, 0], [0.2, 0.3, 0.5]) < 16.3
    assert chi_square(found["categorical"][:, 1], [0.6, 0.4, 0.0]) < 16.3
    assert chi_square(found["choice"], [0.25] * 4) < 16.3
    assert chi_square(found["choice_p"], P) < 16.3 and found["choice_p"].shape == (50, 120)
    assert found["choice_rows"].shape == (3, 2) and set(np.asarray(found["choice_rows"])[:, 0]) <= {0.0, 2.0, 4.0, 6.0, 8.0}
    assert sorted(np.asarray(found["no_replacement"]).tolist()) == list(range(9))
    assert sorted(np.asarray(found["no_replacement_p"]).tolist()) == [0, 1, 3]


def test_the_order_without_replacement_follows_the_weights() -> None:
    """The pair (i, j) comes with probability p[i] p[j] / (1 - p[i])."""

    @st.function
    def pairs(p):
        found = st.zeros((4000, 2), dtype=st.i64)
        for k in st.range(4000):
            found[k] = st.random.choice(3, (2,), replace=False, p=p)
        return found

    p = np.array([0.2, 0.3, 0.5])
    st.seed(2)
    found = np.asarray(pairs(p))
    shares = [p[i] * p[j] / (1 - p[i]) if i != j else 0.0 for i in range(3) for j in range(3)]
    assert chi_square(found[:, 0] * 3 + found[:, 1], shares) < 20.6


def test_each_parameter_has_a_draw_of_its_own() -> None:
    @st.function
    def draws(scale):
        st.seed(8)
        bare = st.random.exponential(scale=scale)
        st.seed(8)
        return {
            "bare": bare,
            "whole": st.random.exponential((4000,), scale=scale),
            "rows": st.random.laplace((2, 4000), loc=scale).shape == (2, 4000),
            "two": st.random.gumbel(loc=st.zeros((3, 1)), scale=st.ones(2)),
            "truncated": st.random.truncated_normal(low=-scale, high=scale),
        }

    found = draws(np.ones(4000, np.float32))
    np.testing.assert_array_equal(found["bare"], found["whole"])
    assert len(np.unique(found["bare"])) > 3900 and len(np.unique(found["truncated"])) > 3900
    assert found["rows"] and len(np.unique(found["two"])) == 6
    for shape in [(3,), (1,)]:
        with pytest.raises(st.ShapeError, match="do not fit draws of shape"):
            st.random.exponential(shape, scale=np.ones(2))


def test_a_number_of_numpy_is_a_number_of_choices() -> None:
    assert set(np.asarray(st.random.choice(np.int64(3), (50,))).tolist()) == {0, 1, 2}


def test_derivatives_by_parameters_are_those_of_the_quantile() -> None:
    def draws(loc, scale, low):
        st.seed(4)
        return [
            st.random.exponential((3,), scale=scale, dtype=st.f64),
            st.random.laplace((3,), loc=loc, scale=scale, dtype=st.f64),
            st.random.gumbel((3,), loc=loc, scale=scale, dtype=st.f64),
            st.random.truncated_normal((3,), low=low, high=3.0, mean=loc, std=scale, dtype=st.f64),
            st.random.truncated_normal((3,), low=low + 5.0, high=9.0, mean=loc, std=scale, dtype=st.f64),
        ]

    st.check_grads(draws, (np.array(0.3), np.array(1.2), np.array(-0.7)), rtol=1e-5, eps=1e-6)


def test_a_device_draws_the_same(emulated_device) -> None:
    def draws(x):
        st.seed(9)
        some = st.random.choice(9, (4,), replace=False, p=np.arange(1.0, 10.0))
        return st.random.gumbel((7,)), st.random.truncated_normal((7,)), st.random.categorical(x, (5,)), some

    @st.function
    def on_device(x):
        with st.with_backend(st.GPU, x):
            return draws(x)

    compare_trees(on_device(LOGITS), st.function(draws)(LOGITS), rtol=1e-6, atol=1e-6)


REFUSED = {
    "scale": (lambda: st.random.exponential((3,), scale=-1.0), "scale is at least 0"),
    "bounds": (lambda: st.random.truncated_normal((3,), low=1.0, high=1.0), "low is below high"),
    "std": (lambda: st.random.truncated_normal((3,), std=0.0), "std is above 0"),
    "dtype": (lambda: st.random.gumbel((3,), dtype=st.i64), "makes floats"),
    "classes": (lambda: st.random.categorical(1.0), "classes in the last axis"),
    "too many": (lambda: st.random.choice(3, (4,), replace=False), "at most 3 draws"),
    "nothing": (lambda: st.random.choice(0), "something to choose from"),
    "probabilities": (lambda: st.random.choice(3, (4,), p=[0.5, 0.5]), "needs 3 probabilities"),
}

test_refused_with_words = refusals(REFUSED)


@pytest.mark.parametrize("axis", [0, -1])
def test_gumbel_softmax_chooses_classes_with_their_probabilities(axis) -> None:
    shares = np.array([0.2, 0.3, 0.5])
    logits = np.broadcast_to(np.log(shares), (6000, 3)) if axis else np.broadcast_to(np.log(shares)[:, None], (3, 6000))

    def draw(x, hard):
        return st.gumbel_softmax(x, 0.7, hard, axis=axis, generator=st.random.Generator(2))

    hard, soft = st.function(lambda x: (draw(x, True), draw(x, False)))(logits)
    assert chi_square(np.argmax(hard, axis), shares) < 16.3
    np.testing.assert_allclose(np.sum(soft, axis), 1.0)
    np.testing.assert_allclose(np.round(hard), np.asarray(soft) == np.max(soft, axis, keepdims=True), atol=1e-12)
    weights = np.arange(6.0).reshape(2, 3) if axis else np.arange(6.0).reshape(3, 2)
    slopes = [st.grad(lambda x, hard=hard: st.sum(draw(x, hard) * weights))(np.sin(weights)) for hard in (True, False)]
    np.testing.assert_allclose(*slopes)
