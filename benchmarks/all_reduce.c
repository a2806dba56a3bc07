/* How long the processes of MPI take to sum values: all_reduce BYTES ROUNDS. The first one prints the seconds of each round.
   Measured by benchmarks/bench_cluster.py. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, count = atoi(argv[1]) / sizeof(float), rounds = atoi(argv[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *values = malloc(count * sizeof(float)), *sums = malloc(count * sizeof(float));
    for (int index = 0; index < count; index++) values[index] = rank;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        double begin = MPI_Wtime();
        MPI_Allreduce(values, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) printf("%.9f\n", MPI_Wtime() - begin);
    }
    MPI_Finalize();
    return 0;
}
