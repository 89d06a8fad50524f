"""The call into a program, guarded: a Ctrl-C during it sets the program's stop flag.

Python's own handler only notes the signal until the call returns, and a handler written in Python cannot run meanwhile.
So the handler is C, in a small library that is compiled once and kept in the program cache like any other. It is
installed for the length of a call and only if Python's handler was in place; what was there before comes back. A
library that a program calls may install handlers of its own (LLVM behind an OpenCL driver does), note ours as the one
before them and put it back when no call is under way: ours then gives way to the last handler that was in place outside
of a call.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import cffi

from staged.base.artifact import HOST_STRUCT, ErrorKind
from staged.errors import CompilerError
from staged.runtime.compiler import CompileFailure, compile_text

PLAIN_MODE = os.RTLD_NOW | os.RTLD_LOCAL
"""Flags of `dlopen` for programs."""
APART_MODE = PLAIN_MODE | getattr(os, "RTLD_DEEPBIND", 0)
"""Flags for programs that call a device's libraries. A process may hold two libraries of one name, such as NVIDIA's and
the emulated device; a program must use those it is linked with, not the first that is visible to all.
"""

_INTERFACE = f"""
struct st_team;
{HOST_STRUCT}
typedef int st_entry(const void *args, void *arena, st_host *host);
int st_call(st_entry *entry, const void *args, void *arena, st_host *host, volatile int *stop, int catches);
void st_suspend(void);
void st_resume(void);
int64_t st_overlap(const char *args, const int32_t *offsets, const int64_t *sizes, int32_t count,
                   const int32_t *variables, int32_t variable_count, const int32_t *others, int32_t other_count);
typedef struct {{
    uintptr_t dtype;  // the object
    int32_t flags;    // which an array must have
    int32_t word;     // of the arguments, where its address goes
}} st_array;
typedef struct {{
    // How objects lie in memory: see runtime/layout.py.
    int32_t type, items, data, dtype, flags;
    uintptr_t ndarray;
    // What a call gives: inputs and results, in the order of its tuple.
    int32_t count;
    const st_array *arrays;
    // What `st_overlap` takes.
    const int32_t *offsets;
    int32_t array_count;
    const int32_t *variables;
    int32_t variable_count;
    const int32_t *inputs;
    int32_t input_count;
}} st_binding;
int st_bind(char *args, const st_binding *binding, const int64_t *sizes, uintptr_t given);
int st_bind_and_call(st_entry *entry, char *args, void *arena, st_host *host, volatile int *stop, int catches,
                     const st_binding *binding, uintptr_t given);
"""

UNFIT = -1
"""`st_bind_and_call` returns this if an array does not fit; no program returns it."""

_SOURCE = f"""\
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdint.h>
#include <string.h>
{_INTERFACE}
// The flag of the call that catches interrupts now, and what handled them before it; both NULL outside of such a call.
// Only the main thread comes here with `catches`, so this needs no lock.
static volatile int *volatile st_flag;
static struct sigaction *st_before;
// What handled interrupts outside of all calls: Python's handler, as far as is known.
static struct sigaction st_outside;

__attribute__((constructor)) static void st_remember(void) {{
    (void)sigaction(SIGINT, NULL, &st_outside);
}}

static void st_on_interrupt(int number) {{
    volatile int *flag = st_flag;
    if (flag != NULL) {{
        *flag = 1;
    }} else {{
        (void)sigaction(SIGINT, &st_outside, NULL);
        (void)raise(number);
    }}
}}

static void st_install(struct sigaction *before) {{
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    (void)sigemptyset(&ours.sa_mask);
    ours.sa_handler = st_on_interrupt;
    (void)sigaction(SIGINT, &ours, before);
}}

// While Python code runs inside the call (a print), interrupts are Python's again.
void st_suspend(void) {{
    if (st_before != NULL) {{
        (void)sigaction(SIGINT, st_before, NULL);
    }}
}}

void st_resume(void) {{
    if (st_before != NULL) {{
        st_install(st_before);
    }}
}}

int st_call(st_entry *entry, const void *args, void *arena, st_host *host, volatile int *stop, int catches) {{
    host->error_kind = {ErrorKind.OK.value};
    host->error_site = -1;
    host->error_claimed = 0;
    host->text_length = 0;
    *stop = 0;
    volatile int *const outer_flag = st_flag;
    struct sigaction *const outer_before = st_before;
    struct sigaction before;
    int caught = 0;
    if (catches) {{
        (void)sigaction(SIGINT, NULL, &before);
        if (before.sa_handler != st_on_interrupt) {{
            // A handler for one signal alone is not Python's, but one of a library (LLVM's) that hands on to what it
            // found: that may be ours, which would hand back to it.
            if (((unsigned)before.sa_flags & (unsigned)SA_RESETHAND) == 0) {{
                st_outside = before;
            }}
        }} else if (outer_flag == NULL) {{
            before = st_outside;  // ours was put back by somebody else
        }}
        caught = before.sa_handler != SIG_IGN && before.sa_handler != SIG_DFL;
        st_flag = caught ? stop : NULL;
        st_before = caught ? &before : NULL;
        if (caught) {{
            st_install(NULL);
        }}
    }}
    int status = entry(args, arena, host);
    if (host->text_length > 0 && host->write != NULL) {{
        const int64_t length = host->text_length;
        host->text_length = 0;
        host->write(host->context, host->text, length);
    }}
    if (catches) {{
        if (caught) {{
            (void)sigaction(SIGINT, &before, NULL);
        }}
        st_flag = outer_flag;
        st_before = outer_before;
    }}
    return status == {ErrorKind.OK.value} && *stop != 0 ? {ErrorKind.INTERRUPTED.value} : status;
}}

// Find a variable that shares memory with an argument among `others`: its index * count + the other's, or -1.
int64_t st_overlap(const char *args, const int32_t *offsets, const int64_t *sizes, int32_t count,
                   const int32_t *variables, int32_t variable_count, const int32_t *others, int32_t other_count) {{
    for (int32_t i = 0; i < variable_count; ++i) {{
        const int32_t v = variables[i];
        const char *begin;
        memcpy(&begin, args + offsets[v], sizeof begin);
        for (int32_t i_other = 0; i_other < other_count; ++i_other) {{
            const int32_t o = others[i_other];
            const char *other;
            memcpy(&other, args + offsets[o], sizeof other);
            if (o != v && (uintptr_t)other < (uintptr_t)begin + (uint64_t)sizes[v] &&
                (uintptr_t)begin < (uintptr_t)other + (uint64_t)sizes[o]) {{
                return (int64_t)v * count + o;
            }}
        }}
    }}
    return -1;
}}

static uintptr_t st_word_at(uintptr_t object, int32_t offset) {{
    uintptr_t word;
    memcpy(&word, (const char *)object + offset, sizeof word);
    return word;
}}

// Bind the arrays of a Python tuple; 0 if one does not fit, or shares memory with a variable. `sizes` are the bytes of
// all arrays, which programs with variables need.
int st_bind(char *args, const st_binding *binding, const int64_t *sizes, uintptr_t given) {{
    for (int32_t i = 0; i < binding->count; ++i) {{
        const st_array *wanted = &binding->arrays[i];
        const uintptr_t array = st_word_at(given, binding->items + i * (int32_t)sizeof(void *));
        if (st_word_at(array, binding->type) != binding->ndarray ||
            st_word_at(array, binding->dtype) != wanted->dtype) {{
            return 0;
        }}
        int32_t flags;
        memcpy(&flags, (const char *)array + binding->flags, sizeof flags);
        if ((flags & wanted->flags) != wanted->flags) {{
            return 0;
        }}
        const uintptr_t data = st_word_at(array, binding->data);
        memcpy(args + (size_t)wanted->word * sizeof(void *), &data, sizeof data);
    }}
    return binding->variable_count == 0 ||
           st_overlap(args, binding->offsets, sizes, binding->array_count, binding->variables,
                      binding->variable_count, binding->inputs, binding->input_count) < 0;
}}

int st_bind_and_call(st_entry *entry, char *args, void *arena, st_host *host, volatile int *stop, int catches,
                     const st_binding *binding, uintptr_t given) {{
    return st_bind(args, binding, NULL, given) ? st_call(entry, args, arena, host, stop, catches) : {UNFIT};
}}
"""

ffi: Any = cffi.FFI()
ffi.cdef(_INTERFACE)
ffi.cdef(
    """
    void *dlopen(const char *path, int mode);
    void *dlsym(void *library, const char *name);
    char *dlerror(void);
    int dlclose(void *library);
    typedef struct st_team *st_team_create(int threads);
    typedef void st_team_destroy(struct st_team *team);
    """
)


@cache
def guard() -> Any:
    """The compiled functions of this file, as a cffi library."""
    try:
        return ffi.dlopen(str(compile_text("staged_guard", _SOURCE, flags=("-O2",))))
    except CompileFailure as failure:
        raise CompilerError(
            "the C compiler refused the runtime's own support code",
            details=["the compiler said:", *(f"  {line}" for line in failure.words.strip().splitlines()[:20])],
            hint="check STAGED_CC; a C11 compiler for a POSIX system is needed",
        ) from None


@cache
def loader() -> Any:
    """The dynamic loader of this process (dlopen and friends), as a cffi library."""
    library = ffi.dlopen(None)
    _ = library.dlerror  # found now: to look for it after a failure would clear what it has to say
    return library
