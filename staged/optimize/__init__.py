"""`st.optimize`: minimisation, as staged code.

Written in the language that users write, on public names alone: the descent is a loop of the program that calls it.
"""

from staged.optimize.minimize import OptimizeResult, minimize

__all__ = ["OptimizeResult", "minimize"]


def __dir__() -> list[str]:
    return __all__
