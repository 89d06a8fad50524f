"""The values that are kept for the reverse, and those that are not: memory is the price of reverse mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staged.ir.nodes import Function, walk_ops
from staged.ir.types import FrameType, SequenceType, TensorType, f64, i64
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from staged.ops.shape import slice_axis
from tests.ir_programs import Program, check_gradients, function

F = TensorType(f64)
N = TensorType(i64)
V = TensorType(f64, (3,))
W = TensorType(f64, (3, 3))
X = np.array([0.3, -1.2, 2.0])
matmul, total = METHODS["matmul"], METHODS["sum"]


def weights(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(3, 3))


def collected(done: Function) -> list[SequenceType]:
    """The types of all that loops collect."""
    found = []
    for op in walk_ops(done.block):
        if op.name in ("for", "while") and op.attrs.get("collected"):
            found += [result.type for result in op.results if isinstance(result.type, SequenceType)]
    return found


@pytest.mark.parametrize("n", [0, 1, 4])
def test_what_every_iteration_computes_alike_is_made_again_once(n: int) -> None:
    def f(p: Program, x: Any, w: Any, n: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            return (e.tanh(matmul(a, e.exp(matmul(w, w)))) + x,)

        (a,) = p.for_(n, [x], body)
        return (total(a * a),)

    done = check_gradients(f, X, weights() * 0.3, np.int64(n))
    assert SequenceType(W) not in collected(done) and SequenceType(TensorType(f64, (1, 3))) not in collected(done)
    _, reverse = [op for op in walk_ops(done.block) if op.name == "for"]
    inside = [op.name for op in walk_ops(reverse.blocks[0])]
    assert "exp" not in inside
    assert [op.name for op in done.block.ops].count("exp") == 1


def test_a_carried_value_and_the_next_one_are_not_both_kept() -> None:
    def f(p: Program, x: Any, w: Any) -> Any:
        (h,) = p.for_(4, [x], lambda loop, i, h: (e.tanh(matmul(h, w)),))
        return (total(h * h),)

    done = check_gradients(f, X, weights())
    assert collected(done) == [SequenceType(V, 4)]


@pytest.mark.parametrize(
    ("bounds", "kept"), [([(0, 3), (3, 6)], [6]), ([(0, 3), (2, 5)], [6]), ([(0, 3), (0, 3)], [3, 3])]
)
def test_slices_are_kept_as_their_array_if_they_are_as_large(bounds: list[tuple[int, int]], kept: list[int]) -> None:
    def f(p: Program, x: Any, w: Any) -> Any:
        def body(loop: Any, i: Any, h: Any) -> Any:
            (a, b), all_ = bounds, matmul(h, w)
            return (slice_axis(all_, 0, *a) * slice_axis(all_, 0, *b) + 0.1,)

        (h,) = p.for_(4, [x * 0.1], body)
        return (total(h * h),)

    done = check_gradients(f, X, np.concatenate([weights(), weights(1)], axis=1) * 0.3)
    assert sorted(each.element.shape for each in collected(done)) == [(3,), *((size,) for size in kept)]


def test_nor_those_of_a_while_in_a_loop() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            return p.while_([a], lambda b: b < 5.0, lambda loop, b: (e.exp(b * x),))

        (a,) = p.for_(2, [x], lambda loop, i, a: (body(loop, i, a)[0] * 0.1,))
        return (a,)

    done = check_gradients(f, 1.2)
    inner = [t for t in collected(done) if t.bound is None]
    assert len(inner) == 1


def test_rows_are_read_again_by_their_index() -> None:
    def f(p: Program, x: Any, rows: Any) -> Any:
        def body(loop: Any, i: Any, a: Any, node: Any) -> Any:
            (b,) = p.if_(node > 1, lambda: (total(rows[node] * a * a),), lambda: (a,))
            return b, (node * 2 + 1) % 4

        a, _ = p.for_(3, [x, p.constant(1)], body)
        return (a,)

    done = check_gradients(f, 0.4, np.random.default_rng(0).normal(size=(4, 3)))
    assert not any(getattr(t.element, "shape", None) for t in collected(done))


def test_frames_hold_no_rows_of_shared_arrays() -> None:
    def g(p: Program, node: Any, child: Any, x: Any, w: Any) -> Any:
        def more() -> Any:
            (h,) = p.call("g", [child[node], child, x, w], [V])
            return (e.tanh(matmul(h, w) * x[node]),)

        return p.if_(node < 0, lambda: (METHODS["broadcast_to"](p.constant(0.5), (3,)),), more)

    def f(p: Program, node: Any, child: Any, x: Any, w: Any) -> Any:
        (h,) = p.call("g", [node, child, x, w], [V])
        return (total(h),)

    types = [N, TensorType(i64, (3,)), W, W]
    child = np.array([1, 2, -1])
    done = check_gradients(
        f, np.int64(0), child, weights(1), weights(2), functions=[function(g, *types, name="g")]
    )
    (record,) = done.frames
    assert sorted(str(type) for _, type in record.fields if not isinstance(type, FrameType)) == [
        "bool ()",
        "f64 (1, 3)",  # the product
        "f64 (3,)",  # what it is the product of
        "f64 (3,)",  # the tanh
        "i64 ()",
    ]


@pytest.mark.parametrize("x", [0.4, -0.4])
def test_a_branch_makes_nothing_for_what_only_the_reverse_of_the_other_reads(x: float) -> None:
    def f(p: Program, x: Any, v: Any) -> Any:
        one = lambda: (total(e.tanh(e.exp(v * x))),)  # noqa: E731
        (y,) = p.if_(x < 0.0, one, lambda: (total(e.sin(e.log(v * v + x))) * x,))
        return (y * y,)

    done = check_gradients(f, x, X)
    decision = next(op for op in walk_ops(done.block) if op.name == "if")
    for block, other in zip(decision.blocks, decision.blocks[::-1], strict=True):
        assert any(op.name == "absent" for op in block.ops)
        for mine, theirs in zip(block.end.operands, other.end.operands, strict=True):
            assert mine.producer is not None and theirs.producer is not None
            assert not (mine.producer.name == "absent" == theirs.producer.name)
            assert mine.producer.name != "broadcast_to" or mine.type != V
