"""Planted faults of what threads share while functions are staged."""

from tests.mutate.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "two threads parse at one time",
        "staged/frontend/calls/convert.py",
        "    with _parses:\n",
        "    if True:\n",
        ("tests/frontend/test_sources.py", "-k", "threads_parse"),
    ),
)
