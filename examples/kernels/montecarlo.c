/* Pi as the share of random points of a square that fall into its circle. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 10000 };

struct montecarlo {
    uint64_t random;
    double inside, points;
};

static void *create(uint64_t seed)
{
    struct montecarlo *m = calloc(1, sizeof *m);
    if (m)
        m->random = seed;
    return m;
}

static void repeat(void *state)
{
    struct montecarlo *m = state;
    uint64_t random = m->random;
    long inside = 0;
    for (int i = 0; i < POINTS; i++) {
        const double x = random_unit(&random), y = random_unit(&random);
        if (x * x + y * y < 1)
            inside++;
    }
    m->random = random;
    m->inside += (double)inside;
    m->points += POINTS;
}

/* Within six standard errors. */
static bool verify(void *state)
{
    const struct montecarlo *m = state;
    if (m->points == 0)
        return true;
    const double pi = acos(-1.0), share = pi / 4;
    const double error = 4 * sqrt(share * (1 - share) / m->points);
    return fabs(4 * m->inside / m->points - pi) <= 6 * error;
}

const struct kernel kernel_montecarlo = {
    .name = "montecarlo",
    .what = "Monte Carlo integration of pi",
    .kind = KERNEL_FLOATING_POINT,
    .unit = "Mflop/s",
    .units_per_repeat = 4.0 * POINTS * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
