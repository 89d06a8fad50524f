"""The clocks of Python's `time` inside a program."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import staged as st

SECONDS = [time.time, time.perf_counter, time.monotonic, time.process_time]
NANOSECONDS = [time.time_ns, time.perf_counter_ns, time.monotonic_ns, time.process_time_ns]


@pytest.mark.parametrize("clock", [*SECONDS, *NANOSECONDS], ids=lambda clock: clock.__name__)
def test_a_program_reads_the_clock_that_python_reads(clock: Any) -> None:
    read = st.function(lambda: clock())
    read()  # compiled before it is measured
    before = clock()
    now = read()
    after = clock()
    assert before <= now <= after
    assert type(now) is type(before)
    with st.eager():
        assert after <= read() <= clock()


def test_time_passes_while_a_loop_runs() -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        start = time.perf_counter()
        laps = st.Stack(0.0, max=5)
        for _ in st.range(n):
            for _ in st.range(20000):
                x = st.sin(x)
            laps.append(time.perf_counter() - start)
        return x, laps.array(), time.perf_counter() - start

    _, laps, total = f(1.0, 5)
    assert (np.diff(laps) > 0.0).all()
    assert total >= laps[-1] * 0.999  # the laps are f32


def test_each_call_reads_anew_and_where_it_stands() -> None:
    @st.function
    def f(x: Any) -> Any:
        first = time.perf_counter_ns()
        y = st.sum(st.exp(st.sin(x)))
        return first, y, time.perf_counter_ns()

    calls = [f(np.ones(100_000)) for _ in range(2)]
    times = [when for first, _, last in calls for when in (first, last)]
    assert times == sorted(times)
    assert len(set(times)) == 4


def test_a_clock_in_differentiated_code_has_no_gradient() -> None:
    @st.function
    def f(x: Any) -> Any:
        def loss(y: Any) -> Any:
            started = time.perf_counter()
            return y * y + 0.0 * (time.perf_counter() - started)

        return st.grad(loss)(x)

    assert float(f(3.0)) == 6.0


def test_sleeping_is_refused() -> None:
    with pytest.raises(st.StagingError, match="`sleep` inside a staged function") as caught:
        st.function(lambda x: time.sleep(x)).stage(1.0)
    assert "between calls" in (caught.value.hint or "")
