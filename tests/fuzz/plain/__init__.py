"""A plain NumPy reading of programs in the language of staged functions: `st` as this package's `namespace()`.

It imports NumPy alone, and nothing of `staged`: what it says is a second opinion on eager mode and on the compiled program.
Formulas are the textbook's. `run` executes a program's text with it; loops, branches and calls are Python's own.
"""

from tests.fuzz.plain.core import Plain
from tests.fuzz.plain.run import MISSING, load, namespace, noting_equalities, wide

__all__ = ["MISSING", "Plain", "load", "namespace", "noting_equalities", "wide"]
