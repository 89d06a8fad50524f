"""A small thread team: helper threads that share the items of a loop by claiming chunks of it.

A team calls functions of one type, but each kernel has its own parameters. One line below a kernel adds the function
that a team calls. A call by a team then looks like a call by one thread:

    static void scale(const float *x, float factor, float *y, int64_t begin, int64_t end) { ... }
    ST_SHARED(scale, 3, const float *, float, float *)

    scale(m->x, 0.5f, m->y, 0, 4096);
    ST_SHARE(host->team, 4096, 512, scale, m->x, 0.5f, m->y);

Tested by `tests/runtime/test_team.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from staged.code.support.library import Snippet, headers
from staged.code.writer import LONGEST, wrapped

_TEAM = """\
// ---- threads ---------------------------------------------------------------------------------
// A team shares a loop: whoever is free claims the next chunk of it, the caller included. So the caller can finish
// alone when another process has the helper's core, and nobody waits for a helper that has claimed nothing.

// Runs items [begin, end) of a loop.
typedef void st_parallel_body(void *context, int64_t begin, int64_t end);

enum { ST_MOST_THREADS = 256, ST_SPINS = 2000 };  // spinning 2000 times is some 30 to 90 microseconds

typedef struct st_team {
    // The loop being run. Written by the caller while `unclaimed` is 0, read only by who has claimed a chunk of it.
    st_parallel_body *body;
    void *context;
    int64_t items, chunk, chunks;
    bool running;
    int threads;      // the caller included
    int created;      // helpers that need joining
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    _Alignas(64) atomic_int_fast64_t unclaimed;   // chunks that nobody has claimed
    _Alignas(64) atomic_int_fast64_t unfinished;  // chunks that are not done
    _Alignas(64) atomic_int sleepers;
    atomic_int next_index;
    atomic_bool quit;
    pthread_t helpers[ST_MOST_THREADS];
} st_team;

// The place of this thread in its team, below the size of the team: 0 is the caller. No two running calls of a body
// share it. A loop inside a loop runs under its thread's number.
static _Thread_local int st_thread_index;

static inline void st_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Claim chunks and run them until none is left.
static void st_team_work(st_team *team) {
    int_fast64_t left = atomic_load_explicit(&team->unclaimed, memory_order_acquire);
    while (left > 0) {
        // A claim that succeeds is one of the loop described now: that loop cannot end before the claimed chunk does.
        if (!atomic_compare_exchange_weak_explicit(&team->unclaimed, &left, left - 1, memory_order_acquire,
                                                   memory_order_acquire)) {
            continue;
        }
        const int64_t begin = (team->chunks - left) * team->chunk;
        const int64_t end = team->items - begin < team->chunk ? team->items : begin + team->chunk;
        team->body(team->context, begin, end);
        atomic_fetch_sub_explicit(&team->unfinished, 1, memory_order_release);
        left = atomic_load_explicit(&team->unclaimed, memory_order_acquire);
    }
}

static bool st_team_has_news(st_team *team) {
    return atomic_load(&team->unclaimed) > 0 || atomic_load(&team->quit);
}

// What a helper does: spin for a while, since loops often follow closely, then sleep until woken.
static void *st_team_helper(void *argument) {
    st_team *team = argument;
    st_thread_index = 1 + atomic_fetch_add(&team->next_index, 1);
    for (;;) {
        for (int spin = 0; spin < ST_SPINS && !st_team_has_news(team); ++spin) {
            st_pause();
        }
        if (!st_team_has_news(team)) {
            (void)pthread_mutex_lock(&team->mutex);
            // Either this thread sees the caller's new chunks below, or the caller sees this sleeper and wakes it.
            atomic_fetch_add(&team->sleepers, 1);
            while (!st_team_has_news(team)) {
                (void)pthread_cond_wait(&team->wake, &team->mutex);
            }
            atomic_fetch_sub(&team->sleepers, 1);
            (void)pthread_mutex_unlock(&team->mutex);
        }
        if (atomic_load(&team->quit)) {
            return NULL;
        }
        st_team_work(team);
    }
}

static void st_team_wake(st_team *team) {
    if (atomic_load(&team->sleepers) > 0) {
        (void)pthread_mutex_lock(&team->mutex);
        (void)pthread_cond_broadcast(&team->wake);
        (void)pthread_mutex_unlock(&team->mutex);
    }
}

// End the helpers and free the team. No loop may be running; NULL is allowed.
__attribute__((unused)) static void st_team_destroy(st_team *team) {
    if (team == NULL) {
        return;
    }
    atomic_store(&team->quit, true);
    st_team_wake(team);
    for (int i = 0; i < team->created; ++i) {
        (void)pthread_join(team->helpers[i], NULL);
    }
    (void)pthread_cond_destroy(&team->wake);
    (void)pthread_mutex_destroy(&team->mutex);
    free(team);
}

// A team of `threads`, the caller included. NULL, which runs everything on the caller, where one thread is asked for or
// the system has no memory for more; fewer threads where it refuses some.
__attribute__((unused)) static st_team *st_team_create(int threads) {
    if (threads > ST_MOST_THREADS) {
        threads = ST_MOST_THREADS;
    }
    if (threads <= 1) {
        return NULL;
    }
    st_team *team = aligned_alloc(64, sizeof(st_team));
    if (team == NULL) {
        return NULL;
    }
    memset(team, 0, sizeof *team);
    team->threads = threads;
    atomic_init(&team->unclaimed, 0);
    atomic_init(&team->unfinished, 0);
    atomic_init(&team->sleepers, 0);
    atomic_init(&team->next_index, 0);
    atomic_init(&team->quit, false);
    (void)pthread_mutex_init(&team->mutex, NULL);
    (void)pthread_cond_init(&team->wake, NULL);
    // Helpers take no signals: an interrupt belongs to the thread that called the program.
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < threads - 1; ++i) {
        if (pthread_create(&team->helpers[i], NULL, st_team_helper, team) != 0) {
            break;
        }
        ++team->created;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    team->threads = team->created + 1;
    if (team->created == 0) {
        st_team_destroy(team);
        return NULL;
    }
    return team;
}

// How many threads may run a body, and so how much scratch memory per thread a loop needs.
__attribute__((unused)) static int st_team_size(const st_team *team) {
    return team == NULL ? 1 : team->threads;
}

// Run `body` for items [0, items) in chunks of `chunk`, in any order and on any threads, and return when all are done.
// Without a team, for one chunk and inside another parallel loop it is one plain call.
__attribute__((unused))
static void st_parallel(st_team *team, int64_t items, int64_t chunk, st_parallel_body *body, void *context) {
    if (items <= 0) {
        return;
    }
    if (team == NULL || items <= chunk || team->running) {
        body(context, 0, items);
        return;
    }
    const int64_t chunks = (items - 1) / chunk + 1;
    team->body = body;
    team->context = context;
    team->items = items;
    team->chunk = chunk;
    team->chunks = chunks;
    team->running = true;
    atomic_store_explicit(&team->unfinished, chunks, memory_order_relaxed);
    atomic_store(&team->unclaimed, chunks);  // publishes the fields above
    st_team_wake(team);
    st_team_work(team);
    for (int spin = 0; atomic_load_explicit(&team->unfinished, memory_order_acquire) > 0; ++spin) {
        if (spin < ST_SPINS) {
            st_pause();
        } else {
            (void)sched_yield();  // a helper has claimed a chunk and lost its core: perhaps to this thread
        }
    }
    team->running = false;
}
"""

_SHARE = """\
// ST_SHARED(kernel, count, types...) below a kernel lets a team share its items. `types` are those of the `count`
// parameters before `begin` and `end`. After ST_SHARED_SCRATCH one more precedes `begin`: the thread's scratch memory.
#define ST_SHARED(kernel, count, ...) ST_PART(kernel, ST_FIELDS_##count(__VA_ARGS__), ST_VALUES_##count)
#define ST_SHARED_SCRATCH(kernel, count, ...) \\
    ST_PART(kernel, ST_FIELDS_##count(__VA_ARGS__) unsigned char *scratch;, ST_VALUES_##count, \\
            (void *)(st_a->scratch + st_thread_index * SCRATCH_BYTES))

// The struct of a kernel's arguments, and the function that calls the kernel with them.
#define ST_PART(kernel, fields, ...) \\
    typedef struct { \\
        fields \\
    } st_arguments_of_##kernel; \\
    static void st_part_of_##kernel(void *st_context, int64_t st_begin, int64_t st_end) { \\
        const st_arguments_of_##kernel *const st_a = st_context; \\
        kernel(__VA_ARGS__, st_begin, st_end); \\
    }

// Call a kernel with these arguments for `items` items, which a team shares in chunks of `chunk`.
#define ST_SHARE(team, items, chunk, kernel, ...) \\
    st_parallel(team, items, chunk, st_part_of_##kernel, &(st_arguments_of_##kernel){__VA_ARGS__})
"""

_CLEAR = """\
// Zeros in bytes [begin, end) of an array.
static void st_clear(void *array, int64_t begin, int64_t end) {
    memset((unsigned char *)array + begin, 0, (size_t)(end - begin));
}
"""

_SHARE_LOOP = """\
// Run the iterations of a loop on the team if there is one for each thread; else on the caller, and loops inside of it
// are shared.
__attribute__((unused))
static void st_share_loop(st_team *team, int64_t iterations, st_parallel_body *body, void *context) {
    st_parallel(iterations < st_team_size(team) ? NULL : team, iterations, 1, body, context);
}

#define ST_SHARE_LOOP(team, iterations, loop, ...) \\
    st_share_loop(team, iterations, st_part_of_##loop, &(st_arguments_of_##loop){__VA_ARGS__})
"""

SNIPPETS = (
    Snippet(
        "team",
        _TEAM,
        includes=(
            "#define _POSIX_C_SOURCE 200809L",
            *headers("pthread", "sched", "signal", "stdatomic", "stdbool", "stdint", "stdlib", "string"),
        ),
    ),
    Snippet("share", _SHARE, needs=("team",)),
    Snippet("clear", _CLEAR, needs=("team",)),
    Snippet("share_loop", _SHARE_LOOP, needs=("share",)),
)

NEED_TEAM = ("share", "share_loop", "clear")
"""The snippets that a program uses if it gives work to a team."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A kernel that a team calls; `types` are those of its parameters, without scratch memory, `begin` and `end`."""

    kernel: str
    types: tuple[str, ...]
    has_scratch: bool = False

    @property
    def line(self) -> str:
        """The line below the kernel."""
        macro = "ST_SHARED_SCRATCH" if self.has_scratch else "ST_SHARED"
        return wrapped(f"{macro}({', '.join([self.kernel, str(len(self.types)), *self.types])})", LONGEST)


def argument_macros(shared: Iterable[Shared]) -> str:
    """The macros for the fields of structs of arguments and for their values, as many as these kernels have."""
    numbers = range(2, max((len(each.types) for each in shared), default=0) + 1)
    lines = [
        "// Fields of `count` types, and their values.",
        "#define ST_FIELDS_1(T) T _1;",
        *(f"#define ST_FIELDS_{n}(T, ...) T _{n}; ST_FIELDS_{n - 1}(__VA_ARGS__)" for n in numbers),
        "#define ST_VALUES_1 st_a->_1",
        *(f"#define ST_VALUES_{n} st_a->_{n}, ST_VALUES_{n - 1}" for n in numbers),
    ]
    return "\n".join(["", *lines, ""])


def team_declarations(name: str) -> str:
    """The declarations in the header of a program that uses threads."""
    return f"""\
// A team for `host.team`: `threads` counts the caller. NULL where one thread is all there is.
struct st_team *{name}_team_create(int threads);
void {name}_team_destroy(struct st_team *team);
"""


def team_definitions(name: str, most: int = 256) -> str:
    """The definitions in a program that uses threads, after the `team` snippet; there is scratch memory for `most`."""
    return f"""\
struct st_team *{name}_team_create(int threads) {{
    return st_team_create(threads < {most} ? threads : {most});  // the arena has scratch memory for no more
}}

void {name}_team_destroy(struct st_team *team) {{
    st_team_destroy(team);
}}
"""


def no_team_definitions(name: str) -> str:
    """The definitions if no loop is worth a team, but the same program for other machines has one."""
    return f"""\
struct st_team *{name}_team_create(int threads) {{
    (void)threads;
    return NULL;  // no loop of this text is long enough to share
}}

void {name}_team_destroy(struct st_team *team) {{
    (void)team;
}}
"""
