"""Support functions in C99 without extensions: hints to a compiler are left out, and what has no such form is refused.

Tested by `tests/backends/native/test_iso_c_programs.py`.
"""

from __future__ import annotations

from dataclasses import replace

from staged.code.support.library import Snippet
from staged.errors import UnsupportedError
from staged.source import Position

_FAIL = """\
// Record what went wrong and where (an index into the program's table of Python lines). The first report stands.
// Returns its kind, for `return st_fail(...)`.
static inline int st_fail(st_host *host, int kind, int site, const char *format, ...) {
    if (!host->error_claimed) {
        va_list values;
        va_start(values, format);
        (void)vsnprintf(host->message, sizeof host->message, format, values);
        va_end(values);
        host->error_claimed = 1;
        host->error_site = site;
        host->error_kind = kind;
    }
    return kind;
}
"""
_ADVANCE = """\
// The next index of a loop, which stays at the end of the numbers.
static inline int64_t st_advance(int64_t index, int64_t step) {
    if (step > 0) {
        return index > INT64_MAX - step ? INT64_MAX : index + step;
    }
    return index < INT64_MIN - step ? INT64_MIN : index + step;
}
"""
_TEXTS = {"fail": _FAIL, "advance": _ADVANCE}
_UNUSED = ("__attribute__((unused))", "__attribute__((unused, cold))", "__attribute__((unused, format(printf, 2, 3)))")
_SPELLINGS = (
    ("static inline __attribute__((always_inline)) ", "static inline "),
    ("__attribute__((unused)) static const st_spec ", "static const st_spec "),
    *((f"{unused} static inline ", "static inline ") for unused in _UNUSED),
    *((f"{unused}{space}static ", "static inline ") for unused in _UNUSED for space in " \n"),  # then without a warning
    ("__builtin_sqrt", "sqrt"),
)
"""The heads of support functions, and the words in them, that C99 does not have; and what it has."""
_EXTENSIONS = "__attribute__ __builtin __atomic #pragma static_assert _Alignas alloc( _SOURCE <pthread.h>".split()
_WANTED_BY = {
    "clock": "reads the clock, or draws a progress bar",
    "clocks": "reads the clock",
    "files": "opens files",
    "frames": "keeps what calls need for their gradient",
    "own_stack": "recurses",
    "callback": "calls Python",
    "save": "saves arrays in files",
    "progress": "draws a progress bar",
    "stack": "keeps what a loop without a known end needs for its gradient",
}
"""For each support function without such a form: what a program does that needs it."""


def iso_c_form(snippet: Snippet, where: Position | None) -> Snippet:
    """A support function, which the Python line `where` asks for, as C99. Raises UnsupportedError, with the line, for
    one that needs more than C99 or static memory have.
    """
    text = _TEXTS.get(snippet.name, snippet.text)
    includes = snippet.includes
    if "__builtin_sqrt" in text:
        includes = (*includes, "#include <math.h>")
    for old, new in _SPELLINGS:
        text = text.replace(old, new)
    if any(word in part for word in _EXTENSIONS for part in (text, *includes)):
        does = _WANTED_BY.get(snippet.name, f"uses `{snippet.name}`")
        raise UnsupportedError(
            f"the program {does}, which the target 'c99' has no way to: it has C99 without extensions, and static "
            "memory",
            where=where,
            hint="export it for 'portable', which every gcc and clang takes",
        )
    return replace(snippet, text=text, includes=includes)
