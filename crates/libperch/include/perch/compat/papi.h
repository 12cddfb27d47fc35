/* papi.h: the high-level calls of PAPI 6 and 7, counted by perch. A program that uses only these needs no change, only this
 * folder before PAPI's own:
 *
 *     cc -I$(pkg-config --variable=compatdir perch) $(pkg-config --cflags perch) app.c $(pkg-config --libs perch)
 *
 * The first region begins to count, as with PAPI. PERCH_REGION_EVENTS chooses events (PAPI_EVENTS is not read: PAPI's names
 * are not perch's). Reports go where PERCH_REGION_REPORT says, or to `perch stat`. docs/regions.md lists what differs.
 */
#ifndef _PAPI
#define _PAPI

#include <perch.h>

#define PAPI_OK 0
#define PAPI_EINVAL -1
#define PAPI_ENOEVNT -7
#define PAPI_ENOTRUN -9
#define PAPI_EMISC -14

#ifdef __cplusplus
extern "C" {
#endif

static inline int PAPI_hl_region_begin(const char *region) {
    static int refused; /* the events mean nothing here: asked for once */
    int status = perch_start(region);
    if (status == PERCH_OFF && !refused) {
        int begun = perch_init(NULL);
        refused = begun != PERCH_OK && begun != PERCH_ON;
        if (!refused) status = perch_start(region);
    }
    if (status == PERCH_OK) return PAPI_OK;
    return status == PERCH_OFF ? PAPI_ENOTRUN : PAPI_EMISC;
}

static inline int PAPI_hl_read(const char *region) {
    int status = perch_read(region);
    if (status == PERCH_OK) return PAPI_OK;
    return status == PERCH_OFF ? PAPI_ENOTRUN : PAPI_EMISC;
}

static inline int PAPI_hl_region_end(const char *region) {
    int status = perch_stop(region);
    if (status == PERCH_OK) return PAPI_OK;
    return status == PERCH_OFF ? PAPI_ENOTRUN : PAPI_EMISC;
}

/* PAPI stops its counters here, and goes on in the next region. perch's cost nothing outside of regions. */
static inline int PAPI_hl_stop(void) { return perch_is_on() ? PAPI_OK : PAPI_ENOEVNT; }

#ifdef __cplusplus
}
#endif

#endif
