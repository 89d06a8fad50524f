"""Calls: helpers, closures, nested functions, lambdas, methods, classes, defaults; what cannot be converted."""

from __future__ import annotations

import dataclasses
import functools
import linecache
import math
import random

import numpy as np
import pytest

import staged as st
from staged.errors import LeakError, StagingError, StaticStateError
from staged.frontend.trace_function import trace
from tests.frontend.harness import agree, interpret, ir, ops

X = np.arange(1, 4, dtype=np.float32)


def clip(x, low, *, high=2.0):
    """A helper of the module, with a staged branch."""
    if x.sum() > 3.0:
        return x * low
    return x * high


def test_helper_is_converted_along() -> None:
    def f(x):
        return clip(x, 0.5) + clip(x * 0.1, 1.0, high=3.0)

    assert ops(ir(f, X)).count("if") == 2
    agree(f, X)


def test_nested_function_and_nonlocal() -> None:
    def f(x, n):
        total = 0.0

        def add(value, times=2):
            nonlocal total
            total = total + value * times

        for i in st.range(n):
            add(x.sum())
            if i > 1:
                add(1.0, times=3)
        return total

    agree(f, X, 4)


def test_recursion_over_static_values() -> None:
    def power(x, k):
        return x if k == 1 else x * power(x, k - 1)

    def f(x):
        return power(x, 4)

    agree(f, X)


def test_lambda_and_higher_order() -> None:
    def f(x, n):
        scale = 2.0
        g = lambda v, k=3.0: v * scale * k if n > 1 else v  # noqa: E731
        parts = list(map(g, [x, x + 1.0]))
        return parts[0] + functools.reduce(lambda a, b: a + b, parts)

    agree(f, X, 1)
    agree(f, X, 2)


def test_comprehensions() -> None:
    def f(x):
        a = [x * k for k in range(3) if k != 1]
        b = {k: v.sum() for k, v in enumerate(a)}
        return a, b[0] + b[1], sum(v.sum() for v in a)

    agree(f, X)


class Base:
    """A class of the user's."""

    def __init__(self, scale):
        self.scale = scale

    def apply(self, x):
        if x.sum() > 0:
            return x * self.scale
        return x

    def __call__(self, x):
        return self.apply(x) + self.__hidden(x)

    def __hidden(self, x):
        return x * 10.0


class Derived(Base):
    """With `super()`."""

    def __init__(self, scale):
        super().__init__(scale * 2.0)
        self.made = True

    def apply(self, x):
        return super().apply(x) + 1.0

    @property
    def twice(self):
        return self.scale * 2.0

    @staticmethod
    def shift(x):
        return x + 0.5


def test_methods_super_and_private_names() -> None:
    def f(x, s):
        model = Derived(s)
        return model(x) + model.twice + Derived.shift(x)

    agree(f, X, 3.0)


def test_class_defined_inside() -> None:
    def f(x, n):
        @dataclasses.dataclass
        class Pair:
            a: object
            b: object = 2.0

            def total(self):
                return self.a * self.b if n > 2 else self.a

        return Pair(x).total()

    agree(f, X, 3)
    agree(f, X, 1)


def test_arguments_of_every_kind() -> None:
    def g(a, /, b, *rest, c, d=4.0, **more):
        return a + b * 2.0 + rest[0] + c + d + more["e"]

    def f(x, *values, **named):
        return g(x, *values, **named)

    agree(f, X, 1.0, 2.0, c=3.0, e=5.0)


def test_math_on_staged_scalars() -> None:
    def f(a):
        return math.sqrt(a) + math.exp(a) + math.floor(a) + abs(-a) + max(a, 1.0) + min(a, 1.0, 0.5) + round(a)

    agree(f, 2.7)


def test_int_and_float_of_staged_scalars() -> None:
    def f(a):
        return int(a) // 2, float(int(a))

    agree(f, 7.9)
    agree(f, -7.9)


def test_try_catches_what_python_raises_while_staging() -> None:
    def f(x, table):
        try:
            k = table["missing"]
        except KeyError as error:
            k = 2.0 if "missing" in str(error) else 3.0
        finally:
            x = x + 1.0
        return x * k

    traced = trace(f, (X, {"a": "text"}))
    np.testing.assert_allclose(interpret(traced), (X + 1.0) * 2.0)


def test_with_statement() -> None:
    entered = []

    class Manager:
        def __enter__(self):
            entered.append("in")
            return 3.0

        def __exit__(self, *_):
            entered.append("out")

    def f(x, n):
        with Manager() as k:
            if n > 2:
                return x * k
        return x

    ir(f, X, 3)
    assert entered == ["in", "out"]


SCALE = 1.0


class Numbers:
    def __init__(self):
        self.count = 2

    def each(self):
        for k in range(self.count):
            yield k * SCALE


def test_a_generator_runs_while_staging() -> None:
    numbers = Numbers()

    def rows(x):
        for k in range(len(x)):
            yield x[k] * 2.0

    def f(x):
        first, *_ = numbers.each()
        both = list(zip(rows(x), numbers.each(), strict=False))
        return [row + k for row, k in both], first

    agree(f, X)
    assert ops(ir(f, X)).count("add") == 2
    numbers.count = 3
    assert ops(ir(f, X)).count("add") == 3


def test_what_a_generator_reads_may_change_between_calls(monkeypatch) -> None:
    numbers = Numbers()

    @st.function
    def f(x):
        for k in numbers.each():
            x = x + k
        return x

    np.testing.assert_allclose(f(X), X + 1.0)
    numbers.count = 3
    np.testing.assert_allclose(f(X), X + 3.0)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    np.testing.assert_allclose(f(X), X + 6.0)


def test_a_generator_is_not_called_in_a_loop_of_the_program_unless_it_is_pure() -> None:
    def numbers():
        yield 1.0
        yield 2.0

    def f(x, n):
        for _ in st.range(n):
            for k in numbers():
                x = x + k
        return x

    with pytest.raises(StagingError, match="`numbers` is a generator, which runs while staging") as caught:
        ir(f, X, 3)
    assert caught.value.where is not None and "for k in numbers()" in caught.value.where.text
    st.pure(numbers)
    np.testing.assert_allclose(st.function(f)(X, 3), X + 9.0)


def test_a_generator_is_no_staged_function() -> None:
    with pytest.raises(StagingError, match="`numbers` is a generator, which cannot be staged"):

        @st.function
        def numbers(x):
            yield x


def test_function_without_source_is_refused() -> None:
    names: dict = {}
    exec("def made(x):\n    return x", names)

    with pytest.raises(StagingError, match="`made` cannot be staged: its source is not at hand"):
        trace(names["made"], (X,))


def test_random_modules_are_refused_with_the_staged_way() -> None:
    def f(x):
        return x * random.random()

    def g(x):
        return x * np.random.normal()

    for function in (f, g):
        with pytest.raises(StagingError, match="random function .* inside a staged function") as caught:
            ir(function, X)
        assert "st.random.uniform" in caught.value.hint


@pytest.mark.parametrize("name", ["input", "exec", "eval"])
def test_builtins_that_cannot_be_staged_are_refused(name: str) -> None:
    function = {"input": input, "exec": exec, "eval": eval}[name]

    def f(x):
        function("x")
        return x

    with pytest.raises(StagingError, match=f"`{name}` inside a staged function cannot be staged"):
        ir(f, X)


def test_staged_value_that_leaks_is_refused_where_it_is_used() -> None:
    kept = []

    def f(x):
        kept.append(x * 2.0)
        return x

    def g(x):
        return x + kept[0]

    ir(f, X)
    with pytest.raises(LeakError, match="belongs to another staged function"):
        ir(g, X)


def test_outer_name_written_under_staged_control_is_refused() -> None:
    count = 0

    def f(x, n):
        nonlocal count
        count += 1
        if n > 2:
            count += 1
        return x

    with pytest.raises(StaticStateError, match="the outer name `count` changes inside the `if` at line"):
        ir(f, X, 3)


def test_numpy_functions_on_staged_values() -> None:
    def f(x):
        return np.exp(x) + np.maximum(x, 2.0)

    agree(f, X)


def test_traceback_shows_the_users_line() -> None:
    def f(x, n):
        if n > 2:
            x = x + {}["missing"]
        return x

    with pytest.raises(KeyError) as caught:
        ir(f, X, 3)
    frames = [entry for entry in caught.traceback if entry.path.name == "test_functions.py"]
    assert str(frames[-1].statement).strip() == 'x = x + {}["missing"]'


def test_endless_recursion_over_a_staged_value_is_refused() -> None:
    def fib(n):
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    with pytest.raises(StagingError, match="`fib` calls itself under a staged condition"):
        ir(fib, 10)


def test_builtins_keep_the_tape_of_eager_mode() -> None:
    def f(a):
        return math.sqrt(a) * max(a, 1.0) + abs(a) + float(a) + sum([a, a])

    with st.eager():
        gradient = st.grad(f)(np.array([4.0])[0:1].sum())
    np.testing.assert_allclose(np.asarray(gradient), 0.5 / 2.0 * 4.0 + 2.0 + 1.0 + 1.0 + 2.0)


def test_setattr_under_staged_control_is_refused() -> None:
    class Box:
        k = 1

    box = Box()

    def f(x, n):
        if n > 2:
            setattr(box, "k", 2)  # noqa: B010
        return x

    with pytest.raises(StaticStateError, match="the attribute `k` of `box`"):
        ir(f, X, 3)


def test_console_cells_keep_their_source() -> None:
    text = "def cell(x, n):\n    if n > 2:\n        return x * 2.0\n    return x\n"
    linecache.cache["<python-input-7>"] = (len(text), None, text.splitlines(True), "<python-input-7>")
    names: dict = {}
    exec(compile(text, "<python-input-7>", "exec"), names)
    assert "if" in ops(ir(names["cell"], X, 3))


def down(x, k):
    """Calls itself by its global name."""
    return x if k == 0 else down(x * 2.0, k - 1)


def test_recursion_of_a_function_of_the_module() -> None:
    def f(x):
        return down(x, 3)

    agree(f, X)
