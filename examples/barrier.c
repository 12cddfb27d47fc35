/* A parallel loop with a barrier after each iteration: one thread that is held up holds up all others.
 *
 * What operating-system noise does to such a program, and what `perch run -p ps-sched-1` and `-p ps-sched-2` change, is
 * shown by ps-sched.sh. OpenMP with a static schedule; OMP_NUM_THREADS says with how many threads. Prints one line of
 * JSON: seconds in all, and milliseconds of the iterations.
 *
 *   barrier [ITERATIONS [UNITS]]     6000 iterations of 2000 units of work each
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* A few microseconds of dependent arithmetic. */
static double unit(double x)
{
    for (int i = 0; i < 200; i++)
        x = x * 1.0000001 + 1e-9;
    return x;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static long number(const char *text, const char *what)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 1 || value > 100000000) {
        fprintf(stderr, "barrier: `%s` is no number of %s\nusage: barrier [ITERATIONS [UNITS]]\n", text, what);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    long iterations = argc > 1 ? number(argv[1], "iterations") : 6000;
    long units = argc > 2 ? number(argv[2], "units of work") : 2000;
    double *took = malloc(iterations * sizeof *took);
    double sum = 0;
    if (!took) {
        perror("barrier");
        return 1;
    }
    double begin = now();
    for (long i = 0; i < iterations; i++) {
        double start = now();
#pragma omp parallel for schedule(static) reduction(+ : sum)
        for (long u = 0; u < units; u++)
            sum += unit(u);
        took[i] = (now() - start) * 1e3;
    }
    double all = now() - begin;
    qsort(took, iterations, sizeof *took, by_value);
    printf("{\"threads\":%d,\"seconds\":%.4f,\"median_ms\":%.4f,\"p99_ms\":%.4f,\"worst_ms\":%.4f,\"sum\":%.3g}\n",
           omp_get_max_threads(), all, took[iterations / 2], took[iterations * 99 / 100], took[iterations - 1], sum);
    free(took);
    return 0;
}
