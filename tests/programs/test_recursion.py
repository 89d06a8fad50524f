"""The promises on programs that recurse: printing, stopping, memory that is reported, threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import staged as st
from tests.interrupts import stays_inside

X = np.linspace(0, 1, 40)


@st.function
def towers(n, x):
    if n < 1:
        return x
    print(f"level {n}")
    return st.sin(towers(n - 1, x * 0.5)) + x


def reference(n, x):
    return x if n < 1 else np.sin(reference(n - 1, x * 0.5)) + x


def test_a_recursive_function_prints_from_the_thread_that_has_its_stack(capsys):
    np.testing.assert_allclose(towers(3, X), reference(3, X))
    assert capsys.readouterr().out == "level 3\nlevel 2\nlevel 1\n"


def test_what_printing_raises_stops_the_program(monkeypatch):
    class Broken:
        def write(self, text):
            raise OSError("no space left")

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Broken())
    with pytest.raises(OSError, match="no space left"):
        towers(3, X)


def test_a_program_called_from_its_own_print_is_refused_where_both_write_a_variable(monkeypatch):
    total = st.Variable(np.zeros(3), name="total")

    @st.function
    def count(n):
        total.value = total.value + 1.0
        print("counted")
        return n if n < 1 else count(n - 1)

    class Calls:
        def write(self, text):
            count(0)

        def flush(self):
            pass

    count(0)
    monkeypatch.setattr(sys, "stdout", Calls())
    with pytest.raises(st.ProgramError, match="from inside a call"):
        count(2)


def test_threads_may_recurse_at_once():
    quiet = st.function(lambda n, x: walk(n, x))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: quiet(n, X), range(16)))
    for n, y in enumerate(found):
        np.testing.assert_allclose(y, X * 0.5**n + n)


@st.function
def walk(n, x):
    return x if n < 1 else walk(n - 1, x * 0.5) + 1.0


def test_ctrl_c_stops_a_long_recursion(tmp_path):
    text = """
        import time
        import staged as st
        from tests.interrupts import interrupt_after

        @st.function
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        fib(3)
        try:
            _, sent = interrupt_after(0.5)
            fib(70)
        except KeyboardInterrupt:
            assert time.process_time() - sent[0] < 5
            print("stopped", fib(10))
    """
    (tmp_path / "stop.py").write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(
        [sys.executable, "stop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment
    )
    assert result.stdout == "stopped 55\n", result.stderr


@stays_inside()
def test_an_interrupt_while_a_recursion_prints_is_not_lost():
    class Interrupts:
        def write(self, text):
            if not done.is_set():
                done.set()
                os.kill(os.getpid(), signal.SIGINT)

        def flush(self):
            pass

    done = threading.Event()
    towers(1, X)
    before, sys.stdout = sys.stdout, Interrupts()
    try:
        with pytest.raises(KeyboardInterrupt):
            towers(100_000, X)
    finally:
        sys.stdout = before


def test_the_memory_report_has_functions_and_their_calls():
    program = st.function(lambda n, x: st.grad(lambda x: st.sum(walk(n, x)))(x)).stage(3, X)
    memory = program.memory
    assert not memory.bounded and [name for name, _ in memory.stack] == ["walk_forward", "walk_backward"]
    assert all(nbytes % 64 == 0 for _, nbytes in memory.stack)
    assert "each call of `walk_backward` takes" in str(memory)
