/* Successive over-relaxation of Laplace's equation on a square grid. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 100, SWEEPS = 10, SWEEPS_TO_CONVERGE = 1500 };

struct sor {
    double grid[SIDE][SIDE];
    double factor;
    long sweeps;
};

/* x^2 - y^2 + 3x solves the five-point difference equation exactly, not only the differential one. */
static double exact(int i, int j)
{
    const double x = (double)i / SIDE, y = (double)j / SIDE;
    return x * x - y * y + 3 * x;
}

static void *create(uint64_t seed)
{
    struct sor *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const bool border = i == 0 || j == 0 || i == SIDE - 1 || j == SIDE - 1;
            s->grid[i][j] = border ? exact(i, j) : random_unit(&seed);
        }
    /* The factor that converges fastest on a square. */
    s->factor = 2 / (1 + sin(acos(-1.0) / (SIDE - 1)));
    return s;
}

static void sweep(struct sor *s)
{
    const double quarter = s->factor / 4, keep = 1 - s->factor;
    for (int i = 1; i < SIDE - 1; i++) {
        const double *up = s->grid[i - 1], *down = s->grid[i + 1];
        double *row = s->grid[i];
        for (int j = 1; j < SIDE - 1; j++)
            row[j] = quarter * (up[j] + down[j] + row[j - 1] + row[j + 1]) + keep * row[j];
    }
    s->sweeps++;
}

static void repeat(void *state)
{
    for (int i = 0; i < SWEEPS; i++)
        sweep(state);
}

/* The iteration converges to the exact solution. */
static bool verify(void *state)
{
    struct sor *s = state;
    while (s->sweeps < SWEEPS_TO_CONVERGE)
        sweep(s);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            if (!(fabs(s->grid[i][j] - exact(i, j)) <= 1e-12))
                return false;
    return true;
}

const struct kernel kernel_sor = {
    .name = "sor",
    .what = "successive over-relaxation, 100 x 100",
    .kind = KERNEL_FLOATING_POINT,
    .unit = "Mflop/s",
    .units_per_repeat = 6.0 * (SIDE - 2) * (SIDE - 2) * SWEEPS * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
