"""MPI for programs that Python calls: the compiler's flags, the start and the end of MPI, and the end of a failed job.

Tested by `tests/ranks/test_launcher.py` and `tests/ranks/test_failures.py`.
"""

from __future__ import annotations

import atexit
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from staged.base.launcher import this_job
from staged.errors import DependencyError, RankError
from staged.runtime.compiler import CompileFailure, compile_text
from staged.runtime.guard import ffi, loader

INSTALL = "pip install 'staged[mpi]', or set STAGED_MPICC to the command of an MPI compiler"
_GLOBAL_MODE = os.RTLD_NOW | os.RTLD_GLOBAL
"""MPI libraries load parts of themselves that look for the others' symbols."""
_HELPER = """\
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// A rank, as the others see it.
typedef struct state {
    int64_t begun;     // the number of collectives that it has begun
    int64_t has_left;  // 1 if it ends MPI
} state;

static struct {
    pid_t process;  // not the child of a fork
    int rank, ranks, is_first_node;
    MPI_Comm job;
    MPI_Win states;
    state *mine;
    MPI_Win node;
    int32_t *has_failed;  // of one of the ranks on this node
} job;

static state ended;            // the place of the state after MPI
static int64_t *begun = &ended.begun;

// Where programs find the number of collectives that this process has begun.
int64_t **staged_mpi_begun(void) {
    return &begun;
}

static void pause_for(long milliseconds) {
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

// Gather `bytes` of each rank.
void staged_mpi_gather(const void *own, void *all, int bytes) {
    __atomic_store_n(begun, *begun + 1, __ATOMIC_RELEASE);
    MPI_Allgather(own, bytes, MPI_BYTE, all, bytes, MPI_BYTE, job.job);
}

// Whether this rank is to print its error: the first that fails. The others wait until it ends them.
int staged_mpi_prints(void) {
    if (begun == &ended.begun) {
        return 1;
    }
    if (__atomic_exchange_n(job.has_failed, 1, __ATOMIC_ACQ_REL) != 0) {
        pause_for(3000);
        return 0;
    }
    if (!job.is_first_node) {
        pause_for(500);  // nodes share no memory
    }
    return 1;
}

void staged_mpi_abort(int status) {
    int has_ended = 0;
    MPI_Finalized(&has_ended);
    if (!has_ended) {
        pause_for(200);  // the launcher may lose what it has not read before the end
        MPI_Abort(MPI_COMM_WORLD, status);
    }
}

// Called at the start of MPI_Finalize. A rank that ends here, while another one has begun a further collective, would
// let it wait forever. Each rank waits for the next one, so that all have left in the end.
static int on_end(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    if (job.process != getpid()) {
        return MPI_SUCCESS;
    }
    const int next = (job.rank + 1) % job.ranks;
    __atomic_store_n(&job.mine->has_left, 1, __ATOMIC_RELEASE);
    for (long pause = 0;; pause = pause < 20 ? pause + 1 : pause) {
        state other;
        MPI_Win_sync(job.states);
        MPI_Get(&other, sizeof other, MPI_BYTE, next, 0, sizeof other, MPI_BYTE, job.states);
        MPI_Win_flush(next, job.states);
        if (other.has_left) {
            break;
        }
        if (other.begun > job.mine->begun) {
            if (staged_mpi_prints()) {
                (void)fprintf(stderr, "rank %d has ended, and rank %d waits for it in a collective\\n", job.rank, next);
                (void)fflush(stderr);
            }
            staged_mpi_abort(1);
        }
        pause_for(pause);
    }
    begun = &ended.begun;
    MPI_Win_unlock_all(job.states);
    MPI_Win_free(&job.states);
    MPI_Win_free(&job.node);
    MPI_Comm_free(&job.job);
    return MPI_SUCCESS;
}

// Returns 1 if MPI was started here, 0 if it runs already, -1 if it has ended.
int staged_mpi_begin(int *rank, int *ranks) {
    int is_ready = 0, has_ended = 0;
    MPI_Finalized(&has_ended);
    if (has_ended) {
        return -1;
    }
    MPI_Initialized(&is_ready);
    if (!is_ready) {
        int given = 0;
#ifdef OPEN_MPI
        // Version 5.0.11 prints an error for each window if its component `ucx` finds no network.
        (void)setenv("OMPI_MCA_osc", "^ucx", 0);
#endif
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &job.job);
    MPI_Comm_rank(job.job, rank);
    MPI_Comm_size(job.job, ranks);
    job.process = getpid();
    job.rank = *rank;
    job.ranks = *ranks;
    MPI_Win_allocate(sizeof(state), 1, MPI_INFO_NULL, job.job, &job.mine, &job.states);
    *job.mine = (state){0, 0};
    begun = &job.mine->begun;
    MPI_Comm node;
    MPI_Comm_split_type(job.job, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int place = 0, unit = 0;
    MPI_Aint size = 0;
    MPI_Comm_rank(node, &place);
    MPI_Win_allocate_shared(place == 0 ? sizeof *job.has_failed : 0, 1, MPI_INFO_NULL, node, &job.has_failed,
                            &job.node);
    MPI_Win_shared_query(job.node, 0, &size, &unit, &job.has_failed);
    if (place == 0) {
        *job.has_failed = 0;
        job.is_first_node = *rank == 0;
    }
    MPI_Bcast(&job.is_first_node, 1, MPI_INT, 0, node);
    MPI_Comm_free(&node);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, job.states);
    MPI_Barrier(job.job);  // all have written their zeros
    int key = 0;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    return !is_ready;
}

void staged_mpi_end(void) {
    int has_ended = 0;
    MPI_Finalized(&has_ended);
    if (!has_ended && job.process == getpid()) {
        MPI_Finalize();
    }
}
"""


@dataclass(frozen=True, slots=True)
class Mpi:
    """An MPI compiler, and the flags that it adds to those of the C compiler."""

    command: str
    flags: tuple[str, ...]
    link: tuple[str, ...]


def find_mpi() -> Mpi:
    """The MPI library: of `$STAGED_MPICC`, else of this Python's environment, else the one on the PATH.

    Raises: DependencyError without one.
    """
    chosen = os.environ.get("STAGED_MPICC", "")
    beside = Path(sys.executable).parent / "mpicc"
    command = chosen or (str(beside) if beside.exists() else shutil.which("mpicc"))
    if not command or shutil.which(command) is None:
        missing = f"`{chosen}`, which STAGED_MPICC names, was not found" if chosen else "no `mpicc` was found"
        raise DependencyError(f"a program of several ranks needs MPI: {missing}", hint=INSTALL)
    return _asked(command)


@cache
def _asked(command: str) -> Mpi:
    run = subprocess.run([command, "-show"], capture_output=True, text=True, errors="replace")
    words = shlex.split(run.stdout)[1:]
    if run.returncode or not words:
        raise DependencyError(
            f"`{command} -show` does not print the flags of a compiler: {run.stderr.strip()}", hint=INSTALL
        )
    flags = tuple(word for word in words if word.startswith(("-I", "-D")))
    link = tuple(word for word in words if word not in flags)
    return Mpi(command, ("-DST_MPI", *flags), link)


@cache
def begin() -> None:
    """Start MPI if it does not run. This process then ends it.

    Raises: DependencyError without MPI; RankError if MPI has another number of ranks than the launcher.
    """
    helper = _helper()
    rank, ranks = ffi.new("int *"), ffi.new("int *")
    started = helper.begin(rank, ranks)
    if started < 0:
        raise RankError(
            "MPI has ended in this process, and cannot start again",
            hint="call `MPI.Finalize()` after the last program",
        )
    job = this_job()
    if (job.rank, job.ranks) != (rank[0], ranks[0]):
        raise RankError(
            f"the launcher started rank {job.rank} of {job.ranks}, and MPI is rank {rank[0]} of {ranks[0]}",
            hint=f"start with the `mpiexec` in the folder of {find_mpi().command}",
        )
    if started:
        atexit.register(_end, os.getpid())
    if isinstance(sys.stdout, io.TextIOWrapper):
        # One whole line of a rank at a time, also in a pipe.
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def _end(process: int) -> None:
    if process == os.getpid():
        # Python's handler would not run until MPI has ended, which may take as long as the other ranks compute.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _helper().end()


def begun() -> Any:
    """The place of the address at which programs count the collectives that this process begins."""
    return _helper().begun()


def gathered(own: bytes) -> list[bytes]:
    """The bytes of each rank, which are equally many."""
    size = len(own)
    everything = bytearray(size * this_job().ranks)
    _helper().gather(ffi.from_buffer(own), ffi.from_buffer(everything), size)
    return [bytes(everything[begin : begin + size]) for begin in range(0, len(everything), size)]


@dataclass(frozen=True)
class _Helper:
    begin: Any
    end: Any
    begun: Any
    gather: Any
    prints: Any
    abort: Any


@cache
def _helper() -> _Helper:
    mpi = find_mpi()
    try:
        path = compile_text("staged_mpi", _HELPER, flags=mpi.flags, link=mpi.link)
    except CompileFailure as failure:
        raise DependencyError(f"`{mpi.command}` does not compile a program of MPI:\n{failure}", hint=INSTALL) from None
    dl = loader()
    handle = dl.dlopen(os.fsencode(path), _GLOBAL_MODE)
    if handle == ffi.NULL:
        words = ffi.string(dl.dlerror()).decode(errors="replace")
        raise DependencyError(f"the MPI library cannot be loaded: {words}", hint=INSTALL)

    def symbol(name: str, type: str) -> Any:
        return ffi.cast(type, dl.dlsym(handle, name.encode()))

    return _Helper(
        symbol("staged_mpi_begin", "int (*)(int *, int *)"),
        symbol("staged_mpi_end", "void (*)(void)"),
        symbol("staged_mpi_begun", "int64_t **(*)(void)"),
        symbol("staged_mpi_gather", "void (*)(const void *, void *, int)"),
        symbol("staged_mpi_prints", "int (*)(void)"),
        symbol("staged_mpi_abort", "void (*)(int)"),
    )


# ---- the end of a failed job --------------------------------------------------------------------


@cache
def watch() -> None:
    """Let an exception that ends this process end all ranks of its job: they would wait for it forever."""
    sys.excepthook = _Excepthook(sys.excepthook, os.getpid())


@dataclass
class _Excepthook:
    """Prints an exception with its rank, once in a job, and ends all ranks."""

    before: Any
    process: int

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.process != os.getpid():  # the child of a fork
            self.before(kind, error, trace)
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        with suppress(Exception):
            sys.stdout.flush()
        if not _joins(text):
            _print(text)
            return
        helper = _helper()
        try:
            if helper.prints():
                _print(text)
        finally:
            helper.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _print(text: str) -> None:
    with suppress(Exception):
        sys.stderr.write(f"rank {this_job().rank}:\n{text}")
        sys.stderr.flush()


def _joins(text: str) -> bool:
    """Return whether MPI runs. If it has not begun, it is started here: the other ranks may wait at its start.

    A launcher ends all ranks if one ends after it has begun to start MPI. So if they do not start it within 3 s, this
    rank ends.
    """

    def leave() -> None:
        _print(text)
        os._exit(1)

    timer = threading.Timer(3.0, leave)
    timer.daemon = True
    timer.start()
    try:
        begin()
    except Exception:
        return False  # without MPI no rank waits
    finally:
        timer.cancel()
    return True
