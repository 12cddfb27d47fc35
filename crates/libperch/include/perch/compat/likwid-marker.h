/* likwid-marker.h: the marker macros and functions of LIKWID 5, counted by perch. A program that uses them needs no
 * change, only this folder before LIKWID's own:
 *
 *     cc -DLIKWID_PERFMON -I$(pkg-config --variable=compatdir perch) $(pkg-config --cflags perch) app.c \
 *        $(pkg-config --libs perch)
 *     perch stat ./app
 *
 * Regions are counted under `perch stat`, or with PERCH_REGION_EVENTS or PERCH_REGION_REPORT set. Without
 * -DLIKWID_PERFMON the macros are empty, as LIKWID's are. docs/regions.md lists what differs.
 */
#ifndef LIKWID_MARKER_H
#define LIKWID_MARKER_H

#ifdef LIKWID_PERFMON

#include <perch.h>
#include <stdio.h>

static inline void likwid_markerInit(void) {
    int begun = perch_init_if_asked(NULL);
    if (begun < 0 && begun != PERCH_ON) {
        fprintf(stderr, "perch: regions are not counted: %s\n", perch_error());
    } else if (begun == 0) {
        fprintf(stderr, "perch: regions are not counted: run the program under `perch stat`\n");
    }
}

/* Threads are found when they start their first region. */
static inline void likwid_markerThreadInit(void) {}

static inline void likwid_markerNextGroup(void) { perch_next_set(); }

static inline int likwid_markerRegisterRegion(const char *regionTag) {
    (void)regionTag;
    return perch_is_on() ? 0 : PERCH_OFF;
}

static inline int likwid_markerStartRegion(const char *regionTag) { return perch_start(regionTag); }

static inline int likwid_markerStopRegion(const char *regionTag) { return perch_stop(regionTag); }

static inline int likwid_markerResetRegion(const char *regionTag) { return perch_reset(regionTag); }

static inline int likwid_markerWriteFile(const char *markerfile) { return perch_report(markerfile); }

/* The counts of the calling thread, in the order of the events; one that is missing or doubtful is NAN. `nr_events` is the
 * room in `events`, and becomes the number of counts. */
static inline void likwid_markerGetRegion(const char *regionTag, int *nr_events, double *events, double *time,
                                          int *count) {
    perch_values values;
    int room = nr_events && events ? *nr_events : 0;
    int known = 0;
    if (perch_get(regionTag, PERCH_THREAD, &values) == PERCH_OK) {
        if (time) *time = values.wall_s;
        if (count) *count = (int)values.calls;
        for (; known < room && (size_t)known < perch_event_count(); known++) {
            char name[256];
            perch_count found;
            perch_event_name((size_t)known, name, sizeof name);
            if (perch_get_count(regionTag, PERCH_THREAD, name, &found) != PERCH_OK) break;
            events[known] = found.value;
        }
    } else {
        if (time) *time = 0;
        if (count) *count = 0;
    }
    if (nr_events) *nr_events = known;
}

static inline void likwid_markerClose(void) { perch_finish(); }

#define LIKWID_MARKER_INIT likwid_markerInit()
#define LIKWID_MARKER_THREADINIT likwid_markerThreadInit()
#define LIKWID_MARKER_SWITCH likwid_markerNextGroup()
#define LIKWID_MARKER_REGISTER(regionTag) likwid_markerRegisterRegion(regionTag)
#define LIKWID_MARKER_START(regionTag) likwid_markerStartRegion(regionTag)
#define LIKWID_MARKER_STOP(regionTag) likwid_markerStopRegion(regionTag)
#define LIKWID_MARKER_CLOSE likwid_markerClose()
#define LIKWID_MARKER_WRITE_FILE(markerfile) likwid_markerWriteFile(markerfile)
#define LIKWID_MARKER_RESET(regionTag) likwid_markerResetRegion(regionTag)
#define LIKWID_MARKER_GET(regionTag, nevents, events, time, count) \
    likwid_markerGetRegion(regionTag, nevents, events, time, count)

#else /* LIKWID_PERFMON */

#define LIKWID_MARKER_INIT
#define LIKWID_MARKER_THREADINIT
#define LIKWID_MARKER_SWITCH
#define LIKWID_MARKER_REGISTER(regionTag)
#define LIKWID_MARKER_START(regionTag)
#define LIKWID_MARKER_STOP(regionTag)
#define LIKWID_MARKER_CLOSE
#define LIKWID_MARKER_WRITE_FILE(markerfile)
#define LIKWID_MARKER_GET(regionTag, nevents, events, time, count)
#define LIKWID_MARKER_RESET(regionTag)

#endif /* LIKWID_PERFMON */

#endif
