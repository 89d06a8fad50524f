"""The standalone folder of a program: its text, a `main` that reads `.npy` files and flags, a Makefile, a README."""

from __future__ import annotations

import itertools
import math
import re

from staged.artifact import Artifact, Parameter
from staged.backends.c_family.writer import Writer, c_string
from staged.ir.types import DTYPES, dtype_of, shape_text

CFLAGS = "-std=c11 -O2 -ffp-contract=fast -fno-math-errno -fno-trapping-math -Wall -Wextra"
"""What an exported Makefile passes: plain `-std=c11` would switch fused multiply-add off."""

_NPY = r"""
// ---- .npy files (NumPy's format, versions 1 and 2) ----------------------------------------------

static void die(const char *what, const char *path) {
    fprintf(stderr, "%s: %s\n", path, what);
    exit(2);
}

// Find `'key': value` in the header's dictionary; returns the start of the value.
static const char *header_value(const char *header, const char *key, const char *path) {
    const char *found = strstr(header, key);
    if (found == NULL || (found = strchr(found, ':')) == NULL) {
        die("not a .npy file: its header is incomplete", path);
    }
    for (++found; *found == ' '; ++found) {
    }
    return found;
}

// Read an array that must have this type, shape and order; the caller owns the memory.
__attribute__((unused)) static void *read_npy(const char *path, const char *descr, size_t item, int ndim, const int64_t *shape) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        die("cannot be opened", path);
    }
    unsigned char head[12];
    if (fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY", 6) != 0) {
        die("not a .npy file", path);
    }
    size_t length = head[8] | (size_t)head[9] << 8;
    if (head[6] >= 2) {
        if (fread(head + 10, 1, 2, file) != 2) {
            die("not a .npy file", path);
        }
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    char *header = length < 1 << 20 ? calloc(length + 1, 1) : NULL;
    if (header == NULL || fread(header, 1, length, file) != length) {
        die("not a .npy file: its header is too long or cut off", path);
    }
    const char *type = header_value(header, "'descr'", path);
    if (strncmp(type + 1, descr, strlen(descr)) != 0 || type[1 + strlen(descr)] != type[0]) {
        fprintf(stderr, "%s: expected dtype %s, the header says %.12s\n", path, descr, type);
        exit(2);
    }
    const bool fortran = strncmp(header_value(header, "'fortran_order'", path), "True", 4) == 0;
    if (fortran && ndim > 1) {
        die("is in Fortran order; save it with numpy.ascontiguousarray", path);
    }
    const char *text = header_value(header, "'shape'", path) + 1;
    size_t count = 1;
    for (int axis = 0; axis < ndim; ++axis) {
        char *next = NULL;
        const int64_t extent = strtoll(text, &next, 10);
        if (next == text || extent != shape[axis]) {
            fprintf(stderr, "%s: axis %d must be %lld long, the header says %s\n", path, axis, (long long)shape[axis], header);
            exit(2);
        }
        count *= (size_t)extent;
        for (text = next; *text == ',' || *text == ' '; ++text) {
        }
    }
    if (*text != ')') {
        die("has more axes than expected", path);
    }
    void *data = malloc(count * item + 1);
    if (data == NULL || fread(data, item, count, file) != count) {
        die("is cut off, or does not fit into memory", path);
    }
    free(header);
    fclose(file);
    return data;
}

__attribute__((unused)) static void write_npy(const char *folder, const char *name, const char *descr, size_t item, int ndim,
                      const int64_t *shape, const void *data) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.npy", folder, name) >= (int)sizeof path) {
        die("is too long a path", folder);
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        die("cannot be written", path);
    }
    char header[512];
    int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    size_t count = 1;
    for (int axis = 0; axis < ndim; ++axis) {
        length += snprintf(header + length, sizeof header - (size_t)length, "%lld,", (long long)shape[axis]);
        count *= (size_t)shape[axis];
    }
    length += snprintf(header + length, sizeof header - (size_t)length, "), }");
    const int padded = (10 + length + 1 + 63) / 64 * 64 - 10;  // data starts at a multiple of 64
    unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    head[8] = (unsigned char)(padded & 255);
    head[9] = (unsigned char)(padded >> 8);
    bool written = fwrite(head, 1, 10, file) == 10 && fprintf(file, "%s%*s\n", header, padded - length - 1, "") == padded;
    written = written && fwrite(data, item, count, file) == count;
    if (fclose(file) != 0 || !written) {
        die("cannot be written", path);
    }
}
"""

_FLAGS = r"""
// ---- flags --------------------------------------------------------------------------------------

// The value of `--name value` or `--name=value`; NULL where the flag is not given.
static const char *flag(int argc, char **argv, const char *name) {
    const size_t length = strlen(name);
    for (int i = 1; i < argc; ++i) {
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0) {
            const char *rest = argv[i] + 2 + length;
            if (*rest == '=') {
                return rest + 1;
            }
            if (*rest == '\0' && i + 1 < argc) {
                return argv[i + 1];
            }
        }
    }
    return NULL;
}

static const char *needed(int argc, char **argv, const char *name) {
    const char *value = flag(argc, argv, name);
    if (value == NULL) {
        fprintf(stderr, "%s: --%s is missing; --help lists the flags\n", argv[0], name);
        exit(2);
    }
    return value;
}

__attribute__((unused)) static int64_t integer_flag(int argc, char **argv, const char *name) {
    const char *text = needed(argc, argv, name);
    char *end = NULL;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0') {
        fprintf(stderr, "--%s: expected an integer, got %s\n", name, text);
        exit(2);
    }
    return (int64_t)value;
}

__attribute__((unused)) static double real_flag(int argc, char **argv, const char *name) {
    const char *text = needed(argc, argv, name);
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0') {
        fprintf(stderr, "--%s: expected a number, got %s\n", name, text);
        exit(2);
    }
    return value;
}

static volatile int stop;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    stop = 1;
}

static void *allocate(size_t bytes) {
    // Rounded up: aligned_alloc wants a multiple of the alignment. Zeroed: the program counts on it once.
    const size_t rounded = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, rounded);
    if (memory == NULL) {
        fprintf(stderr, "cannot get %zu bytes of memory\n", rounded);
        exit(2);
    }
    return memset(memory, 0, rounded);
}
"""

_DESCR = {"f32": "<f4", "f64": "<f8", "i32": "<i4", "i64": "<i8", "u8": "|u1", "u32": "<u4", "bool": "|b1"}


_OWN_FLAGS = ("help", "out", "threads", "stack")


def flag_names(artifact: Artifact) -> dict[str, str]:
    """By field: the flag of an input, or the file of a result. Labels hold what the user's dictionaries have as keys."""
    names: dict[str, str] = {}
    taken = set(_OWN_FLAGS)
    for parameter in artifact.parameters:
        base = "".join(c if c.isalnum() or c in "._-" else "_" for c in parameter.label)
        numbered = (base if not number else f"{base}_{number + 1}" for number in itertools.count())
        names[parameter.field] = name = next(name for name in numbered if name not in taken)
        taken.add(name)
    return names


def main_source(artifact: Artifact, device_text: str = "") -> str:
    """`main.c`: inputs from `.npy` files, scalars from flags, results to `--out FOLDER` as `.npy` files.

    `device_text` has the functions that put arrays on a device and fetch them, for programs which take some there.
    """
    w = Writer()
    name = artifact.name
    w.comment(f"Runs `{name}` alone: arrays come from .npy files, numbers from flags. Generated by staged.")
    w.line("#define _POSIX_C_SOURCE 200809L")
    for header in ("signal.h", "stdio.h", "stdlib.h", "string.h", "unistd.h"):
        w.line(f"#include <{header}>")
    w.line()
    w.line(f'#include "{name}.h"')
    w.text(_NPY)
    w.text(_FLAGS)
    if device_text:
        w.text(device_text)
    w.line()
    if artifact.sites:
        w.comment("The Python lines that errors name.")
        with w.block("static const char *const places[] =", ";"):
            for site in artifact.sites:
                place = f"{site.file.rsplit('/', 1)[-1]}, line {site.line}, in {site.function}"
                w.line(f"{c_string(place)},")
        w.line()
    _write_usage(w, artifact)
    w.line()
    with w.block("int main(int argc, char **argv)"):
        with w.block("for (int i = 1; i < argc; ++i)"), w.block('if (strcmp(argv[i], "--help") == 0)'):
            w.line("usage(argv[0]);")
            w.line("return 0;")
        w.line(f"{name}_args args;")
        w.line("memset(&args, 0, sizeof args);")
        names = flag_names(artifact)
        for parameter in artifact.parameters:
            _write_argument(w, parameter, names[parameter.field])
        w.line("st_host host;")
        w.line("memset(&host, 0, sizeof host);")
        w.line("host.stop = &stop;")
        w.line("host.live = isatty(STDOUT_FILENO);  // progress bars: on a terminal only")
        w.line("signal(SIGINT, on_interrupt);")
        if artifact.recursive:
            w.line('host.stack_bytes = flag(argc, argv, "stack") == NULL ? 0 : integer_flag(argc, argv, "stack");')
        if artifact.threads != 1:
            w.line('const char *threads = flag(argc, argv, "threads");')
            w.line(f"host.team = {name}_team_create(threads == NULL ? 1 : atoi(threads));")
        w.line(f"void *arena = allocate({name.upper()}_ARENA_BYTES);")
        w.line(f"const int error = {name}(&args, arena, &host);")
        w.line("fflush(stdout);")
        with w.block("if (error != ST_OK)"):
            if artifact.sites:
                w.line('const char *place = host.error_site < 0 ? "" : places[host.error_site];')
                w.line('fprintf(stderr, "%s%s%s\\n", place, *place ? ": " : "", host.message);')
            else:
                w.line('fprintf(stderr, "%s\\n", host.message);')
        _write_results(w, artifact)
        if artifact.threads != 1:
            w.line(f"{name}_team_destroy(host.team);")
        if artifact.grows:
            w.line(f"{name}_release(arena);")
        w.line("free(arena);")
        for parameter in artifact.parameters:
            if parameter.device != "cpu":
                w.line(f"free_on_device(args.{parameter.field});")
            elif not parameter.scalar:
                w.line(f"free((void *)args.{parameter.field});")
        w.line("return error == ST_OK ? 0 : error == ST_INTERRUPTED ? 130 : 1;")
    return str(w)


def _extents(parameter: Parameter) -> list[int]:
    return [extent for extent in parameter.shape if isinstance(extent, int)]


def _shape_argument(parameter: Parameter) -> str:
    extents = _extents(parameter) or [1]
    return f"(const int64_t[]){{{', '.join(map(str, extents))}}}"


def _write_usage(w: Writer, artifact: Artifact) -> None:
    names = flag_names(artifact)
    with w.block("static void usage(const char *program)"):
        w.line('printf("usage: %s [flags]\\n", program);')
        for parameter in artifact.parameters:
            if parameter.role == "output":
                continue
            what = (
                parameter.dtype if parameter.scalar else f"{parameter.dtype} {shape_text(parameter.shape)}, a .npy file"
            )
            text = f"  --{names[parameter.field]}  {what}\n"
            w.line(f'printf("%s", {c_string(text)});')
        if artifact.threads != 1:
            w.line('printf("%s", "  --threads  how many threads work (default 1)\\n");')
        if artifact.recursive:
            w.line('printf("%s", "  --stack  bytes of the stack that recursion runs on (default 1073741824)\\n");')
        w.line('printf("%s", "  --out  folder for the results, as .npy files (default: none are written)\\n");')


def _write_argument(w: Writer, parameter: Parameter, name: str) -> None:
    dtype = DTYPES[parameter.dtype]
    label = c_string(name)
    field = f"args.{parameter.field}"
    if parameter.scalar:
        if dtype.is_float:
            w.line(f"{field} = ({dtype.c_name})real_flag(argc, argv, {label});")
        elif dtype.is_bool:
            w.line(f"{field} = integer_flag(argc, argv, {label}) != 0;")
        else:
            w.line(f"{field} = ({dtype.c_name})integer_flag(argc, argv, {label});")
    elif parameter.role == "output":
        w.line(f"{field} = allocate({math.prod(_extents(parameter))} * sizeof({dtype.c_name}));")
    else:
        array = (
            f"read_npy(needed(argc, argv, {label}), {c_string(_DESCR[parameter.dtype])}, "
            f"sizeof({dtype.c_name}), {len(parameter.shape)}, {_shape_argument(parameter)})"
        )
        w.line(f"{field} = {array if parameter.device == 'cpu' else _on_device('to_device', array, parameter)};")


def _on_device(function: str, array: str, parameter: Parameter) -> str:
    """A call of the functions that `device_text` has: a device by its number, an array, its bytes."""
    number = next(iter(re.findall(r"\d+", parameter.device)), "0")
    return f"{function}({number}, {array}, {math.prod(_extents(parameter))} * sizeof({DTYPES[parameter.dtype].c_name}))"


def _write_results(w: Writer, artifact: Artifact) -> None:
    written = [parameter for parameter in artifact.parameters if parameter.role != "input"]
    w.line('const char *out = flag(argc, argv, "out");')
    if not written:
        w.line("(void)out;")
        return
    names = flag_names(artifact)
    with w.block("if (out != NULL && error == ST_OK)"):
        for parameter in written:
            dtype = DTYPES[parameter.dtype]
            array = f"args.{parameter.field}"
            if parameter.device != "cpu":
                fetched = f"fetched_{parameter.field}"
                w.line(f"void *const {fetched} = {_on_device('from_device', array, parameter)};")
                array = fetched
            w.line(
                f"write_npy(out, {c_string(names[parameter.field])}, {c_string(_DESCR[parameter.dtype])}, "
                f"sizeof({dtype.c_name}), {len(parameter.shape)}, {_shape_argument(parameter)}, {array});"
            )
            if parameter.device != "cpu":
                w.line(f"free({array});")


def makefile(artifact: Artifact) -> str:
    """Builds with a C compiler alone; `CFLAGS` and `CC` can be given."""
    flags = " ".join([CFLAGS, *artifact.flags])
    link = " ".join(["-lm", "-pthread", *artifact.link])
    return (
        f"# Generated by staged. `make` builds ./{artifact.name}; it needs a C compiler and nothing else.\n"
        f"CFLAGS ?= {flags}\n"
        "# With gcc 12 at -O3 add -fno-tree-vectorize: its vectorisers give wrong numbers there.\n\n"
        f"{artifact.name}: main.c $(wildcard {artifact.name}*.c {artifact.name}*.h)\n"
        f"\t$(CC) $(CFLAGS) main.c {artifact.name}.c -o $@ {link}\n\n"
        ".PHONY: clean\n"
        "clean:\n"
        f"\trm -f {artifact.name}\n"
    )


_BUILT_AS_C = "One C program, generated by `staged`. It needs a C compiler and nothing else.\n\n```sh\nmake\n./{name} --help\n```"


def readme(artifact: Artifact, building: str = _BUILT_AS_C) -> str:
    """How to build and run the folder; `building` says how, with `{name}` for the program's name."""
    names = flag_names(artifact)
    rows = "\n".join(
        f"| `--{names[p.field]}` | {p.dtype} {'number' if p.scalar else shape_text(p.shape) + ' .npy file'} |"
        for p in artifact.parameters
        if p.role != "output"
    )
    results = "\n".join(
        f"| `{names[p.field]}.npy` | {p.dtype} {shape_text(p.shape)} |"
        for p in artifact.parameters
        if p.role != "input"
    )
    return (
        f"# {artifact.name}\n\n"
        f"{building.format(name=artifact.name)}\n\n"
        f"| flag | what |\n|---|---|\n{rows}\n| `--out` | folder for the results |\n\n"
        f"| result | what |\n|---|---|\n{results}\n\n"
        f"`{artifact.name}.h` is the interface for calling it from C or C++: fill `{artifact.name}_args`, give "
        f"`{artifact.name.upper()}_ARENA_BYTES` of zeroed memory aligned to 64 bytes, call `{artifact.name}`.\n"
    )


def export_files(artifact: Artifact) -> dict[str, str]:
    """Every file of the folder, by name."""
    support = {f"{artifact.name}_support.h": artifact.support} if artifact.support else {}
    return {
        f"{artifact.name}.c": artifact.source,
        f"{artifact.name}.h": artifact.header,
        **support,
        "main.c": main_source(artifact),
        "Makefile": makefile(artifact),
        "README.md": readme(artifact),
    }


assert set(_DESCR) == {name for name in DTYPES if dtype_of(name) is not None}
