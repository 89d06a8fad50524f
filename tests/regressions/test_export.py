"""Bugs found in exported folders: each is built by a complaining compiler and run."""

from __future__ import annotations

import subprocess

import numpy as np

import staged as st

STRICT = "-std=c11 -O2 -ffp-contract=off -Wall -Wextra -Wconversion -Werror"
X = np.arange(6.0).reshape(2, 3)


def run(program, folder, *flags: str) -> str:
    program.export(folder)
    subprocess.run(["make", "-s", "CC=gcc", f"CFLAGS={STRICT}"], cwd=folder, check=True)
    (binary,) = (path for path in folder.iterdir() if path.is_file() and not path.suffix and path.name != "Makefile")
    made = subprocess.run([f"./{binary.name}", *flags, "--out", "."], cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0 and made.stderr == "", made.stderr
    return made.stdout


def test_programs_without_arrays_read_none(tmp_path) -> None:
    @st.function
    def printf():
        print('"%d" ??= \\ ü')
        return st.arange(4), 1.5

    assert run(printf.stage(), tmp_path) == '"%d" ??= \\ ü\n'
    np.testing.assert_array_equal(np.load(tmp_path / "result.0.npy"), np.arange(4))


def test_arguments_named_like_our_flags(tmp_path) -> None:
    @st.function
    def double(int, out, help, threads):
        return {"int": int * out, "x/y": help + threads}

    np.save(tmp_path / "x.npy", X)
    flags = ["--int", "x.npy", "--out_2", "2.5", "--help_2", "3", "--threads_2", "4"]
    run(double.stage(X, 2.5, 3, 4), tmp_path, *flags)
    np.testing.assert_array_equal(np.load(tmp_path / "result.int.npy"), 2.5 * X)
    assert np.load(tmp_path / "result.x_y.npy") == 7
