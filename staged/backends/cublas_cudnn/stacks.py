"""Growable storage on the device for what loops without a known bound keep for their backward pass.

It is the host's (`c_family/support/stack.py`), but for where the items lie.

Tested by `tests/backends/cublas_cudnn/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.device import DevicePart
from staged.ir.buffers import Stack
from staged.ir.types import CPU

_ON_DEVICE = """\
// The capacity that holds `used` bytes and `bytes` more; 0 where that is more than can be addressed.
static size_t st_stack_grown(const st_stack *stack, size_t used, size_t bytes) {
    const size_t most = (size_t)INT64_MAX / 2;
    if (bytes > most || used > most - bytes) {
        return 0;
    }
    size_t capacity = stack->capacity > 0 ? (size_t)stack->capacity : 4096;
    while (capacity < used + bytes) {
        capacity *= 2;
    }
    return capacity;
}

// Append a copy of one item of the device, of which only the first `filled` bytes are there: an array with fewer rows
// than it may have. What is in the storage moves when that grows, in the stream's order.
static int st_device_stack_push_part(const Device *gpu, st_host *host, int site, st_stack *stack, const void *item,
                                     size_t bytes, size_t filled) {
    const size_t used = (size_t)stack->length * bytes;
    const size_t capacity = st_stack_grown(stack, used, bytes);
    if (capacity == 0) {
        return st_fail(host, ST_MEMORY_ERROR, site, "a loop keeps more for its gradient than can be addressed");
    }
    if (capacity > (size_t)stack->capacity) {
        void *data = NULL;
        CUDA_CHECK(site, cudaMalloc(&data, capacity));
        unsigned char *const before = stack->data;
        stack->data = (unsigned char *)data;
        stack->capacity = (int64_t)capacity;
        if (before != NULL) {
            CUDA_CHECK(site, cudaMemcpyAsync(data, before, used, cudaMemcpyDeviceToDevice, gpu->stream));
            CUDA_CHECK(site, cudaStreamSynchronize(gpu->stream));
            CUDA_CHECK(site, cudaFree(before));
        }
    }
    CUDA_CHECK(site, cudaMemcpyAsync(stack->data + used, item, filled, cudaMemcpyDeviceToDevice, gpu->stream));
    ++stack->length;
    return ST_OK;
}

// Append a copy of one item of the device.
__attribute__((unused)) static int st_device_stack_push(const Device *gpu, st_host *host, int site, st_stack *stack,
                                                        const void *item, size_t bytes) {
    return st_device_stack_push_part(gpu, host, site, stack, item, bytes, bytes);
}
"""


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
