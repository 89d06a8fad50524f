"""`repr` shows values of arrays, Variables and optimisers; messages name values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.call.program import Report
from staged.errors import GradientError, ShapeError, UnknownAttributeError

X = np.ones((2, 4), np.float32)


def test_an_array_has_numpys_digits_and_its_dtype() -> None:
    assert repr(st.relu(np.array([-1.0, 2.123456789]))) == "Array([0.        , 2.12345679], dtype=f64)"
    assert repr(st.zeros((2, 1))) == "Array([[0.],\n       [0.]], dtype=f32)"
    assert repr(st.sum(X)) == "Array(8., dtype=f32)"
    assert str(st.zeros(2)) == "[0.0 0.0]"  # as the running program prints it


def test_a_variable_shows_its_first_values() -> None:
    assert repr(st.Variable(np.array([[1, 2]]), name="w")) == "Variable([[1, 2]], dtype=i64, name='w')"
    assert repr(st.Variable(3.0)) == "Variable(3., dtype=f32)"
    assert "..." in repr(st.Variable(np.arange(1000)))
    optimizer = optim.SGD(nn.Linear(4, 1).parameters(), lr=0.5)
    optim.lr_scheduler.StepLR(optimizer, 3)
    assert "0.5" in repr(optimizer.lr)


def test_an_optimizer_shows_its_options_as_torch_does() -> None:
    weight, bias = st.Variable(X, name="weight"), st.Variable(X[0], name="bias")
    groups = [{"params": [weight]}, {"params": [bias], "lr": 0.2}]
    lines = repr(optim.SGD(groups, lr=0.1, momentum=0.9)).splitlines()
    assert lines[:2] == ["SGD (", "Parameter Group 0"] and lines[-1] == ")"
    assert "    lr: 0.1" in lines and "    lr: 0.2" in lines and lines.count("    momentum: 0.9") == 2


def test_a_size_of_the_running_program_is_named() -> None:
    @st.function
    def made(n: Any) -> Any:
        return st.zeros(n)

    @st.function
    def more(n: Any) -> Any:
        return st.ones(n + 1)

    with pytest.raises(ShapeError, match="zeros needs sizes that are known while staging, got the argument `n`"):
        made(3)
    with pytest.raises(ShapeError, match="ones needs sizes .* got a value of the running program"):
        more(3)


def test_a_missing_argument_names_the_function() -> None:
    @st.function
    def step(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(TypeError, match=r"^step\(\) missing argument 'y'$"):
        step(X)


def test_a_gradient_by_a_module_is_by_its_parameters() -> None:
    model = nn.Linear(4, 1)
    with pytest.raises(GradientError, match="wrt=model"):
        st.value_and_grad(lambda model: st.sum(model(X)))(model)


@pytest.mark.parametrize(("name", "hint"), [("numpy", "return it"), ("backward", "value_and_grad"), ("nothing", None)])
def test_an_unknown_attribute_has_a_line(name: str, hint: str | None) -> None:
    @st.function
    def asks(x: Any) -> Any:
        return getattr(st.sum(x), name)()

    with pytest.raises(UnknownAttributeError, match=f"do not have an attribute '{name}'") as caught:
        asks(X)
    assert isinstance(caught.value, AttributeError) and caught.value.where is not None
    assert (caught.value.hint is None) if hint is None else (hint in str(caught.value.hint))


def test_staged_code_may_ask_whether_an_array_has_an_attribute() -> None:
    @st.function
    def asks(x: Any) -> Any:
        return x + 1.0 if hasattr(x, "no_such_name") else x - 1.0

    assert asks(X)[0, 0] == 0.0


def test_a_report_has_aligned_rows_and_the_slowest_steps() -> None:
    steps = {"emit": 0.012, "fuse": 0.0034, "place": 0.0001, "simplify": 0.02, "split": 0.0002, "outline": 0.001}
    assert str(Report(steps, 1234, 256, 3, ("a note",))).splitlines() == [
        "lines of code    1,234",
        "kernels              3",
        "working memory     256  bytes",
        "staging             37  ms",
        "  simplify          20  ms",
        "  emit              12  ms",
        "  fuse               3  ms",
        "  outline            1  ms",
        "  2 other steps      0  ms",
        "a note",
    ]
    assert "other" not in str(Report({"emit": 0.012}, 10, 0, 1))
    found = st.function(lambda x: x + 1.0).stage(X).report()
    assert str(found).count("\n") <= 8 and f"{found.lines:,}" in str(found)


def test_copies_are_a_table(emulated_device: Any) -> None:
    @st.function
    def doubled(x: Any, n: int) -> Any:
        with st.with_backend(st.GPU, x):
            y = x * 2.0
            for _ in st.range(n):
                print(st.sum(y), "is the sum of the array in this iteration of the loop")
                y = y + x
        return y

    copies = doubled.stage(X, 2).transfers()
    first = doubled.__wrapped__.__code__.co_firstlineno
    shown = 'print(st.sum(y), "is the sum of the array in this iterati...'
    assert str(copies).splitlines() == [
        "value      from  to   bytes  why               line",
        f"x          cpu   gpu     32  input             test_displays.py:{first + 3}  y = x * 2.0",
        f"st.sum(y)  gpu   cpu      4  print, in a loop  test_displays.py:{first + 5}  " + shown,
        f"y          gpu   cpu     32  result            test_displays.py:{first + 7}  return y",
    ]
    assert repr(copies) == str(copies) and isinstance(copies, tuple) and len(copies) == 3
    assert str(st.function(lambda x: x + 1.0).stage(X).transfers()) == "no copies"
