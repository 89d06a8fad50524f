"""Slopes of functions whose results are rounded to a constant: the slopes are right to 1e-6 in f32 and 1e-12 in f64.

The readings are closed forms without cancellation, in NumPy's widest floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st

SIZES = [
    0,
    1e-30,
    1e-10,
    1e-5,
    1e-3,
    0.1,
    0.5,
    0.9,
    1 - 1e-4,
    1 - 3e-7,
    1.5,
    3,
    5,
    9,
    17,
    20,
    37,
    40,
    100,
    300,
    1e5,
    1e15,
]
POINTS = np.array([sign * size for sign in (1.0, -1.0) for size in SIZES])


def below(scale: float, x: Any) -> Any:
    return np.where(x > 0, 1, np.exp(np.minimum(x, 0) / scale))


SLOPES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "expm1": (lambda x: st.expm1(st.minimum(x, 80.0)), lambda x: np.where(x < 80, np.exp(np.minimum(x, 80)), 0)),
    "elu": (st.elu, lambda x: below(1.0, x)),
    "celu": (lambda x: st.celu(x, 2.0), lambda x: below(2.0, x)),
    "selu": (st.selu, lambda x: 1.0507009873554805 * below(1.0, x) * np.where(x > 0, 1, 1.6732632423543772)),
    "softsign": (st.softsign, lambda x: 1 / (1 + abs(x)) ** 2),
    "tanhshrink": (st.tanhshrink, lambda x: np.tanh(x) ** 2),
    "softplus": (st.softplus, lambda x: 1 / (1 + np.exp(-x))),
    "log_sigmoid": (st.log_sigmoid, lambda x: 1 / (1 + np.exp(x))),
    "asin": (lambda x: st.asin(within(x)), lambda x: (abs(x) < 1) / np.sqrt((1 - clipped(x)) * (1 + clipped(x)))),
    "acos": (
        lambda x: st.acos(within(x)),
        lambda x: -1.0 * (abs(x) < 1) / np.sqrt((1 - clipped(x)) * (1 + clipped(x))),
    ),
    "atanh": (lambda x: st.atanh(within(x)), lambda x: (abs(x) < 1) / ((1 - clipped(x)) * (1 + clipped(x)))),
    "asinh": (st.asinh, lambda x: 1 / np.hypot(x, 1)),
    "atan": (st.atan, lambda x: 1 / (x * x + 1)),
}


def within(x: Any) -> Any:
    return st.where(st.abs(x) < 1, x, 0.0)


def clipped(x: Any) -> Any:
    return np.where(abs(x) < 1, x, 0)


@st.function
def compiled(x: Any) -> Any:
    return {name: slopes(f, x) for name, (f, _) in SLOPES.items()}


def slopes(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    ones = st.ones_like(x)
    return st.jvp(f, (x,), (ones,))[1], st.vjp(f, x)[1](ones)[0]


@pytest.mark.filterwarnings("ignore:the gradient of .* ran 20 times")
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-6), (np.float64, 1e-12)])
def test_slopes_are_those_of_the_argument(dtype: type, rtol: float) -> None:
    x = POINTS.astype(dtype)
    found = compiled(x)
    for name, (f, slope) in SLOPES.items():
        with np.errstate(all="ignore"):
            right = np.asarray(slope(x.astype(np.longdouble)))
        normal = (abs(right) > np.finfo(dtype).tiny) & np.isfinite(right)
        for have in (*found[name], *slopes(f, x)):
            np.testing.assert_allclose(np.asarray(have)[normal], right[normal].astype(dtype), rtol=rtol, err_msg=name)
            assert np.abs(np.asarray(have)[abs(right) <= np.finfo(dtype).tiny]).max(initial=0) < 1e-30


@pytest.mark.parametrize("name", ["tanh", "tan", "expm1"])
def test_complex_slopes(name: str) -> None:
    z = np.array([20 + 1j, -20 + 0.5j, 0.3 - 0.2j, -40 + 1e-3j]) * (1j if name == "tan" else 1.0)
    turned = z * -1j if name == "tan" else z
    small = np.exp(-2 * np.where(turned.real < 0, -turned, turned))
    right = np.exp(z) if name == "expm1" else 4 * small / (1 + small) ** 2
    found = st.jvp(getattr(st, name), (z,), (np.ones_like(z),))[1]
    np.testing.assert_allclose(np.asarray(found), right, rtol=1e-12)
