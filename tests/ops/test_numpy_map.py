"""NumPy's functions on our arrays: carried out by ours, or refused with words."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager import EagerArray, wrap
from staged.ir.builder import Builder
from staged.ir.types import TensorType, f32
from staged.ops.array import METHODS
from staged.ops.context import use_context
from staged.ops.numpy_map import _FUNCTIONS, _REDUCTIONS, _SAME_FUNCTIONS, _SAME_UFUNCS, _UFUNCS
from staged.ops.record import RecordContext

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
    for ours in (*_SAME_UFUNCS, *_UFUNCS.values(), *_REDUCTIONS.values(), *_SAME_FUNCTIONS, *_FUNCTIONS.values()):
        assert ours in METHODS, ours


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: np.frexp(x), "np.frexp is not available"),
        (lambda x: np.sort(x), "np.sort is not available"),
        (lambda x: np.linalg.inv(x @ x.T), "np.linalg.inv is not available"),
        (lambda x: np.fft.fft(x), "is not available"),
        (lambda x: np.add.accumulate(x), "np.add.accumulate is not available"),
        (lambda x: np.exp(x, out=np.zeros((2, 3))), "out="),
        (lambda x: np.sum(x, initial=3.0), "with these arguments"),
        (lambda x: np.pad(x, 1, mode="edge"), "with these arguments"),
    ],
)
def test_the_rest_is_refused_with_words_in_staged_and_differentiated_code(call, match) -> None:
    run = st.function(lambda x: call(x))
    with pytest.raises(st.StagingError, match=match):
        run(X)
    with st.eager(), pytest.raises(st.StagingError, match=match):
        run(X)
    with pytest.raises(st.StagingError, match=match):
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
