/* Sieve of Eratosthenes. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 100000, PRIMES_BELOW_LIMIT = 9592 };

struct sieve {
    uint8_t composite[LIMIT];
    long primes, repeats;
};

static void *create(uint64_t seed)
{
    (void)seed;
    return calloc(1, sizeof(struct sieve));
}

static void repeat(void *state)
{
    struct sieve *s = state;
    memset(s->composite, 0, sizeof s->composite);
    long primes = 0;
    for (size_t n = 2; n < LIMIT; n++) {
        if (s->composite[n])
            continue;
        primes++;
        for (size_t multiple = n * n; multiple < LIMIT; multiple += n)
            s->composite[multiple] = 1;
    }
    s->primes = primes;
    s->repeats++;
}

static bool verify(void *state)
{
    const struct sieve *s = state;
    return s->repeats == 0 || s->primes == PRIMES_BELOW_LIMIT;
}

const struct kernel kernel_sieve = {
    .name = "sieve",
    .what = "primes below 100,000",
    .kind = KERNEL_INTEGER,
    .unit = "Mnumbers/s",
    .units_per_repeat = LIMIT * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
