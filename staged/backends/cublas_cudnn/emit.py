"""IR to one CUDA program: kernels, then the host part, in one file that several compilers take unchanged.

| command                                | part                                                                        |
|----------------------------------------|-----------------------------------------------------------------------------|
| `nvcc NAME.cu`                         | the whole program                                                           |
| `nvcc -DKERNELS_ONLY -fatbin`, NVRTC   | the kernels                                                                 |
| `gcc -x c -std=c11 -DHOST_ONLY`        | the host part; `NAME_image` is the compiled kernels                          |
| `g++ -x c++ -include cuda_runtime.h`   | the whole program on the emulated device (its headers in place of NVIDIA's) |

So the host part is written in what C11 and C++17 have in common, and kernels are launched by `cudaLaunchKernel`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from staged.backends.c_family.expr import Expr
from staged.backends.c_family.file import HEAD, State, describe
from staged.backends.c_family.functions import OWN_ON_DEVICE, CFunction, write_locals
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.program import Emitted, Planner, ProgramEmitter, field_names
from staged.backends.c_family.structure import StructureEmitter
from staged.backends.c_family.support.host import HOST_DECLARATIONS
from staged.backends.c_family.support.library import render
from staged.backends.c_family.support.vectors import width_snippet
from staged.backends.c_family.unused import drop_unused_locals
from staged.backends.c_family.writer import INDENT, Names, Writer, safe_comment
from staged.backends.cublas_cudnn.device import (
    DevicePart,
    all_parts,
    check_macro,
    distinct,
    failures_part,
    kernels_part,
    memory_part,
    stream_part,
    struct_bytes,
    workspace_part,
    write_helpers,
    write_open,
    write_release,
    write_struct,
)
from staged.backends.cublas_cudnn.failures import (
    DECLARATIONS,
    finite_check_kernel,
    finite_check_launcher,
    finite_check_name,
    wait_for_device,
)
from staged.backends.cublas_cudnn.functions import (
    CALLS,
    STORES,
    frame_makers,
    host_part,
    stores_part,
    write_device_locals,
)
from staged.backends.cublas_cudnn.graph_text import GRAPH, rounded
from staged.backends.cublas_cudnn.graphs import Graphs
from staged.backends.cublas_cudnn.host_kernels import QUIET_NVCC, in_both_languages
from staged.backends.cublas_cudnn.joining import join_launches
from staged.backends.cublas_cudnn.kernels import CudaKernel, CudaLibrary, Site, needs_of
from staged.backends.cublas_cudnn.launches import launcher
from staged.backends.cublas_cudnn.library.call import LibraryCall, parts_of
from staged.backends.cublas_cudnn.peers import (
    COPY,
    USE,
    devices_of,
    opener,
    peer_part,
    records_part,
    write_opening,
    write_release_of_all,
)
from staged.backends.cublas_cudnn.peers import WORDS as PEER_WORDS
from staged.backends.cublas_cudnn.sequences import SequenceTexts, stores_in_use
from staged.backends.cublas_cudnn.spelling import device_functions, device_names
from staged.backends.cublas_cudnn.stacks import device_stack_text, stacks_part
from staged.backends.cublas_cudnn.staging import Stagings
from staged.backends.cublas_cudnn.structure import DEVICE_BUFFERS, CudaStructureEmitter, FiniteChecks
from staged.backends.cublas_cudnn.thread_kernels import (
    DIM3,
    ThreadKernels,
    ThreadKernelText,
    launch_arguments,
    thread_launcher,
)
from staged.errors import UnsupportedError
from staged.ir.buffers import DEVICE_ALIGNMENT, Buffer, Plan, aligned
from staged.ir.machine import Machine
from staged.ir.nodes import Function, Op, VariableRef
from staged.ir.options import DeviceOptions
from staged.ir.types import CPU, Device, shape_text

# NVRTC has no headers; its own integer types are these.
_RTC_TYPES = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define INT64_C(value) value##LL
#define UINT8_MAX 255
#define UINT32_MAX 4294967295u
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif
"""

_CHECK = check_macro(
    "Every call of CUDA goes through this: a failure stops the program, with the call and its line here and in Python.",
    "cuda",
    "cudaError_t",
    "cudaSuccess",
    "cudaGetErrorString",
)

_DIM3 = """\
static dim3 st_dim3(unsigned int x) {
    dim3 size;
    size.x = x;
    size.y = 1;
    size.z = 1;
    return size;
}
"""

# Short loops that keep what they work on in registers; other compilers than CUDA's know no such line.
_UNROLLED = """\
#ifdef __CUDACC__
#define ST_UNROLLED _Pragma("unroll")
#else
#define ST_UNROLLED
#endif
"""


def emit_program(function: Function, machine: Machine, plan: Planner, check_nan: bool = False) -> Emitted:
    """The CUDA program for a placed function whose tensor ops have been fused into kernels.

    `plan` makes the memory plan; it is asked once the kernels are known, since they say which buffers may be shared.
    """
    return CudaProgramEmitter(join_launches(function), machine, check_nan).run(plan)


class ProgramLibrary(CudaLibrary):
    """The kernels of a program: fused ones, and those that the user wrote."""

    def __init__(self, machine: Machine, names: Names, site: Site, options: DeviceOptions) -> None:
        super().__init__(machine, names, site, options)
        self.thread_kernels = ThreadKernels(names, site)

    def kernel(self, op: Op) -> KernelText:
        """The text for an op that is one step."""
        return self.thread_kernels.kernel(op) if op.name == "gpu_func" else super().kernel(op)


class CudaProgramEmitter(ProgramEmitter):
    """Writes one program with a device."""

    backend = "cublas_cudnn"
    language = "cuda"
    structure_class = CudaStructureEmitter
    reserve = 8 << 20
    """CUDA and its libraries take more of the stack than kernels of the host."""
    release_comment = "Gives back what the program has on the device; call it before the arena goes."

    def __init__(self, function: Function, machine: Machine, check_nan: bool) -> None:
        # Host loops that no thread team shares: its C does not compile as C++.
        super().__init__(function, machine.with_cores(1), partial(ProgramLibrary, options=function.options), check_nan)
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
        if len(self.devices) > 1:
            self.names.used.update((*PEER_WORDS, *map(opener, self.devices)))
        self.names.used |= {"Graph", "Work", "repeat", "forget_graph", "graph", "work", "known"}
        self.names.used |= {"Staging", "open_staging", "close_staging", "copy_beside"}
        self.launchers: dict[str, str] = {}
        self.finite_checks = FiniteChecks()
        # In C++ a member may not have the name of a type that the struct uses.
        taken = set(self.frame_names.values())
        self.frame_fields = {record.name: field_names(record, taken) for record in function.frames}
        self.records = {record.name: record for record in function.frames}
        self.structures: list[CudaStructureEmitter] = []
        """The emitters of the program's functions, the entry's first."""
        self.sequence_texts = SequenceTexts()
        self.device_locals: dict[str, str] = {}
        """By function, the type of the struct of a call's arrays on the device."""
        if len(self.devices) > 1 and function.functions:
            called = function.functions[0]
            raise UnsupportedError(
                f"`{called.name}`, which calls itself or returns from its middle, is a function of a program with two GPUs, "
                "which programs with one GPU alone have so far",
                where=called.where,
                hint="make the parts programs of their own: `st.Variable`s and `st.to(x, GPU(1))` carry arrays from one to the other",
            )
        self.graphs = Graphs(self, self.devices[0])
        self.stagings = Stagings()

    def run(self, planner: Planner) -> Emitted:
        emitted = super().run(planner)
        return replace(emitted, artifact=replace(emitted.artifact, gpus=tuple(device.index for device in self.devices)))

    # ---- launches ----

    def call_kernel(self, structure: StructureEmitter, op: Op, inputs: list[Expr], outputs: list[Expr]) -> None:
        kernel = self.kernels[op]
        assert isinstance(structure, CudaStructureEmitter)
        structure.use(op.device)
        if isinstance(kernel, LibraryCall):
            self.call_library(structure, op, kernel, inputs, outputs)
            return
        if not isinstance(kernel, CudaKernel):
            super().call_kernel(structure, op, inputs, outputs)
            return
        if isinstance(kernel, ThreadKernelText):
            self.call_thread_kernel(structure, op, kernel, inputs, outputs)
            return
        assert kernel.launch is not None
        if kernel.launch.items == 0:
            return  # of no elements
        if kernel.name not in self.launchers:
            self.launchers[kernel.name] = self.names.fresh(f"launch_{kernel.name.removesuffix('_kernel')}")
        arguments = ", ".join(map(str, ["gpu", *inputs, *outputs]))
        structure.check(op, f"{self.launchers[kernel.name]}({arguments})")

    def call_thread_kernel(
        self, structure: CudaStructureEmitter, op: Op, kernel: ThreadKernelText, inputs: list[Expr], outputs: list[Expr]
    ) -> None:
        """A launch of the user's, after what it writes has been put in its place with its old value."""
        for number, output in zip(op.attrs["kernel"].written, outputs, strict=True):
            if str(output) != str(inputs[number]):
                structure.copy(output, inputs[number], op.operands[number].tensor)
        if 0 in op.attrs["grid"]:
            return
        if kernel.name not in self.launchers:
            self.launchers[kernel.name] = self.names.fresh(f"launch_{kernel.name.removesuffix('_kernel')}")
        arguments = ", ".join(["gpu", *launch_arguments(op, inputs, outputs)])
        structure.check(op, f"{self.launchers[kernel.name]}({arguments})")

    def call_library(
        self, structure: CudaStructureEmitter, op: Op, kernel: LibraryCall, inputs: list[Expr], outputs: list[Expr]
    ) -> None:
        """A call of a library, after the first values of results that start from some have been put in place."""
        for result, operand in kernel.begins_as:
            if str(inputs[operand]) != str(outputs[result]):
                structure.copy(outputs[result], inputs[operand], op.results[result].tensor)
        begun = [operand for _, operand in kernel.begins_as]
        inputs = [text for number, text in enumerate(inputs) if number not in begun]
        arguments = ", ".join(map(str, ["gpu", "host", self.site(op.where), *inputs, *outputs]))
        with structure.w.block(f"if ({kernel.name}({arguments}) != ST_OK)"):
            structure.w.line("return host->error_kind;")

    def use_kernel(self, op: Op, kernel: KernelText) -> None:
        """Let an op be done by another kernel."""
        self.kernels[op] = kernel

    def new_structure(self, function: Function, plan: Plan) -> StructureEmitter:
        structure = super().new_structure(function, plan)
        assert isinstance(structure, CudaStructureEmitter)
        self.structures.append(structure)
        structure.structures = self.structures
        structure.sequence_texts = self.sequence_texts
        is_alone = function is self.function and len(self.devices) == 1
        if is_alone:
            structure.stagings = self.stagings
        if is_alone and function.options.graphs and not self.check_nan:
            structure.graphs = self.graphs
            self.graphs.has_device_buffers = any(buffer.device != CPU for buffer in plan.arena_buffers())
        structure.finite_checks = self.finite_checks
        structure.kernels_may_fail = self.kernels_may_fail
        structure.devices = self.devices
        structure.is_entry = function is self.function
        structure.records = self.records
        return structure

    # ---- functions ----

    def function_state(self) -> tuple[tuple[str, str], ...]:
        on_device = any(state.device != CPU for state in self.state)
        host = (("const Buffers *", "m"),) if any(state.device == CPU for state in self.state) else ()
        return (*host, ("Device *", "gpu"), *((("const DeviceBuffers *", DEVICE_BUFFERS),) if on_device else ()))

    def place_of_function(self, structure: StructureEmitter, plan: Plan) -> None:
        assert isinstance(structure, CudaStructureEmitter)
        structure.device_places |= {
            str(structure.places[buffer]): buffer.device
            for buffer in plan.buffers
            if buffer.device != CPU and buffer in structure.places
        }
        if plan.local_bytes:
            name = structure.function.name
            structure.locals_on_device = self.device_locals[name] = self.names.fresh(f"{name}_on_device")
            structure.device_views[OWN_ON_DEVICE] = self.devices[0]

    def write_function_locals(self, w: Writer, made: CFunction) -> None:
        if made.locals_type:
            write_locals(w, made, "alignas(64) ")
            w.line()
        name = made.signature.function.name
        if name in self.device_locals:
            write_device_locals(w, made, self.device_locals[name], self.devices[0])
            w.line()

    def arena_start(self, device: Device) -> str:
        return "base" if device == CPU else f"{self.device_name(device)}memory"

    @property
    def kernels_may_fail(self) -> bool:
        """Whether what runs on the device may find that the program must stop."""
        return self.check_nan or any(k.can_fail for k in self.kernels.values() if isinstance(k, CudaKernel))

    # ---- sizes ----

    def values_bytes(self, device: Device) -> int:
        return aligned(self.device_values.get(device, 0), DEVICE_ALIGNMENT)

    def workspace_bytes(self, device: Device) -> int:
        found = [k.workspace_bytes for op, k in self.kernels.items() if isinstance(k, CudaKernel) and op.device == device]
        return aligned(max(found, default=0), DEVICE_ALIGNMENT)

    def device_bytes(self, device: Device) -> int:
        """The device's arena: values, workspace of kernels, the record of failures, what graphs need, what arrives."""
        return self.stagings_offset(device) + self.stagings.nbytes

    def stagings_offset(self, device: Device) -> int:
        """Where in it arrays arrive that loops copy from the host."""
        before = self.graphs_offset(device) + self.graphs.nbytes
        return rounded(before) if self.stagings.nbytes else before

    def graphs_offset(self, device: Device) -> int:
        """Where in it what graphs need begins."""
        before = self.values_bytes(device) + self.workspace_bytes(device) + (aligned(1) if self.kernels_may_fail else 0)
        return rounded(before) if self.graphs.nbytes else before

    def device_offset(self) -> int:
        """Where the host's arena holds what the program has on the device."""
        return super().arena_bytes()

    def arena_bytes(self) -> int:
        return self.device_offset() + len(self.devices) * aligned(struct_bytes(self.every_part()))

    def every_part(self) -> list[DevicePart]:
        """What the program has on any device."""
        return all_parts(map(self.device_parts, self.devices))

    def device_parts(self, device: Device) -> list[DevicePart]:
        """What the program has on a device, in the order in which it is made."""
        site = self.site(self.function.where)
        kernels = sum(isinstance(kernel, CudaKernel) for kernel in self.kernels.values())
        values, workspace = self.values_bytes(device), self.workspace_bytes(device)
        parts = [stream_part(site)]
        if len(self.devices) > 1:
            parts.append(peer_part(site, device, self.devices))
        parts.append(memory_part(site, self.device_bytes(device), self.largest_on_device(device)))
        if workspace:
            parts.append(workspace_part(values, workspace))
        if self.kernels_may_fail:
            parts.append(failures_part(values + workspace))
            if len(self.devices) > 1:
                parts.append(records_part(len(self.devices)))
        kernels += len(self.finite_checks.dtypes) + len(self.sequence_texts.kernels) + len(self.graphs.kernel_names())
        if kernels:
            parts.append(kernels_part(site, self.name, kernels))
        if self.stacks and device == self.devices[0]:
            parts.append(stacks_part(self.stacks, self.stacks_offset(), HEAD))
        if self.device_locals or self.has_device_store:
            parts.append(stores_part(bool(self.device_locals), self.has_device_store))
        if self.uses_store or self.is_recursive:
            frames = self.frames_offset() if self.uses_store else None
            parts.append(host_part(frames, self.own_stack_offset() if self.is_recursive else None))
        calls = [kernel for op, kernel in self.kernels.items() if isinstance(kernel, LibraryCall) and op.device == device]
        parts += [*parts_of(calls), *self.stagings.parts(site, self.stagings_offset(device))]
        return [*parts, *self.graphs.parts(self.graphs_offset(device))]

    def link(self) -> tuple[str, ...]:
        # What uses others first, as linkers want it.
        libraries = distinct(name for part in self.every_part() for name in part.libraries)
        return tuple(f"-l{name}" for name in reversed(libraries))

    def has_release(self) -> bool:
        return True

    def host_buffers(self) -> list[Buffer]:
        return [buffer for buffer in self.plan.arena_buffers() if buffer.device == CPU]

    def device_buffers(self) -> list[Buffer]:
        """Those of all devices, one device after the other."""
        found = [buffer for buffer in [*self.plan.arena_buffers(), *self.graphs.buffers] if buffer.device != CPU]
        return sorted(found, key=lambda buffer: self.devices.index(buffer.device))

    @property
    def has_device_store(self) -> bool:
        """Whether arrays of a device are kept for gradients: by frames, or by sequences that travel."""
        return self.structures[0].keeps_on_device

    def largest_on_device(self, device: Device) -> str:
        """The arrays that take most of the device's memory, in words."""
        there = [buffer for buffer in self.device_buffers() if buffer.device == device]
        buffers = sorted(there, key=lambda buffer: (-buffer.nbytes, buffer.name))[:3]
        # Without their lines: text from the cache may be of a time when they stood elsewhere.
        shown = [f"`{b.name}` {shape_text(b.type.shape)}, {b.nbytes:,} bytes" for b in buffers]
        return "; ".join(shown) or "workspace of kernels"

    # ---- the file ----

    def assemble(
        self, structure: StructureEmitter, kernels: Sequence[KernelText], inner: list[tuple[VariableRef, str]]
    ) -> str:
        structure.need("host", "fail", "stop", *(("stack",) if self.stacks else ()))
        self.graphs.settle(self.graphs_offset(self.devices[0]))
        on_device = [kernel for kernel in kernels if isinstance(kernel, CudaKernel) and kernel.name in self.launchers]
        on_host = [kernel for kernel in kernels if not isinstance(kernel, CudaKernel | LibraryCall)]
        calls = [kernel for kernel in kernels if isinstance(kernel, LibraryCall)]
        w = Writer()
        self.write_head(w)
        for line in render(structure.text.snippets - {"memcpy"})[0]:
            if line.startswith("#define _"):  # for the system's headers; C++ compilers have some of these
                w.line(f"#ifndef {line.split()[1]}")
                w.line(line)
                w.line("#endif")
        checks = [finite_check_name(dtype) for dtype in self.finite_checks.dtypes]
        more = [*self.sequence_texts.kernels, *self.graphs.kernel_names()]
        names = " ".join(f"X({name})" for name in [*(k.name for k in on_device), *checks, *more])
        w.comment("Kernels by name; the list is used where they are registered, numbered and looked up.")
        w.line(f"#define KERNELS(X) {names}".rstrip())
        w.line()
        if self.kernels_may_fail:
            w.text(DECLARATIONS)
            w.line()
        if self.graphs.types():
            w.section("what changes from turn to turn")
            w.text(_RTC_TYPES.replace("#include <stdint.h>", "#include <stdbool.h>\n#include <stdint.h>"))
            for text in self.graphs.types():
                w.line()
                w.text(text)
            w.line()
        w.line("#ifndef HOST_ONLY")
        self.write_device_part(w, on_device)
        w.line("#ifdef STAGED_CUDA_EMULATED")
        w.line("KERNELS(STAGED_EMULATED_KERNEL)")
        w.line("#endif")
        w.line("#endif  // HOST_ONLY")
        w.line()
        w.line("#if !defined(__CUDACC_RTC__) && !defined(KERNELS_ONLY)")
        self.write_host_part(w, structure, on_device, on_host, calls, inner)
        w.line("#endif  // the host part")
        return str(w)

    def write_device_part(self, w: Writer, kernels: Sequence[CudaKernel]) -> None:
        w.section("kernels")
        if not self.graphs.types():
            w.text(_RTC_TYPES)
        if any("ST_UNROLLED" in kernel.text for kernel in kernels):
            w.line()
            w.text(_UNROLLED)
        checks = [device_names(finite_check_kernel(dtype)) for dtype in self.finite_checks.dtypes]
        needs = needs_of(kernels) | ({"fail_not_finite"} if checks else frozenset())
        functions = device_functions(needs, [*(kernel.text for kernel in kernels), *checks])
        if functions.strip():
            w.line()
            w.text(functions)
        more = [*self.sequence_texts.kernel_texts(), *self.graphs.kernel_texts()]
        for text in (*(kernel.text for kernel in kernels), *checks, *more):
            w.line()
            w.text(text)
        w.line()

    def write_host_part(
        self,
        w: Writer,
        structure: StructureEmitter,
        on_device: Sequence[CudaKernel],
        on_host: Sequence[KernelText],
        calls: Sequence[LibraryCall],
        inner: list[tuple[VariableRef, str]],
    ) -> None:
        asked = structure.text.snippets - {"memcpy"}
        if on_host:
            asked.add(width_snippet(self.machine.vector_bytes))
        includes, support = render(asked)
        support = support.replace(HOST_DECLARATIONS.strip("\n") + "\n", "")  # they stand in the header
        shared = dict(pair for kernel in on_host for pair in kernel.support)
        support = in_both_languages("\n".join([support, *shared.values()]))
        self.support = self.support_text(includes, support)
        w.section("the host's part")
        for line in includes:
            if line.startswith("#define"):  # what headers, and the support functions, are asked for
                w.line(line)
        if "#pragma GCC" in "".join([support, *(kernel.text for kernel in on_host)]):
            w.text(QUIET_NVCC)
        for name in ("math", *(("stdalign",) if self.functions else ()), "stdbool", "stddef", "stdint", "string"):
            w.line(f"#include <{name}.h>")
        w.line()
        for include in distinct(include for part in self.every_part() for include in part.includes):
            w.line(f"#include <{include}>")
        w.line()
        w.line(f'#include "{self.name}.h"')
        w.line(f'#include "{self.name}_support.h"  // printing, errors, maths: what every program of staged may use')
        w.line()
        w.text(_CHECK)
        for macro in distinct(macro for part in self.every_part() for macro in part.checks):
            w.line()
            w.text(macro)
        of_users = [kernel for kernel in on_device if isinstance(kernel, ThreadKernelText)]
        more = [*self.sequence_texts.kernels, *self.graphs.kernel_names()]
        if len(of_users) < len(on_device) or self.finite_checks.dtypes or more:
            w.line()
            w.text(_DIM3)
        if of_users:
            w.line()
            w.text(DIM3)
        self.write_device_struct(w)
        grown = device_stack_text(self.stacks) + (STORES if self.device_locals or self.has_device_store else "")
        if grown:
            w.section("residual storage")
            w.text(grown)
        self.write_frames(w)
        self.write_buffers(w, structure)
        self.write_constants(w, structure)
        if on_host:
            w.section("kernels of the host")
            for kernel in on_host:
                w.line()
                w.text(kernel.text)
        if on_device or self.sequence_texts.kernels:
            w.section("launches")
            for kernel in on_device:
                w.line()
                write = thread_launcher if isinstance(kernel, ThreadKernelText) else launcher
                w.text(write(kernel, self.launchers[kernel.name]))
            for dtype in self.finite_checks.dtypes:
                w.line()
                w.text(finite_check_launcher(dtype))
            for text in (*self.sequence_texts.launcher_texts(), *self.sequence_texts.function_texts()):
                w.line()
                w.text(text)
        if self.kernels_may_fail:
            w.line()
            w.text(wait_for_device(self.finite_checks.rows, len(self.devices)))
        if calls:
            w.section("library calls")
            for call in calls:
                w.line()
                w.text(call.text)
        self.write_functions(w)
        if self.graphs.turns:
            w.section("turns of loops")
            for text in self.graphs.functions():
                w.line()
                w.text(text)
        w.section("entry points")
        w.line()
        write_helpers(w, self.every_part())
        parts = [self.device_parts(device) for device in self.devices]
        if len(self.devices) == 1:
            write_open(w, parts[0])
            w.line()
            self.write_entry(w, structure, inner)
            w.line()
            write_release(w, self.name, self.device_offset(), parts[0])
            return
        for device, own in zip(self.devices, parts, strict=True):
            write_open(w, own, opener(device))
            w.line()
        self.write_entry(w, structure, inner)
        w.line()
        write_release_of_all(w, self.name, self.device_offset(), self.devices, parts)

    def write_device_struct(self, w: Writer) -> None:
        w.section("the device")
        w.line("#ifdef HOST_ONLY")
        w.line("#define KERNEL_NUMBER(name) NUMBER_##name,")
        w.line("enum { KERNELS(KERNEL_NUMBER) KERNEL_COUNT };")
        w.line("#define KERNEL(name) ((const void *)gpu->kernels[NUMBER_##name])")
        w.line(f"extern const unsigned char {self.name}_image[];  // the compiled kernels")
        w.line("#else")
        w.line("#define KERNEL(name) ((const void *)name)")
        w.line("#endif")
        w.line()
        for text in (*([GRAPH] if self.graphs.turns else []), *self.stagings.types()):
            w.text(text)
            w.line()
        write_struct(w, self.every_part())
        if len(self.devices) > 1:
            for text in (USE, COPY):
                w.line()
                w.text(text)

    def write_buffers(self, w: Writer, structure: StructureEmitter) -> None:
        w.section("sizes and buffers")
        if self.scratch_bytes:
            w.line(f"enum {{ SCRATCH_BYTES = {self.scratch_bytes} }};  // workspace of the host's kernels")
            w.line()
        w.comment("Where values are kept; those whose lives do not overlap share memory.")
        _write_struct(w, "Buffers", [state for state in self.state if state.device == CPU], "on the host")
        where = "on the device" if len(self.devices) == 1 else "on the devices"
        _write_struct(w, "DeviceBuffers", self.device_state(), where)

    def device_state(self) -> list[State]:
        """The fields of the devices' buffers, one device after the other."""
        found = [state for state in self.state if state.device != CPU]
        for buffer in self.graphs.buffers:
            c_type = f"{buffer.type.dtype.c_name} *"
            place = f"({c_type})(void *)(gpu->memory + {buffer.offset})"
            found.append(State(c_type, buffer.name, place, describe(buffer), buffer.device))
        if len(self.devices) > 1:
            found = [replace(state, note=f"{state.device}: {state.note}") for state in found]
        return sorted(found, key=lambda state: self.devices.index(state.device))

    def makers_of_frames(self) -> list[str]:
        return frame_makers(self.function.frames, self.frame_names, self.frame_fields, self.site(self.function.where))

    def write_entry(self, w: Writer, structure: StructureEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        head = f"int {self.name}(const {self.name}_args *args, void *arena, st_host *host)"
        if not self.is_recursive:
            with w.block(head):
                w.line("unsigned char *const base = (unsigned char *)arena;")
                start = len(w.lines)
                self.write_begin(w)
                self.write_body(w, structure, inner)
                if not any(re.search(r"^[^/]*\bargs\b", line) for line in w.lines[start:]):
                    w.lines.insert(start, f"{INDENT}(void)args;")  # there are none, or none has an element
            return
        body = self.names.fresh(f"{self.name}_body")
        w.comment(f"What `{self.name}` does, on the program's own stack.")
        begin = len(w.lines)
        with w.block(f"static int {body}(const void *given, void *arena, st_host *host)"):
            w.line(f"const {self.name}_args *const args = (const {self.name}_args *)given;")
            if not self.parameters:
                w.line("(void)args;")
            w.line("unsigned char *const base = (unsigned char *)arena;")
            self.write_device(w)
            self.write_body(w, structure, inner)
        w.lines[begin:] = drop_unused_locals(w.lines[begin:])
        w.line()
        with w.block(head):
            w.line("unsigned char *const base = (unsigned char *)arena;")
            self.write_begin(w)
            w.line(f"st_own_stack *const stack = (st_own_stack *)(void *)(base + {self.own_stack_offset()});")
            w.line(f"return st_run_on_stack(stack, STACK_RESERVE, {body}, args, arena, host);")

    def write_begin(self, w: Writer) -> None:
        """No error yet, and the device, or devices, open."""
        w.line("host->error_kind = ST_OK;")
        w.line("host->error_claimed = 0;")
        if len(self.devices) > 1:
            w.line(f"Device *const devices = (Device *)(void *)(base + {self.device_offset()});")
            w.line("Device *gpu = devices;")
            write_opening(w, self.name, self.site(self.function.where), self.devices, self.kernels_may_fail)
            return
        self.write_device(w)
        with w.block("if (!gpu->is_open && open_device(gpu, host) != ST_OK)"):
            w.line(f"{self.name}_release(arena);")
            w.line("return host->error_kind;")

    def write_device(self, w: Writer) -> None:
        """The program's only device, on this thread."""
        site, number = self.site(self.function.where), self.devices[0].index
        w.line(f"CUDA_CHECK({site}, cudaSetDevice({number}));  // this thread may have used another one")
        w.line(f"Device *const gpu = (Device *)(void *)(base + {self.device_offset()});")

    def write_body(self, w: Writer, structure: StructureEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        """The buffers, what an earlier call may have left, and what the program does."""
        shared = {state.value for state in self.state}
        early = [(variable, name) for variable, name in inner if f"&{name}" in shared]
        for variable, name in early:
            w.line(f"{variable.type.dtype.c_name} {name} = 0;")
        on_host = [state for state in self.state if state.device == CPU]
        for struct, name, pointer, states in (
            ("Buffers", "buffers", "m", on_host),
            ("DeviceBuffers", "device_buffers", DEVICE_BUFFERS, self.device_state()),
        ):
            if states:
                w.line(f"{struct} {name};")
                for state in states:
                    w.line(f"{name}.{state.name} = {state.value};")
                w.line(f"const {struct} *const {pointer} = &{name};")
        self.graphs.write_check_of_arguments(w)
        if self.kernels_may_fail and len(self.devices) == 1:
            forget = "cudaMemsetAsync(gpu->failed, 0, sizeof *gpu->failed, gpu->stream)"
            w.line(f"CUDA_CHECK({self.site(self.function.where)}, {forget});")
        if self.uses_store:
            w.line("st_frames_release(m->frames, 0);")
        kept = stores_in_use(self.devices) if self.has_device_store else []
        for store in ([f"gpu->{CALLS}"] if self.device_locals else []) + kept:
            w.line(f"st_frames_release(&{store}, 0);")
        for made in self.functions.values():
            for stack in made.plan.stacks:
                w.line(f"st_stack_reset({made.structure.field(stack)});")
        for variable, name in inner:
            if (variable, name) not in early:
                w.line(f"{variable.type.dtype.c_name} {name} = 0;")
        w.line()
        w.lines += structure.w.lines

    def device_name(self, device: Device) -> str:
        """What the fields of a device's struct are reached by."""
        return "gpu->" if len(self.devices) == 1 else f"devices[{self.devices.index(device)}]."



def _write_struct(w: Writer, name: str, states: Sequence[State], where: str) -> None:
    if not states:
        return
    w.line()
    w.comment(where)
    width = max(len(state.declaration) for state in states)
    with w.block("typedef struct", f" {name};"):
        for state in states:
            w.line(f"{state.declaration:<{width}}  // {safe_comment(state.note)}")
