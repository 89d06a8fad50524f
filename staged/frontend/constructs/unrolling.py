"""The limits of loops that are unrolled: a warning for a long program, an error before the trace fills the memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from staged.errors import ArgumentError, StagingError
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.notes import Notes
from staged.frontend.trace.signals import Body
from staged.source import Position, warn

LONG = 100
"""The copies of an iteration after which a loop that records ops in each of them causes a warning."""
MOST = 10_000
"""The copies after which it causes an error, without the environment variable `STAGED_UNROLL`."""

OF_FOR = "`st.range(...)` makes it one loop of the program"
OF_WHILE = (
    "start a variable of its condition as an array, such as `t = st.zeros(())`: then it is one loop of the program"
)


def copies(trace: TraceContext, bodies: Iterable[Body], where: Position | None, hint: str) -> Iterator[Body]:
    """The bodies of the iterations of a loop that Python runs while staging.

    Raises: StagingError if they are too many.
    """
    before = len(trace.block.ops)
    for count, body in enumerate(bodies):
        if count and count % LONG == 0 and len(trace.block.ops) - before >= count:
            if count == LONG:
                _warn(trace, where, hint)
            if count >= _limit():
                raise StagingError(
                    f"the loop at line {where.line if where else 0} is unrolled more than {count} times",
                    where=where,
                    hint=f"{hint}; or raise the limit with the environment variable `STAGED_UNROLL={10 * count}`",
                )
        yield body


def _warn(trace: TraceContext, where: Position | None, hint: str) -> None:
    line = where.line if where else 0
    note = f"the loop at line {line} is unrolled, more than {LONG} times; {hint}"
    notes = trace.of(Notes).texts
    if note not in notes:
        notes.append(note)
        warn(note, where)


def _limit() -> int:
    text = os.environ.get("STAGED_UNROLL", str(MOST))
    if not text.isdecimal() or not int(text):
        raise ArgumentError(
            f"STAGED_UNROLL must be a number of iterations, got {text!r}", hint="write `STAGED_UNROLL=20000`"
        )
    return int(text)
