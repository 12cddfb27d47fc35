#include "kernels.h"

#include <string.h>

const struct kernel *const kernels[] = {
    &kernel_fft,  &kernel_sor,  &kernel_montecarlo, &kernel_sparse,   &kernel_lu,
    &kernel_matrix, &kernel_hash, &kernel_sort,       &kernel_compress, &kernel_sieve,
};
const size_t kernel_count = sizeof kernels / sizeof kernels[0];

const struct kernel *kernel_find(const char *name)
{
    for (size_t i = 0; i < kernel_count; i++)
        if (strcmp(kernels[i]->name, name) == 0)
            return kernels[i];
    return NULL;
}
