/* Regions. Their list and their memory are the device thread's; closing a device closes their handles from elsewhere. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "uma.h"

#define MOST_BYTES (UINT64_C(1) << 47)
/* The smallest there are. A host with larger ones says so by its driver. */
#define PAGE 4096u

struct zap_region_entry *zap_region_find(struct zap_device *device, int32_t handle) {
  struct zap_region_entry *region = (struct zap_region_entry *)zap_handle_keep(handle, ZAP_KIND_REGION);
  if (region == NULL) return NULL;
  bool ours = region->device == device;
  zap_object_release(&region->object);
  return ours ? region : NULL;
}

static int32_t not_here(int32_t handle) {
  return zap_fail(ZAP_E_HANDLE, "%d is no open region of this device: it was freed, or never was one", (int)handle);
}

static void free_entry(struct zap_object *object) { free(object); }

/* ---- alloc and register ---- */

struct alloc_job {
  struct zap_device_job base;
  struct zap_piece piece;
};

static int32_t obtain(struct zap_device *device, struct zap_piece *piece) {
  if (!piece->foreign) return zap_backend.alloc(device->state, piece);
  if (zap_backend.register_piece != NULL) return zap_backend.register_piece(device->state, piece);
  return zap_fail(ZAP_E_UNSUPPORTED, "memory cannot be registered with %s: take memory that it gives", device->about.name);
}

/* The text that is set stays: it says why the piece is not wanted. */
static void undo(struct zap_device *device, struct zap_piece *piece) {
  char text[ZAP_TEXT_BYTES];
  zap_text_copy(text, sizeof text, zap_failure());
  (void)zap_backend.free(device->state, piece);
  (void)zap_fail(ZAP_E_DRIVER, "%s", text);
}

static int32_t run_alloc(struct zap_job *job) {
  struct alloc_job *alloc = (struct alloc_job *)job;
  struct zap_device *device = alloc->base.device;
  struct zap_region_entry *region = calloc(1, sizeof *region);
  if (region == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a region");
  zap_object_init(&region->object, free_entry);
  region->device = device;
  region->piece = alloc->piece;
  int32_t status = obtain(device, &region->piece);
  if (status == ZAP_OK) {
    pthread_mutex_lock(&device->lock);
    status = device->closed || atomic_load(&alloc->base.job.abandoned)
                 ? zap_fail(ZAP_E_HANDLE, "the device was closed")
                 : zap_handle_open(ZAP_KIND_REGION, &region->object);
    if (status > 0) {
      region->handle = status;
      region->next = device->regions;
      device->regions = region;
    }
    pthread_mutex_unlock(&device->lock);
    if (status < 0) undo(device, &region->piece);
  }
  if (status < 0) zap_object_release(&region->object);
  else alloc->piece = region->piece;
  return status;
}

static int32_t new_region(int32_t handle, const struct zap_piece *piece, zap_region *out) {
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  struct alloc_job *job = zap_device_job_new(device, sizeof *job, run_alloc, NULL);
  int32_t status = ZAP_E_MEMORY;
  if (job != NULL) {
    job->piece = *piece;
    status = zap_device_job_run(&job->base);
    if (status > 0) {
      *out = (zap_region){
          .host = job->piece.host, .device = job->piece.device, .bytes = job->piece.bytes, .memory = job->piece.memory};
    }
    zap_object_release(&job->base.job.object);
  }
  zap_device_release(device);
  return status;
}

int32_t ZAP_UMA(region_alloc)(int32_t handle, uint32_t memory, uint64_t bytes, zap_region *out) {
  if (out == NULL) return zap_fail(ZAP_E_INVALID, "a region needs a place for its addresses");
  if (memory < ZAP_MEMORY_MANAGED || memory > ZAP_MEMORY_SHARED) {
    return zap_fail(ZAP_E_INVALID, "%u is no kind of memory", (unsigned)memory);
  }
  /* In whole pages: a dma-buf is made of those, and so is everything that a runtime gives in this size anyway. */
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (bytes == 0 || bytes > MOST_BYTES) {
    return zap_fail(ZAP_E_INVALID, "a region of %llu bytes is not possible", (unsigned long long)bytes);
  }
  const struct zap_piece piece = {.memory = memory, .bytes = (bytes + page - 1) / page * page};
  return new_region(handle, &piece, out);
}

int32_t ZAP_UMA(region_register)(int32_t handle, uint64_t host, uint64_t bytes, zap_region *out) {
  if (out == NULL) return zap_fail(ZAP_E_INVALID, "a region needs a place for its addresses");
  if (host == 0 || host % PAGE != 0 || bytes == 0 || bytes % PAGE != 0 || bytes > MOST_BYTES || host > UINT64_MAX - bytes) {
    return zap_fail(ZAP_E_INVALID, "%llu bytes at 0x%llx cannot be registered: whole pages of %u bytes are needed",
                    (unsigned long long)bytes, (unsigned long long)host, PAGE);
  }
  const struct zap_piece piece = {.memory = ZAP_MEMORY_HOST, .host = host, .bytes = bytes, .foreign = true};
  return new_region(handle, &piece, out);
}

/* ---- free ---- */

struct zap_copy {
  uint64_t offset, bytes;
  void *host;
};

struct region_job {
  struct zap_device_job base;
  int32_t region;
  int fd; /* what an export made and nobody has taken yet, or -1 */
  struct zap_copy copy;
};

static int32_t run_free(struct zap_job *job) {
  struct zap_device *device = ((struct region_job *)job)->base.device;
  int32_t handle = ((struct region_job *)job)->region;
  pthread_rwlock_wrlock(&device->reading);
  pthread_mutex_lock(&device->lock);
  struct zap_region_entry *region = zap_region_find(device, handle);
  if (region != NULL) {
    zap_handle_drop(handle, ZAP_KIND_REGION);
    struct zap_region_entry **link = &device->regions;
    while (*link != region) link = &(*link)->next;
    *link = region->next;
  }
  pthread_mutex_unlock(&device->lock);
  pthread_rwlock_unlock(&device->reading);
  if (region == NULL) return not_here(handle);
  /* A kernel may read it. Where the wait fails the device is broken, and no kernel runs there either. */
  (void)zap_device_wait(device);
  int32_t status = zap_backend.free(device->state, &region->piece);
  zap_object_release(&region->object);
  return status;
}

/* ---- export ---- */

static int32_t run_export(struct zap_job *job) {
  struct region_job *export = (struct region_job *)job;
  struct zap_device *device = export->base.device;
  struct zap_region_entry *region = zap_region_find(device, export->region);
  if (region == NULL) return not_here(export->region);
  if (zap_backend.export_piece == NULL) return zap_fail(ZAP_E_UNSUPPORTED, "memory of this device cannot be exported as a dma-buf");
  int32_t fd = zap_backend.export_piece(device->state, &region->piece);
  if (fd >= 0) {
    export->fd = fd;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return fd;
}

static void free_region_job(struct zap_object *object) {
  struct region_job *job = (struct region_job *)object;
  if (job->fd >= 0) close(job->fd);
  zap_device_job_free(object);
}

static int32_t on_region(int32_t handle, int32_t region, int32_t (*run)(struct zap_job *job), struct zap_copy copy) {
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  struct region_job *job = zap_device_job_new(device, sizeof *job, run, free_region_job);
  int32_t status = ZAP_E_MEMORY;
  if (job != NULL) {
    job->region = region;
    job->copy = copy;
    job->fd = -1;
    status = zap_device_job_run(&job->base);
    /* It is the caller's now. After a timeout the thread may still be writing there, so it is not looked at. */
    if (status >= 0) job->fd = -1;
    zap_object_release(&job->base.job.object);
  }
  zap_device_release(device);
  return status;
}

int32_t ZAP_UMA(region_free)(int32_t device, int32_t region) { return on_region(device, region, run_free, (struct zap_copy){0}); }

int32_t ZAP_UMA(region_export)(int32_t device, int32_t region) { return on_region(device, region, run_export, (struct zap_copy){0}); }

/* ---- copy ---- */

static int32_t run_copy(struct zap_job *job) {
  struct region_job *copy = (struct region_job *)job;
  struct zap_device *device = copy->base.device;
  struct zap_region_entry *region = zap_region_find(device, copy->region);
  if (region == NULL) return not_here(copy->region);
  const struct zap_piece *piece = &region->piece;
  const struct zap_copy *what = &copy->copy;
  if (what->offset > piece->bytes || what->bytes > piece->bytes - what->offset) {
    return zap_fail(ZAP_E_INVALID, "%llu bytes from %llu on do not lie in a region of %llu", (unsigned long long)what->bytes,
                    (unsigned long long)what->offset, (unsigned long long)piece->bytes);
  }
  int32_t status = zap_device_wait(device);
  if (status < 0 || what->bytes == 0) return status;
  if (piece->host != 0) {
    memcpy(what->host, (const void *)(uintptr_t)(piece->host + what->offset), (size_t)what->bytes);
    return ZAP_OK;
  }
  if (zap_backend.copy_to_host == NULL) return zap_fail(ZAP_E_UNSUPPORTED, "memory of this device cannot be copied to the host");
  return zap_backend.copy_to_host(device->state, piece, what->offset, what->host, what->bytes);
}

int32_t ZAP_UMA(copy_to_host)(int32_t device, int32_t region, uint64_t offset, void *host, uint64_t bytes) {
  if (host == NULL) return zap_fail(ZAP_E_INVALID, "a copy needs a place on the host");
  return on_region(device, region, run_copy, (struct zap_copy){.offset = offset, .bytes = bytes, .host = host});
}
