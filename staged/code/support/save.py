"""Files of arrays that a program writes, in the safetensors format (`staged/saving/safetensors.py` is the host's side).

Tested by `tests/test_checkpoints.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.ir.structure import MOST_SAVED_AXES

_SAVE = """\
// ---- files of arrays -------------------------------------------------------------------------
// The safetensors format: the length of the header (8 bytes), the header (JSON), the elements one array after another.
// https://github.com/huggingface/safetensors#format
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, this machine is not"
#endif
enum { ST_SAVED_RANK = {axes} };

typedef struct st_saved {
    const char *name;   // as JSON has it, without quotes
    const char *dtype;  // the format's word
    int64_t itemsize;
    const void *elements;
    int64_t rank;
    int64_t shape[ST_SAVED_RANK];
} st_saved;

// The bytes of an array's elements.
static int64_t st_saved_bytes(const st_saved *array) {
    int64_t bytes = array->itemsize;
    for (int64_t axis = 0; axis < array->rank; ++axis) {
        bytes *= array->shape[axis];
    }
    return bytes;
}

// Whether the file is whole, and on the disk.
static bool st_save_to(FILE *file, const char *metadata, const st_saved *arrays, int64_t count) {
    (void)fprintf(file, "%8s{", "");  // the first 8 bytes are the length, which is known below
    const char *before = "";
    if (metadata != NULL) {
        (void)fprintf(file, "\\"__metadata__\\":%s", metadata);
        before = ",";
    }
    int64_t begin = 0;
    for (int64_t i = 0; i < count; ++i) {
        const st_saved *const array = &arrays[i];
        (void)fprintf(file, "%s\\"%s\\":{\\"dtype\\":\\"%s\\",\\"shape\\":[", before, array->name, array->dtype);
        for (int64_t axis = 0; axis < array->rank; ++axis) {
            (void)fprintf(file, "%s%lld", axis == 0 ? "" : ",", (long long)array->shape[axis]);
        }
        const int64_t end = begin + st_saved_bytes(array);
        (void)fprintf(file, "],\\"data_offsets\\":[%lld,%lld]}", (long long)begin, (long long)end);
        begin = end;
        before = ",";
    }
    (void)fputc('}', file);
    while (ftell(file) % 8 != 0) {
        if (fputc(' ', file) == EOF) {
            return false;
        }
    }
    const int64_t length = ftell(file) - 8;
    if (length < 0 || fseek(file, 0, SEEK_SET) != 0) {
        return false;
    }
    for (int i = 0; i < 8; ++i) {
        (void)fputc((int)(length >> 8 * i & 255), file);
    }
    if (fseek(file, 0, SEEK_END) != 0) {
        return false;
    }
    for (int64_t i = 0; i < count; ++i) {
        const size_t bytes = (size_t)st_saved_bytes(&arrays[i]);
        if (bytes > 0 && fwrite(arrays[i].elements, 1, bytes, file) != bytes) {
            return false;
        }
    }
    return fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
}

// Write a file, whole or not at all: beside its place, under another name, until it is on the disk.
__attribute__((unused)) static int st_save(st_host *host, int site, const char *path, const char *metadata,
                                           const st_saved *arrays, int64_t count) {
    char beside[1100];
    if (strlen(path) > 1000) {
        return st_fail(host, ST_FILE_ERROR, site, "the path \\"%.99s...\\" is too long", path);
    }
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
        // Renaming would put a file in its place: /dev/null would be gone.
        return st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": a device or pipe has that name", path);
    }
    // Two threads, or two machines with one folder, may save to one path: "x" creates a file.
    FILE *file = NULL;
    for (int number = 0; number == 0 || (file == NULL && errno == EEXIST); ++number) {
        (void)snprintf(beside, sizeof beside, "%s.%ld-%d.tmp", path, (long)getpid(), number);
        file = fopen(beside, "wbx");
    }
    if (file == NULL) {
        return st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": %s", path, strerror(errno));
    }
    bool is_saved = st_save_to(file, metadata, arrays, count);
    int reason = errno;
    if (fclose(file) != 0 && is_saved) {
        is_saved = false;
        reason = errno;
    }
    if (is_saved && rename(beside, path) != 0) {
        is_saved = false;
        reason = errno;
    }
    if (!is_saved) {
        (void)remove(beside);
        return st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": %s", path, strerror(reason));
    }
    return ST_OK;
}
"""

SNIPPETS = (
    Snippet(
        "save",
        _SAVE.replace("{axes}", str(MOST_SAVED_AXES)),
        needs=("host", "fail"),
        includes=(
            "#define _POSIX_C_SOURCE 200809L",
            *headers("errno", "stdbool", "stddef", "stdint", "stdio", "string", "sys/stat", "unistd"),
        ),
    ),
)
