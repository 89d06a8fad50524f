"""Places of extremes: the first of ties, and the first NaN, in the array's own order, whichever order suits memory."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

X = np.zeros((4, 3), np.float32)
X[1, 2] = X[2, 0] = 1
T = np.zeros((2, 3, 4), np.float32)
T[0, 2, 1] = T[0, 1, 3] = T[1, 0, 0] = 1
HOLES = T.copy()
HOLES[1, 1, 1] = HOLES[1, 2, 0] = np.nan
EVEN = np.arange(12, dtype=np.float32).reshape(3, 4) % 2


def of_transposes(x, t, holes, even):
    return (
        st.argmax(x.T),
        st.argmin(-x.T),
        st.argmax(st.permute_dims(t, (2, 1, 0))),
        st.argmax(st.permute_dims(t, (1, 2, 0)) + st.permute_dims(t, (1, 2, 0))),
        st.argmax(st.permute_dims(holes, (2, 1, 0))),
        st.argmin(st.permute_dims(holes, (0, 2, 1))),
        st.argmax(st.reshape(st.permute_dims(t, (0, 2, 1)), (2, 12)), axis=1),
        st.argmax(st.flip(t)),
    )


def beside_a_sum(x, t, holes, even):
    return st.sum(x + 1.0, axis=1), st.argmax((x + 1.0).T)


def beside_a_sum_of_columns(x, t, holes, even):
    return st.sum(x + 2.0, axis=0), st.argmax(x + 2.0)


def beside_the_array_itself(x, t, holes, even):
    return x + 3.0, st.argmax((x + 3.0).T)


def beside_another_place(x, t, holes, even):
    whole = t + 1.0
    turned = st.permute_dims(whole, (0, 2, 1))
    return st.argmax(st.reshape(turned, (2, 12)), axis=1), st.argmax(whole), st.argmax(turned)


def of_sums(x, t, holes, even):
    sums = st.sum(even, axis=0)
    return sums, st.argmax(sums), st.argmin(st.sum(x, axis=1))


def of_sums_in_another_order(x, t, holes, even):
    sums = st.sum(even, axis=0)
    return sums, st.argmax(st.reshape(sums, (2, 2)).T)


def turned(array, *axes):
    return array.transpose(axes or None)


RIGHT = {
    of_transposes: (
        turned(X).argmax(),
        turned(-X).argmin(),
        turned(T).argmax(),
        turned(T, 1, 2, 0).argmax(),
        turned(HOLES).argmax(),
        turned(HOLES, 0, 2, 1).argmin(),
        turned(T, 0, 2, 1).reshape(2, 12).argmax(1),
        T[::-1, ::-1, ::-1].argmax(),
    ),
    beside_a_sum: ((X + 1).sum(1), turned(X).argmax()),
    beside_a_sum_of_columns: ((X + 2).sum(0), X.argmax()),
    beside_the_array_itself: (X + 3, turned(X).argmax()),
    beside_another_place: (turned(T, 0, 2, 1).reshape(2, 12).argmax(1), T.argmax(), turned(T, 0, 2, 1).argmax()),
    of_sums: (EVEN.sum(0), EVEN.sum(0).argmax(), X.sum(1).argmin()),
    of_sums_in_another_order: (EVEN.sum(0), EVEN.sum(0).reshape(2, 2).T.argmax()),
}


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_the_first_of_ties_wins_in_the_order_of_the_array(program, way):
    run = st.function(program)
    if way == "eager":
        with st.eager():
            found = run(X, T, HOLES, EVEN)
    else:
        found = run(X, T, HOLES, EVEN)
    for got, right in zip(found, RIGHT[program], strict=True):
        np.testing.assert_array_equal(got, right)
