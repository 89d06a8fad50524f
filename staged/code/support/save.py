"""Files of arrays that a program writes, in the safetensors format (`staged/saving/safetensors.py` is the host's side).

Tested by `tests/test_checkpoints.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.ir.structure import MOST_SAVED_AXES, SAVED_DTYPES, SAVED_TREE

_SAVE = """\
// ---- files of arrays -------------------------------------------------------------------------
// The safetensors format: the length of the header (8 bytes), the header (JSON), the elements one array after another.
// https://github.com/huggingface/safetensors#format
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, this machine is not"
#endif
enum { ST_SAVED_RANK = {axes} };

typedef struct st_saved {
    const char *name;  // as JSON has it, without quotes; see `st_saved_put`
    int64_t number;
    const char *dtype;  // the format's word
    const void *elements;
    int64_t rank;
    int64_t shape[ST_SAVED_RANK];
} st_saved;

// A part of the tree, in JSON: `count` times, with the numbers from `first` on.
typedef struct st_saved_part {
    const char *text;
    int64_t first;
    int64_t count;
} st_saved_part;

// Write a string up to `stop`; with `is_json` as a string of JSON.
//   '    is ".
//   %d   is the number. % before another character is that character.
//   ~p;  sets the path to p.
//   @k;  is the array k below the path: ["k",{"array":"pk"}].
//   #k;  is a number: ["k",{"number":"pk"}].
static void st_saved_put(FILE *file, const char *text, const char *stop, int64_t number, bool is_json) {
    const char *path = ";";
    for (; text < stop; ++text) {
        const char *const end = *text == '~' || *text == '@' || *text == '#' ? strchr(text, ';') : NULL;
        if (*text == '~') {
            path = text + 1;
        } else if (end != NULL) {
            (void)fputs("[\\\\\\"", file);
            st_saved_put(file, text + 1, end, number, is_json);
            (void)fprintf(file, "\\\\\\",{\\\\\\"%s\\\\\\":\\\\\\"", *text == '@' ? "array" : "number");
            st_saved_put(file, path, strchr(path, ';'), number, is_json);
            st_saved_put(file, text + 1, end, number, is_json);
            (void)fputs("\\\\\\"}]", file);
        } else if (*text == '%' && text[1] == 'd') {
            (void)fprintf(file, "%lld", (long long)number);
            ++text;
        } else {
            const char character = *text == '\\'' ? '"' : *text == '%' ? *++text : *text;
            if (is_json && (character == '"' || character == '\\\\')) {
                (void)fputc('\\\\', file);
            }
            (void)fputc(character, file);
        }
        if (end != NULL) {
            text = end;
        }
    }
}

// The dtypes in the order of the format's library, which writes the last one first.
static const char *const st_saved_dtypes[] = {
    {dtypes},
};

// The place of a dtype in that order.
static int st_saved_place(const char *dtype) {
    int place = 0;
    while (strcmp(st_saved_dtypes[place], dtype) != 0) {
        ++place;
    }
    return place;
}

static int st_saved_compare(const void *left, const void *right) {
    const st_saved *const a = (const st_saved *)left, *const b = (const st_saved *)right;
    const int places = st_saved_place(b->dtype) - st_saved_place(a->dtype);
    return places != 0 ? places : strcmp(a->name, b->name);
}

// Give the arrays their whole names, in memory that is returned, and the order of the format's library.
static char *st_saved_sort(st_saved *arrays, int64_t count) {
    char *names = NULL;
    size_t bytes = 0;
    FILE *const file = open_memstream(&names, &bytes);
    if (file == NULL) {
        return NULL;
    }
    for (int64_t i = 0; i < count; ++i) {
        st_saved_put(file, arrays[i].name, strchr(arrays[i].name, '\\0'), arrays[i].number, false);
        (void)fputc('\\0', file);
    }
    const bool is_whole = !ferror(file);
    if (fclose(file) != 0 || !is_whole) {
        free(names);
        return NULL;
    }
    const char *name = names;
    for (int64_t i = 0; i < count; ++i) {
        arrays[i].name = name;
        name += strlen(name) + 1;
    }
    if (count > 0) {
        qsort(arrays, (size_t)count, sizeof *arrays, st_saved_compare);
    }
    return names;
}

// The bytes of an array's elements. The dtypes without a number have one byte.
static int64_t st_saved_bytes(const st_saved *array) {
    const char *const bits = strpbrk(array->dtype, "123468");
    int64_t bytes = bits == NULL ? 1 : strtol(bits, NULL, 10) / 8;
    for (int64_t axis = 0; axis < array->rank; ++axis) {
        bytes *= array->shape[axis];
    }
    return bytes;
}

// Write the header; returns the place of the elements, below 0 if it cannot be written.
static int64_t st_save_header(FILE *file, const st_saved_part *tree, int64_t parts, const st_saved *arrays,
                              int64_t count) {
    (void)fprintf(file, "%8s{%s", "", parts > 0 ? "\\"__metadata__\\":{\\"{tree}\\": \\"" : "");
    for (int64_t i = 0; i < parts; ++i) {
        for (int64_t k = 0; k < tree[i].count; ++k) {  // a string of JSON in JSON
            st_saved_put(file, tree[i].text, strchr(tree[i].text, '\\0'), tree[i].first + k, true);
        }
    }
    (void)fputs(parts > 0 ? "\\"}" : "", file);
    const char *before = parts > 0 ? "," : "";
    int64_t begin = 0;
    for (int64_t i = 0; i < count; ++i) {
        (void)fprintf(file, "%s\\"%s\\":{\\"dtype\\":\\"%s\\",\\"shape\\":[", before, arrays[i].name, arrays[i].dtype);
        for (int64_t axis = 0; axis < arrays[i].rank; ++axis) {
            (void)fprintf(file, "%s%lld", axis == 0 ? "" : ",", (long long)arrays[i].shape[axis]);
        }
        const int64_t end = begin + st_saved_bytes(&arrays[i]);
        (void)fprintf(file, "],\\"data_offsets\\":[%lld,%lld]}", (long long)begin, (long long)end);
        begin = end;
        before = ",";
    }
    (void)fputc('}', file);
    const long used = ftell(file), padded = (used + 7) / 8 * 8;
    (void)fprintf(file, "%*s", (int)(padded - used), "");
    const int64_t length = padded - 8;  // in the 8 bytes that the file begins with
    const bool is_whole = used >= 0 && fseek(file, 0, SEEK_SET) == 0 && fwrite(&length, 8, 1, file) == 1 &&
                          fseek(file, 0, SEEK_END) == 0;
    return is_whole && fflush(file) == 0 && !ferror(file) ? padded : -1;
}

// Whether the file is whole, and on the disk.
static bool st_save_to(FILE *file, const st_saved_part *tree, int64_t parts, const st_saved *arrays, int64_t count) {
    bool is_whole = st_save_header(file, tree, parts, arrays, count) >= 0;
    for (int64_t i = 0; i < count; ++i) {
        const size_t bytes = (size_t)st_saved_bytes(&arrays[i]);
        is_whole = is_whole && (bytes == 0 || fwrite(arrays[i].elements, 1, bytes, file) == bytes);
    }
    return is_whole && fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
}

enum { ST_PATH_BYTES = 1100 };

// Create a temporary file for a path, and write its name to `beside`. NULL after an error.
static FILE *st_save_open(st_host *host, int site, const char *path, char *beside) {
    if (strlen(path) > 1000) {
        (void)st_fail(host, ST_FILE_ERROR, site, "the path \\"%.99s...\\" is too long", path);
        return NULL;
    }
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
        // Renaming would put a file in its place: /dev/null would be gone.
        (void)st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": a device or pipe has that name", path);
        return NULL;
    }
    // Two threads, or two machines with one folder, may save to one path: "x" creates a file.
    FILE *file = NULL;
    for (int number = 0; number == 0 || (file == NULL && errno == EEXIST); ++number) {
        (void)snprintf(beside, ST_PATH_BYTES, "%s.%ld-%d.tmp", path, (long)getpid(), number);
        file = fopen(beside, "wbx");
    }
    if (file == NULL) {
        (void)st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": %s", path, strerror(errno));
        return NULL;
    }
    return file;
}

// Write a file, whole or not at all: beside its place, under another name, until it is on the disk.
__attribute__((unused)) static int st_save(st_host *host, int site, const char *path,
                                           const st_saved_part *tree, int64_t parts, st_saved *arrays,
                                           int64_t count) {
    char beside[ST_PATH_BYTES];
    FILE *const file = st_save_open(host, site, path, beside);
    if (file == NULL) {
        return host->error_kind;
    }
    char *const names = st_saved_sort(arrays, count);
    const bool is_whole = names != NULL && st_save_to(file, tree, parts, arrays, count);
    int reason = errno;
    free(names);
    if (fclose(file) == 0 && is_whole && rename(beside, path) == 0) {
        return ST_OK;
    }
    reason = is_whole ? errno : reason;
    (void)remove(beside);
    return st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": %s", path, strerror(reason));
}
"""

_PIECES = """\
// Write all bytes at an offset of a file.
static bool st_save_at(int file, const void *bytes, int64_t count, int64_t place) {
    const char *from = (const char *)bytes;
    while (count > 0) {
        const ssize_t done = pwrite(file, from, (size_t)count, (off_t)place);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        from += done < 0 ? 0 : done;
        place += done < 0 ? 0 : done;
        count -= done < 0 ? 0 : done;
    }
    return true;
}

// Write the elements of this rank at their offsets: rank 0 writes whole arrays, each rank its piece of the others.
static bool st_save_elements(int file, const st_saved *arrays, int64_t count, const st_saved *pieces,
                             int64_t piece_count, int64_t place) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t bytes = st_saved_bytes(&arrays[i]);
        int64_t begin = 0, end = st_world.rank == 0 ? bytes : 0;
        for (int64_t k = 0; k < piece_count; ++k) {
            if (pieces[k].elements == arrays[i].elements) {
                int64_t elements = 1;
                for (int64_t axis = 0; axis < arrays[i].rank; ++axis) {
                    elements *= arrays[i].shape[axis];
                }
                const int64_t most = (elements + st_world.ranks - 1) / st_world.ranks;  // elements of a piece
                const int64_t piece = elements == 0 ? 0 : most * (bytes / elements);
                begin = piece * st_world.rank < bytes ? piece * st_world.rank : bytes;
                end = begin + piece < bytes ? begin + piece : bytes;
                break;
            }
        }
        if (!st_save_at(file, arrays[i].elements, end - begin, place + begin)) {
            return false;
        }
        place += bytes;
    }
    return fsync(file) == 0;
}

// Write a file of whole arrays and of pieces; the shapes are those of the whole arrays. All ranks call it: rank 0
// creates a temporary file, each rank writes its pieces, rank 0 renames the file when all are on the disk.
static int st_save_pieces(st_host *host, int site, const char *path, const st_saved_part *tree, int64_t parts,
                          const st_saved *whole, int64_t whole_count, const st_saved *pieces, int64_t piece_count) {
    struct {
        int64_t place;
        int32_t reason;
        char beside[ST_PATH_BYTES];
    } shared = {0, 0, ""};
    const int64_t count = whole_count + piece_count;
    st_saved *const arrays = (st_saved *)malloc((size_t)count * sizeof *arrays);
    char *names = NULL;
    if (arrays != NULL) {
        memcpy(arrays, pieces, (size_t)piece_count * sizeof *arrays);
        if (whole_count > 0) {
            memcpy(arrays + piece_count, whole, (size_t)whole_count * sizeof *arrays);
        }
        names = st_saved_sort(arrays, count);
    }
    int32_t reason = names == NULL ? ENOMEM : 0;
    FILE *file = NULL;
    if (st_world.rank == 0 && reason == 0) {
        errno = 0;
        file = st_save_open(host, site, path, shared.beside);
        shared.place = file == NULL ? -1 : st_save_header(file, tree, parts, arrays, count);
        reason = shared.place >= 0 ? 0 : errno != 0 ? errno : EINVAL;
    }
    shared.reason = reason;
    st_broadcast(&shared, &shared, sizeof shared, 0);
    if (shared.reason == 0 && reason == 0) {
        const int own = st_world.rank == 0 ? fileno(file) : open(shared.beside, O_WRONLY);
        if (own < 0 || !st_save_elements(own, arrays, count, pieces, piece_count, shared.place)) {
            reason = errno;
        }
        if (st_world.rank != 0 && own >= 0 && close(own) != 0 && reason == 0) {
            reason = errno;
        }
    }
    if (file != NULL && fclose(file) != 0 && reason == 0) {
        reason = errno;
    }
    free(names);
    free(arrays);
    int32_t first = 0;
    st_all_reduce(&reason, &first, 1, ST_I32, ST_MAX);
    if (st_world.rank == 0 && file != NULL) {
        if (first == 0 && rename(shared.beside, path) != 0) {
            first = errno;
        }
        if (first != 0) {
            (void)remove(shared.beside);
        }
    }
    st_broadcast(&first, &first, sizeof first, 0);
    if (first != 0 && host->error_kind == ST_OK) {
        return st_fail(host, ST_FILE_ERROR, site, "cannot save \\"%s\\": %s", path, strerror(first));
    }
    return host->error_kind;
}
"""


SNIPPETS = (
    Snippet(
        "save",
        _SAVE.replace("{axes}", str(MOST_SAVED_AXES))
        .replace("{dtypes}", ", ".join(f'"{word}"' for word in SAVED_DTYPES))
        .replace("{tree}", SAVED_TREE),
        needs=("host", "fail"),
        includes=(
            "#define _POSIX_C_SOURCE 200809L",
            *headers("errno", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "sys/stat", "unistd"),
        ),
    ),
    Snippet(
        "save_pieces",
        _PIECES,
        needs=("save", "broadcast", "all_reduce"),
        includes=headers("fcntl", "sys/types", "unistd"),
    ),
)
