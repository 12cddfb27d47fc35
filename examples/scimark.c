/* A set of scientific kernels in the manner of SciMark: FFT, SOR, Monte Carlo,
 * sparse matrix, LU (and some more), one after the other, or by threads that
 * each walk through them from a different start and so change their character. */
#include "kernels/team.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: scimark [options] [KERNEL...]      (all five of SciMark when none is named)\n"
    "  -d, --duration S   seconds for each kernel (2)\n"
    "  -n, --repeats N    repeat each kernel N times instead\n"
    "  -t, --threads N    N threads, each through all kernels, from different starts\n"
    "  -l, --list         list the kernels\n";

enum { MOST_THREADS = 4096, MOST_KERNELS = 64 };
static const struct kernel *const scimark_kernels[] = {&kernel_fft, &kernel_sor,
                                                       &kernel_montecarlo, &kernel_sparse,
                                                       &kernel_lu};

static void list(void)
{
    for (size_t i = 0; i < kernel_count; i++)
        printf("%-11s %-8s %s\n", kernels[i]->name,
               kernels[i]->kind == KERNEL_FLOATING_POINT ? "float" : "integer", kernels[i]->what);
}

/* One kernel alone, for a time or for a number of repeats. */
static bool run_single(const struct kernel *kernel, double duration, uint64_t repeats)
{
    void *state = kernel->create(1);
    if (!state) {
        fprintf(stderr, "scimark: out of memory\n");
        return false;
    }
    const double start = seconds_on_cpu(), end = seconds_now() + duration;
    uint64_t done = 0;
    while (repeats ? done < repeats : seconds_now() < end) {
        kernel->repeat(state);
        done++;
    }
    const double seconds = seconds_on_cpu() - start;
    const bool right = kernel->verify(state);
    printf("%-11s %10llu repeats %9.2f %-12s %s\n", kernel->name, (unsigned long long)done,
           kernel->units_per_repeat * (double)done / seconds, kernel->unit,
           right ? "verified" : "WRONG");
    kernel->destroy(state);
    return right;
}

static bool run_threads(const struct kernel *const *chosen, size_t count, size_t threads,
                        double duration)
{
    struct member *members = calloc(threads, sizeof *members);
    struct task *tasks = calloc(threads * count, sizeof *tasks);
    if (!members || !tasks) {
        fprintf(stderr, "scimark: out of memory\n");
        free(members);
        free(tasks);
        return false;
    }
    for (size_t i = 0; i < threads; i++) {
        for (size_t j = 0; j < count; j++)
            tasks[i * count + j] = (struct task){
                .kernel = chosen[(i + j) % count],
                .until = duration * (double)(j + 1),
            };
        members[i] = (struct member){
            .number = (int)i + 1, .tasks = &tasks[i * count], .task_count = count};
    }
    struct team team = {.members = members, .size = threads};
    const bool right = team_run(&team);
    for (size_t k = 0; k < count; k++) {
        double cpu = 0;
        uint64_t repeats = 0;
        for (size_t i = 0; i < threads * count; i++)
            if (tasks[i].kernel == chosen[k]) {
                cpu += tasks[i].cpu_seconds;
                repeats += tasks[i].repeats;
            }
        printf("%-11s %10llu repeats %9.2f %s a CPU\n", chosen[k]->name,
               (unsigned long long)repeats, chosen[k]->units_per_repeat * (double)repeats / cpu,
               chosen[k]->unit);
    }
    printf("%zu threads, %zu kernels each, %s\n", threads, count,
           right ? "all verified" : "WRONG results");
    free(tasks);
    free(members);
    return right;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"duration", required_argument, NULL, 'd'}, {"repeats", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'},  {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    double duration = 2, repeats = 0, threads = 0;
    for (int option; (option = getopt_long(argc, argv, "d:n:t:lh", options, NULL)) != -1;)
        switch (option) {
        case 'd': duration = parse_positive("--duration", optarg); break;
        case 'n': repeats = parse_positive("--repeats", optarg); break;
        case 't': threads = parse_positive("--threads", optarg); break;
        case 'l': list(); return 0;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    if (threads > MOST_THREADS || (threads > 0 && threads < 1) || (repeats > 0 && repeats < 1) ||
        argc - optind > MOST_KERNELS || (threads > 0 && repeats > 0)) {
        fputs(usage, stderr);
        return 2;
    }

    const struct kernel *named[MOST_KERNELS];
    size_t count = 0;
    for (; optind < argc; optind++) {
        named[count] = kernel_find(argv[optind]);
        if (!named[count++]) {
            fprintf(stderr, "scimark: no kernel '%s'; --list names them all\n", argv[optind]);
            return 2;
        }
    }
    const struct kernel *const *chosen = named;
    if (count == 0) {
        chosen = scimark_kernels;
        count = sizeof scimark_kernels / sizeof scimark_kernels[0];
    }
    if (threads > 0)
        return run_threads(chosen, count, (size_t)threads, duration) ? 0 : 1;
    bool right = true;
    for (size_t i = 0; i < count; i++)
        right &= run_single(chosen[i], duration, (uint64_t)repeats);
    return right ? 0 : 1;
}
