"""Time as a program sees it."""

from __future__ import annotations

from staged.backends.c_family.support.library import Snippet

_CLOCK = """\
// Seconds of a clock that never goes back; only differences mean something.
static double st_clock(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
"""

SNIPPETS = (Snippet("clock", _CLOCK, includes=("#define _POSIX_C_SOURCE 200809L", "#include <time.h>")),)
