"""`breakpoint()` in eager mode: the debugger stops at the user's line, and shows the user's variables."""

from __future__ import annotations

import io
import pdb
import sys
from typing import Any

import numpy as np
import pytest

import staged as st
from tests.errors.said import refuses

X = np.ones(2)


@st.function
def stops(x: Any) -> Any:
    y = x * 2
    if x[0] > 0:
        breakpoint()
    z = y + 1
    for i in st.range(2):
        z = z * 2
        breakpoint()
        w = z + i
    return w


@st.function
def traced(x: Any) -> Any:
    y = x * 3
    pdb.set_trace()
    return y + 1


def commands(monkeypatch: pytest.MonkeyPatch, *lines: str) -> io.StringIO:
    """Answer the prompts of Python's debugger; the text that it prints."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*lines, ""])))
    monkeypatch.setattr(sys, "stdout", out)
    return out


def test_the_debugger_stops_in_the_function_and_steps_over_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    out = commands(monkeypatch, "p y", "n", "n", "p z", "c", "p (z, i)", "c", "p (z, i)", "p w", "c")
    before = sys.gettrace()
    with st.eager():
        result = stops(X)
    sys.settrace(before)
    np.testing.assert_array_equal(result, [13.0, 13.0])
    text = out.getvalue()
    assert "-> breakpoint()" in text and "-> z = y + 1" in text and "-> for i in st.range(2):" in text
    assert "[2.0 2.0]" in text and "[3.0 3.0]" in text  # y, and z after the step
    assert text.count("-> w = z + i") == 2
    assert "call.py" not in text and "NameError" not in text


def test_pdbs_set_trace_stops_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    out = commands(monkeypatch, "p y", "c")
    monkeypatch.setattr(pdb, "set_trace", pdb_set_trace)
    before = sys.gettrace()
    with st.eager():
        traced(X)
    sys.settrace(before)
    assert "-> return y + 1" in out.getvalue() and "[3.0 3.0]" in out.getvalue()


def pdb_set_trace(*, header: Any = None) -> None:
    raise AssertionError("the debugger of the frame is called in place of this")


pdb_set_trace.__name__, pdb_set_trace.__module__ = "set_trace", "pdb"  # pytest has its own in the place of pdb's


def test_another_debugger_is_called_from_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def hook(*args: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_filename, frame.f_lineno, np.asarray(frame.f_locals["y"]).tolist()))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    with st.eager():
        stops(X)
    first = stops.__wrapped__.__code__.co_firstlineno
    assert seen == [(__file__, first + line, [2.0, 2.0]) for line in (4, 8, 8)]
    seen.clear()
    assert float(np.asarray(stops.__wrapped__(np.full(1, -1.0)))[0]) == -3.0  # plain Python: its own
    assert len(seen) == 2


def test_a_program_cannot_stop_in_a_debugger() -> None:
    with refuses(st.StagingError, "`breakpoint` inside a staged function cannot be staged.*\n.*staged.eager"):
        stops(X)


def test_functions_of_these_names_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scene:
        def set_trace(self, x: Any) -> Any:
            return x * 5

    def breakpoint(x: Any) -> Any:
        return x + 1

    f = lambda x: Scene().set_trace(breakpoint(x))  # noqa: E731
    np.testing.assert_array_equal(st.function(f)(X), [10.0, 10.0])
