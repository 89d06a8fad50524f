"""`st.integrate`: differential equations, as staged code.

Written in the language that users write, on public names alone: an integration is a loop of the program that calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.base.other_names import unknown_names
from staged.integrate.odeint import odeint

__all__ = ["odeint"]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name
    __getattr__ = unknown_names("integrate", __all__)
