"""`breakpoint()` and `pdb.set_trace()` in eager mode: the debugger stops in the user's code and shows its variables."""

from __future__ import annotations

import builtins
import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from staged.frontend.calls.call import call
from staged.frontend.syntax.converter import operator
from staged.frontend.trace.context import current_trace
from staged.frontend.trace.locals import Locals

_LIBRARY = ("staged", "staged.*")
"""Modules that the debugger passes over."""


@operator
def debugger(scope: Locals, function: Any) -> Callable[..., Any]:
    """The function to call instead of `breakpoint` or `set_trace`, in the frame of the user's code."""
    is_breakpoint = function is builtins.breakpoint
    if current_trace() is not None or not (is_breakpoint or getattr(function, "__name__", "") == "set_trace"):
        return functools.partial(call, function)
    frame = sys._getframe(1)
    frame.f_locals.update(vars(scope))
    is_pdb = getattr(function, "__module__", "") == "pdb"
    if is_breakpoint and sys.breakpointhook is sys.__breakpointhook__:
        is_pdb = os.environ.get("PYTHONBREAKPOINT", "pdb.set_trace") == "pdb.set_trace"
    return functools.partial(_stop, frame) if is_pdb else function


def _stop(frame: FrameType, *, header: str | None = None) -> None:
    import pdb

    class Debugger(pdb.Pdb):
        """Python's debugger, for frames whose variables are in `Locals` objects."""

        def setup(self, f: FrameType | None, tb: Any) -> None:
            super().setup(f, tb)
            for shown, _ in self.stack:
                for value in list(shown.f_locals.values()):
                    if isinstance(value, Locals):
                        shown.f_locals.update(vars(value))

    opened = Debugger(skip=_LIBRARY)
    if header is not None:
        opened.message(header)
    opened.set_trace(frame)
