"""The names that a program cannot have because the files around it have them.

Tested by `tests/backends/host/test_names.py`.
"""

from __future__ import annotations

from staged.backends.host.standalone.main import words_of_main

TARGETS = frozenset("lib example clean split emu mpi mpi_lib Makefile".split())
"""The targets of the Makefiles for C and for CUDA, and the name of the file."""

TO_COMPILERS = frozenset(
    "aligned always_inline cold defined format may_alias noinline noreturn optimize unroll unused vector_size "
    "weak".split()
)
"""Words of attributes, pragmas and conditions: they would mean something else under `#define NAME st_NAME_v3`."""


def words_of_folder() -> frozenset[str]:
    """The names that no program may have."""
    return words_of_main() | TARGETS | TO_COMPILERS
