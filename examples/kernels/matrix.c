/* Dense matrix multiplication. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

enum { N = 64 };

struct matrix {
    double a[N][N], b[N][N], c[N][N];
    double probe[N];
    long repeats;
};

static void *create(uint64_t seed)
{
    struct matrix *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            m->a[i][j] = random_unit(&seed) - 0.5;
            m->b[i][j] = random_unit(&seed) - 0.5;
        }
        m->probe[i] = random_unit(&seed) - 0.5;
    }
    return m;
}

static void repeat(void *state)
{
    struct matrix *m = state;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++)
            m->c[i][j] = 0;
        for (int k = 0; k < N; k++) {
            const double a = m->a[i][k];
            for (int j = 0; j < N; j++)
                m->c[i][j] += a * m->b[k][j];
        }
    }
    m->repeats++;
}

static void apply(const double (*a)[N], const double *x, double *y)
{
    for (int i = 0; i < N; i++) {
        y[i] = 0;
        for (int j = 0; j < N; j++)
            y[i] += a[i][j] * x[j];
    }
}

/* Freivalds: C r = A (B r) for a random r. */
static bool verify(void *state)
{
    struct matrix *m = state;
    double br[N], abr[N], cr[N];
    if (m->repeats == 0)
        return true;
    apply((const double(*)[N])m->b, m->probe, br);
    apply((const double(*)[N])m->a, br, abr);
    apply((const double(*)[N])m->c, m->probe, cr);
    for (int i = 0; i < N; i++)
        if (!(fabs(cr[i] - abr[i]) <= 1e-12))
            return false;
    return true;
}

const struct kernel kernel_matrix = {
    .name = "matrix",
    .what = "dense matrix multiplication, 64 x 64",
    .kind = KERNEL_FLOATING_POINT,
    .unit = "Mflop/s",
    .units_per_repeat = 2.0 * N * N * N * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
