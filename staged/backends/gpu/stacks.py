"""Growable storage on the device for what loops without a known bound keep for their backward pass.

Tested by `tests/backends/cublas_cudnn/test_programs.py`.
"""

from __future__ import annotations

GROWN = """\
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
"""
"""The beginning of a push, up to a back end's calls that move the storage."""

PUSH = """
// Append a copy of one item of the device.
__attribute__((unused)) static int st_device_stack_push(const Device *gpu, st_host *host, int site, st_stack *stack,
                                                        const void *item, size_t bytes) {
    return st_device_stack_push_part(gpu, host, site, stack, item, bytes, bytes);
}
"""
"""The push of a whole item, after that of a part."""
