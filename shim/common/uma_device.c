/* Probe, open, close, hand-over. */
#include <stdlib.h>
#include <string.h>

#include "uma.h"

uint32_t ZAP_UMA(abi)(void) { return ZAP_ABI_VERSION; }

int32_t ZAP_UMA(error)(char *text, uint32_t capacity) { return zap_failure_copy(text, capacity); }

/* ---- jobs of a device ---- */

struct zap_device *zap_device_keep(int32_t handle) { return (struct zap_device *)zap_handle_keep(handle, ZAP_KIND_DEVICE); }

void zap_device_release(struct zap_device *device) { zap_object_release(&device->object); }

void *zap_device_job_new(struct zap_device *device, size_t bytes, int32_t (*run)(struct zap_job *job),
                         void (*destroy)(struct zap_object *object)) {
  struct zap_device_job *job = zap_job_new(bytes, run, destroy == NULL ? zap_device_job_free : destroy);
  if (job == NULL) return NULL;
  zap_object_keep(&device->object);
  job->device = device;
  return job;
}

void zap_device_job_free(struct zap_object *object) {
  zap_device_release(((struct zap_device_job *)object)->device);
  free(object);
}

int32_t zap_device_job_run(struct zap_device_job *job) {
  return zap_device_thread_run(job->device->thread, &job->job, job->device->timeout_ms);
}

/* ---- what is asked for ---- */

static char *copy_of(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  if (copy != NULL) memcpy(copy, text, bytes);
  return copy;
}

static int32_t check_request(const char *runtime, const char *support, int32_t index, uint32_t timeout_ms) {
  if (runtime == NULL || runtime[0] != '/') {
    return zap_fail(ZAP_E_INVALID, "the vendor's library must be given by its absolute path, not \"%s\"",
                    runtime == NULL ? "" : runtime);
  }
  if (support != NULL && support[0] != 0 && support[0] != '/') {
    return zap_fail(ZAP_E_INVALID, "the second library must be given by its absolute path, not \"%s\"", support);
  }
  if (index < 0) return zap_fail(ZAP_E_INVALID, "devices are numbered from 0; %d is none", (int)index);
  if (timeout_ms == 0) return zap_fail(ZAP_E_INVALID, "a timeout of 0 ms leaves no time for anything");
  return ZAP_OK;
}

/* The caller's texts need not outlive its call, but the driver's thread may. */
static bool copy_request(struct zap_request *request, const char *runtime, const char *support, int32_t index) {
  request->runtime = copy_of(runtime);
  request->support = copy_of(support == NULL ? "" : support);
  request->index = index;
  if (request->runtime != NULL && request->support != NULL) return true;
  (void)zap_fail(ZAP_E_MEMORY, "out of memory for a path");
  return false;
}

static void free_request(struct zap_request *request) {
  free((char *)request->runtime);
  free((char *)request->support);
}

/* ---- probe ---- */

struct probe_job {
  struct zap_job job;
  struct zap_request request;
  struct zap_rows rows;
};

static int32_t run_probe(struct zap_job *job) {
  struct probe_job *probe = (struct probe_job *)job;
  zap_backend.probe(&probe->request, &probe->rows);
  return ZAP_OK;
}

static void free_probe(struct zap_object *object) {
  free_request(&((struct probe_job *)object)->request);
  free(object);
}

static void nothing_left(void *context) { (void)context; }

int32_t ZAP_UMA(probe)(const char *runtime, const char *support, int32_t index, uint32_t timeout_ms, zap_prerequisite *rows,
                       uint32_t capacity) {
  int32_t status = check_request(runtime, support, index, timeout_ms);
  if (status < 0) return status;
  if (rows == NULL || capacity == 0) return zap_fail(ZAP_E_INVALID, "a probe needs room for its rows");

  struct probe_job *job = zap_job_new(sizeof *job, run_probe, free_probe);
  if (job == NULL) return ZAP_E_MEMORY;
  if (!copy_request(&job->request, runtime, support, index)) {
    zap_object_release(&job->job.object);
    return ZAP_E_MEMORY;
  }
  zap_device_thread *thread = NULL;
  status = zap_device_thread_start(nothing_left, NULL, &thread);
  if (status == ZAP_OK) {
    status = zap_device_thread_run(thread, &job->job, timeout_ms);
    uint32_t count = zap_rows_copy(&job->rows, rows, capacity);
    if (status < 0 && count < capacity) {
      struct zap_rows *late = calloc(1, sizeof *late);
      if (late != NULL) {
        zap_row(late, "driver", false, "The driver hangs: look at dmesg, then reset the device or restart the host.", "%s",
                zap_failure());
        count += zap_rows_copy(late, rows + count, capacity - count);
      }
      free(late);
    }
    (void)zap_device_thread_stop(thread, timeout_ms);
    zap_device_thread_release(thread);
    status = (int32_t)count;
  }
  zap_object_release(&job->job.object);
  return status;
}

/* ---- open ---- */

struct open_job {
  struct zap_device_job base;
  struct zap_request request;
};

static int32_t run_open(struct zap_job *job) {
  struct open_job *open = (struct open_job *)job;
  struct zap_device *device = open->base.device;
  int32_t status = zap_backend.open(&open->request, &device->state, &device->about);
  if (status < 0) return status;
  device->about.name[sizeof device->about.name - 1] = 0;
  if (zap_backend.check_begin == NULL) device->about.flags &= ~(uint32_t)ZAP_UMA_KERNELS;
  if (zap_backend.verify_begin == NULL) device->about.flags &= ~(uint32_t)ZAP_UMA_VERIFY;
  device->opened = true;
  return ZAP_OK;
}

static void free_open(struct zap_object *object) {
  free_request(&((struct open_job *)object)->request);
  zap_device_job_free(object);
}

/* The device thread's last act, in time or late. Nobody else has the device's lists any more, only its other fields. */
static void let_go(void *context) {
  struct zap_device *device = context;
  pthread_mutex_lock(&device->lock);
  struct zap_device_job *loading = device->loading;
  device->loading = NULL;
  pthread_mutex_unlock(&device->lock);
  if (loading != NULL) zap_object_release(&loading->job.object);
  if (device->opened) {
    (void)zap_device_wait(device);
    while (device->checks != NULL) {
      struct zap_check *check = device->checks;
      device->checks = check->next;
      zap_check_drop(device, check);
      zap_object_release(&check->object);
    }
    while (device->regions != NULL) {
      struct zap_region_entry *region = device->regions;
      device->regions = region->next;
      /* Nobody is left to be told. */
      (void)zap_backend.free(device->state, &region->piece);
      zap_object_release(&region->object);
    }
    zap_backend.close(device->state);
  }
  zap_device_release(device);
}

static void free_device(struct zap_object *object) {
  struct zap_device *device = (struct zap_device *)object;
  zap_device_thread_release(device->thread);
  pthread_rwlock_destroy(&device->reading);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static int32_t new_device(uint32_t timeout_ms, struct zap_device **out) {
  struct zap_device *device = calloc(1, sizeof *device);
  if (device == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a device");
  zap_object_init(&device->object, free_device);
  device->timeout_ms = timeout_ms;
  if (pthread_mutex_init(&device->lock, NULL) != 0) {
    free(device);
    return zap_fail(ZAP_E_SYSTEM, "pthread_mutex_init failed: out of memory");
  }
  if (pthread_rwlock_init(&device->reading, NULL) != 0) {
    pthread_mutex_destroy(&device->lock);
    free(device);
    return zap_fail(ZAP_E_SYSTEM, "pthread_rwlock_init failed: out of memory");
  }
  zap_object_keep(&device->object); /* for let_go */
  int32_t status = zap_device_thread_start(let_go, device, &device->thread);
  if (status < 0) {
    free_device(&device->object);
    return status;
  }
  *out = device;
  return ZAP_OK;
}

int32_t ZAP_UMA(open)(const char *runtime, const char *support, int32_t index, uint32_t timeout_ms, zap_uma_device *about) {
  int32_t status = check_request(runtime, support, index, timeout_ms);
  if (status < 0) return status;
  if (about == NULL) return zap_fail(ZAP_E_INVALID, "open needs a place for what the device is");

  struct zap_device *device = NULL;
  status = new_device(timeout_ms, &device);
  if (status < 0) return status;
  struct open_job *job = zap_device_job_new(device, sizeof *job, run_open, free_open);
  status = job == NULL || !copy_request(&job->request, runtime, support, index) ? ZAP_E_MEMORY : zap_device_job_run(&job->base);
  if (job != NULL) zap_object_release(&job->base.job.object);
  if (status == ZAP_OK) {
    *about = device->about;
    status = zap_handle_open(ZAP_KIND_DEVICE, &device->object);
  }
  if (status < 0) {
    char text[ZAP_TEXT_BYTES];
    zap_text_copy(text, sizeof text, zap_failure());
    (void)zap_device_thread_stop(device->thread, timeout_ms);
    (void)zap_fail(status, "%s", text);
  }
  zap_device_release(device);
  return status;
}

/* ---- close ---- */

int32_t ZAP_UMA(close)(int32_t handle) {
  struct zap_device *device = (struct zap_device *)zap_handle_close(handle, ZAP_KIND_DEVICE);
  if (device == NULL) return ZAP_E_HANDLE;
  /* From here on no CPU reads regions, and nothing new gets a handle. */
  pthread_rwlock_wrlock(&device->reading);
  pthread_mutex_lock(&device->lock);
  device->closed = true;
  for (struct zap_region_entry *each = device->regions; each != NULL; each = each->next) {
    zap_handle_drop(each->handle, ZAP_KIND_REGION);
  }
  for (struct zap_check *each = device->checks; each != NULL; each = each->next) zap_handle_drop(each->handle, ZAP_KIND_CHECK);
  pthread_mutex_unlock(&device->lock);
  pthread_rwlock_unlock(&device->reading);
  int32_t status = zap_device_thread_stop(device->thread, device->timeout_ms);
  zap_device_release(device);
  return status;
}

/* ---- hand-over ---- */

int32_t zap_device_wait(struct zap_device *device) {
  if (atomic_load(&device->running) == 0) return ZAP_OK;
  int32_t status = zap_backend.wait(device->state);
  if (status < 0) return status;
  for (struct zap_check *each = device->checks; each != NULL; each = each->next) each->counted = false;
  atomic_store(&device->running, 0);
  return ZAP_OK;
}

static int32_t run_to_device(struct zap_job *job) { return zap_backend.to_device(((struct zap_device_job *)job)->device->state); }

static int32_t run_to_host(struct zap_job *job) { return zap_device_wait(((struct zap_device_job *)job)->device); }

/* Asks the device's thread only where there is something to ask: most hand-overs find no kernel running. */
static int32_t hand_over(int32_t handle, bool to_host) {
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  atomic_thread_fence(memory_order_seq_cst);
  int32_t status = zap_device_thread_check(device->thread);
  bool ask = to_host ? atomic_load(&device->running) > 0 : zap_backend.to_device != NULL;
  if (status == ZAP_OK && ask) {
    struct zap_device_job *job = zap_device_job_new(device, sizeof *job, to_host ? run_to_host : run_to_device, NULL);
    status = job == NULL ? ZAP_E_MEMORY : zap_device_job_run(job);
    if (job != NULL) zap_object_release(&job->job.object);
  }
  atomic_thread_fence(memory_order_seq_cst);
  zap_device_release(device);
  return status;
}

int32_t ZAP_UMA(fence_to_device)(int32_t handle) { return hand_over(handle, false); }

int32_t ZAP_UMA(fence_to_host)(int32_t handle) { return hand_over(handle, true); }
