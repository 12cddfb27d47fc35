/* Compute kernels with a known result, for programs that show what perch sees.
 *
 * A kernel is created from a seed, repeated as often as one likes (every
 * repetition does the same amount of work) and verified at any time against
 * a property of its result: an inverse, a residual, an exact solution.
 */
#ifndef PERCH_EXAMPLES_KERNELS_H
#define PERCH_EXAMPLES_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kernel_kind { KERNEL_FLOATING_POINT, KERNEL_INTEGER };

struct kernel {
    const char *name; /* at most 10 bytes: it becomes part of a thread's name */
    const char *what;
    enum kernel_kind kind;
    const char *unit;        /* of the rate that is printed */
    double units_per_repeat; /* in millions */
    void *(*create)(uint64_t seed); /* NULL when memory ran out */
    void (*repeat)(void *state);
    bool (*verify)(void *state); /* true when the results so far are right */
    void (*destroy)(void *state);
};

/* All kernels, floating-point ones first. */
extern const struct kernel *const kernels[];
extern const size_t kernel_count;

/* NULL when no kernel has this name. */
const struct kernel *kernel_find(const char *name);

extern const struct kernel kernel_fft, kernel_sor, kernel_montecarlo, kernel_sparse, kernel_lu,
    kernel_matrix;
extern const struct kernel kernel_hash, kernel_sort, kernel_compress, kernel_sieve;

/* SplitMix64 (Steele, Lea, Flood 2014): small, and good from any seed. */
static inline uint64_t random_u64(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double random_unit(uint64_t *state)
{
    return (double)(random_u64(state) >> 11) * 0x1p-53;
}

#endif
