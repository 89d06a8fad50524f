"""Collectives on 2, 3 and 4 ranks, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import ArgumentError, AxisError, ShapeError, StagedError
from tests.ranks import jobs

CASES = "tests.ranks.collective_cases"


@pytest.mark.ranks
@pytest.mark.core
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.full), 3, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("case", jobs.names_of(CASES))
def test_each_rank_has_the_declared_value(case, ranks):
    jobs.results_of(CASES, ranks)[case]


X = np.ones((4, 6))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: st.all_reduce(x, "median"), ArgumentError, '`by` must be "sum", "mean", "max" or "min"'),
        (lambda x: st.all_reduce(x + 1j, "max"), StagedError, "needs real numbers"),
        (lambda x: st.all_gather(x, 2), AxisError, "axis"),
        (lambda x: st.all_gather(st.sum(x)), AxisError, "axis"),
        (lambda x: st.shard(x, -3), AxisError, "axis"),
        (lambda x: st.shard(st.sum(x)), AxisError, "axis"),
        (lambda x: st.reduce_scatter(x, 5), AxisError, "axis"),
        (lambda x: st.reduce_scatter(x > 0), StagedError, "needs numbers"),
        (lambda x: st.all_to_all(x, 0, 2), AxisError, "axis"),
        (lambda x: st.broadcast(x, root=-1), StagedError, "must be a rank from 0 to 0"),
        (lambda x: st.broadcast(x, root=1), StagedError, "must be a rank from 0 to 0"),
        (lambda x: st.broadcast(x, root=st.sum(x)), StagedError, "known while staging"),
        (lambda x: st.shift_ranks(x, 1.5), StagedError, "must be an integer"),
        (lambda x: st.exchange_halo(x, 5), StagedError, "`width` must be between 1 and the size of the axis, 4, got 5"),
        (lambda x: st.exchange_halo(x, 0), StagedError, "`width` must be between 1"),
        (lambda x: st.exchange_halo(x, edge="mirror"), ArgumentError, '`edge` must be "zero", "wrap" or "nearest"'),
        (lambda x: st.exchange_halo(x, axis=2), AxisError, "axis"),
    ],
)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_bad_input_has_an_error_at_its_line(call, error, words, mode):
    with pytest.raises(error) as caught:
        st.function(call)(X) if mode == "compiled" else call(X)
    assert words in str(caught.value)
    assert mode == "eager" or "test_collectives.py" in str(caught.value)


@pytest.mark.parametrize("name", ["shard", "reduce_scatter", "all_to_all"])
def test_an_axis_that_ranks_do_not_divide_has_an_error(name, monkeypatch):
    monkeypatch.setattr("staged.ops.exchange.static_ranks", lambda: 4)
    with pytest.raises(ShapeError, match="needs a size that 4 ranks divide, got 6 for axis 1"):
        st.function(lambda x: getattr(st, name)(x, 1))(X)
