"""`main.c`: inputs from `.npy` files, numbers from flags, results to `--out FOLDER` as `.npy` files.

Tested by `tests/backends/test_export.py`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import cache

from staged.artifact import Artifact, Parameter
from staged.backends.c_family.standalone.npy import DESCR, MOST_AXES
from staged.backends.c_family.support.library import render
from staged.backends.c_family.writer import Writer, c_string
from staged.ir.types import DTYPES, INTEGER_DTYPES, shape_text, u64

_ENDING = r"""
static const char *program;  // what the user calls it

// Say what is wrong and end: with 2 where the arguments are wrong, with 1 where the system refuses something.
__attribute__((noreturn, format(printf, 2, 3))) static void give_up(int status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)fflush(stdout);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    exit(status);
}

// Text that could not be printed (a full disk, a closed pipe) is an error, too.
static void finish_output(void) {
    const bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0 || failed) {
        give_up(1, "standard output could not be written%s%s", errno == 0 ? "" : ": ",
                errno == 0 ? "" : strerror(errno));
    }
}
"""

_FLAGS = r"""
// Put each flag's value into the table; whether --help is among them.
static bool parse_flags(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0) {
            return true;
        }
        const char *const name = argv[i] + (argv[i][0] == '-' && argv[i][1] == '-' ? 2 : 0);
        if (name == argv[i]) {
            give_up(2, "what is %s? --help lists the flags", argv[i]);
        }
        const size_t length = strcspn(name, "=");
        size_t k = 0;
        while (k < FLAGS && (strlen(flags[k].name) != length || strncmp(flags[k].name, name, length) != 0)) {
            ++k;
        }
        if (k == FLAGS) {
            give_up(2, "there is no flag --%.*s; --help lists the flags", (int)length, name);
        }
        if (flags[k].value != NULL) {
            give_up(2, "--%s is given twice", flags[k].name);
        }
        if (name[length] == '=') {
            flags[k].value = name + length + 1;
        } else if (i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) {
            flags[k].value = argv[++i];
        } else {
            give_up(2, "--%s has no value; one that begins with -- is given as --%s=VALUE", flags[k].name,
                    flags[k].name);
        }
    }
    return false;
}

static void show_help(void) {
    printf("usage: %s [flags]\n", program);
    for (size_t k = 0; k < FLAGS; ++k) {
        printf("  --%s  %s\n", flags[k].name, flags[k].what);
    }
}

// The value of a flag; NULL where it is not given.
static const char *given(const char *name) {
    size_t k = 0;
    while (strcmp(flags[k].name, name) != 0) {
        ++k;
    }
    return flags[k].value;
}

__attribute__((unused)) static const char *needed(const char *name) {
    const char *const value = given(name);
    if (value == NULL) {
        give_up(2, "--%s is missing; --help lists the flags", name);
    }
    return value;
}

__attribute__((unused)) static int64_t integer_flag(const char *name, int64_t least, int64_t most) {
    const char *const text = needed(name);
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || text[strspn(text, "+-0123456789")] != '\0') {
        give_up(2, "--%s: expected an integer, got %s", name, text);
    }
    if (errno == ERANGE || value < least || value > most) {
        give_up(2, "--%s: %s is not between %lld and %lld", name, text, (long long)least, (long long)most);
    }
    return (int64_t)value;
}

// A number that may be beyond INT64_MAX.
__attribute__((unused)) static uint64_t unsigned_flag(const char *name, uint64_t least, uint64_t most) {
    const char *const text = needed(name);
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || text[strspn(text, "+-0123456789")] != '\0') {
        give_up(2, "--%s: expected an integer, got %s", name, text);
    }
    if (errno == ERANGE || (value != 0 && strchr(text, '-') != NULL) || value < least || value > most) {
        give_up(2, "--%s: %s is not between %llu and %llu", name, text, (unsigned long long)least,
                (unsigned long long)most);
    }
    return (uint64_t)value;
}

__attribute__((unused)) static bool bool_flag(const char *name) {
    const char *const text = needed(name);
    const bool is_true = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "0") != 0 && strcmp(text, "false") != 0) {
        give_up(2, "--%s: expected 0, 1, false or true, got %s", name, text);
    }
    return is_true;
}

// A number, inf or nan, whose size is at most `most`.
__attribute__((unused)) static double real_flag(const char *name, double most) {
    const char *const text = needed(name);
    char *end = NULL;
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || text[strspn(text, "+-.0123456789eEinftyaINFTYA")] != '\0') {
        give_up(2, "--%s: expected a number, got %s", name, text);
    }
    const double size = value < 0.0 ? -value : value;
    if (size > most && (errno == ERANGE || size <= DBL_MAX)) {
        give_up(2, "--%s: %s is larger than any number of its type", name, text);
    }
    return value;
}
"""

_ARRAYS = r"""
__attribute__((unused)) static void *array_flag(const char *name, const char *descr, size_t item, int axes,
        const int64_t *shape) {
    const char *const path = needed(name);
    void *data = NULL;
    const char *const problem = npy_read(path, descr, item, axes, shape, &data);
    if (problem != NULL) {
        give_up(2, "--%s: %s: %s", name, path, problem);
    }
    return data;
}

__attribute__((unused)) static void write_result(const char *folder, const char *name, const char *descr, size_t item,
        int axes,
                                                 const int64_t *shape, const void *data) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.npy", folder, name) >= (int)sizeof path) {
        give_up(1, "--out: %s is too long a path", folder);
    }
    const char *const problem = npy_write(path, descr, item, axes, shape, data);
    if (problem != NULL) {
        give_up(1, "%s: %s", path, problem);
    }
}

static volatile int stop;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    stop = 1;
}

__attribute__((unused)) static void *allocate(size_t bytes) {
    // Rounded up: aligned_alloc wants a multiple of the alignment. Zeroed: the program counts on it once.
    const size_t rounded = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, rounded);
    if (memory == NULL) {
        give_up(1, "cannot get %zu bytes of memory", rounded);
    }
    return memset(memory, 0, rounded);
}
"""

_HEADERS = "signal stdarg stdio stdlib string sys/stat unistd".split()
_CORES = r"""
// How many threads can work at once: the processor cores that this process may use.
static int usable_cores(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        count = CPU_COUNT(&cores);
    }
#endif
    return count < 1 ? 1 : (int)count;
}
"""
_OWN_FLAGS = ("help", "out", "threads", "stack")
_BOUNDS = {
    dtype.name: f"INT{8 * dtype.size}_MIN, INT{8 * dtype.size}_MAX"
    if dtype.kind == "i"
    else f"0, UINT{8 * dtype.size}_MAX"
    for dtype in INTEGER_DTYPES
}
_MOST = {
    "f16": "0x1.ffdffffffffffp15", "bf16": "0x1.fefffffffffffp127", "f32": "0x1.fffffefffffffp127", "f64": "DBL_MAX",
}  # fmt: skip
"""The largest doubles that round to a number of the type: 3.4028235e38, as it is printed, is beyond FLT_MAX."""


_PARTS = {
    "seed": "an integer, which says what random numbers are drawn",
    "counter": "how often numbers were drawn before, to go on from there",
}
_LOCALS = frozenset("argc argv args host number numbers threads out folder arena error place places".split())
"""The names that `main` itself declares."""
_AT_THE_TOP = frozenset(
    """allocate array_flag bool_flag finish_output flag flags give_up given integer_flag needed npy_compare npy_header
    npy_parse npy_problem npy_read npy_read_from npy_read_header npy_skip_spaces npy_take npy_take_extent npy_take_item
    npy_take_shape npy_take_string npy_take_word npy_text npy_write on_interrupt parse_flags program real_flag show_help
    stop unsigned_flag usable_cores write_result""".split()
)
"""The functions, variables and types of its text."""
_ON_DEVICES = frozenset("check to_device from_device free_on_device".split())
"""Its additional names for arrays on a device."""


@cache
def words_of_main() -> frozenset[str]:
    """The names that `main.c` has beside the program's: no program may be called so."""
    return _LOCALS | _ON_DEVICES | _AT_THE_TOP


def flag_names(artifact: Artifact) -> dict[str, str]:
    """By field: the flag of an input, or the file of a result.
    Labels hold what the user's dictionaries have as keys."""
    names: dict[str, str] = {}
    taken = set(_OWN_FLAGS)
    for parameter in artifact.parameters:
        base = "".join(c if c.isalnum() or c in "._-" else "_" for c in parameter.label)
        if parameter.part == "seed" and "." not in base and "seed" not in taken:
            base = "seed"  # of the default generator
        numbered = (base if not number else f"{base}_{number + 1}" for number in itertools.count())
        names[parameter.field] = name = next(name for name in numbered if name not in taken)
        taken.add(name)
    return names


def results_of(artifact: Artifact) -> list[Parameter]:
    """The outputs of a run: results, Variables, and the random counter at its end, unless it sets these itself."""
    return [each for each in artifact.parameters if each.role != "input" and not (each.part and each.is_set_first)]


def flag_rows(artifact: Artifact, many_threads: bool = False) -> Iterator[tuple[str, str]]:
    """(name, what it is) of each flag but --help, as `--help` and the README list them."""
    names = flag_names(artifact)
    for parameter in artifact.parameters:
        if parameter.part and parameter.is_set_first:
            continue
        if parameter.part:
            yield names[parameter.field], f"{_PARTS[parameter.part]} (default {parameter.start})"
        elif parameter.role != "output":
            what = (
                parameter.dtype if parameter.scalar else f"{parameter.dtype} {shape_text(parameter.shape)}, a .npy file"
            )
            yield names[parameter.field], what
    if artifact.threads != 1:
        yield "threads", f"how many threads work (default {'one per core' if many_threads else '1'})"
    if artifact.recursive:
        yield "stack", "bytes of the stack that recursion runs on (default 1073741824)"
    yield "out", "folder for the results, as .npy files (default: none are written)"


def main_source(artifact: Artifact, device_text: str = "", many_threads: bool = False) -> str:
    """The text of `main.c`.

    `device_text` has the functions that put arrays on a device and fetch them, for programs which take some there.
    `many_threads` says that it runs on all cores if it is not told otherwise.
    """
    assert all(len(parameter.shape) <= MOST_AXES for parameter in artifact.parameters)
    w = Writer()
    name = artifact.name
    w.comment(f"Runs `{name}` alone: arrays come from .npy files, numbers from flags. Generated by staged.")
    many_threads = many_threads and artifact.threads != 1
    w.line("#define _GNU_SOURCE" if many_threads else "#define _POSIX_C_SOURCE 200809L")
    halves = {p.dtype for p in artifact.parameters if p.scalar and p.role == "input" and DTYPES[p.dtype].is_half}
    _, conversions = render(f"{half}_from_f64" for half in halves)
    headers = ["errno", "fcntl", "float", *(["sched"] if many_threads else []), *_HEADERS]
    for header in sorted({*headers, "math", "string"}) if halves else headers:
        w.line(f"#include <{header}.h>")
    w.line()
    w.line(f'#include "{name}.h"')
    w.line(f'#include "{name}_npy.h"')
    w.text(_ENDING)
    w.section("flags")
    _write_table(w, artifact, many_threads)
    w.text(_FLAGS)
    if halves:
        w.text(conversions)
    w.section("arrays")
    w.text(_ARRAYS)
    if many_threads:
        w.text(_CORES)
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
    with w.block("int main(int argc, char **argv)"):
        _write_main(w, artifact, "usable_cores()" if many_threads else "1")
    return str(w)


def _write_table(w: Writer, artifact: Artifact, many_threads: bool) -> None:
    w.line()
    with w.block("static struct flag", " flags[] = {"):
        w.line("const char *name;")
        w.line("const char *what;")
        w.line("const char *value;  // NULL until it is given")
    for flag, what in flag_rows(artifact, many_threads):
        w.line(f"    {{{c_string(flag)}, {c_string(what)}, NULL}},")
    w.line("};")
    w.line("enum { FLAGS = sizeof flags / sizeof flags[0] };")


def _write_main(w: Writer, artifact: Artifact, threads: str) -> None:
    name = artifact.name
    names = flag_names(artifact)
    w.line(f'program = argc > 0 ? argv[0] : "{name}";')
    w.comment("Where standard streams are closed, no file that is opened later may take their place.")
    w.line("int number;")
    with w.block("do", " while (number >= 0 && number <= STDERR_FILENO);"):
        w.line('number = open("/dev/null", O_RDONLY);')
    with w.block("if (number >= 0)"):
        w.line("(void)close(number);")
    with w.block("if (parse_flags(argc, argv))"):
        w.line("show_help();")
        w.line("finish_output();")
        w.line("return 0;")
    w.line(f"{name}_args args;")
    w.line("memset(&args, 0, sizeof args);")
    w.line("st_host host;")
    w.line("memset(&host, 0, sizeof host);")
    w.line("host.stop = &stop;")
    w.line("host.live = isatty(STDOUT_FILENO);  // progress bars: on a terminal only")
    for parameter in artifact.parameters:
        if parameter.scalar:
            _write_number(w, parameter, names[parameter.field])
    _write_generators(w, artifact)
    if artifact.recursive:
        w.line('host.stack_bytes = given("stack") == NULL ? 0 : integer_flag("stack", 1, INT64_MAX);')
    if artifact.threads != 1:
        w.line(
            f'const int threads = given("threads") == NULL ? {threads} : (int)integer_flag("threads", 1, INT32_MAX);'
        )
    w.line('const char *const out = given("out");')
    w.line("struct stat folder;")
    with w.block(
        "if (out != NULL && (stat(out, &folder) != 0 || !S_ISDIR(folder.st_mode) || access(out, W_OK | X_OK) != 0))"
    ):
        w.line('give_up(1, "--out: %s is no folder that can be written", out);')
    for parameter in artifact.parameters:
        if not parameter.scalar and not parameter.part:
            _write_array(w, parameter, names[parameter.field])
    w.line("signal(SIGINT, on_interrupt);")
    if artifact.threads != 1:
        w.line(f"host.team = {name}_team_create(threads);")
    w.line(f"void *const arena = {name}_arena_create();")
    with w.block("if (arena == NULL)"):
        w.line(f'give_up(1, "cannot get %zu bytes of memory", {name}_arena_bytes());')
    w.line(f"const int error = {name}(&args, arena, &host);")
    w.line("(void)fflush(stdout);")
    with w.block("if (error != ST_OK)"):
        if artifact.sites:
            w.line('const char *const place = host.error_site < 0 ? "" : places[host.error_site];')
            w.line('fprintf(stderr, "%s%s%s\\n", place, *place ? ": " : "", host.message);')
        else:
            w.line('fprintf(stderr, "%s\\n", host.message);')
    _write_results(w, artifact)
    if artifact.threads != 1:
        w.line(f"{name}_team_destroy(host.team);")
    if artifact.grows:
        w.line(f"{name}_release(arena);")
    w.line(f"{name}_arena_free(arena);")
    for parameter in artifact.parameters:
        if parameter.device != "cpu":
            w.line(f"free_on_device((void *)args.{parameter.field});")
        elif not parameter.scalar and not parameter.part:
            w.line(f"free((void *)args.{parameter.field});")
    with w.block("if (error == ST_OK)"):
        w.line("finish_output();")
    w.line("return error == ST_OK ? 0 : error == ST_INTERRUPTED ? 130 : 1;")


def _extents(parameter: Parameter) -> list[int]:
    return [extent for extent in parameter.shape if isinstance(extent, int)]


def _layout(parameter: Parameter) -> str:
    """The arguments of the functions for .npy files: dtype, bytes of an element, axes, shape."""
    extents = ", ".join(map(str, _extents(parameter) or [1]))
    dtype = DTYPES[parameter.dtype]
    return (
        f"{c_string(DESCR[parameter.dtype])}, {dtype.c_bytes}, {len(parameter.shape)}, (const int64_t[]){{{extents}}}"
    )


def _write_number(w: Writer, parameter: Parameter, name: str) -> None:
    dtype = DTYPES[parameter.dtype]
    label = c_string(name)
    if dtype.is_bool:
        value = f"bool_flag({label})"
    elif dtype.is_float:
        number = f"real_flag({label}, {_MOST[parameter.dtype]})"
        value = f"st_{dtype}_from_f64({number})" if dtype.is_half else f"({dtype.c_name}){number}"
    else:
        function = "unsigned_flag" if dtype is u64 else "integer_flag"
        value = f"({dtype.c_name}){function}({label}, {_BOUNDS[parameter.dtype]})"
    w.line(f"args.{parameter.field} = {value};")


def _write_generators(w: Writer, artifact: Artifact) -> None:
    """Set the seeds of random numbers: flags, or their defaults."""
    parts = [parameter for parameter in artifact.parameters if parameter.part]
    if not parts:
        return
    names = flag_names(artifact)
    with w.block("int64_t numbers[] =", ";"):
        for parameter in parts:
            label = c_string(names[parameter.field])
            start = "INT64_MIN" if parameter.start == -(2**63) else str(parameter.start)
            if parameter.is_set_first:
                w.line(f"0,  // {parameter.field}: the program sets it")
                continue
            w.line(f"given({label}) == NULL ? {start} : integer_flag({label}, INT64_MIN, INT64_MAX),")
    for number, parameter in enumerate(parts):
        w.line(f"args.{parameter.field} = &numbers[{number}];")


def _write_array(w: Writer, parameter: Parameter, name: str) -> None:
    field = f"args.{parameter.field}"
    if parameter.role == "output":
        w.line(f"{field} = allocate({math.prod(_extents(parameter))} * {DTYPES[parameter.dtype].c_bytes});")
        return
    array = f"array_flag({c_string(name)}, {_layout(parameter)})"
    w.line(f"{field} = {array if parameter.device == 'cpu' else _on_device('to_device', array, parameter)};")


def _on_device(function: str, array: str, parameter: Parameter) -> str:
    """A call of the functions that `device_text` has: a device by its number, an array, its bytes."""
    number = next(iter(re.findall(r"\d+", parameter.device)), "0")
    return f"{function}({number}, {array}, {math.prod(_extents(parameter))} * {DTYPES[parameter.dtype].c_bytes})"


def _write_results(w: Writer, artifact: Artifact) -> None:
    written = results_of(artifact)
    if not written:
        return
    names = flag_names(artifact)
    with w.block("if (out != NULL && error == ST_OK)"):
        for parameter in written:
            array = f"args.{parameter.field}"
            if parameter.device != "cpu":
                fetched = f"fetched_{parameter.field}"
                w.line(f"void *const {fetched} = {_on_device('from_device', array, parameter)};")
                array = fetched
            w.line(f"write_result(out, {c_string(names[parameter.field])}, {_layout(parameter)}, {array});")
            if parameter.device != "cpu":
                w.line(f"free({array});")
