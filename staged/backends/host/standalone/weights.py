"""`NAME_weights.c`: reads the Variables and captured arrays of an exported program from the files of its folder.

Tested by `tests/test_exported_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.host.constants import real, write_array
from staged.backends.host.standalone.npy import DESCR
from staged.base.artifact import Artifact, Parameter
from staged.code.writer import Names, Writer, c_string
from staged.ir.types import DTYPES, dtype_of, shape_text

WEIGHTS = "weights.safetensors"
"""The file of an exported folder that has the Variables."""

_READER = r"""
// ---- the safetensors format ---------------------------------------------------------------------
// The length of a header (u64, little-endian), the header (JSON), and the elements of the arrays.

typedef struct st_row {
    const char *name;
    const char *dtype;
    size_t item;  // bytes of an element
    int axes;
    const int64_t *shape;
    const unsigned char *data;  // its elements in the file; NULL: the file does not have it
} st_row;

typedef struct st_memory {
    npy_array file;
    npy_array arrays[ST_ARRAYS];
    int count;
} st_memory;

static int st_hex_digits(npy_text *text) {
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
static bool st_take_string(npy_text *text, char *to) {
    if (!npy_take(text, '"')) {
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
    return npy_take(text, '"');
}

// A list of sizes; how many there are, -1 for anything else.
static int st_take_sizes(npy_text *text, int64_t *sizes, int most) {
    int count = 0;
    if (!npy_take(text, '[')) {
        return -1;
    }
    while (!npy_take(text, ']')) {
        if (count == most || (count > 0 && !npy_take(text, ',')) || !npy_take_extent(text, &sizes[count])) {
            return -1;
        }
        ++count;
    }
    return count;
}

// The strings under `__metadata__`.
static bool st_skip_texts(npy_text *text, char *buffer) {
    if (!npy_take(text, '{')) {
        return false;
    }
    for (bool is_first = true; !npy_take(text, '}'); is_first = false) {
        if ((!is_first && !npy_take(text, ',')) || !st_take_string(text, buffer) || !npy_take(text, ':') ||
            !st_take_string(text, buffer)) {
            return false;
        }
    }
    return true;
}

// One array of the header. It is entered in its row of the table, if it has one.
static const char *st_take_array(npy_text *text, char *buffer, st_row *rows, int count, const unsigned char *data,
                              size_t bytes) {
    st_row *row = NULL;
    for (int i = 0; i < count; ++i) {
        row = strcmp(rows[i].name, buffer) == 0 ? &rows[i] : row;
    }
    char dtype[16] = "";
    int64_t shape[NPY_MOST_AXES], places[2] = {0, 0};
    int axes = 0;
    bool is_good = npy_take(text, '{');
    for (bool is_first = true; is_good && !npy_take(text, '}'); is_first = false) {
        is_good = (is_first || npy_take(text, ',')) && st_take_string(text, buffer) && npy_take(text, ':');
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
    if (row == NULL) {
        return NULL;
    }
    if (strcmp(dtype, row->dtype) != 0) {
        return NPY_REFUSE("`%s` must be %s, the file has %s", row->name, row->dtype, dtype);
    }
    bool is_same = axes == row->axes;
    size_t size = row->item;
    for (int axis = 0; is_same && axis < axes; ++axis) {
        is_same = shape[axis] == row->shape[axis];
        size *= (size_t)shape[axis];
    }
    if (!is_same) {
        return NPY_REFUSE("`%s` has another shape in the file", row->name);
    }
    if (places[0] > places[1] || (size_t)places[1] > bytes || (size_t)(places[1] - places[0]) != size) {
        return NPY_REFUSE("is cut off, or the offsets of `%s` are wrong", row->name);
    }
    row->data = data + places[0];
    return NULL;
}

static const char *st_take_header(const npy_array *file, size_t bytes, st_row *rows, int count) {
    const unsigned char *const start = file->data;
    size_t length = 0;
    for (int i = 7; i >= 0; --i) {
        length = length << 8 | (bytes < 8 ? 0 : start[i]);
    }
    char *const buffer = bytes >= 8 && length <= bytes - 8 ? malloc(length + 1) : NULL;
    if (buffer == NULL) {
        return NPY_REFUSE("is not a safetensors file, or it is cut off");
    }
    npy_text text = {(const char *)start + 8, (const char *)start + 8 + length};
    const char *problem = NULL;
    bool is_good = npy_take(&text, '{');
    for (bool is_first = true; problem == NULL && is_good && !npy_take(&text, '}'); is_first = false) {
        is_good = (is_first || npy_take(&text, ',')) && st_take_string(&text, buffer) && npy_take(&text, ':');
        if (is_good && strcmp(buffer, "__metadata__") == 0) {
            is_good = st_skip_texts(&text, buffer);
        } else if (is_good) {
            problem = st_take_array(&text, buffer, rows, count, start + 8 + length, bytes - 8 - length);
        }
    }
    free(buffer);
    return problem != NULL || is_good ? problem : NPY_REFUSE("is not a safetensors file: its header is damaged");
}

// Reads the arrays of the table from a file.
static const char *st_read_weights(const char *path, st_row *rows, int count, st_memory *memory) {
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
        problem = st_take_header(&memory->file, bytes, rows, count);
    }
    for (int i = 0; problem == NULL && i < count; ++i) {
        if (rows[i].data == NULL) {
            problem = NPY_REFUSE("does not have `%s`", rows[i].name);
        }
    }
    return problem;
}

// The elements of a row. They are copied if they are not aligned in the file; bools are 0 or 1.
static void *st_elements_of(const st_row *row, st_memory *memory) {
    size_t size = row->item;
    for (int axis = 0; axis < row->axes; ++axis) {
        size *= (size_t)row->shape[axis];
    }
    unsigned char *data = (unsigned char *)memory->file.data + (row->data - (unsigned char *)memory->file.data);
    if ((size_t)data % row->item != 0) {
        data = malloc(size + 1);
        if (data == NULL) {
            return NULL;
        }
        memcpy(data, row->data, size);
        memory->arrays[memory->count++].data = data;
    }
    if (strcmp(row->dtype, "BOOL") == 0) {
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
        w.comment("Sets these fields of `args` from the files in `folder`, if they are NULL:")
        for parameter in filed(artifact):
            entry = f"`{parameter.path}` in " if parameter.file == WEIGHTS else ""
            w.comment(f"  {parameter.place}: {entry}{parameter.file}")
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


def word_of(parameter: Parameter) -> str:
    """The format's name for the dtype of an array; complex numbers are pairs of floats."""
    parts = {"c64": "f32", "c128": "f64"}
    return parts.get(parameter.dtype, parameter.dtype).upper()


def shape_in_file(parameter: Parameter) -> tuple[int, ...]:
    """The shape of an array in the file; complex numbers have a last axis of 2."""
    extents = [extent for extent in parameter.shape if isinstance(extent, int)]
    return (*extents, 2) if DTYPES[parameter.dtype].is_complex else tuple(extents)


def _source(artifact: Artifact) -> str:
    name = artifact.name
    rows = filed(artifact)
    weights = [parameter for parameter in rows if parameter.file == WEIGHTS]
    w = Writer()
    w.comment(f"Generated by staged: reads the arrays that `{name}` had in Python. See {name}_weights.h.")
    w.line("#define _POSIX_C_SOURCE 200809L")
    w.line(f'#include "{name}_npy.h"')
    w.line(f'#include "{name}_weights.h"')
    w.line()
    w.line(f"enum {{ ST_ARRAYS = {len(rows)} }};")
    if weights:
        w.text(_READER)
    else:
        w.text("\ntypedef struct st_memory {\n    npy_array arrays[ST_ARRAYS];\n    int count;\n} st_memory;\n")
    w.line()
    with w.block(f"void {name}_weights_free(void *memory)"):
        w.line("st_memory *const all = memory;")
        with w.block("for (int i = 0; all != NULL && i < all->count; ++i)"):
            w.line("npy_free(&all->arrays[i]);")
        if weights:
            with w.block("if (all != NULL)"):
                w.line("npy_free(&all->file);")
        w.line("free(all);")
    w.line()
    _write_load(w, name, rows, weights)
    return str(w)


def _write_load(w: Writer, name: str, rows: Sequence[Parameter], weights: Sequence[Parameter]) -> None:
    with w.block(f"static const char *st_load(const char *folder, {name}_args *args, st_memory *memory)"):
        w.line("char path[4096];")
        w.line("const char *problem = NULL;")
        for parameter in rows:
            if parameter.file != WEIGHTS:
                with w.block(f"if (args->{parameter.place} == NULL)"):
                    _write_path(w, parameter.file)
                    w.line("void *data = NULL;")
                    w.line(f"problem = npy_read(path, {layout(parameter)}, &memory->arrays[memory->count]);")
                    _write_problem(w)
                    w.line("data = memory->arrays[memory->count++].data;")
                    w.line(f"args->{parameter.place} = data;")
        if weights:
            nulls = " && ".join(f"args->{parameter.place} != NULL" for parameter in weights)
            with w.block(f"if ({nulls})"):
                w.line("return NULL;")
            _write_path(w, WEIGHTS)
            with w.block("st_row rows[] =", ";"):
                for parameter in weights:
                    extents = ", ".join(map(str, shape_in_file(parameter) or (1,)))
                    dtype = DTYPES[parameter.dtype]
                    item = dtype.size // 2 if dtype.is_complex else dtype.size
                    w.line(
                        f"{{{c_string(parameter.path)}, {c_string(word_of(parameter))}, {item}, "
                        f"{len(shape_in_file(parameter))}, (const int64_t[]){{{extents}}}, NULL}},"
                    )
            w.line(f"problem = st_read_weights(path, rows, {len(weights)}, memory);")
            _write_problem(w)
            for number, parameter in enumerate(weights):
                with w.block(f"if (args->{parameter.place} == NULL)"):
                    w.line(f"args->{parameter.place} = st_elements_of(&rows[{number}], memory);")
                    with w.block(f"if (args->{parameter.place} == NULL)"):
                        w.line(f'return NPY_REFUSE("`%s` does not fit into memory", rows[{number}].name);')
        w.line("return problem;")
    w.line()
    with w.block(f"const char *{name}_weights_load(const char *folder, {name}_args *args, void **memory)"):
        w.line("*memory = calloc(1, sizeof(st_memory));")
        with w.block("if (*memory == NULL)"):
            w.line('return "the weights do not fit into memory";')
        w.line("return st_load(folder, args, *memory);")


def _write_path(w: Writer, file: str) -> None:
    with w.block(f'if (snprintf(path, sizeof path, "%s/%s", folder, {c_string(file)}) >= (int)sizeof path)'):
        w.line('return NPY_REFUSE("%.200s...: is too long a path", folder);')


def _write_problem(w: Writer) -> None:
    with w.block("if (problem != NULL)"):
        w.line("char text[sizeof npy_problem];")
        w.line('(void)snprintf(text, sizeof text, "%s", problem);')
        w.line('return NPY_REFUSE("%.200s: %.300s", path, text);')


def layout(parameter: Parameter) -> str:
    """The arguments of the functions for .npy files: dtype, bytes of an element, axes, shape."""
    extents = ", ".join(map(str, [extent for extent in parameter.shape if isinstance(extent, int)] or [1]))
    dtype = DTYPES[parameter.dtype]
    return (
        f"{c_string(DESCR[parameter.dtype])}, {dtype.c_bytes}, {len(parameter.shape)}, (const int64_t[]){{{extents}}}"
    )
