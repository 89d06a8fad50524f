# ruff: noqa: B007, B905
"""`st.batches`: whole batches and the rest, shuffled, with `enumerate`, `zip` and `reversed`."""

from __future__ import annotations

import numpy as np

import staged as st
from tests.frontend.harness import Case, checks_of, ir, ops

M = np.linspace(-1.0, 2.0, 14, dtype=np.float32).reshape(7, 2)
Y = np.array([2.0, -1.0, 0.5, 1.0, 3.0, -2.0, 1.5], np.float32)


def of_one_array(m):
    total = m[0] * 0.0
    for rows in st.batches(m, size=3):
        total = total * 0.5 + (rows * rows).sum(axis=0)
    return total


def of_two_arrays(m, y):
    total = 0.0
    for rows, labels in st.batches(m, y, size=2):
        total = total * 0.9 + (rows.sum(axis=1) * labels).sum()
    return total


def with_a_rest(m, y):
    total = 0.0
    for rows, labels in st.batches(m, y, size=3, drop_last=False):
        total = total * 0.9 + (rows.sum(axis=1) * labels).mean() * rows.shape[0]
    return total


def numbered(m, y):
    total = 0.0
    for i, (rows, labels) in enumerate(st.batches(m, y, size=2)):
        total = total + (rows.sum(axis=1) * labels).sum() * (i + 1)
    return total


def numbered_with_a_rest(m, y):
    total = 0.0
    last = 0
    for i, (rows, labels) in enumerate(st.batches(m, y, size=2, drop_last=False), 10):
        total = total + (rows.sum(axis=1) * labels).sum() * i
        last = i
    return total, last


def zipped_with_a_rest(m, y):
    total = 0.0
    for rows, value, k in zip(st.batches(m, size=2, drop_last=False), y, range(1, 100)):
        total = total + rows.sum() * value * k
    for rows, value in zip(st.batches(m, size=2, drop_last=False), y[:2]):
        total = total + rows.sum() * value
    for rows, (i, value) in zip(st.batches(m, size=3, drop_last=False), enumerate(y)):
        total = total * 0.5 + rows.sum() * value * i
    return total


def backwards(m):
    total = m[0] * 0.0
    for rows in reversed(st.batches(m, size=2)):
        total = total * 0.5 + rows.sum(axis=0)
    return total


def backwards_from_a_rest(m):
    total = m[0] * 0.0
    for rows in reversed(st.batches(m, size=3, drop_last=False)):
        total = total * 0.5 + rows.sum(axis=0)
    return total


def zipped_with_a_number_of_iterations(m, n):
    total = 0.0
    for rows, i in zip(st.batches(m, size=3, drop_last=False), range(n)):
        total = total * 0.5 + rows.sum() * (i + 1)
    return total


def number_of_batches(m):
    rest = st.batches(m, size=3, drop_last=False)
    return len(rest) * 10 + len(st.batches(m, size=3)), [rows.shape[0] for rows in rest]


def rest_with_else(m, limit):
    total = 0.0
    for rows in st.batches(m, size=3, drop_last=False):
        if rows.shape[0] < 3 and rows.sum() > limit:
            break
        total = total + rows.sum()
    else:
        total = total * 10.0
    return total


def rest_that_continues_and_returns(m, limit):
    total = 0.0
    for rows in st.batches(m, size=3, drop_last=False):
        if rows.sum() < limit:
            continue
        total = total + rows.sum()
        if total > 2.0 * limit:
            return total * 10.0
    return total


def rest_of_nothing(m):
    total = 0.0
    for rows in st.batches(m, size=7, drop_last=False):
        total = total + rows.sum()
    for rows in st.batches(m, size=100, drop_last=False):
        total = total + rows.sum() * 2.0
    for rows in st.batches(m, size=100):
        total = total + rows.sum() * 100.0
    return total


def epochs(m, y, n):
    weight = y[0] * 0.0
    for epoch in st.range(n):
        for step, (rows, labels) in enumerate(st.batches(m, y, size=2)):
            error = rows.sum(axis=1) * weight - labels
            weight = weight - 0.1 * (error * rows.sum(axis=1)).mean()
            if step == 1:
                break
    return weight


def shuffled(m):
    total = m[0] * 0.0
    count = 0
    for rows in st.batches(m, size=2, shuffle=True, drop_last=False):
        total = total + (rows * rows).sum(axis=0)
        count += rows.shape[0]
    return total, count


CASES = [
    Case(of_one_array, [(M,)], wrt=(0,)),
    Case(of_two_arrays, [(M, Y)], wrt=(0, 1)),
    Case(with_a_rest, [(M, Y)], wrt=(0, 1)),
    Case(numbered, [(M, Y)], wrt=(0, 1)),
    Case(numbered_with_a_rest, [(M, Y)], wrt=(0, 1)),
    Case(zipped_with_a_rest, [(M, Y)], wrt=(0, 1)),
    Case(backwards, [(M,)], wrt=(0,)),
    Case(backwards_from_a_rest, [(M,)], wrt=(0,)),
    Case(zipped_with_a_number_of_iterations, [(M, 0), (M, 2), (M, 3), (M, 9)], wrt=(0,)),
    Case(number_of_batches, [(M,)]),
    Case(rest_with_else, [(M, 0.0), (M, 100.0)], wrt=(0,)),
    Case(rest_that_continues_and_returns, [(M, -1.0), (M, 0.7), (M, 2.5), (M, 100.0)], wrt=(0,)),
    Case(rest_of_nothing, [(M,)], wrt=(0,)),
    Case(epochs, [(M, Y, 0), (M, Y, 1), (M, Y, 3)], wrt=(0, 1)),
    Case(shuffled, [(M,)], wrt=(0,)),
]

test_programs, test_gradients = checks_of(CASES)


def test_the_rest_is_no_second_copy_of_the_body() -> None:
    names = ops(ir(with_a_rest, M, Y))
    assert names.count("for") == 1 and names.count("dynamic_slice") == 2
    assert "it may be 0 to" not in st.function(with_a_rest).stage(M, Y).source, "the size needs no check"


def test_batches_that_divide_the_rows_have_a_static_size() -> None:
    assert "dim" not in ops(ir(with_a_rest, M[:6], Y[:6])) and "dim" not in ops(ir(with_a_rest, M[:2], Y[:2]))
