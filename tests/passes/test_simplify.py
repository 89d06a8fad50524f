"""Simplification: IR before, IR after, same values."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staged.ir.declaration import prims
from staged.ir.nodes import Function, walk_ops
from staged.ir.types import TensorType, bool_, f32, f64, i32, i64
from staged.ir.verifier import verify
from staged.library.elementwise.activations import gelu
from staged.ops import comparisons as c
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from staged.ops.checks import stop_unless
from staged.ops.choice import select
from staged.ops.context import bind
from staged.ops.primitive import PRIMITIVES
from staged.ops.promote import cast
from staged.ops.shape import pad
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.simplify import simplify
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import Leave, Program, function

F = TensorType(f64)
V = TensorType(f64, (3,))
M = TensorType(f64, (2, 3))
I = TensorType(i64)  # noqa: E741
B = TensorType(bool_)


def clean(f: Callable[..., Any], *types: TensorType) -> Function:
    """Simplified and without dead code, verified, with the same values on random arguments."""
    before = function(f, *types)
    simple = simplify(before)
    verify(simple, "simplify")
    after = eliminate_dead_code(simple)
    verify(after, "eliminate_dead_code")
    generator = np.random.default_rng(0)
    arguments = [np.asarray(generator.normal(size=t.shape) * 3).astype(t.dtype.numpy) for t in types]
    for old, new in zip(run(before, *arguments), run(after, *arguments), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6)
    return after


def names(f: Callable[..., Any], *types: TensorType) -> list[str]:
    return [op.name for op in walk_ops(clean(f, *types).block)]


NOTHING_LEFT = {
    "x + -0": lambda p, x: (x + -0.0,),
    "-0 + x": lambda p, x: (-0.0 + x,),
    "x - 0": lambda p, x: (x - 0.0,),
    "x * 1": lambda p, x: (x * 1.0,),
    "1 * x": lambda p, x: (1.0 * x,),
    "x / 1": lambda p, x: (x / 1.0,),
    "- - x": lambda p, x: (e.negative(-x),),
    "maximum(x, x)": lambda p, x: (e.maximum(x, x),),
    "permute twice": lambda p, x: (METHODS["permute"](METHODS["permute"](x, (1, 0)), (1, 0)),),
    "reshape there and back": lambda p, x: (METHODS["reshape"](METHODS["reshape"](x, (6,)), (2, 3)),),
    "slice of all": lambda p, x: (x[0:2, 0:3],),
    "select of same": lambda p, x: (select(x > 0.0, x, x),),
    "stop_gradient": lambda p, x: (METHODS["stop_gradient"](x),),
}


def test_what_is_known_outside_of_a_composite_is_made_again_in_it() -> None:
    """The body of a composite stands for itself: the number 0.5 in it is its own."""
    after = clean(lambda p, x: (x * 0.5, gelu(x)), M)
    (whole,) = (op for op in after.block.ops if op.name == "composite")
    halves = [op for op in walk_ops(after.block) if op.name == "constant" and op.attrs["value"] == 0.5]
    assert len(halves) == 2 and halves[1] in whole.blocks[0].ops


@pytest.mark.parametrize("case", NOTHING_LEFT)
def test_nothing_is_left(case: str) -> None:
    assert names(NOTHING_LEFT[case], M) == []


BECOMES = {
    "x + -y": (lambda p, x, y: (x + -y,), (M, M), ["subtract"]),
    "-x + y": (lambda p, x, y: (-x + y,), (M, M), ["subtract"]),
    "x - -y": (lambda p, x, y: (x - -y,), (M, M), ["add"]),
    "-x * -y": (lambda p, x, y: (-x * -y,), (M, M), ["multiply"]),
    "x + 0 stays, for -0": (lambda p, x: (x + 0.0, 0.0 + x), (F,), ["constant", "add", "add"]),
    "x - -0 stays, for -0": (lambda p, x: (x - -0.0,), (F,), ["constant", "subtract"]),
    "0 - x stays, for 0": (lambda p, x: (0.0 - x,), (F,), ["constant", "subtract"]),
    "-0 - x": (lambda p, x: (-0.0 - x,), (M,), ["negative"]),
    "integers: n + 0": (lambda p, n: (n + 0, 0 - n, -(0 - n)), (I,), ["negative"]),
    "x * -1": (lambda p, x: (x * -1.0,), (M,), ["negative"]),
    "-(x - y) stays, for equal ones": (lambda p, x, y: (-(x - y),), (M, M), ["subtract", "negative"]),
    "integers: -(n - m)": (lambda p, n, m: (-(n - m),), (I, I), ["subtract"]),
    "x / 4": (lambda p, x: (x / 4.0,), (F,), ["constant", "multiply"]),
    "x * 0 stays, for NaN": (lambda p, x: (x * 0.0,), (F,), ["constant", "multiply"]),
    "numbers": (lambda p, x: (x + (p.constant(2.0) * 3.0 - 1.0),), (F,), ["constant", "add"]),
    "equal ops": (lambda p, x: (e.exp(x) * e.exp(x),), (M,), ["exp", "multiply"]),
    "1 / 0 stays": (lambda p, x: (x + p.constant(1.0) / 0.0,), (F,), ["constant", "constant", "divide", "add"]),
    "cast to f32 and back stays": (lambda p, x: (cast(cast(x, f32), f64),), (M,), ["cast", "cast"]),
    "cast through a wider type": (
        lambda p, x: (cast(cast(x, i64), i32),),
        (TensorType(i32, (3,)),),
        [],
    ),
    "transpose into matmul": (
        lambda p, x, y: (METHODS["matmul"](METHODS["permute"](x, (1, 0)), y),),
        (M, M),
        ["matmul"],
    ),
    "moving an extent of one": (
        lambda p, x: (METHODS["permute"](x, (1, 0)),),
        (TensorType(f64, (1, 3)),),
        ["reshape"],
    ),
    "broadcast twice": (
        lambda p, x: (METHODS["broadcast_to"](METHODS["broadcast_to"](x, (2, 3)), (4, 2, 3)),),
        (V,),
        ["broadcast_to"],
    ),
    "n < n": (lambda p, n: (n < n, METHODS["less_equal"](n, n)), (I,), ["constant", "constant"]),
    "(n & 3) == 4": (lambda p, n: (METHODS["equal"](n & 3, 4), METHODS["not_equal"](4, 3 & n)), (I,), ["constant"] * 2),
    "(n | 3) == 4": (lambda p, n: (METHODS["equal"](n | 3, 4), METHODS["not_equal"](4, 3 | n)), (I,), ["constant"] * 2),
    "(n & 3) == 2 stays": (
        lambda p, n: (METHODS["equal"](n & 3, 2),),
        (I,),
        ["constant", "bitwise_and", "constant", "equal"],
    ),
    "x == x stays, for NaN": (lambda p, x: (METHODS["equal"](x, x),), (F,), ["equal"]),
    "not not": (lambda p, x: (select(c.logical_not(~(x > 0.0)), x, -x),), (F,), None),
    "pads side by side": (
        lambda p, x, y, z: (
            e.accumulate(pad(y, ((0, 0), (3, 3))), e.accumulate(pad(z, ((0, 0), (6, 0))), pad(x, ((0, 0), (0, 6))))),
        ),
        (M, M, M),
        None,
    ),
    "pieces of a split, put together": (
        lambda p, x, y, z: (
            e.accumulate(e.accumulate(pad(z, ((0, 0), (6, 0))), pad(y, ((0, 0), (3, 3)))), pad(x, ((0, 0), (0, 6)))),
        ),
        (M, M, M),
        ["concat"],
    ),
    "pads with a gap stay": (
        lambda p, x, y: (e.accumulate(pad(x, ((0, 0), (0, 6))), pad(y, ((0, 0), (6, 0)))),),
        (M, M),
        ["pad", "pad", "add"],
    ),
    "pads along other axes stay": (
        lambda p, x, y: (
            e.accumulate(e.accumulate(pad(x, ((0, 2), (0, 0))), pad(y, ((2, 0), (0, 0)))), pad(y, ((1, 1), (0, 0)))),
        ),
        (M, M),
        ["concat", "pad", "add"],
    ),
    "sum of what was repeated": (
        lambda p, x: (METHODS["sum"](METHODS["broadcast_to"](x, (4, 3)), axis=0),),
        (V,),
        ["constant", "broadcast_to", "multiply", "constant", "broadcast_to", "add"],
    ),
}


@pytest.mark.parametrize("case", BECOMES)
def test_becomes(case: str) -> None:
    f, types, expected = BECOMES[case]
    found = names(f, *types)
    if expected is not None:
        assert found == expected


def test_equal_numbers_of_different_kinds_stay_apart() -> None:
    def f(p: Program, x: Any) -> Any:
        one = p.constant(1, TensorType(i64))
        true = p.constant(True, TensorType(bool_))
        return x + 1.0, one, true, p.constant(0.0), p.constant(-0.0)

    after = clean(f, F)
    assert np.signbit(run(after, 0.0)[4]) and not np.signbit(run(after, 0.0)[3])


def test_effects_are_neither_merged_nor_moved() -> None:
    def f(p: Program, x: Any) -> Any:
        p.print_(x)
        p.print_(x)
        return (x * 2.0,)

    before = function(f, F)
    after = eliminate_dead_code(simplify(before))
    interpreter = Interpreter()
    interpreter.run(after, 3.0)
    assert interpreter.output == [(3.0,), (3.0,)]


def test_what_one_branch_computes_is_not_used_in_the_other() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        (a,) = p.if_(c, lambda: (e.exp(x),), lambda: (e.exp(x) * 2.0,))
        return (a + e.exp(x),)

    assert names(f, F, B).count("exp") == 3


def test_what_is_there_before_a_block_is_used_inside() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        y = e.exp(x)
        (a,) = p.if_(c, lambda: (e.exp(x),), lambda: (e.exp(x) * 2.0,))
        return (a + y,)

    assert names(f, F, B).count("exp") == 1


def test_a_known_condition_takes_its_branch() -> None:
    def f(p: Program, x: Any) -> Any:
        true = p.constant(True, B)
        (a,) = p.if_(true, lambda: (e.exp(x),), lambda: (e.sin(x),))
        return (a,)

    assert names(f, F) == ["exp"]


def test_a_result_that_both_branches_agree_on() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        y = e.exp(x)
        a, b, d = p.if_(c, lambda: (y, x * 2.0, x * 2.0), lambda: (y, e.sin(x), e.sin(x)))
        return (a + b + d,)

    after = clean(f, F, B)
    (branch,) = [op for op in walk_ops(after.block) if op.name == "if"]
    assert len(branch.results) == 1


def test_a_loop_that_never_runs() -> None:
    assert names(lambda p, x: p.for_(0, [x], lambda loop, i, a: (e.exp(a),)), F) == []


def test_a_carried_value_that_never_changes() -> None:
    def f(p: Program, x: Any, y: Any, n: Any) -> Any:
        a, b = p.for_(n, [x, y], lambda loop, i, a, b: (e.sin(a) * b, b))
        return (a * b,)

    after = clean(f, F, F, I)
    (loop,) = [op for op in walk_ops(after.block) if op.name == "for"]
    assert len(loop.results) == 1


def test_an_index_within_bounds_needs_no_check() -> None:
    x = TensorType(f64, (8,))

    def f(p: Program, x: Any) -> Any:
        return p.for_(6, [p.constant(0.0)], lambda loop, i, a: (a + x[i] * x[i + 1] * x[7 - i],), start=1)

    assert "index_check" not in names(f, x)


def test_an_index_that_may_be_out_of_bounds_keeps_its_check() -> None:
    x = TensorType(f64, (8,))

    def f(p: Program, x: Any) -> Any:
        return p.for_(8, [p.constant(0.0)], lambda loop, i, a: (a + x[i - 1],))

    assert "index_check" in names(f, x)


def test_a_check_that_an_equal_one_has_made_before_is_not_made_again() -> None:
    def f(p: Program, x: Any, i: Any, c: Any) -> Any:
        first = x[i]
        (a,) = p.if_(c, lambda: (x[i] * 2.0,), lambda: (x[i + 1],))
        return (a + first,)

    assert names(f, TensorType(f64, (8,)), I, B).count("index_check") == 2


def test_a_condition_is_not_asserted_again() -> None:
    def f(p: Program, x: Any) -> Any:
        for message in ("not negative", "not negative", "another"):
            stop_unless(x * x >= 0.0, message)
        return (x,)

    assert names(f, V).count("assert") == 1


def test_a_small_part_is_added_at_its_place() -> None:
    x = TensorType(f64, (40,))

    def f(p: Program, x: Any, u: Any) -> Any:
        return (e.accumulate(x, METHODS["pad"](u, [(3, 33)])),)

    assert "pad" not in names(f, x, TensorType(f64, (4,)))
    assert "pad" in names(lambda p, x, u: (x + METHODS["pad"](u, [(3, 17)]),), x, TensorType(f64, (20,)))


def test_one_element_is_written_at_its_place() -> None:
    assert "pad" not in names(lambda p, u: (METHODS["pad"](u, [(3, 2)]),), TensorType(f64, (1,)))


def test_division_by_a_known_number_cannot_fail() -> None:
    def f(p: Program, n: Any) -> Any:
        return (n // 3 + n % 5,)

    after = clean(f, I)
    assert not [op for op in walk_ops(after.block) if op.effects]
    unknown = clean(lambda p, n, m: (n // (m * m + 1),), I, I)
    assert [op for op in walk_ops(unknown.block) if op.effects]


def test_a_planted_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from staged.passes import algebra

    monkeypatch.setitem(algebra.RULES, prims.EXP, [lambda op, emit: op.operands[0]])
    with pytest.raises(AssertionError, match="Not equal"):
        clean(lambda p, x: (e.exp(x),), F)


def test_what_an_array_of_a_python_number_holds_adopts_no_dtype() -> None:
    number = TensorType(f64, (), weak=True)

    def op(name: str, x: Any, **attrs: Any) -> Any:
        return bind(PRIMITIVES[name], [x], **attrs)

    def body(p: Program, x: Any) -> Any:
        return (
            op("reshape", op("reshape", x, shape=(1, 1)), shape=()),
            op("broadcast_to", x, shape=(), axes=()),
            op("sum", op("broadcast_to", x, shape=(3,), axes=()), axes=(0,)),
            op("slice", x, start=(), stop=(), step=()),
            op("pad", x, low=(), high=(), value=0.0),
            op("sum", x, axes=()),
            op("max", op("reshape", x, shape=(1,)), axes=(0,)),
        )

    before = function(body, number)
    after = simplify(before)
    verify(after)
    assert [r.type for r in after.block.end.operands] == [r.type for r in before.block.end.operands]
    assert [float(r) for r in run(after, 2.5)] == [2.5, 2.5, 7.5, 2.5, 2.5, 2.5, 2.5]


def test_time_grows_with_the_program() -> None:
    def f(count: int) -> Callable[..., Any]:
        def body(p: Program, x: Any) -> Any:
            for _ in range(count):
                x = e.sin(x) * 1.0 + x
            return (x,)

        return body

    def seconds(traced: Function) -> float:
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()  # other work on the machine does not count
            simplify(traced)
            best = min(best, time.process_time() - begin)
        return best

    small, large = seconds(function(f(100), F)), seconds(function(f(1000), F))
    assert large < 30 * small


@settings(max_examples=60)
@given(st.data())
def test_random_straight_programs_keep_their_values(data: st.DataObject) -> None:
    """Small numbers that the rules look for (0, 1, -1) on purpose."""

    def f(p: Program, x: Any, y: Any) -> Any:
        values = [x, y, p.constant(0.0), p.constant(1.0), p.constant(-1.0)]
        for _ in range(data.draw(st.integers(1, 12))):
            name = data.draw(st.sampled_from(["add", "subtract", "multiply", "negative", "maximum", "select", "sin"]))
            chosen = [values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2)]
            if name in ("negative", "sin"):
                values.append(METHODS[name](chosen[0]))
            elif name == "select":
                values.append(select(chosen[0] > chosen[1], chosen[0], chosen[1]))
            else:
                values.append(METHODS[name](*chosen))
        return (values[-1], values[-2])

    clean(f, F, F)


def test_division_by_zero_that_is_known_still_stops_the_program() -> None:
    after = eliminate_dead_code(simplify(function(lambda p, n: (n // 0, n % 0), I)))
    assert [op.name for op in walk_ops(after.block) if op.effects] == ["floor_divide", "remainder"]


def test_concats_along_different_axes_stay() -> None:
    def f(p: Program, x: Any, u: Any) -> Any:
        wide, tall = METHODS["concat"]([x, x], axis=1), METHODS["concat"]([u, u], axis=0)
        return (METHODS["concat"]([wide, tall], axis=1),)

    assert names(f, M, TensorType(f64, (1, 3))) == ["concat", "concat"]


def test_an_index_one_behind_the_end_keeps_its_check() -> None:
    x = TensorType(f64, (8,))

    def f(p: Program, x: Any) -> Any:
        return p.for_(8, [p.constant(0.0)], lambda loop, i, a: (a + x[i + 1],))

    before = function(f, x)
    assert "index_check" in [op.name for op in walk_ops(simplify(before).block)]


def test_a_moved_batch_is_no_transpose_of_matrices() -> None:
    x = TensorType(f64, (3, 3, 3))

    def f(p: Program, x: Any) -> Any:
        return tuple(
            METHODS["matmul"](METHODS["permute"](x, axes), x) for axes in ((2, 1, 0), (1, 0, 2), (1, 2, 0), (2, 0, 1))
        )

    assert names(f, x).count("permute") == 4


def test_a_carried_value_that_one_way_leaves_with_another_value_is_carried() -> None:
    def f(p: Program, x: Any, c: Any) -> Any:
        def turn(loop: Any, i: Any, a: Any, b: Any) -> Any:
            p.if_(c, lambda: Leave("break", loop, (a, b + 1.0)), lambda: ())
            return a + b, b

        return p.for_(3, [x, x], turn)

    before = function(f, F, B)
    after = eliminate_dead_code(simplify(before))
    for flag in (False, True):
        assert run(before, 2.0, flag) == run(after, 2.0, flag)
    assert run(after, 2.0, True) == [2.0, 3.0]


def test_a_loop_that_collects_nothing_has_its_empty_sequence() -> None:
    def f(p: Program, x: Any, n: Any) -> Any:
        a, b = p.for_(n, [x, x], lambda loop, i, a, b: (a * 2.0, a * 2.0))
        return a, b

    before = function(f, F, I)
    after = simplify(before)
    for turns in (0, 1, 3):
        assert run(before, 1.5, turns) == run(after, 1.5, turns)
