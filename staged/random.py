"""`st.random`: random numbers that are the same in eager mode, C and CUDA for the same seed, and the generators they
come from.
"""

from __future__ import annotations

from staged.frontend.values.generator import Generator, default_generator
from staged.ops.distributions import (
    categorical,
    cauchy,
    choice,
    exponential,
    gumbel,
    laplace,
    logistic,
    truncated_normal,
)
from staged.ops.random import bernoulli, bits, integers, normal, permutation, uniform

__all__ = [
    "Generator",
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "default_generator",
    "exponential",
    "gumbel",
    "integers",
    "laplace",
    "logistic",
    "normal",
    "permutation",
    "truncated_normal",
    "uniform",
]
