"""The short way into a program takes what fits, and leaves the rest to the long way, which takes more and says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st

X = np.arange(10, dtype=np.float32)


def program() -> Any:
    return st.function(lambda x, n: x * n + 1.0).stage(X, 2.0)


def test_what_fits_and_what_does_not() -> None:
    run = program()
    assert run(X, 2.0).tolist() == (X * 2.0 + 1.0).tolist()
    strided = np.arange(20, dtype=np.float32)[::2]
    assert run(strided, 3.0).tolist() == (strided * 3.0 + 1.0).tolist()
    swapped = X.astype(">f4")
    with pytest.raises(st.StagedError):
        run(swapped.astype(np.float64), 2.0)
    with pytest.raises(st.StagedError, match="staged as f32 \\(10,\\), got f32 \\(11,\\)"):
        run(np.zeros(11, np.float32), 2.0)
    with pytest.raises(st.StagedError, match="staged as"):
        run(X, 2)
    with pytest.raises(TypeError):
        run(X)
    assert run(n=2.0, x=X).tolist() == (X * 2.0 + 1.0).tolist()
    assert run(X, 2.0).tolist() == (X * 2.0 + 1.0).tolist()


def test_results_are_new_arrays() -> None:
    run = program()
    first, second = run(X, 1.0), run(X, 1.0)
    assert first is not second
    assert not np.shares_memory(first, second)
    kept = first.copy()
    run(X, 5.0)
    assert first.tolist() == kept.tolist()


def test_errors_of_the_program_are_raised() -> None:
    take = st.function(lambda x, i: x[i])
    run = take.stage(X, 1)
    assert run(X, 3) == 3.0
    for _ in range(3):
        with pytest.raises(st.ProgramError, match="index 10"):
            run(X, 10)
        assert run(X, -1) == 9.0


def test_calls_inside_calls() -> None:
    """A call that begins while the arguments of another are taken has memory of its own."""
    run = st.function(lambda x, y: x * 2.0 + y).stage(X, X)
    inner: list[Any] = []

    class Late:
        """An array of another library, which calls the same program when it is asked for its elements."""

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            inner.append(run(X + 5.0, X))
            return X

    for count in range(1, 4):
        assert run(X, Late()).tolist() == (X * 3.0).tolist()
        assert len(inner) == count
        assert inner[-1].tolist() == ((X + 5.0) * 2.0 + X).tolist()
        assert run(X, X).tolist() == (X * 3.0).tolist()


def test_calls_in_destructors() -> None:
    inner, outer = program(), st.function(lambda x: x - 1.0)
    found: list[Any] = []

    class Late:
        def __del__(self) -> None:
            found.append(inner(X, 2.0).tolist())

    late = [Late()]

    def last(x: Any) -> Any:
        late.clear()
        return outer(x)

    assert last(X).tolist() == (X - 1.0).tolist()
    assert found == [(X * 2.0 + 1.0).tolist()]


def test_what_c_refuses_goes_the_long_way_and_leaves_its_slot() -> None:
    """A subclass, another dtype, strides, a thing that is no array: C takes only what it knows, whatever the caller has compared."""
    function = st.function(lambda x: x + 1.0)
    function(X)
    (loaded,) = function._kept.loaded.values()
    native = loaded.native
    short = native.short([], lambda *values: "the long way", is_single=True, known=(0,))
    assert short is not None
    assert short(X).tolist() == (X + 1).tolist()
    (slot,) = native._idle
    for other in (X.view(np.recarray), X.astype(np.int32), np.arange(20, dtype=np.float32)[::2], 2.0, "x", None):
        assert short(other) == "the long way"
        assert native._idle == [slot]
    assert short(X).tolist() == (X + 1).tolist()


def test_an_input_of_any_size_that_shares_memory_with_a_variable_is_copied() -> None:
    held = st.Variable(np.zeros(8))

    def turn(x: Any) -> Any:
        held.value = st.concat([x[::-1], held.value])[:8]

    native = st.function(dims={"x": "N <= 8"})(turn).stage(np.ones(3))._native
    taken: list[Any] = []
    run = native.short([], lambda *values: taken.append(values) or native(*values))
    assert run is not None
    memory = np.arange(12.0)
    run(memory[8:11], 3, memory[:8])
    assert memory[:8].tolist() == [10, 9, 8, 0, 1, 2, 3, 4] and len(taken) == 1  # the first call has no idle slot
    run(memory[8:12], 4, memory[:8])
    assert memory[:8].tolist() == [11, 10, 9, 8, 10, 9, 8, 0] and len(taken) == 1
    run(memory[7:11], 4, memory[:8])
    assert memory[:8].tolist() == [10, 9, 8, 0, 11, 10, 9, 8] and len(taken) == 2
