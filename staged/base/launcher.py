"""The ranks of the job that this process belongs to: from the launcher's environment, else from mpi4py.

Nothing here starts MPI. Tested by `tests/ranks/test_launcher.py`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """This process among the processes of its job."""

    rank: int = 0
    ranks: int = 1
    local_ranks: int = 1
    """The number of ranks on this node."""


ALONE = Job()

_VARIABLES = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI, MVAPICH
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),  # Open MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),  # srun with PMIx
)
"""The rank, the number of ranks, and the number of ranks on the node."""


def this_job() -> Job:
    """The rank of this process and the number of ranks; one rank without a launcher."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    for rank, ranks, local in _VARIABLES:
        found = _number(rank), _number(ranks)
        if found[0] is not None and found[1] is not None:
            return Job(found[0], found[1], _number(local) or 1)
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        return Job(mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size)
    return ALONE


def _number(name: str) -> int | None:
    """The number in a variable; the first one of a list such as `4(x2)`."""
    digits = os.environ.get(name, "").partition("(")[0].partition(",")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None
