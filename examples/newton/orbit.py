"""An orbit from observations: least squares through Newton's method, iterated to convergence inside the program.

python -m examples.newton.orbit           # fit, and print how it went
python -m examples.newton.orbit --show    # print the generated C and stop
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/newton/orbit.py`

import staged as st
from examples.command_line import read_flags, run


def kepler(mean_anomaly, eccentricity):
    """The eccentric anomaly E with E - e sin(E) = M, by Newton's method from E = M + e sin(M), to 1e-14.

    How many iterations that takes depends on M and e; the gradient runs back through those that were made. The step that
    follows them changes nothing but the gradient: where the start is the root already, it would be that of the start.
    """

    def newton(anomaly):
        residual = anomaly - eccentricity * st.sin(anomaly) - mean_anomaly
        return anomaly - residual / (1.0 - eccentricity * st.cos(anomaly)), residual

    anomaly, residual = newton(mean_anomaly + eccentricity * st.sin(mean_anomaly))
    while st.abs(residual) > 1e-14 * (1.0 + st.abs(mean_anomaly)):
        anomaly, residual = newton(anomaly)
    return newton(anomaly)[0]


def position(time, eccentricity, period, phase):
    """The position of a body with semi-major axis 1 in the plane of its orbit, the focus at the origin."""
    anomaly = kepler(2.0 * math.pi * time / period + phase, eccentricity)
    return st.cos(anomaly) - eccentricity, st.sqrt(1.0 - eccentricity * eccentricity) * st.sin(anomaly)


@st.function
def observe(times, eccentricity, period, phase):
    """Positions (n, 2) at `times` (n,)."""
    seen = st.zeros((times.shape[0], 2), dtype=st.f64)
    for k in st.range(times.shape[0]):
        x, y = position(times[k], eccentricity, period, phase)
        seen[k, 0] = x
        seen[k, 1] = y
    return seen


@st.function
def anomaly_and_slopes(mean_anomaly, eccentricity):
    """E(M, e), and its derivatives by M and by e, through the `while`."""
    value, slopes = st.value_and_grad(kepler, argnums=(0, 1))(mean_anomaly, eccentricity)
    return value, slopes


def report(steps, error, parameters):
    """Print one line of a fit."""
    e, period, phase = parameters[0], parameters[1], parameters[2]
    print(f"step {steps:3d}: squares {error:.3e}, e {e:.5f}, period {period:.5f}, phase {phase:.5f}")


@st.function
def fit(times, seen, guess):
    """Descend from a guess until the gradient vanishes; returns (eccentricity, period, phase), f64, and the steps taken.

    The step length is Barzilai and Borwein's: s.s / s.y with s the last change of the parameters, y that of the gradient.
    """

    def squares(parameters):
        total = 0.0
        for k in st.range(times.shape[0]):
            x, y = position(times[k], parameters[0], parameters[1], parameters[2])
            total += (x - seen[k, 0]) ** 2 + (y - seen[k, 1]) ** 2
        return total

    descend = st.value_and_grad(squares)
    parameters = guess
    error, slope = descend(parameters)
    rate, steps = 1e-4, 0
    while st.sqrt(st.sum(slope * slope)) > 1e-7 and steps < 500:
        if steps % 10 == 0:
            report(steps, error, parameters)
        moved = parameters - rate * slope
        moved[0] = st.clip(moved[0], 0.0, 0.95)
        error, new_slope = descend(moved)
        change, bend = moved - parameters, new_slope - slope
        rate = st.sum(change * change) / st.abs(st.sum(change * bend))
        parameters, slope = moved, new_slope
        steps += 1
    report(steps, error, parameters)
    return parameters, steps


def observations(noise=1e-3, seed=0):
    """Twenty positions of a body with e = 0.6, period 1.3 and phase 0.4, seen with some noise: (times, positions)."""
    times = np.linspace(0.0, 2.0, 20)
    return times, observe(times, 0.6, 1.3, 0.4) + noise * np.random.default_rng(seed).standard_normal((20, 2))


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__)
    if not flags.show:
        print("a body with e 0.6, period 1.3, phase 0.4, seen twenty times; the guess is e 0.3, period 1.25, phase 0.2")
    run(flags, fit, *observations(), np.array([0.3, 1.25, 0.2]))


if __name__ == "__main__":
    main()
