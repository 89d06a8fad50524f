"""Options of a compilation. This file loads neither a compiler nor cffi.

Tested by `tests/runtime/test_compiler.py`.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import Literal

from staged.errors import CompilerError

Level = Literal["0", "1", "2", "3"]
"""The number after -O."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a compilation: the level of -O, the names of sanitizers, and further flags (`extra`)."""

    optimise: Level = "2"
    sanitize: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def flags(self) -> tuple[str, ...]:
        """Return the compiler's flags. `$STAGED_CFLAGS` is last, so that it overrides the others."""
        sanitize = (f"-fsanitize={','.join(self.sanitize)}", "-g") if self.sanitize else ()
        return (f"-O{self.optimise}", *sanitize, *self.extra, *split_variable("STAGED_CFLAGS"))


def split_variable(variable: str) -> tuple[str, ...]:
    """Return the arguments in an environment variable, split as a shell splits them; no shell runs.

    Raises: CompilerError for a quotation that does not end.
    """
    text = os.environ.get(variable, "")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise CompilerError(
            f"{variable} cannot be split like a shell's command line ({error}): {text}",
            hint="end each quotation",
        ) from None
