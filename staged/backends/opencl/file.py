"""The file of a program for OpenCL: the text of its kernels, what it has on the device, and the host part in C.

The functions `st_ocl_...` are those of `runtime/opencl/device.c`.

Tested by `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staged.backends.contract import Emitted, Planner
from staged.backends.gpu.failures import DECLARATIONS as HOST_DECLARATIONS
from staged.backends.gpu.failures import OTHERWISE, explain
from staged.backends.gpu.joining import join_launches
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.stacks import GROWN, PUSH
from staged.backends.gpu.support import calls_of, device_functions, needs_of
from staged.backends.host.body import LEAVE, OK, BodyEmitter
from staged.backends.host.buffer_structs import place_in
from staged.backends.host.file import DeviceFile, add_no_error
from staged.backends.host.program import HEAD
from staged.backends.opencl.dialect import OPENCL, OPENCL_GPU, PRELUDE, find_snippet
from staged.backends.opencl.failures import DECLARATIONS, WAIT
from staged.backends.opencl.program import OpenClProgram
from staged.backends.opencl.structure import DEVICE
from staged.code.expr import Cast, Infix, Junction, Name, Prefix, Variable, call, member
from staged.code.kernel_text import KernelText
from staged.code.tree import CodeBuilder, Declare, If
from staged.code.types import BYTES, Space, pointer, word
from staged.code.writer import Writer, c_string
from staged.errors import UnsupportedError
from staged.ir.buffers import Stack
from staged.ir.functions import every_function
from staged.ir.machine import Machine
from staged.ir.nodes import Function, VariableRef, walk_ops
from staged.ir.types import CPU

_API = """\
// What reaches the device (`device.c` of staged's runtime for OpenCL): 0, or NULL, where `st_ocl_words` says what was
// wrong.
typedef struct st_ocl st_ocl;
extern st_ocl *st_ocl_open(int number);
extern void *st_ocl_allocate(st_ocl *gpu, size_t bytes);
extern void st_ocl_free(st_ocl *gpu, void *memory);
extern int st_ocl_copy(st_ocl *gpu, void *to, const void *from, size_t bytes);
extern int st_ocl_zero(st_ocl *gpu, void *to, size_t bytes);
extern int st_ocl_finish(st_ocl *gpu);
extern int st_ocl_map(st_ocl *gpu, void *memory, size_t bytes);
extern int st_ocl_unmap(st_ocl *gpu, void *memory);
extern void *st_ocl_build(st_ocl *gpu, const char *text);
extern void *st_ocl_kernel(void *program, const char *name);
extern void st_ocl_forget(void *program, void *const *kernels, int count);
extern int st_ocl_launch(st_ocl *gpu, void *kernel, const size_t *grid, const size_t *block, int count,
                         const void *const *values, const size_t *sizes);
extern const char *st_ocl_words(void);

// Every such call goes through this: a failure stops the program, with the call and the number `site` of its line in
// Python.
#define OCL_CHECK(site, call) \\
    do { \\
        if ((call) != 0) { \\
            return st_fail(host, ST_RUNTIME_ERROR, (site), "%s: %s", #call, st_ocl_words()); \\
        } \\
    } while (0)
"""


_STACKS = f"""\
{GROWN}        unsigned char *const data = st_ocl_allocate(gpu->device, capacity);
        if (data == NULL) {{
            return st_fail(host, ST_MEMORY_ERROR, site, "%s", st_ocl_words());
        }}
        if (stack->data != NULL) {{
            OCL_CHECK(site, st_ocl_copy(gpu->device, data, stack->data, used));
            st_ocl_free(gpu->device, stack->data);
        }}
        stack->data = data;
        stack->capacity = (int64_t)capacity;
    }}
    OCL_CHECK(site, st_ocl_copy(gpu->device, stack->data + used, item, filled));
    ++stack->length;
    return ST_OK;
}}
{PUSH}
// Give the storage back; an empty head grows anew.
static void forget_stack(const Device *gpu, st_stack *stack) {{
    if (stack->data != NULL) {{
        st_ocl_free(gpu->device, stack->data);
    }}
    memset(stack, 0, sizeof *stack);
}}
"""


def emit_program(function: Function, machine: Machine, plan: Planner, check_nan: bool) -> Emitted:
    """The program of a placed and fused function."""
    _check(function)
    program = OpenClProgram(join_launches(function, OPENCL_GPU), machine, check_nan)
    emitted = program.run(plan, OpenClFile)
    return replace(emitted, artifact=replace(emitted.artifact, gpus=(program.device.index,)))


def _check(function: Function) -> None:
    """Refuse what is not written for OpenCL yet."""
    there = [op for each in every_function(function) for op in walk_ops(each.block) if op.device != CPU]
    others = [op for op in there if op.device != there[0].device]
    inside = [op for each in function.functions for op in walk_ops(each.block) if op.device != CPU]
    for what, ops in (("several devices", others), ("a recursive function with work on the device", inside)):
        if ops:
            raise UnsupportedError(f"the back end 'opencl' cannot write {what}", where=ops[0].where)


class OpenClFile(DeviceFile):
    """Writes the file of a program with a device."""

    def __init__(self, program: OpenClProgram) -> None:
        super().__init__(program)
        self.program: OpenClProgram = program

    def assemble(
        self, structure: BodyEmitter, kernels: Sequence[KernelText], inner: list[tuple[VariableRef, str]]
    ) -> str:
        return super().assemble(structure, [each for each in kernels if not isinstance(each, GpuKernel)], inner)

    @property
    def device_stacks(self) -> list[Stack]:
        """Device storage for loops of unbounded trip count."""
        return [stack for stack in self.program.stacks if stack.device != CPU]

    def kernels_text(self) -> str:
        """The text that the device's compiler takes."""
        kernels = self.program.on_device
        head = PRELUDE + DECLARATIONS if self.program.kernels_may_fail else PRELUDE
        head = head if self.program.machine.contracts else f"#pragma OPENCL FP_CONTRACT OFF\n{head}"
        functions = device_functions(needs_of(kernels), calls_of(kernels), OPENCL, find_snippet)
        return "\n".join([head, functions, *(kernel.text for kernel in kernels)])

    def write_frames(self, w: Writer) -> None:
        """The device's part stands before the records that calls leave."""
        w.section("kernels of the device")
        w.line("static const char kernels[] =")
        for line in self.kernels_text().rstrip("\n").split("\n"):
            w.line(f"    {c_string(line + chr(10))}")
        w.line("    ;")
        w.section("the device")
        w.text(_API)
        w.line()
        count = max(1, len(self.program.on_device))
        if self.program.kernels_may_fail:
            w.text(HOST_DECLARATIONS)
            w.line()
        w.comment("What the program has on the device. The first call makes it; it lasts until the arena goes.")
        with w.block("typedef struct", " Device;"):
            w.line("st_ocl *device;  // it is open")
            w.line(f"unsigned char *memory;  // {self.program.memory_bytes:,} bytes")
            if self.program.kernels_may_fail:
                w.line("st_device_failure *failed;  // what kernels report")
            w.line("void *program;")
            w.line(f"void *kernels[{count}];")
        w.line()
        with w.block("static void close_device(Device *gpu)"):
            with w.block("if (gpu->device != NULL && gpu->program != NULL)"):
                w.line(f"st_ocl_forget(gpu->program, gpu->kernels, {len(self.program.on_device)});")
            with w.block("if (gpu->device != NULL && gpu->memory != NULL)"):
                w.line("st_ocl_free(gpu->device, gpu->memory);")
            w.line("*gpu = (Device){0};")
        w.line()
        site = self.program.site(self.program.function.where)
        with w.block("static int open_device(Device *gpu, st_host *host)"):
            failed = f'st_fail(host, ST_RUNTIME_ERROR, {site}, "OpenCL: %s", st_ocl_words())'
            w.line(f"gpu->device = st_ocl_open({self.program.device.index});")
            w.line(
                f"gpu->memory = gpu->device != NULL ? st_ocl_allocate(gpu->device, {self.program.memory_bytes}) : NULL;"
            )
            w.line("gpu->program = gpu->memory != NULL ? st_ocl_build(gpu->device, kernels) : NULL;")
            for number, kernel in enumerate(self.program.on_device):
                kernel_made = f'st_ocl_kernel(gpu->program, "{kernel.name}")'
                w.line(f"gpu->kernels[{number}] = gpu->program != NULL ? {kernel_made} : NULL;")
            made = ["gpu->memory", "gpu->program", *(f"gpu->kernels[{n}]" for n in range(len(self.program.on_device)))]
            with w.block(f"if ({' || '.join(f'{each} == NULL' for each in made)})"):
                w.line(f"(void){failed};")
                w.line("close_device(gpu);")
                w.line("return host->error_kind;")
            if self.program.kernels_may_fail:
                w.line(f"gpu->failed = (st_device_failure *)(void *)(gpu->memory + {self.program.failures_offset});")
            w.line("return ST_OK;")
        if self.program.kernels_may_fail:
            w.line()
            w.text(WAIT + explain(needs_of(self.program.on_device)) + OTHERWISE)
        for number, kernel in enumerate(self.program.on_device):
            w.line()
            w.text(self.launcher(kernel, number))
        if self.device_stacks:
            w.section("residual storage")
            w.text(_STACKS)
        super().write_frames(w)

    def add_begin(self, code: CodeBuilder) -> None:
        add_no_error(code)
        place = place_in(Cast(BYTES, Name("arena")), "Device", self.program.device_offset())
        code.add(Declare(Variable("gpu", pointer(word("Device"), Space.GLOBAL)), place))
        is_new = Infix("==", DEVICE, Name("NULL")), Infix("!=", call("open_device", "gpu", "host"), OK)
        code.add(If(Junction("&&", is_new), (LEAVE,)))
        if self.program.kernels_may_fail:
            site, failed = self.program.site(self.program.function.where), member("gpu", "failed")
            code.do("OCL_CHECK", site, call("st_ocl_zero", DEVICE, failed, Prefix("sizeof *", failed)))

    def write_release(self, w: Writer) -> None:
        with w.block(f"void {self.program.name}_release(void *arena)"):
            w.line("unsigned char *const base = arena;")
            place = f"(Device *)(void *)(base + {self.program.device_offset()})"
            for stack in self.device_stacks:
                head = f"(st_stack *)(void *)(base + {self.program.stacks_offset() + HEAD * stack.index})"
                w.line(f"forget_stack({place}, {head});  // {stack.name}")
            w.line(f"close_device({place});")
            self.write_release_of_host(w)

    def launcher(self, kernel: GpuKernel, number: int) -> str:
        """The host function that starts a kernel."""
        w = Writer()
        if kernel.launch is not None:
            w.comment(f"{kernel.launch}")
        given = [*kernel.parameters, *([("unsigned char *", "scratch")] if kernel.workspace_bytes else [])]
        given += [("st_device_failure *", "gpu->failed")] if kernel.can_fail else []
        head = ["const Device *gpu", *(["const size_t *grid"] if kernel.launch is None else [])]
        parameters = ", ".join([*head, *(f"{type}{name}" for type, name in kernel.parameters)])
        with w.block(f"static int {self.program.launcher_name(kernel)}({parameters})"):
            for copy in kernel.copies:
                source = str(copy.source)
                call = f"st_ocl_copy(gpu->device, {copy.target}, {source}, {copy.size})"
                if copy.source is None:
                    source, call = "NULL", f"st_ocl_zero(gpu->device, {copy.target}, {copy.size})"
                with w.block(f"if ({copy.target} != {source} && {call} != 0)"):
                    w.line("return 1;")
            if kernel.workspace_bytes:
                w.line(f"unsigned char *const scratch = gpu->memory + {self.program.values_bytes};")
            block = kernel.code.block if kernel.code is not None else None
            if kernel.launch is not None:
                blocks, block = str(kernel.launch.blocks), (kernel.launch.threads, 1, 1)
                if kernel.launch.grid is not None:
                    w.statement(f"const int64_t blocks = {kernel.launch.grid};")
                    with w.block("if (blocks == 0)"):
                        w.line("return 0;  // of no elements")
                    blocks = "(size_t)blocks"
                w.line(f"const size_t grid[] = {{{blocks}, 1, 1}};")
            assert block is not None
            w.line(f"const size_t block[] = {{{', '.join(map(str, block))}}};")
            pointers = [type.endswith("*") for type, _ in given]
            values = [name if is_pointer else f"&{name}" for is_pointer, (_, name) in zip(pointers, given, strict=True)]
            sizes = [
                "0" if is_pointer else f"sizeof {name}" for is_pointer, (_, name) in zip(pointers, given, strict=True)
            ]
            w.statement(f"const void *const values[] = {{{', '.join(values)}}};")
            w.statement(f"const size_t st_sizes[] = {{{', '.join(sizes)}}};  // 0: an address of the device")
            size = f"grid, block, {len(given)}"
            w.statement(f"return st_ocl_launch(gpu->device, gpu->kernels[{number}], {size}, values, st_sizes);")
        return str(w)
