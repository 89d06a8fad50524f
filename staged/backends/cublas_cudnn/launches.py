"""The host functions that start kernels: each stands for one launch, with its grid and the reason for it.

Tested by `tests/backends/cublas_cudnn/test_kernels.py`.
"""

from __future__ import annotations

from staged.backends.gpu.failures import RECORD
from staged.backends.gpu.kernel_text import GpuKernel
from staged.code.writer import Names, Writer

DIM3 = """\
static dim3 st_dim3(unsigned int x) {
    dim3 size;
    size.x = x;
    size.y = 1;
    size.z = 1;
    return size;
}
"""

DIM3_OF = """\
static dim3 st_dim3_of(unsigned int x, unsigned int y, unsigned int z) {
    dim3 size;
    size.x = x;
    size.y = y;
    size.z = z;
    return size;
}
"""


def launcher_of(kernel: GpuKernel, launchers: dict[str, str], names: Names) -> str:
    """The name of the function that launches a kernel, which `launchers` has by the kernel's name."""
    if kernel.name not in launchers:
        launchers[kernel.name] = names.fresh(f"launch_{kernel.name.removesuffix('_kernel')}")
    return launchers[kernel.name]


def launcher(kernel: GpuKernel, name: str) -> str:
    """The function `name(gpu, arguments of the kernel)` that starts a kernel; it gives CUDA's error."""
    assert kernel.launch is not None
    w = Writer()
    w.comment(f"{kernel.launch}")
    parameters = ", ".join(["const Device *gpu", *(f"{type}{parameter}" for type, parameter in kernel.parameters)])
    with w.block(f"static cudaError_t {name}({parameters})"):
        for copy in kernel.copies:
            if copy.source is None:
                w.statement(f"const cudaError_t cleared = cudaMemsetAsync({copy.target}, 0, {copy.size}, gpu->stream);")
                with w.block("if (cleared != cudaSuccess)"):
                    w.line("return cleared;")
                continue
            with w.block(f"if ({copy.target} != {copy.source})"):
                call = (
                    f"cudaMemcpyAsync({copy.target}, {copy.source}, {copy.size}, cudaMemcpyDeviceToDevice, gpu->stream)"
                )
                w.statement(f"const cudaError_t copied = {call};")
                with w.block("if (copied != cudaSuccess)"):
                    w.line("return copied;")
        w.statement(f"void *values[] = {{{addresses(kernel)}}};")
        grid = f"st_dim3({kernel.launch.blocks}), st_dim3({kernel.launch.threads})"
        if kernel.launch.grid:
            w.statement(f"const int64_t blocks = {kernel.launch.grid};")
            with w.block("if (blocks == 0)"):
                w.line("return cudaSuccess;  // of no elements")
            grid = f"st_dim3((unsigned int)blocks), st_dim3({kernel.launch.threads})"
        w.statement(f"return cudaLaunchKernel(KERNEL({kernel.name}), {grid}, values, 0, gpu->stream);")
    return str(w)


def addresses(kernel: GpuKernel) -> str:
    """The addresses of a kernel's arguments. The program's own arrays are accessed by pointers that do not change."""
    given = [f"&{parameter}" for _, parameter in kernel.parameters]
    given += ["(void *)&gpu->scratch"] if kernel.workspace_bytes else []
    given += [f"(void *)&gpu->{RECORD}"] if kernel.can_fail else []
    return ", ".join(given)


def thread_launcher(made: GpuKernel, name: str) -> str:
    """The host function `name(gpu, grid, block, arguments of the kernel)`; it gives CUDA's error."""
    w = Writer()
    parameters = [f"{type}{parameter}" for type, parameter in made.parameters]
    head = ", ".join(["const Device *gpu", "dim3 grid", "dim3 block", *parameters])
    with w.block(f"static cudaError_t {name}({head})"):
        w.statement(f"void *values[] = {{{addresses(made)}}};")
        w.line(f"return cudaLaunchKernel(KERNEL({made.name}), grid, block, values, 0, gpu->stream);")
    return str(w)
