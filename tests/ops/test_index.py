"""`x[key]` and `x[key] = v` against NumPy, with static and staged indices, and what is refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import EagerContext, eager, wrap
from staged.ops.array import METHODS
from tests.errors.said import refuses

X = np.arange(60, dtype=np.float64).reshape(3, 4, 5)
I32 = np.array([2, 0, -1], np.int32)

KEYS = [
    1,
    -1,
    (1, 2, 3),
    (slice(None), -2),
    slice(1, 3),
    slice(None, None, -1),
    (slice(None), slice(3, None, -2)),
    (slice(None), slice(-1, 0, -1), slice(1, None, 2)),
    (Ellipsis, 0),
    (0, Ellipsis),
    (None, 1, None, slice(2)),
    (slice(2, 1),),
    Ellipsis,
    (),
    I32,
    (slice(None), I32),
    (slice(None), slice(1, 3), I32),
    (I32, I32),
    (slice(None), I32, I32),
    (I32, slice(None), I32),
    (1, I32),
    np.array([[0, 1], [1, 2]]),
    (np.array([[0], [1]]), np.array([2, 3])),
    (I32, None, slice(0, 2)),
    (1, slice(None), I32),
    (slice(None), I32, Ellipsis, I32),  # an ellipsis of no axes stands between them, too
    (slice(None), Ellipsis, I32, I32),
    (slice(None), 0, Ellipsis, I32),
    (I32, slice(1, 3), 2),
    (I32, None, I32),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_reads_agree_with_numpy(key) -> None:
    got = METHODS["get_item"](X, key)
    np.testing.assert_array_equal(np.asarray(got), X[key])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_writes_agree_with_numpy(key) -> None:
    expected = X.copy()
    expected[key] = -1.0
    np.testing.assert_array_equal(np.asarray(METHODS["set_item"](X, key, -1.0)), expected)
    value = 100.0 + np.arange(X[key].size, dtype=np.float64).reshape(X[key].shape)
    expected[key] = value
    np.testing.assert_array_equal(np.asarray(METHODS["set_item"](X, key, value)), expected)
    expected = X.copy()
    np.add.at(expected, key, value)
    np.testing.assert_array_equal(np.asarray(METHODS["add_item"](X, key, value)), expected)


@pytest.mark.parametrize("index", [0, 2, -1, -3])
def test_staged_integers_index_as_numbers_do(index) -> None:
    i = wrap(index)
    np.testing.assert_array_equal(np.asarray(METHODS["get_item"](X, i)), X[index])
    np.testing.assert_array_equal(np.asarray(METHODS["get_item"](X, (slice(None), i, slice(1, 4)))), X[:, index, 1:4])
    expected = X.copy()
    expected[index, 1:3] = 7.0
    np.testing.assert_array_equal(np.asarray(METHODS["set_item"](X, (i, slice(1, 3)), 7)), expected)


@pytest.mark.parametrize("index", [3, -4])
def test_out_of_range_is_an_error(index) -> None:
    with pytest.raises(st.ShapeError, match="out of range for axis 0"):
        st.function(lambda x: x[index]).stage(X)
    for key in (index, wrap(index), np.array([0, index]), (np.array([0, 1]), np.array([0, index * 2]))):
        with pytest.raises(st.ProgramError, match="out of range") as caught:
            METHODS["get_item"](X, key)
        assert isinstance(caught.value, IndexError)
        with pytest.raises(st.ProgramError, match="out of range"):
            METHODS["set_item"](X, key, 0.0)


def test_dynamic_slice_keeps_its_window_inside() -> None:
    for start in (0, 2, -2):
        expected = X[:, start : start + 2 if start != -2 else None]
        np.testing.assert_array_equal(np.asarray(st.dynamic_slice(X, wrap(start), 2, axis=1)), expected)
    for start in (3, -5):
        with pytest.raises(st.ProgramError, match="out of range"):
            st.dynamic_slice(X, wrap(start), 2, axis=1)
    written = np.asarray(st.dynamic_update_slice(X, X[:, :2] * 0, wrap(2), axis=1))
    assert (written[:, 2:] == 0).all() and (written[:, :2] == X[:, :2]).all()


def test_masks_write_and_do_not_read() -> None:
    expected = X.copy()
    expected[X > 30] = 0.0
    np.testing.assert_array_equal(np.asarray(METHODS["set_item"](X, X > 30, 0)), expected)
    rows = np.array([True, False, True])
    expected[rows] = np.arange(5.0)
    np.testing.assert_array_equal(
        np.asarray(METHODS["set_item"](METHODS["set_item"](X, X > 30, 0), rows, np.arange(5.0))), expected
    )
    with pytest.raises(st.ShapeError, match="mask") as caught:
        st.function(lambda x: x[x > 30])(X)
    assert "st.where" in str(caught.value)
    with pytest.raises(st.ShapeError, match="does not fit"):
        METHODS["set_item"](X, np.array([True, False]), 0)


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("condition", [False, True])
def test_a_single_bool_is_a_mask_and_no_position(condition: bool, is_eager: bool) -> None:
    def write(x, condition):
        x[condition] = 7.0
        return x

    def read(x, condition):
        return x[condition]

    expected = X.copy()
    expected[np.array(condition)] = 7.0
    with st.eager() if is_eager else contextlib.nullcontext():
        np.testing.assert_array_equal(np.asarray(st.function(write)(X, np.array(condition))), expected)
        with pytest.raises(st.ShapeError, match="mask") as caught:
            st.function(read)(X, np.array(condition))
    assert "cast it" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ((0, 0, 0, 0), "too many indices"),
        (1.5, "integer"),
        (np.array([0.5]), "integers"),
        ((Ellipsis, Ellipsis), "at most one"),
        (True, "bool is not an index"),
        (slice(None, None, 0), "step"),
    ],
)
def test_bad_keys_are_refused_with_words(key, match) -> None:
    with refuses(st.StagedError, match):
        METHODS["get_item"](X, key)


def test_a_slice_with_a_staged_bound_names_dynamic_slice() -> None:
    @st.function
    def window(x, start, stop):
        return x[start:stop]

    with pytest.raises(st.ShapeError, match="staged bound") as caught:
        window(X, 0, 2)
    assert "st.dynamic_slice" in str(caught.value)


def test_writing_what_does_not_fit_is_refused() -> None:
    with pytest.raises(st.DTypeError, match="cannot write"):
        METHODS["set_item"](np.zeros(3, np.int64), 0, 1.5)
    with pytest.raises(st.DTypeError, match="cannot write"):
        METHODS["set_item"](np.zeros(3, np.float32), 0, np.zeros((), np.float64))
    with pytest.raises(st.ShapeError, match="cannot write"):
        METHODS["set_item"](X, 0, np.zeros((2, 5)))


@pytest.mark.parametrize("key", [1, slice(0, 2), I32, (I32, I32), np.array([1, 1, 0])], ids=str)
def test_gradients_of_reads_and_writes_agree_with_differences(key) -> None:
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal(X.shape), rng.standard_normal(X[key].shape)
    weights = rng.standard_normal(X.shape)

    def f(x_, v_):
        written = METHODS["set_item"](x_, key, v_ * v_)
        return [st.sum(written * weights) + st.sum(METHODS["get_item"](x_, key) * v_)]

    context = EagerContext()
    with eager():
        _, pullback = context.vjp(f, [x, v])
        d_x, d_v = (np.asarray(g) for g in pullback([st.asarray(1.0, st.f64)]))
    for index, (grad, at) in enumerate(((d_x, x), (d_v, v))):
        d = rng.standard_normal(at.shape)
        up, down = ([x, v], [x, v])
        up[index], down[index] = at + 1e-6 * d, at - 1e-6 * d
        slope = (float(f(*map(wrap, up))[0]) - float(f(*map(wrap, down))[0])) / 2e-6
        np.testing.assert_allclose(np.sum(grad * d), slope, rtol=1e-6)
