/* Regions of a program's code, counted by perch: two nested regions in each of several threads.
 *
 *     make -C examples regions
 *     perch stat -- target/examples/region-c
 *     PERCH_REGION_REPORT=stderr target/examples/region-c
 */
#include <perch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, ROUNDS = 20, BYTES = 1 << 20 };

static double sum(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i] * 0.5;
    return sum;
}

static void *work(void *result) {
    for (int round = 0; round < ROUNDS; round++) {
        perch_start("round");
        perch_start("fill");
        /* Fresh memory: each page is a page fault. */
        double *values = malloc(BYTES);
        if (!values) abort();
        for (size_t i = 0; i < BYTES / sizeof *values; i++) values[i] = (double)(i + (size_t)round);
        perch_stop("fill");
        perch_start("sum");
        *(double *)result += sum(values, BYTES / sizeof *values);
        perch_stop("sum");
        free(values);
        perch_stop("round");
    }
    return NULL;
}

int main(void) {
    if (perch_init(NULL) != PERCH_OK) {
        fprintf(stderr, "%s\n", perch_error());
        return 1;
    }
    pthread_t threads[THREADS];
    double results[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, &results[i])) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    perch_values values;
    if (perch_get("fill", PERCH_PROCESS, &values) == PERCH_OK) {
        printf("fill: %llu calls in %u threads, %.6f s on a PU\n", (unsigned long long)values.calls, values.threads,
               values.cpu_s);
    }
    for (size_t event = 0; event < perch_event_count(); event++) {
        char name[128];
        perch_count count;
        perch_event_name(event, name, sizeof name);
        if (perch_get_count("fill", PERCH_PROCESS, name, &count) == PERCH_OK && count.quality <= PERCH_SCALED) {
            printf("fill: %.0f %s, counted for %.0f %% of the time\n", count.value, name, 100 * count.share);
        }
    }
    printf("result %g\n", results[0] + results[1] + results[2]);
    return 0;
}
