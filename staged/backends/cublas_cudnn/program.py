"""The parts of a program with a device: kernels, calls of libraries, functions, and state on each device.

Tested by `tests/backends/cublas_cudnn/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Self

from staged.backends.contract import Emitted, Planner
from staged.backends.cublas_cudnn import custom
from staged.backends.cublas_cudnn.arguments import aligned_arguments
from staged.backends.cublas_cudnn.control_flow import CudaControlFlow
from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.cublas_cudnn.device import (
    STREAM,
    DevicePart,
    all_parts,
    distinct,
    failures_part,
    kernels_part,
    memory_part,
    stream_part,
    struct_bytes,
    workspace_part,
)
from staged.backends.cublas_cudnn.functions import (
    frame_bytes,
    frame_makers,
    host_part,
    stores_part,
)
from staged.backends.cublas_cudnn.graph_text import SIZES
from staged.backends.cublas_cudnn.graphs import Graphs
from staged.backends.cublas_cudnn.kernels import CudaLibrary
from staged.backends.cublas_cudnn.launches import launcher_of
from staged.backends.cublas_cudnn.library.call import LibraryCall, parts_of
from staged.backends.cublas_cudnn.peers import (
    DEVICES,
    device_field,
    devices_of,
    opener,
    peer_part,
    records_part,
)
from staged.backends.cublas_cudnn.peers import WORDS as PEER_WORDS
from staged.backends.cublas_cudnn.sequences import SequenceTexts
from staged.backends.cublas_cudnn.stacks import stacks_part
from staged.backends.cublas_cudnn.staging import Stagings
from staged.backends.cublas_cudnn.structure import DEVICE_BUFFERS, CudaBody, FiniteChecks
from staged.backends.gpu.addresses import field_of
from staged.backends.gpu.alignment import ALIGNED, Alignments
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.thread_kernels import begin_launch
from staged.backends.host.body import BodyEmitter
from staged.backends.host.calls import Signature
from staged.backends.host.custom import libraries as libraries_of_users
from staged.backends.host.file import ProgramFile
from staged.backends.host.frames import field_names
from staged.backends.host.program import HEAD, ProgramEmitter
from staged.backends.host.structure import ControlFlow
from staged.code.expr import Expr, Place, call
from staged.code.kernel_text import KernelText
from staged.ir.buffers import DEVICE_ALIGNMENT, Buffer, Plan, aligned
from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.machine import Machine
from staged.ir.nodes import Function, Op, VariableRef, walk_ops
from staged.ir.structure import FRAME_SAVE
from staged.ir.transfers import Transfer
from staged.ir.types import CPU, Device, FrameType, shape_text
from staged.ops.custom import CUSTOM_LAUNCH, CFunction


class CudaProgram(ProgramEmitter):
    """One program with a device, without its text: its kernels and calls, and what it has on the device."""

    backend = "cublas_cudnn"
    language = "cuda"
    body_class = CudaBody
    reserve = 8 << 20
    """CUDA and its libraries take more of the stack than kernels of the host."""
    release_comment = "Gives back what the program has on the device; call it before the arena goes."

    def __init__(self, function: Function, machine: Machine, check_nan: bool) -> None:
        self.launchers: dict[str, str] = {}
        """By kernel, the function that launches it."""
        library = partial(
            CudaLibrary,
            options=function.options,
            gpu=CUDA_GPU,
            alignments=Alignments(function),
            launchers=self.launchers,
        )
        # Host loops that no thread team shares: its C does not compile as C++.
        super().__init__(function, machine.with_cores(1), library, check_nan)
        self.names.used |= {
            "Device",
            "DeviceBuffers",
            "open_device",
            "CUDA_CHECK",
            "wait_for_device",
            "checked",
            "ARENA_BYTES",
            DEVICE_BUFFERS,
            "m",
            "gpu",
        }
        self.devices = devices_of(function)
        # Devices of one program wait for each other: no single event follows the work of them all.
        self.departs = function.options.keeps_results and len(self.devices) == 1
        if len(self.devices) > 1:
            self.names.used.update((*PEER_WORDS, *map(opener, self.devices)))
        self.names.used |= {"Graph", "Work", "repeat", "forget_graph", "graph", "work", "known"}
        self.names.used |= {"Staging", "open_staging", "close_staging", "copy_beside"}
        self.launched: list[CFunction] = []
        """The user's functions that have a form for the device, and are called in it."""
        self.finite_checks = FiniteChecks()
        # In C++ a member may not have the name of a type that the struct uses.
        taken = set(self.frame_names.values())
        self.frame_fields = {record.name: field_names(record, taken) for record in function.frames}
        self.structures: list[CudaBody] = []
        """The emitters of the program's functions, the entry's first."""
        self.sequence_texts = SequenceTexts()
        self.device_locals: dict[str, str] = {}
        """By function, the type of the struct of a call's arrays on the device."""
        self.graphs = Graphs(self, self.devices[0])
        self.stagings = Stagings()

    def run(self, planner: Planner, file_of: Callable[[Self], ProgramFile] = ProgramFile) -> Emitted:
        self.launched = custom.launched_functions(self.function)
        self.names.used |= custom.reserved_names(self.launched)
        emitted = super().run(planner, file_of)
        opening = [
            Transfer(what, CPU, device, nbytes, "constant")
            for device in self.devices
            for what, nbytes in dict.fromkeys(copied for part in self.device_parts(device) for copied in part.copied)
        ]
        gpus = tuple(device.index for device in self.devices)
        artifact = replace(emitted.artifact, gpus=gpus, explains=self.explains)
        return replace(emitted, artifact=artifact, own_copies={None: opening, **emitted.own_copies})

    def result_place(self, place: Expr, index: int) -> Expr:
        devices = self.function.result_devices
        return Place(place, devices[index]) if devices and devices[index] != CPU else place

    # ---- launches ----

    def call_kernel(self, structure: BodyEmitter, op: Op, inputs: list[Expr], outputs: list[Expr]) -> None:
        kernel = self.kernels[op]
        assert isinstance(structure, CudaBody)
        structure.use(op.device)
        if isinstance(kernel, LibraryCall):
            self.call_library(structure, op, kernel, inputs, outputs)
            return
        if not isinstance(kernel, GpuKernel):
            super().call_kernel(structure, op, inputs, outputs)
            return
        if op.declared is CUSTOM_LAUNCH:
            self.call_custom(structure, op, kernel, custom.arguments_of(structure, op, inputs, outputs))
            return
        if kernel.launch is None:
            self.call_thread_kernel(structure, op, kernel, inputs, outputs)
            return
        if kernel.launch.items == 0:
            return  # of no elements
        if kernel.zeroes:
            size = structure.nbytes(op.result.tensor)
            structure.check(op.where, call("cudaMemsetAsync", outputs[0], 0, size, STREAM))
            return
        structure.check(op.where, call(launcher_of(kernel, self.launchers, self.names), "gpu", *inputs, *outputs))

    def call_thread_kernel(
        self, structure: CudaBody, op: Op, kernel: GpuKernel, inputs: list[Expr], outputs: list[Expr]
    ) -> None:
        """A launch of the user's, after what it writes has been put in its place with its old value."""
        arguments = begin_launch(structure, op, inputs, outputs)
        self.launch(structure, op, kernel, op.attrs["kernel"].block, arguments)

    def call_custom(self, structure: CudaBody, op: Op, kernel: GpuKernel, arguments: list[Expr]) -> None:
        """A launch of the user's kernel that was given as text, or a call of the user's library."""
        if kernel.text:
            self.launch(structure, op, kernel, op.attrs["block"], arguments)
        else:
            custom.call_library(structure, op, arguments)

    def launch(
        self, structure: CudaBody, op: Op, kernel: GpuKernel, block: tuple[int, int, int], arguments: list[Expr]
    ) -> None:
        """A launch in the op's grid."""
        if 0 in op.attrs["grid"]:
            return
        launch = launcher_of(kernel, self.launchers, self.names)
        sizes = [call("st_dim3_of", *size) for size in (op.attrs["grid"], block)]
        structure.check(op.where, call(launch, "gpu", *sizes, *arguments))

    def call_library(
        self, structure: CudaBody, op: Op, kernel: LibraryCall, inputs: list[Expr], outputs: list[Expr]
    ) -> None:
        """A call of a library, after the first values of results that start from some have been put in place."""
        for result, operand in kernel.begins_as:
            if inputs[operand] != outputs[result]:
                structure.copy(outputs[result], inputs[operand], op.results[result].tensor)
        begun = [operand for _, operand in kernel.begins_as]
        inputs = [text for number, text in enumerate(inputs) if number not in begun]
        structure.try_(call(kernel.name, "gpu", "host", self.site(op.where), *inputs, *outputs))

    def use_kernel(self, op: Op, kernel: KernelText) -> None:
        """Let an op be done by another kernel."""
        self.kernels[op] = kernel

    def new_structure(self, function: Function, plan: Plan) -> BodyEmitter:
        structure = super().new_structure(function, plan)
        assert isinstance(structure, CudaBody)
        self.structures.append(structure)
        structure.structures = self.structures
        structure.sequence_texts = self.sequence_texts
        is_alone = function is self.function and len(self.devices) == 1
        if is_alone:
            structure.stagings = self.stagings
        if is_alone and function.options.graphs and not self.check_nan:
            structure.graphs = self.graphs
            if any(op.declared is prims.DIM for op in walk_ops(function.block)):
                self.graphs.has_sizes = True
                self.names.used |= {"SizedGraph", "graph_of", "forget_graphs"}
                structure.local_names.used.add(SIZES)
            self.graphs.has_device_buffers = any(buffer.device != CPU for buffer in plan.arena_buffers())
        structure.finite_checks = self.finite_checks
        structure.kernels_may_fail = self.kernels_may_fail
        structure.devices = self.devices
        structure.is_entry = function is self.function
        structure.departs = self.departs
        structure.program_parameters = self.parameters
        return structure

    def control_flow(self, structure: BodyEmitter, signatures: Mapping[str, Signature]) -> ControlFlow:
        assert isinstance(structure, CudaBody)
        return CudaControlFlow(structure, signatures)

    # ---- functions ----

    def function_state(self) -> tuple[tuple[str, str], ...]:
        on_device = any(state.device != CPU for state in self.state)
        host = (("const Buffers *", "m"),) if any(state.device == CPU for state in self.state) else ()
        devices = "gpu" if len(self.devices) == 1 else DEVICES
        return (*host, ("Device *", devices), *((("const DeviceBuffers *", DEVICE_BUFFERS),) if on_device else ()))

    def place_of_function(self, structure: BodyEmitter, plan: Plan) -> None:
        assert isinstance(structure, CudaBody)
        for buffer in plan.buffers:
            if buffer.device != CPU and buffer in structure.places:
                place = structure.places[buffer]
                structure.places[buffer] = on_device = Place(place, buffer.device)
                structure.results = [on_device if result == place else result for result in structure.results]
        if plan.local_bytes:
            name = structure.function.name
            structure.locals_on_device = self.device_locals[name] = self.names.fresh(f"{name}_on_device")

    def whole_plan(self) -> Plan:
        plan = super().whole_plan()
        kept = {
            record.name: {device: nbytes for device in self.devices if (nbytes := frame_bytes(record, device))}
            for record in self.function.frames
        }
        return replace(
            plan,
            device_bytes={device: self.device_bytes(device) for device in self.devices},
            beside={
                device: tuple(each for part in self.device_parts(device) for each in part.beside)
                for device in self.devices
            },
            kept_on_devices={name: found for name, found in kept.items() if found},
        )

    def arena_start(self, device: Device) -> Expr:
        return super().arena_start(device) if device == CPU else device_field(device, self.devices, "memory")

    def note_alignments(self) -> None:
        """Note in the parameters which arguments must be at multiples of more bytes than an element has."""
        fields: set[tuple[str, str]] = set()
        for place in aligned_arguments(self.structures, self.kernels):
            if isinstance(place, VariableRef):
                known = self.argument_fields[place]
                fields.add((known.array, known.field))
            elif (member := field_of(self.structures[0].field(place))) is not None:
                fields.add(("", member.field))
        self.parameters = [
            replace(each, alignment=ALIGNED) if (each.array, each.field) in fields and each.device != "cpu" else each
            for each in self.parameters
        ]

    @property
    def kernels_may_fail(self) -> bool:
        """Return whether what runs on the device may find that the program must stop."""
        return self.check_nan or any(kernel.can_fail for _, kernel in self.every_kernel())

    @property
    def explains(self) -> bool:  # type: ignore[override]
        """Return whether a kernel may fail after a call has returned."""
        return self.departs and self.kernels_may_fail

    # ---- sizes ----

    def every_kernel(self) -> Iterator[tuple[Device, GpuKernel]]:
        """Each kernel with its device: those of ops, and those that run in place of a library."""
        for op, kernel in self.kernels.items():
            if isinstance(kernel, GpuKernel):
                yield op.device, kernel
            elif isinstance(kernel, LibraryCall):
                yield from ((op.device, each) for each in kernel.kernels)

    def values_bytes(self, device: Device) -> int:
        return aligned(self.device_values.get(device, 0), DEVICE_ALIGNMENT)

    def workspace_bytes(self, device: Device) -> int:
        found = [kernel.workspace_bytes for each, kernel in self.every_kernel() if each == device]
        return aligned(max(found, default=0), DEVICE_ALIGNMENT)

    def device_bytes(self, device: Device) -> int:
        """The device's arena: values, workspace of kernels, the record of failures, what graphs need, what arrives."""
        return self.stagings_offset(device) + self.stagings.nbytes

    def stagings_offset(self, device: Device) -> int:
        """The offset in it of the arrays that loops copy from the host."""
        before = self.graphs_offset(device) + self.graphs.nbytes
        return aligned(before, DEVICE_ALIGNMENT) if self.stagings.nbytes else before

    def graphs_offset(self, device: Device) -> int:
        """The offset in it of the graphs' memory."""
        before = self.values_bytes(device) + self.workspace_bytes(device) + (aligned(1) if self.kernels_may_fail else 0)
        return aligned(before, DEVICE_ALIGNMENT) if self.graphs.nbytes else before

    def device_offset(self) -> int:
        """The offset in the host's arena of the program's state on the device."""
        return super().arena_bytes()

    def arena_bytes(self) -> int:
        return self.device_offset() + len(self.devices) * aligned(struct_bytes(self.every_part()))

    def every_part(self) -> list[DevicePart]:
        """The parts of the program on any device."""
        return all_parts(map(self.device_parts, self.devices))

    def device_parts(self, device: Device) -> list[DevicePart]:
        """The parts of the program on a device, in the order in which they are created."""
        site = self.site(self.function.where)
        kernels = sum(not kernel.zeroes and bool(kernel.text) for _, kernel in self.every_kernel())
        values, workspace = self.values_bytes(device), self.workspace_bytes(device)
        parts = [stream_part(site)]
        if len(self.devices) > 1:
            parts.append(peer_part(site, device, self.devices))
        parts.append(memory_part(site, self.device_bytes(device), self.largest_on_device(device)))
        if workspace:
            parts.append(workspace_part(values, workspace))
        if self.kernels_may_fail:
            parts.append(failures_part(values + workspace, bool(self.finite_checks.dtypes)))
            if len(self.devices) > 1:
                parts.append(records_part(len(self.devices)))
        kernels += len(self.finite_checks.dtypes) + len(self.sequence_texts.kernels) + len(self.graphs.kernel_names())
        if kernels:
            parts.append(kernels_part(site, self.name, kernels))
        if self.stacks and device == self.devices[0]:
            parts.append(stacks_part(self.stacks, self.stacks_offset(), HEAD))
        if self.device_locals or self.has_device_store:
            parts.append(stores_part(bool(self.device_locals), self.has_device_store))
        if device == self.devices[0] and (self.uses_store or self.is_recursive):
            frames = self.frames_offset() if self.uses_store else None
            parts.append(host_part(frames, self.own_stack_offset() if self.is_recursive else None))
        calls = [
            kernel for op, kernel in self.kernels.items() if isinstance(kernel, LibraryCall) and op.device == device
        ]
        parts += [*parts_of(calls), *self.stagings.parts(site, self.stagings_offset(device))]
        return [*parts, *self.graphs.parts(self.graphs_offset(device))]

    def link(self) -> tuple[str, ...]:
        # What uses others first, as linkers want it.
        libraries = distinct(name for part in self.every_part() for name in part.libraries)
        own = libraries_of_users(each.cuda for each in self.launched if each.cuda is not None)
        return *own, *(f"-l{name}" for name in reversed(libraries))

    def has_release(self) -> bool:
        return True

    def device_buffers(self) -> list[Buffer]:
        """Those of all devices, one device after the other."""
        found = [buffer for buffer in [*self.plan.arena_buffers(), *self.graphs.buffers] if buffer.device != CPU]
        return sorted(found, key=lambda buffer: self.devices.index(buffer.device))

    @property
    def has_device_store(self) -> bool:
        """Return whether arrays of a device are kept for gradients: by frames, or by sequences that travel."""
        return self.structures[0].keeps_on_device

    def largest_on_device(self, device: Device) -> str:
        """The arrays that take most of the device's memory, in words."""
        there = [buffer for buffer in self.device_buffers() if buffer.device == device]
        buffers = sorted(there, key=lambda buffer: (-buffer.nbytes, buffer.name))[:3]
        # Without their lines: text from the cache may be of a time when they stood elsewhere.
        shown = [f"`{b.name}` {shape_text(b.type.shape)}, {b.nbytes:,} bytes" for b in buffers]
        return "; ".join(shown) or "workspace of kernels"

    def makers_of_frames(self) -> list[str]:
        saved = [
            op for each in every_function(self.function) for op in walk_ops(each.block) if op.declared is FRAME_SAVE
        ]
        made = {op.result.type.name for op in saved if isinstance(op.result.type, FrameType)}
        records = [record for record in self.function.frames if record.name in made]
        return frame_makers(records, self.frame_names, self.frame_fields, self.site(self.function.where), self.devices)
