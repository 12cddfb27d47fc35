/* perch.h: counts events in regions of a program's own code.
 *
 *     #include <perch.h>
 *
 *     perch_init(NULL);
 *     perch_start("solve");
 *     ...
 *     perch_stop("solve");
 *
 * Build with `cc $(pkg-config --cflags perch) app.c $(pkg-config --libs perch)`. Run it under `perch stat`, or with
 * PERCH_REGION_REPORT=stderr, to see what the regions did. With -DPERCH_DISABLE all of this compiles to nothing, and the
 * library is not needed.
 *
 * Each thread counts itself. Regions nest, and may overlap. Functions may be called by any thread, but not by signal
 * handlers. docs/regions.md describes events, reports and environment variables.
 */
#ifndef PERCH_H
#define PERCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. perch_error() has the words. */
enum perch_status {
    PERCH_OK = 0,
    PERCH_OFF = -1,            /* nothing is counted: perch_init was not called, or perch_finish was */
    PERCH_ON = -2,             /* counting has begun already */
    PERCH_NOT_STARTED = -3,    /* the thread is not in this region */
    PERCH_NO_SUCH_REGION = -4, /* no thread was in this region */
    PERCH_NO_SUCH_COUNT = -5,  /* no such event or metric is counted */
    PERCH_TOO_MANY = -6,       /* too many regions, or too many inside each other */
    PERCH_BUSY = -7,           /* called by a signal handler, or while the thread exits */
    PERCH_SETTING = -8,        /* an argument or a variable means nothing here */
    PERCH_REPORT = -9          /* the report could not be written */
};

/* Where events are counted. */
enum perch_space { PERCH_ALL = 0, PERCH_USER = 1, PERCH_KERNEL = 2 };

/* Whose values are meant: those of the calling thread, or the sum over all threads. */
enum perch_scope { PERCH_THREAD = 0, PERCH_PROCESS = 1 };

/* How far a count can be trusted. */
enum perch_quality {
    PERCH_EXACT = 0,
    PERCH_SCALED = 1,   /* counted for a part of the time (`share`) and scaled up */
    PERCH_DOUBTFUL = 2, /* it cannot be true; the report says why */
    PERCH_MISSING = 3   /* not counted */
};

/* What is asked for. Set it up with PERCH_OPTIONS_INIT. Lists end with NULL; NULL stands for an empty list. What the
 * environment says (PERCH_REGION_EVENTS, ...) goes before all of this. */
typedef struct perch_options {
    size_t size;
    const char *const *events;   /* event sets, as for `perch stat -e`; none: the standard events */
    const char *const *metrics;  /* as for `perch stat -m`: "ipc=instructions/cycles" */
    const char *const *virtuals; /* "run_delay", "context_switches", "cpu_migrations" */
    const char *report;          /* at exit: "stderr", or a file (JSON if it ends in .json); NULL: nowhere */
    uint32_t interval_ms;        /* sample regions at this interval; 0: do not */
    int space;                   /* enum perch_space */
} perch_options;

#define PERCH_OPTIONS_INIT {sizeof(perch_options), NULL, NULL, NULL, NULL, 0, PERCH_ALL}

/* What was done in a region, what it has done since it was last started included. */
typedef struct perch_values {
    uint64_t calls;   /* how often it was stopped */
    uint32_t threads; /* threads that were in it */
    uint32_t open;    /* threads that are in it now */
    double wall_s;    /* seconds from starts to stops, of the thread that was in it longest */
    double cpu_s;     /* seconds on a PU */
    double counted_s; /* those of them in which events were counted */
} perch_values;

/* An event's count. */
typedef struct perch_count {
    double value;   /* occurrences, scaled up to all of counted_s; NAN if doubtful or missing */
    double counted; /* occurrences while it was counted */
    double share;   /* the share of counted_s in which it was counted */
    int quality;    /* enum perch_quality */
} perch_count;

#ifndef PERCH_DISABLE

/* Counts from now on, in regions of all threads. NULL: the environment decides, else the standard events. */
int perch_init(const perch_options *options);

/* The same, but only if the environment asks for it: under `perch stat`, or with PERCH_REGION_EVENTS or
 * PERCH_REGION_REPORT. Returns 1 if it counts, 0 if not, or an error. */
int perch_init_if_asked(const perch_options *options);

/* Whether regions are counted: 1 or 0. */
int perch_is_on(void);

/* Starts and stops a region of the calling thread. A region is inside the one that was started last. Before perch_init they
 * return PERCH_OFF at once. */
int perch_start(const char *region);
int perch_stop(const char *region);

/* Ends a sample here: what the region has done since its start, or since the last call, is in the JSON report by itself. */
int perch_read(const char *region);

/* Switches the calling thread to the next event set. Without it, threads switch when they leave their outermost region, and
 * at each sample. */
int perch_next_set(void);

/* Forgets what the calling thread has counted in this region, and in regions in it. */
int perch_reset(const char *region);

/* Values of a region. A region that is inside of one of the same name is part of that one. */
int perch_get(const char *region, int scope, perch_values *values);
int perch_get_count(const char *region, int scope, const char *event, perch_count *count);
int perch_get_metric(const char *region, int scope, const char *metric, double *value);

/* The number of events, and the name of each; the name's length without the end, even if it does not fit. */
size_t perch_event_count(void);
size_t perch_event_name(size_t event, char *name, size_t room);

/* All regions of all threads as JSON, to be freed with perch_free; NULL if nothing is counted. */
char *perch_json(void);
void perch_free(char *json);

/* Writes a report now: to "stderr", or to a file, as JSON if its name ends in .json. */
int perch_report(const char *destination);

/* Ends counting and writes the report, as the end of the program does. */
int perch_finish(void);

/* What was wrong in the calling thread last; valid up to its next error. */
const char *perch_error(void);

#else /* PERCH_DISABLE */

static inline int perch_init(const perch_options *options) { (void)options; return PERCH_OK; }
static inline int perch_init_if_asked(const perch_options *options) { (void)options; return 0; }
static inline int perch_is_on(void) { return 0; }
static inline int perch_start(const char *region) { (void)region; return PERCH_OK; }
static inline int perch_stop(const char *region) { (void)region; return PERCH_OK; }
static inline int perch_read(const char *region) { (void)region; return PERCH_OK; }
static inline int perch_next_set(void) { return PERCH_OK; }
static inline int perch_reset(const char *region) { (void)region; return PERCH_OK; }
static inline int perch_get(const char *region, int scope, perch_values *values) {
    (void)region; (void)scope; (void)values;
    return PERCH_OFF;
}
static inline int perch_get_count(const char *region, int scope, const char *event, perch_count *count) {
    (void)region; (void)scope; (void)event; (void)count;
    return PERCH_OFF;
}
static inline int perch_get_metric(const char *region, int scope, const char *metric, double *value) {
    (void)region; (void)scope; (void)metric; (void)value;
    return PERCH_OFF;
}
static inline size_t perch_event_count(void) { return 0; }
static inline size_t perch_event_name(size_t event, char *name, size_t room) {
    (void)event;
    if (room > 0) name[0] = '\0';
    return 0;
}
static inline char *perch_json(void) { return NULL; }
static inline void perch_free(char *json) { (void)json; }
static inline int perch_report(const char *destination) { (void)destination; return PERCH_OK; }
static inline int perch_finish(void) { return PERCH_OK; }
static inline const char *perch_error(void) { return ""; }

#endif /* PERCH_DISABLE */

#ifdef __cplusplus
}
#endif

#endif
