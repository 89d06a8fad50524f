"""Ranks of a job that end in different ways. Run with the name of a case; `test_failures.py` has the expected results."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

CASES: dict[str, Callable[[], None]] = {}
EARLY: dict[str, Callable[[], None]] = {}
"""Cases that run before the first program."""


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def early(function: Callable[[], None]) -> Callable[[], None]:
    EARLY[function.__name__] = function
    return case(function)


NAME = sys.argv[1]
if NAME.startswith("mpi4py_before"):
    from mpi4py import MPI

import staged as st  # noqa: E402  (after mpi4py)

if NAME.startswith("mpi4py_after"):
    from mpi4py import MPI


@st.function
def total(x, bad):
    x = st.shard(x)
    assert bad + st.rank() != 101, "planted"
    return st.all_reduce(st.sum(x))


@st.function
def twice(x):
    return 2 * st.all_reduce(st.sum(st.shard(x)))


@st.function
def checked(x):
    assert st.sum(x) < 0, "planted"
    return st.all_reduce(st.sum(st.shard(x)))


@st.function(check_nan=True)
def root(x):
    y = st.sqrt(st.shard(x) - 1.0 * st.rank())
    return st.all_reduce(st.sum(y))


@st.function
def picked(x, number):
    return st.all_reduce(st.shard(x)[number + st.rank()])


X = np.ones((6, 3))


def run(count: int = 3, bad: int = 0) -> None:
    for _ in range(count):
        total(X, bad)


def is_second() -> bool:
    return int(st.function(st.rank)()) == 1


@case
def assertion():
    run(1, 100)


@case
def assertion_on_all():
    checked(X)


@case
def nan_check():
    root(X)


@case
def index():
    picked(X, 0)


@case
def exception():
    if is_second():
        raise ValueError("planted")
    run()


@case
def keyboard():
    if is_second():
        raise KeyboardInterrupt
    run()


@case
def system_exit():
    if is_second():
        sys.exit(3)
    run()


@case
def system_exit_at_the_end():
    if is_second():
        sys.exit(3)


@case
def early_return():
    if not is_second():
        run()


@case
def before_the_second_program():
    if not is_second():
        twice(X)


@case
def os_exit():
    if is_second():
        os._exit(4)
    run()


@case
def killed():
    if is_second():
        os.kill(os.getpid(), signal.SIGKILL)
    run()


@case
def thread():
    if not is_second():
        run()
        return

    def fail() -> None:
        raise ValueError("planted")

    one = threading.Thread(target=fail)
    one.start()
    one.join()


@case
def caught():
    try:
        run(1, 100)
    except st.ProgramError:
        print("caught")
    # The other ranks wait in the collective of the program that has stopped here.


@case
def caught_by_all():
    try:
        checked(X)
    except st.ProgramError:
        pass
    run()
    print("done")


@case
def own_hook():
    sys.excepthook = lambda *_: print("own hook")
    if is_second():
        raise ValueError("planted")
    run()


@case
def fork():
    process = os.fork()
    if process == 0:
        if is_second_rank:
            raise ValueError("planted")
        sys.exit(0)
    os.waitpid(process, 0)
    run()
    print("done")


@case
def slow_rank():
    if is_second():
        time.sleep(1)


@case
def exception_after_the_others_have_ended():
    if is_second():
        time.sleep(1)
        raise ValueError("planted")


@early
def exception_before_mpi():
    if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
        raise ValueError("planted")


def mpi4py_works() -> None:
    assert MPI.COMM_WORLD.allreduce(1) == MPI.COMM_WORLD.size
    run()
    print("done")


@case
def mpi4py_before():
    mpi4py_works()


@case
def mpi4py_after():
    mpi4py_works()


@case
def mpi4py_before_and_exit():
    system_exit()


@case
def mpi4py_after_and_exception():
    exception()


@case
def mpi4py_after_and_finalize():
    MPI.Finalize()
    run()


if __name__ == "__main__":
    if NAME in EARLY:
        EARLY[NAME]()
    run()
    is_second_rank = is_second()
    if NAME not in EARLY:
        CASES[NAME]()
