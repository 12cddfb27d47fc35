/* What a pair of start and stop costs: prints the nanoseconds of one, the least of ten blocks' means. Built once for each
 * library. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined WITH_PERCH
#include <perch.h>
#define INIT() check(perch_init(NULL))
#define START() perch_start("pair")
#define STOP() perch_stop("pair")
#elif defined WITH_PERCH_OFF
#include <perch.h>
#define INIT() (void)0
#define START() perch_start("pair")
#define STOP() perch_stop("pair")
#elif defined WITH_PAPI
#include <papi.h>
#define INIT() check(PAPI_hl_region_begin("pair") || PAPI_hl_region_end("pair"))
#define START() PAPI_hl_region_begin("pair")
#define STOP() PAPI_hl_region_end("pair")
#elif defined WITH_LIKWID
#define LIKWID_PERFMON
#include <likwid-marker.h>
#define INIT() (likwid_markerInit(), check(likwid_markerStartRegion("pair") || likwid_markerStopRegion("pair")))
#define START() likwid_markerStartRegion("pair")
#define STOP() likwid_markerStopRegion("pair")
#else
#error one of WITH_PERCH, WITH_PERCH_OFF, WITH_PAPI and WITH_LIKWID
#endif

static inline void check(int failed) {
    if (failed) {
        fprintf(stderr, "the region is not counted\n");
        exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **arguments) {
    long pairs = count > 1 ? atol(arguments[1]) : 10000;
    double least = 1e18;
    INIT();
    for (int block = 0; block < 10; block++) {
        double start = now();
        for (long i = 0; i < pairs; i++) {
            START();
            STOP();
        }
        double each = (now() - start) / (double)pairs;
        if (each < least) least = each;
    }
    printf("%.2f\n", least);
    return 0;
}
