// MPI for caller.f90: the wheels of MPICH and of Open MPI have no Fortran module. Communicators are Fortran's integers.
#include <mpi.h>
#include <stddef.h>

int halves_begin(int *rank, int *ranks) {
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, *rank >= *ranks / 2, *rank, &comm);
    return MPI_Comm_c2f(comm);
}

int halves_null(void) {
    return MPI_Comm_c2f(MPI_COMM_NULL);
}

void halves_end(MPI_Fint comm) {
    MPI_Comm half = MPI_Comm_f2c(comm);
    MPI_Comm_free(&half);
    MPI_Finalize();
}
