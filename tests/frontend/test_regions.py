"""`with_backend`: the device of ops."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError
from tests.frontend.harness import ir

X = np.arange(3, dtype=np.float32)


def lines_on_gpu(text: str) -> int:
    return sum(line.endswith(" on gpu") or " on gpu:" in line for line in text.splitlines())


def test_ops_in_the_region_carry_its_device() -> None:
    def f(x):
        y = x + 1.0
        with st.with_backend(st.GPU, x) as g:
            z = g * 2.0
            with st.with_backend(st.CPU):
                z = z - 1.0
        return y + z

    text = ir(f, X)
    assert "multiply(x, " in text
    assert [line for line in text.splitlines() if "multiply" in line][0].endswith("on gpu")
    assert not [line for line in text.splitlines() if "subtract" in line][0].endswith("on gpu")


def test_device_is_restored_on_every_way_out() -> None:
    def leave(x, n):
        with st.with_backend(st.GPU, x):
            for i in st.range(n):
                if i == 2:
                    return x * 2.0
        return x

    def f(x, n):
        y = leave(x, n)
        try:
            with st.with_backend(st.GPU, x):
                raise KeyError("out")
        except KeyError:
            pass
        return y - 1.0

    text = ir(f, X, 3)
    assert not [line for line in text.splitlines() if "subtract" in line][0].endswith("on gpu")
    assert lines_on_gpu(text) > 0


def test_the_region_around_is_restored_on_every_way_out_of_an_inner_one() -> None:
    def leave(x, n):
        with st.with_backend(st.CPU):
            for i in st.range(n):
                if i == 2:
                    return x
        return x

    def f(x, n):
        with st.with_backend(st.GPU, x):
            for i in st.range(n):
                with st.with_backend(st.CPU):
                    if i == 3:
                        break
                    if i == 1:
                        continue
                x = x - 1.0
            y = st.exp(leave(x, n))
            try:
                with st.with_backend(st.CPU):
                    raise KeyError("out")
            except KeyError:
                pass
            z = st.sin(y)
        return st.tanh(z)

    text = ir(f, X, 5)
    for op, there in (("subtract", True), ("exp", True), ("sin", True), ("tanh", False)):
        (line,) = [line for line in text.splitlines() if f"= {op}(" in line]
        assert line.endswith("on gpu") == there, line


def test_device_is_needed() -> None:
    def f(x):
        with st.with_backend("gpu", x):
            return x

    with pytest.raises(StagingError, match="with_backend takes a device, got str"):
        ir(f, X)


def test_devices_have_numbers() -> None:
    assert (str(st.GPU(1)), str(st.GPU(0)), st.GPU(0) == st.GPU) == ("gpu(1)", "gpu", True)
    for made, words in ((lambda: st.CPU(1), "there is one CPU"), (lambda: st.GPU(-1), "numbered from 0")):
        with pytest.raises(StagingError, match=words):
            made()

    def f(x):
        with st.with_backend(st.GPU(1), x):
            return x * 2.0

    assert " on gpu(1)" in ir(f, X)


def test_to_is_an_op_on_its_device() -> None:
    def f(x):
        y = st.to({"x": x, "n": 3}, st.GPU)
        return st.to(y["x"], st.CPU) * 2.0

    text = ir(f, X)
    assert [line.split(" = ")[1] for line in text.splitlines() if "to_device" in line] == [
        "to_device(x) on gpu", "to_device(t)",
    ]  # fmt: skip
    with pytest.raises(StagingError, match="to takes a device, got str"):
        ir(lambda x: st.to(x, "gpu"), X)


# ---- strict regions -------------------------------------------------------------------------------

W = st.Variable(np.ones(3, np.float32), name="W")


def names_all(x, b):
    inner = st.Variable(st.zeros((3,)))
    rate = st.Variable(0.5)
    with st.with_backend(st.GPU, x, {"b": [b]}, X, W, inner, strict=True):
        y = x * W + b + X + st.ones((3,)) + rate
        for i in st.range(3):
            y = st.where(i > 1, y, y * 2.0)
        inner.value = y
        with st.with_backend(st.CPU):
            h = y + 1.0
    return h, inner.value, x * 2.0


def array_argument(x, b):
    with st.with_backend(st.GPU, x, strict=True):
        return x * b  # the line


def array_from_outside(x, b):
    with st.with_backend(st.GPU, x, strict=True):
        return x * X  # the line


def variable(x, b):
    with st.with_backend(st.GPU, x, strict=True):
        return x * W  # the line


def written_variable(x, b):
    with st.with_backend(st.GPU, x, strict=True):
        W.value = x  # the line


def result_of_the_host(x, b):
    y = b + 1.0
    with st.with_backend(st.GPU, x, strict=True):
        loss = st.grad(lambda x: st.sum(x * y))(x)  # the line
    return loss


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (array_argument, r"`b` \(f32 \(3,\)\) is used in a strict region of `GPU` that does not name it"),
        (array_from_outside, "an array"),
        (variable, "the Variable `W`"),
        (written_variable, "the Variable `W`"),
        (result_of_the_host, "`y`"),
    ],
)
def test_a_strict_region_takes_what_it_names(function, what) -> None:
    with pytest.raises(StagingError, match=what) as caught:
        ir(function, X, X + 1.0)
    assert caught.value.where is not None and "# the line" in caught.value.where.text


def test_a_strict_region_takes_all_that_it_names_and_numbers_and_what_it_makes() -> None:
    assert lines_on_gpu(ir(names_all, X, X + 1.0)) > 5


# ---- plain Python ---------------------------------------------------------------------------------


def test_a_region_in_plain_python_keeps_its_arrays_until_it_ends() -> None:
    a, b = np.arange(3.0), np.arange(3)
    b.flags.writeable = False
    with st.with_backend(st.GPU, a, {"b": [b], "w": W, "n": 2}) as (kept, tree):
        assert isinstance(kept, st.DeviceArray) and kept.device == st.GPU
        assert (tree["w"], tree["n"]) == (W, 2) and isinstance(tree["b"][0], st.DeviceArray)
        with st.with_backend(st.GPU, a) as again:
            assert again is kept
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1.0
        with st.with_backend(st.CPU, kept) as host:
            assert host is a
    assert a.flags.writeable and not b.flags.writeable
    a[0] = 1.0
    assert repr(kept) == "DeviceArray(float64 (3,) on gpu)"
    np.testing.assert_array_equal(kept + 1.0, a + 1.0)
    np.testing.assert_array_equal(np.asarray(kept), a)
    assert (len(kept), kept[1], list(kept), kept.ndim) == (3, 1.0, list(a), 1)
    assert st.to(st.to({"a": a}, st.GPU), st.CPU)["a"] is a


def test_staged_calls_take_what_a_region_keeps_from_the_device() -> None:
    other = X + 1.0

    @st.function
    def f(x, y):
        return x * y + other

    @st.function
    def on_the_host(x):
        with st.with_backend(st.CPU):
            return x * 2.0

    def signature(*args):
        return f.stage(*args).ir.splitlines()[0]

    with st.with_backend(st.GPU, X, other) as (kept, _):
        assert signature(X, X * 2.0) == "func f(x: f32 (3,) on gpu, y: f32 (3,), other: f32 (3,) on gpu):"
        assert signature(kept, kept) == "func f(x: f32 (3,) on gpu, y: f32 (3,) on gpu, other: f32 (3,) on gpu):"
        assert "on gpu" not in on_the_host.stage(X).ir
        with st.with_backend(st.CPU):
            assert "on gpu" not in f.stage(kept, X).ir
    assert "on gpu" not in f.stage(kept, X).ir
    with st.eager():
        with st.with_backend(st.GPU, X) as same:
            assert same is X
            np.testing.assert_array_equal(f(X, X), X * X + other)


def test_an_error_in_a_region_of_plain_python_ends_it() -> None:
    a = np.arange(3.0)
    with pytest.raises(KeyError), st.with_backend(st.GPU, a):
        raise KeyError
    assert a.flags.writeable
    assert "on gpu" not in st.function(lambda x: x * 2.0).stage(a).ir


def test_a_strict_region_in_plain_python_takes_what_it_names() -> None:
    a, b = np.arange(3.0), np.arange(3.0)

    @st.function
    def f(x, y):
        return x * y  # the line

    @st.function
    def with_variable(x):
        return x * st.astype(W, x.dtype)  # the line

    with st.with_backend(st.GPU, a, strict=True) as kept:
        f.stage(a, kept)
        f.stage(a, 2.0)
        for function, args, what in ((f, (a, b), "`y`"), (with_variable, (a,), "the Variable `W`")):
            with pytest.raises(StagingError, match=what) as caught:
                function.stage(*args)
            assert caught.value.where is not None and "# the line" in caught.value.where.text
    with st.with_backend(st.GPU, a, b, W, strict=True):
        f.stage(a, b)
        with_variable.stage(a)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: st.GPU("a"), "numbered from 0, got GPU\\('a'\\)"),
        (lambda: st.with_backend(st.GPU, "x"), "takes the arrays that a region uses, got str"),
        (lambda: st.with_backend(st.GPU, st.GPU(1)), "takes the arrays that a region uses, got Device"),
        (lambda: st.with_backend(st.GPU, (x for x in [X])), "got generator"),
        (lambda: st.with_backend(st.GPU, np.sin, X), "got ufunc"),
        (lambda: st.with_backend(st.GPU, len), "got builtin"),
        (lambda: st.with_backend(st.GPU, strict=1), "strict=True or strict=False, got 1"),
        (lambda: st.with_backend(st.GPU, algorithms=X), "algorithms='heuristic' or algorithms='timed'"),
    ],
)
def test_wrong_uses_are_refused_with_the_line(wrong, words: str) -> None:
    with pytest.raises(StagingError, match=words) as raised:
        wrong()
    assert raised.value.where is not None and raised.value.where.file == __file__
    with pytest.raises(StagingError, match=words) as raised:
        ir(lambda x: (wrong(), x), X)
    assert raised.value.where is not None and raised.value.where.file == __file__
