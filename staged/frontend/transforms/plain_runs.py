"""Repeated derivatives in plain Python, line by line in NumPy: a note says once how compiling would help."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from staged.ops.context import context_or_none
from staged.source import Position, warn

MANY_RUNS = 20
"""The number of runs at which the note appears."""

_runs: dict[tuple[str, int], list[float]] = {}
"""By the place of the call: the seconds of each run so far, up to MANY_RUNS."""


@contextmanager
def counted(where: Position | None, what: str) -> Iterator[None]:
    """Count a derivative that plain Python takes at `where`; in staged and eager code nothing is counted."""
    if where is None or context_or_none() is not None:
        yield
        return
    seconds = _runs.setdefault((where.file, where.line), [])
    if len(seconds) >= MANY_RUNS:
        yield
        return
    begin = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - begin)
    if len(seconds) == MANY_RUNS:
        warn(
            f"{what} ran {MANY_RUNS} times in NumPy, op by op, {1e3 * min(seconds):.1f} ms each: `@st.function` around "
            "the step compiles it to one program, which is traced once",
            where,
        )
