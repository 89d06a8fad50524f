"""Hints for functions of NumPy, SciPy and torch that `st` lacks: their code computes what these functions return."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.base.other_names import EQUIVALENTS

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 3))
W = RNG.standard_normal((3, 3))
SYMMETRIC = W @ W.T + np.eye(3)
B = RNG.standard_normal(3)
VECTOR = np.array([1.0, 1.0, 2.0, 2.0, 1.0])
PHASES = np.cumsum(RNG.uniform(0.0, 3.0, 12)) % (2 * np.pi)
LABELS, PREDICTIONS = np.array([0, 1, 2, 1]), np.array([0, 2, 2, 1])
LAYER = nn.Linear(3, 2)
V, U = np.linalg.eigh(SYMMETRIC)
LOW = np.linalg.cholesky(SYMMETRIC)
PLACES = np.array([[2, 0], [1, 0], [0, 1], [1, 2]])


def put(x, places, value):
    made = x.copy()
    np.put_along_axis(made, places, value, 1)
    return made


# name: the names that the code of the hint reads, and what its last expression is
CASES = {
    "pdist": ({"x": X}, [np.linalg.norm(X[i] - X[j]) for i in range(4) for j in range(i + 1, 4)]),
    "repeat_interleave": ({"x": X, "count": 2, "axis": 1}, np.repeat(X, 2, 1)),
    "put_along_axis": ({"x": X, "axis": 1, "indices": PLACES, "values": np.full((4, 2), 9.0)}, put(X, PLACES, 9.0)),
    "parameters_to_vector": (
        {"model": LAYER},
        np.concatenate([LAYER.weight.numpy().ravel(), LAYER.bias.numpy()]),
    ),
    "weight_norm": ({"g": np.ones((3, 1)), "v": W}, W / np.linalg.norm(W, axis=1, keepdims=True)),
    "spectral_norm": ({"w": W}, W / np.linalg.norm(W, 2)),
    "histc": ({"x": X, "bins": 4, "low": -1.0, "high": 1.0}, np.histogram(X, 4, (-1.0, 1.0))[0]),
    "unique_consecutive": ({"x": VECTOR}, [1.0, 2.0, 1.0]),
    "confusion_matrix": (
        {"labels": LABELS, "predictions": PREDICTIONS, "n": 3},
        [[1, 0, 0], [0, 1, 1], [0, 0, 1]],
    ),
    "unwrap": ({"x": PHASES}, np.unwrap(PHASES)),
    "gamma": ({"x": np.array([0.5, 1.0, 4.5])}, [math.gamma(n) for n in (0.5, 1.0, 4.5)]),
    "cho_solve": ({"low": LOW, "b": B}, np.linalg.solve(SYMMETRIC, B)),
    "lu_solve": ({"a": W, "b": B}, np.linalg.solve(W, B)),
    "solve_banded": (
        {"main": np.full(3, 4.0), "upper": np.ones(2), "lower": np.full(2, 2.0), "b": B},
        np.linalg.solve(np.diag(np.full(3, 4.0)) + np.diag(np.ones(2), 1) + np.diag(np.full(2, 2.0), -1), B),
    ),
    "sqrtm": ({"a": SYMMETRIC}, U @ np.diag(np.sqrt(V)) @ U.T),
    "logm": ({"a": SYMMETRIC}, U @ np.diag(np.log(V)) @ U.T),
    "quad": ({"f": lambda x: 2.0 * x, "x": np.linspace(0.0, 1.0, 9)}, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_code_of_a_hint_computes_what_the_missing_function_returns(name: str) -> None:
    given, expected = CASES[name]
    scope = {"st": st, "np": np, **given}
    *before, last = [code for code in re.findall("`([^`]+)`", EQUIVALENTS[name]) if code not in given and "(" in code]
    for code in before:
        exec(code, scope)
    np.testing.assert_allclose(eval(last, scope), expected, rtol=1e-5, atol=1e-6)


MISSING = {
    st: "j0 zeta gammainc custom_jvp sqrtm CubicSpline copy ascontiguousarray masked_scatter",
    st.special: "gamma gammainc betainc jv kv exp1 zeta",
    st.linalg: "cho_solve cho_factor lu_solve solve_banded sqrtm logm eig",
    st.optimize: "root brentq curve_fit minimize_scalar",
    st.integrate: "solve_ivp quad simpson",
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in MISSING.items() for name in names.split()])
def test_a_module_names_the_alternative_of_a_missing_function(module, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': ") as raised:
        getattr(module, name)
    assert "`" in str(raised.value)


def test_methods_of_torchs_scatters_name_the_function() -> None:
    for name in ("gather", "scatter", "scatter_add", "masked_scatter"):
        with pytest.raises(st.StagedError) as raised:
            st.function(lambda x, name=name: getattr(x, name))(X)
        assert re.search(r"To fix: (write|use) `", str(raised.value))


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_layer_of_no_steps_names_the_check(layer) -> None:
    with pytest.raises(st.ShapeError, match="at least one step") as raised:
        layer(2, 3)(st.zeros((0, 4, 2)))
    assert "To fix: check the number of steps before: `if len(x):`" in str(raised.value)


@pytest.mark.parametrize("options", [{"bounds": [(0.0, 1.0)] * 2}, {"constraints": []}], ids=str)
def test_bounds_of_a_minimum_are_written_into_the_function(options) -> None:
    with pytest.raises(st.ArgumentError, match="bounds and constraints") as raised:
        st.optimize.minimize(lambda x: st.sum((x - 2.0) ** 2), np.zeros(2), **options)
    assert "st.sigmoid(z)" in str(raised.value)
    low, high = 0.0, 1.5
    found = st.optimize.minimize(lambda z: st.sum((low + (high - low) * st.sigmoid(z) - 0.5) ** 2), np.zeros(2))
    np.testing.assert_allclose(low + (high - low) * st.sigmoid(found.x), 0.5, atol=1e-4)
