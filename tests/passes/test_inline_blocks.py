"""Composites: through autodiff by their own derivative or their body's, then inlined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staged.ir.nodes import walk_ops
from staged.ir.types import TensorType, f64
from staged.ir.verifier import verify
from staged.ops.array import METHODS
from staged.ops.composite import COMPOSITES, composite
from staged.passes.inline_blocks import inline_composites
from tests.ir_interpreter import run
from tests.ir_programs import Program, check_gradients, function, gradients

V = TensorType(f64, (2, 3))
X = np.array([[0.3, -1.2, 2.0], [0.1, 0.2, 0.7]])


def names(made: Any) -> list[str]:
    return [op.name for op in walk_ops(made.block)]


def test_the_body_takes_the_place_of_the_op() -> None:
    before = function(lambda p, x: (METHODS["softmax"](x),), V)
    assert [op.name for op in before.block.ops] == ["composite"]
    after = inline_composites(before)
    verify(after, "inline_composites")
    assert "composite" not in names(after)
    np.testing.assert_array_equal(run(after, X), run(before, X))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sigmoid", "gelu", "relu", "silu", "logsumexp"])
def test_gradients_of_composites(name: str) -> None:
    weights = np.arange(6.0).reshape(2, 3) if name != "logsumexp" else np.array(1.5)
    check_gradients(lambda p, x: (METHODS["sum"](METHODS[name](x) * weights_of(p, weights)),), X)


def weights_of(p: Program, weights: Any) -> Any:
    return p.context.constant(weights, TensorType(f64, weights.shape))


def test_a_composite_with_a_rule_stays_one_op_through_autodiff() -> None:
    done, _ = gradients(lambda p, x: (METHODS["sum"](METHODS["softmax"](x) * x),), X)
    assert "composite" in names(done)


def test_a_composite_without_a_rule_is_differentiated_through_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(COMPOSITES, "cube_for_test", raising=False)

    @composite("cube_for_test")
    def cube(x: Any) -> Any:
        return x * x * x

    try:
        done = check_gradients(lambda p, x: (METHODS["sum"](cube(x)[0]),), X)
        assert "composite" not in names(done)
    finally:
        del COMPOSITES["cube_for_test"]


def test_composites_in_loops_and_branches() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, h: Any) -> Any:
            return p.if_(i < 2, lambda: (METHODS["softmax"](h) * x,), lambda: (METHODS["sigmoid"](h) + x,))

        (h,) = p.for_(4, [x], body)
        return (METHODS["sum"](h * h),)

    check_gradients(f, X)


def test_cross_entropy_with_labels() -> None:
    check_gradients(lambda p, x, y: (METHODS["cross_entropy"](x, y),), X, np.array([2, 0]))
