/* A driver that hangs costs its handle, not the caller; what comes back late is cleaned up and touches nothing freed. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "double_backend.h"

#define PATH "/opt/double/libdouble.so"
/* Long enough for everything that does not hang, on a slow machine, under a checker of memory. */
#define SHORT 500u

static char buffer[ZAP_TEXT_BYTES];

static const char *text(void) {
  ZAP_UMA(error)(buffer, sizeof buffer);
  return buffer;
}

static void nothing_left(void) {
  double_reset();
  WAIT_UNTIL(double_control.stuck == 0);
  WAIT_UNTIL(double_control.devices == 0);
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  CHECK_EQUAL(double_control.pieces, 0);
  CHECK_EQUAL(double_control.checks, 0);
  CHECK_EQUAL(double_control.overlaps, 0);
}

struct fixture {
  int32_t device, region, job;
  zap_span span;
};

static struct fixture open_one(void) {
  zap_uma_device about;
  zap_region region;
  struct fixture one = {.device = ZAP_UMA(open)(PATH, "", 0, SHORT, &about)};
  one.region = ZAP_UMA(region_alloc)(one.device, ZAP_MEMORY_HOST, 4096, &region);
  CHECK(one.device > 0 && one.region > 0);
  memset((void *)(uintptr_t)region.host, 0, 4096);
  one.span = (zap_span){.region = one.region, .length = 16};
  one.job = ZAP_UMA(check_begin)(one.device, &one.span, 1, 1);
  CHECK(one.job > 0);
  return one;
}

static void hang(enum double_call which) { atomic_store(&double_control.hanging, which); }

/* One verb with the call that it needs hanging; then all others answer at once. */
static void each_verb(void) {
  const struct {
    enum double_call call;
    const char *name;
  } verbs[] = {{CALL_ALLOC, "doubleAlloc"}, {CALL_FREE, "doubleFree"},        {CALL_EXPORT, "doubleExport"}, {CALL_BEGIN, "doubleLaunch"},
               {CALL_POLL, "doubleQuery"},  {CALL_TO_DEVICE, "doubleFence"}, {CALL_WAIT, "doubleWait"}};
  for (size_t at = 0; at < sizeof verbs / sizeof verbs[0]; at++) {
    struct fixture one = open_one();
    zap_region region = {.host = 1};
    uint8_t verdict = 0xee;
    hang(verbs[at].call);
    int32_t status = ZAP_OK;
    switch (verbs[at].call) {
      case CALL_ALLOC: status = ZAP_UMA(region_alloc)(one.device, ZAP_MEMORY_HOST, 4096, &region); break;
      case CALL_FREE: status = ZAP_UMA(region_free)(one.device, one.region); break;
      case CALL_EXPORT: status = ZAP_UMA(region_export)(one.device, one.region); break;
      case CALL_BEGIN: status = ZAP_UMA(check_begin)(one.device, &one.span, 1, 1); break;
      case CALL_POLL: status = ZAP_UMA(check_poll)(one.device, one.job, &verdict, 1); break;
      case CALL_TO_DEVICE: status = ZAP_UMA(fence_to_device)(one.device); break;
      default: status = ZAP_UMA(fence_to_host)(one.device); break;
    }
    CHECK_EQUAL(status, ZAP_E_TIMEOUT);
    CHECK_CONTAINS(text(), verbs[at].name);
    CHECK_CONTAINS(text(), "did not come back in time");
    CHECK_EQUAL(double_control.stuck, 1);
    CHECK(region.host == 1 && verdict == 0xee);

    int before = double_control.calls[CALL_ALLOC];
    CHECK_EQUAL(ZAP_UMA(region_alloc)(one.device, ZAP_MEMORY_HOST, 4096, &region), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(fence_to_device)(one.device), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(fence_to_host)(one.device), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(check_begin)(one.device, &one.span, 1, 1), ZAP_E_TIMEOUT);
    CHECK_EQUAL(double_control.calls[CALL_ALLOC], before);

    if (at % 2 == 0) {
      /* Back before the close: still of no use, but closed like any other. */
      double_reset();
      WAIT_UNTIL(double_control.stuck == 0);
      CHECK_EQUAL(ZAP_UMA(fence_to_device)(one.device), ZAP_E_TIMEOUT);
    }
    CHECK_EQUAL(ZAP_UMA(close)(one.device), ZAP_E_TIMEOUT);
    CHECK_EQUAL(ZAP_UMA(live)(), 0);
    CHECK_EQUAL(ZAP_UMA(region_free)(one.device, one.region), ZAP_E_HANDLE);
    nothing_left();
  }
}

static void open_and_close(void) {
  zap_uma_device about = {.driver = 77};
  hang(CALL_OPEN);
  CHECK_EQUAL(ZAP_UMA(open)(PATH, "", 0, SHORT, &about), ZAP_E_TIMEOUT);
  CHECK_CONTAINS(text(), "doubleOpen did not come back in time");
  CHECK_EQUAL(about.driver, 77);
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  nothing_left();
  CHECK_EQUAL(double_control.calls[CALL_OPEN], double_control.calls[CALL_CLOSE]);

  struct fixture one = open_one();
  hang(CALL_CLOSE);
  CHECK_EQUAL(ZAP_UMA(close)(one.device), ZAP_E_TIMEOUT);
  CHECK_CONTAINS(text(), "doubleClose did not come back in time");
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  CHECK_EQUAL(ZAP_UMA(close)(one.device), ZAP_E_HANDLE);
  nothing_left();
}

/* A hung device leaves others alone, and a new one of the same index can be opened beside it. */
static void beside(void) {
  struct fixture hung = open_one();
  hang(CALL_EXPORT);
  CHECK_EQUAL(ZAP_UMA(region_export)(hung.device, hung.region), ZAP_E_TIMEOUT);
  struct fixture healthy = open_one();
  uint8_t verdict = 0xee;
  CHECK_EQUAL(ZAP_UMA(check_poll)(healthy.device, healthy.job, &verdict, 1), ZAP_OK);
  CHECK_EQUAL(verdict, 2);
  CHECK_EQUAL(ZAP_UMA(close)(healthy.device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(close)(hung.device), ZAP_E_TIMEOUT);
  nothing_left();
}

static struct fixture shared;
static atomic_int timeouts, closes;

static void *wait_behind(void *unused) {
  (void)unused;
  zap_region region;
  int32_t status = ZAP_UMA(region_alloc)(shared.device, ZAP_MEMORY_HOST, 4096, &region);
  if (status == ZAP_E_TIMEOUT) atomic_fetch_add(&timeouts, 1);
  if (status == ZAP_E_HANDLE) atomic_fetch_add(&closes, 1);
  return NULL;
}

static void *close_shared(void *unused) {
  (void)unused;
  CHECK_EQUAL(ZAP_UMA(close)(shared.device), ZAP_OK);
  return NULL;
}

/* Those who queue behind a call that hangs, or behind a close, get an answer too. */
static void queue(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  shared = open_one();
  hang(CALL_ALLOC);
  for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, wait_behind, NULL);
  for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  CHECK_EQUAL(timeouts, THREADS);
  CHECK_EQUAL(ZAP_UMA(close)(shared.device), ZAP_E_TIMEOUT);
  nothing_left();

  /* Closed while a call runs: that one ends, the queued ones never begin, and all are told why. */
  zap_uma_device about;
  shared.device = ZAP_UMA(open)(PATH, "", 0, 60000, &about);
  hang(CALL_ALLOC);
  pthread_create(&threads[0], NULL, wait_behind, NULL);
  WAIT_UNTIL(double_control.stuck == 1);
  for (int at = 1; at < THREADS; at++) pthread_create(&threads[at], NULL, wait_behind, NULL);
  pause_millis(20);
  pthread_t closer;
  pthread_create(&closer, NULL, close_shared, NULL);
  WAIT_UNTIL(ZAP_UMA(live)() == 0);
  double_reset();
  for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  pthread_join(closer, NULL);
  CHECK_EQUAL(closes, THREADS);
  nothing_left();
}

static void blocked_signals(void) {
  /* The double hangs on the device's thread; a signal for this process must find the main thread. */
  struct fixture one = open_one();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  kill(getpid(), SIGUSR1);
  /* With the device's thread not blocking it, the default action would have ended this process. */
  int got = 0;
  sigwait(&set, &got);
  CHECK_EQUAL(got, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  CHECK_EQUAL(ZAP_UMA(close)(one.device), ZAP_OK);
  nothing_left();
}

int main(void) {
  each_verb();
  open_and_close();
  beside();
  queue();
  blocked_signals();
  return checks_done("hang");
}
