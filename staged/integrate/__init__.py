"""`st.integrate`: differential equations, as staged code.

Written in the language that users write, on public names alone: an integration is a loop of the program that calls it.
"""

from staged.integrate.odeint import odeint

__all__ = ["odeint"]


def __dir__() -> list[str]:
    return __all__
