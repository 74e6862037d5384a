/* STREAM triad (McCalpin), c = a + s*b, with its own timer, to compare with experiments/kernels/stream.py.

   Each thread makes `passes` passes over its own contiguous part. Returns seconds per pass. */
#include <stddef.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void part(double *restrict c, const double *restrict a, const double *restrict b, double s, size_t n) {
    for (size_t i = 0; i < n; i++)
        c[i] = a[i] + s * b[i];
}

double triad(double *c, const double *a, const double *b, double s, long elements, long passes, int threads) {
    const size_t each = (size_t)(elements / threads);
    const double begun = now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++)
        for (long pass = 0; pass < passes; pass++) {
            part(c + t * each, a + t * each, b + t * each, s, each);
            /* Keep the compiler from merging identical passes. */
            __asm__ volatile("" ::: "memory");
        }
    return (now() - begun) / (double)passes;
}
