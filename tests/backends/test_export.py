"""The exported folder's `main`: `.npy` files, flags, wrong input, results; here around a program written by hand."""

import subprocess

import numpy as np
import pytest

from staged.artifact import Artifact, Parameter
from staged.backends.c_family.export import export_files
from staged.backends.c_family.support.host import HOST_DECLARATIONS

HEADER = f"""
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
{HOST_DECLARATIONS}
#define SCALE_ARENA_BYTES ((size_t)0)
typedef struct scale_args {{
    const float *x;
    double factor;
    int64_t n;
    float *state;
    float *y;
}} scale_args;
int scale(const scale_args *args, void *arena, st_host *host);
"""
SOURCE = """
#include <stdio.h>
#include <string.h>
#include "scale.h"
int scale(const scale_args *args, void *arena, st_host *host) {
    (void)arena;
    if (args->n < 0) {
        strcpy(host->message, "n is negative");
        return ST_VALUE_ERROR;
    }
    for (int i = 0; i < 6; ++i) {
        args->y[i] = args->x[i] * (float)args->factor + args->state[0];
    }
    args->state[0] += (float)args->n;
    printf("done\\n");
    return ST_OK;
}
"""
ARTIFACT = Artifact(
    name="scale",
    source=SOURCE,
    header=HEADER,
    parameters=(
        Parameter("x", "x", "f32", (2, 3), "input"),
        Parameter("factor", "factor", "f64", (), "input", scalar=True),
        Parameter("n", "n", "i64", (), "input", scalar=True),
        Parameter("state", "net.state", "f32", (1,), "variable"),
        Parameter("y", "result.0", "f32", (2, 3), "output"),
    ),
    arena_bytes=0,
    threads=1,
)
STRICT = "-std=c11 -O2 -Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("scale")
    for name, text in export_files(ARTIFACT).items():
        (path / name).write_text(text)
    subprocess.run(["make", "-s", f"CFLAGS={STRICT}"], cwd=path, check=True)
    np.save(path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    np.save(path / "state.npy", np.array([1], dtype=np.float32))
    return path


def run(folder, *words):
    return subprocess.run(["./scale", *words], cwd=folder, capture_output=True, text=True)


GOOD = ("--x", "x.npy", "--factor", "2.5", "--n=3", "--net.state", "state.npy")


def test_it_reads_arrays_and_flags_and_writes_results(folder):
    result = run(folder, *GOOD, "--out", ".")
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    expected = np.arange(6, dtype=np.float32).reshape(2, 3) * 2.5 + 1
    np.testing.assert_array_equal(np.load(folder / "result.0.npy"), expected)
    np.testing.assert_array_equal(np.load(folder / "net.state.npy"), np.array([4], np.float32))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--factor", "2", "--n", "1", "--net.state", "state.npy"), "--x is missing"),
        ((*GOOD[:2], "--factor", "two", *GOOD[4:]), "expected a number, got two"),
        (("--x", "missing.npy", *GOOD[2:]), "missing.npy: cannot be opened"),
        (("--x", "state.npy", *GOOD[2:]), "axis 0 must be 2 long"),
        (("--x", "double.npy", *GOOD[2:]), "expected dtype <f4"),
        (("--x", "fortran.npy", *GOOD[2:]), "Fortran order"),
        (("--x", "short.npy", *GOOD[2:]), "cut off"),
        (("--x", "Makefile", *GOOD[2:]), "not a .npy file"),
        (("--x", "deep.npy", *GOOD[2:]), "more axes"),
    ],
)
def test_wrong_input_is_named_and_exits_with_2(folder, words, message):
    good = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(folder / "double.npy", good.astype(np.float64))
    np.save(folder / "fortran.npy", np.asfortranarray(good))
    np.save(folder / "deep.npy", good[..., None])
    (folder / "short.npy").write_bytes((folder / "x.npy").read_bytes()[:-4])
    result = run(folder, *words)
    assert result.returncode == 2 and message in result.stderr, result.stderr


def test_an_error_of_the_program_exits_with_1_and_help_lists_the_flags(folder):
    result = run(folder, *GOOD[:4], "--n", "-1", *GOOD[5:])
    assert (result.returncode, result.stderr) == (1, "n is negative\n")
    assert "--net.state  f32 (1,), a .npy file" in run(folder, "--help").stdout
