"""Calls from a program into Python.

Tested by `tests/test_callbacks.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_CALLBACK = """\
// ---- calls into Python -----------------------------------------------------------------------
// Set by Python, which has loaded this program: calls its function of this number. `arguments` and `results` are the
// addresses of arrays and numbers. Returns whether the function has returned.
#ifdef __cplusplus
extern "C" {
#endif
int (*st_python)(void *context, int64_t number, const void *const *arguments, void *const *results) = NULL;
#ifdef __cplusplus
}
#endif

__attribute__((unused)) static int st_callback(st_host *host, int site, int64_t number,
                                               const void *const *arguments, void *const *results) {
    if (st_python == NULL) {
        return st_fail(host, ST_RUNTIME_ERROR, site, "the program calls a function of Python, which has not loaded it");
    }
    st_flush(host);  // what has been printed stands before what the function prints
    if (!st_python(host->context, number, arguments, results)) {
        return st_fail(host, ST_RUNTIME_ERROR, site, "the function of Python has raised an exception");
    }
    return ST_OK;
}
"""

SNIPPETS = (
    Snippet("callback", _CALLBACK, needs=("host", "fail", "write"), includes=headers("stdbool", "stddef", "stdint")),
)
