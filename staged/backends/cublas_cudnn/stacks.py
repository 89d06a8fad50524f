"""Growable storage for what loops without a known bound keep for their backward pass, on the device and on the host.

In what C and C++ have in common, unlike the host's own (`c_family/support/stack.py`), whose words C++ does not take.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.device import DevicePart
from staged.ir.buffers import Stack
from staged.ir.types import CPU

TYPE = """\
// Items of one size, kept in the order in which they were pushed. All zero is an empty stack. Storage only grows, by
// doubling, so a program that repeats itself stops allocating once it has met its longest loop.
typedef struct st_stack {
    unsigned char *data;  // on the host or on the device
    int64_t length;       // items
    int64_t capacity;     // bytes
} st_stack;

// Forget the items, keep the storage.
static inline void st_stack_reset(st_stack *stack) {
    stack->length = 0;
}

// The capacity that holds `used` bytes and `bytes` more; 0 where that is more than can be addressed.
static inline size_t st_stack_grown(const st_stack *stack, size_t used, size_t bytes) {
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
"""

ON_HOST = """
// Append a copy of one item of the host.
static int st_stack_push(st_host *host, st_stack *stack, const void *item, size_t bytes) {
    const size_t used = (size_t)stack->length * bytes;
    const size_t capacity = st_stack_grown(stack, used, bytes);
    if (capacity > (size_t)stack->capacity || capacity == 0) {
        unsigned char *const data = capacity == 0 ? NULL : (unsigned char *)realloc(stack->data, capacity);
        if (data == NULL) {
            return st_fail(host, ST_MEMORY_ERROR, -1, "out of memory: a loop keeps %zu bytes for its gradient, and %zu more",
                           used, bytes);
        }
        stack->data = data;
        stack->capacity = (int64_t)capacity;
    }
    memcpy(stack->data + used, item, bytes);
    ++stack->length;
    return ST_OK;
}
"""

ON_DEVICE = """
// Append a copy of one item of the device. What is there moves when the storage grows, in the stream's order.
static int st_device_stack_push(const Device *gpu, st_host *host, int site, st_stack *stack, const void *item, size_t bytes) {
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
    CUDA_CHECK(site, cudaMemcpyAsync(stack->data + used, item, bytes, cudaMemcpyDeviceToDevice, gpu->stream));
    ++stack->length;
    return ST_OK;
}
"""


def stack_text(stacks: Sequence[Stack]) -> str:
    """The functions that a program with these stacks uses."""
    on_host = any(stack.device == CPU for stack in stacks)
    on_device = any(stack.device != CPU for stack in stacks)
    return TYPE + (ON_HOST if on_host else "") + (ON_DEVICE if on_device else "")


def stacks_part(stacks: Sequence[Stack], heads: int, head_bytes: int) -> DevicePart:
    """Giving back what the stacks have grown; their heads are in the host's arena, from `heads` on."""
    closes: list[str] = []
    for stack in stacks:
        place = f"(st_stack *)(void *)((unsigned char *)arena + {heads + head_bytes * stack.index})"
        free = "free" if stack.device == CPU else "(void)cudaFree"
        closes += ["{", f"    st_stack *const stack = {place};  // {stack.name}", f"    {free}(stack->data);"]
        closes += ["    memset(stack, 0, sizeof *stack);", "}"]
    return DevicePart((), (), tuple(closes))
