"""k-means++, principal components, L-BFGS on Rosenbrock's function, a Kalman filter that carries a named tuple."""

from typing import NamedTuple

import numpy as np
import scipy.optimize

import staged as st

# ---- clusters ----


@st.function(static=("k",), seed=0)
def k_means(x, k):
    n = len(x)
    centres = st.zeros((k, x.shape[1]), dtype=x.dtype)
    centres[0] = x[st.random.integers(n)]
    nearest = st.full(n, np.inf, dtype=x.dtype)
    for c in st.range(1, k):
        nearest = st.minimum(nearest, st.sum((x - centres[c - 1]) ** 2, axis=1))
        centres[c] = x[st.random.choice(n, p=nearest / nearest.sum())]
    labels = st.zeros(n, dtype=st.i64)
    rounds = 0
    while True:
        after = st.argmin(st.sum((x[:, None] - centres) ** 2, axis=2), axis=1)
        rounds += 1
        if st.all(after == labels):
            break
        labels = after
        centres = st.segment_mean(x, labels, k)
    return centres, labels, rounds


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    truth = np.array([[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]])
    kinds = np.repeat(np.arange(3), 30)
    points = truth[kinds] + 0.3 * rng.normal(size=(90, 2))
    centres, labels, rounds = k_means(points, 3)
    assert 1 < rounds < 20
    means = np.array([points[kinds == i].mean(axis=0) for i in range(3)])
    np.testing.assert_allclose(centres[np.lexsort(centres.T)], means[np.lexsort(means.T)], rtol=1e-10)
    assert len({(a, b) for a, b in zip(kinds.tolist(), labels.tolist(), strict=True)}) == 3


# ---- principal components ----


@st.function
def pca(x, k=2):
    centred = x - x.mean(axis=0)
    values, vectors = st.linalg.eigh(st.cov(x, rowvar=False))
    order = st.argsort(values, descending=True)[:k]
    return values[order], vectors[:, order], centred @ vectors[:, order]


def test_principal_components_are_those_of_the_singular_values():
    x = np.random.default_rng(1).normal(size=(40, 5)) * np.array([3.0, 1.0, 2.0, 0.5, 0.1])
    values, vectors, scores = pca(x)
    _, s, vh = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(values, s[:2] ** 2 / 39, rtol=1e-10)
    np.testing.assert_allclose(abs(np.sum(vectors.T * vh[:2], axis=1)), 1.0, rtol=1e-10)
    np.testing.assert_allclose(scores.var(axis=0, ddof=1), values, rtol=1e-10)


# ---- a minimum ----


def rosenbrock(x):
    return st.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def test_rosenbrocks_minimum():
    start = np.array([-1.2, 1.0, -0.5, 0.8])
    found = st.function(lambda x: st.optimize.minimize(rosenbrock, x, method="L-BFGS"))(start)
    expected = scipy.optimize.minimize(
        scipy.optimize.rosen, start, jac=scipy.optimize.rosen_der, method="BFGS", tol=1e-9
    )
    assert found.success and expected.success
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-5)


# ---- a filter ----


class Belief(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray


@st.function
def kalman(seen, belief, move, noise, look, error):
    t, log_likelihood = 0, 0.0
    track = st.zeros((len(seen), len(belief.mean)), dtype=seen.dtype)
    while t < len(seen):
        belief = belief._replace(mean=move @ belief.mean, cov=move @ belief.cov @ move.T + noise)
        s = look @ belief.cov @ look.T + error
        gap = seen[t] - look @ belief.mean
        gain = st.linalg.solve(s, look @ belief.cov).T
        log_likelihood -= 0.5 * (gap @ st.linalg.solve(s, gap) + st.linalg.slogdet(2 * np.pi * s)[1])
        belief = Belief(belief.mean + gain @ gap, belief.cov - gain @ look @ belief.cov)
        track[t] = belief.mean
        t += 1
    return track, belief, log_likelihood


def test_a_filter_is_the_posterior_of_the_joint_normal_distribution():
    rng = np.random.default_rng(2)
    move, look = np.array([[1.0, 0.1], [0.0, 0.95]]), np.array([[1.0, 0.0]])
    noise, error, start = 0.01 * np.eye(2), np.array([[0.1]]), Belief(np.zeros(2), np.eye(2))
    seen = rng.normal(size=(6, 1))
    track, belief, log_likelihood = kalman(seen, start, move, noise, look, error)
    # all states and observations at once: states = A e, observations = H states + v
    n = len(seen)
    powers = [np.linalg.matrix_power(move, i) for i in range(n + 1)]
    a = np.block([[powers[i - j] if j <= i else np.zeros((2, 2)) for j in range(n + 1)] for i in range(n + 1)])[2:]
    first = np.zeros((2 * n + 2, 2 * n + 2))
    first[:2, :2] = start.cov
    first[2:, 2:] = np.kron(np.eye(n), noise)
    states = a @ first @ a.T
    h = np.kron(np.eye(n), look)
    joint = h @ states @ h.T + 0.1 * np.eye(n)
    mean = states @ h.T @ np.linalg.solve(joint, seen[:, 0])
    cov = states - states @ h.T @ np.linalg.solve(joint, h @ states)
    np.testing.assert_allclose(track[-1], mean[-2:], rtol=1e-9)
    np.testing.assert_allclose(belief.cov, cov[-2:, -2:], rtol=1e-9)
    expected = -0.5 * (seen[:, 0] @ np.linalg.solve(joint, seen[:, 0]) + np.linalg.slogdet(2 * np.pi * joint)[1])
    np.testing.assert_allclose(log_likelihood, expected, rtol=1e-10)
