"""Messages between the ranks of an MPI program. Compiled without ST_MPI there is one rank, and no MPI is needed.

Tested by `tests/ranks/test_collectives.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from staged.code.support.library import Snippet, headers

MPI_INCLUDE = """\
#ifdef ST_MPI
#include <mpi.h>
#endif
"""
_WORLD = """\
// The ranks that run the program. Without ST_MPI there is one, and no MPI is needed.
#ifdef ST_MPI
#include <mpi.h>
static struct {
    int rank, ranks;
    bool has_begun, is_compared;
    MPI_Comm given;  // of the caller
    MPI_Comm comm;   // a copy: messages of the program are not mixed with those of the caller
} st_world = {.ranks = 1, .given = MPI_COMM_WORLD};
#else
__attribute__((unused)) static const struct {
    int rank, ranks;
} st_world = {0, 1};
#endif

#ifdef ST_MPI
// The place of the address of the number of collectives that this process has begun, or NULL. Python sets it.
extern int64_t **st_collectives;
__attribute__((weak)) int64_t **st_collectives = NULL;
#endif

#ifdef ST_MPI
// The messages of this program, their bytes, and the seconds in MPI. Python reports them.
typedef struct st_traffic {
    int64_t messages, bytes;
    double seconds;
} st_traffic;
extern st_traffic st_sent;
__attribute__((weak)) st_traffic st_sent = {0, 0, 0.0};
__attribute__((unused)) static double st_mpi_since;
#endif

// Count a collective: a rank that ends while another one has begun a further collective stops them all.
__attribute__((unused)) static void st_begin_collective(void) {
#ifdef ST_MPI
    if (st_collectives != NULL) {
        __atomic_store_n(*st_collectives, **st_collectives + 1, __ATOMIC_RELEASE);
    }
    st_mpi_since = MPI_Wtime();
#endif
}

// Note the bytes of a message, and its time.
__attribute__((unused)) static void st_end_collective(size_t bytes) {
#ifdef ST_MPI
    ++st_sent.messages;
    st_sent.bytes += (int64_t)bytes;
    st_sent.seconds += MPI_Wtime() - st_mpi_since;
#else
    (void)bytes;
#endif
}

// Join the other ranks in the first call. The caller has initialised MPI.
static int st_ranks_begin(st_host *host, int site) {
#ifdef ST_MPI
    int is_ready = 0, has_ended = 0, level = 0;
    MPI_Finalized(&has_ended);
    if (has_ended) {
        return st_fail(host, ST_RUNTIME_ERROR, site, "MPI has ended: call the program before MPI_Finalize");
    }
    if (st_world.has_begun) {
        return ST_OK;
    }
    MPI_Initialized(&is_ready);
    if (!is_ready) {
        return st_fail(host, ST_RUNTIME_ERROR, site, "MPI is not initialised: call MPI_Init_thread first");
    }
    MPI_Query_thread(&level);
    if (host->team != NULL && level < MPI_THREAD_FUNNELED) {
        return st_fail(host, ST_RUNTIME_ERROR, site, "a program with threads needs MPI_THREAD_FUNNELED");
    }
    st_begin_collective();
    MPI_Comm_dup(st_world.given, &st_world.comm);
    MPI_Comm_set_errhandler(st_world.comm, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_rank(st_world.comm, &st_world.rank);
    MPI_Comm_size(st_world.comm, &st_world.ranks);
    st_world.has_begun = true;
#else
    (void)host;
    (void)site;
#endif
    return ST_OK;
}
"""

_COMPARE = """\
// The facts that must be equal on all ranks: the program, of this Python line, and the width of its vectors.
typedef struct st_identity {
    uint64_t program;
    int64_t vector_bytes;
    char place[112];
} st_identity;

// Stop in the first call if ranks would not compute the same.
static int st_compare_ranks(st_host *host, int site, uint64_t program, int vector_bytes, const char *place) {
#ifdef ST_MPI
    if (st_world.is_compared) {
        return ST_OK;
    }
    st_identity own = {program, vector_bytes, ""};
    (void)snprintf(own.place, sizeof own.place, "%s", place);
    st_identity *const all = malloc((size_t)st_world.ranks * sizeof *all);
    if (all == NULL) {
        return st_fail(host, ST_MEMORY_ERROR, site, "out of memory: %d ranks", st_world.ranks);
    }
    st_begin_collective();
    MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, all, (int)sizeof own, MPI_BYTE, st_world.comm);
    for (int rank = 1; rank < st_world.ranks; ++rank) {
        if (all[rank].program != all[0].program) {
            (void)st_fail(host, ST_RUNTIME_ERROR, site, "rank %d runs another program: %s (rank 0: %s)", rank,
                          all[rank].place, all[0].place);
        } else if (all[rank].vector_bytes != all[0].vector_bytes) {
            (void)st_fail(host, ST_RUNTIME_ERROR, site,
                          "rank %d has vectors of %lld bytes, rank 0 of %lld: use `target=\\"portable\\"`", rank,
                          (long long)all[rank].vector_bytes, (long long)all[0].vector_bytes);
        }
    }
    free(all);
    st_world.is_compared = true;
    return st_failed(host) ? host->error_kind : ST_OK;
#else
    (void)host;
    (void)site;
    (void)program;
    (void)vector_bytes;
    (void)place;
    return ST_OK;
#endif
}
"""

_LINE = """\
// Begin a line with the number of this rank, unless a line that does not end yet has begun.
static void st_rank_line(st_host *host, bool ends) {
    static bool is_open = false;
    if (!is_open) {
        st_print(host, "[rank %lld] ", (long long)st_world.rank);
    }
    is_open = !ends;
}
"""

_FIXED = """\
// Stop the program if it is for another number of ranks: sizes in it depend on the number.
static int st_check_ranks(st_host *host, int site, int ranks) {
    if (st_world.ranks != ranks) {
        return st_fail(host, ST_VALUE_ERROR, site, "the program is for %d ranks, and runs on %d", ranks,
                       st_world.ranks);
    }
    return ST_OK;
}
"""

_NUMBERS = """\
typedef enum { ST_I8, ST_I16, ST_I32, ST_I64, ST_U8, ST_U16, ST_U32, ST_U64, ST_F32, ST_F64 } st_number;
typedef enum { ST_SUM, ST_MAX, ST_MIN } st_reduction;
static const size_t st_number_bytes[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8};

#ifdef ST_MPI
static MPI_Datatype st_mpi_type(st_number number) {
    const MPI_Datatype types[] = {MPI_INT8_T,  MPI_INT16_T,  MPI_INT32_T,  MPI_INT64_T, MPI_UINT8_T,
                                  MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T, MPI_FLOAT,  MPI_DOUBLE};
    return types[number];
}

// MPI_MAX and MPI_MIN may lose NaN, so floats have reductions of their own.
static void st_extremes(const void *x, void *y, int count, MPI_Datatype type, double sign) {
    for (int i = 0; i < count; ++i) {
        if (type == MPI_DOUBLE) {
            const double from = ((const double *)x)[i];
            double *const to = (double *)y + i;
            *to = from != from || sign * from > sign * *to ? from : *to;
        } else {
            const float from = ((const float *)x)[i];
            float *const to = (float *)y + i;
            *to = from != from || (float)sign * from > (float)sign * *to ? from : *to;
        }
    }
}

static void st_max(void *x, void *y, int *count, MPI_Datatype *type) {
    st_extremes(x, y, *count, *type, 1.0);
}

static void st_min(void *x, void *y, int *count, MPI_Datatype *type) {
    st_extremes(x, y, *count, *type, -1.0);
}

static MPI_Op st_mpi_op(st_number number, st_reduction by) {
    static MPI_Op ops[2];
    static bool has_ops = false;
    if (by == ST_SUM) {
        return MPI_SUM;
    }
    if (number != ST_F32 && number != ST_F64) {
        return by == ST_MAX ? MPI_MAX : MPI_MIN;
    }
    if (!has_ops) {
        MPI_Op_create(st_max, 1, &ops[0]);
        MPI_Op_create(st_min, 1, &ops[1]);
        has_ops = true;
    }
    return ops[by == ST_MIN];
}
#endif
"""

_ALL_REDUCE = """\
// The sum, largest or smallest elements over all ranks. `x` and `out` may be one array.
static void st_all_reduce(const void *x, void *out, int64_t count, st_number number, st_reduction by) {
    st_begin_collective();
#ifdef ST_MPI
    const int64_t most = 1 << 30;  // MPI counts in ints
    const size_t size = st_number_bytes[number];
    for (int64_t begin = 0; begin < count; begin += most) {
        const int part = (int)(count - begin < most ? count - begin : most);
        const char *const from = (const char *)x + (size_t)begin * size;
        char *const to = (char *)out + (size_t)begin * size;
        MPI_Allreduce(x == out ? MPI_IN_PLACE : from, to, part, st_mpi_type(number), st_mpi_op(number, by),
                      st_world.comm);
    }
#else
    (void)by;
    if (x != out) {
        memcpy(out, x, (size_t)count * st_number_bytes[number]);
    }
#endif
    st_end_collective((size_t)count * st_number_bytes[number]);
}
"""

_REDUCE_START = """\
// Reductions that are under way while the program computes.
enum { ST_MESSAGES = 256 };
#ifdef ST_MPI
static struct {
    MPI_Request requests[ST_MESSAGES];
    int count, waiting;
} st_messages;
#endif

// Start a reduction over all ranks. Until `st_reduce_wait` the array `out` belongs to MPI.
static int64_t st_reduce_start(const void *x, void *out, int64_t count, st_number number, st_reduction by) {
    if (x != out) {
        memcpy(out, x, (size_t)count * st_number_bytes[number]);
    }
#ifdef ST_MPI
    if (count <= INT32_MAX && st_messages.count < ST_MESSAGES) {
        st_begin_collective();
        MPI_Iallreduce(MPI_IN_PLACE, out, (int)count, st_mpi_type(number), st_mpi_op(number, by), st_world.comm,
                       &st_messages.requests[st_messages.count]);
        ++st_messages.waiting;
        st_end_collective((size_t)count * st_number_bytes[number]);
        return st_messages.count++;
    }
#endif
    st_all_reduce(out, out, count, number, by);
    return -1;
}

// Let MPI go on with the messages that are under way: most libraries do so in calls only.
static void st_poll_messages(void) {
#ifdef ST_MPI
    int is_complete = 0;
    MPI_Testall(st_messages.count, st_messages.requests, &is_complete, MPI_STATUSES_IGNORE);
#endif
}

static void st_reduce_wait(int64_t message) {
#ifdef ST_MPI
    if (message >= 0) {
        const double since = MPI_Wtime();
        MPI_Wait(&st_messages.requests[message], MPI_STATUS_IGNORE);
        st_sent.seconds += MPI_Wtime() - since;
        if (--st_messages.waiting == 0) {
            st_messages.count = 0;
        }
    }
#else
    (void)message;
#endif
}
"""

_REDUCE_SCATTER = """\
// The row of this rank of the sum over all ranks; `x` has a row of `count` elements for each rank.
static void st_reduce_scatter(const void *x, void *out, int64_t count, st_number number) {
    st_begin_collective();
#ifdef ST_MPI
    MPI_Reduce_scatter_block(x, out, (int)count, st_mpi_type(number), MPI_SUM, st_world.comm);
#else
    memcpy(out, x, (size_t)count * st_number_bytes[number]);
#endif
    st_end_collective((size_t)count * st_number_bytes[number]);
}
"""

# What is only moved is sent in words as large as its size allows: MPI counts in ints.
_MOVED = """\
#ifdef ST_MPI
typedef struct st_message {
    int count;
    MPI_Datatype type;
} st_message;

static st_message st_message_of(size_t bytes) {
    if (bytes % 8 == 0) {
        return (st_message){(int)(bytes / 8), MPI_UINT64_T};
    }
    return (st_message){(int)bytes, MPI_BYTE};
}
#endif
"""

_ALL_GATHER = """\
// The arrays of all ranks, each of `bytes`, one after another.
static void st_all_gather(const void *x, void *out, size_t bytes) {
    st_begin_collective();
#ifdef ST_MPI
    const st_message m = st_message_of(bytes);
    MPI_Allgather(x, m.count, m.type, out, m.count, m.type, st_world.comm);
#else
    memcpy(out, x, bytes);
#endif
    st_end_collective(bytes);
}
"""

_ALL_TO_ALL = """\
// Send row r to rank r; row r of the result comes from there. A row has `bytes`.
static void st_all_to_all(const void *x, void *out, size_t bytes) {
    st_begin_collective();
#ifdef ST_MPI
    const st_message m = st_message_of(bytes);
    MPI_Alltoall(x, m.count, m.type, out, m.count, m.type, st_world.comm);
#else
    memcpy(out, x, bytes);
#endif
    st_end_collective(bytes);
}
"""

_BROADCAST = """\
// The array of rank `root`. `x` and `out` may be one array.
static void st_broadcast(const void *x, void *out, size_t bytes, int root) {
    st_begin_collective();
    if (x != out) {
        memcpy(out, x, bytes);
    }
#ifdef ST_MPI
    const st_message m = st_message_of(bytes);
    MPI_Bcast(out, m.count, m.type, root, st_world.comm);
#else
    (void)root;
#endif
    st_end_collective(bytes);
}
"""

_SHIFT = """\
// Send an array to the rank `shift` after this one. Without `wraps`, ranks without a sender receive zeros.
static void st_shift_ranks(const void *x, void *out, size_t bytes, int shift, bool wraps) {
    st_begin_collective();
    int to = st_world.rank + shift, from = st_world.rank - shift;
    const int ranks = st_world.ranks;
    if (wraps) {
        to = (to % ranks + ranks) % ranks;
        from = (from % ranks + ranks) % ranks;
    } else if (from < 0 || from >= ranks) {
        memset(out, 0, bytes);
    }
#ifdef ST_MPI
    const st_message m = st_message_of(bytes);
    MPI_Sendrecv(x, m.count, m.type, to < 0 || to >= ranks ? MPI_PROC_NULL : to, 0, out, m.count, m.type,
                 from < 0 || from >= ranks ? MPI_PROC_NULL : from, 0, st_world.comm, MPI_STATUS_IGNORE);
#else
    (void)to;
    if (from == 0) {
        memcpy(out, x, bytes);
    }
#endif
    st_end_collective(bytes);
}
"""


def in_folder(snippet: Snippet) -> Snippet:
    """A support function as an exported program has it: only Python counts collectives."""
    text = re.sub(r"^ *st_(begin|end)_collective\(.*\);\n", "", snippet.text, flags=re.MULTILINE)
    needs = tuple("ranks" if need == "count_collectives" else need for need in snippet.needs)
    return snippet if (text, needs) == (snippet.text, snippet.needs) else replace(snippet, text=text, needs=needs)


def communicator_declarations(name: str) -> str:
    """The declarations in the header of an exported program with ranks."""
    return f"""\
#ifdef ST_MPI
// Run the program on the ranks of `comm` from the next call on, instead of on all ranks. All ranks of `comm` call this.
// The program copies `comm`, and frees the copy at MPI_COMM_NULL: pass that before MPI_Finalize.
void {name}_set_communicator(MPI_Comm comm);
void {name}_set_communicator_f(MPI_Fint comm);  // the same for Fortran
#endif
"""


def communicator_definitions(name: str) -> str:
    """The definitions in an exported program, after the `ranks` snippet."""
    return f"""\
#ifdef ST_MPI
void {name}_set_communicator(MPI_Comm comm) {{
    if (st_world.has_begun) {{
        MPI_Comm_free(&st_world.comm);
        st_world.has_begun = st_world.is_compared = false;
    }}
    st_world.given = comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm;
}}

void {name}_set_communicator_f(MPI_Fint comm) {{
    {name}_set_communicator(MPI_Comm_f2c(comm));
}}
#endif
"""


SNIPPETS = (
    Snippet("ranks", _WORLD, needs=("fail",), includes=headers("stdbool", "stddef", "stdint")),
    Snippet(
        "compare_ranks",
        _COMPARE,
        needs=("ranks", "fail", "failed"),
        includes=headers("stdbool", "stdint", "stdio", "stdlib"),
    ),
    Snippet("rank_line", _LINE, needs=("ranks", "print"), includes=headers("stdbool")),
    Snippet("check_ranks", _FIXED, needs=("ranks",)),
    Snippet("rank_numbers", _NUMBERS, needs=("ranks",), includes=headers("stddef")),
    Snippet("all_reduce", _ALL_REDUCE, needs=("rank_numbers",), includes=headers("string")),
    Snippet("reduce_start", _REDUCE_START, needs=("all_reduce",)),
    Snippet("reduce_scatter", _REDUCE_SCATTER, needs=("rank_numbers",), includes=headers("stddef", "string")),
    Snippet("rank_messages", _MOVED, needs=("ranks",), includes=headers("stddef")),
    Snippet("all_gather", _ALL_GATHER, needs=("rank_messages",), includes=headers("string")),
    Snippet("all_to_all", _ALL_TO_ALL, needs=("rank_messages",), includes=headers("string")),
    Snippet("broadcast", _BROADCAST, needs=("rank_messages",), includes=headers("string")),
    Snippet("shift_ranks", _SHIFT, needs=("rank_messages",), includes=headers("string")),
)
