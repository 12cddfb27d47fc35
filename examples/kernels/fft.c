/* Complex fast Fourier transform: iterative, radix 2, decimation in time. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_POINTS = 10, POINTS = 1 << LOG_POINTS };

struct complex_number {
    double re, im;
};

struct fft {
    struct complex_number root[POINTS / 2]; /* root[k] = exp(-2 pi i k / POINTS) */
    unsigned reversed[POINTS];
    struct complex_number original[POINTS], data[POINTS];
    double spectrum_energy, repeats;
};

static void *create(uint64_t seed)
{
    struct fft *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    const double turn = 2 * acos(-1.0);
    for (int k = 0; k < POINTS / 2; k++) {
        f->root[k].re = cos(turn * k / POINTS);
        f->root[k].im = -sin(turn * k / POINTS);
    }
    for (unsigned i = 1; i < POINTS; i++)
        f->reversed[i] = f->reversed[i >> 1] >> 1 | (i & 1) << (LOG_POINTS - 1);
    for (int i = 0; i < POINTS; i++) {
        f->original[i].re = random_unit(&seed) - 0.5;
        f->original[i].im = random_unit(&seed) - 0.5;
    }
    memcpy(f->data, f->original, sizeof f->data);
    return f;
}

/* direction 1 is the transform, -1 its inverse without the division by POINTS. */
static void transform(struct fft *f, double direction)
{
    struct complex_number *x = f->data;
    for (unsigned i = 0; i < POINTS; i++) {
        unsigned j = f->reversed[i];
        if (i < j) {
            struct complex_number t = x[i];
            x[i] = x[j];
            x[j] = t;
        }
    }
    for (int half = 1; half < POINTS; half *= 2) {
        const int stride = POINTS / (2 * half);
        for (int start = 0; start < POINTS; start += 2 * half)
            for (int k = 0; k < half; k++) {
                struct complex_number w = f->root[k * stride];
                struct complex_number *a = &x[start + k], *b = &x[start + k + half];
                w.im *= direction;
                double re = b->re * w.re - b->im * w.im;
                double im = b->re * w.im + b->im * w.re;
                b->re = a->re - re;
                b->im = a->im - im;
                a->re += re;
                a->im += im;
            }
    }
}

static double energy(const struct complex_number *x)
{
    double sum = 0;
    for (int i = 0; i < POINTS; i++)
        sum += x[i].re * x[i].re + x[i].im * x[i].im;
    return sum;
}

static void repeat(void *state)
{
    struct fft *f = state;
    transform(f, 1);
    f->spectrum_energy = energy(f->data);
    transform(f, -1);
    for (int i = 0; i < POINTS; i++) {
        f->data[i].re /= POINTS;
        f->data[i].im /= POINTS;
    }
    f->repeats += 1;
}

/* The inverse gives the input back, and Parseval: both domains hold the same energy. */
static bool verify(void *state)
{
    const struct fft *f = state;
    const double tolerance = 1e-13 * (10 + f->repeats);
    for (int i = 0; i < POINTS; i++)
        if (!(fabs(f->data[i].re - f->original[i].re) <= tolerance) ||
            !(fabs(f->data[i].im - f->original[i].im) <= tolerance))
            return false;
    if (f->repeats == 0)
        return true;
    const double ratio = f->spectrum_energy / POINTS / energy(f->original);
    return fabs(ratio - 1) <= tolerance;
}

const struct kernel kernel_fft = {
    .name = "fft",
    .what = "complex FFT of 1,024 points and its inverse",
    .kind = KERNEL_FLOATING_POINT,
    .unit = "Mflop/s",
    /* 10 operations a butterfly, two transforms, the scaling and the energy. */
    .units_per_repeat = (2 * 10.0 * POINTS / 2 * LOG_POINTS + 6.0 * POINTS) * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
