"""Exported folders of programs with ranks: built with a C compiler alone and with `make mpi`, run, and called."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import staged as st
from tests.plugin import unavailable
from tests.ranks import exported, jobs
from tests.ranks.exported import STEPS, K, export, flags, heat_arrays, heat_for, launch, make, mlp, mlp_arrays, results

CALLERS = Path(__file__).parent / "callers"
EPOCHS, RATE = 5, 0.1


@pytest.fixture(scope="module")
def _mpi():
    if jobs.mpiexec() is None:
        unavailable("no `mpiexec`: pip install 'staged[mpi]'")


@pytest.fixture(scope="module")
def trained(_mpi, tmp_path_factory):
    """The folder of `mlp`, built with and without MPI, and the losses of Python on one rank."""
    folder = export(mlp(), tmp_path_factory.mktemp("mlp"), mlp_arrays(), RATE, EPOCHS)
    make(folder, "PROGRAM=train.o")
    make(folder, "mpi")
    return folder


@pytest.fixture(scope="module")
def heat(_mpi, tmp_path_factory):
    """The folder of `heat` on 2 ranks, for one processor, with its library."""
    folder = export(heat_for(2), tmp_path_factory.mktemp("heat"), heat_arrays(), K, STEPS, target="portable")
    make(folder, "mpi", "mpi_lib")
    return folder


def run_training(folder: Path, ranks: int, out: Path, *words: str):
    out.mkdir()
    program = "./train_mpi" if ranks else "./train"
    return launch(folder, ranks, program, *flags(mlp_arrays(), rate=RATE, epochs=EPOCHS), "--out", str(out), *words)


@pytest.mark.ranks
@pytest.mark.core
def test_one_folder_trains_on_any_number_of_ranks(trained, tmp_path):
    expected = mlp()(*mlp_arrays().values(), RATE, EPOCHS)
    printed = set()
    for ranks in (0, 1, 2, 3):
        done = run_training(trained, ranks, tmp_path / str(ranks))
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        lines = done.stdout.splitlines()
        assert [line.split()[:2] for line in lines] == [["epoch", str(epoch)] for epoch in range(EPOCHS)]
        printed.add(tuple(round(float(line.split()[-1]), 12) for line in lines))
        made = results(tmp_path / str(ranks))
        assert made.keys() == {"loss", "predicted", "rank", "w1", "b1", "w2"}
        np.testing.assert_allclose(made["loss"], expected["loss"], rtol=1e-13)
        np.testing.assert_allclose(made["predicted"], expected["predicted"], rtol=1e-12)
        np.testing.assert_array_equal(made["rank"], np.arange(ranks) if ranks > 1 else 0)
    assert len(printed) == 1


@pytest.mark.ranks
def test_files_whose_rows_ranks_do_not_share_evenly_are_an_error(trained, tmp_path):
    done = run_training(trained, 5, tmp_path / "out")
    assert done.returncode != 0
    assert "rank 0: ./train_mpi: --x: x.npy: 5 ranks cannot share 252 rows evenly" in done.stderr


@pytest.mark.ranks
@pytest.mark.core
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "1e6"], "exported.py, line"),
        (["--rate", "x"], "--rate: expected a number, got x"),
        (["--out", "nowhere"], "--out: nowhere is no folder that can be written"),
    ],
    ids=["assertion", "flag", "folder"],
)
def test_an_error_of_all_ranks_is_printed_once_and_ends_the_job(trained, words, message):
    given = {"--rate": str(RATE), "--epochs": str(EPOCHS)} | {words[0]: words[1]}
    begun = time.monotonic()
    done = launch(trained, 3, "./train_mpi", *flags(mlp_arrays()), *(word for pair in given.items() for word in pair))
    assert done.returncode != 0
    assert time.monotonic() - begun < 5
    said = [line for line in done.stderr.splitlines() if message in line]
    assert len(said) == 1, (done.returncode, done.stdout, done.stderr)
    assert "rank 0: " in said[0]


@pytest.mark.ranks
def test_help_is_printed_once(trained):
    done = launch(trained, 2, "./train_mpi", "--help")
    assert (done.returncode, done.stderr, done.stdout.count("usage:")) == (0, "", 1)


@pytest.mark.ranks
@pytest.mark.core
def test_the_heat_equation_on_two_ranks_equals_one_rank(heat, tmp_path):
    expected = heat_for(1)(*heat_arrays().values(), K, STEPS)
    done = launch(heat, 2, "./heat_mpi", *flags(heat_arrays(), k=K, steps=STEPS), "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("misfit") == 1
    for name, array in results(tmp_path).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.ranks
def test_another_number_of_ranks_than_sizes_depend_on_is_a_located_error(heat):
    done = launch(heat, 3, "./heat_mpi", *flags(heat_arrays(), k=K, steps=STEPS))
    assert done.returncode != 0
    assert "in heat: the program is for 2 ranks, and runs on 3" in done.stderr


# ---- as a library -------------------------------------------------------------------------------


COMPILERS = {
    "C": ("caller.c", []),
    "C++": ("caller.c", ["-x", "c++", "-std=c++17"]),
    "Fortran": ("caller.f90", []),
}


@pytest.mark.ranks
@pytest.mark.parametrize("language", COMPILERS)
def test_a_program_of_the_language_calls_it_on_each_half_of_the_ranks(heat, tmp_path, language):
    source, words = COMPILERS[language]
    library, mpicc = heat / "libheat_mpi.a", exported.mpicc()
    if language == "Fortran":
        if shutil.which("gfortran") is None:
            pytest.skip("no `gfortran`")
        for command in (
            [mpicc, "-DST_MPI", f"-I{heat}", "-c", str(CALLERS / "halves.c"), "-o", "halves.o"],
            ["gfortran", "-Wall", "-Wextra", "-Werror", "-c", str(CALLERS / source), "-o", "caller.o"],
            [mpicc, "caller.o", "halves.o", str(library), *_fortran_libraries(), "-lm", "-pthread", "-o", "caller"],
        ):
            subprocess.run(command, cwd=tmp_path, check=True)
    else:
        strict = ["-Wall", "-Wextra", "-Werror", "-DST_MPI", f"-I{heat}"]
        given = [*words, str(CALLERS / source), *(["-x", "none"] if words else []), str(library)]
        subprocess.run([mpicc, *strict, *given, "-lm", "-pthread", "-o", "caller"], cwd=tmp_path, check=True)
    done = launch(tmp_path, 4, "./caller")
    assert (done.returncode, done.stderr) == (0, "")
    cells = np.arange(exported.CELLS)
    made = sorted(line.split() for line in done.stdout.splitlines() if line.startswith("half"))
    for half, line in enumerate(made):
        expected = heat_for(1)(np.cos(0.5 * cells) * (half + 1), np.sin(0.25 * cells), K, 50)
        assert line[:2] == ["half", str(half)]
        np.testing.assert_allclose([float(word) for word in line[2:]], [expected["misfit"], expected["d_k"]], rtol=1e-11)
    assert len(made) == 2


def _fortran_libraries() -> list[str]:
    found = subprocess.run(["gfortran", "-print-file-name=libgfortran.so"], capture_output=True, text=True, check=True)
    folder = Path(found.stdout.strip()).resolve().parent
    return ["-L" + str(Path(found.stdout.strip()).parent), f"-Wl,-rpath,{folder}", "-lgfortran"]


@pytest.mark.ranks
def test_a_call_without_mpi_is_an_error(heat, tmp_path):
    (tmp_path / "caller.c").write_text(
        """#include <stdio.h>
#include "heat.h"
HEAT_STATIC_ARENA(arena);
static st_host host;
static double array[24], number;
int main(void) {
    heat_args args = {array, array, 0.1, 1, &number, array, array, &number};
    printf("%d %s\\n", heat(&args, arena, &host), host.message);
    return 0;
}
"""
    )
    command = [exported.mpicc(), "-DST_MPI", f"-I{heat}", "caller.c", str(heat / "libheat_mpi.a"), "-lm", "-pthread"]
    subprocess.run([*command, "-o", "caller"], cwd=tmp_path, check=True)
    done = launch(tmp_path, 1, "./caller")
    assert done.stdout == "11 MPI is not initialised: call MPI_Init_thread first\n"


# ---- sanitizers ---------------------------------------------------------------------------------


@pytest.mark.ranks
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_sanitizer_reports_nothing_of_the_program(trained, tmp_path, sanitizer):
    folder = tmp_path / "program"
    shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("*.o", "train_mpi"))
    make(folder, "mpi", f"CFLAGS=-std=c11 -g -O1 -ffp-contract=off -fsanitize={sanitizer}", "PROGRAM=train.o")
    changes = {
        "ASAN_OPTIONS": "detect_leaks=1",
        "LSAN_OPTIONS": "exitcode=0",  # leaks of MPI
        "TSAN_OPTIONS": "exitcode=0 ignore_noninstrumented_modules=1",
        # The libraries' own hooks of memory functions do not run under the thread sanitizer.
        "UCX_MEM_EVENTS": "no",
        "UCX_MEM_MMAP_HOOK_MODE": "none",
        "PMIX_MCA_gds": "hash",
    }
    words = [*flags(mlp_arrays(), rate=RATE, epochs=EPOCHS, threads=2), "--out", str(tmp_path)]
    done = launch(folder, 2, "./train_mpi", *words, changes=changes)
    assert done.returncode == 0, done.stderr
    ours = {path.name for path in folder.glob("*.[ch]")}
    assert not [line for line in done.stderr.splitlines() if any(f"/{name}:" in line for name in ours)], done.stderr


# ---- without MPI --------------------------------------------------------------------------------


def test_a_target_without_mpi_is_an_error_with_the_line(tmp_path):
    with pytest.raises(st.UnsupportedError, match=r"on several ranks needs MPI, and the target 'c99' does not") as raised:
        export(mlp(), tmp_path, mlp_arrays(), RATE, EPOCHS, target="c99")
    assert raised.value.where.text.startswith("return st.all_reduce")
    assert "ranks=1" in raised.value.hint


def test_a_region_of_a_device_is_an_error_with_the_line(tmp_path):
    @st.function
    def step(x):
        with st.with_backend(st.GPU, x):
            y = st.tanh(x @ x)
        return st.all_reduce(y * 2.0)

    with pytest.raises(st.UnsupportedError, match=r"needs MPI, and the back end 'cublas_cudnn' does not") as raised:
        step.stage(np.ones((4, 4), np.float32)).export(tmp_path)
    assert raised.value.where.text == "return st.all_reduce(y * 2.0)"


def test_a_program_of_one_rank_and_one_without_collectives_have_no_mpi(tmp_path):
    export(heat_for(1), tmp_path / "one", heat_arrays(), K, STEPS)

    @st.function
    def plain(x):
        return st.sum(x)

    plain.stage(np.ones(3)).export(tmp_path / "plain")
    for path in tmp_path.rglob("*.*"):
        assert not path.is_file() or not re.search(rb"\bmpi|ST_MPI", path.read_bytes(), re.IGNORECASE), path
