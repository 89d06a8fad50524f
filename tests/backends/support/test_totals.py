"""Vectors of running totals become one number, always in the same order."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.code.support.totals import MOST_VECTORS
from staged.kernels.schedule import UNROLL

LANES = 8  # of x86-64-v3


def test_there_is_a_function_for_every_number_of_totals():
    assert MOST_VECTORS == UNROLL


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_a_sum_is_of_pairs_of_vectors_and_then_of_halves(vectors: int):
    x = np.random.default_rng(vectors).uniform(-1, 1, (5, vectors * LANES)).astype(np.float32)
    program = st.function(lambda x: st.sum(x, axis=1), target="x86-64-v3").stage(x)
    assert f"st_sum{vectors if vectors > 1 else ''}_f32v(" in program.source
    totals = [*x.reshape(5, vectors, LANES).transpose(1, 0, 2)]
    while len(totals) > 1:
        keep = (len(totals) + 1) // 2
        totals = [a + totals[n + keep] if n + keep < len(totals) else a for n, a in enumerate(totals[:keep])]
    (lanes,) = totals
    while lanes.shape[1] > 1:
        lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
    np.testing.assert_array_equal(program(x), lanes[:, 0])


@pytest.mark.parametrize("vectors", [3, 8])
def test_the_largest_of_totals_is_nan_if_one_is(vectors: int):
    x = np.random.default_rng(vectors).uniform(-1, 1, (vectors * LANES + 1, vectors * LANES)).astype(np.float32)
    x[np.arange(vectors * LANES), np.arange(vectors * LANES)] = np.nan
    program = st.function(lambda x: (st.max(x, axis=1), st.min(x, axis=1)), target="x86-64-v3").stage(x)
    of_several = "4" if vectors >= 2 * MOST_VECTORS else ""
    assert f"st_max{of_several}_f32v(" in program.source
    assert f"st_min{of_several}_f32v(" in program.source
    largest, smallest = program(x)
    np.testing.assert_array_equal(largest, x.max(axis=1))
    np.testing.assert_array_equal(smallest, x.min(axis=1))
