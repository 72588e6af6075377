/* What the benchmarks of links share: the clock of round trips, and words. */
#ifndef ZAP_DPDK_CLOCK_H
#define ZAP_DPDK_CLOCK_H

#include "dpdk_kit.h"
#include "zap_dpdk.h"

static inline uint32_t idle_named(const char *word) {
  if (strcmp(word, "spin") == 0) return ZAP_DPDK_SPIN;
  if (strcmp(word, "yield") == 0) return ZAP_DPDK_YIELD;
  if (strcmp(word, "sleep") == 0) return ZAP_DPDK_SLEEP;
  fprintf(stderr, "%s is no way to idle\n", word);
  exit(2);
}

#define TRIPS_MOST (1u << 22)

/* Nanoseconds of each round trip that began after `warm`. */
struct trips {
  uint64_t warm, until;
  uint32_t count;
  uint32_t nanos[TRIPS_MOST];
};

static inline void trips_begin(struct trips *trips, double warm_millis, double run_millis) {
  trips->count = 0;
  trips->warm = zap_now() + (uint64_t)(warm_millis * 1e6);
  trips->until = trips->warm + (uint64_t)(run_millis * 1e6);
}

static inline void trip_made(struct trips *trips, uint64_t from, uint64_t to) {
  if (from >= trips->warm && trips->count < TRIPS_MOST) trips->nanos[trips->count++] = (uint32_t)(to - from);
}

/* On a busy machine a single trip may take longer than all of the time. */
static inline bool trips_over(const struct trips *trips, uint64_t now) {
  return now >= trips->until && (trips->count > 0 || now >= trips->until + 20000000000ull);
}

static inline int by_nanos(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The line that bench/child.ts would print. */
static inline void trips_print(struct trips *trips) {
  if (trips->count == 0) {
    fprintf(stderr, "no round trip was finished in time\n");
    exit(1);
  }
  qsort(trips->nanos, trips->count, sizeof *trips->nanos, by_nanos);
  printf("{\"result\":{\"samples\":%u,\"medianMicros\":%.3f,\"p99Micros\":%.3f}}\n", trips->count, trips->nanos[trips->count / 2] / 1e3,
         trips->nanos[(uint64_t)trips->count * 99 / 100] / 1e3);
  (void)fflush(stdout);
}

/* Until the runner, who holds the other end of stdin, is done with us. */
static inline int stay(void) {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) continue;
  return 0;
}

#endif
