"""The option `ranks=` of functions: the number of ranks on which sizes depend. These tests run without MPI."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import RankError


def stacked(ranks):
    @st.function(ranks=ranks)
    def stacked(x):
        return st.all_gather(x)

    return stacked


def test_sizes_depend_on_the_number_of_ranks():
    assert "f64 (12,)" in stacked(4).stage(np.ones(3)).ir
    np.testing.assert_array_equal(stacked(1)(np.ones(3)), np.ones(3))


def test_the_number_is_part_of_the_key():
    keys = {stacked(ranks).stage(np.ones(3)).key for ranks in (1, 2, 2, None)}
    assert len(keys) == 2  # this job has one rank


@pytest.mark.parametrize("ranks", [0, -1, 2.0, True, "2"])
def test_the_number_is_a_positive_integer(ranks):
    with pytest.raises(st.ArgumentError, match="`ranks` must be a positive integer, got"):
        stacked(ranks)


def test_a_run_on_another_number_of_ranks_is_an_error():
    function = stacked(4)
    for run in (lambda: function(np.ones(3)), lambda: function.stage(np.ones(3))(np.ones(3))):
        with pytest.raises(RankError, match="the function is for 4 ranks, and runs on 1") as raised:
            run()
        assert "mpiexec -n 4" in raised.value.hint
    with st.eager(), pytest.raises(RankError, match="for 4 ranks, and runs on 1"):
        function(np.ones(3))


def test_a_function_of_another_number_of_ranks_cannot_be_called():
    inner = stacked(2)

    @st.function(ranks=4)
    def outer(x):
        return inner(x)

    with pytest.raises(RankError, match="the function is for 2 ranks, and its caller is for 4"):
        outer.stage(np.ones(3))


def test_a_method_keeps_the_number():
    class Model:
        @st.function(ranks=2)
        def step(self, x):
            return st.all_gather(x)

    assert "f64 (6,)" in Model().step.stage(np.ones(3)).ir
