/* What the parts of the ZAP_UMA verbs share: uma_device.c, uma_region.c, uma_check.c. */
#ifndef ZAP_UMA_PARTS_H
#define ZAP_UMA_PARTS_H

#include <pthread.h>
#include <stdbool.h>

#include "backend.h"

struct zap_device {
  struct zap_object object; /* references: the table's, the device thread's, and one for each call that is under way */
  zap_device_thread *thread;
  uint32_t timeout_ms;
  zap_uma_device about;

  /* Taken for reading while the CPU reads regions, for writing while one of them goes. */
  pthread_rwlock_t reading;
  bool closed; /* under `reading` and `lock`, both */

  pthread_mutex_t lock;
  struct zap_region_entry *regions;
  struct zap_check *checks;
  struct zap_device_job *loading; /* of the kernel that verifies, under way or done; let go of by the device's thread, or after a failure */

  /* Checks whose kernels may still run. Written by the device's thread. */
  atomic_uint running;

  /* The device thread's own. */
  void *state;
  bool opened;
  uint64_t batches;
};

struct zap_region_entry {
  struct zap_object object; /* references: the table's and the list's */
  struct zap_device *device;
  struct zap_piece piece;
  int32_t handle;
  uint64_t batch; /* the last one that it was in */
  struct zap_region_entry *next;
};

struct zap_check {
  struct zap_object object; /* likewise */
  struct zap_device *device;
  void *running; /* NULL once it has ended */
  bool verifies; /* signatures; else it checks headers */
  bool counted;  /* in device->running */
  int32_t handle;
  struct zap_check *next;
  uint32_t count;
  uint8_t verdicts[];
};

/* A job of one device; keeps it. The start of a bigger structure. */
struct zap_device_job {
  struct zap_job job;
  struct zap_device *device;
};

/* The device behind a handle, with a reference; NULL with the text set. */
struct zap_device *zap_device_keep(int32_t handle);
void zap_device_release(struct zap_device *device);

/* As zap_job_new. A `destroy` of one's own ends with zap_device_job_free. */
void *zap_device_job_new(struct zap_device *device, size_t bytes, int32_t (*run)(struct zap_job *job),
                         void (*destroy)(struct zap_object *object));
void zap_device_job_free(struct zap_object *object);

/* Runs the job with the device's timeout. */
int32_t zap_device_job_run(struct zap_device_job *job);

/* Looks a region up only where it is not the one of the span before. Starts zeroed but for `device`. */
struct zap_resolver {
  struct zap_device *device;
  struct zap_region_entry *region;
  int32_t handle;
};

/*
 * The region of a span becomes the resolver's. Fails where it is not open, or the span does not lie in it; `name` and `number` are for the
 * text.
 */
int32_t zap_resolve(struct zap_resolver *resolver, const zap_span *span, const char *name, uint32_t number);

/* A job for the device: a check or a verification, which `count` (0 for the latter) verdicts belong to. NULL where out of memory. */
struct zap_check *zap_check_new(struct zap_device *device, uint32_t count, bool verifies);

/*
 * On the device's thread, after the launch: a handle for the job, and its place in the device's list. Where nobody is left to be told of
 * it, it is waited for and dropped.
 */
int32_t zap_check_started(struct zap_device_job *job, struct zap_check *check);

/* On the device's thread: out of the list, after its end. The handle is gone already. */
void zap_check_unlist(struct zap_device *device, struct zap_check *check);

/* On the device's thread, with no kernel running: the backend's part of a job that nobody polls any more. */
void zap_check_drop(struct zap_device *device, struct zap_check *check);

/* On the device's thread: waits for kernels, if there can be any. */
int32_t zap_device_wait(struct zap_device *device);

/*
 * The open region of that handle on that device, or NULL without a text. It stays as long as the caller holds `reading`, or
 * the caller is the device's thread, which alone frees regions.
 */
struct zap_region_entry *zap_region_find(struct zap_device *device, int32_t handle);

#endif
