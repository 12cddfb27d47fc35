/* Heap sort of random keys. */
#include "kernels.h"

#include <stdlib.h>

enum { KEYS = 8192 };

struct sort {
    uint64_t random;
    uint64_t keys[KEYS];
    uint64_t checksum;
};

static void *create(uint64_t seed)
{
    struct sort *s = calloc(1, sizeof *s);
    if (s)
        s->random = seed;
    return s;
}

static void sift_down(uint64_t *keys, size_t root, size_t end)
{
    const uint64_t key = keys[root];
    for (size_t child; (child = 2 * root + 1) < end; root = child) {
        if (child + 1 < end && keys[child] < keys[child + 1])
            child++;
        if (keys[child] <= key)
            break;
        keys[root] = keys[child];
    }
    keys[root] = key;
}

static void repeat(void *state)
{
    struct sort *s = state;
    s->checksum = 0;
    for (size_t i = 0; i < KEYS; i++) {
        s->keys[i] = random_u64(&s->random);
        s->checksum += s->keys[i];
    }
    for (size_t i = KEYS / 2; i-- > 0;)
        sift_down(s->keys, i, KEYS);
    for (size_t end = KEYS; --end > 0;) {
        const uint64_t largest = s->keys[0];
        s->keys[0] = s->keys[end];
        s->keys[end] = largest;
        sift_down(s->keys, 0, end);
    }
}

/* In order, and nothing lost. */
static bool verify(void *state)
{
    const struct sort *s = state;
    uint64_t sum = s->keys[0];
    for (size_t i = 1; i < KEYS; i++) {
        if (s->keys[i - 1] > s->keys[i])
            return false;
        sum += s->keys[i];
    }
    return sum == s->checksum;
}

const struct kernel kernel_sort = {
    .name = "sort",
    .what = "heap sort of 8,192 keys",
    .kind = KERNEL_INTEGER,
    .unit = "Mkeys/s",
    .units_per_repeat = KEYS * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
