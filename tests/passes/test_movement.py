"""Rules for ops that move elements, and sums of which one part is zero almost everywhere, at their borders: axes of no and of one
element, zeros of both signs, NaN. What is right is NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.passes.borders import same_bits

F = np.float32
X = np.random.default_rng(0).standard_normal(24).astype(F)
X[[0, 5, 11, 12, 21, 22, 23]] = [-0.0, np.nan, -0.0, -np.inf, -0.0, 0.0, np.nan]
NOTHING, U, N = np.zeros(0, F), F([-0.0, 0.0, np.nan]), np.arange(24)


def moved(x, e, u, n):
    table = st.reshape(x, (4, 6))
    return (
        st.concat([e, x, e]),
        st.flip(x[3:4]),
        st.pad(x[3:4], ((2, 1),), value=float("nan")),
        st.reshape(st.permute_dims(st.reshape(x, (1, 4, 6)), (1, 0, 2)), (24,)),
        st.permute_dims(st.permute_dims(st.reshape(x, (2, 3, 4)), (2, 0, 1)), (2, 0, 1)),
        st.broadcast_to(st.reshape(st.broadcast_to(e, (2, 0)), (0, 1)), (0, 5)),
        st.broadcast_to(st.reshape(st.broadcast_to(st.reshape(u, (3, 1)), (3, 2)), (3, 1, 2)), (2, 3, 4, 2)),
        st.sum(st.reshape(e, (0, 1)) * st.ones((1, 4)), axis=0),
        st.reshape(e, (0, 3)).T @ st.reshape(e, (0, 5)),
        st.reshape(n, (4, 6)).T @ st.reshape(n, (6, 4)).T,
        st.concat([st.concat([table, table], axis=0), st.concat([table, table], axis=0)], axis=1),
        st.dynamic_slice(x, n[0], 24),
        st.dynamic_slice(st.dynamic_update_slice(x, u, n[7]), n[7], 3),
        st.dynamic_slice(st.dynamic_update_slice(x, u, n[7]), n[7], 4),
        st.dynamic_slice(st.dynamic_update_slice(x, u, n[7]), n[8], 3),
    )


def right_moved(x, e, u, n):
    table, put = x.reshape(4, 6), x.copy()
    put[7:10] = u
    return (
        x, x[3:4], F([np.nan, np.nan, x[3], np.nan]), x, x.reshape(2, 3, 4).transpose(2, 0, 1).transpose(2, 0, 1),
        np.zeros((0, 5), F), np.broadcast_to(u.reshape(3, 1, 1), (2, 3, 1, 2)).repeat(4, 2), np.zeros(4, F), np.zeros((3, 5), F),
        n.reshape(4, 6).T @ n.reshape(6, 4).T, np.tile(table, (2, 2)), x, u, put[7:11], put[8:11],
    )  # fmt: skip


def padded(x, low, high, value):
    return np.pad(x, ((low, high),), constant_values=F(value))


def summed(x, e, u, n):
    def pad(x, low, high, value):
        return st.pad(x, ((low, high),), value=value)

    first, rest = x[:12], x[12:]
    return (
        x + pad(e, 7, 17, -0.0),
        x + pad(e, 0, 24, 0.0),
        x + pad(u, 21, 0, -0.0),
        x + pad(u, 21, 0, 0.0),
        pad(u, 0, 21, -0.0) + x,
        pad(e, 0, 3, -0.0) + u,
        n + st.pad(st.astype(e, st.i64), ((24, 0),)),
        n + st.pad(n[1:3], ((22, 0),)),
        pad(first, 0, 12, -0.0) + pad(rest, 12, 0, -0.0),
        pad(first, 0, 12, -0.0) + pad(rest, 12, 0, 0.0),
        pad(first, 0, 12, 0.0) + pad(rest, 12, 0, -0.0),
        pad(first, 1, 13, -0.0) + pad(rest, 13, 1, -0.0),
        pad(first, 2, 12, -0.0) + pad(rest, 13, 1, -0.0),
        pad(first, 1, 13, -0.0) + pad(rest, 14, 0, -0.0),
        pad(rest, 12, 0, -0.0) + pad(first, 1, 11, -0.0),
        pad(e, 5, 19, -0.0) + pad(x[:19], 5, 0, -0.0),
    )


def right_summed(x, e, u, n):
    first, rest, pad = x[:12], x[12:], padded
    some = n.copy()
    some[22:] += n[1:3]
    return (
        x + pad(e, 7, 17, -0.0), x + pad(e, 0, 24, 0.0), x + pad(u, 21, 0, -0.0), x + pad(u, 21, 0, 0.0), pad(u, 0, 21, -0.0) + x,
        F(-0.0) + u, n, some, pad(first, 0, 12, -0.0) + pad(rest, 12, 0, -0.0), pad(first, 0, 12, -0.0) + pad(rest, 12, 0, 0.0),
        pad(first, 0, 12, 0.0) + pad(rest, 12, 0, -0.0), pad(first, 1, 13, -0.0) + pad(rest, 13, 1, -0.0),
        pad(first, 2, 12, -0.0) + pad(rest, 13, 1, -0.0), pad(first, 1, 13, -0.0) + pad(rest, 14, 0, -0.0),
        pad(rest, 12, 0, -0.0) + pad(first, 1, 11, -0.0), pad(e, 5, 19, -0.0) + pad(x[:19], 5, 0, -0.0),
    )  # fmt: skip


@pytest.mark.parametrize(("program", "oracle"), [(moved, right_moved), (summed, right_summed)])
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_elements_keep_their_bits(program, oracle, way):
    arguments = X, NOTHING, U, N
    if way == "eager":
        with st.eager():
            found = st.function(program)(*arguments)
    else:
        found = st.function(program)(*arguments)
    for number, (got, right) in enumerate(zip(found, oracle(*arguments), strict=True)):
        assert same_bits(got, right), f"{number}: {got}, not {right}"
