"""The interface between a program and its caller: printed text, errors, requests to stop.

Tested by `tests/runtime/test_support.py` and `tests/runtime/test_native.py`.
"""

from __future__ import annotations

from staged.base.artifact import HOST_STRUCT, ErrorKind
from staged.code.support.library import Snippet, headers

_KINDS = "\n".join(f"    ST_{kind.name} = {kind.value}," for kind in ErrorKind)

# In the header too, so that a `main` written by hand can fill the struct; guarded for programs that use several.
HOST_DECLARATIONS = f"""\
#ifndef ST_HOST_DECLARED
#define ST_HOST_DECLARED
// What a program asks of its caller, and how it reports. `st_host host = {{0}};` prints to standard output.
struct st_team;

{HOST_STRUCT}
enum st_error_kind {{
{_KINDS}
}};
#endif
"""

_FAIL = """\
// Record what went wrong and where (an index into the program's table of Python lines). The first report stands, also
// when several threads fail at once. Returns its kind, for `return st_fail(...)`.
__attribute__((unused, cold, format(printf, 4, 5)))
static int st_fail(st_host *host, int kind, int site, const char *format, ...) {
    int32_t unclaimed = 0;
    if (__atomic_compare_exchange_n(&host->error_claimed, &unclaimed, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        va_list values;
        va_start(values, format);
        (void)vsnprintf(host->message, sizeof host->message, format, values);
        va_end(values);
        host->error_site = site;
        __atomic_store_n(&host->error_kind, kind, __ATOMIC_RELEASE);
    }
    return kind;
}
"""

_FAILED = """\
// Whether something has gone wrong, on any thread.
__attribute__((unused)) static bool st_failed(const st_host *host) {
    return __atomic_load_n(&host->error_kind, __ATOMIC_ACQUIRE) != ST_OK;
}
"""

_IN_LAYER = """\
// Add the name of the layer, with a number inside, to the message of an error. Returns the kind of the error.
__attribute__((unused, cold))
static int st_in_layer(st_host *host, const char *before, long long number, const char *after) {
    const size_t length = strlen(host->message);
    (void)snprintf(host->message + length, sizeof host->message - length, " (in %s%lld%s)", before, number, after);
    return host->error_kind;
}
"""

_CHECK_FIELDS = """\
// A pointer in the struct of arguments, or that of each layer, `stride` bytes apart.
typedef struct st_field {
    const char *name;
    size_t offset, stride;
    int layers;
} st_field;

// Stops the program if one of these pointers is NULL.
static int st_check_fields(st_host *host, const void *args, const st_field *fields, int count) {
    for (const st_field *field = fields; field < fields + count; ++field) {
        for (int layer = 0; layer < field->layers; ++layer) {
            const void *array;
            memcpy(&array, (const char *)args + field->offset + (size_t)layer * field->stride, sizeof array);
            if (array == NULL) {
                host->error_kind = ST_OK;
                host->error_claimed = 0;
                if (field->stride == 0) {
                    return st_fail(host, ST_VALUE_ERROR, -1, "`%s` of the arguments is NULL", field->name);
                }
                return st_fail(host, ST_VALUE_ERROR, -1, "`%s` of the arguments is NULL for layer %d", field->name,
                               layer);
            }
        }
    }
    return ST_OK;
}
"""

_NOTE = """\
// Tell the caller what else runs on this device, and for which Python line (an index as for `st_fail`).
__attribute__((unused, cold, format(printf, 3, 4)))
static void st_note(st_host *host, int site, const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (host->note != NULL) {
        host->note(host->context, site, text);
    } else {
        (void)fprintf(stderr, "%s\\n", text);
    }
}
"""

_STOP = """\
// Whether the caller wants the program to end. Cheap enough for the back edge of a loop.
__attribute__((unused)) static inline bool st_stop_requested(const st_host *host) {
    return host->stop != NULL && *host->stop != 0;
}

__attribute__((unused, cold)) static int st_interrupted(st_host *host, int site) {
    return st_fail(host, ST_INTERRUPTED, site, "interrupted");
}
"""

_WRITE = """\
// Hand over the text that waits for its end of line.
__attribute__((unused)) static void st_flush(st_host *host) {
    if (host->write == NULL) {
        (void)fflush(stdout);
    } else if (host->text_length > 0) {
        const int64_t length = host->text_length;
        host->text_length = 0;
        host->write(host->context, host->text, length);
    }
}

// Print `length` bytes. The caller sees whole lines as soon as they end; longer text goes through in pieces.
__attribute__((unused)) static void st_write(st_host *host, const char *text, int64_t length) {
    if (length <= 0) {
        return;
    }
    if (host->live > 1) {
        // A progress bar stands on the line: wipe its 79 characters.
        char spaces[81];
        memset(spaces, ' ', sizeof spaces);
        spaces[0] = '\\r';
        spaces[80] = '\\r';
        host->live = 1;
        st_write(host, spaces, (int64_t)sizeof spaces);
    }
    if (host->write == NULL) {
        (void)fwrite(text, 1, (size_t)length, stdout);
        return;
    }
    bool line_ends = false;
    for (int64_t i = 0; i < length; ++i) {
        host->text[host->text_length++] = text[i];
        line_ends = line_ends || text[i] == '\\n';
        if (host->text_length == (int32_t)sizeof host->text) {
            st_flush(host);
        }
    }
    if (line_ends) {
        st_flush(host);
    }
}
"""

SNIPPETS = (
    Snippet("host", HOST_DECLARATIONS, includes=headers("stdint")),
    Snippet("fail", _FAIL, needs=("host",), includes=headers("stdarg", "stdbool", "stdio")),
    Snippet("failed", _FAILED, needs=("host",), includes=headers("stdbool")),
    Snippet("in_layer", _IN_LAYER, needs=("host",), includes=headers("stdio", "string")),
    Snippet("check_fields", _CHECK_FIELDS, needs=("fail",), includes=headers("stddef", "string")),
    Snippet("note", _NOTE, needs=("host",), includes=headers("stdarg", "stdio")),
    Snippet("stop", _STOP, needs=("host", "fail"), includes=headers("stdbool", "stddef")),
    Snippet("write", _WRITE, needs=("host",), includes=headers("stdbool", "stdio", "string")),
)
