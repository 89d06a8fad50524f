"""`st.callback`: calls of Python's functions from programs and in eager mode, in order, with their exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, nn, with_backend
from staged.testing import captured_prints
from tests.threads import run_at_once

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def both(f: Any, *args: Any) -> list[Any]:
    """The results of the program and of eager mode."""
    with_program = f(*args)
    with st.eager():
        return [with_program, f(*args)]


# ---- what is called, and when ----


def test_calls_and_prints_keep_their_order() -> None:
    def log(step: Any, size: Any, x: Any) -> None:
        print(f"python {step} {size:.1f} {type(step).__name__} {type(size).__name__} {x.shape} {x.dtype}")

    @st.function
    def f(x: Any, n: Any) -> Any:
        for step in st.range(n):
            x = x + 1.0
            print("before", step, end=" ")
            if step % 2 == 0:
                st.callback(log, step, st.sum(x) * 1.0, x)
            print("after", step, end=";\n")
        return x

    texts = []
    for run in (lambda: f(X, 3), lambda: _eagerly(f, X, 3)):
        with captured_prints() as printed:
            run()
        texts.append(printed.text)
    assert texts[0] == texts[1]
    assert texts[0] == (
        "before 0 python 0 21.0 int ndarray (2, 3) float32\nafter 0;\nbefore 1 after 1;\n"
        "before 2 python 2 33.0 int ndarray (2, 3) float32\nafter 2;\n"
    )


def _eagerly(f: Any, *args: Any) -> Any:
    with st.eager():
        return f(*args)


def test_arguments_are_trees_and_what_is_no_array_stays_what_it_is() -> None:
    seen: list[Any] = []
    marker = object()
    weights = st.Variable(X * 2, name="weights")

    @st.function
    def f(x: Any, n: Any) -> Any:
        st.callback(
            lambda *args: seen.append(args), {"x": x, "more": [n, 0.5, "text", None]}, marker, weights, n > 1, X
        )
        return x

    both(f, X, 2)
    for tree, same, variable, flag, captured in seen:
        assert same is marker and tree["more"] == [2, 0.5, "text", None] and type(tree["more"][0]) is int
        assert flag == True  # noqa: E712  (a bool of Python's or NumPy's)
        for array, wanted in ((tree["x"], X), (variable, X * 2), (captured, X)):
            assert type(array) is np.ndarray
            np.testing.assert_array_equal(array, wanted)
    assert len(seen) == 2
    seen[0][0]["x"][:] = 7  # it belongs to the function
    np.testing.assert_array_equal(f(X, 2), X)


def test_results_have_the_shapes_and_dtypes_that_were_promised() -> None:
    def split(x: Any, n: Any) -> Any:
        return {"low": x[:1] * n, "count": int(x.size), "flag": True, "half": (np.float32(0.5), x.astype(np.int8))}

    spec = {
        "low": np.empty((1, 3), np.float32),
        "count": st.i64,
        "flag": bool,
        "half": (st.f32, np.empty((2, 3), np.int8)),
    }

    @st.function
    def f(x: Any, n: Any) -> Any:
        made = st.callback(split, x, n, result=spec)
        return {"sum": made["low"] + made["half"][0], **made}

    for made in both(f, X, 3):
        np.testing.assert_array_equal(made["low"], X[:1] * 3)
        np.testing.assert_array_equal(made["sum"], X[:1] * 3 + np.float32(0.5))
        assert made["count"] == 6 and made["count"].dtype == np.int64 and made["flag"]
        np.testing.assert_array_equal(made["half"][1], X.astype(np.int8))
        assert made["half"][1].dtype == np.int8


def test_each_call_runs_its_own_function() -> None:
    def adder(k: Any) -> Any:
        @st.function
        def f(x: Any) -> Any:
            return st.callback(lambda y: y + k, x, result=X)

        return f

    @st.function
    def twice(x: Any, n: Any) -> Any:
        for _ in st.range(n):
            x = st.callback(np.negative, x, result=X)
            x = st.callback(np.square, x, result=X)
        return x

    one, two = adder(np.float32(1)), adder(np.float32(2))
    for _ in range(2):
        np.testing.assert_array_equal(one(X), X + 1)
        np.testing.assert_array_equal(two(X), X + 2)
        np.testing.assert_array_equal(twice(X, 2), X**4)


def test_a_function_may_call_staged_functions_and_threads_do_not_meet() -> None:
    inner = st.function(lambda x: x * 2.0)

    @st.function
    def f(x: Any, n: Any) -> Any:
        for _ in st.range(n):
            x = st.callback(lambda y: inner(y) - y, x, result=X) + 1.0
        return x

    wanted = X + 50
    np.testing.assert_array_equal(f(X, 50), wanted)
    results: list[Any] = []
    run_at_once([lambda: results.append(f(X, 50))] * 4)
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, wanted)


def test_functions_that_recurse_call_python() -> None:
    seen: list[int] = []

    @st.function
    def down(n: Any) -> Any:
        if n > 0:
            st.callback(seen.append, n)
            return down(n - 1) + 1
        return 0

    assert down(4) == 4
    assert seen == [4, 3, 2, 1]


def test_in_a_region_only_the_arguments_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    seen: list[Any] = []

    @st.function
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for _ in st.range(n):
                x = st.exp(-x)
                y = x + 1.0
                x = x + st.callback(lambda total: seen.append(total) or np.ones(3, np.float32), y.sum(), result=X[0])
        return x

    x = X
    for _ in range(2):
        x = np.exp(-x) + 1
    np.testing.assert_allclose(f(X, 2), x, rtol=1e-6)
    assert len(seen) == 2 and seen[0].shape == ()
    copies = {(str(copy.source), copy.why) for copy in f.stage(X, 2).transfers() if copy.in_loop}
    assert copies == {("gpu", "callback"), ("cpu", "value")}


# ---- exceptions ----


class Stopped(Exception):
    pass


def test_an_exception_leaves_the_program_with_the_line() -> None:
    def check(step: Any) -> None:
        if step == 3:
            raise Stopped(f"at step {step}")

    counter = st.Variable(np.zeros((), np.int64), name="counter")

    @st.function
    def f(n: Any) -> Any:
        for step in st.range(n):
            counter.value = counter.value + 1
            st.callback(check, step)
        return n

    for _ in range(2):  # the second time the program starts anew
        counter.value = np.int64(0)
        with pytest.raises(Stopped, match="at step 3") as caught:
            f(10)
        (note,) = caught.value.__notes__
        assert "called by a program, at" in note and "st.callback(check, step)" in note
        assert caught.value.__traceback__ is not None
        assert counter.numpy() == 4
    f(2)
    with st.eager(), pytest.raises(Stopped, match="at step 3"):
        f(10)


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        (
            np.zeros(3, np.float32),
            st.ShapeError,
            r"is to return f32 \(2, 3\), it has returned an array of shape \(3,\)",
        ),
        (np.zeros((2, 3)), st.DTypeError, "is to return f32, it has returned float64"),
        (None, st.ShapeError, "is to return f32"),
        ([X, X], st.ShapeError, "another structure"),
    ],
)
def test_what_was_not_promised_stops_the_program(made: Any, error: type[Exception], words: str) -> None:
    @st.function
    def f(x: Any) -> Any:
        return st.callback(lambda y: made, x, result=np.empty((2, 3), np.float32))

    for run in (lambda: f(X), lambda: _eagerly(f, X)):
        with pytest.raises(error, match=words) as caught:
            run()
        assert "st.callback(lambda y: made, x" in str(caught.value)


@pytest.mark.parametrize(("value", "dtype"), [(300, st.i8), (2**40, st.i32), (2**70, st.i64), (-1, st.u8)])
def test_an_integer_that_its_dtype_cannot_hold_does_not_wrap_around(value: int, dtype: Any) -> None:
    @st.function
    def f(x: Any) -> Any:
        return st.callback(lambda y: value if y[0, 0] < 0 else 3, x, result=dtype)

    for run in (f, lambda x: _eagerly(f, x)):
        with pytest.raises(st.DTypeError, match=f"is to return {dtype}, it has returned {value}") as caught:
            run(-X - 1)
        assert "st.callback(lambda y" in str(caught.value)
    assert f(X + 1) == 3
    assert f(X + 1).dtype == dtype.numpy


# ---- derivatives, and what is refused ----


def test_a_derivative_goes_past_it_and_calls_once() -> None:
    seen: list[float] = []

    def loss(x: Any) -> Any:
        y = x * x
        st.callback(lambda v: seen.append(float(v)), y.sum())
        scale = st.callback(lambda v: v * 0 + 3, st.stop_gradient(x), result=X)
        return (scale * y).sum()

    f = st.function(st.grad(loss))
    np.testing.assert_array_equal(f(X), 6 * X)
    assert seen == [55.0]
    np.testing.assert_array_equal(_eagerly(f, X), 6 * X)


def test_a_derivative_through_it_is_refused_with_the_line() -> None:
    def loss(x: Any) -> Any:
        return (st.callback(np.square, x, result=X) * x).sum()

    for run in (
        lambda: st.function(st.grad(loss))(X),
        lambda: _eagerly(st.function(st.grad(loss)), X),
        lambda: st.function(lambda x: st.jvp(loss, (x,), (x,)))(X),
        lambda: st.grad(loss)(X),
    ):
        with pytest.raises(st.GradientError, match="callback") as caught:
            run()
        assert "st.callback(np.square, x, result=X)" in str(caught.value)


def test_vmap_exports_tries_and_wrong_specs_are_refused_with_the_line() -> None:
    def mapped(x: Any) -> Any:
        return st.vmap(lambda row: st.callback(np.sum, row, result=st.f32))(x)

    with pytest.raises(st.StagingError, match="`st.callback` inside"):
        st.function(mapped)(X)

    @st.function
    def f(x: Any) -> Any:
        return st.callback(np.negative, x, result=X)

    with pytest.raises(st.UnsupportedError, match="an exported program has no Python.*`negative`") as caught:
        f.stage(X).export("never")
    assert "st.callback(np.negative, x, result=X)" in str(caught.value)
    assert not Path("never").exists()

    @st.function
    def tried(x: Any) -> Any:
        try:
            st.callback(np.negative, x)
        except ValueError:
            return x
        return x + 1

    with pytest.raises(st.StagingError, match="cannot catch"):
        tried(X)
    with pytest.raises(st.ArgumentError, match="`result` of st.callback takes arrays"):
        st.function(lambda x: st.callback(np.negative, x, result="f32"))(X)
    with pytest.raises(st.StagedValueError, match="takes a function first, got ndarray"):
        st.function(lambda x: st.callback(X, x))(X)


def test_a_layer_that_calls_python_in_plain_python_and_staged() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(x) + st.callback(lambda v: np.ones_like(v), st.stop_gradient(x), result=X)

    model = Noisy()
    plain = np.asarray(model(X))
    np.testing.assert_allclose(st.function(lambda m, x: m(x))(model, X), plain, rtol=1e-6)
