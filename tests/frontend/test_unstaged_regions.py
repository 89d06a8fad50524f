"""The warning for a region of plain Python in which no work runs on the device, and the function form."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import CPU, GPU, with_backend
from staged.errors import StagingError
from tests.frontend.harness import ir
from tests.threads import run_at_once

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
weights = st.Variable(np.zeros(4, np.float32), name="weights")


def loss() -> Any:
    return st.mean((st.sum(X * weights, axis=1) - 1.0) ** 2)


def train_loop() -> Any:
    for _ in range(3):
        value, gradient = st.value_and_grad(loss, wrt=weights)()
        weights.value = weights.value - 0.1 * gradient
    return value


def numpy_loop() -> Any:
    y = X
    for _ in range(3):
        y = np.tanh(y) * 0.5
    return y


def line_of(text: str) -> int:
    """The line of this file with a comment."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"  # {text}"))


def warned(run: Callable[[], Any]) -> list[tuple[int, str]]:
    """(line of this file, message) of each warning, but for the note that a derivative often ran in NumPy."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    assert all(each.filename == __file__ and each.category is UserWarning for each in caught)
    return [(each.lineno, str(each.message)) for each in caught if "ran 20 times" not in str(each.message)]


def test_a_region_with_an_unstaged_loop_warns_once_with_its_line_and_the_function() -> None:
    def run() -> None:
        for _ in range(2):
            with with_backend(GPU, X):  # region of an unstaged loop
                train_loop()

    ((line, message),) = warned(run)
    assert line == line_of("region of an unstaged loop")
    first = inspect.getsourcelines(train_loop)[1]
    assert message == (
        f"no work ran on gpu in this region: `train_loop`, line {first}, ran in NumPy. Put `@st.function` on the "
        "function with the loop, or on the function of one step."
    )
    assert warned(run) == []


def test_numpy_alone_and_lines_of_the_region_warn_too() -> None:
    def closed_over() -> None:
        with with_backend(GPU, X):  # NumPy reads the host's array
            numpy_loop()

    def on_the_array() -> None:
        with with_backend(GPU, X) as x:  # NumPy reads the device's array
            x * 2.0

    def in_its_lines() -> None:
        with with_backend(GPU(1)):  # ops in the lines of the region
            st.exp(X)

    def in_a_lambda() -> None:
        with ExitStack() as stack:
            stack.enter_context(with_backend(GPU))  # entered by a stack
            st.grad(lambda x: st.sum(x))(X)

    ((line, message),) = warned(closed_over)
    assert line == line_of("NumPy reads the host's array") and "it called no staged function on gpu." in message
    ((line, message),) = warned(on_the_array)
    assert line == line_of("NumPy reads the device's array") and "its lines ran in NumPy." in message
    ((line, message),) = warned(in_its_lines)
    assert line == line_of("ops in the lines of the region") and "on gpu(1) in this region: its lines ran" in message
    ((line, message),) = warned(in_a_lambda)
    assert line == line_of("entered by a stack") and "its lines ran" in message


def test_regions_in_regions_warn_once() -> None:
    def run() -> None:
        with with_backend(GPU):
            with with_backend(GPU, X):  # the inner one
                st.exp(X)

    assert [line for line, _ in warned(run)] == [line_of("the inner one")]

    def staged_for_the_host() -> None:
        with with_backend(GPU):  # its only call runs on the host
            with with_backend(CPU):
                double(X)

    assert [line for line, _ in warned(staged_for_the_host)] == [line_of("its only call runs on the host")]


def test_a_region_in_an_unstaged_function_that_is_differentiated_warns() -> None:
    def energy(x: Any) -> Any:
        with with_backend(GPU, x):  # within a derivative
            return st.sum(x * x)

    assert [line for line, _ in warned(lambda: st.grad(energy)(X))] == [line_of("within a derivative")]


@st.function
def double(x: Any) -> Any:
    return x * 2.0


@st.function
def with_a_region(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0
    return y


def staged_call(emulated: Any) -> None:
    with with_backend(GPU, X):
        double(X)


def staged_call_of_many(emulated: Any) -> None:
    with with_backend(GPU, X):
        train_loop()
        with with_backend(GPU):
            double(X)


def known_program(emulated: Any) -> None:
    for _ in range(2):
        with with_backend(GPU):
            double(X)


def staging_alone() -> None:
    with with_backend(GPU, X):
        double.stage(X)


def exception() -> None:
    with pytest.raises(KeyError), with_backend(GPU, X):
        train_loop()
        raise KeyError


def host() -> None:
    with with_backend(CPU, X):
        train_loop()


def eager_mode_around() -> None:
    with st.eager(), with_backend(GPU, X):
        train_loop()


def eager_mode_inside() -> None:
    with with_backend(GPU, X), st.eager():
        train_loop()


def eager_function() -> None:
    with st.eager("with_a_region"):
        with_a_region(X)


def copies_for_later() -> None:
    with with_backend(GPU, X) as x:
        pass
    assert isinstance(x, st.DeviceArray)


def moved_for_later() -> None:
    with with_backend(GPU):
        st.to(X, GPU)


def ends_early() -> None:
    def batches() -> Iterator[Any]:
        with with_backend(GPU, X):
            yield 1
            yield 2

    for _ in batches():
        break


SILENT = [
    staging_alone, exception, host, eager_mode_around, eager_mode_inside, eager_function, copies_for_later,
    moved_for_later, ends_early,
]  # fmt: skip


@pytest.mark.parametrize("run", SILENT, ids=lambda run: run.__name__)
def test_other_regions_do_not_warn(run: Callable[[], None]) -> None:
    assert warned(run) == []


@pytest.mark.parametrize("run", [staged_call, staged_call_of_many, known_program], ids=lambda run: run.__name__)
def test_regions_with_a_staged_call_do_not_warn(run: Callable[[Any], None], emulated_device: Any) -> None:
    assert warned(lambda: run(emulated_device)) == []
    program = double.stage(X)

    def runs_a_program() -> None:
        with with_backend(GPU, X):
            program(X)

    assert warned(runs_a_program) == []


def test_other_threads_are_not_the_region_s_work() -> None:
    """A loader's thread runs ops of its own; the loop that uses the batches decides."""

    def batches() -> Iterator[Any]:
        for _ in range(2):
            yield np.asarray(st.exp(X))

    def run() -> None:
        with with_backend(GPU, X):  # a loop over a loader
            for batch in st.loader(batches(), device=CPU):
                batch.sum()

    ((line, message),) = warned(run)
    assert line == line_of("a loop over a loader") and "it called no staged function" in message


def test_a_warning_as_an_error_leaves_the_region_closed() -> None:
    a = np.arange(3.0)

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with with_backend(GPU, a):
                st.exp(a)

    with pytest.raises(UserWarning, match="no work ran on gpu"):
        run()
    assert a.flags.writeable
    assert "on gpu" not in double.stage(X).ir


# ---- the function form -----------------------------------------------------------------------------


def test_the_function_form_calls_the_function_on_the_inputs() -> None:
    def f(x: Any, y: Any) -> Any:
        both = with_backend(GPU, x, y)(lambda a, b: (a * b, a - b))
        return both, with_backend(GPU, x)(lambda *given: given[0] * 3.0)

    text = ir(f, X, X)
    for op, count in (("multiply", 2), ("subtract", 1)):
        lines = [line for line in text.splitlines() if f"= {op}(" in line]
        assert len(lines) == count and all(line.endswith(" on gpu") for line in lines)
    with st.eager():
        (product, difference), last = st.function(f)(X, X + 1.0)
    np.testing.assert_array_equal(product, X * (X + 1.0))
    np.testing.assert_array_equal(difference, X - (X + 1.0))
    np.testing.assert_array_equal(last, X * np.float32(3.0))


def test_the_function_form_calls_a_function_without_required_parameters_alone() -> None:
    seen = []

    def closes_over(steps: int = 4) -> Any:
        seen.append(steps)
        return X * 2.0

    assert warned(lambda: with_backend(GPU, X)(closes_over))[0][1].startswith("no work ran on gpu")
    with st.eager():
        np.testing.assert_array_equal(with_backend(GPU, X)(closes_over), X * 2.0)
    assert seen == [4, 4]


def test_the_function_form_in_plain_python_is_a_region(emulated_device: Any) -> None:
    def both(x: Any, y: Any) -> Any:
        assert isinstance(x, st.DeviceArray) and isinstance(y["b"], st.DeviceArray)
        with pytest.raises(ValueError, match="read-only"):
            X[0] = 1.0
        return double(x), double(y["b"])

    first, second = with_backend(GPU, X, {"b": X + 1.0})(both)
    np.testing.assert_array_equal(first, X * 2.0)
    np.testing.assert_array_equal(second, (X + 1.0) * 2.0)
    assert X.flags.writeable
    np.testing.assert_array_equal(with_backend(GPU, X)(double), X * 2.0)
    with pytest.raises(KeyError):
        with_backend(GPU, X)(lambda x: {}[x.shape])
    assert X.flags.writeable


def test_the_function_form_warns_in_the_line_of_the_call() -> None:
    def run() -> None:
        with_backend(GPU, X)(train_loop)  # the function form of an unstaged loop

    ((line, message),) = warned(run)
    assert line == line_of("the function form of an unstaged loop") and "`train_loop`, line" in message


def test_without_inputs_each_call_of_the_function_is_a_region() -> None:
    @with_backend(GPU)
    def there(x: Any) -> Any:
        return x * 2.0

    assert there.__name__ == "there"
    assert " on gpu" in ir(lambda x: there(x), X)
    staged: dict[str, str] = {}

    def work(name: str) -> None:
        staged[name] = double.stage(X).ir

    run_at_once(partial(with_backend(GPU)(work), name) for name in "ab")
    assert set(staged) == {"a", "b"} and all(" on gpu" in text for text in staged.values())
    assert " on gpu" not in double.stage(X).ir


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: with_backend(GPU, X)(3), "given a function to call in it, got int"),
        (lambda: with_backend(GPU, X)(lambda a, b: a), r"`<lambda>` must accept .* \(a, b\), number of inputs 1"),
        (lambda: with_backend(GPU, X, X)(lambda a: a), r"`<lambda>` must accept .* \(a\), number of inputs 2"),
    ],
)
def test_a_function_that_does_not_accept_the_inputs_is_an_error(wrong: Callable[[], Any], words: str) -> None:
    with pytest.raises(StagingError, match=words) as raised:
        wrong()
    assert raised.value.where is not None and raised.value.where.file == __file__
    with pytest.raises(StagingError, match=words):
        ir(lambda x: (wrong(), x), X)
