/* Checks of ZAP headers, on the device and on the CPU. */
#include <stdlib.h>
#include <string.h>

#include "uma.h"

#define MOST_SPANS 65536u
/* Targets that the CPU resolves at once, on its stack. */
#define BLOCK 256u

static int32_t check_arguments(const zap_span *spans, uint32_t count) {
  if (count == 0 || count > MOST_SPANS) {
    return zap_fail(ZAP_E_INVALID, "a batch has 1 to %u spans, not %u", MOST_SPANS, (unsigned)count);
  }
  return spans == NULL ? zap_fail(ZAP_E_INVALID, "a batch needs its spans") : ZAP_OK;
}

/* ---- from spans to addresses ---- */

int32_t zap_resolve(struct zap_resolver *resolver, const zap_span *span, const char *name, uint32_t number) {
  if (resolver->region == NULL || resolver->handle != span->region) {
    resolver->region = zap_region_find(resolver->device, span->region);
    resolver->handle = span->region;
    if (resolver->region == NULL) {
      return zap_fail(ZAP_E_HANDLE, "%s %u: %d is no open region of this device", name, (unsigned)number, (int)span->region);
    }
  }
  uint64_t bytes = resolver->region->piece.bytes;
  if (span->offset <= bytes && span->length <= bytes - span->offset) return ZAP_OK;
  return zap_fail(ZAP_E_INVALID, "%s %u: %u bytes from %llu do not lie in its region of %llu", name, (unsigned)number,
                  (unsigned)span->length, (unsigned long long)span->offset, (unsigned long long)bytes);
}

/* ---- on the device ---- */

struct begin_job {
  struct zap_device_job base;
  uint64_t versions;
  uint32_t count;
  zap_span spans[];
};

/* Fills `targets`, and `pieces` with every piece once. Returns how many pieces. */
static int32_t resolve_all(struct begin_job *begin, struct zap_target *targets, struct zap_piece **pieces) {
  struct zap_device *device = begin->base.device;
  struct zap_resolver resolver = {.device = device};
  int32_t distinct = 0;
  device->batches++;
  for (uint32_t at = 0; at < begin->count; at++) {
    const zap_span *span = &begin->spans[at];
    int32_t status = zap_resolve(&resolver, span, "span", at);
    if (status < 0) return status;
    if (resolver.region->batch != device->batches) {
      resolver.region->batch = device->batches;
      pieces[distinct++] = &resolver.region->piece;
    }
    targets[at] = (struct zap_target){.address = resolver.region->piece.device + span->offset, .length = span->length};
  }
  return distinct;
}

static int32_t launch(struct begin_job *begin, struct zap_target *targets, struct zap_piece **pieces, struct zap_check *check) {
  struct zap_device *device = begin->base.device;
  int32_t distinct = resolve_all(begin, targets, pieces);
  if (distinct < 0) return distinct;
  struct zap_batch batch = {.targets = targets,
                            .count = begin->count,
                            .versions = begin->versions,
                            .pieces = pieces,
                            .piece_count = (uint32_t)distinct};
  int32_t status = zap_backend.check_begin(device->state, &batch, &check->running);
  return status < 0 ? status : zap_check_started(&begin->base, check);
}

static int32_t run_begin(struct zap_job *job) {
  struct begin_job *begin = (struct begin_job *)job;
  struct zap_device *device = begin->base.device;
  size_t regions = 0;
  for (struct zap_region_entry *each = device->regions; each != NULL; each = each->next) regions++;
  struct zap_target *targets = malloc(begin->count * sizeof *targets);
  struct zap_piece **pieces = malloc((regions + 1) * sizeof *pieces);
  struct zap_check *check = zap_check_new(device, begin->count, false);
  int32_t status;
  if (targets == NULL || pieces == NULL || check == NULL) {
    free(check);
    status = zap_fail(ZAP_E_MEMORY, "out of memory for a batch of %u spans", (unsigned)begin->count);
  } else {
    status = launch(begin, targets, pieces, check);
    zap_object_release(&check->object);
  }
  free(targets);
  free(pieces);
  return status;
}

int32_t ZAP_UMA(check_begin)(int32_t handle, const zap_span *spans, uint32_t count, uint64_t versions) {
  int32_t status = check_arguments(spans, count);
  if (status < 0) return status;
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  struct begin_job *job = NULL;
  if ((device->about.flags & ZAP_UMA_KERNELS) == 0) {
    status = zap_fail(ZAP_E_UNSUPPORTED, "%s runs no kernels of this library: check on the CPU", device->about.name);
  } else {
    job = zap_device_job_new(device, sizeof *job + count * sizeof *spans, run_begin, NULL);
    status = ZAP_E_MEMORY;
  }
  if (job != NULL) {
    job->versions = versions;
    job->count = count;
    memcpy(job->spans, spans, count * sizeof *spans);
    status = zap_device_job_run(&job->base);
    zap_object_release(&job->base.job.object);
  }
  zap_device_release(device);
  return status;
}

/* ---- its end ---- */

struct poll_job {
  struct zap_device_job base;
  int32_t handle;
  uint32_t count;
  struct zap_check *check; /* kept, once it has verdicts */
};

static int32_t run_poll(struct zap_job *job) {
  struct poll_job *poll = (struct poll_job *)job;
  struct zap_device *device = poll->base.device;
  struct zap_check *check = (struct zap_check *)zap_handle_keep(poll->handle, ZAP_KIND_CHECK);
  int32_t status;
  if (check == NULL || check->device != device || check->verifies) {
    status = zap_fail(ZAP_E_HANDLE, "%d is no open job of this device: it has ended, or never was one", (int)poll->handle);
  } else if (check->count != poll->count) {
    status = zap_fail(ZAP_E_INVALID, "job %d has %u spans, not %u", (int)poll->handle, (unsigned)check->count,
                      (unsigned)poll->count);
  } else {
    status = zap_backend.check_poll(device->state, check->running, check->verdicts);
    if (status != ZAP_E_AGAIN) {
      check->running = NULL;
      zap_handle_drop(poll->handle, ZAP_KIND_CHECK);
      zap_check_unlist(device, check);
    }
    if (status == ZAP_OK) {
      poll->check = check;
      return status;
    }
  }
  if (check != NULL) zap_object_release(&check->object);
  return status;
}

static void free_poll(struct zap_object *object) {
  struct poll_job *poll = (struct poll_job *)object;
  if (poll->check != NULL) zap_object_release(&poll->check->object);
  zap_device_job_free(object);
}

int32_t ZAP_UMA(check_poll)(int32_t handle, int32_t check, uint8_t *verdicts, uint32_t count) {
  if (verdicts == NULL || count == 0) return zap_fail(ZAP_E_INVALID, "a job's end needs room for its verdicts");
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  struct poll_job *job = zap_device_job_new(device, sizeof *job, run_poll, free_poll);
  int32_t status = ZAP_E_MEMORY;
  if (job != NULL) {
    job->handle = check;
    job->count = count;
    status = zap_device_job_run(&job->base);
    if (status == ZAP_OK) memcpy(verdicts, job->check->verdicts, count);
    zap_object_release(&job->base.job.object);
  }
  zap_device_release(device);
  return status;
}

/* ---- on the CPU ---- */

static int32_t check_here(struct zap_device *device, const zap_span *spans, uint32_t count, uint64_t versions, uint8_t *verdicts) {
  struct zap_resolver resolver = {.device = device};
  for (uint32_t start = 0; start < count; start += BLOCK) {
    struct zap_target targets[BLOCK];
    uint32_t block = count - start < BLOCK ? count - start : BLOCK;
    for (uint32_t at = 0; at < block; at++) {
      const zap_span *span = &spans[start + at];
      int32_t status = zap_resolve(&resolver, span, "span", start + at);
      if (status < 0) return status;
      if (resolver.region->piece.host == 0) {
        return zap_fail(ZAP_E_UNSUPPORTED, "span %u: the CPU cannot read its region", (unsigned)(start + at));
      }
      targets[at] = (struct zap_target){.address = resolver.region->piece.host + span->offset, .length = span->length};
    }
    zap_check_headers_host(targets, versions, verdicts + start, block);
  }
  return ZAP_OK;
}

int32_t ZAP_UMA(check_host)(int32_t handle, const zap_span *spans, uint32_t count, uint64_t versions, uint8_t *verdicts) {
  int32_t status = check_arguments(spans, count);
  if (status < 0) return status;
  if (verdicts == NULL) return zap_fail(ZAP_E_INVALID, "a check needs room for its verdicts");
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  /* There, the CPU must not touch managed memory while a kernel runs. Before the lock: the device's thread may want it. */
  if ((device->about.flags & ZAP_UMA_CONCURRENT) == 0) status = ZAP_UMA(fence_to_host)(handle);
  if (status == ZAP_OK) {
    pthread_rwlock_rdlock(&device->reading);
    status = device->closed ? zap_fail(ZAP_E_HANDLE, "the device was closed")
                            : check_here(device, spans, count, versions, verdicts);
    pthread_rwlock_unlock(&device->reading);
  }
  zap_device_release(device);
  return status;
}
