"""CUDA as a language of kernels.

Tested by `tests/backends/gpu/test_kernel_text.py`.
"""

from __future__ import annotations

from staged.backends.cublas_cudnn.spelling import CUDA_FUNCTIONS
from staged.backends.gpu.dialect import DEVICE_MATHS, GpuDialect
from staged.code.expr import Literal, Member, Name
from staged.code.types import Space
from staged.ir.types import f32, f64

CUDA_WORDS = CUDA_FUNCTIONS | frozenset(
    """threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 __global__ __device__ __shared__ KERNELS KERNEL
    ST_UNROLLED ST_ROLLED""".split()
)
"""Names that mean something in kernels, or in what surrounds them."""

CUDA = GpuDialect(
    unroll="ST_UNROLLED",
    rolled="ST_ROLLED",
    needs_casts=True,
    restrict="__restrict__",
    kernel_head='extern "C" __global__ void __launch_bounds__({})',
    storage={Space.SHARED: "__shared__ "},
    block_barrier="__syncthreads()",
    warp_barrier="__syncwarp()",
    places={
        (name, axis): Member(Name(struct), axis, arrow=False)
        for name, struct in (
            ("thread_index", "threadIdx"),
            ("block_index", "blockIdx"),
            ("block_size", "blockDim"),
            ("grid_size", "gridDim"),
        )
        for axis in "xyz"
    },
    function_head="static __device__ inline ",
    atomics={"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax"},
    all_lanes=(Literal("0xffffffffu"),),
    shuffles={"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync", "xor": "__shfl_xor_sync"},
    ballot="__ballot_sync",
    lowest_bit="__ffs",
    maths={
        (op, dtype): name + ending for op, name in DEVICE_MATHS.items() for dtype, ending in ((f32, "f"), (f64, ""))
    },
    reserved=CUDA_WORDS,
    reserved_by_calls=frozenset(
        """atomicAdd atomicMin atomicMax int64_t uint64_t asm template class new delete this operator private
        public""".split()
    ),
)
