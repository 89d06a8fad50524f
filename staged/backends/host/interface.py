"""The interface of a program for C and C++: its header, and the fields of its argument struct.

Tested by `tests/backends/native/test_export_interface.py` and `tests/backends/host/test_names.py`.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from staged.backends.host.argument_fields import ArgumentField
from staged.backends.host.parameter_sizes import Sizes
from staged.base.artifact import Parameter, Role, event_fields, in_struct_order
from staged.code.common_names import common_words
from staged.code.support.host import HOST_DECLARATIONS
from staged.code.support.ranks import MPI_INCLUDE, communicator_declarations
from staged.code.support.team import team_declarations
from staged.code.writer import LONGEST, Names, Writer, safe_comment, wrapped
from staged.ir.functions import every_function
from staged.ir.nodes import Exported, Function, Op, VariableRef, walk_op, walk_ops
from staged.ir.sizes import Dim, largest
from staged.ir.storage import structural_blocks
from staged.ir.structure import VARIABLE_READ, VARIABLE_WRITE
from staged.ir.trips import constant_of
from staged.ir.types import COMPLEX_OF, CPU, DTYPES, Device, TensorType, shape_text


def make_parameter(
    field: ArgumentField,
    label: str,
    type: TensorType,
    role: Role,
    scalar: bool,
    device: Device = CPU,
    written: bool = False,
    part: str = "",
    is_set_first: bool = False,
    key: str = "",
    dim: Dim | None = None,
) -> Parameter:
    """A parameter, in its field of the argument struct. It may be the value of a `dim`.

    A result's size below 0 is passed as 0; a check stops the program.
    """
    least = (0,) if role == "output" else ()
    shape = tuple([extent if isinstance(extent, int) else str(largest(extent, *least)) for extent in type.shape])
    dtype: Any = type.dtype.name
    is_size = dim is not None and dim.name == label
    return Parameter(
        *(field.field, label, dtype, shape, role, scalar, str(device), written, "size" if is_size else part, 0),
        is_set_first=is_set_first,
        key=key,
        most=(dim.max or 0) if dim is not None and is_size else 0,
        least=dim.least if dim is not None and is_size else 0,
        index=field.index,
        array=field.array,
    )


def as_complex(parameter: Parameter) -> Parameter:
    """A parameter whose floats, along a last axis of 2, are complex numbers for the caller."""
    dtype: Any = COMPLEX_OF[DTYPES[parameter.dtype]].name
    return replace(parameter, dtype=dtype, shape=parameter.shape[:-1])


def written_variables(program: Function) -> set[VariableRef]:
    """The Variables that a program may write, in the functions that it calls too."""
    written = {
        op.attrs["variable"]
        for function in every_function(program)
        for op in walk_ops(function.block)
        if op.declared is VARIABLE_WRITE
    }
    for variable in program.variables:
        if not written.isdisjoint((variable, *variable.members)):
            written.update(variable.members)  # the caller has one array of pointers to them
    return written


def variables_set_first(program: Function) -> set[VariableRef]:
    """The Variables that a program writes in any case before it looks at what they held."""
    first: dict[VariableRef, bool] = {}
    for op in program.block.ops:
        for inner in walk_op(op):
            for effect in inner.effects:
                touched = () if effect.target is None else _touched(inner, effect.target)
                is_write = op.declared is VARIABLE_WRITE and len(touched) == 1
                for variable in touched:
                    first.setdefault(variable, is_write)
    return {variable for variable, is_write in first.items() if is_write}


def _touched(op: Op, variable: VariableRef) -> tuple[VariableRef, ...]:
    """The Variables that an effect on one may be on: of a family, the members with the number of the op."""
    if not variable.members:
        return (variable,)
    is_access = op.declared in (VARIABLE_READ, VARIABLE_WRITE) and op.operands
    number = constant_of(op.operands[-1]) if is_access else None
    return variable.members if number is None else (variable.members[int(number)],)


def variable_parameter(
    function: Function,
    variable: VariableRef,
    field: ArgumentField,
    written: Collection[VariableRef],
    set_first: Collection[VariableRef],
) -> Parameter:
    """The field of a Variable from outside of the program, which may be among those `written` and `set_first`."""
    key = function.exported.keys.get(variable, "") if function.exported is not None else ""
    facts = variable.device, variable in written, variable.part, variable in set_first, key
    made = make_parameter(field, variable.name, variable.type, "variable", False, *facts)
    made = replace(made, is_local=variable.local)
    return as_complex(made) if variable.is_complex else made


def result_tensors(function: Function) -> list[TensorType]:
    """The types of what a program returns."""
    for block in structural_blocks(function.block):
        if block.end.kind == "return":
            return [operand.tensor for operand in block.end.operands]
    return []


@dataclass(frozen=True)
class Group:
    """Arrays that follow one another and belong to one thing of the user's: `model.0.weight`, `model.0.bias`."""

    root: str
    type: str
    member: str
    begin: int
    end: int


@dataclass
class Entry:
    """An entry of the argument struct: a parameter, or an array for the parameters of equal layers."""

    parameters: list[Parameter] = field(default_factory=list)
    """Those of a layer follow one another."""

    @property
    def name(self) -> str:
        """The name in the struct."""
        return self.parameters[0].entry

    @property
    def fields(self) -> list[list[Parameter]]:
        """By field of a layer: the parameters of all layers."""
        found: dict[str, list[Parameter]] = {}
        for each in self.parameters:
            found.setdefault(each.field, []).append(each)
        return list(found.values())


def struct_entries(parameters: Sequence[Parameter]) -> list[Entry]:
    """The entries of the argument struct, in its order."""
    return [Entry(list(run)) for _, run in itertools.groupby(in_struct_order(parameters), lambda each: each.entry)]


def alike(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """By name of an array of structs: the entries that have the same struct, with arrays of the same shapes."""
    found: dict[object, list[Entry]] = {}
    for entry in entries:
        if entry.parameters[0].array:
            key = tuple((_row(layers)[0], layers[0].shape) for layers in entry.fields)
            found.setdefault(key, []).append(entry)
    return {entry.name: group for group in found.values() for entry in group}


def own_names(name: str) -> set[str]:
    """The names that the header declares besides the structs of parameters, which no other name may equal."""
    words = "args release team_create team_destroy args_bytes host_bytes arena_bytes arena_create arena_free".split()
    words += ["explain", "set_communicator", "set_communicator_f"]
    return {name, *(f"{name}_{word}" for word in words)}


def _root(entry: Entry) -> tuple[str, Role, bool, str]:
    first = entry.parameters[0]
    return first.label.split(".")[0], first.role, first.scalar, first.device


def entry_groups(name: str, entries: Sequence[Entry], types: Names) -> list[Group]:
    """The groups of a program's parameters, in their order; `types` are the names of structs so far."""
    fields = Names()
    fields.used.update(entry.name for entry in entries)
    groups: list[Group] = []
    begin = 0
    for key, run in itertools.groupby(entries, _root):
        length = len(list(run))
        if length > 1 and not key[2]:
            member = fields.fresh(key[0])
            groups.append(Group(key[0], types.fresh(f"{name}_{member}"), member, begin, begin + length))
        begin += length
    return groups


def size_macros(name: str, parameters: Sequence[Parameter]) -> dict[str, str]:
    """By place: the macro for the number of elements of an array, except Variables. The arrays of one field of a
    struct have one macro.
    """
    groups = alike(struct_entries(parameters))
    macros: dict[tuple[str, str], str] = {}

    def key_of(parameter: Parameter) -> tuple[str, str]:
        return groups[parameter.array][0].name if parameter.array else "", parameter.field

    arrays = [each for each in parameters if not each.scalar and each.role != "variable"]
    for key in map(key_of, arrays):
        if key not in macros:
            base = "_".join(part.strip("_") for part in (name, *key) if part).upper()
            numbered = (base if count == 1 else f"{base}_{count}" for count in itertools.count(1))
            macros[key] = next(f"{each}_SIZE" for each in numbered if f"{each}_SIZE" not in macros.values())
    return {each.place: macros[key_of(each)] for each in arrays}


def _write_dimensions(w: Writer, sizes: Sizes, relations: Sequence[str]) -> None:
    w.comment(f"The bounds of dimensions. The caller sets each dimension in `{sizes.name}_args`, up to its bound.")
    for dim, macro in sizes.macros.items():
        w.line(f"#define {macro} {dim.max}")
    if relations:
        w.comment("The program checks these relations, and stops with an error if one does not hold:")
        for relation in relations:
            w.comment(f"    {safe_comment(relation)}")
    w.line()


def _write_sizes(w: Writer, sizes: Sizes) -> None:
    macros = size_macros(sizes.name, sizes.parameters)
    if not macros:
        return
    arrays = [parameter for parameter in sizes.parameters if parameter.place in macros]
    pairs = any(DTYPES[parameter.dtype].is_complex for parameter in arrays)
    sized = ", given its dimensions" if sizes.fields else ""
    w.comment(f"The number of elements of each argument and result{sized}{', two for a complex number' * pairs}.")
    for macro, (given, size) in {macros[each.place]: _count_macro(sizes, each) for each in arrays}.items():
        line = f"#define {macro}{given} {size}"
        w.text(line if len(line) <= LONGEST else f"#define {macro}{given}\n    {wrapped(size)}".replace("\n", " \\\n"))
    w.line()


def _count_macro(sizes: Sizes, array: Parameter) -> tuple[str, str]:
    """The parameters and the value of the macro for the number of elements."""
    dims = sizes.dims_of(array)
    if not dims:
        return "", str(element_count(array))
    factors = [sizes.factor(extent) for extent in sizes.shape(array) if not isinstance(extent, int)]
    rest = element_count(array)
    product = " * ".join([*factors, *([str(rest)] if rest != 1 else [])])
    return f"({', '.join(sizes.fields[dim].field for dim in dims)})", f"({product})"


def element_count(array: Parameter) -> int:
    """The number of elements of an array, two for a complex number: of one with dimensions, where these are 1."""
    extents = [extent for extent in array.shape if isinstance(extent, int)]
    return math.prod(extents) * (2 if DTYPES[array.dtype].is_complex else 1)


def _row(layers: Sequence[Parameter]) -> tuple[str, str]:
    """The declaration of a field, and its note. It is an array for all layers if no struct is around it."""
    first = layers[0]
    c_type = DTYPES[first.dtype].c_name
    declaration = (
        f"{c_type} {first.field}" if first.scalar else f"{'const ' if first.is_constant else ''}{c_type} *{first.field}"
    )
    if first.index is not None and not first.array:
        declaration += f"[{len(layers)}]"
    if first.is_size:
        return f"{declaration};", f"{first.span}  dimension  {first.label}"
    kind = f"{first.dtype} " if DTYPES[first.dtype].is_complex else ""
    note = f"{kind}{shape_text(first.shape)}  {first.role}  {_paths([each.path for each in layers])}"
    if first.device != "cpu":
        note += f"  on {first.device}"
    if first.alignment > 1:
        note += f" at a multiple of {first.alignment} bytes"
    return f"{declaration};", note


def _paths(paths: Sequence[str]) -> str:
    """The names of the arrays of several layers: `blocks.*.norm.weight`, or the first and the last."""
    if len(paths) == 1:
        return paths[0]
    before, after = common_ends(paths)
    return f"{before}*{after}" if after else f"{paths[0]} to {paths[-1]}"


def common_ends(paths: Sequence[str]) -> tuple[str, str]:
    """The common beginning and end of all paths, around the number of the layer."""
    before = os.path.commonprefix(list(paths)).rstrip("0123456789")
    after = os.path.commonprefix([path[len(before) :][::-1] for path in paths])[::-1]
    dot = after.find(".")
    return before, after[dot:] if dot >= 0 else ""


def layer_types(name: str, entries: Sequence[Entry], types: Names) -> dict[str, str]:
    """By array of structs: the type of a layer. Layers with equal fields are of one type."""
    equal: dict[tuple[str, ...], list[str]] = {}
    structs = {entry.name for entry in entries if entry.parameters[0].index is None}
    for entry in entries:
        if entry.parameters[0].array:
            equal.setdefault(tuple(_row(layers)[0] for layers in entry.fields), []).append(entry.name)
    found = {}
    for arrays in equal.values():
        common = "_".join(common_words(arrays)) or arrays[0]
        suffix = "" if len(arrays) > 1 and (common.endswith("layer") or arrays[0] in structs) else "_layer"
        type = types.fresh(f"{name}_{common}{suffix}")
        found.update(dict.fromkeys(arrays, type))
    return found


def _write_layer(w: Writer, entries: Sequence[Entry], type: str) -> None:
    """The struct of one layer of arrays of structs."""
    rows = [_row(layers) for layers in entries[0].fields]
    width = max(len(declaration) for declaration, _ in rows)
    *others, last = (f"`{entry.name}`" for entry in entries)
    w.comment(f"The arrays of one layer of {' and '.join([', '.join(others), last] if others else [last])}.")
    with w.block(f"typedef struct {type}", f" {type};"):
        for declaration, note in rows:
            w.line(f"{declaration:<{width}}  // {safe_comment(note)}")
    w.line()


def library_declarations(name: str) -> str:
    """The declarations of NAME_library.c, for callers in other languages or without macros."""
    return f"""\
// What `{name}_library.c` adds: the sizes of the structs for languages that do not read this header, and working
// memory.
size_t {name}_args_bytes(void);
size_t {name}_host_bytes(void);
size_t {name}_arena_bytes(void);
void *{name}_arena_create(void);  // aligned and zeroed; NULL where there is no memory
void {name}_arena_free(void *arena);

// Working memory without an allocator: `{name.upper()}_STATIC_ARENA(memory);` outside of functions makes an array for
// `arena`.
#ifdef __cplusplus
#define {name.upper()}_STATIC_ARENA(memory) alignas(64) static unsigned char memory[{name.upper()}_ARENA_BYTES + 1]
#else
#define {name.upper()}_STATIC_ARENA(memory) static _Alignas(64) unsigned char memory[{name.upper()}_ARENA_BYTES + 1]
#endif
"""


def arena_declaration(name: str) -> str:
    """The declaration of working memory in C99, whose arrays have only the alignment of their elements."""
    return f"""\
// Working memory: `{name.upper()}_STATIC_ARENA(memory);` outside of functions makes an array for `arena`.
#define {name.upper()}_STATIC_ARENA(memory) static int64_t memory[{name.upper()}_ARENA_BYTES / 8 + 1]
"""


def in_field_order(parameters: list[Parameter], function: Function) -> list[Parameter]:
    """The parameters in the order of the fields: in an exported program, results of a dict are in its order."""
    if function.exported is None:
        return parameters
    begin = len(parameters) - len(function.exported.result_order)
    return [*parameters[:begin], *(parameters[begin + number] for number in function.exported.result_order)]


ORDER = (
    "The order of the fields: arguments (those of a dict by sorted keys), arrays from outside, Variables, results",
    "(those of a dict in its order). Equal layers are one array, at the place of its first Variable.",
)
"""The order of the fields of an exported program."""


def header_text(
    name: str,
    parameters: Sequence[Parameter],
    arena_bytes: int,
    release_comment: str | None,
    parallel: bool,
    taken: Collection[str] = (),
    is_iso_c: bool = False,
    departs: bool = False,
    explains: bool = False,
    exported: Exported | None = None,
    layers: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The header of the program `name`; `release_comment` is about `NAME_release`, None where there is none. A program
    that `departs` has fields for events, and `NAME_explain` if it `explains` reports. `layers`: see `layer_types`.
    """
    w = Writer()
    w.comment(f"Generated by staged: the interface of `{name}`.")
    with w.guard(f"STAGED_{name.upper()}_H"):
        w.line("#include <stdbool.h>")
        w.line("#include <stddef.h>")
        w.line("#include <stdint.h>")
        has_ranks = exported is not None and exported.has_ranks
        if has_ranks:
            w.text(MPI_INCLUDE)
        w.line()
        w.line("#ifdef __cplusplus")
        w.line('extern "C" {')
        w.line("#endif")
        w.line()
        w.text(HOST_DECLARATIONS)
        w.line()
        w.comment(
            "Bytes of working memory that a call needs, aligned to 64. Zero it once; calls may then share it in turn."
        )
        w.line(f"#define {name.upper()}_ARENA_BYTES ((size_t){arena_bytes})")
        w.line()
        sizes = Sizes(name, parameters)
        if sizes.fields:
            _write_dimensions(w, sizes, exported.relations if exported is not None else ())
        _write_sizes(w, sizes)
        entries, types = struct_entries(parameters), Names()
        types.used.update(own_names(name), taken)
        for type in dict.fromkeys(layers.values()):
            _write_layer(w, [entry for entry in entries if layers.get(entry.name) == type], type)
        rows = []
        for entry in entries:
            if entry.parameters[0].array:
                first = entry.fields[0]
                if first[0].index is None:
                    path = os.path.commonprefix([each.path for each in entry.parameters])
                    rows.append((f"{layers[entry.name]} {entry.name};", path.rpartition(".")[0]))
                    continue
                after = common_ends([each.path for each in first])[1]
                ends = (each.path.removesuffix(after) for each in (first[0], first[-1]))
                rows.append((f"{layers[entry.name]} {entry.name}[{len(first)}];", " to ".join(ends)))
            else:
                rows.append(_row(entry.parameters))
        events = event_fields(parameters, departs)
        if events.arrivals:
            note = "events, ended by NULL, after which inputs on a device are there; NULL: they are there"
            rows.append((f"void *const *{events.arrivals};", note))
        if events.departure:
            rows.append((f"void *{events.departure};", "an event, recorded after the work on the device"))
            rows.append((f"void *{events.report};", "pinned memory for the failure of a kernel, zero at first"))
        width = max((len(declaration) for declaration, _ in rows), default=0)
        lines = [f"{declaration:<{width}}  // {safe_comment(note)}" for declaration, note in rows]
        # Fields with a second name are an extension of C99.
        groups = [] if is_iso_c else entry_groups(name, entries, types)
        for group in groups:
            w.comment(
                f"The arrays of `{safe_comment(group.root)}`, as one: `args.{group.member} = ...` sets all of its "
                "fields."
            )
            with w.block(f"typedef struct {group.type}", f" {group.type};"):
                for line in lines[group.begin : group.end]:
                    w.line(line)
            w.line()
        if exported is not None and rows:
            for line in ORDER:
                w.comment(line)
        with w.block(f"typedef struct {name}_args", f" {name}_args;"):
            for number, line in enumerate(lines):
                for group in groups:
                    if number == group.begin:
                        w.line("__extension__ union {")
                        w.line("    __extension__ struct {")
                inside = any(group.begin <= number < group.end for group in groups)
                w.line("        " * inside + line)
                for group in groups:
                    if number == group.end - 1:
                        w.line("    };")
                        w.line(f"    {group.type} {group.member};  // the same fields, as one")
                        w.line("};")
            if not rows:
                w.line("char none;  // it takes nothing and gives nothing but prints")
        w.line()
        w.comment("Runs the program. Returns ST_OK, or the kind of error that `host` then describes.")
        w.line(f"int {name}(const {name}_args *args, void *arena, st_host *host);")
        if explains:
            w.line()
            w.comment("Describes the failure in `args.report`. Call it after the event `args.departure`.")
            w.line(f"int {name}_explain(const void *report, st_host *host);")
        if release_comment is not None:
            w.line()
            w.comment(release_comment)
            w.line(f"void {name}_release(void *arena);")
        if parallel:
            w.line()
            w.text(team_declarations(name))
        if has_ranks:
            w.line()
            w.text(communicator_declarations(name))
        w.line()
        w.text(arena_declaration(name) if is_iso_c else library_declarations(name))
        w.line()
        w.line("#ifdef __cplusplus")
        w.line("}")
        w.line("#endif")
    return str(w)
