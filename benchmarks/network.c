// A network that is not there, between a program and MPI: counts messages, and makes every reduction take as long as among
// SIM_RANKS machines. Loaded before MPI:
//
//     mpicc -shared -fPIC -O2 network.c -o network.so -lm
//     LD_PRELOAD=$PWD/network.so SIM_RANKS=64 SIM_ALPHA=2e-6 SIM_BANDWIDTH=3e9 mpiexec -n 2 ...
//
// SIM_ALPHA is the latency of a message in seconds, SIM_BANDWIDTH the bytes per second of a link. A reduction of n bytes
// among P machines takes the shorter time of a ring, 2 (P - 1) (alpha + n / (P bandwidth)), and of halving and doubling,
// 2 log2(P) alpha + 2 (P - 1) / P n / bandwidth. One transfer follows the other. The sum itself is made at once. A
// transfer makes progress without the program, as on a network card: only the wait for it costs time.
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };
static double due[MOST];            // when the transfer of a request ends
static MPI_Request of_due[MOST];    // the requests
static int started;
static double link_is_free;         // when the last transfer ends
static int messages;

int network_messages(void) {
    return messages;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double setting(const char *name, double otherwise) {
    const char *const text = getenv(name);
    return text == NULL ? otherwise : strtod(text, NULL);
}

static double cost(int count, MPI_Datatype type) {
    int size = 0;
    MPI_Type_size(type, &size);
    const double p = setting("SIM_RANKS", 1), alpha = setting("SIM_ALPHA", 0), width = setting("SIM_BANDWIDTH", 1e12);
    if (p < 2) {
        return 0;
    }
    const double n = (double)count * size, ring = 2 * (p - 1) * (alpha + n / p / width);
    const double doubling = 2 * ceil(log2(p)) * alpha + 2 * (p - 1) / p * n / width;
    return ring < doubling ? ring : doubling;
}

static void wait_until(double when) {
    while (now() < when) {
        const double left = when - now();
        if (left > 2e-4) {
            nanosleep(&(struct timespec){0, (long)((left - 1e-4) * 1e9) % 1000000000L}, NULL);
        }
    }
}

static double transfer(int count, MPI_Datatype type) {
    const double begin = now() > link_is_free ? now() : link_is_free;
    return link_is_free = begin + cost(count, type);
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    ++messages;
    const int status = PMPI_Allreduce(from, to, count, type, op, comm);
    wait_until(transfer(count, type));
    return status;
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request) {
    ++messages;
    const int status = PMPI_Iallreduce(from, to, count, type, op, comm, request);
    due[started % MOST] = transfer(count, type);
    of_due[started++ % MOST] = *request;
    return status;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    const MPI_Request waited = *request;
    const int found = PMPI_Wait(request, status);
    for (int k = started - 1; k >= 0 && k > started - MOST; --k) {
        if (of_due[k % MOST] == waited) {
            wait_until(due[k % MOST]);
            of_due[k % MOST] = MPI_REQUEST_NULL;
            break;
        }
    }
    return found;
}

int MPI_Reduce_scatter_block(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    ++messages;
    return PMPI_Reduce_scatter_block(from, to, count, type, op, comm);
}

int MPI_Allgather(const void *from, int count, MPI_Datatype type, void *to, int received, MPI_Datatype other, MPI_Comm comm) {
    ++messages;
    return PMPI_Allgather(from, count, type, to, received, other, comm);
}
