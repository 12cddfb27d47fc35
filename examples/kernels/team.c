#define _GNU_SOURCE
#include "team.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double seconds_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double seconds_on_cpu(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double parse_positive(const char *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0) {
        fprintf(stderr, "%s: '%s' is not a positive number\n", option, text);
        exit(2);
    }
    return value;
}

static void set_name(const struct member *member, const struct kernel *kernel)
{
    char name[16];
    snprintf(name, sizeof name, "%s-%d", member->fixed_name ? member->fixed_name : kernel->name,
             member->number);
    pthread_setname_np(pthread_self(), name);
}

static void work(const struct member *member, size_t index)
{
    struct task *task = &member->tasks[index];
    set_name(member, task->kernel);
    const double began = seconds_on_cpu();
    void *state = task->kernel->create((uint64_t)member->number * 1000 + index);
    if (!state) {
        fprintf(stderr, "%s: out of memory\n", task->kernel->name);
        return;
    }
    while (seconds_now() < member->team->start + task->until) {
        task->kernel->repeat(state);
        task->repeats++;
    }
    task->right = task->kernel->verify(state);
    if (!task->right)
        fprintf(stderr, "thread %d: %s computed a wrong result\n", member->number,
                task->kernel->name);
    task->kernel->destroy(state);
    task->cpu_seconds = seconds_on_cpu() - began;
}

static void *run_member(void *argument)
{
    const struct member *member = argument;
    for (size_t i = 0; i < member->task_count; i++)
        work(member, i);
    return NULL;
}

bool team_run(struct team *team)
{
    bool right = true;
    size_t started = 0;
    team->start = seconds_now();
    for (; started < team->size; started++) {
        struct member *member = &team->members[started];
        member->team = team;
        const int error = pthread_create(&member->thread, NULL, run_member, member);
        if (error) {
            fprintf(stderr, "cannot start thread %d: %s\n", member->number, strerror(error));
            right = false;
            break;
        }
    }
    for (size_t i = 0; i < started; i++) {
        const struct member *member = &team->members[i];
        pthread_join(member->thread, NULL);
        for (size_t j = 0; j < member->task_count; j++)
            right &= member->tasks[j].right;
    }
    return right;
}
