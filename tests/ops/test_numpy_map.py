"""NumPy's functions on our arrays: carried out by ours, or refused with words."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import EagerArray, wrap
from staged.ir.builder import Builder
from staged.ir.types import TensorType, f32
from staged.ops.array import METHODS, NUMPY_NAMES
from staged.ops.context import use_context
from staged.ops.primitive import PRIMITIVES
from staged.ops.record import RecordContext
from tests.errors.said import refuses

X = np.linspace(0.5, 3.0, 6).reshape(2, 3)

CALLS = {
    "exp": lambda x: np.exp(x),
    "absolute": lambda x: np.abs(x),
    "arctan2": lambda x: np.arctan2(x, 2.0),
    "power": lambda x: np.power(x, 2),
    "add": lambda x: np.add(X, x),
    "array_first": lambda x: X * x,
    "compare": lambda x: X < x,
    "matmul": lambda x: np.matmul(x, X.T),
    "add_reduce": lambda x: np.add.reduce(x),
    "maximum_reduce": lambda x: np.maximum.reduce(x, axis=1),
    "sum": lambda x: np.sum(x, axis=1, keepdims=True),
    "mean": lambda x: np.mean(x),
    "amax": lambda x: np.amax(x, 0),
    "std": lambda x: np.std(x, ddof=1),
    "argmax": lambda x: np.argmax(x, axis=1),
    "reshape": lambda x: np.reshape(x, (3, 2)),
    "transpose": lambda x: np.transpose(x),
    "concatenate": lambda x: np.concatenate([x, x], axis=1),
    "stack": lambda x: np.stack([x, X]),
    "where": lambda x: np.where(x > 1, x, 0.0),
    "clip": lambda x: np.clip(x, 1.0, 2.0),
    "take": lambda x: np.take(x, np.array([0, 1]), axis=1),
    "pad": lambda x: np.pad(x, 1),
    "zeros_like": lambda x: np.zeros_like(x),
    "dot": lambda x: np.dot(x, X.T),
    "tril": lambda x: np.tril(x),
    "ravel": lambda x: np.ravel(x),
    "meshgrid": lambda x: np.meshgrid(x[0], x[1])[1],
    "broadcast_arrays": lambda x: np.broadcast_arrays(x[0], x)[0],
    "reshape_order": lambda x: np.reshape(x, (3, 2), "C"),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "solve": lambda x: np.linalg.solve(x[:, :2] @ x[:, :2].T, x),
    "rfft": lambda x: np.fft.rfft(x, 5, norm="ortho"),
    "fftshift": lambda x: np.fft.fftshift(x, axes=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_numpy_functions_are_carried_out_by_ours(name) -> None:
    got = CALLS[name](wrap(X))
    assert isinstance(got, EagerArray)
    np.testing.assert_allclose(np.asarray(got), CALLS[name](X), rtol=1e-13)


def test_a_numpy_function_is_recorded() -> None:
    builder = Builder()
    with builder.block([TensorType(f32, (3,))]) as opened:
        context = RecordContext(builder)
        with use_context(context):
            y = np.tanh(context.handle(opened.params[0]))
        builder.end("return", [context.value_of(y)])
    assert [op.name for op in opened.block.ops] == ["tanh"]


def test_every_mapped_name_is_one_of_ours() -> None:
    for theirs, ours in NUMPY_NAMES.items():
        assert ours in METHODS and hasattr(np, theirs), theirs


def test_every_function_of_one_element_goes_by_numpys_name_too() -> None:
    """NumPy's function of the same name, or the one that the declaration lists, is ours on arrays of ours."""
    x = st.asarray([0.25, 0.5])
    missing = []
    for name in PRIMITIVES:
        theirs = getattr(np, name, None)
        if isinstance(theirs, np.ufunc) and name in METHODS:
            arrays = [x if PRIMITIVES[name].samples[0].dtypes[0].is_float else st.asarray([1, 2])] * theirs.nin
            if PRIMITIVES[name].samples[0].dtypes[0].is_bool:
                arrays = [st.asarray([True, False])] * theirs.nin
            if not isinstance(theirs(*arrays), st.Array):
                missing.append(theirs.__name__)
    assert not missing, f"list {missing} as `numpy` where these functions are declared"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: np.frexp(x), "np.frexp is not available"),
        (lambda x: np.partition(x, 1), "np.partition is not available"),
        (lambda x: np.linalg.eig(x @ x.T), "np.linalg.eig is not available"),
        (lambda x: np.unwrap(x), "np.unwrap is not available"),
        (lambda x: np.add.accumulate(x), "np.add.accumulate is not available"),
        (lambda x: np.exp(x, out=np.zeros((2, 3))), "out="),
        (lambda x: np.sum(x, initial=3.0), "with these arguments"),
        (lambda x: np.pad(x, 1, mode="mean"), "with these arguments"),
    ],
)
def test_the_rest_is_refused_with_words_in_staged_and_differentiated_code(call, match) -> None:
    run = st.function(lambda x: call(x))
    with refuses(st.StagingError, match):
        run(X)
    with st.eager(), refuses(st.StagingError, match):
        run(X)
    with refuses(st.StagingError, match):
        st.grad(lambda x: st.sum(call(x)))(X)


def test_a_position_means_what_it_means_in_numpy() -> None:
    """The third argument of `np.sum` is a dtype, not ours, `keepdims`."""
    x = X.astype(np.float32)
    calls = [
        lambda x: np.sum(x, 0, np.float64),
        lambda x: np.prod(x, 1, np.float64),
        lambda x: np.max(x, 0, None, True),
        lambda x: np.var(x, 0, None, None, 1),
        lambda x: np.pad(x, 1, "constant"),
        lambda x: np.round(x, 0),
        lambda x: np.full_like(x, 3, np.float64),
    ]

    @st.function
    def run(x):
        return [call(x) for call in calls]

    for got, call in zip(run(x), calls, strict=True):
        np.testing.assert_allclose(got, call(x), rtol=1e-6)
        assert got.dtype == call(x).dtype


def test_numpys_makers_take_staged_numbers():
    """`np.array([x, y])` asks none of its elements: the front end sees the call."""

    def made(x):
        pair = np.array([x[0] * 2.0, x[1]])
        pair[0] += 1.0
        return pair, np.asarray([[x[2]], [1.0]]), np.full((2, 2), x[1]), np.full(2, x[0], np.float32), np.array(x), np.array([1, 2])

    x = np.array([1.0, 2.0, 3.0])
    expected = made(x)
    with st.eager():
        eager = st.function(made)(x)
    for results in (st.function(made)(x), eager):
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype

    def loss(x):
        return st.sum(np.array([x[0] * x[0], x[1]]) * np.full(2, x[2]))

    slope = st.function(lambda x: st.grad(loss)(x))
    with st.eager():
        eager = slope(x)
    for got in (slope(x), eager):
        np.testing.assert_array_equal(got, [6.0, 3.0, 3.0])


def test_methods_have_numpys_name_for_the_correction_and_the_bytes():
    x = np.arange(6.0).reshape(2, 3)

    @st.function
    def f(x):
        return x.std(axis=1, ddof=1), st.var(x, ddof=1), np.std(x, ddof=1), x.nbytes, x.itemsize

    for got, want in zip(f(x), (x.std(axis=1, ddof=1), x.var(ddof=1), x.std(ddof=1), 48, 8), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_what_numpy_meets_inside_of_its_own_functions_names_the_users_line():
    @st.function
    def f(x):
        return np.asarray_chkfinite(x)

    with pytest.raises(st.StagedValueError, match="cannot convert to a NumPy array `x`") as refused:
        f(np.ones(2))
    assert refused.value.where.text.strip() == "return np.asarray_chkfinite(x)"
