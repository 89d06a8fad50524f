"""Tracing again is cheap, counted in calls of functions: what a trace can know from earlier ones is not worked out anew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.ir.nodes import walk_ops
from staged.source import keep_lines, position_of_frame


def calls(run: Callable[[], object]) -> int:
    """The number of functions, of Python and of C, that `run` calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def traced_again(function: Any, *args: Any) -> int:
    for _ in range(2):
        function._trace(args, {})[1].reads.release()
    return calls(lambda: function._trace(args, {}))


def test_a_trace_takes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGED_VERIFY", raising=False)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        optimizer.step(grads)
        return loss

    # 14,000 and 659, after 27,000 and 1,170, with a little room. Halves and complex operands need 6 %, names 3 %.
    assert traced_again(step, np.ones((2, 8), np.float32), np.zeros(2, np.int32)) < 14_150
    assert traced_again(st.function(lambda x: x + 1.0), np.ones(3)) < 670


def test_a_chain_of_operators_takes_few_calls_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGED_VERIFY", raising=False)

    def chain(length: int) -> Any:
        def function(x: Any) -> Any:
            for _ in range(length):
                x = x * x
            return x

        return st.function(function)

    x = np.ones((2, 3), np.float32)
    each = (traced_again(chain(60), x) - traced_again(chain(10), x)) / 50
    assert each < 70  # 68 where it was 181; names of the library's variables need 6


def test_binding_a_staged_method_takes_few_calls() -> None:
    class Model:
        scale = 2.0

        @st.function
        def step(self, x: Any) -> Any:
            """Scale."""
            return x * self.scale

    model = Model()
    assert calls(lambda: model.step) < 10
    assert (model.step.__name__, model.step.__doc__, model.step.__wrapped__.__self__) == ("step", "Scale.", model)
    assert model.step._kept is Model.step._kept and model.step.options is Model.step.options
    other = Model()
    other.scale = 3.0
    x = np.ones(2, np.float32)
    for _ in range(2):
        assert model.step(x).tolist() == [2.0, 2.0] and other.step(x).tolist() == [3.0, 3.0]
    assert [use.calls for use in model.step.programs] == [2, 2]  # one for each object, traced once


def test_columns_are_counted_in_the_lines_that_are_kept() -> None:
    text = "def f(look):\n    return 'é', look()\n"
    names: dict[str, Any] = {}
    exec(compile(text, "<columns>", "exec"), names)

    def look() -> Any:
        return position_of_frame(sys._getframe(1))

    first = names["f"](look)[1]
    assert (first.line, first.column) == (2, 17)  # bytes, as long as the line is not known
    keep_lines("<columns>", text)
    for _ in range(2):
        assert names["f"](look)[1].column == 16


def test_what_a_composite_records_is_from_the_line_of_its_call_and_what_follows_from_its_own() -> None:
    def function(x: Any) -> Any:
        y = st.relu(x)
        z = y + 2.0
        return st.sum(z * z)

    traced = st.function(function)._trace((np.ones(3, np.float32),), {})[1]
    first = function.__code__.co_firstlineno
    found = {(op.name, op.where.line - first) for op in walk_ops(traced.function.block) if op.where is not None}
    (composite,) = (op for op in traced.function.block.ops if op.name == "composite")
    inside = {op.name for op in composite.blocks[0].ops}
    assert {(name, 1) for name in ("composite", *inside)} | {("add", 2), ("multiply", 3), ("sum", 3)} <= found
    assert {line for name, line in found if name in ("add", "multiply", "sum")} == {2, 3}


def test_a_model_whose_parts_change_their_mode_in_a_loop_is_not_traced_for_each_part():
    def train(parts):
        @st.function
        def run(xs):
            model = nn.Sequential(*(nn.Identity() for _ in range(parts)))
            total = 0.0
            for _ in st.range(3):
                model.train()
                for i in st.range(xs.shape[0]):
                    total += model(xs[i])
                model.eval()
                total += model(xs[0])
            return total

        return run

    xs = np.ones(4, np.float32)
    assert float(train(3)(xs)) == 15.0
    few, many = (calls(lambda n=n: train(n).stage(xs)) for n in (10, 40))
    assert many < 6 * few  # 4.0; with a trace of the loop for each part 14.9
