"""The entry function of a program with a device: it opens the device, says where values are, and does what the program
does.

Tested by `tests/backends/cublas_cudnn/test_text.py` and `tests/backends/cublas_cudnn/test_residency.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staged.backends.cublas_cudnn.device import DEVICE, STREAM
from staged.backends.cublas_cudnn.functions import (
    CALLS,
    FRAMES,
    stores_in_use,
)
from staged.backends.cublas_cudnn.peers import (
    DEVICES,
    add_opening,
    device_field,
)
from staged.backends.cublas_cudnn.program import CudaProgram
from staged.backends.cublas_cudnn.structure import DEVICE_BUFFERS
from staged.backends.gpu.alignment import ALIGNED
from staged.backends.host.argument_fields import ArgumentField
from staged.backends.host.body import FRAMES as STORE
from staged.backends.host.body import LEAVE, OK, BodyEmitter
from staged.backends.host.buffer_structs import BASE, State, describe, place_in
from staged.backends.host.checked_fields import write_checked_fields
from staged.backends.host.file import ProgramFile, add_no_error, add_shared_scalars
from staged.base.artifact import event_fields
from staged.code.expr import (
    Cast,
    Expr,
    Index,
    Infix,
    Junction,
    Literal,
    Member,
    Name,
    Prefix,
    Variable,
    call,
    member,
)
from staged.code.printer import print_body
from staged.code.tree import (
    Assign,
    Blank,
    CodeBuilder,
    Declare,
    DeclareTable,
    Do,
    For,
    ForAny,
    If,
    Jump,
    Statement,
    Unused,
)
from staged.code.types import BYTES, INDEX, CType, Space, pointer, word
from staged.code.unused import drop_unused_locals, names_used
from staged.code.writer import Writer, c_string
from staged.ir.nodes import VariableRef
from staged.ir.types import CPU


class CudaEntry:
    """Writes the function that callers know."""

    def __init__(self, file: ProgramFile, program: CudaProgram) -> None:
        self.file = file
        self.program = program

    def write(self, w: Writer, structure: BodyEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        head = f"int {self.program.name}(const {self.program.name}_args *args, void *arena, st_host *host)"
        base = Declare(Variable("base", BYTES), Cast(BYTES, Name("arena")))
        write_checked_fields(w, self.program.name, self.file.checked_fields)
        if not self.program.is_recursive:
            body = [*self.begin(), *self.body(structure, inner)]
            # There may be none, or none that has an element.
            unused = [] if "args" in names_used(body) else [Unused((Name("args"),))]
            with w.block(head):
                self.file.write_null_check(w)
                w.lines += print_body(drop_unused_locals([base, *unused, *body]))
            return
        own = self.program.names.fresh(f"{self.program.name}_body")
        args = pointer(word(f"{self.program.name}_args"), Space.GLOBAL, is_const=True)
        given: list[Statement] = [Declare(Variable("args", args), Cast(args, Name("given")))]
        if not self.program.parameters:
            given.append(Unused((Name("args"),)))
        w.comment(f"What `{self.program.name}` does, on the program's own stack.")
        with w.block(f"static int {own}(const void *given, void *arena, st_host *host)"):
            code = CodeBuilder([*given, base])
            self.add_device(code)
            w.lines += print_body(drop_unused_locals([*code.body, *self.body(structure, inner)]))
        w.line()
        with w.block(head):
            self.file.write_null_check(w)
            stack = pointer(word("st_own_stack"), Space.GLOBAL)
            place = place_in(BASE, "st_own_stack", self.program.own_stack_offset())
            run = call("st_run_on_stack", "stack", "STACK_RESERVE", own, "args", "arena", "host")
            end = Declare(Variable("stack", stack), place), Jump("return", value=run)
            w.lines += print_body([base, *self.begin(), *end])

    def begin(self) -> list[Statement]:
        """No error yet, and the device, or devices, open."""
        code, several = CodeBuilder(), len(self.program.devices) > 1
        add_no_error(code)
        self.add_check_of_addresses(code)
        if several:
            self.add_devices(code)
            if not self.program.is_recursive:
                code.add(Declare(Variable("gpu", DEVICE), Name(DEVICES), is_const=False))
            site, checks = self.program.site(self.program.function.where), bool(self.program.finite_checks.dtypes)
            add_opening(code, self.program.name, site, self.program.devices, self.program.kernels_may_fail, checks)
        else:
            self.add_device(code)
            is_new = Prefix("!", member("gpu", "is_open")), Infix("!=", call("open_device", "gpu", "host"), OK)
            with code.branch(Junction("&&", is_new)):
                code.do(f"{self.program.name}_release", "arena")
                code.add(LEAVE)
        self.add_wait_for_arrivals(code)
        return code.body

    def add_check_of_addresses(self, code: CodeBuilder) -> None:
        """Check the addresses of the arguments that kernels and libraries depend on (`arguments.py`)."""
        aligned = [each for each in self.program.parameters if each.alignment > 1]
        fields = [each.field for each in aligned if each.index is None]
        if len(fields) == 1:
            code.comment(f"Threads or a library access {ALIGNED} bytes of it at once.")
            code.add(self.check_of_address(member("args", fields[0]), f"`{fields[0]}`"))
        elif fields:
            with code.block():
                self.add_checks_of_addresses(code, [member("args", field) for field in fields])
        families: dict[tuple[str, str], int] = {}
        for each in aligned:
            if each.index is not None:
                families[each.array, each.field] = families.get((each.array, each.field), 0) + 1
        layer = Variable("layer", INDEX)
        for count in dict.fromkeys(families.values()):
            found = [ArgumentField(name, array) for (array, name), number in families.items() if number == count]
            with code.nested() as inner:
                self.add_checks_of_addresses(code, [each.at(Name("args"), layer) for each in found])
            code.add(For(layer, Literal("0"), Literal(str(count)), tuple(inner)))

    def add_checks_of_addresses(self, code: CodeBuilder, addresses: Sequence[Expr]) -> None:
        """Add a table of addresses and a loop that checks each of them."""
        arrays, number = Variable("arrays", CType("void *", is_pointer=True)), Variable("number", INDEX)
        code.comment(f"Threads or libraries access {ALIGNED} bytes of these at once.")
        code.add(DeclareTable(arrays, tuple(addresses)))
        check = self.check_of_address(Index(arrays, number), "an array on the device")
        code.add(For(number, Literal("0"), Literal(str(len(addresses))), (check,)))

    def check_of_address(self, array: Expr, what: str) -> If:
        """Stop the program with an error unless an array begins at a multiple of `ALIGNED` bytes."""
        site = self.program.site(self.program.function.where)
        words = Literal(c_string(f"{what} is at %p, not at a multiple of {ALIGNED} bytes"))
        shown = Cast("const void *", array) if isinstance(array, Member) else array
        failed = call("st_fail", "host", "ST_VALUE_ERROR", site, words, shown)
        rest = Infix("%", Cast("uintptr_t", array), Literal(str(ALIGNED)))
        return If(Infix("!=", rest, Literal("0")), (Jump("return", value=failed),))

    def add_wait_for_arrivals(self, code: CodeBuilder) -> None:
        """Inputs on a device may be on their way there: the streams wait for them, the host does not.

        Exact: all that the program does on a device comes later on one of the streams.
        """
        name = event_fields(self.program.parameters, self.program.departs).arrivals
        site = self.program.site(self.program.function.where)
        if not name:
            return
        event = Variable("event", CType("void *const *", is_pointer=True))
        known = tuple(Infix("!=", each, Name("NULL")) for each in (event, Prefix("*", event)))
        waits = []
        for device in self.program.devices:
            stream = device_field(device, self.program.devices, "stream")
            wait = call("cudaStreamWaitEvent", stream, Cast("cudaEvent_t", Prefix("*", event)), 0)
            waits.append(Do(call("CUDA_CHECK", site, wait), note="they are on their way"))
        code.add(ForAny(event, member("args", name), Junction("&&", known), Do(Prefix("++", event)), tuple(waits)))

    def add_devices(self, code: CodeBuilder) -> None:
        """Add the structs of several devices."""
        place = place_in(BASE, "Device", self.program.device_offset())
        code.add(Declare(Variable(DEVICES, DEVICE), place))

    def add_device(self, code: CodeBuilder) -> None:
        """Add the program's device, or the first of several, on this thread."""
        site, note = self.program.site(self.program.function.where), "this thread may have used another one"
        if len(self.program.devices) > 1:
            self.add_devices(code)
            code.add(Declare(Variable("gpu", DEVICE), Name(DEVICES), is_const=False))
            use = call("use_device", Prefix("&", Name("gpu")), DEVICES)
            code.add(Do(call("CUDA_CHECK", site, use), note))
            return
        code.add(Do(call("CUDA_CHECK", site, call("cudaSetDevice", self.program.devices[0].index)), note))
        code.add(Declare(Variable("gpu", DEVICE), place_in(BASE, "Device", self.program.device_offset())))

    def body(self, structure: BodyEmitter, inner: list[tuple[VariableRef, str]]) -> list[Statement]:
        """The buffers, what an earlier call may have left, and what the program does."""
        code = CodeBuilder()
        late = add_shared_scalars(code, self.program.state, inner)
        on_host = [state for state in self.program.state if state.device == CPU]
        for struct, name, short, states in (
            ("Buffers", "buffers", "m", on_host),
            ("DeviceBuffers", "device_buffers", DEVICE_BUFFERS, device_state(self.program)),
        ):
            if states:
                buffers = Variable(name, word(struct))
                code.add(Declare(buffers, is_const=False))
                for state in states:
                    code.add(Assign(Member(buffers, state.name, arrow=False), state.value))
                # Where all arrays are empty, it is unused.
                all_of_it = pointer(buffers.type, Space.GLOBAL, is_const=True)
                code.add(Declare(Variable(short, all_of_it), Prefix("&", buffers), is_kept=True))
        self.program.graphs.add_check_of_arguments(code)
        if self.program.kernels_may_fail and len(self.program.devices) == 1:
            failed = member("gpu", "failed")
            forget = call("cudaMemsetAsync", failed, 0, Prefix("sizeof *", failed), STREAM)
            code.do("CUDA_CHECK", self.program.site(self.program.function.where), forget)
            if self.program.finite_checks.dtypes:
                code.add(Assign(member("gpu", "finite_checks"), Literal("0")))
        if self.program.uses_store:
            code.do("st_frames_release", STORE, 0)
        stores = [
            *([CALLS] if self.program.device_locals else []),
            *([FRAMES] if self.program.has_device_store else []),
        ]
        for store in (each for name in stores for each in stores_in_use(name, self.program.devices)):
            code.do("st_frames_release", store, 0)
        self.file.add_first_values(code, late, structure)
        code.add(Blank())
        return [*code.body, *structure.code.body]


def device_state(program: CudaProgram) -> list[State]:
    """The fields of the devices' buffers, one device after the other."""
    found = [state for state in program.state if state.device != CPU]
    for buffer in program.graphs.buffers:
        c_type = f"{buffer.type.dtype.c_name} *"
        offset = Infix("+", member("gpu", "memory"), Literal(str(buffer.offset)))
        place = Cast(c_type, Cast("void *", offset))
        found.append(State(c_type, buffer.name, place, describe(buffer), buffer.device))
    if len(program.devices) > 1:
        found = [replace(state, note=f"{state.device}: {state.note}") for state in found]
    return sorted(found, key=lambda state: program.devices.index(state.device))
