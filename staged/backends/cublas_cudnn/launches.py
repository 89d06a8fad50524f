"""The host functions that start kernels: each stands for one launch, with its grid and the reason for it."""

from __future__ import annotations

from staged.backends.c_family.loops import wrapped
from staged.backends.c_family.writer import Writer
from staged.backends.cublas_cudnn.failures import RECORD
from staged.backends.cublas_cudnn.kernel_text import CudaKernel


def launcher(kernel: CudaKernel, name: str) -> str:
    """The function `name(gpu, arguments of the kernel)` that starts a kernel; it gives CUDA's error."""
    assert kernel.launch is not None
    w = Writer()
    w.comment(f"{kernel.launch}")
    parameters = ", ".join(["const Device *gpu", *(f"{type}{parameter}" for type, parameter in kernel.parameters)])
    with w.block(wrapped(f"static cudaError_t {name}({parameters})")):
        for copy in kernel.copies:
            with w.block(f"if ({copy.target} != {copy.source})"):
                call = (
                    f"cudaMemcpyAsync({copy.target}, {copy.source}, {copy.size}, cudaMemcpyDeviceToDevice, gpu->stream)"
                )
                w.line(f"const cudaError_t copied = {call};")
                with w.block("if (copied != cudaSuccess)"):
                    w.line("return copied;")
        given = [parameter for _, parameter in kernel.parameters]
        given += ["gpu->scratch"] if kernel.workspace_bytes else []
        given += [f"gpu->{RECORD}"] if kernel.can_fail else []
        w.text(wrapped(f"void *values[] = {{{', '.join(f'(void *)&{value}' for value in given)}}};"))
        w.line("(void)gpu;")
        grid = f"st_dim3({kernel.launch.blocks}), st_dim3({kernel.launch.threads})"
        w.line(f"return cudaLaunchKernel(KERNEL({kernel.name}), {grid}, values, 0, gpu->stream);")
    return str(w)
