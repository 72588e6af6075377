/* Jobs for the device that run on after the call that launched them: checks and verifications. */
#include <stdlib.h>

#include "uma.h"

static void free_check(struct zap_object *object) { free(object); }

struct zap_check *zap_check_new(struct zap_device *device, uint32_t count, bool verifies) {
  struct zap_check *check = calloc(1, sizeof *check + count);
  if (check == NULL) return NULL;
  zap_object_init(&check->object, free_check);
  check->device = device;
  check->count = count;
  check->verifies = verifies;
  return check;
}

void zap_check_drop(struct zap_device *device, struct zap_check *check) {
  if (check->running == NULL) return;
  if (check->verifies) zap_backend.verify_drop(device->state, check->running);
  else zap_backend.check_drop(device->state, check->running);
  check->running = NULL;
}

int32_t zap_check_started(struct zap_device_job *job, struct zap_check *check) {
  struct zap_device *device = job->device;
  check->counted = true;
  atomic_fetch_add(&device->running, 1);
  pthread_mutex_lock(&device->lock);
  int32_t status = device->closed || atomic_load(&job->job.abandoned) ? zap_fail(ZAP_E_HANDLE, "the device was closed")
                                                                      : zap_handle_open(ZAP_KIND_CHECK, &check->object);
  check->handle = status;
  check->next = device->checks;
  device->checks = check;
  zap_object_keep(&check->object);
  pthread_mutex_unlock(&device->lock);
  if (status >= 0) return status;
  /* It runs, but nobody will ask for it. */
  if (zap_device_wait(device) == ZAP_OK) {
    zap_check_drop(device, check);
    zap_check_unlist(device, check);
  }
  return status;
}

void zap_check_unlist(struct zap_device *device, struct zap_check *check) {
  pthread_mutex_lock(&device->lock);
  struct zap_check **link = &device->checks;
  while (*link != NULL && *link != check) link = &(*link)->next;
  bool listed = *link == check;
  if (listed) *link = check->next;
  pthread_mutex_unlock(&device->lock);
  if (check->counted) atomic_fetch_sub(&device->running, 1);
  check->counted = false;
  if (listed) zap_object_release(&check->object);
}
