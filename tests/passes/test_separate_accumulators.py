"""Constants that a loop or a call changes in place are made for it alone."""

from __future__ import annotations

import numpy as np

from staged.ir.nodes import walk_ops
from staged.ir.types import TensorType, f64, i64
from staged.ir.verifier import verify
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.separate_accumulators import separate_accumulators
from staged.pipeline import build
from staged.system import target
from tests.ir_functions import Functions, define
from tests.ir_interpreter import run

VECTOR = TensorType(f64, (300,))


def main(p: Functions, n, x):
    (zero,) = p.handles(
        p.builder.op(
            "broadcast_to", p.values([p.constant(0.0)]), [VECTOR], attrs={"shape": (300,), "axes": ()}
        ).results
    )
    a, b = p.for_(n, [zero, zero], lambda loop, i, a, b: (a + x, b - x))
    return [a, b]


def test_two_sums_that_begin_with_one_constant_are_filled_and_not_copied():
    function = define("main", [TensorType(i64, (), True), VECTOR], main)
    made = eliminate_dead_code(separate_accumulators(function))
    verify(made, "separate_accumulators")
    assert sum(op.name == "broadcast_to" for op in walk_ops(made.block)) == 2
    x = np.linspace(0, 1, 300)
    np.testing.assert_array_equal(run(made, 3, x), run(function, 3, x))
    artifact = build(function, target("portable")).emitted.artifact
    assert "memcpy" not in artifact.source and artifact.arena_bytes == 0
