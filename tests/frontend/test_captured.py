"""Arrays that a function closes over: their names, and views of one array."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import staged as st
from staged.frontend.trace import captured
from staged.frontend.trace_function import trace
from tests.frontend.harness import agree

X = np.arange(100, dtype=np.float32).reshape(10, 10)
TABLE = X * 2.0
CONFIG = SimpleNamespace(table=X * 3.0, layers=[{"scale": X * 4.0}])
SHARED = {"scale": X * 5.0}


def names(function: Any, *args: Any) -> tuple[str, ...]:
    return trace(function, args).function.param_paths


class Model:
    def __init__(self) -> None:
        self.weight = X * 6.0

    def __call__(self, x: Any) -> Any:
        return helper(x) + self.weight


def helper(x: Any) -> Any:
    return x * TABLE


def test_closed_over_arrays_keep_their_python_names() -> None:
    local = X * 7.0

    def f(x: Any) -> Any:
        made = np.ones((10, 10), np.float32)
        return x + TABLE + CONFIG.table + CONFIG.layers[0]["scale"] + SHARED["scale"] + local + made

    assert names(f, X) == ("x", "TABLE", "CONFIG_table", "CONFIG_layers_0_scale", "SHARED_scale", "local", "made")
    agree(f, X)


def test_arrays_of_helpers_and_of_self_keep_theirs() -> None:
    assert names(Model(), X) == ("x", "TABLE", "weight")


def test_a_name_that_an_argument_has_is_numbered() -> None:
    def f(TABLE: Any) -> Any:
        return helper(TABLE)

    assert names(f, X) == ("TABLE", "TABLE_2")


def test_an_array_without_a_name_is_still_an_input() -> None:
    def f(x: Any) -> Any:
        return x + (lambda: TABLE * 1.0)()

    assert names(f, X) == ("x", "hidden_0")


def test_an_error_names_the_array() -> None:
    def f(x: Any) -> Any:
        return x + CONFIG.table[:3]

    try:
        trace(f, (X,))
    except st.ShapeError as error:
        assert "CONFIG_table_part: f32 (3, 10)" in str(error)

    def g(x: Any) -> Any:
        return x[:3] + CONFIG.table

    try:
        trace(g, (X,))
        raise AssertionError("the shapes differ")
    except st.ShapeError as error:
        assert "CONFIG_table: f32 (10, 10)" in str(error)


def test_views_of_one_array_are_one_input() -> None:
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    w_t = w.T

    def f(x: Any) -> Any:
        return st.sum(x @ w) + st.sum(w.T @ x) + st.sum(w_t) * 2.0 + st.sum(w.reshape(2, 12)[:, 3])

    # A part of it is an input of its own: the whole may be far larger.
    assert names(f, np.ones((4, 4), np.float32)) == ("x", "w", "w_part")
    agree(f, np.ones((4, 4), np.float32))


def test_a_view_that_comes_first_is_made_from_the_array_behind_it() -> None:
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def f(x: Any) -> Any:
        turned = cube.transpose(2, 0, 1)
        return turned * x + st.sum(cube), turned[::-1].copy(), cube.reshape(6, 4).T * x

    assert names(f, 2.0)[:2] == ("x", "cube")
    agree(f, 2.0)


def test_the_array_behind_a_view_is_read_when_the_program_runs() -> None:
    w = np.arange(6, dtype=np.float32).reshape(2, 3)

    @st.function
    def f(x: Any) -> Any:
        return x + w.T

    program = f.stage(np.float32(1.0))
    w[0, 1] = 100.0
    np.testing.assert_array_equal(program(np.float32(1.0)), w.T + 1.0)


def test_what_is_no_whole_view_stays_an_input_of_its_own() -> None:
    w = np.arange(24, dtype=np.float32).reshape(4, 6)

    def f(x: Any) -> Any:
        return x + st.sum(w) + st.sum(w[:2]) + w[::-1] + w[:, ::-1] + w.view(np.int32).astype(np.float32)

    assert names(f, 1.0)[:2] == ("x", "w") and len(names(f, 1.0)) == 6
    agree(f, 1.0)


HUGE = [{number: [number] * 1000 for number in range(1000)}] * 1000


def test_the_search_for_a_name_ends_soon(monkeypatch: Any) -> None:
    looked = 0

    def counted(value: Any) -> Any:
        nonlocal looked
        for part in parts(value):
            looked += 1
            yield part

    parts = captured.parts
    monkeypatch.setattr(captured, "parts", counted)

    def f(x: Any) -> Any:
        return x + len(HUGE) + (lambda: TABLE * 1.0)()

    assert names(f, X) == ("x", "hidden_0") and looked < 10_000


class WithoutModule:
    __module__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.table = np.ones(3)


class WithoutDict:
    table = np.ones(3)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("asked for its attributes")


class Loaded(dict[str, Any]):
    table = np.ones(3)

    def items(self) -> Any:
        raise RuntimeError("asked for its items")


def test_the_search_for_a_name_runs_no_code_of_the_users() -> None:
    owners = WithoutModule(), WithoutDict(), Loaded(a=1)
    for owner in owners:
        agree(lambda x, owner=owner: x + owner.table, np.zeros(3))
