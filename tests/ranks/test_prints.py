"""Prints, files, progress bars and clocks of several ranks."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import staged as st
from staged.errors import RankError
from tests.ranks import jobs

PROGRAM = """
import sys
import time
import numpy as np
import staged as st

folder = sys.argv[1]
w = st.Variable(np.zeros(3), name="w")

@st.function
def helper(value):
    print("helped", value)
    return value + 1.0

@st.function
def step(x, number):
    x = st.shard(x)
    own = st.sum(x)
    print(f"own {own:.1f}")
    print("own", own, end=" ")
    print("again", own)
    total = st.all_reduce(own)
    print("total", total)
    print("constant")
    w.value = w.value + helper(total)
    helper(own)
    if own > 20.0:
        print("only here")
    if total > 20.0:
        print("everywhere")
    for k in st.range(2):
        print(k, own)
    print(x)
    with open(f"{folder}/all.txt", "a") as file:
        print("total", total, file=file)
        file.write(f"w {w}\\n")
    with open(f"{folder}/own_{st.rank()}.txt", "w") as file:
        file.write(f"own {own}\\n")
        file.write("end\\n")
    for _ in st.progress(range(3)):
        w.value = w.value + 0.0
    return total

step(np.arange(12.0).reshape(6, 2), 1)
"""

ALL = """\
total 66.0
constant
helped 66.0
everywhere
"""


def lines_of(text: str, rank: int) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"[rank {rank}] ")]


@pytest.mark.ranks
@pytest.mark.core
def test_each_rank_prints_its_own_values_and_rank_0_the_others(tmp_path):
    program = tmp_path / "prints.py"
    program.write_text(PROGRAM)
    done = jobs.run(program, 2, str(tmp_path), limit=60).check()
    shared = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith(("[rank", " "))]
    bars = [line for line in shared if line.startswith("100% [")]
    assert len(bars) <= 1  # Open MPI gives ranks a terminal, on which rank 0 shows its bar
    assert [line for line in shared if line not in bars] == ALL.splitlines()
    for rank, own in enumerate((15.0, 51.0)):
        found = lines_of(done.stdout, rank)
        expected = [f"own {own:.1f}", f"own {own} again {own}", f"helped {own}"]
        expected += ["only here"] * (own > 20.0) + [f"0 {own}", f"1 {own}"]
        assert [line.removeprefix(f"[rank {rank}] ") for line in found][: len(expected)] == expected
        assert (tmp_path / f"own_{rank}.txt").read_text() == f"own {own}\nend\n"
    assert (tmp_path / "all.txt").read_text() == "total 66.0\nw [67.0 67.0 67.0]\n"


LINES = """
import numpy as np
import staged as st

@st.function
def speak(x):
    own = st.sum(st.shard(x))
    for k in st.range(300):
        print(f"line {k} of {own} " + "x" * 100)
    return st.all_reduce(own)

speak(np.arange(6.0))
"""


@pytest.mark.ranks
def test_lines_of_ranks_are_whole(tmp_path):
    program = tmp_path / "lines.py"
    program.write_text(LINES)
    done = jobs.run(program, 3, limit=60).check()
    lines = done.stdout.splitlines()
    assert len(lines) == 900
    assert all(re.fullmatch(r"\[rank \d\] line \d+ of \d\.0 x{100}", line) for line in lines)
    for rank in range(3):
        assert [int(line.split()[3]) for line in lines_of(done.stdout, rank)] == list(range(300))


# ---- errors, which one rank finds too ------------------------------------------------------------


def test_a_local_value_in_a_file_of_rank_0_is_an_error(tmp_path):
    @st.function
    def write(x):
        own = st.sum(st.shard(x))
        with open(f"{tmp_path}/values.txt", "w") as file:
            file.write(f"{own}\n")
        return st.all_reduce(own)

    with pytest.raises(RankError, match="a file of local values needs the number of the rank in its name") as caught:
        write(np.ones(4))
    assert 'open(f"values_{st.rank()}.txt", "w")' in str(caught.value)
    assert 'file.write(f"{own}\\n")' in str(caught.value)


def test_a_file_that_some_ranks_open_is_an_error(tmp_path):
    @st.function
    def write(x):
        own = st.sum(st.shard(x))
        if own > 3.0:
            with open(f"{tmp_path}/values.txt", "w") as file:
                file.write("large\n")
        return st.all_reduce(own)

    with pytest.raises(RankError, match="a file of local values needs the number of the rank in its name"):
        write(np.ones(4))


def test_a_clock_is_local():
    @st.function
    def wait(x):
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.001:
            x = x + st.all_reduce(st.shard(x)[0])
        return x

    with pytest.raises(RankError, match="differs between ranks") as caught:
        wait(np.ones(4))
    assert "it is a time on the clock of this rank" in str(caught.value)


def test_the_result_of_a_callback_is_local():
    w = st.Variable(np.zeros(()), name="w")

    @st.function
    def ask(x):
        w.value = st.callback(np.sum, x, result=np.float64)
        return st.all_reduce(st.shard(x)[0])

    with pytest.raises(RankError, match="a local value is written to the replicated Variable `w`") as caught:
        ask(np.ones(4))
    assert "it is computed by Python on each rank" in str(caught.value)
