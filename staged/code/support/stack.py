"""Growable storage for what a loop without a known bound keeps for its backward pass."""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_STACK = """\
// ---- residual storage ------------------------------------------------------------------------
// Items of one size, kept in the order in which they were pushed. All zero is an empty stack. Storage only grows, by
// doubling, so a program that repeats itself stops allocating once it has met its longest loop.
typedef struct st_stack {
    unsigned char *data;
    int64_t length;    // items
    int64_t capacity;  // bytes
} st_stack;

static_assert(sizeof(st_stack) <= 64, "the arena sets 64 bytes aside for each stack");

// Append an item of which only the first `filled` bytes are there: an array with fewer rows than it may have.
// Returns ST_OK, or ST_MEMORY_ERROR once `host` holds the report; the stack stays as it was.
__attribute__((unused)) static int st_stack_push_part(st_host *host, st_stack *stack, const void *item, size_t bytes,
                                                      size_t filled) {
    if (bytes == 0) {
        ++stack->length;
        return ST_OK;
    }
    const size_t used = (size_t)stack->length * bytes;
    const size_t most = (size_t)INT64_MAX / 2;
    if (bytes > most || used > most - bytes) {
        return st_fail(host, ST_MEMORY_ERROR, -1, "a loop keeps more for its gradient than can be addressed");
    }
    if (used + bytes > (size_t)stack->capacity) {
        size_t capacity = stack->capacity > 0 ? (size_t)stack->capacity : 4096;
        while (capacity < used + bytes) {
            capacity *= 2;
        }
        unsigned char *data = (unsigned char *)realloc(stack->data, capacity);
        if (data == NULL) {
            return st_fail(host, ST_MEMORY_ERROR, -1,
                    "out of memory: a loop keeps %zu bytes for its gradient, and %zu more",
                           used, bytes);
        }
        stack->data = data;
        stack->capacity = (int64_t)capacity;
    }
    memcpy(stack->data + used, item, filled);
    ++stack->length;
    return ST_OK;
}

// Append a copy of one item.
__attribute__((unused)) static int st_stack_push(st_host *host, st_stack *stack, const void *item, size_t bytes) {
    return st_stack_push_part(host, stack, item, bytes, bytes);
}

// Forget the items, keep the storage.
__attribute__((unused)) static void st_stack_reset(st_stack *stack) {
    stack->length = 0;
}

// Give the storage back.
__attribute__((unused)) static void st_stack_release(st_stack *stack) {
    free(stack->data);
    memset(stack, 0, sizeof *stack);
}
"""

SNIPPETS = (Snippet("stack", _STACK, needs=("host", "fail"), includes=headers("assert", "stdint", "stdlib", "string")),)
