"""The one file that a program is: its sections in order, the entry point, and what gives back what has grown.

Tested by `tests/backends/native/test_golden.py` and `tests/backends/native/test_all_ops.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from staged.backends.host.argument_structs import with_argument_structs
from staged.backends.host.body import ERROR_KIND, FRAMES, OK, BodyEmitter
from staged.backends.host.buffer_groups import Group
from staged.backends.host.buffer_structs import BUFFERS, State, divided_state, fields_of, places_of, write_structs
from staged.backends.host.checked_fields import rows_of_fields, write_checked_fields
from staged.backends.host.constants import ConstantInputs, emit_constant_table
from staged.backends.host.counts import literal_int
from staged.backends.host.custom import definitions, functions_of
from staged.backends.host.equal_functions import EqualFunctions
from staged.backends.host.fills import joined_fills
from staged.backends.host.frames import field_origins, frame_text
from staged.backends.host.functions import (
    CFunction,
    function_body,
    prototypes,
    stack_bytes,
    write_function,
    write_locals,
)
from staged.backends.host.layer_pointers import with_layer_pointers
from staged.backends.host.outlining import Outliner
from staged.backends.host.ranks import begin as begin_ranks
from staged.backends.host.ranks import support_of as support_of_ranks
from staged.backends.host.residuals import kept_text
from staged.backends.host.shared_forward import with_shared_forward
from staged.backends.host.shared_loops import parameter_types
from staged.backends.host.support_functions import support_functions, support_header
from staged.base.artifact import Parameter
from staged.code.expr import Expr, Literal, Member, Name, Prefix, Variable, call, member, names_in
from staged.code.kernel_text import KernelText, section_of
from staged.code.printer import print_body
from staged.code.scopes import with_short_names
from staged.code.support.host import HOST_DECLARATIONS
from staged.code.support.library import Snippet, text_of, top_lines
from staged.code.support.ranks import communicator_definitions
from staged.code.support.team import NEED_TEAM, Shared, argument_macros, team_definitions
from staged.code.tree import Assign, CodeBuilder, Declare, Statement, Unused
from staged.code.types import BYTES, CType, Space, pointer, scalar, word
from staged.code.unused import drop_unused_locals, names_used
from staged.code.uses import functions_called
from staged.code.writer import Names, Writer
from staged.ir.buffers import Plan, Stack, aligned
from staged.ir.declaration import prims
from staged.ir.machine import Machine
from staged.ir.nodes import Function, VariableRef
from staged.ir.types import DTYPES
from staged.source import Position


class Program(Protocol):
    """The parts of a finished program that its file is written from."""

    backend: str
    language: str
    name: str
    function: Function
    constant_inputs: ConstantInputs
    machine: Machine
    names: Names
    plan: Plan
    parameters: list[Parameter]
    layer_types: dict[str, str]
    groups: list[Group]
    functions: dict[str, CFunction]
    shared: dict[str, Shared]
    frame_names: dict[str, str]
    frame_fields: dict[str, tuple[str, ...]]
    stacks: list[Stack]
    kept_names: dict[Stack, str]
    state: list[State]
    is_recursive: bool
    uses_store: bool
    scratch_bytes: int
    reserve: int

    def site(self, position: Position | None) -> int:
        """The number of a Python position in the program's table."""

    def has_release(self) -> bool:
        """Return whether the program keeps things between calls that the arena itself does not hold."""

    def own_stack_offset(self) -> int:
        """The offset in the arena of the head of the program's own stack."""

    def frames_offset(self) -> int:
        """The offset in the arena of the head of the store of frames."""

    def makers_of_frames(self) -> list[str]:
        """Functions that make frames, where a back end has them."""


class ProgramFile:
    """Writes the file of a program; `support` is then the header of the support functions that it uses."""

    overview = "Kernels come first, each below the Python lines behind it;"
    """The description of the file, up to the name of its last function."""
    divides = True
    """True if long functions become several; those of programs with a device do not."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.support = ""
        self.pieces: list[Snippet] = []

    def assemble(
        self, structure: BodyEmitter, kernels: Sequence[KernelText], inner: list[tuple[VariableRef, str]]
    ) -> str:
        structure.need("host", "fail", "stop")
        includes, support = self.render_support(structure, kernels)
        structures = [*(made.structure for made in self.program.functions.values()), structure]
        parts = [part for each in structures for part in each.text.parts]
        shared = [*self.program.shared.values(), *(part.shared for part in parts)]
        support += argument_macros(shared) if shared else ""
        w = Writer()
        self.write_head(w, kernels)
        constants = Writer()
        self.write_constants(constants, structure)
        lines = {line for line in includes if line.startswith("#define")}
        lines |= {"#include <stdint.h>", "#include <stdbool.h>", "#include <stddef.h>"}
        functions = dict.fromkeys(function for kernel in kernels for function in kernel.functions)
        texts = [*constants.lines, *(each.text for each in functions), *(kernel.text for kernel in kernels)]
        bodies = [*(each.code.body for each in structures), *(part.body for part in parts)]
        called = {name for body in bodies for name in functions_called(body)}
        used = {name for body in bodies for name in names_used(body)}
        if called & {"memcpy", "memset"} or any("memcpy(" in text or "memset(" in text for text in texts):
            lines.add("#include <string.h>")
        if used & {"INFINITY", "NAN"} or any("INFINITY" in text or "NAN" in text for text in texts):
            lines.add("#include <math.h>")
        for line in sorted(lines, key=lambda line: (not line.startswith("#define"), line)):
            w.line(line)
        w.line()
        w.line(f'#include "{self.program.name}.h"')
        self.support = support_header(self.program.name, includes, support) if support.strip() else ""
        if self.support:
            w.line(
                f'#include "{self.program.name}_support.h"  '
                "// printing, errors, maths: what every program of staged may use"
            )
        self.write_frames(w)
        self.write_buffers(w, structure)
        if constants.lines:
            w.section("constants")
            w.lines += constants.lines
        for title, members in _sections(kernels, structures):
            w.section(title)
            for kernel in members:
                for function in kernel.functions:
                    if function in functions:
                        del functions[function]
                        w.line()
                        w.text(function.text)
                if kernel.text:
                    w.line()
                    w.text(kernel.text)
                if kernel.name in self.program.shared:
                    w.text(self.program.shared[kernel.name].line)
        if parts:
            w.section("loops that threads share")
        for part in parts:
            w.line()
            part.write(w)
        self.write_functions(w)
        w.section("entry points")
        if any(name in structure.text.snippets for name in NEED_TEAM):
            w.text(team_definitions(self.program.name, max(1, self.program.machine.cores)))
            w.line()
        if support_of_ranks(self.program.function):
            w.text(communicator_definitions(self.program.name))
            w.line()
        self.write_entry(w, structure, inner)
        if self.program.has_release():
            w.line()
            self.write_release(w)
        return str(w)

    def write_constants(self, w: Writer, structure: BodyEmitter) -> None:
        rows = [
            (str(each.field(buffer)), buffer)
            for each in (*(made.structure for made in self.program.functions.values()), structure)
            for buffer in each.plan.buffers
            if buffer.kind == "constant"
        ]
        for name, buffer in rows:
            emit_constant_table(w, name, buffer)
        self.program.constant_inputs.write(w)

    def write_frames(self, w: Writer) -> None:
        """The structs that iterations and calls leave for their reverse."""
        kept = [stack for stack in self.program.stacks if stack.fields]
        if kept:
            w.section("what iterations keep for the backward pass")
        for stack in kept:
            w.line()
            for line in kept_text(stack, self.program.kept_names):
                w.line(line)
        if not self.program.function.frames:
            return
        w.section("frames")
        w.comment("What calls keep for the gradient.")
        for record in self.program.function.frames:
            w.line(f"typedef struct {self.program.frame_names[record.name]} {self.program.frame_names[record.name]};")
        origins = field_origins(self.program.function)
        for record in self.program.function.frames:
            w.line()
            name, fields = self.program.frame_names[record.name], self.program.frame_fields[record.name]
            nowhere = [None] * len(fields)
            for line in frame_text(record, name, fields, self.program.frame_names, origins.get(record.name, nowhere)):
                w.line(line)

    def write_function_locals(self, w: Writer, made: CFunction) -> None:
        """The struct of what one call works on, where it has one."""
        if made.locals_type:
            write_locals(w, made, "_Alignas(64) ")
            w.line()

    def write_functions(self, w: Writer) -> None:
        makers = self.program.makers_of_frames()
        if not self.program.functions and not makers:
            return
        w.section("functions")
        if self.program.is_recursive:
            w.line()
            reserve = self.program.reserve + aligned(stack_bytes(list(self.program.functions.values())))
            w.line(f"enum {{ STACK_RESERVE = {reserve} }};  // bytes of the stack for what recursive functions call")
        for text in makers:
            w.line()
            w.text(text)
        declared = prototypes(self.program.function, self.program.functions)
        if declared:
            w.line()
            for text in declared:
                w.text(text)
        for made in self.program.functions.values():
            w.line()
            self.write_function_locals(w, made)
            statements = function_body(made, self.program.site(made.signature.function.where))
            if not made.signature.recursive:  # its arrays are locals of the call
                statements = self.with_joined_fills(statements, made.structure)
                statements = self.divide(w, statements, made.structure, made.structure.parameters)
            write_function(w, made, statements)

    def write_release(self, w: Writer) -> None:
        with w.block(f"void {self.program.name}_release(void *arena)"):
            w.line("unsigned char *const base = arena;")
            self.write_release_of_host(w)

    def write_release_of_host(self, w: Writer) -> None:
        """Give back what has grown outside of the arena, which begins at `base`."""
        for state in self.program.state:
            if state.c_type == "st_stack *":
                w.line(f"st_stack_release({state.value});  // {state.name}")
        if self.program.uses_store:
            w.line(f"st_frames_free((st_frames *)(void *)(base + {self.program.frames_offset()}));")
        if self.program.is_recursive:
            w.line(f"st_own_stack_release((st_own_stack *)(void *)(base + {self.program.own_stack_offset()}));")

    def render_support(self, structure: BodyEmitter, kernels: Sequence[KernelText]) -> tuple[tuple[str, ...], str]:
        """The includes and the text of the support functions that the program and these kernels use."""
        lines, more = structure.text.snippets, ("check_fields",) if self.checked_fields else ()
        ordered = support_functions(self.program.function, self.program.machine, lines, more, bool(kernels))
        # The declarations of the host stand in the header, and a width is a definition at the top.
        self.pieces = [each for each in ordered if each.text.strip() and each.text != HOST_DECLARATIONS]
        shared = dict.fromkeys(snippet.text for kernel in kernels for snippet in kernel.support)
        own = definitions(functions_of(self.program.function))
        return top_lines(ordered), "\n".join([text_of(self.pieces), *shared, *([own] if own else [])])

    def write_head(self, w: Writer, kernels: Sequence[KernelText]) -> None:
        """Write the origin of the text, and how to read it."""
        where = self.program.function.where
        origin = (
            f"{os.path.basename(where.file)}, function `{self.program.function.name}`"
            if where
            else f"function `{self.program.function.name}`"
        )
        w.comment(f"Generated by staged from {origin}. Edit that, not this file.")
        target = f"backend {self.program.backend}; target {self.program.machine.name}"
        found = [str(op.attrs["dim"]) for op in self.program.function.block.ops if op.declared is prims.DIM]
        but = f", all but {', '.join(found)}" if found else ""
        w.comment(f"{target}; row-major; the sizes below were fixed while staging{but}")
        if kernels:
            w.comment(f"{self.overview} `{self.program.name}`, near the end, calls them in order.")
        if self.program.shared:
            w.comment("ST_SHARED lets threads share the items of the kernel above, from `begin` to `end`.")
            w.comment("ST_SHARE(team, items, chunk, kernel, arguments...) calls it, by `chunk` items at a time.")
        w.line()

    def write_buffers(self, w: Writer, structure: BodyEmitter) -> None:
        if not self.program.state:
            return
        w.section("sizes and buffers")
        if self.program.scratch_bytes:
            w.line(f"enum {{ SCRATCH_BYTES = {self.program.scratch_bytes} }};  // workspace of one thread")
            w.line()
        w.comment("Where values are kept; those whose lives do not overlap share memory.")
        write_structs(w, self.program.state, self.program.groups)

    def add_first_values(
        self, code: CodeBuilder, inner: Sequence[tuple[VariableRef, str]], structure: BodyEmitter
    ) -> None:
        """Reset the state of an earlier call, and initialise the program's own numeric Variables."""
        for made in self.program.functions.values():
            for stack in made.plan.stacks:
                code.do("st_stack_reset", made.structure.field(stack))
        for variable, name in inner:
            value = _first_value(structure.code.body, name) or Literal("0")
            code.add(Declare(Variable(name, scalar(variable.type.dtype)), value, is_const=False))

    def add_begin(self, code: CodeBuilder) -> None:
        """Add a back end's statements that precede the setup of buffers: none here."""
        return

    def entry_body(self, structure: BodyEmitter, inner: list[tuple[VariableRef, str]]) -> list[Statement]:
        """The statements of the entry: what they find set up, then those of the program's ops."""
        code = CodeBuilder()
        if self.program.is_recursive:
            args = pointer(word(f"{self.program.name}_args"), Space.GLOBAL, is_const=True)
            code.add(Declare(Variable("args", args), Name("given")))
        self.add_begin(code)
        late = add_shared_scalars(code, self.program.state, inner)
        placed, others = divided_state(self.program.state, self.program.groups)
        if any("base" in names_in(state.value) for state in others):
            code.add(Declare(Variable("base", BYTES), Name("arena")))
        elif not placed:
            code.add(Unused((Name("arena"),)))
        if placed:
            code.add(Declare(BUFFERS, call("place_buffers", "arena"), is_const=not others))
            for state in others:
                code.add(Assign(Member(BUFFERS, state.name, arrow=False), state.value))
        elif others:
            code.add(fields_of(BUFFERS, others))
        if self.program.state:
            struct = pointer(BUFFERS.type, Space.GLOBAL, is_const=True)
            code.add(Declare(Variable("m", struct), Prefix("&", BUFFERS)))
        if not self.program.is_recursive:
            add_no_error(code)
        if not self.program.parameters:
            code.add(Unused((Name("args"),)))
        if self.program.uses_store:
            code.do("st_frames_release", FRAMES, 0)
        if "ranks" in {each.name for each in self.pieces}:
            begin_ranks(code, self.program.function, self.program.site)
        self.add_first_values(code, late, structure)
        return [*code.body, *structure.code.body]

    @cached_property
    def checked_fields(self) -> list[str]:
        """The rows of the fields that the caller of an exported program may not leave out."""
        return [] if self.program.function.exported is None else rows_of_fields(self.program.parameters)

    def write_null_check(self, w: Writer) -> None:
        """Return an error if the caller has left a field out."""
        if self.checked_fields:
            with w.block(f"if (st_check_fields(host, args, st_fields, {len(self.checked_fields)}) != ST_OK)"):
                w.line("return host->error_kind;")

    def divide(
        self, w: Writer, statements: Sequence[Statement], structure: BodyEmitter, parameters: Mapping[str, CType]
    ) -> tuple[Statement, ...]:
        """Write the functions into which a long function is divided; returns the statements that are left of it."""
        if not self.divides:
            return tuple(statements)
        outliner = Outliner(structure.text.origins, structure.function.where, structure.file_name)
        given = [Variable(name, type) for name, type in parameters.items()]
        kept = outliner.by_section(statements, given)
        kernels = {each.name: each.parameters for each in structure.kernels.values()}
        types = self.field_types()
        equal = EqualFunctions(types, kernels, structure.file_name, structure.name)
        kept = with_shared_forward(outliner, equal, kept)
        outliner.divide_sections()
        functions, kept = equal.merged(outliner.made, kept)
        functions, kept = with_argument_structs(functions, kept, structure.file_name, structure.local_names)

        def finished(body: Sequence[Statement]) -> tuple[Statement, ...]:
            return with_layer_pointers(outliner.with_first_values(body), types, structure.name)

        for made in functions:
            replace(made, body=finished(made.body)).write(w, structure.local_names)
            w.line()
        return with_short_names(given, finished(kept), structure.local_names)[1]

    def with_joined_fills(self, statements: Sequence[Statement], structure: BodyEmitter) -> tuple[Statement, ...]:
        """Statements in which zeros in neighbouring arrays of the host are one statement."""
        arrays = places_of(self.program.state)
        return joined_fills(statements, arrays, "clear" in structure.text.snippets, structure.text.origins)

    def field_types(self) -> dict[str, CType]:
        """The types of the fields of `args` and `m`, and of the addresses of structs in these."""
        found = parameter_types((each.c_type, f"m->{each.name}") for each in self.program.state)
        structs = (
            (f"const {each.type} *", f"{'' if each.loop else '&'}m->{each.field}") for each in self.program.groups
        )
        found |= parameter_types(structs)
        for each in self.program.parameters:
            layer = f"const {self.program.layer_types.get(each.array)} *"
            if each.index is None:
                star = "" if each.scalar else "*"
                found |= parameter_types([(f"{DTYPES[each.dtype].c_name} {star}", f"args->{each.place}")])
                found |= parameter_types([(layer, f"&args->{each.array}")] if each.array else [])
            elif each.array:
                found |= parameter_types([(layer, f"args->{each.array}")])
        return found

    def write_entry(self, w: Writer, structure: BodyEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        head = f"int {self.program.name}(const {self.program.name}_args *args, void *arena, st_host *host)"
        body, own = head, ""
        if self.program.is_recursive:
            own = self.program.names.fresh(f"{self.program.name}_body")
            body = f"static int {own}(const void *given, void *arena, st_host *host)"
            w.comment(f"What `{self.program.name}` does, on the program's own stack.")
        around, inside = body, ""
        if "files" in structure.text.snippets:
            inside = self.program.names.fresh(f"{self.program.name}_with_files")
            given = "void *given" if self.program.is_recursive else f"{self.program.name}_args *args"
            body = f"static int {inside}(const {given}, void *arena, st_host *host)"
        statements = self.with_joined_fills(drop_unused_locals(self.entry_body(structure, inner)), structure)
        parameters = {name: type for name, type in structure.parameters.items() if name != "m"}
        statements = self.divide(w, statements, structure, parameters)
        write_checked_fields(w, self.program.name, self.checked_fields)
        with w.block(body):
            if body == head:
                self.write_null_check(w)
            w.lines += print_body(statements)
        if inside:
            w.line()
            w.comment("Files that are still open are closed, however the program ends.")
            with w.block(around):
                if around == head:
                    self.write_null_check(w)
                w.line(f"(void){inside}({'given' if self.program.is_recursive else 'args'}, arena, host);")
                w.line("return st_close_files(host);")
        if self.program.is_recursive:
            w.line()
            with w.block(head):
                self.write_null_check(w)
                place = f"(st_own_stack *)(void *)((unsigned char *)arena + {self.program.own_stack_offset()})"
                w.statement(f"return st_run_on_stack({place}, STACK_RESERVE, {own}, args, arena, host);")


class DeviceFile(ProgramFile):
    """Writes the file of a program with a device."""

    overview = "Kernels of the device come first, then what the host does;"
    divides = False


def _first_value(body: list[Statement], name: str) -> Expr | None:
    """The integer that a function assigns to `name` before it uses the name otherwise, which it then need not;
    None if it does not."""
    for number, statement in enumerate(body):
        match statement:
            case Assign(Name(text), value, "") if text == name and literal_int(value) is not None:
                del body[number]
                return value
        if name in names_used((statement,)):
            return None
    return None


def add_shared_scalars(
    code: CodeBuilder, state: Sequence[State], inner: list[tuple[VariableRef, str]]
) -> list[tuple[VariableRef, str]]:
    """Declare the numeric Variables whose addresses are in the program's state; returns the others."""
    shared = {
        each.value.operand.text
        for each in state
        if isinstance(each.value, Prefix) and isinstance(each.value.operand, Name)
    }
    early = [(variable, name) for variable, name in inner if name in shared]
    for variable, name in early:
        code.add(Declare(Variable(name, scalar(variable.type.dtype)), Literal("0"), is_const=False))
    return [pair for pair in inner if pair not in early]


def add_no_error(code: CodeBuilder) -> None:
    """Add what forgets the errors of an earlier call."""
    code.add(Assign(ERROR_KIND, OK))
    code.add(Assign(member("host", "error_claimed"), Literal("0")))


def _sections(kernels: Sequence[KernelText], structures: Sequence[BodyEmitter]) -> list[tuple[str, list[KernelText]]]:
    """Kernels by what they are for, in the order of first call within each section."""
    section: dict[str, str] = {}
    for structure in structures:
        for op in structure.text.called:
            section.setdefault(structure.kernels[op].name, section_of(op))
    section |= {kernel.name: "products" for kernel in kernels if not kernel.text}
    titles = ("products", "initial values", "forward", "backward", "update")
    sections = {title: [kernel for kernel in kernels if section[kernel.name] == title] for title in titles}
    if not sections["backward"] and not sections["update"] and not sections["initial values"]:
        sections = {"products": sections["products"], "kernels": sections["forward"]}
    return [(title, members) for title, members in sections.items() if members]
