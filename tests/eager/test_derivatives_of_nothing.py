"""Derivatives where arrays have no elements: eager mode and the compiled program give the same numbers, the same NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st

FUNCTIONS = {
    "mean": lambda x, w: st.mean(x) * st.sum(w),
    "columns": lambda x, w: st.mean(x, axis=0) * w,
    "var": lambda x, w: st.var(x, axis=0) + w,
    "std": lambda x, w: st.std(x) * w,
    "norm": lambda x, w: st.norm(x, axis=0) * w,
    "product": lambda x, w: x @ w,
    "quotient": lambda x, w: st.sum(x, axis=0) / (w - w),
    "rows": lambda x, w: x * w,
    "batch norm": lambda x, w: st.batch_norm_training(x, w)[0],
    "statistics": lambda x, w: st.batch_norm_training(x, w)[1] * w,
    "layer norm": lambda x, w: st.layer_norm(x, weight=w),
    "joined": lambda x, w: st.mean(st.concat([x, w[None]], axis=0)),
    "loss": lambda x, w: st.nll_loss(x, st.zeros((0,), dtype=st.i64), weight=w),
}


def derivatives(x: Any, w: Any, t: Any, s: Any) -> Any:
    found = {}
    for name, function in FUNCTIONS.items():

        def total(x: Any, w: Any) -> Any:
            return st.sum(function(x, w))  # noqa: B023

        found[name] = st.jvp(function, (x, w), (t, s))[1], st.grad(total, argnums=(0, 1))(x, w)
    return found


def test_derivatives_of_nothing_are_those_of_the_compiled_program() -> None:
    x, w = np.zeros((0, 3)), np.array([1.0, -2.0, 0.5])
    compiled = st.function(derivatives)(x, w, x, w)
    with st.eager():
        eagerly = st.function(derivatives)(x, w, x, w)
    for name in FUNCTIONS:
        (slope, (d_x, d_w)), (have, (e_x, e_w)) = compiled[name], eagerly[name]
        np.testing.assert_array_equal(np.asarray(have), np.asarray(slope), err_msg=f"jvp of {name}")
        np.testing.assert_array_equal(np.asarray(e_w), np.asarray(d_w), err_msg=f"grad of {name}")
        assert np.shape(e_x) == np.shape(d_x) == (0, 3), name
    np.testing.assert_array_equal(np.asarray(eagerly["joined"][1][1]), np.full(3, 1.0 / 3.0))
    np.testing.assert_array_equal(np.asarray(eagerly["rows"][1][1]), np.zeros(3))
