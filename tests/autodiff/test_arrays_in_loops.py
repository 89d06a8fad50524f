"""Loops that read and write arrays: the programs that others get wrong, and what they cost."""

from __future__ import annotations

import numpy as np

from staged.ir.nodes import walk_ops
from staged.ir.types import TensorType, f64
from staged.ir.verifier import verify
from staged.ops.array import METHODS
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.simplify import simplify
from tests.ir_interpreter import run
from tests.ir_programs import check_gradients, gradients

X = np.array([1.5, 2.0, 3.0, 0.5])


def test_product_of_elements_in_a_loop_bounded_at_run_time() -> None:
    """`a *= x[i]`: NVIDIA Warp 1.19 returns a wrong gradient for it."""

    def f(p, x, n):
        return p.for_(n, [p.constant(1.0)], lambda loop, i, a: (a * x[i],))

    _, (value, d_x) = gradients(f, X, np.int64(4), wrt=[0])
    assert value == 4.5
    np.testing.assert_allclose(d_x, [3, 2.25, 1.5, 9])


def test_sum_of_elements_squared_after_the_loop() -> None:
    def f(p, x, n):
        (total,) = p.for_(n, [p.constant(0.0)], lambda loop, i, a: (a + x[i],))
        return (total * total,)

    _, (_, d_x) = gradients(f, np.array([1.5, 2.0, 3.0, 1.0]), np.int64(4), wrt=[0])
    np.testing.assert_allclose(d_x, [15, 15, 15, 15])


def test_while_that_multiplies_by_an_element() -> None:
    def f(p, x):
        return p.while_([x[0]], lambda a: a < 100.0, lambda loop, a: (a * x[1],))

    check_gradients(f, X)


def test_rows_written_in_a_loop() -> None:
    def f(p, x):
        def body(loop, i, rows):
            return (METHODS["set_item"](rows, i, x * rows[i]),)

        (rows,) = p.for_(3, [METHODS["broadcast_to"](x, (3, 4))], body)
        return (METHODS["sum"](rows * rows),)

    check_gradients(f, X)


def test_recurrence_over_rows() -> None:
    """A small recurrent network: a matrix captured from outside, a state carried, inputs read by index."""

    def f(p, w, x):
        def body(loop, t, h):
            return (METHODS["tanh"](METHODS["matmul"](h, w) + x[t]),)

        (h,) = p.for_(3, [x[0]], body)
        return (METHODS["sum"](h * h),)

    generator = np.random.default_rng(0)
    check_gradients(f, generator.normal(size=(4, 4)) * 0.3, generator.normal(size=(3, 4)))


def test_elements_picked_by_an_index_array() -> None:
    def f(p, x):
        picked = METHODS["take"](x, p.context.constant((2, 0, 2), TensorType(_i64(), (3,))), axis=0)
        return (METHODS["sum"](picked * picked),)

    check_gradients(f, X)


def _i64():
    from staged.ir.types import i64

    return i64


def test_the_cotangent_of_an_element_is_added_in_place() -> None:
    """Adding a whole array per iteration would cost the square of its length."""

    def f(p, x):
        (total,) = p.for_(4, [p.constant(1.0)], lambda loop, i, a: (a * x[i],))
        return (total,)

    done, expected = gradients(f, X)
    clean = eliminate_dead_code(simplify(done))
    verify(clean)
    np.testing.assert_allclose(run(clean, X)[1], expected[1])
    loop = [op for op in walk_ops(clean.block) if op.name == "for"][1]
    whole = [op.name for op in walk_ops(loop.blocks[0]) if op.results and op.result.type == TensorType(f64, (4,))]
    assert whole == ["dynamic_update"]
    assert not [op for op in walk_ops(clean.block) if op.name == "index_check"]


def test_checks_are_made_by_the_primal_alone() -> None:
    def f(p, x, n):
        return p.for_(n, [p.constant(1.0)], lambda loop, i, a: (a * x[i],))

    done, _ = gradients(f, X, np.int64(4), wrt=[0])
    assert sum(bool(op.effects) for op in walk_ops(done.block)) == 1
