"""`NAME_arrays.h`: the table of the arrays of a program, with a row for each, or for those of equal layers.

Tested by `tests/backends/test_export.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from staged.backends.host.interface import common_ends
from staged.backends.host.parameter_sizes import Sizes
from staged.backends.host.standalone.npy import MOST_AXES
from staged.base.artifact import Artifact, Parameter
from staged.code.writer import LONGEST, Writer, c_string
from staged.ir.types import DTYPES

WEIGHTS = "weights.safetensors"
"""The file of an exported folder that has the Variables."""

OWN_FLAGS = ("help", "out", "threads", "stack")
_LONGEST_NAME = 400
"""Bytes of a name of one of several layers: the buffer of `npy_name` has room for it."""


@dataclass(frozen=True)
class Row:
    """An array, or the arrays of equal layers, whose names differ in the number of the layer."""

    parameters: Sequence[Parameter]
    """Those of a row are numbered from 0."""
    flag: str
    """The name of its flag and of the file with its result; `*` is the number of the layer."""

    @property
    def first(self) -> Parameter:
        """The array, or that of the first layer."""
        return self.parameters[0]

    @property
    def is_of_layers(self) -> bool:
        """True for the arrays of several layers."""
        return len(self.parameters) > 1

    @property
    def path(self) -> str:
        """The name in the file of weights."""
        return self.flag if self.is_of_layers else self.first.path

    @property
    def place(self) -> str:
        """The place in the argument struct: `h[*].ln_1_weight`."""
        return re.sub(r"\[\d+\]", "[*]", self.first.place) if self.is_of_layers else self.first.place

    @property
    def layers(self) -> str:
        """The range of the numbers of the layers."""
        return f" (* is 0 to {len(self.parameters) - 1})" if self.is_of_layers else ""


def flag_names(artifact: Artifact) -> dict[str, str]:
    """By place in the argument struct: the flag of an input, or the file of a result.
    Labels hold what the user's dictionaries have as keys."""
    names: dict[str, str] = {}
    taken = set(OWN_FLAGS)
    for parameter in artifact.parameters:
        base = "".join(c if c.isalnum() or c in "._-" else "_" for c in parameter.path)
        if parameter.part == "seed" and "." not in base and "seed" not in taken:
            base = "seed"  # of the default generator
        numbered = (base if not number else f"{base}_{number + 1}" for number in itertools.count())
        names[parameter.place] = name = next(name for name in numbered if name not in taken)
        taken.add(name)
    return names


def is_written(parameter: Parameter) -> bool:
    """True for what a run yields: results, Variables that it writes, and the random counter at its end, unless it sets
    these itself.
    """
    return not parameter.is_set_first if parameter.is_of_generator else not parameter.is_constant


def rows_of(artifact: Artifact) -> list[Row]:
    """The rows of a program's parameters, in the order of their first arrays; numbers have rows, too."""
    names = flag_names(artifact)
    families: dict[tuple[str, str, str], list[Parameter]] = {}
    for each in artifact.parameters:
        families.setdefault((each.array, each.field, "" if each.index is not None else each.place), []).append(each)
    rows = []
    for family in families.values():
        name = _common_name(family, names)
        rows += [Row(family, name)] if name else [Row((each,), names[each.place]) for each in family]
    return rows


def _common_name(family: Sequence[Parameter], names: dict[str, str]) -> str:
    """The name of the arrays of all layers, with `*` for the number; empty if they cannot share a row."""
    first = family[0]
    if first.index is None or len(family) == 1 or first.device != "cpu" or len(first.path) > _LONGEST_NAME:
        return ""
    before, after = common_ends([each.path for each in family])
    for number, each in enumerate(family):
        same = replace(each, index=0, label=first.label, key=first.key, start=first.start)
        if each.index != number or each.path != names[each.place] or same != first:
            return ""
        if each.path != f"{before}{number}{after}" or "*" in each.path:
            return ""
    return f"{before}*{after}"


def arrays_of(artifact: Artifact) -> list[Row]:
    """The rows of the table: those of arrays, without the state of random numbers that the program sets itself."""
    rows = (row for row in rows_of(artifact) if not row.first.scalar)
    return [row for row in rows if is_written(row.first) or not row.first.part]


def arrays_header(artifact: Artifact) -> str:
    """The text of `NAME_arrays.h`."""
    assert all(len(parameter.shape) <= MOST_AXES for parameter in artifact.parameters)
    name, rows = artifact.name, arrays_of(artifact)
    sizes = Sizes(name, artifact.parameters)
    w = Writer()
    w.comment(f"Generated by staged: the arrays of `{name}_args`. Those of equal layers have one row.")
    with w.guard(f"STAGED_{name.upper()}_ARRAYS_H"):
        w.line(f'#include "{name}.h"')
        w.line(f'#include "{name}_npy.h"')
        w.line()
        for dtype in dict.fromkeys(row.first.dtype for row in rows):
            w.line(f"#define ST_{dtype.upper()} {_words(dtype)}")
        if any(not row.is_of_layers for row in rows):
            w.line(f"#define ST_FIELD(field) offsetof({name}_args, field), 0, 1, -1")
        if any(row.first.device != "cpu" for row in rows):
            w.line(f"#define ST_ON_DEVICE(field, device) offsetof({name}_args, field), 0, 1, device")
        if any(row.is_of_layers for row in rows):
            first, second = (f"offsetof({name}_args, layers[{number}] field)" for number in (0, 1))
            w.line("#define ST_LAYERS(layers, field, count) \\")
            w.line(f"    {first}, \\")
            w.line(f"    {second} - {first}, count, -1")
        for ending, word in _ENDINGS.items():
            if any(_ending(row) == word for row in rows):
                w.line(f"#define {word} {ending}")
        w.line()
        with w.block("static const npy_row st_rows[] =", ";"):
            for row in rows:
                _write_row(w, row, sizes)
            w.line("{0},")
        w.line(f"enum {{ ST_ARRAYS = {sum(len(row.parameters) for row in rows)} }};")
        w.line()
    return str(w)


_ENDINGS = {
    "NPY_INPUT, NULL, NULL": "ST_INPUT",
    "NPY_OUTPUT, NULL, NULL": "ST_OUTPUT",
    f"NPY_INPUT, {c_string(WEIGHTS)}, NULL": "ST_CONSTANT",
    f"NPY_STATE, {c_string(WEIGHTS)}, NULL": "ST_STATE",
}
"""Macros for the role of an array, the file that has it, and its name there."""


def _ending(row: Row) -> str:
    first = row.first
    role = "OUTPUT" if first.part or first.role == "output" else "STATE" if is_written(first) else "INPUT"
    role += " | NPY_LOCAL" if first.is_local else ""
    file = c_string(first.file) if first.file else "NULL"
    key = c_string(row.path) if first.file == WEIGHTS and row.flag != row.path else "NULL"
    ending = f"NPY_{role}, {file}, {key}"
    return _ENDINGS.get(ending, ending)


def _write_row(w: Writer, row: Row, sizes: Sizes) -> None:
    first = row.first
    numbers = [str(e) if isinstance(e, int) else f"NPY_SIZE({sizes.found.index(e)})" for e in sizes.shape(first)]
    extents = ", ".join(numbers) or "0"
    if row.is_of_layers:
        member = f".{first.field}" if first.array else ""
        place = f"ST_LAYERS({first.entry}, {member}, {len(row.parameters)})"
    elif first.device == "cpu":
        place = f"ST_FIELD({first.place})"
    else:
        place = f"ST_ON_DEVICE({first.place}, {(re.findall(r'[0-9]+', first.device) or ['0'])[0]})"
    head = f"{{{c_string(row.flag)}, ST_{first.dtype.upper()}, {len(first.shape)}, {{{extents}}},"
    tail = f"{place}, {_ending(row)}}},"
    if len(head) + len(tail) + 5 <= LONGEST:
        w.line(f"{head} {tail}")
    else:
        w.line(head)
        w.line(f" {tail}")


def _words(name: str) -> str:
    """The names of a dtype in messages, in .npy files and in a file of weights, and the bytes of an element."""
    dtype = DTYPES[name]
    part = {"c64": "f32", "c128": "f64"}.get(name, name)
    return f"{c_string(name)}, {c_string(dtype.numpy.str)}, {c_string(part.upper())}, {dtype.c_bytes}"
