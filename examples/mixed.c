/* Floating-point and integer threads that exchange their roles half-way.
 *
 * What a scheduler that knows which threads compute in floating point can do
 * something about: the two kinds are equally busy and look alike to one that
 * only sees load. At the end it prints each thread's work and verifies it.
 */
#include "kernels/team.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: mixed [options]\n"
    "  -t, --threads N      floating-point threads, and as many integer ones (4)\n"
    "  -d, --duration S     seconds to run (20)\n"
    "  -c, --change S       seconds after which the roles are exchanged (half of the duration;\n"
    "                       a time beyond the duration: never)\n"
    "  -s, --shuffle SEED   start the threads in a random order\n"
    "  -a, --anonymous      thread names that tell nothing of the role\n";

static const struct kernel *const floating_point[] = {&kernel_matrix, &kernel_fft, &kernel_sor,
                                                      &kernel_lu};
static const struct kernel *const integer[] = {&kernel_hash, &kernel_sort, &kernel_compress,
                                               &kernel_sieve};
enum { KERNELS_PER_ROLE = 4, MOST_THREADS = 4096 };

static void report(const struct team *team, double seconds)
{
    printf("%-7s", "thread");
    for (size_t j = 0; j < team->members[0].task_count; j++)
        printf(" %-11s %10s %7s", j == 0 ? "first" : "then", "repeats", "CPU s");
    printf("  result\n");
    double cpu = 0;
    uint64_t repeats = 0;
    for (size_t i = 0; i < team->size; i++) {
        const struct member *m = &team->members[i];
        bool right = true;
        printf("%-7d", m->number);
        for (size_t j = 0; j < m->task_count; j++) {
            const struct task *t = &m->tasks[j];
            printf(" %-11s %10llu %7.2f", t->kernel->name, (unsigned long long)t->repeats,
                   t->cpu_seconds);
            cpu += t->cpu_seconds;
            repeats += t->repeats;
            right &= t->right;
        }
        printf("  %s\n", right ? "verified" : "WRONG");
    }
    printf("%zu threads, %llu repeats, %.2f s on CPU in %.2f s\n", team->size,
           (unsigned long long)repeats, cpu, seconds);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'},  {"duration", required_argument, NULL, 'd'},
        {"change", required_argument, NULL, 'c'},   {"shuffle", required_argument, NULL, 's'},
        {"anonymous", no_argument, NULL, 'a'},      {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    double duration = 20, change = 0, threads = 4;
    bool shuffle = false, anonymous = false;
    uint64_t seed = 0;
    for (int option; (option = getopt_long(argc, argv, "t:d:c:s:ah", options, NULL)) != -1;)
        switch (option) {
        case 't': threads = parse_positive("--threads", optarg); break;
        case 'd': duration = parse_positive("--duration", optarg); break;
        case 'c': change = parse_positive("--change", optarg); break;
        case 's': seed = (uint64_t)parse_positive("--shuffle", optarg), shuffle = true; break;
        case 'a': anonymous = true; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    if (optind != argc || threads < 1 || threads > MOST_THREADS) {
        fputs(usage, stderr);
        return 2;
    }
    if (change == 0)
        change = duration / 2;

    const size_t each = (size_t)threads, size = 2 * each;
    const size_t task_count = change < duration ? 2 : 1;
    struct member *members = calloc(size, sizeof *members);
    struct task *tasks = calloc(size * task_count, sizeof *tasks);
    if (!members || !tasks) {
        fprintf(stderr, "mixed: out of memory\n");
        return 1;
    }
    for (size_t i = 0; i < size; i++) {
        const struct kernel *fp = floating_point[i / 2 % KERNELS_PER_ROLE];
        const struct kernel *in = integer[i / 2 % KERNELS_PER_ROLE];
        const bool starts_with_fp = i % 2 == 0;
        struct task *mine = &tasks[i * task_count];
        mine[0] = (struct task){.kernel = starts_with_fp ? fp : in, .until = change};
        if (task_count == 2)
            mine[1] = (struct task){.kernel = starts_with_fp ? in : fp, .until = duration};
        else
            mine[0].until = duration;
        members[i] = (struct member){
            .number = (int)i + 1,
            .tasks = mine,
            .task_count = task_count,
            .fixed_name = anonymous ? "worker" : NULL,
        };
    }
    for (size_t i = size; shuffle && i-- > 1;) {
        const size_t j = random_u64(&seed) % (i + 1);
        const struct member m = members[i];
        members[i] = members[j];
        members[j] = m;
    }

    struct team team = {.members = members, .size = size};
    const bool right = team_run(&team);
    report(&team, seconds_now() - team.start);
    free(tasks);
    free(members);
    return right ? 0 : 1;
}
