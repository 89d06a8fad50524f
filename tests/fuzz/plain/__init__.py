"""A plain NumPy reading of programs in the language of staged functions: `st` as this package's `namespace()`.

It imports NumPy alone, and nothing of `staged`: what it says is a second opinion on eager mode and on the compiled program.
The readings of the functions are in `tests/rows`; their formulas are the textbook's. `run` executes a program's text with them;
loops, branches and calls are Python's own.
"""

from tests.fuzz.plain.core import BF16, HALVES, Plain, kind_of
from tests.fuzz.plain.run import MISSING, load, namespace, noting_equalities, results, wide

__all__ = ["BF16", "HALVES", "MISSING", "Plain", "kind_of", "load", "namespace", "noting_equalities", "results", "wide"]
