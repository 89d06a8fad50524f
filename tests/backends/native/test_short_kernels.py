"""Zeros and single elements need no function of their own in the text."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.runtime.machine import native_machine
from staged.testing import assert_backends_agree

X = np.arange(12.0).reshape(3, 4)


def marks(x, n):
    found = st.zeros((3, 4), dtype=st.f64)
    minus = st.full((4,), -0.0, dtype=st.f64)
    for i in st.range(n):
        found[i, 2] = st.sum(x[i]) + i
        found[i, 0] = -1.0
    return found, minus


def kept(x):
    """The array as it was is still wanted: all of it is copied."""
    y = x * 2.0
    z = y
    y[1, 1] = 7.0
    return y, z


def test_zeros_are_a_memset_and_elements_assignments():
    found, minus = assert_backends_agree(marks, X, 3)
    assert np.array_equal(found[:, 2], X.sum(axis=1) + np.arange(3)) and np.signbit(minus).all()
    text = st.function(marks).stage(X, 3).source
    entry = text[text.index("\nint marks(") :]
    assert entry.count("memset(") == 1 and "dynamic_update" not in text
    assert len(re.findall(r"args->found\[.*\] = ", entry)) == 2


def test_an_array_that_is_still_wanted_is_not_changed():
    assert_backends_agree(kept, X)


def test_large_zeros_are_shared_by_threads(monkeypatch):
    monkeypatch.setenv("STAGED_NUM_THREADS", "2")
    native_machine.cache_clear()
    found = st.function(lambda: st.zeros((1 << 19,))).stage()
    monkeypatch.undo()
    native_machine.cache_clear()
    assert f"st_parallel(host->team, {1 << 21}, {1 << 18}, st_clear, args->result);" in found.source
    assert not np.asarray(found()).any()


@pytest.mark.parametrize(("value", "fill"), [(0.0, "memset"), (1.0, "fill_with_ones")])
def test_variables_of_equal_fills_are_each_filled(value: float, fill: str) -> None:
    """A fill is never a copy of another one, though equal fills of one shape are one op."""
    filled = st.zeros if value == 0.0 else st.ones
    first, second = (st.Variable(np.full(10, 5.0), name=name) for name in ("first", "second"))

    @st.function
    def begin(x):
        first.value = filled(10, dtype=st.f64)
        second.value = filled(10, dtype=st.f64)
        first.value = first.value + x
        return second.value + 1.0

    text = begin.stage(2.0).source
    assert text.count(f"    {fill}(args->") == 2 and "memcpy" not in text
    assert begin(2.0).tolist() == [value + 1.0] * 10
    assert first.numpy().tolist() == [value + 2.0] * 10 and (second.numpy() == value).all()
