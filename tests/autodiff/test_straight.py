"""Gradients of straight code, and what the differentiated IR looks like."""

from __future__ import annotations

import numpy as np
import pytest

from staged.autodiff.fulfil import fulfil_transforms
from staged.errors import GradientError
from staged.ir.builder import Builder
from staged.ir.declaration import Declaration
from staged.ir.nodes import walk_ops
from staged.ir.types import CPU, Device, TensorType, f64, i64
from staged.ops import elementwise as e
from staged.ops.context import use_context
from staged.ops.primitive import PRIMITIVES
from staged.ops.record import RecordContext
from staged.source import Position
from tests.ir_interpreter import run
from tests.ir_programs import Program, check_gradients, function, gradients, plain

F = TensorType(f64)
X = np.array([0.3, -1.2, 2.0])


def test_a_value_used_twice_gets_both_cotangents() -> None:
    check_gradients(lambda p, x, y: (e.exp(x) * y + x * x,), 0.5, 2.0)


def test_an_input_that_is_not_used_has_gradient_zero() -> None:
    _, (_, d_x, d_y) = gradients(lambda p, x, y: (x * 3.0,), 0.5, X)
    assert d_x == 3.0
    np.testing.assert_array_equal(d_y, np.zeros(3))


def test_the_loss_may_be_an_argument() -> None:
    _, (loss, d_x) = gradients(lambda p, x: (x,), 0.5)
    assert (loss, d_x) == (0.5, 1.0)


def test_integers_have_no_gradient_and_do_not_stop_it() -> None:
    def f(p: Program, x: object, n: object) -> object:
        return (x * PRIMITIVES_cast(n),)

    def PRIMITIVES_cast(n: object) -> object:
        from staged.ops.promote import cast

        return cast(n, f64)

    check_gradients(f, 0.5, np.int64(3))


def test_outputs_besides_the_loss_come_along() -> None:
    _, (loss, aux, d_x) = gradients(lambda p, x: (x * x, x + 1.0), 3.0)
    assert (loss, aux, d_x) == (9.0, 4.0, 6.0)


def test_with_respect_to_an_integer_is_refused() -> None:
    with pytest.raises(GradientError, match="with respect to `n`: it is i64"):
        gradients(lambda p, x, n: (x * 1.0,), 0.5, np.int64(3), wrt=[0, 1])


def test_an_op_without_a_derivative_is_refused_with_the_line() -> None:
    where = Position("train.py", 7, 4, 7, 9, "loss")
    builder = Builder()
    context = RecordContext(builder, locate=lambda: where)
    program = Program()
    program.builder, program.context = builder, context

    def body(x: object) -> object:
        return program.op(Declaration(name="bits_of", kind="structured"), [x], [F], where=where)

    with use_context(context), builder.block([F], ["x"]) as opened:
        results = program.vjp(body, program.handles(opened.params), [0])
        builder.end("return", program.values(results))
    from staged.ir.nodes import Function

    with pytest.raises(GradientError, match="cannot differentiate through `bits_of`") as caught:
        fulfil_transforms(Function("f", opened.block))
    assert caught.value.where == where
    assert "stop_gradient" in str(caught.value)


def test_cotangents_are_named_after_their_primal() -> None:
    def f(p: Program, x: object, y: object) -> object:
        h = x * y
        p.values([h])[0].hint = "h"
        return (e.exp(h),)

    done, _ = gradients(f, 0.5, 2.0)
    hints = {value.hint for op in walk_ops(done.block) for value in op.results}
    assert {"d_h", "d_x", "d_y"} <= hints


def test_reverse_ops_have_the_position_and_device_of_their_primal() -> None:
    where = Position("train.py", 7, 4, 7, 9, "loss")
    gpu = Device("gpu")

    def f(p: Program, x: object) -> object:
        (y,) = p.op("exp", [x], [F], where=where, device=gpu)
        return (y * 1.0,)

    done, _ = gradients(f, 0.5)
    (reverse,) = [op for op in walk_ops(done.block) if op.name == "multiply" and op.device == gpu]
    assert reverse.where == where
    assert {op.device for op in walk_ops(done.block)} == {CPU, gpu}


def test_nothing_of_the_transform_is_left() -> None:
    done, _ = gradients(lambda p, x: (x * x,), 0.5)
    assert not [op for op in walk_ops(done.block) if op.name == "vjp"]


def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker of this file can fail."""
    monkeypatch.setitem(vars(PRIMITIVES["exp"]), "vjp", lambda ct, y, x: [ct * x])
    with pytest.raises(AssertionError, match="Not equal"):
        check_gradients(lambda p, x: (e.exp(x),), 0.5)


def test_the_primal_is_evaluated_once() -> None:
    from tests.ir_interpreter import Interpreter

    done, _ = gradients(lambda p, x: (e.exp(e.exp(x)),), 0.5)
    interpreter = Interpreter()
    interpreter.run(done, 0.5)
    assert interpreter.executed["exp"] == 2


def test_prints_happen_once_and_in_order() -> None:
    from tests.ir_interpreter import Interpreter

    def f(p: Program, x: object) -> object:
        p.print_(x)
        y = x * x
        p.print_(y)
        return (y,)

    done, _ = gradients(f, 3.0)
    interpreter = Interpreter()
    interpreter.run(done, 3.0)
    assert interpreter.output == [(3.0,), (9.0,)]


def test_gradient_of_a_gradient() -> None:
    def f(p: Program, x: object) -> object:
        def slope(a: object) -> object:
            return (p.vjp(lambda b: (e.sin(b) * b,), [a], [0])[1],)

        return p.vjp(slope, [x], [0])

    first, second = run(plain(function(f, F)), 0.7)
    np.testing.assert_allclose(first, np.cos(0.7) * 0.7 + np.sin(0.7))
    np.testing.assert_allclose(second, 2 * np.cos(0.7) - 0.7 * np.sin(0.7))


def test_no_perturbation_confusion() -> None:
    """d/dx (x * d/dy (x + y)) is 1, not 2."""

    def f(p: Program, x: object) -> object:
        def outer(a: object) -> object:
            y = p.constant(1.0)
            return (a * p.vjp(lambda b: (a + b,), [y], [0])[1],)

        return p.vjp(outer, [x], [0])

    assert run(plain(function(f, F)), 3.0)[1] == 1.0


def test_counts_are_not_differentiated() -> None:
    done, _ = gradients(lambda p, x, n: (x * x,), 2.0, np.int64(1), wrt=[0])
    assert all(value.type != TensorType(i64) for op in walk_ops(done.block) for value in op.results)
