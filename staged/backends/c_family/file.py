"""The one file that a program is: its sections in order, the entry point, and what gives back what has grown."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from staged.artifact import Parameter
from staged.backends.c_family.constants import ConstantInputs, emit_constant_table
from staged.backends.c_family.frames import field_origins, frame_text
from staged.backends.c_family.functions import CFunction, prototypes, stack_bytes, write_function, write_locals
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.structure import StructureEmitter
from staged.backends.c_family.support.host import HOST_DECLARATIONS
from staged.backends.c_family.support.library import render
from staged.backends.c_family.support.team import team_definitions
from staged.backends.c_family.support.vectors import width_snippet
from staged.backends.c_family.unused import drop_unused_locals
from staged.backends.c_family.writer import Names, Writer, safe_comment
from staged.ir.buffers import Buffer, Plan, Stack, aligned
from staged.ir.machine import Machine
from staged.ir.nodes import Function, VariableRef
from staged.ir.types import CPU, Device, shape_text
from staged.source import Position, display_path

HEAD = 64
"""Bytes in the arena for each thing that grows outside of it."""
RESERVE = 1 << 20
"""Bytes of the stack that recursion leaves alone: kernels, prints and what they call back have room there."""


@dataclass(frozen=True)
class State:
    """One field of `Buffers`: its C type up to the name, what the entry sets it to, a note for people, and the device that it is of."""

    c_type: str
    name: str
    value: str
    note: str
    device: Device = CPU

    @property
    def declaration(self) -> str:
        return f"{self.c_type}{self.name};"


class FileWriter(ABC):
    """Writes the file, once everything in it is known."""

    backend: str
    language: str
    name: str
    function: Function
    constant_inputs: ConstantInputs
    machine: Machine
    names: Names
    plan: Plan
    parameters: list[Parameter]
    functions: dict[str, CFunction]
    wrappers: dict[str, str]
    frame_names: dict[str, str]
    frame_fields: dict[str, tuple[str, ...]]
    stacks: list[Stack]
    state: list[State]
    is_recursive: bool
    uses_store: bool
    buffers_bytes: int
    scratch_bytes: int
    support: str

    @abstractmethod
    def site(self, position: Position | None) -> int:
        """The number of a Python position in the program's table."""

    overview = "Kernels come first, each below the Python lines behind it;"
    """What the file is like, up to where its last function is named."""
    reserve = RESERVE
    release_comment = "Gives back what loops without a bound have grown; call it before the arena goes."

    def has_release(self) -> bool:
        """Whether the program keeps things between calls that the arena itself does not hold."""
        return bool(self.stacks) or self.is_recursive or self.uses_store

    def arena_bytes(self) -> int:
        """Buffers, then one scratch area per thread, then the heads of what grows."""
        return self.frames_offset() + HEAD * self.uses_store

    def stacks_offset(self) -> int:
        return self.buffers_bytes + self.scratch_bytes * max(1, self.machine.cores)

    def own_stack_offset(self) -> int:
        return self.stacks_offset() + HEAD * len(self.stacks)

    def frames_offset(self) -> int:
        return self.own_stack_offset() + HEAD * self.is_recursive

    def assemble(
        self, structure: StructureEmitter, kernels: Sequence[KernelText], inner: list[tuple[VariableRef, str]]
    ) -> str:
        structure.need("host", "fail", "stop")
        includes, support = self.render_support(structure, kernels)
        w = Writer()
        self.write_head(w, kernels)
        constants = Writer()
        self.write_constants(constants, structure)
        lines = {line for line in includes if line.startswith("#define")}
        lines |= {"#include <stdint.h>", "#include <stdbool.h>", "#include <stddef.h>"}
        bodies = [line for made in self.functions.values() for line in made.structure.w.lines]
        texts = [*constants.lines, *bodies, *structure.w.lines, *(kernel.text for kernel in kernels)]
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
        self.write_frames(w)
        self.write_buffers(w, structure)
        if constants.lines:
            w.section("constants")
            w.lines += constants.lines
        for title, members in _sections(kernels, [*(made.structure for made in self.functions.values()), structure]):
            w.section(title)
            for kernel in members:
                w.line()
                w.text(kernel.text)
                if kernel.name in self.wrappers:
                    w.line()
                    w.text(self.wrappers[kernel.name])
        self.write_functions(w)
        w.section("entry points")
        if self.wrappers:
            w.text(team_definitions(self.name, max(1, self.machine.cores)))
            w.line()
        self.write_entry(w, structure, inner)
        if self.has_release():
            w.line()
            self.write_release(w)
        return str(w)

    def write_constants(self, w: Writer, structure: StructureEmitter) -> None:
        rows = [
            (str(each.field(buffer)), buffer)
            for each in (*(made.structure for made in self.functions.values()), structure)
            for buffer in each.plan.buffers
            if buffer.kind == "constant"
        ]
        for name, buffer in rows:
            emit_constant_table(w, name, buffer)
        self.constant_inputs.write(w)

    def write_frames(self, w: Writer) -> None:
        """The records that calls leave for their reverse."""
        if not self.function.frames:
            return
        w.section("frames")
        w.comment("What calls keep for the gradient.")
        for record in self.function.frames:
            w.line(f"typedef struct {self.frame_names[record.name]} {self.frame_names[record.name]};")
        origins = field_origins(self.function)
        for record in self.function.frames:
            w.line()
            name, fields = self.frame_names[record.name], self.frame_fields[record.name]
            nowhere = [None] * len(fields)
            for line in frame_text(record, name, fields, self.frame_names, origins.get(record.name, nowhere)):
                w.line(line)

    def write_function_locals(self, w: Writer, made: CFunction) -> None:
        """The struct of what one call works on, where it has one."""
        if made.locals_type:
            write_locals(w, made, "_Alignas(64) ")
            w.line()

    def write_functions(self, w: Writer) -> None:
        if not self.functions:
            return
        w.section("functions")
        if self.is_recursive:
            w.line()
            reserve = self.reserve + aligned(stack_bytes(list(self.functions.values())))
            w.line(f"enum {{ STACK_RESERVE = {reserve} }};  // bytes of the stack for what recursive functions call")
        for text in self.makers_of_frames():
            w.line()
            w.text(text)
        declared = prototypes(self.function, self.functions)
        if declared:
            w.line()
            for text in declared:
                w.text(text)
        for made in self.functions.values():
            w.line()
            self.write_function_locals(w, made)
            write_function(w, made, self.site(made.signature.function.where))

    def makers_of_frames(self) -> list[str]:
        """Functions that make frames, where a back end has them."""
        return []

    def write_release(self, w: Writer) -> None:
        with w.block(f"void {self.name}_release(void *arena)"):
            w.line("unsigned char *const base = arena;")
            for state in self.state:
                if state.c_type == "st_stack *":
                    w.line(f"st_stack_release({state.value});  // {state.name}")
            if self.uses_store:
                w.line(f"st_frames_free((st_frames *)(void *)(base + {self.frames_offset()}));")
            if self.is_recursive:
                w.line(f"st_own_stack_release((st_own_stack *)(void *)(base + {self.own_stack_offset()}));")

    def support_text(self, includes: Sequence[str], support: str) -> str:
        """The support functions that this program uses, as a header of its own: the program's file is for the program."""
        w = Writer()
        w.comment(f"Generated by staged: the support functions that `{self.name}` uses.")
        with w.guard(f"STAGED_{self.name.upper()}_SUPPORT_H"):
            wanted = {line for line in includes if not line.startswith("#define")}
            if "memcpy(" in support or "memset(" in support:
                wanted.add("#include <string.h>")
            for line in sorted(wanted):
                w.line(line)
            w.line()
            w.text(support)
            w.line()
        return str(w)

    def render_support(self, structure: StructureEmitter, kernels: Sequence[KernelText]) -> tuple[tuple[str, ...], str]:
        """The includes and the text of the support functions that the program and these kernels use."""
        asked = structure.text.snippets - {"memcpy"}
        if kernels:
            asked.add(width_snippet(self.machine.vector_bytes))
        includes, support = render(asked)
        support = support.replace(HOST_DECLARATIONS.strip("\n") + "\n", "")  # they stand in the header
        shared = dict.fromkeys(snippet.text for kernel in kernels for snippet in kernel.support)
        return includes, "\n".join([support, *shared])

    def write_head(self, w: Writer, kernels: Sequence[KernelText]) -> None:
        """Where the text is from, and how to read it."""
        where = self.function.where
        origin = (
            f"{display_path(where.file).rsplit('/', 1)[-1]}, function `{self.function.name}`"
            if where
            else f"function `{self.function.name}`"
        )
        w.comment(f"Generated by staged from {origin}. Edit that, not this file.")
        w.comment(f"backend {self.backend}; target {self.machine.name}; row-major; the sizes below were fixed while staging")
        if kernels:
            w.comment(f"{self.overview} `{self.name}`, near the end, calls them in the order of the program.")
        w.line()

    def write_buffers(self, w: Writer, structure: StructureEmitter) -> None:
        if not self.state:
            return
        w.section("sizes and buffers")
        if self.scratch_bytes:
            w.line(f"enum {{ SCRATCH_BYTES = {self.scratch_bytes} }};  // workspace of one thread")
            w.line()
        w.comment("Where values are kept; those whose lives do not overlap share memory.")
        width = max(len(state.declaration) for state in self.state)
        with w.block("typedef struct", " Buffers;"):
            for state in self.state:
                w.line(f"{state.declaration:<{width}}  // {safe_comment(state.note)}")

    def write_first_values(
        self, w: Writer, inner: Sequence[tuple[VariableRef, str]], structure: StructureEmitter
    ) -> None:
        """What an earlier call has left is forgotten, and the numbers that are Variables of the program are there."""
        for made in self.functions.values():
            for stack in made.plan.stacks:
                w.line(f"st_stack_reset({made.structure.field(stack)});")
        for variable, name in inner:
            w.line(f"{variable.type.dtype.c_name} {name} = {_first_value(structure.w.lines, name) or '0'};")

    def write_begin(self, w: Writer) -> None:
        """What a back end does before the program knows where its buffers are: nothing here."""
        return

    def write_entry(self, w: Writer, structure: StructureEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        begin = len(w.lines)
        head = f"int {self.name}(const {self.name}_args *args, void *arena, st_host *host)"
        body, own = head, ""
        if self.is_recursive:
            own = self.names.fresh(f"{self.name}_body")
            body = f"static int {own}(const void *given, void *arena, st_host *host)"
            w.comment(f"What `{self.name}` does, on the program's own stack.")
            begin += 1
        around, inside = body, ""
        if "files" in structure.text.snippets:
            inside = self.names.fresh(f"{self.name}_with_files")
            given = "void *given" if self.is_recursive else f"{self.name}_args *args"
            body = f"static int {inside}(const {given}, void *arena, st_host *host)"
        with w.block(body):
            if self.is_recursive:
                w.line(f"const {self.name}_args *const args = given;")
            self.write_begin(w)
            shared = {state.value for state in self.state}
            early = [(variable, name) for variable, name in inner if f"&{name}" in shared]
            for variable, name in early:
                w.line(f"{variable.type.dtype.c_name} {name} = 0;")
            if self.state:
                if any("base" in state.value for state in self.state):
                    w.line("unsigned char *const base = arena;")
                else:
                    w.line("(void)arena;")
                with w.block("const Buffers buffers =", ";"):
                    for state in self.state:
                        w.line(f".{state.name} = {state.value},")
                w.line("const Buffers *const m = &buffers;")
            else:
                w.line("(void)arena;")
            if not self.is_recursive:
                w.line("host->error_kind = ST_OK;")
                w.line("host->error_claimed = 0;")
            if not self.parameters:
                w.line("(void)args;")
            if self.uses_store:
                w.line("st_frames_release(m->frames, 0);")
            self.write_first_values(w, [pair for pair in inner if pair not in early], structure)
            w.lines += structure.w.lines
        w.lines[begin:] = drop_unused_locals(w.lines[begin:])
        if inside:
            w.line()
            w.comment("Files that are still open are closed, however the program ends.")
            with w.block(around):
                w.line(f"(void){inside}({'given' if self.is_recursive else 'args'}, arena, host);")
                w.line("return st_close_files(host);")
        if self.is_recursive:
            w.line()
            with w.block(head):
                place = f"(st_own_stack *)(void *)((unsigned char *)arena + {self.own_stack_offset()})"
                w.line(f"return st_run_on_stack({place}, STACK_RESERVE, {own}, args, arena, host);")


def _first_value(lines: list[str], name: str) -> str:
    """The number that a function's first statement assigns to `name`, which it then need not; nothing if it does not."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith("//"):
            continue
        found = re.fullmatch(rf" *{name} = (-?\d+);", line)
        if found:
            del lines[number]
        return found[1] if found else ""
    return ""


def describe(buffer: Buffer) -> str:
    return note_of(shape_text(buffer.type.shape), buffer.role, buffer.where)


def note_of(type: str, role: str, where: Position | None) -> str:
    """What a field of `Buffers` is, for people: `(300, 450)  gradient  model.py:12  y = x @ w`."""
    return type + (f"  {role}" if role else "") + (f"  {where.short}  {where.text}" if where else "")


def _sections(
    kernels: Sequence[KernelText], structures: Sequence[StructureEmitter]
) -> list[tuple[str, list[KernelText]]]:
    """Kernels by what they are for, in the order of first call within each section."""
    initial: set[str] = set()
    updates: set[str] = set()
    for structure in structures:
        once = set(structure.function.block.ops) if structure is structures[-1] else set()
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
