"""IR to one CUDA program: kernels, then the host part, in one file that several compilers take unchanged.

| command                                | part                                                                        |
|----------------------------------------|-----------------------------------------------------------------------------|
| `nvcc NAME.cu`                         | the whole program                                                           |
| `nvcc -DKERNELS_ONLY -fatbin`, NVRTC   | the kernels                                                                 |
| `gcc -x c -std=c11 -DHOST_ONLY`        | the host part; `NAME_image` is the compiled kernels                         |
| `g++ -x c++ -include cuda_runtime.h`   | the whole program on the emulated device (its headers in place of NVIDIA's) |

So the host part is written in what C11 and C++17 have in common, and kernels are launched by `cudaLaunchKernel`.

Tested by `tests/backends/cublas_cudnn/test_text.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.contract import Emitted, Planner
from staged.backends.cublas_cudnn.custom import kernel_text, prototypes
from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.cublas_cudnn.device import (
    check_macro,
    distinct,
    write_helpers,
    write_open,
    write_release,
    write_struct,
)
from staged.backends.cublas_cudnn.dialect import CUDA
from staged.backends.cublas_cudnn.entry import CudaEntry, device_state
from staged.backends.cublas_cudnn.failures import (
    finite_check_kernel,
    finite_check_launcher,
    finite_check_name,
    wait_for_device,
)
from staged.backends.cublas_cudnn.functions import (
    STORES,
    write_device_locals,
)
from staged.backends.cublas_cudnn.graph_text import graph_types
from staged.backends.cublas_cudnn.host_kernels import QUIET_NVCC
from staged.backends.cublas_cudnn.launches import DIM3, DIM3_OF, launcher, thread_launcher
from staged.backends.cublas_cudnn.library.alignment import align_operands
from staged.backends.cublas_cudnn.library.call import LibraryCall
from staged.backends.cublas_cudnn.peers import (
    COPY,
    USE,
    opener,
    write_release_of_all,
)
from staged.backends.cublas_cudnn.program import CudaProgram
from staged.backends.cublas_cudnn.spelling import find_snippet
from staged.backends.cublas_cudnn.stacks import device_stack_text
from staged.backends.gpu.failures import DECLARATIONS
from staged.backends.gpu.joining import join_launches
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.support import calls_of, device_functions, needs_of
from staged.backends.host.body import BodyEmitter
from staged.backends.host.buffer_structs import State
from staged.backends.host.file import DeviceFile
from staged.backends.host.functions import CFunction, write_locals
from staged.backends.host.support_functions import support_header
from staged.code.kernel_text import KernelText
from staged.code.support.library import render
from staged.code.uses import functions_called, is_rolled, is_unrolled
from staged.code.writer import Writer, safe_comment
from staged.ir.machine import Machine
from staged.ir.nodes import Function, VariableRef
from staged.ir.types import CPU
from staged.ops.custom import CFunction as CustomFunction

# NVRTC has no headers; its own integer types are these.
RTC_TYPES = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define INT64_C(value) value##LL
#define UINT64_C(value) value##ULL
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ULL
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif
"""

_CHECK = check_macro(
    "Every call of CUDA goes through this: a failure stops the program, with the call, its line here, and the\n"
    "// number `site` of its line in Python.",
    "cuda",
    "cudaError_t",
    "cudaSuccess",
    "cudaGetErrorString",
)

# Short loops that keep what they work on in registers; other compilers than CUDA's know no such line.
_UNROLLED = """\
#ifdef __CUDACC__
#define ST_UNROLLED _Pragma("unroll")
#else
#define ST_UNROLLED
#endif
"""
_ROLLED = _UNROLLED.replace("ST_UNROLLED", "ST_ROLLED").replace('"unroll"', '"unroll 1"')


def custom_source(function: CustomFunction) -> str:
    """Return the source code of a user's kernel, which compiles alone; empty for a function of a library."""
    assert function.cuda is not None
    return f"{RTC_TYPES}{kernel_text(function)}" if function.cuda.source else ""


def emit_program(function: Function, machine: Machine, plan: Planner, check_nan: bool = False) -> Emitted:
    """The CUDA program for a placed function whose tensor ops have been fused into kernels.

    `plan` makes the memory plan; it is asked once the kernels are known, since they say which buffers may be shared.
    """
    function = align_operands(join_launches(function, CUDA_GPU))
    return CudaProgram(function, machine, check_nan).run(plan, CudaFile)


class CudaFile(DeviceFile):
    """Writes the file of a program with a device."""

    def __init__(self, program: CudaProgram) -> None:
        super().__init__(program)
        self.program: CudaProgram = program

    def write_entry(self, w: Writer, structure: BodyEmitter, inner: list[tuple[VariableRef, str]]) -> None:
        CudaEntry(self, self.program).write(w, structure, inner)

    def assemble(
        self, structure: BodyEmitter, kernels: Sequence[KernelText], inner: list[tuple[VariableRef, str]]
    ) -> str:
        has_alternatives = any(isinstance(kernel, LibraryCall) and kernel.kernels for kernel in kernels)
        notes = ("note",) if has_alternatives else ()
        structure.need("host", "fail", "stop", *notes, *(("stack",) if self.program.stacks else ()))
        self.program.note_alignments()
        self.program.graphs.settle(self.program.graphs_offset(self.program.devices[0]))
        on_device = [
            kernel for kernel in kernels if isinstance(kernel, GpuKernel) and kernel.name in self.program.launchers
        ]
        on_host = [kernel for kernel in kernels if not isinstance(kernel, GpuKernel | LibraryCall)]
        calls = [kernel for kernel in kernels if isinstance(kernel, LibraryCall)]
        known = {kernel.name for kernel in on_device}
        of_calls = {kernel.name: kernel for call in calls for kernel in call.kernels if kernel.name not in known}
        instead = list(of_calls.values())
        w = Writer()
        self.write_head(w, kernels)
        for line in render(structure.text.snippets.keys() - {"memcpy"})[0]:
            if line.startswith("#define _"):  # for the system's headers; C++ compilers have some of these
                w.line(f"#ifndef {line.split()[1]}")
                w.line(line)
                w.line("#endif")
        checks = [finite_check_name(dtype) for dtype in self.program.finite_checks.dtypes]
        more = [*self.program.sequence_texts.kernels, *self.program.graphs.kernel_names()]
        w.comment("Kernels by name; the list is used where they are registered, numbered and looked up.")
        names = [f"X({name})" for name in [*(k.name for k in (*on_device, *instead)), *checks, *more]]
        w.line(" \\\n    ".join(["#define KERNELS(X)", *names]))
        w.line()
        if self.program.kernels_may_fail:
            w.text(DECLARATIONS)
            w.line()
        if self.program.graphs.types():
            w.section("types of a fixed size")
            w.text(RTC_TYPES.replace("#include <stdint.h>", "#include <stdbool.h>\n#include <stdint.h>"))
            w.section("what changes from turn to turn")
            for text in self.program.graphs.types():
                w.line()
                w.text(text)
            w.line()
        w.line("#ifndef HOST_ONLY")
        self.write_device_part(w, on_device, instead)
        w.line("#ifdef STAGED_CUDA_EMULATED")
        w.line("KERNELS(STAGED_EMULATED_KERNEL)")
        w.line("#endif")
        w.line("#endif  // HOST_ONLY")
        w.line()
        w.line("#if !defined(__CUDACC_RTC__) && !defined(KERNELS_ONLY)")
        self.write_host_part(w, structure, [*on_device, *instead], on_host, calls, inner)
        w.line("#endif  // the host part")
        return str(w)

    def write_device_part(self, w: Writer, own: Sequence[GpuKernel], instead: Sequence[GpuKernel]) -> None:
        """Write the kernels of the program, then those that run in place of libraries."""
        kernels = [*own, *instead]
        w.section("kernels")
        if not self.program.graphs.types():
            w.text(RTC_TYPES)
        if any(kernel.code is not None and is_unrolled(kernel.code.body) for kernel in kernels):
            w.line()
            w.text(_UNROLLED)
        if any(kernel.code is not None and is_rolled(kernel.code.body) for kernel in kernels):
            w.line()
            w.text(_ROLLED)
        checks = [finite_check_kernel(dtype) for dtype in self.program.finite_checks.dtypes]
        needs, called = needs_of(kernels), calls_of(kernels)
        if checks:
            needs, called = needs | {"fail_not_finite"}, called | {"st_fail_not_finite"}
        functions = device_functions(needs, called, CUDA, find_snippet)
        if functions.strip():
            w.line()
            w.text(functions)
        more = [*self.program.sequence_texts.kernel_texts(), *self.program.graphs.kernel_texts()]
        for text in (*(kernel.text for kernel in own), *checks, *more):
            w.line()
            w.text(text)
        w.line()
        if instead:
            w.section("kernels in place of libraries")
            w.comment("They run if a library does not support an operation on the device.")
            for kernel in instead:
                w.line()
                w.text(kernel.text)
            w.line()

    def write_host_part(
        self,
        w: Writer,
        structure: BodyEmitter,
        on_device: Sequence[GpuKernel],
        on_host: Sequence[KernelText],
        calls: Sequence[LibraryCall],
        inner: list[tuple[VariableRef, str]],
    ) -> None:
        includes, support = self.render_support(structure, on_host)
        self.support = support_header(self.program.name, includes, support)
        w.section("the host's part")
        for line in includes:
            if line.startswith("#define") and not line.startswith(
                "#define _"
            ):  # what the support functions are asked for
                w.line(line)
        host_texts = distinct(
            text for kernel in on_host for text in (*(each.text for each in kernel.functions), kernel.text) if text
        )
        if "#pragma GCC" in "".join([support, *host_texts]):
            w.text(QUIET_NVCC)
        for name in (
            "math",
            *(("stdalign",) if self.program.functions else ()),
            "stdbool",
            "stddef",
            "stdint",
            "string",
        ):
            w.line(f"#include <{name}.h>")
        w.line()
        for include in distinct(include for part in self.program.every_part() for include in part.includes):
            w.line(f"#include <{include}>")
        w.line()
        w.line(f'#include "{self.program.name}.h"')
        w.line(
            f'#include "{self.program.name}_support.h"  '
            "// printing, errors, maths: what every program of staged may use"
        )
        w.line()
        w.text(_CHECK)
        of_libraries = prototypes(self.program.launched)
        if of_libraries:
            w.line()
            w.text(of_libraries)
        for macro in distinct(macro for part in self.program.every_part() for macro in part.checks):
            w.line()
            w.text(macro)
        of_users = [kernel for kernel in on_device if kernel.launch is None]
        more = [*self.program.sequence_texts.kernels, *self.program.graphs.kernel_names()]
        if len(of_users) < len(on_device) or self.program.finite_checks.dtypes or more:
            w.line()
            w.text(DIM3)
        if of_users:
            w.line()
            w.text(DIM3_OF)
        self.write_device_struct(w)
        grown = device_stack_text(self.program.stacks) + (
            STORES if self.program.device_locals or self.program.has_device_store else ""
        )
        if grown:
            w.section("residual storage")
            w.text(grown)
        self.write_frames(w)
        self.write_buffers(w, structure)
        self.write_constants(w, structure)
        if on_host:
            w.section("kernels of the host")
            for text in host_texts:
                w.line()
                w.text(text)
        if on_device or self.program.sequence_texts.kernels:
            w.section("launches")
            for kernel in on_device:
                w.line()
                write = thread_launcher if kernel.launch is None else launcher
                w.text(write(kernel, self.program.launchers[kernel.name]))
            for dtype in self.program.finite_checks.dtypes:
                w.line()
                w.text(finite_check_launcher(dtype))
            for text in (*self.program.sequence_texts.launcher_texts(), *self.program.sequence_texts.function_texts()):
                w.line()
                w.text(text)
        if self.program.kernels_may_fail:
            w.line()
            rows, count = self.program.finite_checks.rows, len(self.program.devices)
            name = f"{self.program.name}_explain" if self.program.departs else ""
            w.text(wait_for_device(rows, count, needs_of(on_device), name))
        if calls:
            w.section("library calls")
            shared = distinct(text for call in calls for text in call.helpers)
            for text in (*shared, *(call.text for call in calls)):
                w.line()
                w.text(text)
        self.write_functions(w)
        if self.program.graphs.iterations:
            w.section("turns of loops")
            for text in self.program.graphs.functions():
                w.line()
                w.text(text)
        w.section("entry points")
        w.line()
        write_helpers(w, self.program.every_part())
        parts = [self.program.device_parts(device) for device in self.program.devices]
        if len(self.program.devices) == 1:
            write_open(w, parts[0])
            w.line()
            self.write_entry(w, structure, inner)
            w.line()
            write_release(w, self.program.name, self.program.device_offset(), parts[0], self.program.departs)
            return
        for device, own in zip(self.program.devices, parts, strict=True):
            write_open(w, own, opener(device))
            w.line()
        self.write_entry(w, structure, inner)
        w.line()
        write_release_of_all(w, self.program.name, self.program.device_offset(), self.program.devices, parts)

    def write_device_struct(self, w: Writer) -> None:
        w.section("the device")
        w.line("#ifdef HOST_ONLY")
        w.line("#define KERNEL_NUMBER(name) NUMBER_##name,")
        w.line("enum { KERNELS(KERNEL_NUMBER) KERNEL_COUNT };")
        w.line("#define KERNEL(name) ((const void *)gpu->kernels[NUMBER_##name])")
        w.line(f"extern const unsigned char {self.program.name}_image[];  // the compiled kernels")
        w.line("#else")
        w.line("#define KERNEL(name) ((const void *)name)")
        w.line("#endif")
        w.line()
        of_parts = distinct(type for part in self.program.every_part() for type in part.types)
        graphs = graph_types(self.program.graphs.iterations)
        for text in (*of_parts, *graphs, *self.program.stagings.types()):
            w.text(text)
            w.line()
        write_struct(w, self.program.every_part())
        if len(self.program.devices) > 1:
            copies = any("copy_from_peer" in functions_called(each.code.body) for each in self.program.structures)
            for text in (USE, COPY) if copies else (USE,):
                w.line()
                w.text(text)

    def write_buffers(self, w: Writer, structure: BodyEmitter) -> None:
        w.section("sizes and buffers")
        if self.program.scratch_bytes:
            w.line(f"enum {{ SCRATCH_BYTES = {self.program.scratch_bytes} }};  // workspace of the host's kernels")
            w.line()
        w.comment("Where values are kept; those whose lives do not overlap share memory.")
        _write_struct(w, "Buffers", [state for state in self.program.state if state.device == CPU], "on the host")
        where = "on the device" if len(self.program.devices) == 1 else "on the devices"
        _write_struct(w, "DeviceBuffers", device_state(self.program), where)

    def write_function_locals(self, w: Writer, made: CFunction) -> None:
        if made.locals_type:
            write_locals(w, made, "alignas(64) ")
            w.line()
        name = made.signature.function.name
        if name in self.program.device_locals:
            write_device_locals(w, made, self.program.device_locals[name])
            w.line()


def _write_struct(w: Writer, name: str, states: Sequence[State], where: str) -> None:
    if not states:
        return
    w.line()
    w.comment(where)
    width = max(len(state.declaration) for state in states)
    with w.block("typedef struct", f" {name};"):
        for state in states:
            w.line(f"{state.declaration:<{width}}  // {safe_comment(state.note)}")
