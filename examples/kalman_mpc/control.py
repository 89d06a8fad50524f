"""A controller of a pole on a cart: a Kalman filter and a model predictive controller, exported and called from C.

python -m examples.kalman_mpc.control               # export, build, and run 2 s at 1,000 calls a second
python -m examples.kalman_mpc.control --show        # print the generated C and stop
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/kalman_mpc/control.py`

import staged as st
from examples.command_line import read_flags, run

GRAVITY, CART, POLE, HALF_LENGTH = 9.81, 1.0, 0.1, 0.5
PERIOD, STEP, HORIZON, ITERATIONS, PENALTY, LIMIT = 0.001, 0.02, 40, 25, 0.03, 10.0
MEASURED = (0, 2)  # position and angle
DISTURBANCE, NOISE = (1e-10, 1e-6, 1e-10, 1e-5), (1e-6, 1e-6)  # variances in a period
COST, EFFORT = (10.0, 1.0, 100.0, 1.0), 0.01


class Model(NamedTuple):
    """x' = a x + b u after a period, in m, m/s, rad, rad/s, and N."""

    a: np.ndarray
    b: np.ndarray


def discrete(period: float) -> Model:
    """The cart with its pole near the upright, with a force that is constant during each period."""
    mass = CART + POLE
    lever = HALF_LENGTH * (4.0 / 3.0 - POLE / mass)
    slopes = np.zeros((5, 5))  # of the four states, and of the force, which stays
    slopes[0, 1] = slopes[2, 3] = 1.0
    slopes[3, 2], slopes[3, 4] = GRAVITY / lever, -1.0 / (mass * lever)
    slopes[1, 2:5:2] = -POLE * HALF_LENGTH / mass * slopes[3, 2:5:2]
    slopes[1, 4] += 1.0 / mass
    moved, term = np.eye(5), np.eye(5)
    for order in range(1, 12):  # the series of the exponential
        term = term @ slopes * (period / order)
        moved = moved + term
    return Model(moved[:4, :4], moved[:4, 4])


def problem() -> tuple[np.ndarray, np.ndarray]:
    """(H, F): the cost of forces u from a state x is u H u / 2 + u F x, and a part without u.

    The last state costs as much as an endless future under the best linear controller (the Riccati equation).
    """
    a, b = discrete(STEP)
    b, cost = b[:, None], np.diag(COST)
    last = cost
    for _ in range(5000):
        gain = np.linalg.solve(EFFORT + b.T @ last @ b, b.T @ last @ a)
        last = cost + a.T @ last @ (a - b @ gain)
    powers = [np.linalg.matrix_power(a, n) for n in range(HORIZON + 1)]
    H, F = EFFORT * np.eye(HORIZON), np.zeros((HORIZON, 4))
    for n in range(1, HORIZON + 1):
        from_forces = np.concatenate(
            [powers[n - 1 - k] @ b if k < n else np.zeros((4, 1)) for k in range(HORIZON)], axis=1
        )
        weight = last if n == HORIZON else cost
        H += from_forces.T @ weight @ from_forces
        F += from_forces.T @ weight @ powers[n]
    return H, F


def filtered(estimate, covariance, force, measurement):
    """The estimate (4,) and its covariance a period later, when `measurement` (2,) is there.

    Source: Kalman, A new approach to linear filtering and prediction problems, 1960.
    """
    a, b = discrete(PERIOD)
    sensors = np.eye(4)[list(MEASURED)]
    estimate = a @ estimate + b * force
    covariance = a @ covariance @ a.T + np.diag(DISTURBANCE)
    spread = sensors @ covariance @ sensors.T + np.diag(NOISE)
    gain = st.linalg.solve(spread, sensors @ covariance).T
    estimate = estimate + gain @ (measurement - sensors @ estimate)
    return estimate, (np.eye(4) - gain @ sensors) @ covariance


def planned(plan, estimate):
    """The plan whose forces have the least cost within +-LIMIT, beginning with the plan of the call before.

    A plan (2, HORIZON) has the forces, and the pressure of the limit on each. Source: the alternating directions of
    Boyd et al., 2011; the matrix of all iterations is inverted while staging.
    """
    H, F = problem()
    inverse = np.linalg.inv(H + PENALTY * np.eye(HORIZON))  # NumPy's: a constant of the program
    slope = F @ estimate
    forces, pressure = plan[0], plan[1]
    for _ in st.range(ITERATIONS):
        free = inverse @ (PENALTY * (forces - pressure) - slope)
        forces = st.clip(free + pressure, -LIMIT, LIMIT)
        pressure = pressure + free - forces
    return st.stack([forces, pressure])


@st.function
def control(estimate, covariance, plan, measurement):
    """One call of the controller; the first force of the new plan is the one to apply."""
    estimate, covariance = filtered(estimate, covariance, plan[0, 0], measurement)
    return {"estimate": estimate, "covariance": covariance, "plan": planned(plan, estimate)}


def start() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The arguments of the first call: nothing is known but that the pole nearly stands."""
    return np.zeros(4), 0.01 * np.eye(4), np.zeros((2, HORIZON)), np.zeros(2)


def build(folder: str | Path) -> Path:
    """Export the controller and build it with `loop.c`; returns the program."""
    control.stage(*start()).export(folder, overwrite=True)
    subprocess.run(["make", "-s", "lib"], cwd=folder, check=True)
    source = Path(__file__).parent / "loop.c"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-I.", str(source), "-o", "loop", "libcontrol.a", "-lm", "-lpthread"]
    subprocess.run(command, cwd=folder, check=True)
    return Path(folder) / "loop"


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, seconds=2.0)
    if flags.gpu and not flags.show:
        raise SystemExit("--gpu: `loop.c` calls a controller of the CPU; with --show its program for a GPU is printed")
    if flags.show:
        run(flags, control, *start())
    folder = Path(__file__).parent / "export"
    subprocess.run([build(folder).absolute(), str(flags.seconds)], check=True)


if __name__ == "__main__":
    main()
