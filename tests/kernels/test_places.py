"""Places of extremes: the first of ties, and the first NaN, in the array's own order, whichever order suits memory."""

from __future__ import annotations

from random import Random

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


KINDS = ("permute", "permute", "reshape", "reshape", "flip", "slice", "pad", "concat", "repeat")


def turned_over(random, shape):
    """One random view of an array of this shape, in words of both libraries."""
    kind, axis = random.choice(KINDS), random.randrange(len(shape))
    if kind == "permute":
        axes = tuple(random.sample(range(len(shape)), len(shape)))
        return lambda a: st.permute_dims(a, axes), lambda a: a.transpose(axes)
    if kind == "reshape":
        size = int(np.prod(shape))
        new = random.choice([(d, size // d) for d in range(1, size + 1) if size % d == 0])
        return lambda a: st.reshape(a, new), lambda a: a.reshape(new)
    if kind == "flip":
        return lambda a: st.flip(a, axis=axis), lambda a: np.flip(a, axis)
    if kind == "slice":
        key = (*(slice(None) for _ in range(axis)), slice(random.randrange(shape[axis]), None, random.choice((1, 2))))
        return lambda a: a[key], lambda a: a[key]
    if kind == "pad":
        widths = [(random.randrange(2), random.randrange(2)) for _ in shape]
        return lambda a: st.pad(a, widths, value=1.0), lambda a: np.pad(a, widths, constant_values=np.float32(1))
    if kind == "concat":
        return lambda a: st.concat([a, a], axis=axis), lambda a: np.concatenate([a, a], axis)
    return lambda a: st.repeat(a, 2, axis=axis), lambda a: a.repeat(2, axis)


def reduced(random, shape):
    """A random reduction, to places more often than not."""
    axis = random.choice((None, *range(len(shape))))
    name = random.choice(("argmax", "argmin", "argmax", "argmin", "sum", "max"))
    return lambda a: getattr(st, name)(a, axis=axis), lambda a: getattr(np, name)(a, axis=axis)


@pytest.mark.parametrize("seed", range(4))
def test_random_views_of_few_numbers_beside_one_another(seed):
    """Arrays of -1, 0 and 1 alone, so that every extreme is met often; several reductions of each view share loops."""
    random = Random(seed)
    x = np.random.default_rng(seed).integers(-1, 2, (3, 4, 5)).astype(np.float32)
    steps = []
    view = x
    for _ in range(20):
        if random.random() < 0.4 or view.size > 200:
            steps.append(("again", lambda a: a, lambda a: a))
            view = x
        step = turned_over(random, view.shape)
        steps.append(("view", *step))
        view = step[1](view)
        steps += [("reduce", *reduced(random, view.shape)) for _ in range(2)]

    def run(array, library):
        found, view = [], array
        for kind, *both in steps:
            if kind == "again":
                view = array
            elif kind == "view":
                view = both[library](view)
            else:
                found.append(both[library](view))
        return found

    for number, (got, right) in enumerate(zip(st.function(lambda x: run(x, 0))(x), run(x, 1), strict=True)):
        np.testing.assert_array_equal(got, right, err_msg=str(number))
