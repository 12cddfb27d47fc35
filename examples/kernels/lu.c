/* LU factorisation with partial pivoting, in place. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 100 };

struct lu {
    double original[N][N], factors[N][N];
    int pivot[N];
    long repeats;
};

static void *create(uint64_t seed)
{
    struct lu *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            l->original[i][j] = random_unit(&seed) - 0.5;
    return l;
}

static void repeat(void *state)
{
    struct lu *l = state;
    double(*a)[N] = l->factors;
    memcpy(a, l->original, sizeof l->factors);
    for (int k = 0; k < N; k++) {
        int best = k;
        for (int i = k + 1; i < N; i++)
            if (fabs(a[i][k]) > fabs(a[best][k]))
                best = i;
        l->pivot[k] = best;
        if (best != k)
            for (int j = 0; j < N; j++) {
                const double t = a[k][j];
                a[k][j] = a[best][j];
                a[best][j] = t;
            }
        const double reciprocal = 1 / a[k][k];
        for (int i = k + 1; i < N; i++) {
            const double multiple = a[i][k] *= reciprocal;
            for (int j = k + 1; j < N; j++)
                a[i][j] -= multiple * a[k][j];
        }
    }
    l->repeats++;
}

/* L times U is the matrix with its rows exchanged. */
static bool verify(void *state)
{
    const struct lu *l = state;
    if (l->repeats == 0)
        return true;
    int row[N];
    for (int i = 0; i < N; i++)
        row[i] = i;
    for (int k = 0; k < N; k++) {
        const int t = row[k];
        row[k] = row[l->pivot[k]];
        row[l->pivot[k]] = t;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = i <= j ? l->factors[i][j] : 0;
            for (int k = 0; k < i && k <= j; k++)
                sum += l->factors[i][k] * l->factors[k][j];
            if (!(fabs(sum - l->original[row[i]][j]) <= 1e-12))
                return false;
        }
    return true;
}

const struct kernel kernel_lu = {
    .name = "lu",
    .what = "LU factorisation, 100 x 100",
    .kind = KERNEL_FLOATING_POINT,
    .unit = "Mflop/s",
    .units_per_repeat = 2.0 / 3 * N * N * N * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
