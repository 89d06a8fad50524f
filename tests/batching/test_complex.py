"""Derivatives by complex numbers, mapped: `vmap` of `grad` and `vjp`, `jacrev`, in programs as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.testing import compare_trees

RNG = np.random.default_rng(4)
Z = RNG.standard_normal((2, 3)) + 1j * RNG.standard_normal((2, 3))
M = RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3)) + 4.0 * np.eye(3)


def powers(z: Any) -> Any:
    y = z
    for _ in st.range(3):
        y = y * z + 0.5 * z
    return y


def chosen(z: Any) -> Any:
    if st.real(st.sum(z)) > 0:
        return z * z
    return st.conj(z) * z


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": lambda z: st.abs(z) ** 2 + 0j * z,
    "arithmetic": lambda z: z * z / (z + 2.0) - st.conj(z),
    "exp": lambda z: st.exp(z) * z,
    "log": lambda z: st.log(z) + z,
    "sqrt": lambda z: st.sqrt(z) * z,
    "power": lambda z: z**2.5 + z**z,
    "sin": lambda z: st.sin(z) * st.cos(z),
    "tanh": lambda z: st.tanh(z) * st.sinh(z),
    "asin": lambda z: st.asin(z) + st.atan(z) * z,
    "reductions": lambda z: st.sum(z) * z + st.mean(z) * st.prod(z),
    "cumulative": lambda z: st.cumsum(z) * z,
    "fft": lambda z: st.fft.ifft(st.fft.fft(z) ** 2) * z,
    "products": lambda z: (M @ z) * st.sum(st.outer(z, z) @ z),
    "solve": lambda z: st.linalg.solve(M + st.outer(z, z), z) * z,
    "places": lambda z: st.concat([z[1:], z[:1] * z[0]]) * st.flip(z) + st.where(st.real(z) > 0, z, z * z),
    "loop": powers,
    "branch": chosen,
    "polar": lambda z: st.polar(st.abs(z), st.angle(z)) * z,
}


def derivatives(f: Callable[[Any], Any], z: Any) -> dict[str, Any]:
    def loss(z: Any) -> Any:
        y = f(z)
        return st.sum(st.abs(y + y * y))

    return {
        "vmap grad": st.vmap(st.grad(loss))(z),
        "vmap vjp": st.vmap(lambda z: st.vjp(lambda z: f(z) * z, z)[1](z)[0])(z),
        "jacrev": st.jacrev(lambda z: st.abs(f(z) * z))(z[0]),
    }


@pytest.mark.filterwarnings("ignore:.* ran 20 times")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_mapped_derivatives_by_complex_numbers_are_those_of_each(name: str) -> None:
    f = FUNCTIONS[name]
    eager = derivatives(f, Z)
    compare_trees(st.function(lambda z: derivatives(f, z))(Z), eager, rtol=1e-9, atol=1e-9)

    def loss(z: Any) -> float:
        return float(st.sum(st.abs(f(z) + f(z) * f(z))))

    step = 1e-6
    for place in range(3):
        along = np.zeros(3)
        along[place] = step
        slopes = [(loss(Z[1] + unit * along) - loss(Z[1] - unit * along)) / (2 * step) for unit in (1.0, 1j)]
        np.testing.assert_allclose(np.asarray(eager["vmap grad"])[1, place], complex(*slopes), rtol=1e-5)


def test_the_gradient_of_each_square() -> None:
    found = st.function(lambda z: st.vmap(st.grad(lambda w: st.abs(w) ** 2))(z))(Z[0])
    np.testing.assert_allclose(np.asarray(found), 2.0 * Z[0], rtol=1e-14)


def test_the_jacobian_of_a_spectrum() -> None:
    x = np.array([1.0, 2.0, 4.0])
    found = st.function(st.jacrev(lambda x: st.abs(st.fft.fft(x))))(x)
    factors = np.fft.fft(np.eye(3))
    right = np.real(np.conj(factors @ x)[:, None] * factors) / np.abs(factors @ x)[:, None]
    np.testing.assert_allclose(np.asarray(found), right, rtol=1e-12)
