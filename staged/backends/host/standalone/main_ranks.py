"""The parts of `main.c` of a program that may run on several MPI ranks. Without ST_MPI there is one rank.

Tested by `tests/ranks/test_exports.py`.
"""

from __future__ import annotations

from staged.base.artifact import Artifact


def thread_level(artifact: Artifact) -> str:
    """The support of threads that a program needs from MPI. Recursion runs on a thread with a large stack."""
    return "MPI_THREAD_SERIALIZED" if artifact.recursive else "MPI_THREAD_FUNNELED"


RANKS = r"""
// ---- ranks ---------------------------------------------------------------------------------------

static int this_rank = 0;
static int rank_count = 1;

static void begin_ranks(int *argc, char ***argv) {
#ifdef ST_MPI
    (void)setvbuf(stderr, NULL, _IOLBF, BUFSIZ);  // whole lines: launchers mix the output of ranks
    int level = 0;
    MPI_Init_thread(argc, argv, LEVEL, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &this_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
#else
    (void)argc;
    (void)argv;
#endif
}

static void end_ranks(void) {
#ifdef ST_MPI
    NAME_set_communicator(MPI_COMM_NULL);
    MPI_Finalize();
#endif
}

// Begin the message of an error. Many ranks may have the same error: the first rank prints it and ends the others,
// which wait for that here.
static void begin_message(void) {
    (void)fflush(stdout);
    if (rank_count > 1) {
        const int turn = this_rank < 10 ? this_rank : 10;
        const struct timespec time = {turn, 0};
        (void)nanosleep(&time, NULL);
        fprintf(stderr, "rank %d: ", this_rank);
    }
}

// End this process with an error, and all other ranks: they would wait for this rank forever.
__attribute__((noreturn)) static void end_all_ranks(int status) {
#ifdef ST_MPI
    (void)fflush(stderr);
    const struct timespec time = {0, 200000000L};  // the launcher may lose what it has not read before the end
    (void)nanosleep(&time, NULL);
    MPI_Abort(MPI_COMM_WORLD, status);
#endif
    exit(status);
}
"""

CORES_OF_RANK = r"""
// The number of threads of a rank: the processor cores that it may use, shared with the other ranks of this node.
static int usable_cores(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
#ifdef ST_MPI
        // A launcher may have bound each rank to other cores.
        MPI_Comm node;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, this_rank, MPI_INFO_NULL, &node);
        int neighbours = 1;
        MPI_Comm_size(node, &neighbours);
        MPI_Allreduce(MPI_IN_PLACE, &cores, (int)sizeof cores, MPI_BYTE, MPI_BOR, node);
        MPI_Comm_free(&node);
        count = CPU_COUNT(&cores) / neighbours;
#else
        count = CPU_COUNT(&cores);
#endif
    }
#endif
    return count < 1 ? 1 : (int)count;
}
"""
