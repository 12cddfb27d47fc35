/* A program that was instrumented with PAPI's high-level calls, unchanged. Built with perch's papi.h:
 *
 *     make -C examples regions
 *     PERCH_REGION_REPORT=stderr target/examples/region-papi
 */
#include <papi.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    double result = 0;
    for (int round = 0; round < 5; round++) {
        if (PAPI_hl_region_begin("computation") != PAPI_OK) return 1;
        double *values = calloc(1 << 17, sizeof *values);
        if (!values) return 1;
        if (PAPI_hl_read("computation") != PAPI_OK) return 1;
        for (int i = 0; i < 1 << 17; i++) values[i] += 0.5 * i;
        result += values[1000];
        free(values);
        if (PAPI_hl_region_end("computation") != PAPI_OK) return 1;
    }
    if (PAPI_hl_region_end("never begun") == PAPI_OK) return 1;
    PAPI_hl_stop();
    printf("result %g\n", result);
    return 0;
}
