"""The structure of a program with a device: that of C, and copies between the two memories.

Tested by `tests/backends/cublas_cudnn/test_programs.py` and `tests/backends/cublas_cudnn/test_functions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from staged.backends.cublas_cudnn.device import DEVICE, STREAM
from staged.backends.cublas_cudnn.failures import finite_check_name
from staged.backends.cublas_cudnn.functions import (
    CALLS,
    FRAMES,
    has_device_fields,
    maker_name,
    stores_in_use,
)
from staged.backends.cublas_cudnn.graphs import Graphs
from staged.backends.cublas_cudnn.peers import DEVICES, device_field
from staged.backends.cublas_cudnn.runs import is_call
from staged.backends.cublas_cudnn.sequences import SequenceTexts
from staged.backends.cublas_cudnn.staging import Stagings
from staged.backends.cublas_cudnn.steps import CallStep, CopyStep, LoopStep, Step
from staged.backends.gpu.addresses import device_of
from staged.backends.gpu.alignment import ALIGNED
from staged.backends.gpu.crossings import begin_copy, device_push
from staged.backends.gpu.failures import RECORD_BYTES, read_records
from staged.backends.host.body import BodyEmitter
from staged.backends.host.counts import signed
from staged.backends.host.functions import OWN_ON_DEVICE
from staged.backends.host.loops import layer_of
from staged.base.artifact import Parameter, event_fields
from staged.code.expr import (
    Cast,
    Expr,
    Index,
    Infix,
    Literal,
    Member,
    Name,
    Place,
    Prefix,
    Sizeof,
    call,
    member,
)
from staged.code.tree import Comment, ForAny
from staged.code.types import BYTES, INDEX, word
from staged.ir.buffers import Buffer, Stack
from staged.ir.devices import value_devices
from staged.ir.names import name_of, users_name
from staged.ir.nodes import End, Op, Value, VariableRef
from staged.ir.storage import root_of
from staged.ir.transfers import Transfer
from staged.ir.trips import static_range
from staged.ir.types import CPU, Device, DType, FrameType, SequenceType, TensorType
from staged.source import Position

DEVICE_BUFFERS = "d"
"""The struct of the device's buffers in the text; the host's is `m`."""


@dataclass
class FiniteChecks:
    """The checks for NaN and infinity on the device: site and name by number, and the dtypes of the arrays."""

    rows: list[tuple[int, str]] = field(default_factory=list)
    dtypes: list[DType] = field(default_factory=list)

    def number(self, site: int, name: str, dtype: DType) -> int:
        """The number of a new check."""
        self.rows.append((site, name))
        if dtype not in self.dtypes:
            self.dtypes.append(dtype)
        return len(self.rows) - 1


class CudaBody(BodyEmitter):
    """Emits the body of one function of the host."""

    backend = "cublas_cudnn"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local_names.used |= {DEVICE_BUFFERS, "m", "gpu", "base", "buffers", "device_buffers"}
        self.devices: tuple[Device, ...] = ()
        """The program's GPUs."""
        self.current: Device | None = None
        """The one that the calls of CUDA that are written next are for, where that is known."""
        self.device_marks: dict[Name, list[tuple[Expr, Name]]] = {}
        """By mark of the program's store, each store of a device and its mark."""
        self.is_entry = True
        self.program_parameters: Sequence[Parameter] = ()
        """The parameters of the program."""
        self.departs = False
        """True if the program returns before the work on the device is over."""
        self.locals_on_device = ""
        """The type of the struct of a call's arrays on the device; empty where it has none."""
        self.structures: Sequence[CudaBody] = ()
        """Those of all functions of the program."""
        self.calls_marks: dict[Device, Name] = {}
        """The mark in each device's store of open calls at the function's entry."""
        self.finite_checks = FiniteChecks()
        self.sequence_texts = SequenceTexts()
        self.waits_later: set[Op] = set()
        """Copies to the host right before another one: the program waits for them together."""
        self.is_idle = False
        """True if the device has done all that it was given: what was written last waits for it."""
        self.kernels_may_fail = False
        """True if kernels' reports are read wherever the program waits for them."""
        self.graphs: Graphs | None = None
        """The writer of graphs for runs of loops; None if they are not captured."""
        self.stagings: Stagings | None = None
        """The writer of staged copies in loops from host to device; None for ordinary copies."""
        self.steps: list[Step] | None = None
        """The calls of the run, or of the iteration of a loop in it, that is being written."""
        self.around: list[list[Step]] = []
        """The steps before each open loop of the run."""

    def field(self, buffer: Buffer | Stack) -> Expr:
        if buffer in self.places or not isinstance(buffer, Buffer) or buffer.device == CPU:
            return super().field(buffer)
        if buffer.kind == "arena":
            return Place(Member(Name(DEVICE_BUFFERS), self.fields[buffer]), buffer.device)
        field = super().field(buffer)
        return Place(field, buffer.device) if buffer.kind == "input" or buffer.kind == "variable" else field

    def members(self, family: VariableRef) -> Expr:
        if family.device == CPU:
            return super().members(family)
        return Place(Member(Name(DEVICE_BUFFERS), self.family_fields[family]), family.device)

    def is_on_device(self, pointer: Expr) -> bool:
        """Return whether an expression points into a device's memory."""
        return device_of(pointer) != CPU

    # ---- the current device ----

    def use(self, device: Device) -> None:
        """The calls of CUDA that follow are for `device`."""
        if len(self.devices) > 1 and device in self.devices and device != self.current:
            use = call("use_device", Prefix("&", Name("gpu")), self.struct_of(device))
            self.code.do("CUDA_CHECK", self.site_of(self.last_where), use)
            self.current = device

    def struct_of(self, device: Device) -> Expr:
        """The address of the struct of one of several devices."""
        return Prefix("&", Index(Name(DEVICES), Literal(str(self.devices.index(device)))))

    # ---- runs of a loop's iteration ----

    def settle(self) -> None:
        """Write the calls of a run, all of its host's part being written."""
        if self.around:
            return
        steps, self.steps = self.steps, None
        if steps:
            assert self.graphs is not None
            self.graphs.write(self, steps)

    def emit_kernel_call(self, op: Op) -> None:
        if self.steps is None or not is_call(op, self.kernels):
            super().emit_kernel_call(op)
            return
        if op in self.plan.unfilled:
            return
        self.text.called.append(op)
        inputs = [self.operand(operand) for operand in op.operands]
        self.steps.append(CallStep(op, inputs, [self.pointer(result) for result in op.results]))

    def open_loop(self) -> None:
        """The calls that follow are those of each iteration of a loop in the run."""
        assert self.steps is not None
        self.around.append(self.steps)
        self.steps = []

    def note_loop(self, op: Op, loop: ForAny) -> None:
        """The loop that was opened last is a step of the run, and its line is named there."""
        assert self.steps is not None
        indices = static_range(op)
        assert indices is not None
        steps, self.steps = self.steps, self.around.pop()
        self.steps.append(LoopStep(loop, tuple(steps), indices, op.where, layer_of(op, loop.index)))
        self.forget_comment()

    def note_copy(self, steps: list[Step], target: Expr, source: Expr, type: TensorType) -> None:
        """A copy on the device is a call of the run, too, and its line is named there."""
        steps.append(CopyStep(target, source, type, self.last_where))
        self.forget_comment()

    def forget_comment(self) -> None:
        """Take back the line that was named last."""
        if self.code.body and isinstance(self.code.body[-1], Comment):
            self.code.body.pop()
            self.last_where = None

    def check(self, where: Position | None, checked: Expr) -> None:
        """A checked CUDA call."""
        self.code.do("CUDA_CHECK", self.site_of(where), checked)

    def pushed(self, stack: Stack, source: Expr, item_bytes: Expr, type: TensorType) -> Expr:
        if stack.device == CPU:
            return super().pushed(stack, source, item_bytes, type)
        self.settle()
        self.use(stack.device)
        return device_push(self, stack, source, item_bytes, type)

    def wait(self, op: Op | End) -> None:
        """Let the device finish what it has been given; the program stops if a kernel must not go on."""
        self.is_idle = True
        if not self.kernels_may_fail:
            self.check(op.where, call("cudaStreamSynchronize", STREAM))
        else:
            self.need("fail")
            read_records(self, op, self.devices)

    def emit_finite_check(self, result: Value, made: Value, pointer: Expr) -> None:
        if not self.is_on_device(pointer):
            super().emit_finite_check(result, made, pointer)
            return
        type = result.tensor
        if not type.dtype.is_float or not type.size:
            return
        where = made.producer.where if made.producer is not None else None
        name = users_name(result, made)
        number = self.finite_checks.number(self.site_of(where), name, type.dtype)
        self.use(device_of(pointer))
        count = self.count(type)
        check = f"launch_{finite_check_name(type.dtype)}"
        if isinstance(count, Literal):
            self.check(where, call(check, "gpu", pointer, count, number))
            return
        with self.code.branch(Infix(">", count, Literal("0"))):
            self.check(where, call(check, "gpu", pointer, signed(count), number))

    # ---- copies ----

    def emit_copy(self, op: Op) -> None:
        """A value crosses between host and device, or from another device, or moves to an aligned address."""
        (value,) = op.operands
        if op.attrs["source"] == op.device:
            self.copy(*begin_copy(self, op, f"a multiple of {ALIGNED} bytes"), value.tensor)
            return
        to_host = op.device == CPU
        there = "the host" if to_host else "the device" if len(self.devices) == 1 else str(op.device)
        target, source = begin_copy(self, op, there)
        self.use(op.attrs["source"] if to_host else op.device)
        if op.attrs["source"] != CPU and not to_host:
            self.copy_from_peer(op, target, source, value.tensor)
            return
        if not to_host and self.stagings is not None and self.c_loops and value.tensor.size:
            place = name_of(op.result), target, source, value.tensor.nbytes, self.nbytes(value.tensor)
            self.try_(self.stagings.call(self.site_of(op.where), *place))
            return
        self.copy_between(op, target, source, value.tensor, "DeviceToHost" if to_host else "HostToDevice")
        if value.tensor.size and (op not in self.waits_later if to_host else self.is_written_again(value)):
            self.wait(op)
        elif not to_host and self.departs and self.plan.place[root_of(value)].kind == "input":
            self.uploaded.add(self.fields[self.plan.place[root_of(value)]])

    def is_written_again(self, value: Value) -> bool:
        """Return whether the host may write to an array's place while a copy of it is under way.

        Exact: an argument of the program keeps its elements until the work is over, and so does a table in the source
        code. An argument of a function may be any place of its caller. A Variable may change after a program departs.
        """
        buffer = self.plan.place.get(root_of(value))
        if buffer is None or buffer.kind == "constant":
            return buffer is None
        lasts = buffer.kind == "input" or buffer.kind == "variable" and not self.departs
        return not (self.is_entry and lasts)

    def copy_from_peer(self, op: Op, target: Expr, source: Expr, type: TensorType) -> None:
        """From another device of the program; or an argument that the caller has on one: who wrote it there has waited
        for it.
        """
        if not type.size:
            return
        origin: Device = op.attrs["source"]
        if origin in self.devices:
            peer, site = self.struct_of(origin), self.site_of(op.where)
            self.try_(call("copy_from_peer", "gpu", peer, "host", site, target, source, self.nbytes(type)))
        else:
            ends = target, op.device.index, source, origin.index
            self.check(op.where, call("cudaMemcpyPeerAsync", *ends, self.nbytes(type), STREAM))

    def copy_between(self, op: Op | End, target: Expr, source: Expr, type: TensorType, direction: str) -> None:
        if type.size:
            size = self.nbytes(type) if type.size != 1 else Sizeof(type.dtype.c_name)
            self.check(op.where, call("cudaMemcpyAsync", target, source, size, f"cudaMemcpy{direction}", STREAM))

    def copy(self, target: Expr, source: Expr, type: TensorType) -> None:
        assert device_of(source) == device_of(target), "placement makes every crossing a copy of its own"
        if not self.is_on_device(target):
            super().copy(target, source, type)
            return
        if not type.size:
            return
        if self.steps is not None:
            self.note_copy(self.steps, target, source, type)
            return
        self.settle()
        self.use(device_of(target))
        self.is_idle = False
        copy = target, source, self.nbytes(type), "cudaMemcpyDeviceToDevice", STREAM
        self.check(self.last_where, call("cudaMemcpyAsync", *copy))

    # ---- functions ----

    def begin_function(self) -> None:
        """One piece of memory for the arrays of the call on each device."""
        if len(self.devices) > 1:
            self.declared("gpu", DEVICE, Name(DEVICES), is_const=False)
        if not self.locals_on_device:
            return
        self.need("frames")
        site = self.site_of(self.function.where)
        for device in (device for device in self.devices if device in self.plan.local_bytes):
            nbytes = self.plan.local_bytes[device]
            self.use(device)
            store = Prefix("&", member("gpu", CALLS))
            self.calls_marks[device] = self.local("called", INDEX, call("st_frames_mark", store))
            push = call("st_device_push", "host", store, site, nbytes, Literal('"open calls"'))
            memory = self.local("arrays", BYTES, push)
            self.leave_if(Infix("==", memory, Name("NULL")))
            if len(self.calls_marks) == 1:
                self.declared(OWN_ON_DEVICE, word(self.locals_on_device), is_const=False)
            for buffer in self.plan.local_buffers(device):
                offset = Infix("+", memory, Literal(str(buffer.offset)))
                self.assign(self.places[buffer], Cast(f"{buffer.type.dtype.c_name} *", Cast("void *", offset)))

    def depart(self, end: End) -> None:
        """Let the failure of a kernel and an event follow the work on the device, for which the host does not wait."""
        fields = event_fields(self.program_parameters, departs=True)
        if self.kernels_may_fail and not self.is_idle:
            failed = member("gpu", "failed")
            report = member("args", fields.report), failed, Prefix("sizeof *", failed), "cudaMemcpyDeviceToHost", STREAM
            self.check(end.where, call("cudaMemcpyAsync", *report))
            self.own_copies[end] = [Transfer("failure record", self.devices[0], CPU, RECORD_BYTES, "failure")]
        event = Cast("cudaEvent_t", member("args", fields.departure))
        self.check(end.where, call("cudaEventRecord", event, STREAM))

    def before_return(self, end: End) -> None:
        if self.is_entry and self.departs:
            self.depart(end)
            return
        if self.is_entry and self.is_idle and len(self.devices) == 1:
            return
        if self.is_entry:
            for device in self.devices:
                self.use(device)
                self.wait(end)
        for device, mark in self.calls_marks.items():
            self.code.do("st_frames_release", Prefix("&", device_field(device, self.devices, CALLS)), mark)

    # ---- frames ----

    @cached_property
    def homes(self) -> dict[Value, Device]:
        """The device of each value."""
        return value_devices(self.function)

    def home_of_elements(self, value: Value) -> Device:
        """The device of the elements of a handle's innermost sequences; the host for frames."""
        type = value.type
        while isinstance(type, SequenceType):
            type = type.element
        return CPU if isinstance(type, FrameType) else self.homes.get(value, CPU)

    @cached_property
    def has_device_handles(self) -> bool:
        """Return whether any handle has its elements on a device."""
        return any(self.home_of_elements(value) != CPU for value in self.plan.handles.values)

    def new_frame(self, record: str) -> Expr:
        self.current = None
        return call(maker_name(record), "m", "gpu" if len(self.devices) == 1 else DEVICES, "host")

    @property
    def keeps_on_device(self) -> bool:
        """Return whether the program keeps arrays of a device for gradients: in frames, or in sequences that travel."""
        return any(map(has_device_fields, self.records.values())) or any(s.has_device_handles for s in self.structures)

    def keep_store(self, hint: str) -> Name:
        mark = super().keep_store(hint)
        if self.keeps_on_device:
            for store in stores_in_use(FRAMES, self.devices):
                own = self.local(f"{hint}_on_device", INDEX, call("st_frames_mark", store))
                self.device_marks.setdefault(mark, []).append((store, own))
        return mark

    def release_store(self, mark: Name) -> None:
        super().release_store(mark)
        for store, name in self.device_marks.get(mark, ()):
            self.code.do("st_frames_release", store, name)
