"""The classes of values of the program: `isinstance`, `type`, dtypes and devices give the answers of Python with NumPy."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pytest

import staged as st

torch = pytest.importorskip("torch")

X = np.array([1.0, 2.0])
DTYPES = {np.dtype("float32"): 5, np.dtype("float64"): 6}

QUESTIONS = {
    "bool": lambda x, n: isinstance(bool(np.all(x > 0)), bool),
    "bool is an int": lambda x, n: isinstance(bool(x[0]), int),
    "bool is no array": lambda x, n: isinstance(bool(x[0]), np.ndarray),
    "int": lambda x, n: isinstance(int(x[0]), int),
    "int is no bool": lambda x, n: isinstance(int(x[0]), bool),
    "float": lambda x, n: isinstance(float(x[0]), float),
    "float in a tuple": lambda x, n: isinstance(float(x[0]), (str, (int, float))),
    "float in a union": lambda x, n: isinstance(float(x[0]), int | float),
    "item": lambda x, n: isinstance(x[0].item(), float),
    "item of a bool": lambda x, n: isinstance((x[0] > 0).item(), bool),
    "an argument": lambda x, n: (isinstance(n, int), isinstance(n, bool), type(n) is int),
    "Number": lambda x, n: isinstance(float(x[0]), numbers.Number),
    "Real": lambda x, n: (isinstance(float(x[0]), numbers.Real), isinstance(x[0], numbers.Real)),
    "Integral": lambda x, n: (isinstance(int(x[0]), numbers.Integral), isinstance(float(x[0]), numbers.Integral)),
    "type is": lambda x, n: (type(int(x[0])) is int, type(float(x[0])) is int),
    "type ==": lambda x, n: (type(float(x[0])) == float, type(bool(x[0])) == bool),  # noqa: E721
    "type in": lambda x, n: type(float(x[0])) in (int, float),
    "issubclass": lambda x, n: issubclass(type(float(x[0])), float),
    "type called": lambda x, n: type(float(x[0]))(3) == 3.0,
    "ndarray": lambda x, n: (isinstance(x, np.ndarray), isinstance(x + 1, np.ndarray), isinstance(n, np.ndarray)),
    "element": lambda x, n: (isinstance(x[0], np.ndarray), isinstance(x[0], np.generic)),
    "np.float64": lambda x, n: (isinstance(x[0], np.float64), isinstance(x[0], np.floating), isinstance(x[0], np.float32)),
    "np.bool_": lambda x, n: (isinstance(x[0] > 0, np.bool_), isinstance(x[0] > 0, bool)),
    "isscalar": lambda x, n: (np.isscalar(float(x[0])), np.isscalar(x[0]), np.isscalar(x), np.isscalar("a"), np.isscalar([])),
    "list": lambda x, n: (isinstance(x, list), isinstance(x, (int, str)), type([]) is list),
    "dtype in a set": lambda x, n: (x.dtype in {np.dtype("float64")}, x.dtype in {np.dtype("float32")}),
    "dtype as a key": lambda x, n: DTYPES[x.dtype],
    "dtype ==": lambda x, n: (x.dtype == np.float64, x.dtype == "float64", x.dtype == np.int64, x.dtype in (np.float32, np.float64)),
    "dtype of Python": lambda x, n: ((x > 0).dtype == bool, x.dtype == int),
    "issubdtype": lambda x, n: (np.issubdtype(x.dtype, np.floating), np.issubdtype(x.dtype, np.integer)),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_python(name: str) -> None:
    question = QUESTIONS[name]
    expected = question(X, 3)
    assert st.function(question)(X, 3) == expected
    with st.eager():
        assert st.function(question)(X, 3) == expected


def test_our_classes_are_classes_of_values_too() -> None:
    w = st.Variable(X)

    @st.function
    def f(x: Any) -> Any:
        assert not isinstance(w, np.ndarray)
        assert not isinstance(x[0], float)  # an f64 of NumPy is a float by inheritance, an f32 is not
        return isinstance(x, st.Array), isinstance(float(x[0]), st.Array), isinstance(w, st.Variable)

    assert f(X) == (True, True, True)


def test_classes_are_made_by_type() -> None:
    def f(x: Any) -> Any:
        made = type("Made", (), {"scale": 2.0})
        return x * made.scale

    np.testing.assert_array_equal(st.function(f)(X), 2 * X)


def test_numbers_of_items_take_the_dtype_that_they_meet() -> None:
    single = X.astype(np.float32)
    f = lambda x: (x[1].item() * x, float(x[1]) * x, x[0].item() / 3)  # noqa: E731
    for found, expected in zip(st.function(f)(single), f(single), strict=True):
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [st.f16, st.bf16, st.f32, st.f64, st.i8, st.u8, st.i32, st.i64, st.c64, st.c128, st.bool_])
def test_dtypes_hash_as_those_that_they_equal(dtype: Any) -> None:
    assert dtype == dtype.numpy and hash(dtype) == hash(dtype.numpy)
    assert {dtype.numpy: 1}[dtype] == 1 and {dtype: 1}[dtype.numpy] == 1
    theirs = getattr(torch, dtype.numpy.name)
    assert dtype == theirs and theirs == dtype and dtype != torch.int16
    assert dtype != None  # noqa: E711  # NumPy reads None as f64


@pytest.mark.parametrize("dtype", [float, complex])
def test_a_dtype_equals_a_class_as_in_numpy_and_warns_of_the_other_meaning(dtype: Any) -> None:
    """`dtype=float` makes f32, while NumPy's f64 equals `float`."""
    wide, narrow = (st.f64, st.f32) if dtype is float else (st.c128, st.c64)
    assert wide == dtype and st.i32 != dtype
    f = st.function(lambda x: 1.0 if x.dtype == dtype else 2.0)
    x = np.ones(2, narrow.numpy)
    with pytest.warns(UserWarning, match=rf"is False, as in NumPy: write `x.dtype == st.{narrow}`"):
        assert f(x) == 2.0
    with st.eager(), pytest.warns(UserWarning, match="is False, as in NumPy"):
        assert f(x) == 2.0


def test_devices_equal_their_names() -> None:
    assert st.CPU == "cpu" and st.CPU == torch.device("cpu") and st.CPU != "cuda" and st.CPU != "gpu"
    assert st.GPU == "gpu" and st.GPU == "cuda" and st.GPU == "cuda:0" and st.GPU == torch.device("cuda")
    assert st.GPU(1) == "cuda:1" and st.GPU(1) != "cuda" and st.GPU(1) == torch.device("cuda", 1) and st.GPU(1) != st.GPU
    assert st.CPU in {"cpu"} and "gpu" in {st.GPU} and st.CPU != 0 and st.CPU != None  # noqa: E711
    assert st.function(lambda x: 1 if x.device == "cpu" else 2)(X) == 1
