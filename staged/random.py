"""`st.random`: random numbers that are the same in eager mode, C and CUDA for the same seed, and the generators they
come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.base.other_names import unknown_names
from staged.frontend.values.generator import Generator, default_generator
from staged.library.draws.distributions import (
    categorical,
    cauchy,
    choice,
    exponential,
    gumbel,
    laplace,
    logistic,
    multivariate_normal,
    truncated_normal,
)
from staged.library.draws.random import bernoulli, bits, integers, normal, permutation, uniform
from staged.library.draws.rejection import beta, binomial, dirichlet, gamma, poisson

__all__ = [
    "Generator",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "default_generator",
    "dirichlet",
    "exponential",
    "gamma",
    "gumbel",
    "integers",
    "laplace",
    "logistic",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "truncated_normal",
    "uniform",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name
    __getattr__ = unknown_names("random", __all__)
