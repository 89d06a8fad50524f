"""Kernels for arrays without elements: loops of no iterations give what each op means of nothing, and nothing else is touched."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import staged as st

F = np.float32
ROWS, COLUMNS = np.zeros((0, 3), F), np.zeros((3, 0), F)
NONE, SOME = np.zeros(0, np.int64), np.array([0, 2])


@st.function
def of_nothing(z, y, none, some):
    rows = y + 0.0
    rows[some] = st.zeros((2, 0))
    kept = st.ones((3, 2))
    kept[none] = st.zeros((0, 2))
    kept[0:0] = st.zeros((0, 2))
    sums = st.sum(z, axis=0)
    return (
        z + 1.0,
        sums,
        z - sums,
        st.argmax(sums),
        st.sum(y, axis=1),
        st.prod(y, axis=1),
        st.any(y, axis=1),
        st.all(y, axis=1),
        z @ y,
        y @ z,
        st.relu(y @ z + 1.0),
        st.concat([z, z], axis=1),
        st.concat([z, st.ones((1, 3)), z], axis=0),
        st.take(z, none, axis=0),
        st.take(kept, none, axis=0),
        st.scatter_add(y, some, st.zeros((2, 0))),
        st.scatter_add(st.ones((3, 2)), none, st.zeros((0, 2))),
        rows,
        kept,
        st.max_pool2d(st.zeros((0, 2, 4, 4)), 2),
        st.max_pool2d(st.zeros((0, 2, 5, 5)), 3, stride=1),
        st.avg_pool2d(st.zeros((0, 2, 4, 4)), 2),
        st.conv2d(st.zeros((0, 2, 4, 4)), st.ones((3, 2, 3, 3))),
        st.flip(z),
        st.softmax(y, axis=0),
        st.sum(st.pad(z, ((1, 1), (0, 0)), value=2.0), axis=0),
    )


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_what_comes_of_nothing(way):
    if way == "eager":
        with st.eager():
            found = of_nothing(ROWS, COLUMNS, NONE, SOME)
    else:
        found = of_nothing(ROWS, COLUMNS, NONE, SOME)
    right = (
        ROWS, np.zeros(3), ROWS, 0, np.zeros(3), np.ones(3), np.zeros(3, bool), np.ones(3, bool), np.zeros((0, 0)), np.zeros((3, 3)),
        np.ones((3, 3)), np.zeros((0, 6)), np.ones((1, 3)), ROWS, np.zeros((0, 2)), COLUMNS, np.ones((3, 2)), COLUMNS,
        np.ones((3, 2)), np.zeros((0, 2, 2, 2)), np.zeros((0, 2, 3, 3)), np.zeros((0, 2, 2, 2)), np.zeros((0, 3, 2, 2)),
        ROWS, COLUMNS, np.full(3, 4.0),
    )  # fmt: skip
    for number, (got, wanted) in enumerate(zip(found, right, strict=True)):
        np.testing.assert_array_equal(np.asarray(got), wanted, err_msg=str(number))
        assert np.shape(got) == np.shape(wanted), number


def rows_of(x, n):
    return st.dynamic_slice(x, 0, st.dim("N", n, max=3))


READS = {
    "take": lambda x, z, y, i, n: st.take(y, i, axis=0),
    "take along the last axis": lambda x, z, y, i, n: st.take(z, i, axis=1),
    "a subscript": lambda x, z, y, i, n: y[i],
    "two subscripts": lambda x, z, y, i, n: st.reshape(y, (3, 1, 0))[i, i - i],
    "a sum of what is taken": lambda x, z, y, i, n: st.sum(st.take(y, i, axis=0)),
    "rows that the program counts": lambda x, z, y, i, n: st.sum(st.take(rows_of(x, n), i, axis=1)),
    "the slope of what is taken": lambda x, z, y, i, n: st.grad(lambda y: st.sum(st.take(y, i, axis=0)))(y),
    "a row that is set": lambda x, z, y, i, n: st.set_item(y, i, 1.0),
    "columns that are set": lambda x, z, y, i, n: st.set_item(z, (slice(None), i), 1.0),
    "columns that are added to": lambda x, z, y, i, n: st.scatter_add(z, i, st.ones((0, 2)), axis=1),
    "elements that are added to": lambda x, z, y, i, n: st.add_item(x, (slice(0, 0), i), 1.0),
}


@pytest.mark.parametrize("name", READS)
def test_an_index_where_there_are_no_elements_is_checked_all_the_same(name):
    run, x = st.function(READS[name]), np.ones((3, 3), F)
    for way in ("compiled", "eager"):
        for good, i in ((True, SOME), (True, np.array([0, -3])), (False, np.array([0, 7])), (False, np.array([-4, 0]))):
            with contextlib.ExitStack() as stack:
                if way == "eager":
                    stack.enter_context(st.eager())
                if not good:
                    stack.enter_context(pytest.raises(st.ProgramError, match="out of range"))
                assert np.size(run(x, ROWS, COLUMNS, i, 0)) in (0, 1, 9), way


@st.function
def of_padding(x, w):
    def value(x, w):
        nowhere, between_rows = st.conv2d(x, w, stride=10, padding=3), st.conv2d(x, w, stride=(10, 1), padding=(3, 0))
        return st.sum(nowhere) + st.sum(between_rows**2) + st.sum(x) + nowhere.shape[2] * st.sum(w) * 0.0

    return st.value_and_grad(value, argnums=(0, 1))(x, w), st.conv2d(x, w, stride=10, padding=3)


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_windows_that_see_padding_alone_give_zeros(way):
    x, w = np.ones((1, 2, 2, 2), F), np.ones((3, 2, 1, 1), F)
    with st.eager() if way == "eager" else contextlib.nullcontext():
        (value, (d_x, d_w)), nowhere = of_padding(x, w)
    assert value == 8 and (d_x == 1).all() and (d_w == 0).all() and nowhere.shape == (1, 3, 1, 1) and not nowhere.any()
