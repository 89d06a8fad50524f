"""`NAME_npy.h`: C that reads and writes `.npy` files, for the rows of a table of arrays.

The reader compares the header of a file with the header that NumPy writes for the expected array. A dictionary in
another spelling is an error.

Tested by `tests/backends/host/test_npy.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.host.parameter_sizes import Sizes
from staged.base.artifact import Parameter
from staged.code.writer import Writer, c_string
from staged.ir.sizes import bounds_of

MOST_AXES = 32
"""Axes that the writer's buffer has room for, at 21 characters each, or a size of 200."""

NPY_TEXT = r"""
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { NPY_LEAST_MAPPED = 1 << 20 };  // bytes of elements that are mapped, not read
enum { NPY_LONGEST_HEADER = 10000, NPY_MOST_AXES = 32 };  // NumPy refuses longer headers too

static char npy_problem[512];  // why the last file was refused

#define NPY_REFUSE(...) (snprintf(npy_problem, sizeof npy_problem, __VA_ARGS__), npy_problem)

// ---- the table of arrays ------------------------------------------------------------------------

-enum npy_role { NPY_INPUT = 1, NPY_OUTPUT = 2, NPY_STATE = NPY_INPUT | NPY_OUTPUT };
+// A local array differs between ranks. Its file has the rows of rank 0 first, then those of rank 1, ...
+enum npy_role { NPY_INPUT = 1, NPY_OUTPUT = 2, NPY_STATE = NPY_INPUT | NPY_OUTPUT, NPY_LOCAL = 4 };

// An array of a program, or those of equal layers: `*` in their name is the number of the layer.
typedef struct npy_row {
    const char *name;   // of its flag, and of the file with its result
    const char *dtype;  // in messages
    const char *descr;  // the same in a .npy file
    const char *word;   // the same in a file of weights
    size_t item;        // bytes of an element
    int axes;
!    int64_t shape[NPY_MOST_AXES];
@    int64_t shape[NPY_MOST_AXES];  // NPY_SIZE(0) is the first of `npy_sizes`
    size_t offset;  // of its pointer in the struct of arguments
    size_t stride;  // from the pointer of a layer to that of the next
    int layers;
    int device;  // the number of the device that has it; -1: the host
    enum npy_role role;
    const char *file;  // the file with its elements; NULL: the caller passes it
    const char *key;   // its name in the file of weights; NULL: `name`
} npy_row;

+static int64_t npy_rank = 0;
+static int64_t npy_ranks = 1;
+
+// The number of arrays that the file of a row has, one after another: one for each rank if the array is local.
+static int64_t npy_parts(const npy_row *row) {
+    return (row->role & NPY_LOCAL) != 0 ? npy_ranks : 1;
+}
+
// The array of one layer of a row.
typedef struct npy_item {
    const npy_row *row;
    int layer;
} npy_item;

// The array with this number, counted from the first row on.
__attribute__((unused)) static npy_item npy_item_at(const npy_row *rows, int number) {
    for (; number >= rows->layers; ++rows) {
        number -= rows->layers;
    }
    return (npy_item){rows, number};
}

// The name of an array, until the next call.
static const char *npy_name(npy_item item) {
    static char name[512];
    const char *const star = item.row->layers > 1 ? strchr(item.row->name, '*') : NULL;
    if (star == NULL) {
        return item.row->name;
    }
    snprintf(name, sizeof name, "%.*s%d%s", (int)(star - item.row->name), item.row->name, item.layer, star + 1);
    return name;
}

// The number of the array with a name, or with a key in the file of weights; -1 for an unknown name.
__attribute__((unused)) static int npy_find(const npy_row *rows, const char *name, bool is_key) {
    int first = 0;
    for (; rows->name != NULL; first += rows->layers, ++rows) {
        const size_t before = strcspn(rows->name, "*");
        if (is_key && rows->key != NULL) {
            if (strcmp(rows->key, name) == 0) {
                return first;
            }
        } else if (strncmp(rows->name, name, before) == 0) {
            const long layer = rows->layers > 1 ? strtol(name + before, NULL, 10) : 0;
            if (layer >= 0 && layer < rows->layers && strcmp(npy_name((npy_item){rows, (int)layer}), name) == 0) {
                return first + (int)layer;
            }
        }
    }
    return -1;
}

@SIZES
static size_t npy_count(const npy_row *row) {
    size_t count = 1;
    for (int axis = 0; axis < row->axes; ++axis) {
!        count *= (size_t)row->shape[axis];
@        count *= (size_t)npy_extent(row, axis);
    }
    return count;
}

// The pointer to an array in the struct of arguments.
__attribute__((unused)) static void *npy_get(const void *args, npy_item item) {
    void *data;
    memcpy(&data, (const char *)args + item.row->offset + (size_t)item.layer * item.row->stride, sizeof data);
    return data;
}

__attribute__((unused)) static void npy_set(void *args, npy_item item, void *data) {
    memcpy((char *)args + item.row->offset + (size_t)item.layer * item.row->stride, &data, sizeof data);
}

// The elements of a file, in memory or mapped.
typedef struct npy_array {
    void *data;
    void *mapping;  // NULL: `data` is from `malloc`
    size_t length;
} npy_array;

// ---- files --------------------------------------------------------------------------------------

// The header of a file with the array of a row, as NumPy writes it, without the spaces behind it; its length.
static size_t npy_describe(char header[NPY_LONGEST_HEADER], const npy_row *row) {
    char *at = header + sprintf(header, "{'descr': '%s', 'fortran_order': False, 'shape': (", row->descr);
+    if (row->axes == 0 && npy_parts(row) > 1) {
+        at += sprintf(at, "%lld,", (long long)npy_parts(row));
+    }
    for (int axis = 0; axis < row->axes; ++axis) {
        const char *const after = axis + 1 < row->axes ? ", " : row->axes == 1 ? "," : "";
+        const int64_t parts = axis == 0 ? npy_parts(row) : 1;
-!        at += sprintf(at, "%lld%s", (long long)row->shape[axis], after);
+!        at += sprintf(at, "%lld%s", (long long)(row->shape[axis] * parts), after);
@        const npy_size *const size = npy_size_of(row, axis);
@        at += size != NULL && size->value < 0 ? sprintf(at, "%.200s%s", size->name, after)
-@                : sprintf(at, "%lld%s", (long long)npy_extent(row, axis), after);
+@                : sprintf(at, "%lld%s", (long long)(npy_extent(row, axis) * parts), after);
    }
    at += sprintf(at, "), }");
    return (size_t)(at - header);
}

// Read the header of a file. Returns NULL if it is that of a row, or a message.
static const char *npy_read_header(FILE *file, const npy_row *row) {
    unsigned char head[12] = {0};
    if (fread(head, 1, 8, file) != 8 || memcmp(head, "\x93NUMPY", 6) != 0) {
        return NPY_REFUSE("not a .npy file");
    }
    if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
        return NPY_REFUSE("is of version %d.%d of the .npy format; 1.0, 2.0 and 3.0 can be read", head[6], head[7]);
    }
    const size_t digits = head[6] == 1 ? 2 : 4;
    char found[NPY_LONGEST_HEADER], expected[NPY_LONGEST_HEADER];
    size_t length = fread(head + 8, 1, digits, file) == digits
            ? head[8] | (size_t)head[9] << 8 | (size_t)head[10] << 16 | (size_t)head[11] << 24 : sizeof found;
    if (length >= sizeof found || fread(found, 1, length, file) != length) {
        return NPY_REFUSE("not a .npy file: its header is too long or cut off");
    }
    while (length > 0 && (found[length - 1] == ' ' || found[length - 1] == '\n')) {
        --length;
    }
@    found[length] = '\0';
@    const char *const problem = npy_take_sizes(found, row);
@    if (problem != NULL) {
@        return problem;
@    }
    if (length == npy_describe(expected, row) && memcmp(found, expected, length) == 0) {
        return NULL;
    }
!    found[length] = '\0';
    for (size_t i = 0; i < length; ++i) {
        found[i] = found[i] < ' ' || found[i] > '~' ? '?' : found[i];  // it may be anything
    }
    return NPY_REFUSE("expected %.160s, the file has %.160s; numpy.ascontiguousarray(x, \"%s\") sets dtype and order",
                      expected, found, row->descr);
}

__attribute__((unused)) static void npy_free(npy_array *array) {
    if (array->mapping != NULL) {
        (void)munmap(array->mapping, array->length);
    } else {
        free(array->data);
    }
    memset(array, 0, sizeof *array);
}

// The elements of a file from its current position. Large ones are mapped: memory is used for pages that are written.
static const char *npy_elements(FILE *file, size_t item, size_t count, npy_array *array) {
    const size_t bytes = item * count;
    const off_t begin = bytes < NPY_LEAST_MAPPED ? -1 : ftello(file);
    struct stat about;
    if (begin >= 0 && (size_t)begin % item == 0 && fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode)) {
        if (about.st_size < begin || (size_t)(about.st_size - begin) < bytes) {
            return NPY_REFUSE("is cut off");
        }
        const size_t length = (size_t)begin + bytes;
        void *const mapping = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
        if (mapping != MAP_FAILED) {
            array->data = (unsigned char *)mapping + begin;
            array->mapping = mapping;
            array->length = length;
            return NULL;
        }
    }
    array->data = malloc(bytes > 0 ? bytes : 1);
    if (array->data == NULL) {
        return NPY_REFUSE("does not fit into memory");
    }
    if (fread(array->data, item, count, file) == count) {
        return NULL;
    }
    npy_free(array);
    return NPY_REFUSE("is cut off");
}

// True is any byte but 0 to NumPy, and 1 alone to C.
static void npy_make_bools(unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (bytes[i] > 1) {
            bytes[i] = 1;
        }
    }
}

// Read an array of a row, in C order. NULL, and the caller frees the array; else why not.
__attribute__((unused)) static const char *npy_read(const char *path, const npy_row *row, npy_array *array) {
    memset(array, 0, sizeof *array);
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        return NPY_REFUSE("cannot be opened: %s", strerror(errno));
    }
    const char *problem = npy_read_header(file, row);
+    const off_t before = npy_parts(row) > 1 ? (off_t)(npy_count(row) * row->item) * npy_rank : 0;
+    if (problem == NULL && before > 0 && fseeko(file, before, SEEK_CUR) != 0) {
+        problem = NPY_REFUSE("the rows of rank %d cannot be read: %s", (int)npy_rank, strerror(errno));
+    }
    problem = problem != NULL ? problem : npy_elements(file, row->item, npy_count(row), array);
    (void)fclose(file);
    if (problem == NULL && strcmp(row->descr, "|b1") == 0) {
        npy_make_bools(array->data, npy_count(row));
    }
    return problem;
}

-// Write an array of a row; NULL, or why that failed.
+// Write an array of a row, or the arrays of all ranks if it is local; NULL, or why that failed.
__attribute__((unused)) static const char *npy_write(const char *path, const npy_row *row, const void *data) {
    char header[NPY_LONGEST_HEADER];
    const int length = (int)npy_describe(header, row);
    const int padded = (10 + length + 1 + 63) / 64 * 64 - 10;  // data starts at a multiple of 64
    const unsigned char head[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)padded,
                                  (unsigned char)(padded >> 8)};
    FILE *const file = fopen(path, "wb");
    if (file == NULL) {
        return NPY_REFUSE("cannot be written: %s", strerror(errno));
    }
+    const size_t count = npy_count(row) * (size_t)npy_parts(row);
    errno = 0;
    const bool is_written = fwrite(head, 1, 10, file) == 10 &&
                            fprintf(file, "%s%*s\n", header, padded - length - 1, "") == padded &&
-                            fwrite(data, row->item, npy_count(row), file) == npy_count(row);
+                            fwrite(data, row->item, count, file) == count;
    if (fclose(file) != 0 || !is_written) {
        return NPY_REFUSE("cannot be written: %s", strerror(errno));
    }
    return NULL;
}
"""


NPY_SIZES = r"""
// The size of an axis if it is known only when the program runs, else NULL.
static npy_size *npy_size_of(const npy_row *row, int axis) {
    return row->shape[axis] < 0 ? &npy_sizes[NPY_SIZE(row->shape[axis])] : NULL;
}

static int64_t npy_extent(const npy_row *row, int axis) {
    const npy_size *const size = npy_size_of(row, axis);
    return size != NULL ? size->value : row->shape[axis];
}

// Find the sizes of a row in the header of a file. Returns NULL, or a message about the first that does not fit.
static const char *npy_take_sizes(const char *header, const npy_row *row) {
    int64_t shape[NPY_MOST_AXES];
    const char *const begin = strstr(header, "'shape': (");
    const char *at = begin == NULL ? "" : begin + strlen("'shape': (");
    for (int axis = 0; axis < row->axes; ++axis) {
        if (*at < '0' || *at > '9') {
            return NULL;  // the whole header is compared later
        }
        char *end;
        shape[axis] = strtoll(at, &end, 10);
        at = end + strspn(end, ", ");
    }
+    if (row->axes > 0 && *at == ')' && npy_parts(row) > 1) {
+        if (shape[0] % npy_parts(row) != 0) {
+            return NPY_REFUSE("%lld ranks cannot share %lld rows evenly", (long long)npy_parts(row),
+                              (long long)shape[0]);
+        }
+        shape[0] /= npy_parts(row);
+    }
    for (int axis = 0; axis < row->axes && *at == ')'; ++axis) {
        npy_size *const size = npy_size_of(row, axis);
        if (size == NULL) {
            continue;
        }
        if (shape[axis] < size->least || shape[axis] > size->most) {
            return NPY_REFUSE("axis %d has %lld elements, `%.200s` must be %lld to %lld", axis, (long long)shape[axis],
                              size->name, (long long)size->least, (long long)size->most);
        }
        if (size->value >= 0 && size->value != shape[axis]) {
            return NPY_REFUSE("axis %d has %lld elements, `%.200s` is %lld by axis %d of `%.100s`", axis,
                              (long long)shape[axis], size->name, (long long)size->value, size->axis, size->array);
        }
        if (size->value < 0) {
            size->value = shape[axis];
            size->array = row->name;
            size->axis = axis;
        }
    }
    return NULL;
}
"""
"""The functions on sizes that are known only when the program runs."""


def npy_header(name: str, parameters: Sequence[Parameter] = ()) -> str:
    """The text of `NAME_npy.h`."""
    guard = f"STAGED_{name.upper()}_NPY_H"
    sizes = Sizes(name, parameters)
    local = any(parameter.is_local for parameter in parameters)
    text = with_lines(with_lines(NPY_TEXT, local, "+-"), bool(sizes.found))
    if sizes.found:
        text = text.replace("\nSIZES\n", f"\n{_table_of(sizes)}{with_lines(NPY_SIZES, local, '+-')}\n\n")
    return (
        "// Generated by staged: reads and writes .npy files, versions 1.0, 2.0 and 3.0 of NumPy's format.\n"
        f"#ifndef {guard}\n#define {guard}\n"
        "#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)\n#define _POSIX_C_SOURCE 200809L\n#endif\n"
        f"{text}\n\n#endif  // {guard}\n"
    )


def _table_of(sizes: Sizes) -> str:
    """The table of the sizes that are not known while staging."""
    w = Writer()
    w.comment("A size that is known when the program runs: a dimension, or an expression over dimensions.")
    with w.block("typedef struct npy_size", " npy_size;"):
        w.line("const char *name;")
        w.line("int64_t least, most;")
        w.line("int64_t value;      // -1: not known yet")
        w.line("const char *array;  // the array whose file has it, and its axis")
        w.line("int axis;")
    w.line()
    with w.block("static npy_size npy_sizes[] =", ";"):
        for extent in sizes.found:
            low, high = bounds_of(extent)
            w.line(f"{{{c_string(str(extent))}, {max(int(low), 0)}, {int(high)}, -1, NULL, 0}},")
    w.line(f"enum {{ NPY_DIMENSIONS = {len(sizes.fields)} }};  // so many of them are dimensions, the first ones")
    w.line("#define NPY_SIZE(number) (-1 - (number))  // in the shape of a row")
    return str(w)


def with_lines(text: str, keeps: bool, marks: str = "@!") -> str:
    """A text with the lines that begin with the first of two marks, or with those that begin with the second."""
    kept, dropped = (marks[0], marks[1]) if keeps else (marks[1], marks[0])
    return "\n".join(line.removeprefix(kept) for line in text.splitlines() if not line.startswith(dropped))
