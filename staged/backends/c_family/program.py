"""IR to one C program: kernels, the memory plan, and the structure around them, written as one readable file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import Protocol

from staged.artifact import Artifact, Parameter, Site
from staged.backends.c_family.constants import emit_constant_table
from staged.backends.c_family.expr import Cast, Expr, Literal, Member, Name
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.structure import StructureEmitter
from staged.backends.c_family.support.host import HOST_DECLARATIONS
from staged.backends.c_family.support.library import render
from staged.backends.c_family.support.team import team_declarations, team_definitions
from staged.backends.c_family.support.vectors import width_snippet
from staged.backends.c_family.unused import drop_unused_locals
from staged.backends.c_family.writer import Names, Writer, c_identifier, safe_comment
from staged.errors import UnsupportedError
from staged.ir.buffers import Buffer, Plan, aligned
from staged.ir.machine import Machine
from staged.ir.nodes import Function, Op, Value, VariableRef
from staged.ir.order import OPAQUE, structural_blocks, structural_ops
from staged.ir.types import SequenceType, TensorType, shape_text
from staged.source import Position, display_path


@dataclass(frozen=True)
class Emitted:
    """The artifact and the plan behind it (for `program.memory`)."""

    artifact: Artifact
    plan: Plan
    kernels: tuple[KernelText, ...]


Aliases = Callable[[Op], Iterable[tuple[int, int]]]
Planner = Callable[[Function, Aliases], Plan]


class Library(Protocol):
    """Where a back end's kernels come from."""

    def kernel(self, op: Op) -> KernelText:
        """The text for a `kernel` or `contraction` op."""


MakeLibrary = Callable[[Machine, Names, Callable[[Position | None], int]], Library]


class ProgramEmitter:
    """Writes one program. A back end gives its kernels, and overrides how they are called and where buffers are."""

    backend = "native"
    language: OneOf["c", "cuda"] = "c"
    structure_class: type[StructureEmitter] = StructureEmitter

    def __init__(self, function: Function, machine: Machine, library: MakeLibrary, check_nan: bool) -> None:
        self.make_library = library
        self.check_nan = check_nan
        self.function = function
        self.machine = machine
        self.name = c_identifier(function.name)
        self.names = Names()
        self.names.used.update((self.name, f"{self.name}_args", "Buffers", f"{self.name.upper()}_ARENA_BYTES"))
        self.sites: list[Site] = []
        self.site_index: dict[Position | None, int] = {}
        self.parameters: list[Parameter] = []
        self.fields = Names()
        self.wrappers: dict[str, str] = {}
        self.scratch_bytes = 0
        self.shared_bytes = 0
        self.support = ""

    # ---- the steps ----

    def run(self, planner: Planner) -> Emitted:
        self.refuse_carried_sequences()
        library = self.make_library(self.machine, self.names, self.site)
        kernels = {op: library.kernel(op) for op in structural_ops(self.function.block) if op.name in OPAQUE}
        self.kernels = kernels
        plan = planner(self.function, lambda op: kernels[op].may_alias if op in kernels else ())
        self.plan = plan
        self.scratch_bytes = aligned(max((kernel.scratch_bytes for kernel in kernels.values()), default=0))
        self.shared_bytes = aligned(max((kernel.shared_bytes for kernel in kernels.values()), default=0))
        structure = self.structure_class(
            self.function, plan, kernels, self.names, self.call_kernel, self.site, self.check_nan
        )
        input_fields = self.declare_parameters(structure)
        for param, field in input_fields.items():
            if not param.tensor.shape:
                structure.scalars[param] = Member(Name("args"), field)
        self.name_buffers(structure)
        structure.w.depth = 1
        inner = self.declare_inner_scalars(structure)
        structure.block(self.function.block)
        structure.end(self.function.block, None)
        used = list(dict.fromkeys(kernels[op].name for op in structure.text.called))
        texts = {kernel.name: kernel for kernel in kernels.values()}
        ordered = [texts[name] for name in used]
        parallel = bool(self.wrappers)
        source = self.assemble(structure, ordered, inner)
        artifact = Artifact(
            name=self.name,
            source=source,
            header=self.header(parallel),
            support=self.support,
            grows=self.has_release(),
            language=self.language,
            parameters=tuple(self.parameters),
            arena_bytes=self.arena_bytes(),
            threads=0 if parallel else 1,
            sites=tuple(self.sites),
            target=self.machine.name,
            flags=(f"-march={self.machine.march}",) if self.machine.march else (),
        )
        return Emitted(artifact, plan, tuple(ordered))

    def refuse_carried_sequences(self) -> None:
        """Residuals that a loop changes as it goes: what a gradient of a gradient through a loop comes to."""
        for op in structural_ops(self.function.block):
            carried = op.operands if op.name in ("for", "while") else ()
            is_carried = any(isinstance(value.type, SequenceType) for value in carried)
            if is_carried or op.name in ("sequence_zeros", "sequence_add", "sequence_sum"):
                raise UnsupportedError(
                    "a second derivative through a loop has no compiled form",
                    where=op.where,
                    hint="take it in eager mode (`with staged.eager():`), or differentiate the loop once",
                )

    def site(self, position: Position | None) -> int:
        """The number of a Python position in the program's table."""
        if position not in self.site_index:
            self.site_index[position] = len(self.sites)
            p = position or Position("<unknown>", 0, 0, 0, 0, "")
            self.sites.append(Site(p.file, p.line, p.column, p.end_column, p.function, p.text))
        return self.site_index[position]

    # ---- parameters ----

    def declare_parameters(self, structure: StructureEmitter) -> dict[Value, str]:
        function = self.function
        fields: dict[Value, str] = {}
        for index, param in enumerate(function.params):
            path = function.param_paths[index] if index < len(function.param_paths) else param.hint or f"input_{index}"
            field = self.fields.fresh(path)
            fields[param] = field
            self.parameters.append(_parameter(field, path, param.tensor, "input", not param.tensor.shape))
        structure.variable_fields = {}
        for variable in function.variables:
            if variable.outer:
                field = self.fields.fresh(variable.name)
                structure.variable_fields[variable] = field
                self.parameters.append(_parameter(field, variable.name, variable.type, "variable", False))
        structure.output_fields = []
        types = _result_types(function)
        for index, type in enumerate(types):
            path = function.result_paths[index] if index < len(function.result_paths) else f"result_{index}"
            field = self.fields.fresh(path)
            structure.output_fields.append(field)
            self.parameters.append(_parameter(field, path, type, "output", False))
        self.input_fields = fields
        return fields

    def name_buffers(self, structure: StructureEmitter) -> None:
        """A field for every buffer: of `Buffers` for the arena's, of the arguments for the caller's."""
        names = Names()
        for buffer in self.plan.buffers:
            if buffer.kind == "input":
                structure.fields[buffer] = self.input_fields[self.function.params[buffer.index]]
            elif buffer.kind == "output":
                structure.fields[buffer] = structure.output_fields[buffer.index]
            elif buffer.kind == "variable":
                assert buffer.variable is not None
                structure.fields[buffer] = structure.variable_fields[buffer.variable]
            elif buffer.kind == "constant":
                structure.fields[buffer] = self.names.fresh(buffer.name)
            else:
                structure.fields[buffer] = names.fresh(buffer.name)
        for stack in self.plan.stacks:
            structure.fields[stack] = names.fresh(stack.name)

    def declare_inner_scalars(self, structure: StructureEmitter) -> list[tuple[VariableRef, str]]:
        """Scalar Variables made in the program are C locals of its function."""
        inner = []
        for variable in self.function.variables:
            if not variable.outer and not variable.type.shape:
                name = structure.name(variable.name)
                structure.scalar_variables[variable] = Name(name)
                inner.append((variable, name))
        return inner

    # ---- calls of kernels ----

    def call_kernel(self, structure: StructureEmitter, op: Op, inputs: list[Expr], outputs: list[Expr]) -> None:
        kernel: KernelText = self.kernels[op]
        arguments = [*inputs, *outputs]
        w = structure.w
        structure.need(*kernel.snippets)
        if kernel.prepare:
            shared = Member(Name("m"), "shared")
            w.line(f"{kernel.prepare}({', '.join(map(str, [*inputs, shared]))});")
        if kernel.chunk and self.machine.cores > 1 and kernel.items > kernel.chunk:
            structure.need("team")
            fields = self.wrapper(kernel)
            values = ", ".join(f".{field} = {value}" for field, value in zip(fields, map(str, arguments), strict=False))
            extra = ""
            if kernel.shared_bytes:
                extra += ", .shared = m->shared"
            if kernel.scratch_bytes:
                extra += ", .scratch = m->scratch"
            if kernel.can_fail:
                extra += ", .host = host"
            w.line(
                f"st_parallel(host->team, {kernel.items}, {kernel.chunk}, {kernel.name}_part, "
                f"&({kernel.name}_args){{{values}{extra}}});"
            )
        else:
            extras: list[Expr] = []
            types = [type for type, _ in kernel.parameters]
            position = len(arguments)
            if kernel.shared_bytes:
                extras.append(Member(Name("m"), "shared"))
                position += 1
            if kernel.scratch_bytes:
                scratch = Member(Name("m"), "scratch")
                c_type = types[position].strip()
                extras.append(scratch if c_type == "unsigned char *" else Cast(c_type, scratch))
            if kernel.can_fail:
                extras.append(Name("host"))
            call = ", ".join(map(str, [*arguments, *extras, Literal("0"), Literal(str(kernel.items))]))
            w.line(f"{kernel.name}({call});")
        if kernel.can_fail:
            structure.fail_check()

    def wrapper(self, kernel: KernelText) -> list[str]:
        """The struct and the function by which a team shares a kernel's items; returns the struct's field names."""
        names = [name for _, name in kernel.parameters][:-2]
        if kernel.name in self.wrappers:
            return names
        w = Writer()
        with w.block("typedef struct", f" {kernel.name}_args;"):
            for type, name in kernel.parameters[:-2]:
                type = type.replace("restrict", "").rstrip()
                field_type = (
                    "unsigned char *" if name in ("scratch", "shared") else type if type.endswith("*") else f"{type} "
                )
                w.line(f"{field_type}{name};")
        w.line()
        with w.block(f"static void {kernel.name}_part(void *context, int64_t begin, int64_t end, int thread)"):
            w.line(f"const {kernel.name}_args *const a = context;")
            if not kernel.scratch_bytes:
                w.line("(void)thread;")
            values = []
            for type, name in kernel.parameters[:-2]:
                type = type.replace("restrict", "").rstrip()
                if name == "scratch":
                    own = "a->scratch + thread * SCRATCH_BYTES"
                    values.append(own if type == "unsigned char *" else f"({type})({own})")
                elif name == "shared":
                    values.append(f"({type})a->shared")
                else:
                    values.append(f"a->{name}")
            w.line(f"{kernel.name}({', '.join([*values, 'begin', 'end'])});")
        self.wrappers[kernel.name] = str(w)
        return names

    # ---- the file ----

    release_comment = "Gives back what loops without a bound have grown; call it before the arena goes."

    def has_release(self) -> bool:
        """Whether the program keeps things between calls that the arena itself does not hold."""
        return bool(self.plan.stacks)

    def arena_bytes(self) -> int:
        """Buffers, then what kernels share, then one scratch area per thread, then the heads of growable stacks."""
        return self.stacks_offset() + aligned(64 * len(self.plan.stacks))

    def scratch_offset(self) -> int:
        return self.plan.arena_bytes + self.shared_bytes

    def stacks_offset(self) -> int:
        return self.scratch_offset() + self.scratch_bytes * max(1, self.machine.cores)

    def assemble(
        self, structure: StructureEmitter, kernels: Sequence[KernelText], inner: list[tuple[VariableRef, str]]
    ) -> str:
        structure.need("host", "fail", "stop")
        asked = structure.text.snippets - {"memcpy"}
        if kernels:
            asked.add(width_snippet(self.machine.vector_bytes))
        includes, support = render(asked)
        support = support.replace(HOST_DECLARATIONS.strip("\n") + "\n", "")  # they stand in the header
        shared = dict(pair for kernel in kernels for pair in kernel.support)
        support = "\n".join([support, *shared.values()])
        w = Writer()
        self.write_head(w)
        lines = {line for line in includes if line.startswith("#define")}
        lines |= {"#include <stdint.h>", "#include <stdbool.h>", "#include <stddef.h>"}
        texts = [*structure.w.lines, *(kernel.text for kernel in kernels)]
        if any("memcpy(" in text or "memset(" in text for text in texts):
            lines.add("#include <string.h>")
        if any("INFINITY" in text or "NAN" in text for text in texts):
            lines.add("#include <math.h>")
        for line in sorted(lines, key=lambda line: (not line.startswith("#define"), line)):
            w.line(line)
        w.line()
        w.line(f'#include "{self.name}.h"')
        self.support = self.support_text(includes, support) if support.strip() else ""
        if self.support:
            w.line(f'#include "{self.name}_support.h"  // printing, errors, maths: what every program of staged may use')
        self.write_buffers(w, structure)
        constants = [b for b in self.plan.buffers if b.kind == "constant"]
        if constants:
            w.section("constants")
            for buffer in constants:
                emit_constant_table(w, structure.fields[buffer], buffer)
        for title, members in _sections(kernels, structure):
            w.section(title)
            for kernel in members:
                w.line()
                w.text(kernel.text)
                if kernel.name in self.wrappers:
                    w.line()
                    w.text(self.wrappers[kernel.name])
        w.section("entry points")
        if self.wrappers:
            w.text(team_definitions(self.name))
            w.line()
        self.write_entry(w, structure, inner)
        if self.plan.stacks:
            w.line()
            with w.block(f"void {self.name}_release(void *arena)"):
                w.line("unsigned char *const base = arena;")
                for stack in self.plan.stacks:
                    offset = self.stacks_offset() + 64 * stack.index
                    w.line(f"st_stack_release((st_stack *)(void *)(base + {offset}));  // {structure.fields[stack]}")
        return str(w)

    def support_text(self, includes: Sequence[str], support: str) -> str:
        """The support functions that this program uses, as a header of its own: the program's file is for the program."""
        guard = f"STAGED_{self.name.upper()}_SUPPORT_H"
        w = Writer()
        w.comment(f"Generated by staged: the support functions that `{self.name}` uses.")
        w.line(f"#ifndef {guard}")
        w.line(f"#define {guard}")
        w.line()
        wanted = {line for line in includes if not line.startswith("#define")}
        if "memcpy(" in support or "memset(" in support:
            wanted.add("#include <string.h>")
        for line in sorted(wanted):
            w.line(line)
        w.line()
        w.text(support)
        w.line()
        w.line(f"#endif  // {guard}")
        return str(w)

    def write_head(self, w: Writer) -> None:
        where = self.function.where
        origin = (
            f"{display_path(where.file).rsplit('/', 1)[-1]}, function `{self.function.name}`"
            if where
            else f"function `{self.function.name}`"
        )
        w.comment(f"Generated by staged from {origin}. Edit that, not this file.")
        w.comment(f"backend {self.backend}; target {self.machine.name}; row-major; the sizes below were fixed while staging")
        w.line()

    def write_buffers(self, w: Writer, structure: StructureEmitter) -> None:
        arena = self.plan.arena_buffers()
        if not arena and not self.scratch_bytes and not self.shared_bytes and not self.plan.stacks:
            return
        w.section("sizes and buffers")
        if self.scratch_bytes:
            w.line(f"enum {{ SCRATCH_BYTES = {self.scratch_bytes} }};  // workspace of one thread")
            w.line()
        w.comment("Where values are kept; those whose lives do not overlap share memory.")
        rows: list[tuple[str, str]] = []
        for buffer in arena:
            rows.append((f"{buffer.type.dtype.c_name} *{structure.fields[buffer]};", _describe(buffer)))
        for stack in self.plan.stacks:
            rows.append((f"st_stack *{structure.fields[stack]};", f"grows: {stack.element} per turn of a loop"))
        if self.shared_bytes:
            rows.append(("unsigned char *shared;", "packed operands of one kernel"))
        if self.scratch_bytes:
            rows.append(("unsigned char *scratch;", "workspace, one part per thread"))
        width = max(len(declaration) for declaration, _ in rows)
        with w.block("typedef struct", " Buffers;"):
            for declaration, note in rows:
                w.line(f"{declaration:<{width}}  // {safe_comment(note)}")

    def write_entry(self, w: Writer, structure: StructureEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        arena = self.plan.arena_buffers()
        has_buffers = bool(arena or self.scratch_bytes or self.shared_bytes or self.plan.stacks)
        begin = len(w.lines)
        with w.block(f"int {self.name}(const {self.name}_args *args, void *arena, st_host *host)"):
            if has_buffers:
                w.line("unsigned char *const base = arena;")
                with w.block("const Buffers buffers =", ";"):
                    for buffer in arena:
                        c_type = buffer.type.dtype.c_name
                        w.line(f".{structure.fields[buffer]} = ({c_type} *)(void *)(base + {buffer.offset}),")
                    for stack in self.plan.stacks:
                        w.line(
                            f".{structure.fields[stack]} = (st_stack *)(void *)(base + {self.stacks_offset() + 64 * stack.index}),"
                        )
                    if self.shared_bytes:
                        w.line(f".shared = base + {self.plan.arena_bytes},")
                    if self.scratch_bytes:
                        w.line(f".scratch = base + {self.scratch_offset()},")
                w.line("const Buffers *const m = &buffers;")
            else:
                w.line("(void)arena;")
            w.line("host->error_kind = ST_OK;")
            w.line("host->error_claimed = 0;")
            if not self.parameters:
                w.line("(void)args;")
            for variable, name in inner:
                w.line(f"{variable.type.dtype.c_name} {name} = 0;")
            w.lines += structure.w.lines
        w.lines[begin:] = drop_unused_locals(w.lines[begin:])

    def header(self, parallel: bool) -> str:
        guard = f"STAGED_{self.name.upper()}_H"
        w = Writer()
        w.comment(f"Generated by staged: the interface of `{self.name}`.")
        w.line(f"#ifndef {guard}")
        w.line(f"#define {guard}")
        w.line()
        w.line("#include <stdbool.h>")
        w.line("#include <stddef.h>")
        w.line("#include <stdint.h>")
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
        w.line(f"#define {self.name.upper()}_ARENA_BYTES ((size_t){self.arena_bytes()})")
        w.line()
        rows = []
        for parameter in self.parameters:
            c_type = _C_TYPES[parameter.dtype]
            declaration = (
                f"{c_type} {parameter.field};"
                if parameter.scalar
                else f"{'const ' if parameter.role == 'input' else ''}{c_type} *{parameter.field};"
            )
            rows.append((declaration, f"{shape_text(parameter.shape)}  {parameter.role}  {parameter.label}"))
        width = max((len(declaration) for declaration, _ in rows), default=0)
        with w.block(f"typedef struct {self.name}_args", f" {self.name}_args;"):
            for declaration, note in rows:
                w.line(f"{declaration:<{width}}  // {safe_comment(note)}")
            if not rows:
                w.line("char none;  // it takes nothing and gives nothing but prints")
        w.line()
        w.comment("Runs the program. Returns ST_OK, or the kind of error that `host` then describes.")
        w.line(f"int {self.name}(const {self.name}_args *args, void *arena, st_host *host);")
        if self.has_release():
            w.line()
            w.comment(self.release_comment)
            w.line(f"void {self.name}_release(void *arena);")
        if parallel:
            w.line()
            w.text(team_declarations(self.name))
        w.line()
        w.line("#ifdef __cplusplus")
        w.line("}")
        w.line("#endif")
        w.line(f"#endif  // {guard}")
        return str(w)


_C_TYPES = {
    "f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u32": "uint32_t", "bool": "bool",
}  # fmt: skip


def _parameter(field: str, label: str, type: TensorType, role: str, scalar: bool) -> Parameter:
    shape = tuple(extent if isinstance(extent, int) else extent.name for extent in type.shape)
    return Parameter(field, label, type.dtype.name, shape, role, scalar)  # type: ignore[arg-type]


def _result_types(function: Function) -> list[TensorType]:
    for block in structural_blocks(function.block):
        if block.end.kind == "return":
            return [operand.tensor for operand in block.end.operands]
    return []


def _describe(buffer: Buffer) -> str:
    where = f"  {buffer.where.short}  {buffer.where.text}" if buffer.where else ""
    role = f"  {buffer.role}" if buffer.role else ""
    return f"{shape_text(buffer.type.shape)}{role}{where}"


def _sections(kernels: Sequence[KernelText], structure: StructureEmitter) -> list[tuple[str, list[KernelText]]]:
    """Kernels by what they are for, in the order of first call within each section."""
    once = set(structure.function.block.ops)
    initial: set[str] = set()
    updates: set[str] = set()
    for op in structure.text.called:
        if any(structure.plan.place.get(result) and structure.plan.place[result].variable for result in op.results):
            (initial if op in once and structure.has_loops else updates).add(structure.kernels[op].name)
    sections: dict[str, list[KernelText]] = {"initial values": [], "forward": [], "backward": [], "update": []}
    for kernel in kernels:
        name = kernel.name
        place = "update" if name in updates else "initial values" if name in initial else ""
        sections[place or ("backward" if name.startswith("d_") else "forward")].append(kernel)
    if not sections["backward"] and not sections["update"] and not sections["initial values"]:
        return [("kernels", sections["forward"])] if sections["forward"] else []
    return [(title, members) for title, members in sections.items() if members]
