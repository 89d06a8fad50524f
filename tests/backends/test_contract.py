"""The contract of a back end: one from outside runs programs, and a program's back end is chosen by its devices and by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.backends.registry import back_ends, choose
from staged.runtime import languages
from tests.backends.numpy_back_end import NumpyBackEnd, Python

X = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(7, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def numpy_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The back end is registered for the length of a test."""
    monkeypatch.setitem(back_ends(), "numpy", NumpyBackEnd())
    monkeypatch.setitem(languages._registered, "python", Python())


def elementwise(x: Any, w: Any) -> Any:
    return st.tanh(x) * 2.0 + 1.0


def network(x: Any, w: Any) -> Any:
    return st.softmax(st.relu(x @ w + 0.5), axis=1), st.sum(x, axis=0)


def gradient(x: Any, w: Any) -> Any:
    return st.grad(lambda w: st.mean((x @ w) ** 2))(w)


def branch(x: Any, w: Any) -> Any:
    if st.sum(x) > 0.0:
        y = x * 2.0
    else:
        y = x - 1.0
    return y


PROGRAMS = [elementwise, network, gradient, branch]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_back_end_from_outside_runs_programs(function: Callable[..., Any], sign: int) -> None:
    def there(x: Any, w: Any) -> Any:
        with with_backend(GPU, using="numpy"):
            return function(x, w)

    staged = st.function(there)
    assert "def program(" in staged.stage(sign * X, W).source
    for got, wanted in zip(_list(staged(sign * X, W)), _list(st.function(function)(sign * X, W)), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)


def test_what_it_cannot_write_is_refused_with_its_line() -> None:
    @st.function
    def loop(x: Any, n: Any) -> Any:
        with with_backend(GPU, using="numpy"):
            for _ in st.range(n):
                x = x * 2.0
        return x

    with pytest.raises(st.errors.UnsupportedError, match="cannot write for") as error:
        loop(X, 3)
    assert "for _ in st.range(n)" in str(error.value)
    with pytest.raises(st.errors.UnsupportedError, match="cannot be exported"):
        st.function(_on("numpy")).stage(X).export("nowhere")


def test_the_environment_names_a_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_BACKEND", "numpy")
    assert "def program(" in st.function(_on(None)).stage(X).source
    assert "// backend native" in st.function(lambda x: x + 1.0).stage(X).source, "the host's alone"
    assert "// backend cublas_cudnn" in st.function(_on("cublas_cudnn")).stage(X).source, "a region says otherwise"
    monkeypatch.setenv("STAGED_BACKEND", "numpi")
    with pytest.raises(st.errors.StagingError, match="'numpi', the back ends are cublas_cudnn, native, opencl, numpy"):
        st.function(_on(None)).stage(X)


def test_names_are_checked_where_they_are_said() -> None:
    with pytest.raises(
        st.errors.StagingError, match="using='cublas_cudnn' or using='opencl' or using='numpy', got 'native'"
    ):
        with_backend(GPU, using="native")
    with pytest.raises(st.errors.StagingError, match="`using` is an option of a GPU's region"):
        with_backend(st.CPU, using="native")

    @st.function
    def both(x: Any) -> Any:
        with with_backend(GPU, using="numpy"):
            x = x + 1.0
        with with_backend(GPU, using="cublas_cudnn"):
            return x + 1.0

    with pytest.raises(st.errors.StagingError, match="in another region of one program"):
        both.stage(X)


def test_without_a_name_the_fewest_other_devices_count_then_the_order() -> None:
    assert choose({"cpu"}).name == "native"
    assert choose({"cpu", "gpu"}).name == choose({"gpu"}).name == "cublas_cudnn"
    assert choose({"gpu"}, "numpy").name == "numpy"
    assert choose({"cpu"}, "numpy").name == "native"
    with pytest.raises(st.errors.UnsupportedError, match="no back end runs on npu"):
        choose({"npu"})


def test_a_device_of_another_kind_is_one_that_a_back_end_has(monkeypatch: pytest.MonkeyPatch) -> None:
    back_end = NumpyBackEnd()
    back_end.devices = ("cpu", "npu")
    monkeypatch.setitem(back_ends(), "numpy", back_end)

    @st.function
    def there(x: Any) -> Any:
        with with_backend(type(GPU)("npu")):
            return st.exp(x)

    np.testing.assert_allclose(there(X), np.exp(X), rtol=1e-6)


def test_the_worked_example_of_the_docs_is_this_one_and_short() -> None:
    root = Path(__file__).parents[2]
    text = (Path(__file__).parent / "numpy_back_end.py").read_text()
    page = (root / "docs" / "architecture.md").read_text()
    assert f"<!-- the text of tests/backends/numpy_back_end.py -->\n```python\n{text}```\n" in page
    code = [line for line in text.splitlines() if line.strip() and not line.startswith(("from ", "import ", '"""'))]
    assert len(code) <= 60


def _on(using: str | None) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        with with_backend(GPU, using=using):
            return x * 3.0

    return function


def _list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, tuple) else [values]


def test_a_loader_leaves_arrays_on_the_host_for_a_back_end_that_does_not_know_cudas() -> None:
    x = np.ones((2, 3), np.float32)
    double = st.function(lambda x: x * 2.0)
    with st.with_backend(st.GPU, using="numpy"):
        (batch,) = st.loader([x])
        assert batch is x
        assert double(batch).tolist() == (x * 2).tolist()
