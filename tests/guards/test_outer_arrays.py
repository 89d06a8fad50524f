"""An array that a function closes over is taken as it is at each call: its memory may be another, as may all else of it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.runtime import native, prepared

X = np.arange(6, dtype=np.float32)


def other_memory(w: Any) -> None:
    w.__setstate__((X * 7).__reduce__()[2])


def other_shape(w: Any) -> None:
    w.shape = (2, 3)


def other_dtype(w: Any) -> None:
    w.dtype = np.int32


def other_order(w: Any) -> None:
    w.shape = (2, 3)
    kind, shape, dtype, _, content = w.__reduce__()[2]
    w.__setstate__((kind, shape, dtype, True, content))


def more_memory(w: Any) -> None:
    kind, _, dtype, _, content = w.__reduce__()[2]
    w.__setstate__((kind, (2, 6), dtype, False, content + content))


def read_only(w: Any) -> None:
    w.setflags(write=False)


CHANGES = (other_memory, read_only, other_memory, other_dtype, other_shape, other_order, other_memory, more_memory)


def test_a_closed_over_array_is_changed_in_place_in_every_way() -> None:
    """After each change a call gives what NumPy does, and so does the next, which finds the program that is guarded."""
    w, v = X + 1, np.ones((6,), np.float32)

    @st.function
    def scaled(x: Any) -> Any:
        return w * v.reshape(w.shape if w.size == 6 else (1, 6)) + x.sum()

    for change in (lambda w: None, *CHANGES):
        w.setflags(write=True)
        change(w)
        wanted = w * v.reshape(w.shape if w.size == 6 else (1, 6)) + X.sum()
        for _ in range(2):
            found = scaled(X)
            assert found.shape == wanted.shape
            assert np.allclose(found, wanted), change
        assert not scaled.why_traced().startswith("every"), scaled.why_traced()


def test_a_closed_over_array_keeps_its_memory_while_a_program_refers_to_it() -> None:
    w = np.ones(6, np.float32)
    scaled = st.function(lambda x: x * w)
    scaled(X)
    with pytest.raises(ValueError, match="resize"):
        w.resize(60, refcheck=False)
    w += 1
    assert scaled(X).tolist() == (X * 2).tolist()


def test_arguments_that_do_not_lie_as_they_must_go_the_long_way() -> None:
    """Strided, of the other order, read-only, of a subclass: all by one guarded program, among calls with arrays that fit."""
    w = np.ones(6, np.float32)
    pair = st.function(lambda x, y: (x + w, y - x))
    pair(X, X)
    strided, read_only = np.arange(12, dtype=np.float32)[::2], X * 3
    read_only.setflags(write=False)
    reverse = X[::-1]
    for _ in range(20):  # more than there are slots
        for x, y in ((X, strided), (strided, reverse), (read_only, X), (reverse, read_only)):
            first, second = pair(x, y)
            assert first.tolist() == (x + 1).tolist()
            assert second.tolist() == (y - x).tolist()
    assert len(pair.programs) == 1
    count = sys.getrefcount(X), sys.getrefcount(strided), sys.getrefcount(w)
    for _ in range(5):
        pair(X, strided)
    assert (sys.getrefcount(X), sys.getrefcount(strided), sys.getrefcount(w)) == count


def test_where_objects_are_laid_out_otherwise_every_call_goes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (native, prepared):
        monkeypatch.setattr(module, "layout", lambda: None)
    w = np.full(6, 2.0, np.float32)
    scaled = st.function(lambda x: x * w - 4.0)
    assert [scaled(X).tolist() for _ in range(3)] == [(X * 2 - 4).tolist()] * 3
    (loaded,) = scaled._kept.loaded.values()
    assert loaded.native.short([], loaded.native) is None
    assert scaled.programs[0].calls == 3


@pytest.mark.parametrize("by_hand", [False, True])
def test_spread_arrays_take_the_short_way(by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns and transposes are read anew in each call, and do not send it the long way."""
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    column, corner = table[:, 1], table[:3, :3].T

    @st.function
    def summed(x: Any) -> Any:
        return corner @ x + column

    x = np.array([1.0, -2.0, 3.0], np.float32)
    run = summed.stage(x) if by_hand else summed
    run(x)
    monkeypatch.setattr(native.NativeProgram, "__call__", lambda *_: pytest.fail("it went the long way"))
    for step in range(3):
        table += step
        np.testing.assert_array_equal(run(x), corner @ x + column)
