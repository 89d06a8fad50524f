"""`check_nan` in eager mode: the search for the op that computed the first NaN or infinity of a result.

A `NanSearch` is a level (`tape.py`): it observes every op. If a result is not finite, and so is an operand, the op is
not the origin. So a NaN that `where` does not choose is not an error. The check applies to the results of the function
and to the values that are written to Variables.

A compiled program checks the arrays that fusion leaves in memory. If that check fails, the same call runs again in
eager mode from the same Variables (`first_nan`), and the error names the op that the search finds.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from staged.eager_mode.tape import Level, Node, only_levels, open_levels
from staged.errors import ProgramNanError
from staged.frontend.trace.effects import on_write
from staged.ops.array import Array
from staged.source import here

MOST_SECONDS = 20.0
"""The time for the search after a compiled program: loops in NumPy may be much slower."""


class _TooLongError(BaseException):
    """The search needs too much time. Not an Exception, which the function may catch."""


class NanSearch:
    """The origins of the arrays that are not finite, by id; with the arrays, so that ids stay unique."""

    def __init__(self, seconds: float | None = None) -> None:
        self.found: dict[int, tuple[Array, ProgramNanError, bool]] = {}
        """The last one says whether the array has a NaN."""
        self.end = None if seconds is None else perf_counter() + seconds

    def depends(self, array: Array) -> bool:
        """Return False: the search does not differentiate."""
        return False

    def note(self, node: Node, outer: tuple[Level, ...]) -> None:
        """Find the origins of the results of an op."""
        if self.end is not None and perf_counter() > self.end:
            raise _TooLongError
        known = [self.found[id(operand)] for operand in node.operands if id(operand) in self.found]
        # The origin of a NaN comes before that of an infinity, which a mask may have.
        known.sort(key=lambda one: one[2], reverse=True)
        for result in node.results:
            wrong = _wrong(result)
            if wrong is not None:
                error = known[0][1] if known else self.error(node.primitive.name, *wrong)
                self.found[id(result)] = result, error, wrong[0] == "NaN"

    def error(self, name: str, what: str, position: int) -> ProgramNanError:
        """The error for an op that is an origin."""
        name = "a value" if name == "alias" else f"`{name}`"
        return ProgramNanError(f"{name} has {what} at position {position}", where=here())

    def check(self, values: Iterable[Any]) -> None:
        """Raises: ProgramNanError if one of the values is not finite and was computed."""
        for value in values:
            if id(value) in self.found:
                raise self.found[id(value)][1]


def _wrong(result: Any) -> tuple[str, int] | None:
    """The kind and the position of the first element that is not finite; None without one."""
    if not result.dtype.is_inexact:
        return None
    elements = np.asarray(result._data).reshape(-1)
    finite = np.isfinite(elements)
    if finite.all():
        return None
    wrong = np.isnan(elements)
    return ("NaN", int(np.argmax(wrong))) if wrong.any() else ("an infinity", int(np.argmin(finite)))


@contextmanager
def checked(is_on: bool, seconds: float | None = None) -> Iterator[Callable[[Iterable[Any]], None]]:
    """Around a call in eager mode: the search, if it is on. Yields the check for the results of the call."""
    if not is_on or any(isinstance(level, NanSearch) for level in open_levels.get()):
        yield lambda values: None
        return
    search = NanSearch(seconds)
    token = on_write.set(lambda value: search.check([value]))
    try:
        with only_levels((search, *open_levels.get())):
            yield search.check
    finally:
        on_write.reset(token)


def first_nan(error: ProgramNanError, run: Callable[[float], Any]) -> ProgramNanError:
    """The error at the first NaN of a call that stopped with `error`; `run(seconds)` repeats the call in eager mode.

    The second run begins with the Variables before the call, does not print, and leaves the Variables of the program.
    Returns `error` if the search finds nothing, or if the program has other effects.
    """
    before = getattr(error, "variables", None)
    if before is None:
        return error
    after = [(variable, variable.numpy()) for variable, _ in before]
    _restore(before)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run(MOST_SECONDS)
    except ProgramNanError as found:
        return error if found.where == error.where else found  # the program has the user's name for the value
    except (Exception, _TooLongError):
        return error  # the error of the program is the one to show
    finally:
        _restore(after)
    return error


def _restore(values: Iterable[tuple[Any, np.ndarray[Any, Any]]]) -> None:
    for variable, elements in values:
        variable.buffer()[...] = elements
