"""The job of a process: its rank, and the threads of each rank."""

from __future__ import annotations

import os
import sys

import pytest

from staged.base.launcher import ALONE, Job, this_job
from staged.errors import DependencyError
from staged.runtime import machine, mpi
from tests.ranks import jobs

VARIABLES = [
    *("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "STAGED_NUM_THREADS"),
]
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)


def set_all(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("variables", [MPICH, OPENMPI, SLURM], ids=["mpich", "openmpi", "slurm"])
def test_the_launcher_describes_the_job(monkeypatch, variables):
    set_all(monkeypatch, variables)
    assert this_job() == Job(3, 8, 4)


def test_there_is_one_rank_without_a_launcher(monkeypatch):
    assert this_job() == ALONE
    monkeypatch.setenv("PMI_RANK", "0")  # without the number of ranks
    assert this_job() == ALONE
    monkeypatch.setenv("PMI_SIZE", "many")
    assert this_job() == ALONE


@pytest.mark.parametrize("variables", [MPICH, OPENMPI, SLURM], ids=["mpich", "openmpi", "slurm"])
@pytest.mark.parametrize("cores, threads", [(16, 4), (18, 4), (3, 1), (1, 1)])
def test_the_ranks_of_a_node_share_its_cores(monkeypatch, variables, cores, threads):
    monkeypatch.setattr(machine, "_usable_cores", lambda: cores)
    assert machine.default_threads() == cores
    set_all(monkeypatch, variables)
    assert machine.default_threads() == threads
    monkeypatch.setenv("STAGED_NUM_THREADS", "7")
    assert machine.default_threads() == 7


def test_a_rank_that_is_bound_to_cores_uses_all_of_them(monkeypatch):
    monkeypatch.setattr(machine, "_usable_cores", lambda: 4)
    set_all(monkeypatch, MPICH)
    assert machine.default_threads() == 1
    parent = os.getppid()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16 if process == parent else 4)))
    assert machine.default_threads() == 4


def test_a_missing_compiler_of_mpi_is_explained(monkeypatch):
    monkeypatch.setenv("STAGED_MPICC", "/nonexistent/mpicc")
    with pytest.raises(DependencyError, match="`/nonexistent/mpicc`, which STAGED_MPICC names, was not found"):
        mpi.find_mpi()


PROGRAM = """
import os
import numpy as np
import staged as st
from staged.runtime.machine import default_threads

@st.function
def gathered(x):
    return st.all_gather(st.shard(x) * 0 + st.rank()), st.ranks()

made, ranks = gathered(np.zeros(4))
print(made.tolist(), int(ranks), default_threads())
"""


@pytest.mark.ranks
@pytest.mark.core
def test_a_program_has_the_ranks_of_its_launcher(tmp_path):
    program = tmp_path / "ranks.py"
    program.write_text(PROGRAM)
    # Without the variable of the harness: each rank counts its own cores.
    done = jobs.run(program, 2, changes={"STAGED_NUM_THREADS": ""}, limit=60).check()
    threads = max(1, machine._usable_cores() // 2)
    assert done.stdout == f"[0.0, 0.0, 1.0, 1.0] 2 {threads}\n" * 2


@pytest.mark.ranks
def test_ranks_without_a_common_cache_compile_on_their_own(tmp_path):
    program = tmp_path / "own.py"
    # The caches of the ranks are in folders of their own.
    text = f"import os\nos.environ['STAGED_CACHE_DIR'] = os.path.join({str(tmp_path)!r}, f'cache{{os.getpid()}}')\n"
    program.write_text(text + PROGRAM)
    done = jobs.run(program, 2, changes={"STAGED_NUM_THREADS": "1"}, limit=90).check()
    assert done.stdout == "[0.0, 0.0, 1.0, 1.0] 2 1\n" * 2
    assert len([name for name in os.listdir(tmp_path) if name.startswith("cache")]) == 2


@pytest.mark.ranks
def test_one_rank_compiles_for_all(tmp_path):
    program = tmp_path / "common.py"
    program.write_text(PROGRAM)
    compiler = tmp_path / "cc"
    from staged.runtime.compiler import find_compiler

    real = find_compiler().command[0]
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *gathered.c*) echo compiled >> "$0.log";; esac\nexec {real} "$@"\n')
    compiler.chmod(0o700)
    changes = {"STAGED_CC": str(compiler), "STAGED_CACHE_DIR": str(tmp_path / "cache"), "STAGED_NUM_THREADS": "1"}
    done = jobs.run(program, 4, changes=changes, limit=90).check()
    assert done.stdout == "[0.0, 1.0, 2.0, 3.0] 4 1\n" * 4
    assert (tmp_path / "cc.log").read_text() == "compiled\n"
