/* Lempel-Ziv compression of text-like bytes, and back.
 *
 * The format: a byte below 128 is followed by that many + 1 literals; a byte
 * from 128 copies (byte - 128 + 4) bytes from a distance in the next two.
 */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 64 * 1024 - 1, WORST = BYTES + BYTES / 128 + 1, HASH_BITS = 12, SHORTEST = 4 };
enum { LONGEST = 127 + SHORTEST, MOST_LITERALS = 128 };

struct compress {
    uint8_t text[BYTES], packed[WORST], unpacked[BYTES];
    uint32_t last[1 << HASH_BITS]; /* position + 1 of the last four bytes with this hash */
    size_t packed_bytes, unpacked_bytes;
    long repeats;
};

static void *create(uint64_t seed)
{
    struct compress *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    /* Words of a small random vocabulary: repetitive like text, different by seed. */
    uint8_t words[64][8];
    for (size_t i = 0; i < 64; i++)
        for (size_t j = 0; j < 8; j++)
            words[i][j] = (uint8_t)('a' + random_u64(&seed) % 26);
    for (size_t at = 0; at < BYTES;) {
        const uint64_t pick = random_u64(&seed);
        const uint8_t *word = words[pick % 64];
        const size_t length = 2 + (pick >> 32) % 7;
        for (size_t j = 0; j < length && at < BYTES; j++)
            c->text[at++] = word[j];
        if (at < BYTES)
            c->text[at++] = ' ';
    }
    return c;
}

static size_t put_literals(uint8_t *out, const uint8_t *from, size_t count)
{
    size_t written = 0;
    while (count > 0) {
        const size_t run = count < MOST_LITERALS ? count : MOST_LITERALS;
        out[written++] = (uint8_t)(run - 1);
        memcpy(out + written, from, run);
        written += run;
        from += run;
        count -= run;
    }
    return written;
}

static void pack(struct compress *c)
{
    const uint8_t *in = c->text;
    size_t at = 0, literals = 0, out = 0;
    memset(c->last, 0, sizeof c->last);
    while (at + SHORTEST <= BYTES) {
        uint32_t four;
        memcpy(&four, in + at, 4);
        uint32_t *slot = &c->last[four * UINT32_C(2654435761) >> (32 - HASH_BITS)];
        const size_t candidate = *slot;
        *slot = (uint32_t)at + 1;
        size_t length = 0;
        if (candidate > 0) {
            const size_t most = BYTES - at < LONGEST ? BYTES - at : LONGEST;
            while (length < most && in[candidate - 1 + length] == in[at + length])
                length++;
        }
        if (length < SHORTEST) {
            at++;
            literals++;
            continue;
        }
        const size_t distance = at - (candidate - 1);
        out += put_literals(c->packed + out, in + at - literals, literals);
        literals = 0;
        c->packed[out++] = (uint8_t)(128 + length - SHORTEST);
        c->packed[out++] = (uint8_t)distance;
        c->packed[out++] = (uint8_t)(distance >> 8);
        at += length;
    }
    literals += BYTES - at;
    out += put_literals(c->packed + out, in + BYTES - literals, literals);
    c->packed_bytes = out;
}

static void unpack(struct compress *c)
{
    size_t in = 0, out = 0;
    while (in < c->packed_bytes) {
        const size_t tag = c->packed[in++];
        if (tag < 128) {
            memcpy(c->unpacked + out, c->packed + in, tag + 1);
            in += tag + 1;
            out += tag + 1;
            continue;
        }
        const size_t distance = c->packed[in] | (size_t)c->packed[in + 1] << 8;
        in += 2;
        /* Byte by byte: the copy may overlap what it writes. */
        for (size_t left = tag - 128 + SHORTEST; left > 0; left--, out++)
            c->unpacked[out] = c->unpacked[out - distance];
    }
    c->unpacked_bytes = out;
}

static void repeat(void *state)
{
    struct compress *c = state;
    pack(c);
    unpack(c);
    c->repeats++;
}

/* What was packed comes back, and it did shrink. */
static bool verify(void *state)
{
    const struct compress *c = state;
    if (c->repeats == 0)
        return true;
    return c->packed_bytes < BYTES * 3 / 4 && c->unpacked_bytes == BYTES &&
           memcmp(c->text, c->unpacked, BYTES) == 0;
}

const struct kernel kernel_compress = {
    .name = "compress",
    .what = "Lempel-Ziv compression of 64 KiB and back",
    .kind = KERNEL_INTEGER,
    .unit = "MB/s",
    .units_per_repeat = BYTES * 1e-6,
    .create = create,
    .repeat = repeat,
    .verify = verify,
    .destroy = free,
};
