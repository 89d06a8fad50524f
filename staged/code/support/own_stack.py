"""The stack of a program with recursive functions: its own, so that its end is known and going too deep is an error.

In what C11 and C++17 have in common, as programs with a device need it.

Tested by `tests/backends/support/test_stack.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_OWN_STACK = """\
// ---- the program's own stack -------------------------------------------------------------------
// A program that recurses runs on a stack that it reserves itself: the first call maps it, the system gives it memory
// as it is touched, and it is kept until the arena goes. All zero: not mapped yet.
enum { ST_STACK_PAGE = 1 << 16 };
#define ST_STACK_BYTES ((size_t)1 << 30)  // where `host` asks for none

typedef struct st_own_stack {
    void *base;
    size_t bytes;
    uintptr_t limit;  // a call whose frame lies below goes no deeper
} st_own_stack;

static_assert(sizeof(st_own_stack) <= 64, "the arena sets 64 bytes aside for it");

typedef int st_body(const void *args, void *arena, st_host *host);

typedef struct st_on_stack {
    st_body *body;
    const void *args;
    void *arena;
    st_host *host;
    int status;
} st_on_stack;

// Whether a recursive call may go on: there is room below its frame, and nobody has asked the program to end.
__attribute__((unused)) static inline bool st_may_recurse(const st_host *host, const st_own_stack *stack) {
    return (uintptr_t)__builtin_frame_address(0) > stack->limit && !st_stop_requested(host);
}

// Why it may not.
__attribute__((unused, cold))
static int st_recursion_ends(st_host *host, const st_own_stack *stack, int site, const char *function) {
    if (st_stop_requested(host)) {
        return st_interrupted(host, site);
    }
    return st_fail(host, ST_RECURSION_ERROR, site, "`%s` recurses deeper than the program's stack of %zu bytes allows",
            function,
                   stack->bytes);
}

__attribute__((unused)) static void st_own_stack_release(st_own_stack *stack) {
    if (stack->base != NULL) {
        (void)munmap(stack->base, stack->bytes);
    }
    memset(stack, 0, sizeof *stack);
}

static void *st_start_on_stack(void *argument) {
    st_on_stack *const run = (st_on_stack *)argument;
    run->status = run->body(run->args, run->arena, run->host);
    return NULL;
}

// Run `body` on `stack`, whose last `reserve` bytes are kept for what recursive functions call.
__attribute__((unused)) static int st_run_on_stack(st_own_stack *stack, size_t reserve, st_body *body, const void *args,
                                                   void *arena, st_host *host) {
    host->error_kind = ST_OK;
    host->error_claimed = 0;
    size_t bytes = host->stack_bytes > 0 ? (size_t)host->stack_bytes : ST_STACK_BYTES;
    bytes = (bytes < 2 * reserve ? 2 * reserve : bytes) / ST_STACK_PAGE * ST_STACK_PAGE;
    if (stack->bytes != bytes) {
        st_own_stack_release(stack);
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            return st_fail(host, ST_MEMORY_ERROR, -1, "the system does not give the program's stack of %zu bytes",
                    bytes);
        }
        stack->base = base;
        stack->bytes = bytes;
        stack->limit = (uintptr_t)base + reserve;
    }
    st_on_stack run = {body, args, arena, host, ST_OK};
    pthread_attr_t attributes;
    pthread_t thread;
    // It takes no signals, but for those of its own faults: an interrupt belongs to the thread that called the program.
    const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    sigset_t all, before;
    (void)sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; ++i) {
        (void)sigdelset(&all, faults[i]);
    }
    int refused = pthread_attr_init(&attributes);
    if (refused == 0) {
        refused = pthread_attr_setstack(&attributes, stack->base, stack->bytes);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        refused = refused != 0 ? refused : pthread_create(&thread, &attributes, st_start_on_stack, &run);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)pthread_attr_destroy(&attributes);
    }
    if (refused != 0) {
        return st_fail(host, ST_RUNTIME_ERROR, -1, "the system does not give the program's stack a thread (error %d)",
                refused);
    }
    (void)pthread_join(thread, NULL);
    if (run.status == ST_RECURSION_ERROR) {
        st_own_stack_release(stack);  // all of it has been touched: do not sit on it
    }
    return run.status;
}
"""

SNIPPETS = (
    Snippet(
        "own_stack",
        _OWN_STACK,
        needs=("host", "fail", "stop"),
        includes=(
            "#define _DEFAULT_SOURCE",
            *headers("assert", "pthread", "signal", "stdbool", "stddef", "stdint", "string", "sys/mman"),
        ),
    ),
)
