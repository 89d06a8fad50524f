"""CUDA as a language of kernels."""

from __future__ import annotations

from staged.backends.c_family.code.types import Space
from staged.backends.c_family.expr import Literal, Name
from staged.backends.cublas_cudnn.spelling import CUDA_FUNCTIONS, CUDA_MATHS, RENAMED
from staged.backends.gpu_family.dialect import GpuDialect
from staged.ir.types import f32, f64

CUDA_WORDS = CUDA_FUNCTIONS | frozenset(
    "threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 __global__ __device__ __shared__ KERNELS KERNEL ST_UNROLLED".split()
)
"""Names that mean something in kernels, or in what surrounds them."""

CUDA = GpuDialect(
    unroll="ST_UNROLLED",
    needs_casts=True,
    restrict="__restrict__",
    kernel_head='extern "C" __global__ void __launch_bounds__({})',
    storage={Space.SHARED: "__shared__ "},
    block_barrier="__syncthreads()",
    warp_barrier="__syncwarp()",
    thread=Name("threadIdx.x"),
    block=Name("blockIdx.x"),
    block_size=Name("blockDim.x"),
    add_atomically="atomicAdd",
    ballot=("__ballot_sync", (Literal("0xffffffffu"),)),
    lowest_bit="__ffs",
    maths={
        (op, dtype): name + ending
        for op, name in ({name: name for name in sorted(CUDA_MATHS)} | RENAMED).items()
        for dtype, ending in ((f32, "f"), (f64, ""))
    },
    reserved=CUDA_WORDS,
)
