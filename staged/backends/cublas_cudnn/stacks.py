"""Growable storage on the device for what loops without a known bound keep for their backward pass.

It is the host's (`code/support/stack.py`), but for where the items lie.

Tested by `tests/backends/cublas_cudnn/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.device import DevicePart
from staged.backends.gpu.stacks import GROWN, PUSH
from staged.ir.buffers import Stack
from staged.ir.types import CPU

_ON_DEVICE = f"""\
{GROWN}        void *data = NULL;
        CUDA_CHECK(site, cudaMalloc(&data, capacity));
        unsigned char *const before = stack->data;
        stack->data = (unsigned char *)data;
        stack->capacity = (int64_t)capacity;
        if (before != NULL) {{
            CUDA_CHECK(site, cudaMemcpyAsync(data, before, used, cudaMemcpyDeviceToDevice, gpu->stream));
            CUDA_CHECK(site, cudaStreamSynchronize(gpu->stream));
            CUDA_CHECK(site, cudaFree(before));
        }}
    }}
    CUDA_CHECK(site, cudaMemcpyAsync(stack->data + used, item, filled, cudaMemcpyDeviceToDevice, gpu->stream));
    ++stack->length;
    return ST_OK;
}}
{PUSH}"""


def device_stack_text(stacks: Sequence[Stack]) -> str:
    """The functions that a program with these stacks uses beside those of the host; empty where all are the host's.

    Exact: items keep their order and their bits when the storage grows, which is given back when it has been read; more
    than can be addressed is an error.
    """
    return _ON_DEVICE if any(stack.device != CPU for stack in stacks) else ""


def stacks_part(stacks: Sequence[Stack], heads: int, head_bytes: int) -> DevicePart:
    """Giving back what the stacks have grown; their heads are in the host's arena, from `heads` on.

    Exact: each by those who gave it; a stack that has not grown has nothing, and an empty head grows anew.
    """
    closes: list[str] = []
    for stack in stacks:
        place = f"(st_stack *)(void *)((unsigned char *)arena + {heads + head_bytes * stack.index})"
        free = "free" if stack.device == CPU else "(void)cudaFree"
        closes += ["{", f"    st_stack *const stack = {place};  // {stack.name}", f"    {free}(stack->data);"]
        closes += ["    memset(stack, 0, sizeof *stack);", "}"]
    return DevicePart((), (), tuple(closes))
