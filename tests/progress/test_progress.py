"""`st.progress` around loops: what it records, and what it draws in eager mode and plain Python."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError
from staged.testing import assert_backends_agree


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def on_terminal() -> Iterator[Terminal]:
    # In the test itself: pytest's own capturing would take a fixture's stream away again.
    with contextlib.redirect_stdout(Terminal()) as stream:
        yield stream


def ops(program: Any) -> list[str]:
    return [line.strip() for line in program.ir.splitlines() if "progress_" in line]


def summed(x, n):
    total = 0.0
    for i in st.progress(st.range(2, n), desc=f"up to {n}", show="total:.3f, y"):
        y = st.sum(x * i)
        total += y
    return total


def test_records_start_update_and_end_with_the_values_shown() -> None:
    start, update, end = ops(st.function(summed).stage(np.ones(3, np.float32), 5))
    assert "parts=('up to ', (0, '', ''))" in start
    assert "parts=('total ', (0, '.3f', ''), ' y ', (1, '.4g', ''))" in update
    assert end == "progress_end() {id=1, leave=False}"


def test_result_is_that_of_the_loop() -> None:
    result = assert_backends_agree(summed, np.arange(3, dtype=np.float32), 5)
    assert result == pytest.approx(27.0)


def over_lists(x):
    total = x * 0.0
    for scale in st.progress([1.0, 2.0, 3.0], show="scale"):
        total += x * scale
    for index, row in enumerate(st.progress(st.range(3))):
        total += index * row
    return total


def test_nested_loops_breaks_and_prints() -> None:
    def train(x, epochs):
        total = 0.0
        for epoch in st.progress(st.range(epochs), leave=True):
            total = 0.0
            for batch in st.progress(st.batches(x, size=2), desc=f"epoch {epoch + 1}", show=("total",)):
                total += st.sum(batch)
                if total > 4.0:
                    break
            print(f"epoch {epoch + 1}: {total:.2f}")
        return total

    assert_backends_agree(train, np.ones((8, 1), np.float32), 2)


def test_lists_are_unrolled_and_enumerate_goes_through() -> None:
    assert len(ops(st.function(over_lists).stage(np.ones(2, np.float32)))) == 5 + 3
    assert_backends_agree(over_lists, np.ones(2, np.float32))


def test_eager_mode_draws_on_a_terminal() -> None:
    with on_terminal() as terminal, st.eager():
        st.function(summed)(np.ones(3, np.float32), 5)
    text = terminal.getvalue()
    assert text.startswith("\rup to 5   0% [....................] 0/3 0:00")
    assert "up to 5 100% [####################] 3/3" in text and "total 27.000 y 12" in text
    assert text.endswith("\r" + " " * 79 + "\r")


def test_compiled_program_draws_the_same_bar() -> None:
    with on_terminal() as terminal:
        st.function(summed)(np.ones(3, np.float32), 5)
    text = terminal.getvalue()
    assert "up to 5 100% [####################] 3/3" in text and "total 27.000 y 12" in text
    assert text.endswith("\r" + " " * 79 + "\r\r")


def test_complex_numbers_are_shown() -> None:
    @st.function
    def turned(z):
        for _ in st.progress(st.range(3), desc=f"from {z}", show="z, w:.1f"):
            w = z * 1j
            z = w
        return z

    for staged in (True, False):
        with on_terminal() as terminal, contextlib.nullcontext() if staged else st.eager():
            turned(st.asarray(1 + 2j))
        text = terminal.getvalue()
        assert "from (1+2j) 100%" in text and "z 2-1j w 2.0-1.0j" in text


def test_plain_python_draws_its_own_locals() -> None:
    with on_terminal() as terminal:
        for number in st.progress([1, 2, 3], desc="plain", show="square", leave=True):
            square = number * number  # noqa: F841 (shown)
    text = terminal.getvalue()
    assert "plain 100% [####################] 3/3" in text and "square 9" in text and text.endswith("\n")
    with on_terminal() as terminal:
        for _ in st.progress(iter("ab"), total=2):
            break
    assert terminal.getvalue().endswith("\r" + " " * 79 + "\r")


def test_quiet_where_the_output_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in st.progress(range(3), leave=True):
        pass
    st.function(summed)(np.ones(3, np.float32), 5)
    assert capsys.readouterr().out == ""


def test_name_that_is_not_bound_is_refused_with_the_line() -> None:
    @st.function
    def f(x):
        for _ in st.progress(st.range(3), show="loss"):
            x = x + 1.0
        return x

    with pytest.raises(StagingError, match="shows `loss`, which is not bound") as caught:
        f.stage(np.ones(2, np.float32))
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_array_is_refused() -> None:
    def f(x):
        for _ in st.progress(st.range(3), show="x"):
            x = x + 1.0
        return x

    with pytest.raises(StagingError, match=r"shows `x`, which is an array: f32 \(2,\)"):
        st.function(f).stage(np.ones(2, np.float32))
