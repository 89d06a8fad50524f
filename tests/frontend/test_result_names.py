"""The names of results: by keys, by the names that `return` lists, else by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.trace_function import trace

X = np.arange(3.0)


@dataclass
class Pair:
    left: Any
    right: Any


def by_names(x: Any) -> Any:
    loss, weights = st.sum(x), {"a": x, "b": x * 2.0}
    return loss, weights


def by_names_on_two_ways(x: Any, n: Any) -> Any:
    y, z = x, x * 2.0
    if n > 1:
        return y, z
    z = y + 1.0
    return y, z


def by_other_names(x: Any, n: Any) -> Any:
    y, z = x, x * 2.0
    if n > 1:
        return z, y
    return z, z


def by_keys(x: Any) -> Any:
    return {"loss": st.sum(x), "0.weight": x, "x": x * 2.0}


def by_fields(x: Any) -> Any:
    return Pair(x, [x, x])


def by_position(x: Any) -> Any:
    return x * 2.0, x


def of_one_twice(x: Any) -> Any:
    y = x * 2.0
    return y, y


def inner_returns(x: Any) -> Any:
    def pair(y: Any) -> Any:
        return y, y

    a, b = pair(x)
    return b, a


@pytest.mark.parametrize(
    ("function", "arguments", "names"),
    [
        (by_names, (X,), ("loss", "weights.a", "weights.b")),
        (by_names_on_two_ways, (X, 1), ("y", "z")),
        (by_other_names, (X, 1), ("z", "result.1")),
        (by_keys, (X,), ("result.0.weight", "loss", "result.x")),
        (by_fields, (X,), ("left", "right.0", "right.1")),
        (by_position, (X,), ("result.0", "result.x")),
        (of_one_twice, (X,), ("result.0", "result.1")),
        (inner_returns, (X,), ("b", "a")),
        (lambda x: x * 2.0, (X,), ("result",)),
    ],
)
def test_results_have_names(function: Any, arguments: Any, names: tuple[str, ...]) -> None:
    assert trace(function, arguments).function.result_paths == names
