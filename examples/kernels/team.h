/* Threads that each work through a list of kernels, all changing at the same time. */
#ifndef PERCH_EXAMPLES_TEAM_H
#define PERCH_EXAMPLES_TEAM_H

#include "kernels.h"

#include <pthread.h>

struct task {
    const struct kernel *kernel;
    double until; /* seconds after the common start */
    /* Filled in by the thread: */
    uint64_t repeats;
    double cpu_seconds;
    bool right; /* the kernel's results were verified */
};

struct member {
    int number;
    struct task *tasks;
    size_t task_count;
    const char *fixed_name; /* NULL: the thread is called after its present kernel */
    const struct team *team;
    pthread_t thread;
};

struct team {
    struct member *members;
    size_t size;
    double start; /* on the monotonic clock */
};

/* Starts the threads in the order given and waits for them all. True when every
 * result was right; prints to standard error what went wrong otherwise. */
bool team_run(struct team *team);

/* Seconds on the monotonic clock. */
double seconds_now(void);

/* Seconds on a processor of the calling thread. */
double seconds_on_cpu(void);

/* A positive number from the command line; prints what is wrong and exits with 2. */
double parse_positive(const char *option, const char *text);

#endif
