"""`main.c`: inputs from `.npy` files, numbers from flags, results to `--out FOLDER` as `.npy` files.

Tested by `tests/backends/test_export.py`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import cache

from staged.backends.host.standalone.main_text import ARRAYS, CORES, ENDING, FLAGS, FOLDER
from staged.backends.host.standalone.npy import MOST_AXES
from staged.backends.host.standalone.weights import filed, layout
from staged.base.artifact import Artifact, Parameter
from staged.code.support.library import render
from staged.code.writer import Writer, c_string
from staged.ir.types import DTYPES, INTEGER_DTYPES, shape_text, u64

_HEADERS = "signal stdarg stdio stdlib string sys/stat unistd".split()
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
_LOCALS = frozenset(
    "argc argv args host number numbers threads out folder arena error place places problem weights".split()
)
"""The names that `main` itself declares."""
_AT_THE_TOP = frozenset(
    """allocate array_flag bool_flag finish_output flag flags give_up given input_count inputs integer_flag needed
    npy_array npy_compare npy_elements npy_free npy_header npy_make_bools npy_parse npy_problem npy_read npy_read_from
    npy_read_header npy_skip_spaces npy_take npy_take_extent npy_take_item npy_take_shape npy_take_string npy_take_word
    npy_text npy_write on_interrupt own_folder parse_flags program real_flag show_help stop unsigned_flag usable_cores
    write_result""".split()
)
"""The functions, variables and types of its text."""
_ON_DEVICES = frozenset("check to_device from_device free_on_device".split())
"""Its additional names for arrays on a device."""


@cache
def words_of_main() -> frozenset[str]:
    """The names that `main.c` has beside the program's: no program may be called so."""
    return _LOCALS | _ON_DEVICES | _AT_THE_TOP


def flag_names(artifact: Artifact) -> dict[str, str]:
    """By place in the argument struct: the flag of an input, or the file of a result.
    Labels hold what the user's dictionaries have as keys."""
    names: dict[str, str] = {}
    taken = set(_OWN_FLAGS)
    for parameter in artifact.parameters:
        base = "".join(c if c.isalnum() or c in "._-" else "_" for c in parameter.path)
        if parameter.part == "seed" and "." not in base and "seed" not in taken:
            base = "seed"  # of the default generator
        numbered = (base if not number else f"{base}_{number + 1}" for number in itertools.count())
        names[parameter.place] = name = next(name for name in numbered if name not in taken)
        taken.add(name)
    return names


def results_of(artifact: Artifact) -> list[Parameter]:
    """The outputs of a run: results, Variables that it writes, and the random counter at its end, unless it sets these
    itself.
    """
    return [each for each in artifact.parameters if (not each.is_set_first if each.part else not each.is_constant)]


def flag_rows(artifact: Artifact, many_threads: bool = False) -> Iterator[tuple[str, str]]:
    """(name, what it is) of each flag but --help, as `--help` and the README list them."""
    names = flag_names(artifact)
    for parameter in artifact.parameters:
        if parameter.part and parameter.is_set_first:
            continue
        if parameter.part:
            yield names[parameter.place], f"{_PARTS[parameter.part]} (default {parameter.start})"
        elif parameter.role != "output":
            what = (
                parameter.dtype if parameter.scalar else f"{parameter.dtype} {shape_text(parameter.shape)}, a .npy file"
            )
            if parameter.file:
                what += f" (default: {parameter.file})"
            yield names[parameter.place], what
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
    if filed(artifact):
        w.line(f'#include "{name}_weights.h"')
    w.text(ENDING)
    w.section("flags")
    _write_table(w, artifact, many_threads)
    w.text(FLAGS)
    if halves:
        w.text(conversions)
    w.section("arrays")
    w.text(ARRAYS)
    if filed(artifact):
        w.text(FOLDER)
    if many_threads:
        w.text(CORES)
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
            _write_number(w, parameter, names[parameter.place])
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
            _write_array(w, parameter, names[parameter.place])
    if filed(artifact):
        w.line("void *weights = NULL;")
        w.line(f"const char *const problem = {name}_weights_load(own_folder(), &args, &weights);")
        with w.block("if (problem != NULL)"):
            w.line('give_up(2, "%s", problem);')
    for parameter in artifact.parameters:
        if parameter.device != "cpu":
            field = f"args.{parameter.place}"
            if parameter.role == "output":
                zeros = f"zeros_{parameter.field}"
                w.line(f"void *const {zeros} = {field};")
                w.line(f"{field} = {_on_device('to_device', zeros, parameter)};")
                w.line(f"free({zeros});")
            else:
                w.line(f"{field} = {_on_device('to_device', f'(void *){field}', parameter)};")
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
    w.line(f"{name}_arena_free(arena);")
    for parameter in artifact.parameters:
        if parameter.device != "cpu":
            w.line(f"free_on_device((void *)args.{parameter.place});")
        elif parameter.role == "output":
            w.line(f"free(args.{parameter.place});")
    with w.block("for (int i = 0; i < input_count; ++i)"):
        w.line("npy_free(&inputs[i]);")
    if filed(artifact):
        w.line(f"{name}_weights_free(weights);")
    with w.block("if (error == ST_OK)"):
        w.line("finish_output();")
    w.line("return error == ST_OK ? 0 : error == ST_INTERRUPTED ? 130 : 1;")


def _extents(parameter: Parameter) -> list[int]:
    return [extent for extent in parameter.shape if isinstance(extent, int)]


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
    w.line(f"args.{parameter.place} = {value};")


def _write_generators(w: Writer, artifact: Artifact) -> None:
    """Set the seeds of random numbers: flags, or their defaults."""
    parts = [parameter for parameter in artifact.parameters if parameter.part]
    if not parts:
        return
    names = flag_names(artifact)
    with w.block("int64_t numbers[] =", ";"):
        for parameter in parts:
            label = c_string(names[parameter.place])
            start = "INT64_MIN" if parameter.start == -(2**63) else str(parameter.start)
            if parameter.is_set_first:
                w.line(f"0,  // {parameter.place}: the program sets it")
                continue
            w.line(f"given({label}) == NULL ? {start} : integer_flag({label}, INT64_MIN, INT64_MAX),")
    for number, parameter in enumerate(parts):
        w.line(f"args.{parameter.place} = &numbers[{number}];")


def _write_array(w: Writer, parameter: Parameter, name: str) -> None:
    field = f"args.{parameter.place}"
    if parameter.role == "output":
        w.line(f"{field} = allocate({math.prod(_extents(parameter))} * {DTYPES[parameter.dtype].c_bytes});")
    elif parameter.file:
        with w.block(f"if (given({c_string(name)}) != NULL)"):
            w.line(f"{field} = array_flag({c_string(name)}, {layout(parameter)});")
    else:
        w.line(f"{field} = array_flag({c_string(name)}, {layout(parameter)});")


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
            array = f"args.{parameter.place}"
            call = f"write_result(out, {c_string(names[parameter.place])}, {layout(parameter)}"
            if parameter.device == "cpu":
                w.line(f"{call}, {array});")
                continue
            with w.block(""):
                w.line(f"void *const fetched = {_on_device('from_device', array, parameter)};")
                w.line(f"{call}, fetched);")
                w.line("free(fetched);")
