"""The helpers for tests find what they are for: every kind of difference is planted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import testing
from staged.errors import ProgramAssertionError, ProgramZeroDivisionError
from staged.testing import (
    assert_backends_agree,
    captured_prints,
    check_golden,
    check_grads,
    compare_trees,
    load_snippet,
    run_snippet,
)


def f(x, n):
    total = 0.0
    for i in st.range(n):
        if st.sum(x) > 3.0 * i:
            total += st.sum(x * x)
        print(f"{i}: {total:.3f} {x}")
    return {"total": total, "x": x + n}


def test_backends_agree_on_a_program() -> None:
    result = assert_backends_agree(f, np.arange(4, dtype=np.float32), 3)
    assert set(result) == {"total", "x"} and result["x"].dtype == np.float32


def test_runs_are_eager_and_two_levels_of_c() -> None:
    outcomes = testing.run_everywhere(f, np.arange(4, dtype=np.float32), 2)
    assert [outcome.backend for outcome in outcomes] == ["eager", "C -O0", "C -O3"]
    assert outcomes[0].text == outcomes[1].text == "0: 14.000 [0.0 1.0 2.0 3.0]\n1: 28.000 [0.0 1.0 2.0 3.0]\n"


def test_errors_agree_and_are_raised() -> None:
    def divides(n):
        assert n < 5, f"{n} is too many"
        return 7 // n

    with pytest.raises(ProgramZeroDivisionError):
        assert_backends_agree(divides, 0)
    with pytest.raises(ProgramAssertionError, match="7 is too many"):
        assert_backends_agree(divides, 7)
    assert assert_backends_agree(divides, 2) == 3


def test_variables_are_put_back_and_compared() -> None:
    counter = st.Variable(np.zeros(2, np.float32), name="counter")

    def count(x):
        counter.value = counter + x
        return st.sum(counter)

    assert assert_backends_agree(count, np.float32(2.0), variables=[counter]) == 4.0
    assert counter.numpy().tolist() == [0.0, 0.0]


class Planted:
    """Outcomes that differ in one thing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def differ(self, **changes: Any) -> None:
        want = testing.Outcome("eager", np.float64(1.0), None, "loss 0.25\n", [np.zeros(1)])
        have = testing.Outcome("C -O0", np.float64(1.0), None, "loss 0.25\n", [np.zeros(1)])
        for name, value in changes.items():
            setattr(have, name, value)
        self.monkeypatch.setattr(testing, "run_everywhere", lambda *args, **kwargs: [want, have])
        assert_backends_agree(f, variables=[st.Variable(np.zeros(1), name="state")])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"result": np.float64(1.0 + 1e-9)}, "C -O0 and eager mode differ at result"),
        ({"result": np.float32(1.0)}, "dtype float32 instead of float64"),
        ({"result": (np.float64(1.0),)}, "structure"),
        ({"result": np.ones(1)}, "shape"),
        ({"text": "loss 0.27\n"}, "in the printed text"),
        ({"text": "loss: 0.25\n"}, "in the printed text"),
        ({"variables": [np.ones(1)]}, "at state"),
        ({"error": IndexError("3 is out of range")}, "IndexError: 3 is out of range instead of no error"),
    ],
)
def test_differences_are_found(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str) -> None:
    planted = Planted(monkeypatch)
    planted.differ()
    with pytest.raises(AssertionError, match=words):
        planted.differ(**changes)


def test_printed_numbers_may_round_differently_and_integers_may_not() -> None:
    testing._compare_texts("loss 0.2500 step 10\n", "loss 0.2501 step 10\n", "x", None)
    testing._compare_texts("1.234567e-05", "1.234568e-05", "x", None)
    for have, want in [("step 10", "step 11"), ("0.2500", "0.2503"), ("a 1.5", "b 1.5"), ("1.5\n", "1.5")]:
        with pytest.raises(AssertionError):
            testing._compare_texts(have, want, "x", None)


def test_compare_trees_names_the_leaf() -> None:
    with pytest.raises(AssertionError, match="result.a.1"):
        compare_trees({"a": [1.0, np.ones(2)]}, {"a": [1.0, np.zeros(2)]})


def test_snippets_are_staged_from_text() -> None:
    text = """
        def square(x):
            return x * x

        def f(x, n):
            for _ in st.range(n):
                x = square(x)
            return x
    """
    assert run_snippet(text, 2.0, 3) == 256.0
    assert load_snippet(text).square(3) == 9
    with pytest.raises(ValueError, match="defines no function"):
        run_snippet("x = 1")


def test_prints_are_captured() -> None:
    with captured_prints() as captured:
        run_snippet("def f(x):\n    print('x is', x)\n    print(1.5)", 2.5)
    assert captured.lines == ["x is 2.5", "1.5"] and captured.text.endswith("\n")


def polynomial(x, y):
    for _ in st.range(2):
        x = x * x + y
    return {"out": x, "count": st.sum(x > 0)}


@pytest.mark.parametrize("in_eager", [True, False])
def test_right_gradients_pass(in_eager: bool) -> None:
    args = (np.array([0.3, -0.7], np.float32), np.array([0.1, 0.2]))
    check_grads(polynomial, args, order=1, in_eager=in_eager)
    check_grads(st.function(polynomial), args, order=2 if in_eager else 1, in_eager=in_eager)


@pytest.mark.parametrize("in_eager", [True, False])
def test_wrong_gradient_is_caught(in_eager: bool) -> None:
    def wrong(x):
        return st.sum(st.stop_gradient(x) * x)

    with pytest.raises(AssertionError, match="derivative of order 1"):
        check_grads(wrong, (np.array([1.0, 2.0]),), in_eager=in_eager)


def test_golden_text_is_written_compared_and_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "a" / "it.c"
    with pytest.raises(AssertionError, match="no golden file"):
        check_golden("int a;\n", path)
    check_golden("int a;\n", path, update=True)
    check_golden("int a;\n", path)
    with pytest.raises(AssertionError, match="differs from"):
        check_golden("int b;\n", path)
    assert (tmp_path / "a" / "it.c.actual").read_text() == "int b;\n"
