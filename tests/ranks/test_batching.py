"""Collectives in a `vmap`, and in regions of back ends without MPI. No test here starts ranks."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend

X = np.ones((6, 4))


def messages(program) -> Counter[str]:
    """The messages of the generated source code, by function."""
    return Counter(re.findall(r"^ +st_(all_\w+|reduce_scatter|broadcast|shift_ranks)\(", program.source, re.MULTILINE))


def test_a_collective_of_mapped_values_is_one_message():
    def of_column(x):
        parts = st.reduce_scatter(st.all_to_all(st.all_gather(st.sin(x))))
        return st.shift_ranks(parts) * st.broadcast(parts)

    @st.function(ranks=2)
    def program(x):
        return st.all_reduce(st.sum(st.vmap(of_column, in_axes=1)(st.shard(x))))

    found = messages(program.stage(X))
    assert found == dict.fromkeys(
        ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "shift_ranks", "broadcast"), 1
    )


def test_a_collective_of_a_value_that_is_not_mapped_is_one_message():
    @st.function(ranks=2)
    def program(x):
        own = st.shard(x)
        return st.vmap(lambda row: row * st.all_reduce(own, "mean")[0])(x)

    assert messages(program.stage(X)) == {"all_reduce": 1}


def test_a_region_of_the_gpu_has_no_collectives_of_several_ranks(device):
    @st.function(ranks=2)
    def program(x):
        with with_backend(GPU, x):
            return st.all_reduce(st.sum(st.shard(x)))

    with pytest.raises(st.UnsupportedError, match=r"`st.\w+` on several ranks needs MPI") as raised:
        program.stage(X).source  # noqa: B018
    assert "test_batching.py" in str(raised.value)


def test_a_region_of_the_gpu_has_collectives_of_one_rank(device):
    @st.function(ranks=1)
    def program(x):
        with with_backend(GPU, x):
            return st.all_reduce(st.sum(st.shard(x))) + st.sum(st.exchange_halo(x, edge="wrap"))

    assert float(program(X)) == 24 + 32
