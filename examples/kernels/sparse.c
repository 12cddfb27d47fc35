/* Sparse matrix times vector, compressed rows, unknowns in random order. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 40, ROWS = SIDE * SIDE, REPEATS = 10, WAVE_X = 3, WAVE_Y = 5 };

struct sparse {
    int start[ROWS + 1];
    int column[5 * ROWS];
    double value[5 * ROWS];
    double x[ROWS], y[ROWS];
    long repeats;
};

static void *create(uint64_t seed)
{
    struct sparse *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    int place[ROWS], point[ROWS];
    for (int i = 0; i < ROWS; i++)
        place[i] = i;
    for (int i = ROWS - 1; i > 0; i--) {
        const int j = (int)(random_u64(&seed) % (unsigned)(i + 1));
        const int t = place[i];
        place[i] = place[j];
        place[j] = t;
    }
    for (int i = 0; i < ROWS; i++)
        point[place[i]] = i;

    /* The five-point Laplacian, whose eigenvectors are products of sines. */
    const double step = acos(-1.0) / (SIDE + 1);
    int used = 0;
    for (int row = 0; row < ROWS; row++) {
        const int i = point[row] / SIDE, j = point[row] % SIDE;
        static const int di[] = {0, -1, 1, 0, 0}, dj[] = {0, 0, 0, -1, 1};
        s->start[row] = used;
        for (int k = 0; k < 5; k++) {
            const int ni = i + di[k], nj = j + dj[k];
            if (ni < 0 || nj < 0 || ni >= SIDE || nj >= SIDE)
                continue;
            s->column[used] = place[ni * SIDE + nj];
            s->value[used] = k == 0 ? 4 : -1;
            used++;
        }
        s->x[row] = sin(WAVE_X * step * (i + 1)) * sin(WAVE_Y * step * (j + 1));
    }
    s->start[ROWS] = used;
    return s;
}

static void multiply(struct sparse *s)
{
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int k = s->start[row]; k < s->start[row + 1]; k++)
            sum += s->value[k] * s->x[s->column[k]];
        s->y[row] = sum;
    }
}

static void repeat(void *state)
{
    struct sparse *s = state;
    for (int i = 0; i < REPEATS; i++)
        multiply(s);
    s->repeats++;
}

/* The vector is an eigenvector: the product is its multiple. */
static bool verify(void *state)
{
    const struct sparse *s = state;
    if (s->repeats == 0)
        return true;
    const double step = acos(-1.0) / (SIDE + 1);
    const double sx = sin(WAVE_X * step / 2), sy = sin(WAVE_Y * step / 2);
    const double eigenvalue = 4 * (sx * sx + sy * sy);
    for (int row = 0; row < ROWS; row++)
        if (!(fabs(s->y[row] - eigenvalue * s->x[row]) <= 1e-12))
            return false;
    return true;
}

const struct kernel kernel_sparse = {
    .name = "sparse",
    .what = "sparse matrix times vector, 1,600 rows in random order",
    .kind = KERNEL_FLOATING_POINT,
    .unit = "Mflop/s",
    .units_per_repeat = 2.0 * (5 * ROWS - 4 * SIDE) * REPEATS * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
