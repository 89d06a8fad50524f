"""Error types: each says what was wrong, where in the user's Python, and what to do.

The layout follows one pattern everywhere (see `docs/errors.md`):

    staged.ShapeError: matmul needs equal inner sizes, got (64, 784) @ (748, 128)
      mlp.py, line 21, in forward
          h = relu(x @ w1 + b1)
                   ^^^^^^
      x:  f32 (64, 784)   argument of `forward`
      To fix: make `w1` (784, 128), or give `x` 748 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from staged.source import Position, excerpt


def article(noun: str) -> str:
    """A noun with its indefinite article: `an int`, `a list`, `an ndarray`."""
    return f"{'an' if noun[:1] in 'AEIOaeio' or noun == 'ndarray' else 'a'} {noun}"


class StagedError(Exception):
    """Base of every error that `staged` raises on purpose.

    `where` is the position in the user's Python, `details` are further lines (operands with their types), `hint` says
    what to do.
    """

    def __init__(
        self,
        message: str,
        *,
        where: Position | None = None,
        details: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.details = tuple(details)
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.where is not None:
            lines.append(excerpt(self.where))
        lines += [f"  {detail}" for detail in self.details]
        if self.hint:
            lines.append(f"  To fix: {self.hint}")
        return "\n".join(lines)


@contextmanager
def located(where: Position | None) -> Iterator[None]:
    """Give an error that leaves the `with` this position, unless it has one."""
    try:
        yield
    except StagedError as error:
        error.where = error.where or where
        raise


# ---- found while staging ------------------------------------------------------------------------


class ShapeError(StagedError, ValueError):
    """Shapes that do not fit together."""


TOO_LARGE = "an array needs less than 2**63 bytes, got {}"
SMALLER = "make the array smaller, or compute it in parts"


class StaticIndexError(ShapeError, IndexError):
    """An index that is known while staging, and out of range."""


class AxisError(ShapeError, IndexError):
    """An axis that an array does not have."""


class DTypeError(StagedError, TypeError):
    """Dtypes that do not fit together, or an op that does not take this dtype."""


class StaticOverflowError(DTypeError, OverflowError):
    """A number that is known while staging, and that its dtype cannot hold."""


class ArgumentError(StagedError, ValueError):
    """An argument has an invalid value: a negative rate, a probability above 1, an unknown option."""


class StateDictError(ArgumentError, KeyError):
    """A `state_dict` whose names are not those of the module or optimiser that is to load it."""


class StagingError(StagedError):
    """Python that cannot be staged: an unsupported statement, call or change of static state."""


class StagedValueError(StagingError, TypeError):
    """A staged value where a Python value is needed (`bool()`, `int()`, a shape, a static argument)."""


class LeakError(StagingError):
    """A staged value is used outside of the function, loop or branch that created it."""


class UnboundNameError(StagingError, UnboundLocalError):
    """A name read where it is bound on some paths only."""


class UnknownAttributeError(StagingError, AttributeError):
    """A method or property that arrays do not have."""


class UnknownArgumentError(StagingError, TypeError):
    """An argument that a function does not have, such as `out`."""


class CarriedValueError(StagingError, TypeError):
    """A value that changes dtype, shape or structure from one iteration or branch to another."""


class StaticStateError(StagingError):
    """Python state (a list, an attribute) changed under staged control flow."""


class GradientError(StagedError):
    """A derivative that does not exist, or that is refused rather than returned wrong."""


class RankError(StagedError):
    """Ranks of an MPI program that would wait for each other forever, or whose copies of a value would differ."""


class UnsupportedError(StagedError):
    """An op, dtype or option that the chosen back end does not have."""


# ---- found by the tools and the machine ---------------------------------------------------------


class CompilerError(StagedError):
    """No compiler was found, or it refused the generated text (our bug: please report it)."""


class CacheError(StagedError):
    """The program cache cannot be trusted (wrong owner or mode), or cannot be written."""


class DataError(StagedError, ValueError):
    """A data file is unreadable or malformed."""


class DependencyError(StagedError, ImportError):
    """An optional library that is needed here and is not installed."""


# ---- raised by a running program ----------------------------------------------------------------


class ProgramError(StagedError):
    """A running program stopped; the message names the Python line that stopped it."""

    raised: BaseException | None = None
    """The exception of the user's `raise` or `assert` that this one stands for, which handlers get."""


class ProgramAssertionError(ProgramError, AssertionError):
    """An `assert` of the user's program failed."""


class ProgramIndexError(ProgramError, IndexError):
    """An index or label out of range."""


class ProgramZeroDivisionError(ProgramError, ZeroDivisionError):
    """An integer division or modulo by zero."""


class ProgramValueError(ProgramError, ValueError):
    """A value that the program cannot go on with (for example a range step of zero)."""


class ProgramNanError(ProgramError, FloatingPointError):
    """A NaN or infinity occurred while NaN checks were on."""

    variables: Any = None
    """The Variables of the program with their elements before the call, if the call can run again."""


class ProgramMemoryError(ProgramError, MemoryError):
    """The program could not get memory."""


class ProgramFileError(ProgramError, OSError):
    """A file that the program could not read or write."""


class ProgramOverflowError(ProgramError, OverflowError):
    """A number that does not fit where it is needed."""


class ProgramRecursionError(ProgramError, RecursionError):
    """Recursion deeper than the program's stack allows."""


class ProgramRuntimeError(ProgramError, RuntimeError):
    """A RuntimeError that the user's program raised, or a failure of a library of the GPU."""


class ProgramNotImplementedError(ProgramRuntimeError, NotImplementedError):
    """A NotImplementedError that the user's program raised."""


class ProgramTypeError(ProgramError, TypeError):
    """A TypeError that the user's program raised."""
