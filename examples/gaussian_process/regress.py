"""Regression by a Gaussian process, whose width, height and noise are learned inside the program.

python -m examples.gaussian_process.regress           # fit, and print the curve with its uncertainty
python -m examples.gaussian_process.regress --show    # print the generated C and stop
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/gaussian_process/regress.py`

import staged as st
from examples.command_line import read_flags, run


class Scales(NamedTuple):
    """Logarithms of the kernel's width and height, and of the noise."""

    width: object
    height: object
    noise: object


def kernel(x, z, scales):
    """The covariance (n, m) of the curve at `x` (n,) and at `z` (m,)."""
    distance = (x[:, None] - z[None, :]) * st.exp(-scales.width)
    return st.exp(2.0 * scales.height - 0.5 * distance * distance)


def factor_of(x, scales):
    """The Cholesky factor of the covariance of what is measured at `x`."""
    return st.linalg.cholesky(kernel(x, x, scales) + st.exp(2.0 * scales.noise) * st.eye(len(x), dtype=x.dtype))


def surprise(scales, x, y):
    """The negative logarithm of the probability density of `y` (n,) measured at `x` (n,)."""
    factor = factor_of(x, scales)
    z = st.linalg.solve_triangular(factor, y[:, None], upper=False)
    return 0.5 * st.sum(z * z) + st.sum(st.log(st.diagonal(factor))) + 0.5 * len(x) * math.log(2.0 * math.pi)


@st.function
def fit(x, y, start):
    """The scales that make `y` least surprising, from a start: (scales, surprise, iterations)."""
    found = st.optimize.minimize(surprise, start, args=(x, y))
    width, height, noise = (st.exp(each) for each in found.x)
    print(f"{found.nit} iterations, {found.nfev} evaluations: surprise {found.fun:.4f}")
    print(f"width {width:.4f}, height {height:.4f}, noise {noise:.4f}")
    return found.x, found.fun, found.nit


@st.function
def predict(x, y, at, scales):
    """Mean and standard deviation of the curve at `at` (m,), given what was measured."""
    factor = factor_of(x, scales)
    between = kernel(x, at, scales)
    z = st.linalg.solve_triangular(factor, st.concat([y[:, None], between], axis=1), upper=False)
    mean = st.sum(z[:, 1:] * z[:, :1], axis=0)
    variance = st.exp(2.0 * scales.height) - st.sum(z[:, 1:] * z[:, 1:], axis=0)
    return mean, st.sqrt(st.maximum(variance, 0.0))


def measurements(count=40, noise=0.1, seed=0):
    """A synthetic curve, measured with noise from 0 to 6 but for a gap from 3.5 to 4.5: (x, y), f64."""
    rng = np.random.default_rng(seed)
    x = np.sort(np.concatenate([rng.uniform(0.0, 3.5, count // 2), rng.uniform(4.5, 6.0, count - count // 2)]))
    return x, np.sin(2.0 * x) + 0.5 * np.cos(5.0 * x) + noise * rng.standard_normal(count)


START = Scales(*(np.array(each) for each in (0.0, 0.0, -1.0)))


def main() -> None:
    """The command line."""
    flags, (x, y) = read_flags(__doc__), measurements()
    if not flags.show:
        print("a synthetic curve, measured 40 times with noise 0.1, nowhere between 3.5 and 4.5")
    scales, _, _ = run(flags, fit, x, y, START)
    at = np.linspace(0.0, 6.0, 13)
    for place, mean, spread in zip(at, *run(flags, predict, x, y, at, scales), strict=True):
        print(f"x {place:.1f}: {mean:+.3f} +- {spread:.3f}   truth {np.sin(2.0 * place) + 0.5 * np.cos(5.0 * place):+.3f}")


if __name__ == "__main__":
    main()
