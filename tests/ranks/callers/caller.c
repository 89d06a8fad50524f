// A C or C++ program that runs `heat` on each half of its ranks.
#include <math.h>
#include <mpi.h>
#include <stdio.h>

#include "heat.h"

enum { CELLS = 24 };

HEAT_STATIC_ARENA(arena);
static st_host host;
static double u0[CELLS], target0[CELLS], u[CELLS], d_u[CELLS], misfit, d_k;

static void write_nothing(void *context, const char *text, int64_t length) {
    (void)context;
    (void)text;
    (void)length;
}

int main(int argc, char **argv) {
    int level, rank, ranks, own_rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int half = rank >= ranks / 2;
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, half, rank, &comm);
    MPI_Comm_rank(comm, &own_rank);
    for (int i = 0; i < CELLS; ++i) {
        u0[i] = cos(0.5 * i) * (half + 1);
        target0[i] = sin(0.25 * i);
    }
    heat_args args;
    args.u0 = u0;
    args.target0 = target0;
    args.k = 0.2;
    args.steps = 50;
    args.misfit = &misfit;
    args.u = u;
    args.d_u = d_u;
    args.d_k = &d_k;
    host.write = write_nothing;
    for (int call = 0; call < 2; ++call) {
        heat_set_communicator(comm);
        if (heat(&args, arena, &host) != ST_OK) {
            fprintf(stderr, "rank %d: %s\n", rank, host.message);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    heat_set_communicator(MPI_COMM_NULL);
    if (own_rank == 0) {
        printf("half %d %.17g %.17g\n", half, misfit, d_k);
    }
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
