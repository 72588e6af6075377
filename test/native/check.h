/* Assertions for the C tests: a failed one is printed with its place, and makes the program fail at its end. */
#ifndef ZAP_TEST_CHECK_H
#define ZAP_TEST_CHECK_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What hangs for good must not hang whoever waits for it. */
__attribute__((constructor)) static void end_some_day(void) { (void)alarm(150); }

static atomic_int checks_failed;

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);           \
      atomic_fetch_add(&checks_failed, 1);                                              \
    }                                                                                   \
  } while (0)

#define CHECK_EQUAL(seen, wanted)                                                       \
  do {                                                                                  \
    long long seen_ = (long long)(seen), wanted_ = (long long)(wanted);                 \
    if (seen_ != wanted_) {                                                             \
      fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #seen,  \
              seen_, #wanted, wanted_);                                                 \
      atomic_fetch_add(&checks_failed, 1);                                              \
    }                                                                                   \
  } while (0)

#define CHECK_CONTAINS(text, part)                                                      \
  do {                                                                                  \
    const char *text_ = (text);                                                         \
    if (strstr(text_, part) == NULL) {                                                  \
      fprintf(stderr, "%s:%d: \"%s\" has no \"%s\"\n", __FILE__, __LINE__, text_, part); \
      atomic_fetch_add(&checks_failed, 1);                                              \
    }                                                                                   \
  } while (0)

/* The last line of every program. */
static inline int checks_done(const char *name) {
  int failed = atomic_load(&checks_failed);
  if (failed == 0) printf("%s: ok\n", name);
  return failed == 0 ? 0 : 1;
}

static inline void pause_millis(long millis) {
  struct timespec time = {.tv_sec = millis / 1000, .tv_nsec = millis % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Waits until `condition` holds, or for ten seconds: for what another thread does soon. */
#define WAIT_UNTIL(condition)                                                           \
  do {                                                                                  \
    for (int wait_ = 0; wait_ < 10000 && !(condition); wait_++) pause_millis(1);        \
    CHECK(condition);                                                                   \
  } while (0)

#endif
