/* A program that was instrumented for LIKWID, unchanged. Built with perch's likwid-marker.h it shows its regions under
 * `perch stat`:
 *
 *     make -C examples regions
 *     perch stat -e page-faults -- target/examples/region-likwid
 */
#include <likwid-marker.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    LIKWID_MARKER_INIT;
    LIKWID_MARKER_THREADINIT;
    LIKWID_MARKER_REGISTER("triad");
    double result = 0;
    for (int round = 0; round < 5; round++) {
        LIKWID_MARKER_START("triad");
        double *values = calloc(1 << 17, sizeof *values);
        if (!values) return 1;
        for (int i = 0; i < 1 << 17; i++) values[i] += 0.5 * i;
        result += values[1000];
        free(values);
        LIKWID_MARKER_STOP("triad");
        LIKWID_MARKER_SWITCH;
    }
    double events[8] = {0};
    double time = 0;
    int count = 0, known = 8;
    (void)events, (void)time, (void)count, (void)known;
    LIKWID_MARKER_GET("triad", &known, events, &time, &count);
    printf("triad: %d calls, %d events, first %.0f, %s\n", count, known, events[0], time > 0 ? "timed" : "not timed");
    LIKWID_MARKER_RESET("triad");
    LIKWID_MARKER_START("after");
    LIKWID_MARKER_STOP("after");
    LIKWID_MARKER_CLOSE;
    printf("result %g\n", result);
    return 0;
}
