"""Messages between the ranks of a job outside of programs: a string of rank 0, and the largest of numbers.

Tested by `tests/ranks/test_checkpoints.py`.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from staged.errors import DependencyError
from staged.runtime import mpi
from staged.runtime.compiler import compile_text
from staged.runtime.guard import ffi, loader

_BYTES = 4096
_TEXT = """\
#include <mpi.h>

static MPI_Comm own(void) {
    static MPI_Comm comm = MPI_COMM_NULL;  // of these messages alone
    if (comm == MPI_COMM_NULL) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    return comm;
}

void staged_broadcast(char *bytes, int count) {
    MPI_Bcast(bytes, count, MPI_BYTE, 0, own());
}

int staged_largest(int number) {
    int largest = number;
    MPI_Allreduce(&number, &largest, 1, MPI_INT, MPI_MAX, own());
    return largest;
}
"""


def text_of_first(text: str) -> str:
    """The text of rank 0. All ranks call it. The text has at most 4,096 bytes."""
    data = os.fsencode(text)
    assert len(data) < _BYTES, "a path has at most 4,096 bytes"
    buffer = ffi.new("char[]", data.ljust(_BYTES, b"\0"))
    _functions()[0](buffer, _BYTES)
    return os.fsdecode(bytes(ffi.buffer(buffer, _BYTES)).partition(b"\0")[0])


def largest(number: int) -> int:
    """The largest number of all ranks. All ranks call it."""
    return int(_functions()[1](number))


@cache
def _functions() -> tuple[Any, Any]:
    mpi.begin()
    found = mpi.find_mpi()
    path = compile_text("staged_agreement", _TEXT, flags=found.flags, link=found.link)
    dl = loader()
    handle = dl.dlopen(os.fsencode(path), os.RTLD_NOW)
    if handle == ffi.NULL:
        words = ffi.string(dl.dlerror()).decode(errors="replace")
        raise DependencyError(f"the MPI library cannot be loaded: {words}", hint=mpi.INSTALL)
    return (
        ffi.cast("void (*)(char *, int)", dl.dlsym(handle, b"staged_broadcast")),
        ffi.cast("int (*)(int)", dl.dlsym(handle, b"staged_largest")),
    )
