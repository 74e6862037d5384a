/* A core's clock and its peak, by a compiler's own code and the kernel's clock. Needs a processor with AVX2 and FMA.
 *
 * `core` prints: clock in Hz, from a chain of dependent additions (one cycle each on every processor since 1995 that
 * runs this), and the peak in multiply-adds of float32 a second, from chains of fused multiply-adds that wait for
 * nobody else's result. Best of many short runs, for what disturbs only ever slows down.
 */
#include <immintrin.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double clock_hz(void) {
  double best = 0;
  for (int run = 0; run < 200; run++) {
    long n = 1000000, x = run;
    double began = now();
    for (long i = 0; i < n; i += 8)
      __asm__ volatile("add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n"
                       "add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0" : "+r"(x));
    double rate = n / (now() - began);
    if (rate > best) best = rate;
  }
  return best;
}

#ifdef __AVX512F__
#define WIDE 16
typedef __m512 lane;
#define FILL _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#else
#define WIDE 8
typedef __m256 lane;
#define FILL _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#endif
#define CHAINS 12

static double peak_mac_per_s(void) {
  double best = 0;
  volatile float sink;
  for (int run = 0; run < 200; run++) {
    lane sum[CHAINS], factor = FILL(0.999999f), term = FILL(1e-6f);
    for (int c = 0; c < CHAINS; c++) sum[c] = FILL(1.0f + c + run);
    long n = 100000;
    double began = now();
    for (long i = 0; i < n; i++)
      for (int c = 0; c < CHAINS; c++) { /* unrolled by -O3: the sums stay in registers */
        sum[c] = FMA(sum[c], factor, term);
        __asm__ volatile("" : "+v"(sum[c])); /* each step is done, none is folded into the next */
      }
    double rate = (double)n * CHAINS * WIDE / (now() - began);
    for (int c = 0; c < CHAINS; c++) sink = ((float *)&sum[c])[0];
    (void)sink;
    if (rate > best) best = rate;
  }
  return best;
}

int main(void) {
  double hertz = clock_hz(), peak = peak_mac_per_s();
  printf("%.6e %.6e\n", hertz, peak);
  return 0;
}
