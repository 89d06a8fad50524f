"""Planted faults of what threads share while functions are staged."""

from tests.mutate.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "two threads parse at one time",
        "frontend.calls.convert:_tree_of",
        "with _parses: ...",
        "if True: ...",
        ("tests/frontend/test_sources.py", "-k", "threads_parse"),
    ),
)
