"""Recursion: staged functions that call themselves become functions of the program."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import staged as st
from staged.errors import GradientError, ProgramRecursionError, StagingError, StaticStateError
from staged.frontend.trace_function import trace
from staged.frontend.values import trees
from staged.frontend.values.generator import numbers_again
from tests.frontend.harness import interpret, ir

X = np.arange(1, 4, dtype=np.float32)


def traced(function, *args, static=()):
    """The trace of a staged or plain function."""
    return trace(getattr(function, "__wrapped__", function), args, {}, static)


def functions(text: str) -> list[str]:
    """The names of the functions in printed IR, the program last."""
    return [line.split("(")[0].removeprefix("func ") for line in text.splitlines() if line.startswith("func ")]


def agree(function, *args):
    """The program, interpreted and compiled, and eager mode give the same; returns the program's answer."""
    staged = st.function(getattr(function, "__wrapped__", function))
    with st.eager(), numbers_again():
        expected = staged(*args)
    with numbers_again():
        interpreted = interpret(traced(function, *args))
    for got in (interpreted, staged(*args)):
        for left, right in zip(trees.flatten(got)[0], trees.flatten(expected)[0], strict=True):
            np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=1e-6)
    return got


# ---- scalars ------------------------------------------------------------------------------------


@st.function
def factorial(n):
    if n < 2:
        return 1
    return n * factorial(n - 1)


@st.function
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@st.function
def gcd(a, b):
    if b == 0:
        return a
    return gcd(b, a % b)


@st.function
def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


@st.function
def power(x, n):
    """The result adopts the dtype of x: the 1.0 of the base case is promoted."""
    if n == 0:
        return 1.0
    half = power(x, n // 2)
    return half * half * x if n % 2 == 1 else half * half


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (factorial, (1,), 1),
        (factorial, (10,), math.factorial(10)),
        (fibonacci, (0,), 0),
        (fibonacci, (12,), 144),
        (gcd, (1071, 462), 21),
        (ackermann, (2, 3), 9),
        (power, (1.5, 7), 1.5**7),
        (power, (np.float32(1.5), 0), 1.0),
    ],
)
def test_scalars(function, args, expected) -> None:
    assert agree(function, *args) == pytest.approx(expected)
    assert len(functions(ir(function.__wrapped__, *args))) == 2


@st.function
def is_even(n):
    return True if n == 0 else is_odd(n - 1)


@st.function
def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def test_mutual_recursion() -> None:
    def f(n):
        return is_even(n), is_odd(n)

    assert list(map(bool, agree(f, 7))) == [False, True]
    assert list(map(bool, agree(f, 10))) == [True, False]


@st.function
def first(n, k):
    if n <= 0:
        return k
    return second(n - 1, k) + 1


@st.function
def second(n, k):
    if n <= 0:
        return k * 2
    return second(n - 2, k) + first(n - 1, k)


def test_mutual_recursion_of_functions_that_are_recursive_themselves() -> None:
    def f(n):
        return first(n, 3)

    agree(f, 8)
    assert functions(ir(f, 8)) == ["first", "second", "f"]


@st.function
def ping(n, x):
    return x if n <= 0 else pong(n - 1, x) + back_and_forth(n - 2, x * 0.5) + ping(n - 3, x)


@st.function
def pong(n, x):
    return x * 2.0 if n <= 1 else ping(n - 1, x) - back_and_forth(n - 1, x) + pong(n - 2, x)


@st.function
def back_and_forth(n, x):
    return x + 1.0 if n <= 0 else pong(n - 2, x) * 0.5 + ping(n - 1, x + n) + back_and_forth(n - 3, x)


def test_functions_that_all_call_one_another_are_one_each() -> None:
    def f(n, x):
        return ping(n, x) + back_and_forth(n, x)

    agree(f, 6, 1.5)
    assert functions(ir(f, 6, 1.5)) == ["ping", "back_and_forth", "pong", "f"]


@st.function
def bounce(n):
    """Its only way out is through the function that it calls."""
    if n > 5:
        return bounce(n - 2)
    return back(n - 1)


@st.function
def back(n):
    if n <= 0:
        return 0
    return bounce(n - 1) + n


def test_function_without_a_base_case_of_its_own() -> None:
    agree(back, 12)

    def f(n):
        return bounce(n)

    agree(f, 12)


# ---- data ---------------------------------------------------------------------------------------

LEFT = np.array([1, 3, -1, -1, -1], np.int32)
RIGHT = np.array([2, 4, -1, -1, -1], np.int32)
VALUES = np.arange(15, dtype=np.float32).reshape(5, 3)


@st.function
def tree_sum(node, left, right, values):
    if node < 0:
        return st.zeros((3,))
    below = tree_sum(left[node], left, right, values) + tree_sum(right[node], left, right, values)
    return values[node] + 0.5 * below


def test_tree_in_index_arrays() -> None:
    """The root is a Python number, its children are i32: one function serves both."""

    def f(left, right, values):
        return tree_sum(0, left, right, values)

    agree(f, LEFT, RIGHT, VALUES)
    assert functions(ir(f, LEFT, RIGHT, VALUES)) == ["tree_sum", "f"]


@st.function
def measure(node, left, right, values):
    """Returns a tree of results."""
    if node < 0:
        return {"depth": 0, "state": (st.zeros((3,)), 1.0)}
    a = measure(left[node], left, right, values)
    b = measure(right[node], left, right, values)
    h = st.tanh(a["state"][0] + b["state"][0] + values[node])
    return {"depth": max(a["depth"], b["depth"]) + 1, "state": (h, a["state"][1] * 0.5 + b["state"][1])}


def test_trees_as_results() -> None:
    def f(left, right, values):
        return measure(0, left, right, values)

    got = agree(f, LEFT, RIGHT, VALUES)
    assert int(got["depth"]) == 3


Pair = namedtuple("Pair", "a b")


@dataclass
class State:
    h: object
    c: object


@st.function
def mixed(n, pair, state):
    if n == 0:
        return Pair(state.h, pair.b), state
    return mixed(n - 1, Pair(pair.b, pair.a * 0.5), State(state.c + pair.a, state.h))


def test_named_tuples_and_dataclasses_as_arguments_and_results() -> None:
    def f(n, x, y):
        return mixed(n, Pair(x, y), State(x * 2.0, y * 3.0))

    agree(f, 5, X, X + 1.0)


@st.function
def accumulate(n, total=0, *, scale=1.0):
    if n == 0:
        return total * scale
    return accumulate(n - 1, total + n, scale=scale)


def test_defaults_and_keywords() -> None:
    """A default that was not passed is staged along once a call inside passes a staged value for it."""

    def f(n, s):
        return accumulate(n), accumulate(n, scale=s)

    assert list(map(float, agree(f, 10, 0.5))) == [55.0, 27.5]


@st.function(static=("kind",))
def walk(n, kind):
    if n == 0:
        return 0.0
    return (2.0 if kind == "double" else 1.0) + walk(n - 1, kind)


def test_static_arguments_make_functions_of_their_own() -> None:
    def f(n):
        return walk(n, "double") + walk(n, kind="single")

    assert agree(f, 4) == 12.0
    assert functions(ir(f, 4)) == ["walk", "walk_2", "f"]


# ---- with other control flow --------------------------------------------------------------------


@st.function
def walk_until(n, xs):
    """Early returns, one from a loop."""
    for i in st.range(3):
        if xs[i] > n:
            return xs[i] * 10.0
    if n > 100.0:
        return n
    return walk_until(n * 2.0, xs * 3.0)


def test_early_returns_and_a_loop_inside() -> None:
    agree(walk_until, 5.0, X)


@st.function
def nodes(n, width):
    """Calls itself from a loop with a carried value."""
    count = 1
    if n > 0:
        for _ in st.range(width):
            count = count + nodes(n - 1, width)
    return count


def test_call_of_itself_in_a_loop() -> None:
    assert agree(nodes, 3, 2) == 15


@st.function
def halves(x):
    """A `while` around, a branch in both of whose sides it calls itself."""
    n = x
    while n > 50:
        n = n - 50
    if n <= 1:
        return n
    if n % 2 == 0:
        return halves(n // 2)
    return halves(3 * n - n * 2 - 1) + 1


def test_call_of_itself_in_both_branches() -> None:
    agree(halves, 123)


@st.function
def reachable(n):
    """Calls itself on the right of `and` and `or`, which may not run."""
    return n == 0 or (n > 2 and reachable(n - 3)) or (n > 4 and reachable(n - 5))


@st.function
def climbs(n):
    """Calls itself in the condition of a loop, and in a comprehension."""
    if n <= 0:
        return 1
    k = 0
    while k < climbs(n - 1):
        k += 1
    return k + sum(climbs(n - j) for j in (2, 3))


def test_call_of_itself_in_conditions_and_comprehensions() -> None:
    def f(n):
        return [reachable(k) for k in (4, 7, 11)], reachable(n), climbs(n - 3)

    assert [list(map(bool, agree(f, 6)[0]))] == [[False, False, True]]


@st.function
def quicksort(x, begin, end):
    """Arrays as values: a permuted copy goes in and comes out."""
    if end - begin <= 1:
        return x
    pivot = x[end - 1]
    place = begin
    for j in st.range(begin, end):
        if x[j] < pivot or j == end - 1:
            swapped = x[place]
            x[place] = x[j]
            x[j] = swapped
            place = place + 1
    return quicksort(quicksort(x, begin, place - 1), place, end)


def test_arrays_as_values() -> None:
    x = np.random.default_rng(0).permutation(9).astype(np.float64)

    def f(x):
        return quicksort(x, 0, 9)

    np.testing.assert_array_equal(agree(f, x), np.arange(9.0))


def test_loop_around_captures_and_its_index() -> None:
    def f(x, n):
        total = st.zeros((3,))
        for i in st.range(n):

            @st.function
            def down(k):
                if k == 0:
                    return x * i  # noqa: B023
                return down(k - 1) + x

            total = total + down(i)
        return total

    agree(f, X, 4)
    text = ir(f, X, 4)
    assert functions(text) == ["down", "f"]
    header = text.splitlines()[0]
    assert header.startswith("func down(k: i64 () weak, i: i64 () weak, x: f32 (3,))")


def test_captured_array_of_python() -> None:
    table = np.arange(100.0)

    def f(n):
        @st.function
        def total(k):
            if k < 0:
                return 0.0
            return table[k] + total(k - 1)

        return total(n)

    assert agree(f, 9) == 45.0


def test_arrays_that_numpy_makes_inside_while_staging() -> None:
    table = np.arange(3.0)

    def f(n):
        total = 0.0
        for i in range(3):

            @st.function
            def down(k):
                if k == 0:
                    return table * i  # noqa: B023
                return down(k - 1) * 0.5 + table * (i + 1)  # noqa: B023

            total = total + down(n)
        return total

    agree(f, 3)


class Model:
    """With a recursive method."""

    def __init__(self) -> None:
        self.w = st.Variable(np.float32(0.5))

    @st.function
    def apply(self, n):
        if n == 0:
            return 1.0
        return self.w * self.apply(n - 1) + 1.0


def test_method_and_closed_over_variable() -> None:
    model = Model()

    def f(n):
        return model.apply(n)

    assert agree(f, 3) == 1.875
    assert functions(ir(f, 3)) == ["Model_apply", "f"]


def test_variable_written_inside() -> None:
    counter = st.Variable(0, "counter")

    @st.function
    def count(n):
        counter.value = counter + 1
        if n > 0:
            count(n - 1)
            count(n - 2)

    def f(n):
        count(n)
        return counter.value

    made = traced(f, 5)
    assert interpret(made) == 25
    call = next(op for op in made.function.block.ops if op.name == "call")
    assert {effect.kind for effect in call.effects} == {"read", "write", "fail"}


def test_random_numbers_inside() -> None:
    @st.function
    def total(n):
        if n == 0:
            return 0.0
        return total(n - 1) + st.random.uniform(())

    def f(n):
        return total(n) + st.random.uniform(())

    agree(f, 4)


@st.function
def count_down(n, x):
    if n == 0:
        return x
    return count_down(n - 1, x + 1.0) + 1.0


def test_deep_chain_and_endless_recursion() -> None:
    assert count_down(100000, 0.5) == 200000.5
    with pytest.raises(ProgramRecursionError) as caught:
        count_down(-1, 0.5)
    assert "def count_down(n, x)" in str(caught.value)
    assert count_down(10, 0.5) == 20.5  # it goes on after that


def test_lines_of_c_do_not_depend_on_depth_and_call_sites() -> None:
    def once(n):
        return fibonacci(n)

    def often(n):
        total = fibonacci(n)
        for k in range(10):
            total = total + fibonacci(n + k)
        return total

    few, many = (st.function(f).stage(5).source for f in (once, often))
    assert once.__name__ in few
    calls = many.count("fibonacci(m, host,")
    assert calls == few.count("fibonacci(m, host,") + 10
    assert len(many.splitlines()) < len(few.splitlines()) + 80


# ---- static values ------------------------------------------------------------------------------


@st.function
def unroll(x, k):
    if x.sum() > 1000.0:
        return x
    if k == 0:
        return x
    return unroll(x * 2.0, k - 1)


def test_shallow_recursion_over_static_numbers_unrolls() -> None:
    def f(x):
        return unroll(x, 4)

    agree(f, X)
    assert functions(ir(f, X)) == ["f"]


def test_deep_recursion_over_static_numbers_stages_them() -> None:
    def f(x):
        return unroll(x * 1e-9, 60), unroll(x * 1e-9, 100000)

    got = interpret(traced(f, X * 1e6))
    np.testing.assert_allclose(got[0], got[1])
    assert functions(ir(f, X)) == ["unroll", "f"]


def test_call_with_a_constant_uses_the_same_function() -> None:
    def f(n):
        return gcd(n, 12) + gcd(18, n)

    assert agree(f, 30) == 12
    assert functions(ir(f, 30)) == ["gcd", "f"]


def test_types_make_functions_of_their_own() -> None:
    def f(x, y, n):
        return power(x, n) + power(y.sum(), n)

    agree(f, np.float32(2.0), X * np.float64(0.1), 3)
    assert functions(ir(f, np.float32(2.0), X * np.float64(0.1), 3)) == ["power", "power_2", "f"]


def test_same_text_again_and_lines_do_not_depend_on_depth() -> None:
    def f(n):
        return fibonacci(n)

    assert ir(f, 3) == ir(f, 3) == ir(f, 90)


# ---- inside transforms --------------------------------------------------------------------------


def test_variables_are_passed_as_state_under_a_transform() -> None:
    log = st.Variable(np.float32(0.0), "log")
    w = st.Variable(np.float32(0.9), "w")

    @st.function
    def shrink(x, n):
        log.value = log + x
        if n == 0:
            return x
        return shrink(x * w, n - 1)

    def f(x, n):
        value, d = st.value_and_grad(shrink, argnums=0)(x, n)
        return value, d, log.value

    text = ir(f, np.float32(2.0), 3)
    called = text.split("func f(")[0]
    assert "func shrink(x: f32 (), n: i64 () weak, log: f32 (), w: f32 ())" in called
    assert "variable_read" not in called and "variable_write" not in called
    vjp = text.split("vjp(")[1]
    assert "call(" in vjp and "variable_write" in vjp


def test_checkpoint_around_a_call_of_itself() -> None:
    seen = st.Variable(np.float32(0.0), "seen")

    @st.function
    def rises(x, n):
        seen.value = seen + x
        if n == 0:
            return x
        return st.checkpoint(lambda y: rises(st.sin(y) * y, n - 1))(x)

    def f(x, n):
        return rises(x, n)

    def counted(x, n):
        seen.value = 0.0
        return rises(x, n), seen.value

    text = ir(f, np.float32(0.7), 3)
    assert functions(text) == ["rises", "f"]
    assert "func rises(x: f32 (), n: i64 () weak, seen: f32 ())" in text
    agree(counted, np.float32(0.7), 3)


# ---- refusals -----------------------------------------------------------------------------------


def test_no_path_without_recursion_is_refused() -> None:
    @st.function
    def endless(n):
        if n > 3:
            return endless(n - 1)
        return endless(n + 1)

    with pytest.raises(StagingError, match="`endless` calls itself on every path: it would never return") as caught:
        ir(endless.__wrapped__, 3)
    assert caught.value.where.text == "return endless(n + 1)"


def test_helper_that_is_not_decorated_is_refused_with_the_way_out() -> None:
    def fib(n):
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    with pytest.raises(StagingError, match="`fib` calls itself under a staged condition") as caught:
        ir(fib, 10)
    assert caught.value.hint == "decorate `fib` with `@st.function`: it becomes a function of the program"


def test_outer_name_written_inside_is_refused() -> None:
    def f(n):
        total = 0.0

        @st.function
        def add(k):
            nonlocal total
            total = total + k * 1.0
            if k > 0:
                add(k - 1)

        add(n)
        return total

    with pytest.raises(
        StaticStateError, match="the outer name `total` changes inside the recursive function `add`"
    ) as c:
        ir(f, 3)
    assert c.value.where.text == "total = total + k * 1.0"
    assert "st.Variable" in c.value.hint


def test_list_changed_inside_is_refused() -> None:
    def f(n):
        kept = []

        @st.function
        def collect(k):
            kept.append(k)
            if k > 0:
                collect(k - 1)

        collect(n)
        return kept[0]

    with pytest.raises(StaticStateError, match="the list `kept` changes inside") as caught:
        ir(f, 3)
    assert caught.value.where.text == "kept.append(k)"


def test_variable_made_inside_is_refused() -> None:
    @st.function
    def f(n):
        v = st.Variable(0.0)
        v.value = v + 1.0
        if n == 0:
            return v.value
        return f(n - 1) + v.value

    with pytest.raises(StagingError, match="a Variable is made inside the recursive function `f`"):
        ir(f.__wrapped__, 3)


def test_derivative_that_needs_itself_is_refused() -> None:
    @st.function
    def f(x, n):
        if n == 0:
            return st.sin(x)
        return st.grad(lambda y: f(y, n - 1))(x)

    with pytest.raises(GradientError, match="a transform inside `f` needs `f` itself") as caught:
        ir(f.__wrapped__, 0.5, 3)
    assert "lambda y: f(y, n - 1)" in caught.value.where.text


def test_results_of_different_shapes_are_refused() -> None:
    @st.function
    def grow(x, n):
        if n == 0:
            return x
        return st.concat([x, grow(x, n - 1)])

    with pytest.raises(StagingError, match="returns f32"):
        ir(grow.__wrapped__, X, 3)


def test_static_results_that_differ_are_refused() -> None:
    @st.function
    def name(n):
        if n == 0:
            return "zero"
        return name(n - 1) + "!"

    with pytest.raises(StagingError, match="`name` returns"):
        ir(name.__wrapped__, 3)



def test_recursive_lambda_is_refused() -> None:
    def f(n):
        fib = lambda k: k if k < 2 else fib(k - 1) + fib(k - 2)  # noqa: E731
        return fib(n)

    with pytest.raises(StagingError, match="calls itself without end while staging") as caught:
        ir(f, 10)
    assert caught.value.where.text.startswith("fib = lambda k")
    assert "a lambda as a `def`" in caught.value.hint


def test_deep_recursion_in_eager_mode_is_an_error_with_the_line() -> None:
    with st.eager(), pytest.raises(ProgramRecursionError, match="deeper than Python allows in eager mode") as caught:
        factorial(100000)
    assert caught.value.where.text.startswith(("return n * factorial(n - 1)", "if n < 2"))


def test_arrays_that_the_function_makes_anew_in_each_attempt() -> None:
    """Two arrays, on different paths: an attempt that was taken back inside of another one lost the first of them."""

    @st.function
    def f(p, k):
        if k > 0:
            return f(p + np.array([1.0, 2.0, 3.0]), k - 1)
        return p * np.array([1.0, 2.0, 4.0])

    @st.function
    def g(p, k):
        if k > 0:
            for _ in st.range(k):
                p = p + np.array([1.0, 2.0, 3.0])
            return g(p, k - 1) * np.array([1.0, 2.0, 4.0]) + np.array([1.0, 2.0, 3.0])
        return p * np.array([1.0, 2.0, 4.0])

    for count in (0, 2, 3):
        for function in (f, g):
            agree(function, np.ones(3), count)
    np.testing.assert_array_equal(f(np.ones(3), 2), np.array([3.0, 5.0, 7.0]) * [1, 2, 4])


STEP = np.array([1.0, 2.0, 3.0])


def test_an_array_made_anew_is_not_the_array_of_a_module_that_equals_it() -> None:
    @st.function
    def f(p, k):
        if k > 0:
            return f(p + np.array([1.0, 2.0, 3.0]), k - 1) + STEP
        return p * STEP

    for step in ([1.0, 2.0, 3.0], [5.0, 6.0, 7.0]):
        STEP[:] = step
        np.testing.assert_array_equal(f(np.ones(3), 1), np.array([2.0, 3.0, 4.0]) * step + step)
