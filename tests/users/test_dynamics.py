"""Lorenz's equations fitted through an adaptive solver, and a neural differential equation."""

import numpy as np
from scipy.integrate import solve_ivp

import staged as st
from staged import nn, optim

TIMES = np.linspace(0.0, 0.5, 6)
START = np.array([1.0, 1.0, 25.0])


def lorenz(s, t, p):
    x, y, z = s
    return st.stack([p[0] * (y - x), x * (p[1] - z) - y, x * y - p[2] * z])


@st.function
def trajectory(p):
    return st.integrate.odeint(lorenz, START, TIMES, p, rtol=1e-9, atol=1e-9)


@st.function
def fit(observed, guess):
    def distance(p):
        return st.mean((st.integrate.odeint(lorenz, START, TIMES, p, rtol=1e-9, atol=1e-9) - observed) ** 2)

    found = st.optimize.minimize(distance, guess, method="L-BFGS", tol=1e-10)
    return found.x, found.fun, found.success


def test_lorenz_is_scipys_and_its_parameters_are_found():
    p = np.array([10.0, 28.0, 8.0 / 3.0])
    observed = trajectory(p)
    exact = solve_ivp(lambda t, s: lorenz_numpy(s, p), (0.0, 0.5), START, t_eval=TIMES, rtol=1e-11, atol=1e-11).y.T
    np.testing.assert_allclose(observed, exact, rtol=1e-6)
    found, value, success = fit(observed, p * np.array([1.1, 0.95, 1.05]))
    assert success and value < 1e-10
    np.testing.assert_allclose(found, p, rtol=1e-4)


def lorenz_numpy(s, p):
    return np.array([p[0] * (s[1] - s[0]), s[0] * (p[1] - s[2]) - s[1], s[0] * s[1] - p[2] * s[2]])


class Field(nn.Module):
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, y, t):
        return self.net(y**3)


def test_a_neural_equation_learns_a_spiral():
    times = np.linspace(0.0, 2.0, 12, dtype=np.float32)
    a = np.array([[-0.1, 2.0], [-2.0, -0.1]])
    spiral = solve_ivp(lambda t, y: a.T @ y**3, (0, 2), [1.5, 0.0], t_eval=times, rtol=1e-8, atol=1e-8).y.T.astype(
        np.float32
    )
    st.seed(0)
    field = Field()
    opt = optim.Adam(field.parameters(), lr=0.02)

    @st.function
    def learn(spiral, steps):
        first, loss = 0.0, 0.0
        for i in st.range(steps):
            # from each observation to the next, all at once
            def gap():
                ends = st.integrate.odeint(
                    field, spiral[:-1], np.array([0.0, times[1]], np.float32), rtol=1e-4, atol=1e-4
                )
                return st.mean(st.abs(ends[-1] - spiral[1:]))

            loss, grads = st.value_and_grad(gap, wrt=field)()
            opt.step(grads)
            if i == 0:
                first = loss
        return first, loss

    first, last = learn(spiral, 150)
    assert last < 0.1 * first, (first, last)
