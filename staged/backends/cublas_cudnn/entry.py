"""The entry function of a program with a device: it opens the device, says where values are, and does what the program
does.

Tested by `tests/backends/cublas_cudnn/test_text.py` and `tests/backends/cublas_cudnn/test_residency.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from staged.artifact import arrivals_field
from staged.backends.c_family.file import ProgramFile, State, describe
from staged.backends.c_family.structure import StructureEmitter
from staged.backends.c_family.unused import drop_unused_locals, mentions
from staged.backends.c_family.writer import INDENT, Writer
from staged.backends.cublas_cudnn.functions import (
    CALLS,
    FRAMES,
    stores_in_use,
)
from staged.backends.cublas_cudnn.peers import (
    DEVICES,
    write_opening,
)
from staged.backends.cublas_cudnn.program import CudaProgram
from staged.backends.cublas_cudnn.structure import DEVICE_BUFFERS
from staged.ir.nodes import VariableRef
from staged.ir.types import CPU


class CudaEntry:
    """Writes the function that callers know."""

    def __init__(self, file: ProgramFile, program: CudaProgram) -> None:
        self.file = file
        self.program = program

    def write(self, w: Writer, structure: StructureEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        head = f"int {self.program.name}(const {self.program.name}_args *args, void *arena, st_host *host)"
        if not self.program.is_recursive:
            begin = len(w.lines)
            with w.block(head):
                w.line("unsigned char *const base = (unsigned char *)arena;")
                start = len(w.lines)
                self.write_begin(w)
                self.write_body(w, structure, inner)
                if not any(re.search(r"^[^/]*\bargs\b", line) for line in w.lines[start:]):
                    w.lines.insert(start, f"{INDENT}(void)args;")  # there are none, or none has an element
            w.lines[begin:] = drop_unused_locals(_with_unread_pointers(w.lines[begin:]))
            return
        body = self.program.names.fresh(f"{self.program.name}_body")
        w.comment(f"What `{self.program.name}` does, on the program's own stack.")
        begin = len(w.lines)
        with w.block(f"static int {body}(const void *given, void *arena, st_host *host)"):
            w.line(f"const {self.program.name}_args *const args = (const {self.program.name}_args *)given;")
            if not self.program.parameters:
                w.line("(void)args;")
            w.line("unsigned char *const base = (unsigned char *)arena;")
            self.write_device(w)
            self.write_body(w, structure, inner)
        w.lines[begin:] = drop_unused_locals(_with_unread_pointers(w.lines[begin:]))
        w.line()
        with w.block(head):
            w.line("unsigned char *const base = (unsigned char *)arena;")
            self.write_begin(w)
            w.line(f"st_own_stack *const stack = (st_own_stack *)(void *)(base + {self.program.own_stack_offset()});")
            w.line(f"return st_run_on_stack(stack, STACK_RESERVE, {body}, args, arena, host);")

    def write_begin(self, w: Writer) -> None:
        """No error yet, and the device, or devices, open."""
        w.line("host->error_kind = ST_OK;")
        w.line("host->error_claimed = 0;")
        if len(self.program.devices) > 1:
            w.line(f"Device *const {DEVICES} = (Device *)(void *)(base + {self.program.device_offset()});")
            if not self.program.is_recursive:
                w.line(f"Device *gpu = {DEVICES};")
            site, checks = self.program.site(self.program.function.where), bool(self.program.finite_checks.dtypes)
            write_opening(w, self.program.name, site, self.program.devices, self.program.kernels_may_fail, checks)
        else:
            self.write_device(w)
            with w.block("if (!gpu->is_open && open_device(gpu, host) != ST_OK)"):
                w.line(f"{self.program.name}_release(arena);")
                w.line("return host->error_kind;")
        self.write_wait_for_arrivals(w)

    def write_wait_for_arrivals(self, w: Writer) -> None:
        """Inputs on a device may be on their way there: the streams wait for them, the host does not.

        Exact: all that the program does on a device comes later on one of the streams.
        """
        field, site = arrivals_field(self.program.parameters), self.program.site(self.program.function.where)
        if not field:
            return
        with w.block(f"for (void *const *event = args->{field}; event != NULL && *event != NULL; ++event)"):
            for device in self.program.devices:
                stream = f"{self.program.device_name(device)}stream"
                w.line(
                    f"CUDA_CHECK({site}, cudaStreamWaitEvent({stream}, (cudaEvent_t)*event, 0));  // they are on their "
                    "way"
                )

    def write_device(self, w: Writer) -> None:
        """The program's device, or the first of several, on this thread."""
        site, number = self.program.site(self.program.function.where), self.program.devices[0].index
        if len(self.program.devices) > 1:
            w.line(f"Device *const {DEVICES} = (Device *)(void *)(base + {self.program.device_offset()});")
            w.line(f"Device *gpu = {DEVICES};")
            w.line(f"CUDA_CHECK({site}, use_device(&gpu, {DEVICES}));  // this thread may have used another one")
            return
        w.line(f"CUDA_CHECK({site}, cudaSetDevice({number}));  // this thread may have used another one")
        w.line(f"Device *const gpu = (Device *)(void *)(base + {self.program.device_offset()});")

    def write_body(self, w: Writer, structure: StructureEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        """The buffers, what an earlier call may have left, and what the program does."""
        shared = {state.value for state in self.program.state}
        early = [(variable, name) for variable, name in inner if f"&{name}" in shared]
        for variable, name in early:
            w.line(f"{variable.type.dtype.c_name} {name} = 0;")
        on_host = [state for state in self.program.state if state.device == CPU]
        for struct, name, pointer, states in (
            ("Buffers", "buffers", "m", on_host),
            ("DeviceBuffers", "device_buffers", DEVICE_BUFFERS, device_state(self.program)),
        ):
            if states:
                w.line(f"{struct} {name};")
                for state in states:
                    w.line(f"{name}.{state.name} = {state.value};")
                w.line(f"const {struct} *const {pointer} = &{name};")
        self.program.graphs.write_check_of_arguments(w)
        if self.program.kernels_may_fail and len(self.program.devices) == 1:
            forget = "cudaMemsetAsync(gpu->failed, 0, sizeof *gpu->failed, gpu->stream)"
            w.line(f"CUDA_CHECK({self.program.site(self.program.function.where)}, {forget});")
            if self.program.finite_checks.dtypes:
                w.line("gpu->finite_checks = 0;")
        if self.program.uses_store:
            w.line("st_frames_release(m->frames, 0);")
        stores = [
            *([CALLS] if self.program.device_locals else []),
            *([FRAMES] if self.program.has_device_store else []),
        ]
        for store in (each for name in stores for each in stores_in_use(name, self.program.devices)):
            w.line(f"st_frames_release(&{store}, 0);")
        self.file.write_first_values(w, [pair for pair in inner if pair not in early], structure)
        w.line()
        w.lines += structure.w.lines


def device_state(program: CudaProgram) -> list[State]:
    """The fields of the devices' buffers, one device after the other."""
    found = [state for state in program.state if state.device != CPU]
    for buffer in program.graphs.buffers:
        c_type = f"{buffer.type.dtype.c_name} *"
        place = f"({c_type})(void *)(gpu->memory + {buffer.offset})"
        found.append(State(c_type, buffer.name, place, describe(buffer), buffer.device))
    if len(program.devices) > 1:
        found = [replace(state, note=f"{state.device}: {state.note}") for state in found]
    return sorted(found, key=lambda state: program.devices.index(state.device))


def _with_unread_pointers(lines: Sequence[str]) -> list[str]:
    """The lines of the entry function, in which a struct of buffers that nothing reads is marked: its arrays are all
    empty.
    """
    found: list[str] = []
    for line in lines:
        found.append(line)
        declared = re.fullmatch(rf" *const (?:Device)?Buffers \*const (m|{DEVICE_BUFFERS}) = &\w+;", line)
        if declared and not mentions([other for other in lines if other is not line], declared[1]):
            found.append(f"{INDENT}(void){declared[1]};")
    return found
