/* Many threads over one device: nothing overlaps on the device's side, nothing is lost, and closing meanwhile is safe. */
#include <pthread.h>
#include <stdlib.h>

#include "check.h"
#include "double_backend.h"

#define PATH "/opt/double/libdouble.so"
#define TIMEOUT 60000u

enum { THREADS = 4, ROUNDS = 150 };

static int32_t device;
static atomic_bool may_close;
static atomic_int refused;

/* Only in the second half may a call be refused, and then only because the device was closed. */
static bool fine(int32_t status) {
  if (status >= 0) return true;
  CHECK_EQUAL(status, ZAP_E_HANDLE);
  CHECK(may_close);
  atomic_fetch_add(&refused, 1);
  return false;
}

static void one_round(uint32_t number) {
  zap_region region;
  int32_t handle = ZAP_UMA(region_alloc)(device, ZAP_MEMORY_MANAGED, 4096, &region);
  if (!fine(handle)) return;
  /* After a close the memory is gone, so it is touched only while nobody closes. */
  if (!may_close) memset((void *)(uintptr_t)region.host, (int)number, 64);
  zap_span spans[3];
  for (uint32_t at = 0; at < 3; at++) spans[at] = (zap_span){.region = handle, .offset = at * 16, .length = 16 - at % 2};
  uint8_t verdicts[3] = {0xee, 0xee, 0xee};
  int32_t status = ZAP_UMA(check_host)(device, spans, 3, 1, verdicts);
  if (!fine(status)) return;
  CHECK_EQUAL(verdicts[1], 1);
  int32_t job = ZAP_UMA(check_begin)(device, spans, 3, 1);
  if (!fine(job)) return;
  do {
    status = ZAP_UMA(check_poll)(device, job, verdicts, 3);
  } while (status == ZAP_E_AGAIN);
  if (!fine(status)) return;
  CHECK_EQUAL(verdicts[1], 1);
  if (!fine(ZAP_UMA(fence_to_host)(device))) return;
  if (number % 3 != 0) (void)fine(ZAP_UMA(region_free)(device, handle));
}

static void *work(void *start) {
  for (uint32_t round = 0; round < ROUNDS; round++) one_round((uint32_t)(uintptr_t)start + round);
  /* Every thread has a text of its own. */
  char wanted[32], text[ZAP_TEXT_BYTES];
  snprintf(wanted, sizeof wanted, "not \"%u\"", (unsigned)(uintptr_t)start);
  snprintf(text, sizeof text, "%u", (unsigned)(uintptr_t)start);
  zap_uma_device about;
  CHECK_EQUAL(ZAP_UMA(open)(text, "", 0, 1, &about), ZAP_E_INVALID);
  ZAP_UMA(error)(text, sizeof text);
  CHECK_CONTAINS(text, wanted);
  return NULL;
}

static void run(bool close_meanwhile) {
  pthread_t threads[THREADS];
  zap_uma_device about;
  device = ZAP_UMA(open)(PATH, "", 0, TIMEOUT, &about);
  CHECK(device > 0);
  may_close = close_meanwhile;
  double_control.slow_polls = 1;
  for (uintptr_t at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, work, (void *)(at * 1000));
  if (close_meanwhile) {
    pause_millis(10);
    CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  }
  for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  if (!close_meanwhile) CHECK_EQUAL(ZAP_UMA(close)(device), ZAP_OK);
  CHECK_EQUAL(ZAP_UMA(live)(), 0);
  CHECK_EQUAL(double_control.devices, 0);
  CHECK_EQUAL(double_control.pieces, 0);
  CHECK_EQUAL(double_control.checks, 0);
  CHECK_EQUAL(double_control.overlaps, 0);
}

int main(void) {
  run(false);
  CHECK_EQUAL(refused, 0);
  for (int round = 0; round < 20; round++) run(true);
  CHECK(refused > 0);
  return checks_done("threads");
}
