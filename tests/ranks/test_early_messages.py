"""Reductions that start early (`STAGED_OVERLAP=1`) have the results of those that do not."""

from __future__ import annotations

import pytest

from tests.ranks import jobs

pytestmark = pytest.mark.ranks

PROGRAM = """
import numpy as np
import staged as st
from staged.base.launcher import this_job

def returned(x, y):
    return st.all_reduce(x * 2.0), st.all_reduce(y * 3.0)

def used_later(x, y):
    y = st.sin(y)
    s, t = st.all_reduce(x), st.all_reduce(y)
    return s, t, st.all_reduce(st.sum(x)), st.all_reduce(x + y)

def of_one_another(x, y):
    s, t = st.all_reduce(x * 1.5), st.all_reduce(x + y)
    norm = st.sqrt(st.all_reduce(st.sum(x * x)))
    u, v = st.all_reduce(s * norm + y), st.all_reduce(x * x * x)
    return s / norm, t, u, st.all_reduce(u * x) + st.all_reduce(v * y)

def in_blocks(x, y):
    s, t = st.all_reduce(x * 1.5), st.all_reduce(x + y)
    for _ in st.range(2):
        y = x * st.tanh(st.all_reduce(st.sin(st.all_reduce(y * s)) + y) * 0.01) + t
    u = st.all_reduce(y + s)
    if st.sum(u) > 0.0:
        u = st.all_reduce(u * x) + st.all_reduce(x * t)
    return u, s

A = np.arange(6.0).reshape(3, 2)
for function in (returned, used_later, of_one_another, in_blocks):
    found = st.function(lambda a: function(st.shard(a) * 2.0, st.shard(a) * 3.0))(A)
    if this_job().rank == 0:
        print(function.__name__, [np.round(array, 6).tolist() for array in found])
"""


def test_results_do_not_depend_on_the_start_of_messages(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    early, late = (jobs.run(path, 3, changes={"STAGED_OVERLAP": switch}).check().stdout for switch in "10")
    assert early.count("\n") == 4
    assert early == late
