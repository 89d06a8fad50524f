"""Equal loops and branches: merged where one computes what the other does, with the same bits; else left alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.functions import map_functions
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.types import TensorType, bool_, f64
from staged.ir.verifier import verify
from staged.ops import comparisons as c
from staged.ops import elementwise as e
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.merge_loops import merge_loops
from staged.passes.simplify import simplify
from staged.pipeline import PASSES
from tests.frontend.harness import combined, gradient_of
from tests.gradients.harness import PROGRAMS
from tests.gradients.programs import exits, loops
from tests.ir_interpreter import Interpreter, run
from tests.ir_programs import Program, function, plain

F = TensorType(f64)
B = TensorType(bool_)


def merged(before: Function, *arguments: Any) -> Function:
    """The program after the pass, which has the same results to the bit."""
    after = map_functions(map_functions(before, simplify), merge_loops)
    verify(after, "merge_loops")
    first, second = Interpreter(), Interpreter()
    for found, expected in zip(second.run(after, *arguments), first.run(before, *arguments), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert second.output == first.output
    return map_functions(after, eliminate_dead_code)


def check(f: Callable[..., Any], *arguments: Any) -> Function:
    return merged(function(f, *(B if isinstance(a, bool) else F for a in arguments)), *arguments)


def ops(after: Function, *names: str) -> list[Op]:
    return [op for op in walk_ops(after.block) if op.name in names]


def grow(p: Program, x: Any, by: Any, factor: float = 1.5) -> list[Any]:
    """`a` grows until 100; (a, the sum of its values, the number of iterations)."""

    def body(loop: Any, a: Any, total: Any, trips: Any) -> Any:
        return a * factor + by, total + a, trips + p.constant(1)

    return p.while_((x, p.constant(0.0), p.constant(0)), lambda a, *_: a < p.constant(100.0), body)


def test_equal_loops_run_once() -> None:
    def f(p: Program, x: Any, y: Any) -> Any:
        return (grow(p, x, y)[0] + e.exp(x), grow(p, x, y)[1])

    assert len(ops(check(f, 1.0, 2.0), "while")) == 1


def test_loops_that_differ_in_a_number_a_start_or_a_condition_run_twice() -> None:
    def number(p: Program, x: Any, y: Any) -> Any:
        return (grow(p, x, y)[0], grow(p, x, y, 1.25)[0])

    def start(p: Program, x: Any, y: Any) -> Any:
        return (grow(p, x, y)[0], grow(p, x + y, y)[0])

    def condition(p: Program, x: Any, y: Any) -> Any:
        def until(limit: float) -> Any:
            return p.while_((x,), lambda a: a < p.constant(limit), lambda loop, a: (a * 1.5 + y,))[0]

        return (until(100.0), until(101.0))

    for each in (number, start, condition):
        assert len(ops(check(each, 1.0, 2.0), "while")) == 2


def test_of_carried_values_that_begin_alike_those_are_equal_that_go_on_alike() -> None:
    def f(p: Program, x: Any) -> Any:
        zero = p.constant(0.0)

        def first(loop: Any, i: Any, a: Any, b: Any, d: Any) -> Any:
            return a + x, b + a, d + b

        def second(loop: Any, i: Any, d: Any, a: Any, b: Any) -> Any:  # the same in another order
            return d + b, a + x, b + a

        one, two = p.for_(5, (zero,) * 3, first), p.for_(5, (zero,) * 3, second)
        return (*one, *two)

    after = check(f, 1.5)
    (loop,) = ops(after, "for")
    assert len(loop.results) == 3
    assert list(run(after, np.asarray(1.5))) == [7.5, 15.0, 15.0, 15.0, 7.5, 15.0]


def test_a_loop_that_also_counts_takes_the_place_of_one_that_does_not() -> None:
    def f(p: Program, x: Any, y: Any) -> Any:
        def body(loop: Any, a: Any) -> Any:
            return (a * 1.5 + y,)

        (plain,) = p.while_((x,), lambda a: a < p.constant(100.0), body)
        counted = p.while_(
            (x, p.constant(0)),
            lambda a, n: a < p.constant(100.0),
            lambda loop, a, n: (a * 1.5 + y, n + p.constant(1)),
        )
        return (plain, *counted)

    assert len(ops(check(f, 1.0, 2.0), "while")) == 1


def test_loops_of_the_same_length_that_compute_different_things_stay_apart() -> None:
    def f(p: Program, x: Any) -> Any:
        return (
            *p.for_(5, (x,), lambda loop, i, a: (a * x,)),
            *p.for_(5, (x,), lambda loop, i, a: (a + x,)),
        )

    assert len(ops(check(f, 1.5), "for")) == 2


def test_a_loop_that_needs_a_later_value_stays_where_it_is() -> None:
    def f(p: Program, x: Any) -> Any:
        (one,) = p.for_(5, (x,), lambda loop, i, a: (a * x,))
        (two,) = p.for_(5, (one,), lambda loop, i, a: (a * x,))
        return one, two

    assert len(ops(check(f, 1.5), "for")) == 2


def test_loops_that_print_run_twice() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, a: Any) -> Any:
            p.print_(a)
            return (a * x,)

        return (*p.for_(2, (x,), body), *p.for_(2, (x,), body))

    assert len(ops(check(f, 1.5), "print")) == 2


def test_a_chain_of_equal_loops_is_merged_link_by_link() -> None:
    def f(p: Program, x: Any, y: Any) -> Any:
        def chain() -> Any:
            a = grow(p, x, y)[1]
            return grow(p, e.sqrt(a) * 0.01, y)[0]

        return (chain(), chain() * 2.0)

    assert len(ops(check(f, 1.0, 2.0), "while")) == 2


def test_equal_branches_are_taken_once_and_yield_for_both() -> None:
    def f(p: Program, x: Any, on: Any) -> Any:
        a, b = p.if_(on, lambda: (e.exp(x), x), lambda: (x, e.sin(x)))
        d, g = p.if_(on, lambda: (x, e.exp(x) + 0.0), lambda: (e.sin(x), x))
        return a, b, d, g

    for on in (True, False):
        assert len(ops(check(f, 0.5, on), "if")) == 1


def test_branches_of_merged_loops_yield_what_either_needs() -> None:
    def f(p: Program, x: Any, y: Any) -> Any:
        def flight(keeps: bool) -> Any:
            def body(loop: Any, a: Any, total: Any) -> Any:
                def high() -> Any:
                    root = e.sqrt(a)
                    return (a + root, root) if keeps else (a + root, e.exp(root) * 0.0 + root)

                step, kept = p.if_(c.greater(a, p.constant(10.0)), high, lambda: (a + y, p.constant(0.0)))
                return step, total + (kept if keeps else step * 0.0 + kept)

            return p.while_((x, p.constant(0.0)), lambda a, t: a < p.constant(100.0), body)

        return (*flight(True), *flight(True))

    after = check(f, 1.0, 2.0)
    assert len(ops(after, "while")) == 1
    assert len(ops(after, "if")) == 1


def test_two_derivatives_of_a_loop_share_its_forward_pass() -> None:
    def body(p: Program, x: Any, y: Any) -> Any:
        a, total, _ = grow(p, x, y)
        return a, total

    def f(p: Program, x: Any, y: Any) -> Any:
        one = p.vjp(lambda x, y: (body(p, x, y)[0],), (x, y), (0, 1))
        two = p.vjp(lambda x, y: (e.square(body(p, x, y)[1]),), (x, y), (0, 1))
        return (*one, *two, *body(p, x, y))

    after = merged(plain(function(f, F, F)), np.asarray(1.0), np.asarray(2.0))
    assert len(ops(after, "while")) == 1
    assert len(ops(after, "for")) == 2  # each has its reverse


# ---- programs -----------------------------------------------------------------------------------


LOOPS = {name: entry for name, entry in PROGRAMS.items() if entry.function.__module__ in (exits.__name__, loops.__name__)}


@pytest.mark.parametrize("entry", LOOPS.values(), ids=list(LOOPS))
def test_a_program_and_two_derivatives_keep_their_bits(entry: Any) -> None:
    def value(*args: Any) -> Any:
        return combined(entry.function(*args))

    def together(*args: Any) -> Any:
        return value(*args), [gradient_of(f, entry.wrt)(*args) for f in (value, lambda *args: st.square(value(*args)))]

    point = entry.points[0]
    traced = st.function(together).stage(*point)._traced
    before = traced.function
    for name, run_pass in PASSES:
        if name == "merge loops":
            break
        before = run_pass(before)
    after = merged(before, *(given for given in point if not isinstance(given, bool)), *traced.hidden)
    left, derivatives = loops_of(after), [op for op in loops_of(before) if op.where and op.where.phase == "backward"]
    if all(not op.effects for op in walk_ops(before.block)) and entry.function.__name__ in ONE_LOOP:
        assert len(left) == len(derivatives) + 1


ONE_LOOP = ("nonlinear_recurrence", "power_sum_with_the_index", "loop_invariant_used_in_each_turn", "counting_down_in_steps")


def loops_of(function: Function) -> list[Op]:
    return [op for op in function.block.ops if op.declared.is_loop]


@pytest.mark.parametrize("seed", range(30))
def test_random_pairs_of_loops_keep_their_bits(seed: int) -> None:
    """Two loops that are equal but for at most one change, with branches and inner loops."""
    chance = random.Random(seed)

    def build(p: Program, given: list[Any], plan: random.Random, depth: int) -> list[Any]:
        values = list(given)
        for _ in range(plan.randint(1, 4)):
            kind = plan.choice("abcif")
            left, right = plan.choice(values), plan.choice(values)
            if kind == "i" and depth:
                given = (list(values), left, right)
                values += p.if_(
                    c.less(left, right),
                    lambda given=given: build(p, given[0], plan, depth - 1)[-2:],
                    lambda given=given: given[1:],
                )
            elif kind == "f" and depth:
                size = plan.randint(0, 3)

                def body(loop: Any, i: Any, *carried: Any, given: list[Any] = values[:]) -> Any:
                    return build(p, [*given, *carried], plan, depth - 1)[-2:]

                values += p.for_(size, [left, right], body)
            else:
                values.append({"a": left * 0.5 - right, "b": e.sin(left), "c": left * right}.get(kind, left + 0.25))
        return values

    order = [chance.randrange(3) for _ in range(3)]
    other = chance.randrange(3)  # 0: equal, 1: in another order, 2: another plan
    numbers = (seed, seed + 1000 if other == 2 else seed)

    def f(p: Program, x: Any, y: Any) -> Any:
        results: list[Any] = []
        for turn, number in enumerate(numbers):
            places = order if turn and other == 1 else [0, 1, 2]
            starts = [x, y, x]

            def body(loop: Any, i: Any, *carried: Any, number: int = number) -> Any:
                return build(p, list(carried), random.Random(number), 2)[-3:]

            results += p.for_(3, [starts[place] for place in places], body)
        return tuple(results)

    after = check(f, 0.75, -0.5)
    if other == 0:
        assert len([op for op in after.block.ops if op.name == "for"]) <= 1


def test_the_counters_of_a_loop_and_of_one_inside_of_it_are_apart():
    def f(v, n):
        outer = n * 0
        while outer < 3:
            outer += 1
            inner = n * 0
            while inner < 1:
                inner += 1
                v = v * 1.25
        return v

    @st.function(target="portable")
    def derivatives(v, n):
        return f(v, n), st.grad(lambda v: f(v, n))(v), st.jvp(lambda v: f(v, n), (v,), (1.0,))[1]

    np.testing.assert_array_equal(derivatives(1.0, 3), [1.25**3] * 3)
