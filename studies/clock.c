/* Measure a core's clock in Hz with compiled code and the kernel's clock: a chain of dependent additions takes one cycle
* each on every processor since 1995. Take the best of many short runs: disturbances only slow down.
*/
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

int main(void) {
  printf("%.6e\n", clock_hz());
  return 0;
}
