"""Differentiable mechanics: a ball that bounces until it rests, a net of masses and springs over 500 steps."""

from dataclasses import dataclass, replace

import numpy as np

import staged as st


@dataclass
class Ball:
    height: float
    speed: float


@st.function
def time_to_rest(height, restitution, g=9.81):
    """The time until the speed after a bounce is below 0.01, contact by contact."""

    def total(height, restitution):
        speed = st.sqrt(2 * g * height)
        time = speed / g
        while speed > 0.01:
            speed = restitution * speed
            time += 2 * speed / g
        return time

    return st.value_and_grad(total, argnums=(0, 1))(height, restitution)


@st.function
def first_contact(ball, dt):
    """Steps until the ground, with the last step shortened so that it ends there: exact for a parabola."""

    def contact(height):
        b, t = replace(ball, height=height), 0.0
        while True:
            after = b.height + dt * b.speed - 0.5 * 9.81 * dt**2
            if after < 0.0:
                break
            b = Ball(after, b.speed - 9.81 * dt)
            t += dt
        return t + (b.speed + st.sqrt(b.speed**2 + 2 * 9.81 * b.height)) / 9.81

    return st.value_and_grad(contact)(ball.height)


def test_a_ball_touches_the_ground_when_the_formula_says():
    time, slope = first_contact(Ball(np.float64(3.0), np.float64(0.0)), 0.01)
    np.testing.assert_allclose(time, np.sqrt(2 * 3.0 / 9.81), rtol=1e-9)
    np.testing.assert_allclose(slope, 1 / np.sqrt(2 * 9.81 * 3.0), rtol=1e-9)


def test_the_time_to_rest_is_a_geometric_sum():
    time, (by_height, by_restitution) = time_to_rest(np.float64(2.0), np.float64(0.8))
    n = int(np.ceil(np.log(0.01 / np.sqrt(2 * 9.81 * 2.0)) / np.log(0.8)))
    first = np.sqrt(2 * 2.0 / 9.81)
    powers = np.arange(1, n + 1)
    np.testing.assert_allclose(time, first * (1 + 2 * np.sum(0.8**powers)), rtol=1e-12)
    np.testing.assert_allclose(by_height, time / (2 * 2.0), rtol=1e-12)
    np.testing.assert_allclose(by_restitution, first * 2 * np.sum(powers * 0.8 ** (powers - 1)), rtol=1e-12)


N = 4
EDGES = np.array(
    [
        (i * N + j, k)
        for i in range(N)
        for j in range(N)
        for k in (i * N + j + 1, (i + 1) * N + j)
        if k < N * N and (k - i * N - j != 1 or j < N - 1)
    ]
)


def swung(stiffness, start, steps):
    """The net after `steps` of symplectic Euler; its upper row is held."""
    x, v = start, st.zeros_like(start)
    a, b = EDGES[:, 0], EDGES[:, 1]
    free = (np.arange(N * N) >= N)[:, None]
    for _ in st.range(steps):
        d = x[b] - x[a]
        length = st.linalg.norm(d, axis=1, keepdims=True)
        pull = stiffness[:, None] * (length - 1.0) * d / length
        force = st.zeros_like(x)
        force = st.scatter_add(force, a, pull)
        force = st.scatter_add(force, b, -pull)
        v = 0.999 * (v + 0.01 * free * (force - np.array([0.0, 9.81])))
        x = x + 0.01 * v
    return x


def test_the_gradient_through_500_steps_is_that_of_differences():
    grid = np.stack(np.meshgrid(np.arange(N), -np.arange(N)), axis=-1).reshape(-1, 2) + 0.0
    stiffness = np.random.default_rng(0).uniform(300, 500, len(EDGES))

    @st.function
    def lowest(stiffness, steps):
        return st.value_and_grad(lambda k: st.sum(swung(k, grid, steps)[-N:, 1] ** 2))(stiffness)

    value, slope = lowest(stiffness, 500)
    assert np.isfinite(value)
    for i in (0, 7, len(EDGES) - 1):
        h = 1e-3 * np.eye(len(EDGES))[i]
        difference = (lowest(stiffness + h, 500)[0] - lowest(stiffness - h, 500)[0]) / 2e-3
        np.testing.assert_allclose(slope[i], difference, rtol=1e-5, atol=1e-8)
