"""`NAME_weights.c`: reads the Variables and captured arrays of an exported program from the files of its folder.

Tested by `tests/test_exported_state.py`.
"""

from __future__ import annotations

from staged.backends.host.constants import real, write_array
from staged.backends.host.standalone.arrays import WEIGHTS
from staged.backends.host.standalone.npy import with_lines
from staged.base.artifact import Artifact, Parameter
from staged.code.writer import Names, Writer, c_string
from staged.ir.types import dtype_of, shape_text

_READER = r"""
// ---- the safetensors format ---------------------------------------------------------------------
// The length of a header (u64, little-endian), the header (JSON), and the elements of the arrays.

typedef struct st_json {
    const char *at;
    const char *end;
} st_json;

static void st_skip_spaces(st_json *text) {
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\t' || *text->at == '\n')) {
        ++text->at;
    }
}

// Take the character `c`, and spaces in front of it; whether it was there.
static bool st_take(st_json *text, char c) {
    st_skip_spaces(text);
    if (text->at == text->end || *text->at != c) {
        return false;
    }
    ++text->at;
    return true;
}

// A size: digits without a leading zero.
static bool st_take_extent(st_json *text, int64_t *extent) {
    st_skip_spaces(text);
    const char *const first = text->at;
    int64_t value = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; ++text->at) {
        const int digit = *text->at - '0';
        if (value > (INT64_MAX - digit) / 10) {
            return false;
        }
        value = 10 * value + digit;
    }
    *extent = value;
    return text->at > first && (*first != '0' || text->at == first + 1);
}

static int st_hex_digits(st_json *text) {
    int value = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = text->at < text->end ? *text->at++ : '\0';
        const char *const digits = "0123456789abcdef";
        const char *const found = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
        if (found == NULL) {
            return -1;
        }
        value = 16 * value + (int)(found - digits);
    }
    return value;
}

// A JSON string as UTF-8, which needs fewer bytes than the JSON text.
static bool st_take_string(st_json *text, char *to) {
    if (!st_take(text, '"')) {
        return false;
    }
    while (text->at < text->end && *text->at != '"') {
        if (*text->at != '\\') {
            *to++ = *text->at++;
            continue;
        }
        if (text->end - ++text->at < 1) {
            return false;
        }
        const char c = *text->at++;
        // Pairs of an escape and its character.
        const char *const simple = strchr("\"\"\\\\//b\bf\fn\nr\rt\t", c);
        if (c != 'u') {
            if (simple == NULL || c == '\0') {
                return false;
            }
            *to++ = simple[1];
            continue;
        }
        int code = st_hex_digits(text);
        if (code >= 0xd800 && code < 0xdc00 && text->end - text->at > 2 && text->at[0] == '\\' && text->at[1] == 'u') {
            text->at += 2;
            const int low = st_hex_digits(text);
            code = low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        if (code <= 0 || (code >= 0xd800 && code < 0xe000)) {
            return false;
        }
        const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        *to++ = (char)(more == 0 ? code : (0xff00 >> (more + 1) & 0xff) | code >> 6 * more);
        for (int i = more - 1; i >= 0; --i) {
            *to++ = (char)(0x80 | (code >> 6 * i & 0x3f));
        }
    }
    *to = '\0';
    return st_take(text, '"');
}

// A list of sizes; how many there are, -1 for anything else.
static int st_take_sizes(st_json *text, int64_t *sizes, int most) {
    int count = 0;
    if (!st_take(text, '[')) {
        return -1;
    }
    while (!st_take(text, ']')) {
        if (count == most || (count > 0 && !st_take(text, ',')) || !st_take_extent(text, &sizes[count])) {
            return -1;
        }
        ++count;
    }
    return count;
}

// The strings under `__metadata__`.
static bool st_skip_texts(st_json *text, char *buffer) {
    if (!st_take(text, '{')) {
        return false;
    }
    for (bool is_first = true; !st_take(text, '}'); is_first = false) {
        if ((!is_first && !st_take(text, ',')) || !st_take_string(text, buffer) || !st_take(text, ':') ||
            !st_take_string(text, buffer)) {
            return false;
        }
    }
    return true;
}

// One array of the header. Its place is entered if the program has it.
static const char *st_take_array(st_json *text, char *buffer, st_memory *memory, const unsigned char *data,
                                 size_t bytes) {
    const int number = npy_find(st_rows, buffer, true);
    const npy_item item = npy_item_at(st_rows, number < 0 ? 0 : number);
    char dtype[16] = "";
    int64_t shape[NPY_MOST_AXES], places[2] = {0, 0};
    int axes = 0;
    bool is_good = st_take(text, '{');
    for (bool is_first = true; is_good && !st_take(text, '}'); is_first = false) {
        is_good = (is_first || st_take(text, ',')) && st_take_string(text, buffer) && st_take(text, ':');
        if (is_good && strcmp(buffer, "dtype") == 0) {
            is_good = st_take_string(text, buffer) && strlen(buffer) < sizeof dtype;
            memcpy(dtype, buffer, is_good ? strlen(buffer) + 1 : 0);
        } else if (is_good && strcmp(buffer, "shape") == 0) {
            axes = st_take_sizes(text, shape, NPY_MOST_AXES);
            is_good = axes >= 0;
        } else {
            is_good = is_good && strcmp(buffer, "data_offsets") == 0 && st_take_sizes(text, places, 2) == 2;
        }
    }
    if (!is_good) {
        return NPY_REFUSE("is not a safetensors file: its header is damaged");
    }
    if (number < 0 || !st_is_weight(item.row)) {
        return NULL;
    }
    if (strcmp(dtype, item.row->word) != 0) {
        return NPY_REFUSE("`%s` must be %s, the file has %s", st_key(item), item.row->word, dtype);
    }
    // Complex numbers have a last axis of their two parts.
    bool is_same = item.row->dtype[0] == 'c' ? axes > 0 && shape[--axes] == 2 : true;
    is_same = is_same && axes == item.row->axes;
    for (int axis = 0; is_same && axis < axes; ++axis) {
        is_same = shape[axis] == item.row->shape[axis];
    }
    if (!is_same) {
        return NPY_REFUSE("`%s` has another shape in the file", st_key(item));
    }
    const size_t size = npy_count(item.row) * item.row->item;
    if (places[0] > places[1] || (size_t)places[1] > bytes || (size_t)(places[1] - places[0]) != size) {
        return NPY_REFUSE("is cut off, or the offsets of `%s` are wrong", st_key(item));
    }
    memory->found[number] = data + places[0];
    return NULL;
}

static const char *st_take_header(st_memory *memory, size_t bytes) {
    const unsigned char *const start = memory->file.data;
    size_t length = 0;
    for (int i = 7; i >= 0; --i) {
        length = length << 8 | (bytes < 8 ? 0 : start[i]);
    }
    char *const buffer = bytes >= 8 && length <= bytes - 8 ? malloc(length + 1) : NULL;
    if (buffer == NULL) {
        return NPY_REFUSE("is not a safetensors file, or it is cut off");
    }
    st_json text = {(const char *)start + 8, (const char *)start + 8 + length};
    const char *problem = NULL;
    bool is_good = st_take(&text, '{');
    for (bool is_first = true; problem == NULL && is_good && !st_take(&text, '}'); is_first = false) {
        is_good = (is_first || st_take(&text, ',')) && st_take_string(&text, buffer) && st_take(&text, ':');
        if (is_good && strcmp(buffer, "__metadata__") == 0) {
            is_good = st_skip_texts(&text, buffer);
        } else if (is_good) {
            problem = st_take_array(&text, buffer, memory, start + 8 + length, bytes - 8 - length);
        }
    }
    free(buffer);
    return problem != NULL || is_good ? problem : NPY_REFUSE("is not a safetensors file: its header is damaged");
}

// Finds the arrays of the table in a file.
static const char *st_read_weights(const char *path, st_memory *memory) {
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        return NPY_REFUSE("cannot be opened: %s", strerror(errno));
    }
    size_t bytes = 0;
    const char *problem = NULL;
    if (fseeko(file, 0, SEEK_END) != 0 || ftello(file) < 0) {
        problem = NPY_REFUSE("cannot be read: %s", strerror(errno));
    } else {
        bytes = (size_t)ftello(file);
        rewind(file);
        problem = npy_elements(file, 1, bytes, &memory->file);
    }
    (void)fclose(file);
    if (problem == NULL) {
        problem = st_take_header(memory, bytes);
    }
    for (int number = 0; problem == NULL && number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if (st_is_weight(item.row) && memory->found[number] == NULL) {
            problem = NPY_REFUSE("does not have `%s`", st_key(item));
        }
    }
    return problem;
}

// The elements of an array. They are copied if they are not aligned in the file; bools are 0 or 1.
static void *st_elements(st_memory *memory, int number) {
    const npy_row *const row = npy_item_at(st_rows, number).row;
    const size_t size = npy_count(row) * row->item;
    unsigned char *const file = memory->file.data;
    unsigned char *data = file + (memory->found[number] - file);
    if ((size_t)data % (row->dtype[0] == 'c' ? row->item / 2 : row->item) != 0) {
        data = malloc(size + 1);
        if (data == NULL) {
            return NULL;
        }
        memcpy(data, memory->found[number], size);
        memory->arrays[number].data = data;
    }
    if (strcmp(row->word, "BOOL") == 0) {
        npy_make_bools(data, size);
    }
    return data;
}
"""


def filed(artifact: Artifact) -> list[Parameter]:
    """The parameters whose elements are in a file of the folder."""
    return [parameter for parameter in artifact.parameters if parameter.file]


def weights_files(artifact: Artifact) -> dict[str, str]:
    """`NAME_weights.h` and `NAME_weights.c`; nothing for a program without such arrays."""
    name = artifact.name
    if not filed(artifact):
        return {}
    return {f"{name}_weights.h": weights_header(artifact), f"{name}_weights.c": _source(artifact)}


def weights_header(artifact: Artifact) -> str:
    """The declarations of `NAME_weights.c`."""
    name = artifact.name
    w = Writer()
    w.comment(f"Generated by staged: the arrays that `{name}` had in Python, from files.")
    with w.guard(f"STAGED_{name.upper()}_WEIGHTS_H"):
        w.line(f'#include "{name}.h"')
        w.line()
        w.line("#ifdef __cplusplus")
        w.line('extern "C" {')
        w.line("#endif")
        w.line()
        w.comment(
            f"Sets the fields of `args` that are NULL and have a file in {name}_arrays.h, from the files in `folder`."
        )
        w.comment("Returns NULL, or a message. Free the memory after the last call of the program.")
        w.line(f"const char *{name}_weights_load(const char *folder, {name}_args *args, void **memory);")
        w.line(f"void {name}_weights_free(void *memory);")
        w.line()
        w.line("#ifdef __cplusplus")
        w.line("}")
        w.line("#endif")
    return str(w)


def weights_in_c(artifact: Artifact) -> str:
    """`NAME_weights.h`: the arrays that the function had in Python, for programs without files."""
    w, names = Writer(), names_in_c(artifact)
    w.comment(f"Generated by staged: the arrays that `{artifact.name}` had in Python. Include this in one file.")
    with w.guard(f"STAGED_{artifact.name.upper()}_WEIGHTS_H"):
        for header in ("math.h", "stdbool.h", "stdint.h"):
            w.line(f"#include <{header}>")
        for parameter in filed(artifact):
            array = real(artifact.values[parameter.place])
            dtype = dtype_of(array.dtype)
            assert dtype is not None, f"an array of {array.dtype}"
            w.line()
            w.comment(f"`{parameter.path}`: {parameter.dtype} {shape_text(parameter.shape)}")
            const = "const " if parameter.is_constant else ""
            write_array(w, f"static {const}{dtype.c_name} {names[parameter.place]}", array, dtype)
    return str(w)


def names_in_c(artifact: Artifact) -> dict[str, str]:
    """By place in the argument struct: the array of `NAME_weights.h` that has the elements."""
    names = Names()
    return {parameter.place: f"{artifact.name}_{names.fresh(parameter.place)}" for parameter in filed(artifact)}


_MEMORY = r"""
typedef struct st_memory {
    npy_array arrays[ST_ARRAYS];  // from .npy files, and copies
@    npy_array file;
@    const unsigned char *found[ST_ARRAYS];  // the elements in the file of weights
} st_memory;
"""
_KEYS = r"""
static bool st_is_weight(const npy_row *row) {
    return row->file != NULL && strcmp(row->file, ST_FILE) == 0;
}

// The name of an array in the file of weights.
static const char *st_key(npy_item item) {
    return item.row->key != NULL ? item.row->key : npy_name(item);
}
"""
_LOAD = r"""
void NAME_weights_free(void *memory) {
    st_memory *const all = memory;
    for (int number = 0; all != NULL && number < ST_ARRAYS; ++number) {
        npy_free(&all->arrays[number]);
    }
@    if (all != NULL) {
@        npy_free(&all->file);
@    }
    free(all);
}

// The problem with a file of the folder, in `npy_problem`.
static const char *st_problem(const char *path, const char *problem) {
    char text[sizeof npy_problem];
    (void)snprintf(text, sizeof text, "%s", problem);
    return NPY_REFUSE("%.200s: %.300s", path, text);
}

static const char *st_load(const char *folder, NAME_args *args, st_memory *memory) {
    char path[4096];
@    bool is_whole = true;
    for (int number = 0; number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if (item.row->file == NULL || npy_get(args, item) != NULL) {
            continue;
        }
@        if (st_is_weight(item.row)) {
@            is_whole = false;
@            continue;
@        }
        if (snprintf(path, sizeof path, "%s/%s", folder, item.row->file) >= (int)sizeof path) {
            return NPY_REFUSE("%.200s...: is too long a path", folder);
        }
        const char *const problem = npy_read(path, item.row, &memory->arrays[number]);
        if (problem != NULL) {
            return st_problem(path, problem);
        }
        npy_set(args, item, memory->arrays[number].data);
    }
@    if (is_whole) {
@        return NULL;
@    }
@    if (snprintf(path, sizeof path, "%s/%s", folder, ST_FILE) >= (int)sizeof path) {
@        return NPY_REFUSE("%.200s...: is too long a path", folder);
@    }
@    const char *const problem = st_read_weights(path, memory);
@    if (problem != NULL) {
@        return st_problem(path, problem);
@    }
@    for (int number = 0; number < ST_ARRAYS; ++number) {
@        const npy_item item = npy_item_at(st_rows, number);
@        if (st_is_weight(item.row) && npy_get(args, item) == NULL) {
@            void *const data = st_elements(memory, number);
@            if (data == NULL) {
@                return NPY_REFUSE("`%s` does not fit into memory", st_key(item));
@            }
@            npy_set(args, item, data);
@        }
@    }
    return NULL;
}

const char *NAME_weights_load(const char *folder, NAME_args *args, void **memory) {
    *memory = calloc(1, sizeof(st_memory));
    if (*memory == NULL) {
        return "the weights do not fit into memory";
    }
    return st_load(folder, args, *memory);
}
"""


def _source(artifact: Artifact) -> str:
    name = artifact.name
    has_weights = any(parameter.file == WEIGHTS for parameter in filed(artifact))
    w = Writer()
    w.comment(f"Generated by staged: reads the arrays that `{name}` had in Python. See {name}_weights.h.")
    w.line("#define _POSIX_C_SOURCE 200809L")
    w.line(f'#include "{name}_arrays.h"')
    w.line(f'#include "{name}_weights.h"')
    if has_weights:
        w.line()
        w.line(f"#define ST_FILE {c_string(WEIGHTS)}")
    for text in (_MEMORY, *((_KEYS, _READER) if has_weights else ()), _LOAD):
        w.text(with_lines(text, has_weights).replace("NAME", name))
    return str(w)
