"""The controller of the examples: filter and plan against NumPy's and SciPy's, and the loop in C that calls it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
from scipy.linalg import expm, solve_discrete_are
from scipy.optimize import lsq_linear

import staged as st
from examples.kalman_mpc import control as example


def test_a_period_is_the_exponential_and_the_last_cost_riccatis() -> None:
    for period in (example.PERIOD, example.STEP):
        a, b = example.discrete(period)
        slopes = np.zeros((5, 5))
        lever = 0.5 * (4.0 / 3.0 - 0.1 / 1.1)
        slopes[0, 1] = slopes[2, 3] = 1.0
        slopes[3, 2], slopes[3, 4] = 9.81 / lever, -1.0 / (1.1 * lever)
        slopes[1] = -0.05 / 1.1 * slopes[3]
        slopes[1, 4] += 1.0 / 1.1
        exact = expm(period * slopes)
        np.testing.assert_allclose(a, exact[:4, :4], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(b, exact[:4, 4], rtol=1e-12, atol=1e-15)
    # With the cost of an endless future at the end, the first force without limits is the linear controller's.
    a, b = example.discrete(example.STEP)
    last = solve_discrete_are(a, b[:, None], np.diag(example.COST), np.array([[example.EFFORT]]))
    gain = (b @ last @ a) / (example.EFFORT + b @ last @ b)
    H, F = example.problem()
    np.testing.assert_allclose(np.linalg.solve(H, F)[0], gain, rtol=1e-6)


def test_the_filter_is_kalmans() -> None:
    estimate, covariance, plan, _ = example.start()
    rng, a_b = np.random.default_rng(0), example.discrete(example.PERIOD)
    x, P = estimate, covariance
    C = np.eye(4)[[0, 2]]
    for _ in range(40):
        measurement = np.array([0.6, 0.1]) + 0.01 * rng.normal(size=2)
        x, P = a_b.a @ x + a_b.b * plan[0, 0], a_b.a @ P @ a_b.a.T + np.diag(example.DISTURBANCE)
        gain = P @ C.T @ np.linalg.inv(C @ P @ C.T + np.diag(example.NOISE))
        x, P = x + gain @ (measurement - C @ x), P - gain @ C @ P
        made = example.control(estimate, covariance, plan, measurement)
        estimate, covariance, plan = made["estimate"], made["covariance"], made["plan"]
        np.testing.assert_allclose(estimate, x, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(covariance, P, rtol=1e-6, atol=1e-12)


def test_the_plan_comes_to_the_least_cost_within_the_limit() -> None:
    H, F = example.problem()
    planned = st.function(example.planned)
    root = np.linalg.cholesky(H)
    for x in (np.array([0.6, 0.0, 0.1, 0.0]), np.array([0.05, 0.0, 0.005, 0.0])):
        best = lsq_linear(root.T, -np.linalg.solve(root, F @ x), (-example.LIMIT, example.LIMIT), method="bvls", tol=1e-14)
        plan = np.zeros((2, example.HORIZON))
        for _ in range(4):
            plan = np.asarray(planned(plan, x))
        np.testing.assert_allclose(plan[0], best.x, atol=1e-6)
        assert (abs(best.x) > example.LIMIT - 1e-9).sum() == ((abs(plan[0]) == example.LIMIT).sum())
    assert (abs(best.x) < example.LIMIT).all()


def test_the_exported_controller_keeps_the_pole_up_when_c_calls_it(tmp_path: Path) -> None:
    program = example.build(tmp_path)
    printed = subprocess.run([program, "1.5"], check=True, capture_output=True, text=True).stdout
    end = re.search(r"in the end: x ([-+.\d]+) m, angle ([-+.\d]+) rad", printed)
    assert end is not None and abs(float(end[1])) < 0.3 and abs(float(end[2])) < 0.05, printed
    assert "1500 calls of" in printed
