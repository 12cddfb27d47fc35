/* What a pair of start and stop costs: prints the nanoseconds of one, the least of ten blocks' means. Built once for each
 * library. */
#define _GNU_SOURCE
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
#define INIT() \
    do { \
        int status = PAPI_hl_region_begin("pair"); \
        if (status != PAPI_OK) { \
            fprintf(stderr, "PAPI counts none of these events here: %s\n", PAPI_strerror(status)); \
        } \
        check(status != PAPI_OK || PAPI_hl_region_end("pair")); \
    } while (0)
#define START() PAPI_hl_region_begin("pair")
#define STOP() PAPI_hl_region_end("pair")
#elif defined WITH_READ
/* What the kernel takes for it at least: two readings of a group of three software events. */
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>
static int leader = -1;
static char values[256];
static int event(unsigned long long number) {
    struct perf_event_attr attr = {0};
    attr.type = PERF_TYPE_SOFTWARE;
    attr.size = sizeof attr;
    attr.config = number;
    attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, leader, 0);
}
#define INIT() \
    do { \
        leader = event(PERF_COUNT_SW_PAGE_FAULTS); \
        check(event(PERF_COUNT_SW_CONTEXT_SWITCHES) < 0 || event(PERF_COUNT_SW_CPU_MIGRATIONS) < 0); \
    } while (0)
#define START() check(read(leader, values, sizeof values) <= 0)
#define STOP() check(read(leader, values, sizeof values) <= 0)
#elif defined WITH_LIKWID
#define LIKWID_PERFMON
#include <likwid-marker.h>
#define INIT() (likwid_markerInit(), check(likwid_markerStartRegion("pair") || likwid_markerStopRegion("pair")))
#define START() likwid_markerStartRegion("pair")
#define STOP() likwid_markerStopRegion("pair")
#else
#error one of WITH_PERCH, WITH_PERCH_OFF, WITH_READ, WITH_PAPI and WITH_LIKWID
#endif

static inline void check(int failed) {
    if (failed) exit(1);
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
