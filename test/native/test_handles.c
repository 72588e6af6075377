/* Handles: generations, kinds, limits, and one winner of several closers. */
#include <pthread.h>
#include <stdlib.h>

#include "../../shim/common/fail.h"
#include "../../shim/common/handles.h"
#include "check.h"

struct thing {
  struct zap_object object;
  atomic_int *destroyed;
};

static void destroy(struct zap_object *object) {
  atomic_fetch_add(((struct thing *)object)->destroyed, 1);
  free(object);
}

static struct zap_object *make(atomic_int *destroyed) {
  struct thing *thing = calloc(1, sizeof *thing);
  if (thing == NULL) abort();
  zap_object_init(&thing->object, destroy);
  thing->destroyed = destroyed;
  return &thing->object;
}

static void lifetime(void) {
  atomic_int destroyed = 0;
  struct zap_object *object = make(&destroyed);
  int32_t handle = zap_handle_open(ZAP_KIND_DEVICE, object);
  CHECK(handle > 0);
  CHECK_EQUAL(zap_handles_live(), 1);
  zap_object_release(object);
  CHECK_EQUAL(destroyed, 0);

  CHECK(zap_handle_keep(handle, ZAP_KIND_REGION) == NULL);
  CHECK_CONTAINS(zap_failure(), "is no open region");
  CHECK(zap_handle_keep(handle, ZAP_KIND_DEVICE) == object);

  CHECK(zap_handle_close(handle, ZAP_KIND_REGION) == NULL);
  CHECK(zap_handle_close(handle, ZAP_KIND_DEVICE) == object);
  CHECK_EQUAL(zap_handles_live(), 0);
  zap_object_release(object);
  CHECK_EQUAL(destroyed, 0);
  CHECK(zap_handle_keep(handle, ZAP_KIND_DEVICE) == NULL);
  CHECK(zap_handle_close(handle, ZAP_KIND_DEVICE) == NULL);
  CHECK_CONTAINS(zap_failure(), "is no open device");
  zap_handle_drop(handle, ZAP_KIND_DEVICE);
  zap_object_release(object);
  CHECK_EQUAL(destroyed, 1);

  const int32_t never[] = {0, -1, INT32_MIN, INT32_MAX, 1, 65536, 12345678};
  for (size_t at = 0; at < sizeof never / sizeof never[0]; at++) CHECK(zap_handle_keep(never[at], ZAP_KIND_DEVICE) == NULL);
}

/* Far more handles than there are places: each is new, and each old one stays refused. */
static void generations(void) {
  enum { ROUNDS = 200000, REMEMBERED = 4096 };
  static int32_t old[REMEMBERED];
  atomic_int destroyed = 0;
  for (int round = 0; round < ROUNDS; round++) {
    struct zap_object *object = make(&destroyed);
    int32_t handle = zap_handle_open(ZAP_KIND_CHECK, object);
    zap_object_release(object);
    CHECK(handle > 0);
    int32_t before = old[round % REMEMBERED];
    CHECK(before != handle);
    if (before != 0) CHECK(zap_handle_keep(before, ZAP_KIND_CHECK) == NULL);
    old[round % REMEMBERED] = handle;
    zap_handle_drop(handle, ZAP_KIND_CHECK);
  }
  CHECK_EQUAL(destroyed, ROUNDS);
}

static void full(void) {
  atomic_int destroyed = 0;
  static int32_t handles[ZAP_HANDLES];
  struct zap_object *object = make(&destroyed);
  for (int at = 0; at < ZAP_HANDLES; at++) {
    handles[at] = zap_handle_open(ZAP_KIND_SLOT, object);
    CHECK(handles[at] > 0);
  }
  CHECK_EQUAL(zap_handle_open(ZAP_KIND_SLOT, object), ZAP_E_LIMIT);
  CHECK_CONTAINS(zap_failure(), "65536");
  CHECK_EQUAL(zap_handles_live(), ZAP_HANDLES);
  zap_handle_drop(handles[7], ZAP_KIND_SLOT);
  int32_t again = zap_handle_open(ZAP_KIND_SLOT, object);
  CHECK(again > 0 && again != handles[7]);
  CHECK(zap_handle_keep(handles[7], ZAP_KIND_SLOT) == NULL);
  handles[7] = again;
  for (int at = 0; at < ZAP_HANDLES; at++) zap_handle_drop(handles[at], ZAP_KIND_SLOT);
  CHECK_EQUAL(zap_handles_live(), 0);
  zap_object_release(object);
  CHECK_EQUAL(destroyed, 1);
}

static int32_t contested;
static atomic_int winners;

static void *contend(void *unused) {
  (void)unused;
  struct zap_object *object = zap_handle_keep(contested, ZAP_KIND_POLLER);
  struct zap_object *closed = zap_handle_close(contested, ZAP_KIND_POLLER);
  if (closed != NULL) atomic_fetch_add(&winners, 1);
  zap_object_release(closed);
  zap_object_release(object);
  return NULL;
}

static void one_closer(void) {
  enum { THREADS = 4, ROUNDS = 200 };
  atomic_int destroyed = 0;
  for (int round = 0; round < ROUNDS; round++) {
    struct zap_object *object = make(&destroyed);
    contested = zap_handle_open(ZAP_KIND_POLLER, object);
    zap_object_release(object);
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, contend, NULL);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
  }
  CHECK_EQUAL(winners, ROUNDS);
  CHECK_EQUAL(destroyed, ROUNDS);
}

int main(void) {
  lifetime();
  generations();
  full();
  one_closer();
  return checks_done("handles");
}
