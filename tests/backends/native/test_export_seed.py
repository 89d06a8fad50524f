"""Exported programs that draw random numbers: `--seed N` gives those of Python from this seed, and a run can go on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import staged as st

STRICT = "-std=c11 -O1 -ffp-contract=off -Wall -Wextra -Wconversion -Werror"
Run = Callable[..., tuple[int, str]]


def built(program: st.Program, folder: Path) -> Run:
    """Exports, builds, and runs with these flags: its status, and what it says."""
    program.export(folder, target="portable")
    subprocess.run(["make", "-s", "CC=gcc", f"CFLAGS={STRICT}"], cwd=folder, check=True)

    def run(*flags: str) -> tuple[int, str]:
        done = subprocess.run([f"./{program.name}", *flags], cwd=folder, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_same_seed_gives_the_numbers_of_python_and_a_run_goes_on(tmp_path: Path) -> None:
    noise = st.random.Generator(11, name="noise")

    @st.function
    def draws(n):
        total = st.random.permutation(6) + noise.integers(100, shape=(6,)) * 100
        for _ in st.range(n):
            total = total + st.random.integers(1000, shape=(6,)) * 100_000
        return total

    st.seed(9)
    run = built(draws.stage(3), tmp_path)
    files = ("seed", "random_counter", "noise.seed", "noise.counter")

    def result(*flags: str) -> list[int]:
        assert run("--n", "3", "--out", ".", *flags) == (0, "")
        return np.load(tmp_path / "result.npy").tolist()

    first, second = draws(3).tolist(), draws(3).tolist()
    assert result() == first != second
    assert [int(np.load(tmp_path / f"{name}.npy")) for name in files] == [9, 4, 11, 1]
    assert result("--random_counter", "4", "--noise.counter=1") == second
    st.seed(-5)
    noise.start(2**63 - 1)
    assert result("--seed=-5", "--noise.seed", str(2**63 - 1)) == draws(3).tolist()
    assert "--seed  an integer, which says what random numbers are drawn (default 9)\n" in run("--help")[1]
    for given, words in (
        ("x", "expected an integer, got x"),
        (str(2**63), "is not between"),
        ("", "expected an integer"),
    ):
        status, text = run("--n", "3", f"--seed={given}")
        assert status == 2 and "--seed: " in text and words in text
    assert run("--n", "1", "--seed", "1", "--seed", "2") == (2, "./draws: --seed is given twice\n")
    assert "`--seed` | an integer" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(("before", "flag"), [(False, True), (True, False)])
def test_a_program_that_seeds_itself_first_has_no_flag_for_it(tmp_path: Path, before: bool, flag: bool) -> None:
    @st.function
    def draws(seed):
        first = 0 if before else st.random.integers(9)
        st.seed(seed)
        return first + st.random.integers(1000)

    draws.stage(3).export(tmp_path, target="portable")
    text, page = (tmp_path / "main.c").read_text(), (tmp_path / "README.md").read_text()
    assert ('{"random_seed", ' in text) == ("`--random_seed`" in page) == ("random_seed.npy" in page) == flag
    assert '{"seed", "i64", NULL}' in text  # the function's own argument keeps its name
    assert "args.random_seed = &numbers[0];" in text


def test_a_program_that_draws_nothing_has_no_flag_for_it(tmp_path: Path) -> None:
    st.function(lambda x: x * 2, seed=3).stage(1.0).export(tmp_path, target="portable")
    assert "seed" not in (tmp_path / "main.c").read_text()
