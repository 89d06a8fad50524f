"""Time as a program sees it.

Tested by `tests/frontend/test_clocks.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_CLOCK = """\
// Seconds of a clock that never goes back; only differences mean something.
static double st_clock(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
"""

_CLOCKS = """\
// What one of the system's clocks says, in nanoseconds.
static int64_t st_nanoseconds(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((unused)) static double st_seconds(clockid_t clock) {
    return 1e-9 * (double)st_nanoseconds(clock);
}
"""

CLOCK_NAMES = {
    "wall": "CLOCK_REALTIME",
    "monotonic": "CLOCK_MONOTONIC",
    "process": "CLOCK_PROCESS_CPUTIME_ID",
}
"""The clocks of a program as the system calls them."""

_TOP = ("#define _POSIX_C_SOURCE 200809L", "#include <time.h>")
SNIPPETS = (
    Snippet("clock", _CLOCK, includes=_TOP),
    Snippet("clocks", _CLOCKS, includes=(*_TOP, *headers("stdint"))),
)
