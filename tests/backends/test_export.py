"""The exported folder's `main`: `.npy` files, flags, wrong input, results; here around a program written by hand."""

import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from staged.backends.host.export import export_files
from staged.backends.host.interface import library_declarations
from staged.backends.host.standalone.build import readme
from staged.base.artifact import Artifact, Parameter
from staged.code.support.host import HOST_DECLARATIONS

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
    float small;
    uint8_t byte;
    int16_t low;
    uint64_t big;
    bool on;
    float *state;
    float *y;
}} scale_args;
int scale(const scale_args *args, void *arena, st_host *host);
#define SCALE_X_SIZE 6
#define SCALE_NET_STATE_SIZE 1
#define SCALE_Y_SIZE 6
{library_declarations("scale")}
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
    FILE *const log = fopen("log.txt", "w");  // as `with open(...)` in a program
    printf("done\\n");
    fflush(stdout);
    fclose(log);
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
        Parameter("small", "small", "f32", (), "input", scalar=True),
        Parameter("byte", "byte", "u8", (), "input", scalar=True),
        Parameter("low", "low", "i16", (), "input", scalar=True),
        Parameter("big", "big", "u64", (), "input", scalar=True),
        Parameter("on", "on", "bool", (), "input", scalar=True),
        Parameter("state", "net.state", "f32", (1,), "variable", written=True),
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
    others = [f"--{name}={value}" for name, value in OTHERS.items()]
    return subprocess.run(["./scale", *words, *others], cwd=folder, capture_output=True, text=True)


OTHERS = {"small": "3.4028235e38", "byte": "255", "low": "-32768", "big": "18446744073709551615", "on": "true"}
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
        (("--x", "state.npy", *GOOD[2:]), "'shape': (2, 3), }, the file has {'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"),
        (("--x", "wide.npy", *GOOD[2:]), "'shape': (2, 4), }; numpy.ascontiguousarray"),
        (("--x", "big_endian.npy", *GOOD[2:]), "the file has {'descr': '>f4'"),
        (("--x", "double.npy", *GOOD[2:]), "the file has {'descr': '<f8'"),
        (("--x", "fortran.npy", *GOOD[2:]), "'fortran_order': True"),
        (("--x", "short.npy", *GOOD[2:]), "cut off"),
        (("--x", "Makefile", *GOOD[2:]), "not a .npy file"),
        (("--x", "deep.npy", *GOOD[2:]), "'shape': (2, 3, 1), }"),
    ],
)
def test_wrong_input_is_named_and_exits_with_2(folder, words, message):
    good = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(folder / "double.npy", good.astype(np.float64))
    np.save(folder / "fortran.npy", np.asfortranarray(good))
    np.save(folder / "deep.npy", good[..., None])
    np.save(folder / "wide.npy", np.zeros((2, 4), np.float32))
    np.save(folder / "big_endian.npy", good.astype(">f4"))
    (folder / "short.npy").write_bytes((folder / "x.npy").read_bytes()[:-4])
    result = run(folder, *words)
    assert result.returncode == 2 and message in result.stderr, result.stderr


def test_an_error_of_the_program_exits_with_1_and_help_lists_the_flags(folder):
    result = run(folder, *GOOD[:4], "--n", "-1", *GOOD[5:])
    assert (result.returncode, result.stderr) == (1, "n is negative\n")
    assert "--net.state  f32 (1,), a .npy file" in run(folder, "--help").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*GOOD, "--uot", "."), "there is no flag --uot"),
        ((*GOOD, "--uot=."), "there is no flag --uot;"),
        ((*GOOD, "--nn", "1"), "there is no flag --nn"),
        ((*GOOD, "--"), "there is no flag --;"),
        ((*GOOD, "extra"), "what is extra?"),
        ((*GOOD, "-o"), "what is -o?"),
        ((*GOOD, ""), "what is ?"),
        ((*GOOD, "--n", "9"), "--n is given twice"),
        ((*GOOD, "--out"), "--out has no value"),
        (("--x", *GOOD[2:]), "--x has no value"),
        ((*GOOD[:4], "--n=", *GOOD[5:]), "--n: expected an integer, got "),
        ((*GOOD[:4], "--n=3x", *GOOD[5:]), "--n: expected an integer, got 3x"),
        ((*GOOD[:4], "--n= 3", *GOOD[5:]), "--n: expected an integer, got  3"),
        ((*GOOD[:4], "--n=1.5", *GOOD[5:]), "--n: expected an integer, got 1.5"),
        ((*GOOD[:4], "--n=99999999999999999999999", *GOOD[5:]), "99999999999999999999999 is not between"),
        ((*GOOD[:4], "--n=-9223372036854775809", *GOOD[5:]), "is not between -9223372036854775808 and"),
        ((*GOOD[:2], "--factor=1e999", *GOOD[4:]), "1e999 is larger than any number of its type"),
        ((*GOOD[:2], "--factor=-1e999", *GOOD[4:]), "-1e999 is larger"),
        ((*GOOD[:2], "--factor=0x10", *GOOD[4:]), "expected a number, got 0x10"),
        ((*GOOD[:2], "--factor=1,5", *GOOD[4:]), "expected a number, got 1,5"),
        ((*GOOD[:2], "--factor=", *GOOD[4:]), "expected a number, got "),
        ((*GOOD, "--small=3.4028236e38"), "--small: 3.4028236e38 is larger than any number of its type"),
        ((*GOOD, "--small=1e39"), "--small: 1e39 is larger than any number of its type"),
        ((*GOOD, "--byte=256"), "--byte: 256 is not between 0 and 255"),
        ((*GOOD, "--byte=-1"), "--byte: -1 is not between 0 and 255"),
        ((*GOOD, "--low=-32769"), "--low: -32769 is not between -32768 and 32767"),
        ((*GOOD, "--big=18446744073709551616"), "18446744073709551616 is not between 0 and 18446744073709551615"),
        ((*GOOD, "--big=-1"), "--big: -1 is not between 0 and 18446744073709551615"),
        ((*GOOD, "--big=1.5"), "--big: expected an integer, got 1.5"),
        ((*GOOD, "--on=2"), "--on: expected 0, 1, false or true, got 2"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_with_2_and_nothing_runs(folder, words, message):
    given = {word.partition("=")[0] for word in words}
    rest = [f"--{name}={value}" for name, value in OTHERS.items() if f"--{name}" not in given]
    result = subprocess.run(["./scale", *words, *rest], cwd=folder, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, ""), result
    assert message in result.stderr and result.stderr.startswith("./scale: "), result.stderr


@pytest.mark.parametrize("value", ["1e-999", "inf", "-Infinity", "nan", "1.", "-.5", "+2"])
def test_every_number_is_taken(folder, value):
    assert run(folder, *GOOD[:2], f"--factor={value}", *GOOD[4:]).returncode == 0


@pytest.mark.parametrize("value", ["9223372036854775807", "+0", "007"])
def test_every_integer_of_its_type_is_taken(folder, value):
    assert run(folder, *GOOD[:4], f"--n={value}", *GOOD[5:]).returncode == 0


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        ("--out . >/dev/full", "standard output could not be written"),
        ("--out . >&-", "standard output could not be written"),
        ("--help >/dev/full", "standard output could not be written"),
        ("--help >&-", "standard output could not be written"),
        ("--out missing", "--out: missing is no folder that can be written"),
        ("--out Makefile", "--out: Makefile is no folder"),
        ("--out blocked", "blocked/result.0.npy: cannot be written"),
        ("--out full", "full/result.0.npy: cannot be written: No space left on device"),
    ],
)
def test_output_that_could_not_be_written_is_an_error_with_1(folder, redirection, message):
    (folder / "blocked" / "result.0.npy").mkdir(parents=True, exist_ok=True)
    (folder / "full").mkdir(exist_ok=True)
    (folder / "full" / "result.0.npy").unlink(missing_ok=True)
    (folder / "full" / "result.0.npy").symlink_to("/dev/full")
    words = " ".join((*GOOD, *(f"--{name}={value}" for name, value in OTHERS.items())))
    command = f"./scale {words if '--help' not in redirection else ''} {redirection}"
    result = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 1 and message in result.stderr, result


def test_no_file_takes_the_place_of_a_closed_standard_output(folder):
    words = " ".join((*GOOD, *(f"--{name}={value}" for name, value in OTHERS.items())))
    result = subprocess.run(["sh", "-c", f"./scale {words} >&-"], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 1 and (folder / "log.txt").read_text() == "", result


def test_main_is_without_warnings_whatever_a_program_takes_and_gives(tmp_path):
    """Also where it has no numbers, no arrays, no results, and so no use for some functions of its `main`."""
    of_one_kind = [(parameter,) for parameter in ARTIFACT.parameters]
    for number, parameters in enumerate([(), *of_one_kind]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in export_files(replace(ARTIFACT, parameters=parameters)).items():
            (folder / name).write_text(text)
        strict = "cc -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -c main.c -o main.o"
        done = subprocess.run(strict.split(), cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, (parameters, done.stderr)


def test_the_readme_names_the_flags_that_there_are():
    for threads in (0, 1):
        artifact = replace(ARTIFACT, threads=threads)
        text = readme(artifact, targets=["x86-64-v3"])
        named = set(re.findall(r"`(?:--)([a-z.]+)", text)) - {"help"}
        files = export_files(artifact, {"x86-64-v3": artifact})
        flags = re.findall(r'^ {4}\{"([a-z.]+)", ', files["main.c"], re.MULTILINE)
        rows = re.findall(r'^ {4}\{"([a-z.]+)", (?!.*OUTPUT).*\},', files["scale_arrays.h"], re.MULTILINE)
        assert named == {*flags, *rows}, threads


def test_working_memory_is_enough_for_every_text_that_may_be_chosen():
    variants = {name: replace(ARTIFACT, arena_bytes=bytes) for name, bytes in (("x86-64-v4", 640), ("x86-64-v3", 1280))}
    assert "#define SCALE_ARENA_BYTES ((size_t)1280)" in export_files(ARTIFACT, variants)["scale.h"]
