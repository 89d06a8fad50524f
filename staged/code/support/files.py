"""Files that a program writes.

Tested by `tests/frontend/test_files.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_FILES = """\
// ---- files -----------------------------------------------------------------------------------
// The files that are open, by number (modulo the number of places): numbers are not given twice, so that a closed file
// is told from another one in its place. A program runs on one thread; helpers run kernels, which write nothing.
enum { ST_FILES = 32 };

typedef struct st_file {
    FILE *stream;  // NULL: the place is free
    int64_t number;
    char path[512];
} st_file;

static __thread st_file st_files[ST_FILES];

// Open a file; its number.
__attribute__((unused)) static int64_t st_file_open(st_host *host, int site, const char *path, const char *mode) {
    int slot = 0;
    while (slot < ST_FILES && st_files[slot].stream != NULL) {
        ++slot;
    }
    if (slot == ST_FILES || strlen(path) >= sizeof st_files[0].path) {
        st_fail(host, ST_FILE_ERROR, site, slot == ST_FILES ? "too many files are open at once: \\"%s\\" is one more"
                                                            : "the path \\"%s\\" is too long", path);
        return 0;
    }
    st_file *const file = &st_files[slot];
    file->stream = fopen(path, mode);
    if (file->stream == NULL) {
        st_fail(host, ST_FILE_ERROR, site, "cannot open \\"%s\\": %s", path, strerror(errno));
        return 0;
    }
    file->number = (file->number / ST_FILES + 1) * ST_FILES + slot;
    memcpy(file->path, path, strlen(path) + 1);
    return file->number;
}

// The place of an open file; NULL where it has been closed.
__attribute__((unused)) static st_file *st_file_at(int64_t number) {
    st_file *const file = &st_files[number % ST_FILES];
    return file->stream != NULL && file->number == number ? file : NULL;
}

// Begin text that goes to a file.
__attribute__((unused)) static void st_file_begin(st_text *text, st_host *host, int site, int64_t number) {
    st_file *const file = st_file_at(number);
    st_text_begin(text, file == NULL ? NULL : host);
    text->file = file == NULL ? NULL : file->stream;
    if (file == NULL) {
        st_fail(host, ST_VALUE_ERROR, site, "I/O operation on closed file.");
    }
}

// Pass the text on; whether that worked.
__attribute__((unused)) static bool st_file_end(st_text *text, st_host *host, int site, int64_t number) {
    st_text_end(text);
    if (text->file != NULL && ferror(text->file)) {
        st_fail(host, ST_FILE_ERROR, site, "cannot write to \\"%s\\": %s", st_file_at(number)->path, strerror(errno));
    }
    return !st_failed(host);
}

// `st_print` to a file; whether that worked.
__attribute__((unused, format(printf, 4, 5)))
static bool st_file_print(st_host *host, int site, int64_t number, const char *format, ...) {
    st_text text;
    st_file_begin(&text, host, site, number);
    va_list values;
    va_start(values, format);
    st_put_values(&text, format, &values);
    va_end(values);
    return st_file_end(&text, host, site, number);
}

__attribute__((unused)) static bool st_file_close(st_host *host, int site, int64_t number) {
    st_file *const file = st_file_at(number);
    if (file == NULL) {
        return true;  // closed already
    }
    FILE *const stream = file->stream;
    file->stream = NULL;
    const bool had_failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || had_failed) {
        st_fail(host, ST_FILE_ERROR, site, "cannot write to \\"%s\\": %s", file->path, strerror(errno));
        return false;
    }
    return true;
}

// The program ends, with an error or without: close what is open still.
__attribute__((unused)) static int st_close_files(st_host *host) {
    for (int slot = 0; slot < ST_FILES; ++slot) {
        if (st_files[slot].stream != NULL) {
            (void)st_file_close(host, -1, st_files[slot].number);
        }
    }
    return host->error_kind;
}
"""

SNIPPETS = (
    Snippet(
        "files",
        _FILES,
        needs=("host", "fail", "failed", "put_format"),
        includes=headers("errno", "stdarg", "stdbool", "stddef", "stdint", "stdio", "string"),
    ),
)
