/* Loops whose instruction mix is known and does not change with time.
 *
 * usage: loops NAME SECONDS | loops NAME -REPEATS
 *
 * Each loop gets its data through pointers that the compiler knows nothing
 * about, so that what is written here is what runs.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

static volatile double result;
static volatile uint64_t integer_result;

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        fprintf(stderr, "loops: out of memory\n");
        exit(1);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* --- the 4 x 4 matrix product of WorkOver's micro-benchmark, in int and in double --- */

static int int_a[4][4], int_b[4][4], int_c[4][4];
static double real_a[4][4], real_b[4][4], real_c[4][4];

static void matrix_int(void)
{
    for (int times = 0; times < 20000; times++) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                int sum = 0;
                for (int k = 0; k < 4; k++)
                    sum += int_a[i][k] * int_b[k][j];
                int_c[i][j] = sum;
            }
        KEEP(int_a);
        KEEP(int_b);
        KEEP(int_c);
    }
}

static void matrix_double(void)
{
    for (int times = 0; times < 20000; times++) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                double sum = 0;
                for (int k = 0; k < 4; k++)
                    sum += real_a[i][k] * real_b[k][j];
                real_c[i][j] = sum;
            }
        KEEP(real_a);
        KEEP(real_b);
        KEEP(real_c);
    }
}

/* --- dense linear algebra; built once without and once with vector instructions --- */

enum { ORDER = 96 };

static void dgemm(void)
{
    static double(*a)[ORDER], (*b)[ORDER], (*c)[ORDER];
    if (!a) {
        a = allocate(sizeof(double[ORDER][ORDER]));
        b = allocate(sizeof(double[ORDER][ORDER]));
        c = allocate(sizeof(double[ORDER][ORDER]));
        for (int i = 0; i < ORDER; i++)
            for (int j = 0; j < ORDER; j++) {
                a[i][j] = 1.0 / (i + j + 1);
                b[i][j] = i == j ? 0.5 : 1e-4;
            }
    }
    for (int i = 0; i < ORDER; i++)
        for (int k = 0; k < ORDER; k++) {
            const double factor = a[i][k];
            for (int j = 0; j < ORDER; j++)
                c[i][j] += factor * b[k][j];
        }
    KEEP(c);
}

static void saxpy(void)
{
    enum { N = 4096 };
    static float *x, *y;
    if (!x) {
        x = allocate(N * sizeof *x);
        y = allocate(N * sizeof *y);
        for (int i = 0; i < N; i++)
            x[i] = (float)i;
    }
    for (int times = 0; times < 100; times++) {
        for (int i = 0; i < N; i++)
            y[i] = 0.75f * y[i] + x[i];
        KEEP(y);
    }
}

/* --- bandwidth, latency, copying --- */

static void triad(void)
{
    enum { N = 4 << 20 };
    static double *a, *b, *c;
    if (!a) {
        a = allocate(N * sizeof *a);
        b = allocate(N * sizeof *b);
        c = allocate(N * sizeof *c);
    }
    for (int i = 0; i < N; i++)
        a[i] = b[i] + 3.0 * c[i];
    KEEP(a);
}

static void chase(void)
{
    enum { LINES = 512 * 1024, LINE = 64 };
    static char *memory;
    static void **at;
    if (!memory) {
        memory = allocate((size_t)LINES * LINE);
        /* A congruential generator of full period visits every line once. */
        uint32_t line = 0;
        for (uint32_t i = 0; i < LINES; i++) {
            const uint32_t next = (line * 1664525u + 1013904223u) % LINES;
            *(void **)(memory + (size_t)line * LINE) = memory + (size_t)next * LINE;
            line = next;
        }
        at = (void **)memory;
    }
    void **p = at;
    for (int i = 0; i < 100000; i++)
        p = *p;
    at = p;
    KEEP(p);
}

static void copy(void)
{
    enum { BYTES = 256 * 1024 };
    static char *from, *to;
    if (!from) {
        from = allocate(BYTES);
        to = allocate(BYTES);
    }
    for (int i = 0; i < 20; i++) {
        memcpy(to, from, BYTES);
        KEEP(to);
    }
}

/* --- mathematical functions, long double, bodies in space --- */

static void libm(void)
{
    double sum = 0;
    for (int i = 0; i < 20000; i++)
        sum += sin(i * 1e-3) * exp(-(i & 1023) * 1e-3);
    result = sum;
}

static void libm_mixed(void)
{
    double sum = 0;
    for (int i = 1; i < 10000; i++)
        sum += pow(i * 1e-2, 0.3) + log(i) + atan2(i, 7.0) + cos(i * 0.1);
    result = sum;
}

static void long_double(void)
{
    /* A continued fraction and a logistic map: x87 arithmetic in a chain. */
    long double x = 0.3L, fraction = 1.0L;
    for (int i = 1; i < 50000; i++) {
        x = 3.7L * x * (1.0L - x);
        fraction = 1.0L + x / (1.0L + fraction);
    }
    result = (double)(x + fraction);
}

struct body {
    double position[3], velocity[3], mass;
};

static void nbody(void)
{
    enum { BODIES = 5 };
    static struct body bodies[BODIES];
    if (bodies[0].mass == 0)
        for (int i = 0; i < BODIES; i++) {
            bodies[i].mass = i == 0 ? 40 : 0.01 * i;
            bodies[i].position[0] = 5.0 * i;
            bodies[i].position[2] = 0.1 * i;
            bodies[i].velocity[1] = i == 0 ? 0 : sqrt(40 / (5.0 * i));
        }
    const double step = 1e-3;
    for (int times = 0; times < 2000; times++) {
        for (int i = 0; i < BODIES; i++)
            for (int j = i + 1; j < BODIES; j++) {
                double apart[3], square = 0;
                for (int k = 0; k < 3; k++) {
                    apart[k] = bodies[i].position[k] - bodies[j].position[k];
                    square += apart[k] * apart[k];
                }
                const double pull = step / (square * sqrt(square));
                for (int k = 0; k < 3; k++) {
                    bodies[i].velocity[k] -= apart[k] * bodies[j].mass * pull;
                    bodies[j].velocity[k] += apart[k] * bodies[i].mass * pull;
                }
            }
        for (int i = 0; i < BODIES; i++)
            for (int k = 0; k < 3; k++)
                bodies[i].position[k] += step * bodies[i].velocity[k];
    }
    result = bodies[0].position[0];
}

static void mandelbrot(void)
{
    uint64_t inside = 0;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < 64; column++) {
            const double cr = column / 24.0 - 2, ci = row / 32.0 - 1;
            double zr = 0, zi = 0;
            int left = 200;
            while (left > 0 && zr * zr + zi * zi < 4) {
                const double next = zr * zr - zi * zi + cr;
                zi = 2 * zr * zi + ci;
                zr = next;
                left--;
            }
            inside += left == 0;
        }
    integer_result = inside;
}

/* --- integers only --- */

static void xorshift(void)
{
    uint64_t x = 88172645463325252u, sum = 0;
    for (int i = 0; i < 500000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        sum += x * 0x9e3779b97f4a7c15u;
    }
    integer_result = sum;
}

static void divide(void)
{
    uint64_t sum = 0, by = 12345;
    for (int i = 0; i < 100000; i++) {
        sum += (sum + 0xffffffffffffu) / by;
        by = (sum & 1023) + 7;
    }
    integer_result = sum;
}

static const struct {
    const char *name;
    void (*repeat)(void);
} loops[] = {
    {"matrix-int", matrix_int}, {"matrix-double", matrix_double},
    {"dgemm", dgemm},           {"saxpy", saxpy},
    {"triad", triad},           {"chase", chase},
    {"copy", copy},             {"libm", libm},
    {"libm-mixed", libm_mixed}, {"long-double", long_double},
    {"nbody", nbody},           {"mandelbrot", mandelbrot},
    {"xorshift", xorshift},     {"divide", divide},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const double amount = argc == 3 ? strtod(argv[2], NULL) : 0;
    for (size_t i = 0; amount != 0 && i < sizeof loops / sizeof loops[0]; i++) {
        if (strcmp(loops[i].name, argv[1]) != 0)
            continue;
        const double end = now() + amount;
        for (long done = 0; amount < 0 ? done < -amount : now() < end; done++)
            loops[i].repeat();
        return 0;
    }
    fprintf(stderr, "usage: loops NAME SECONDS | -REPEATS, NAME one of:");
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++)
        fprintf(stderr, " %s", loops[i].name);
    fprintf(stderr, "\n");
    return 2;
}
