/* Verification of signatures where they lie, on the device and on the CPU. */
#include "../kernels/ed25519.h"
#include "uma.h"

#define MOST_SIGNATURES (1u << 20)
#define TABLE_ROW (ZAP_TABLE_STRIDE * (uint32_t)sizeof(uint32_t))

/* The three spans of a batch, in this order. */
enum { BYTES, TABLE, CODES, SPANS };
static const char *const span_names[SPANS] = {"bytes", "table", "codes"};

static int32_t check_scheme(uint32_t scheme) {
  if (scheme == ZAP_SCHEME_ED25519) return ZAP_OK;
  return zap_fail(ZAP_E_INVALID, "%u is no scheme that this library verifies", (unsigned)scheme);
}

static int32_t check_kernels(const struct zap_device *device) {
  if ((device->about.flags & ZAP_UMA_VERIFY) != 0) return ZAP_OK;
  return zap_fail(ZAP_E_UNSUPPORTED, "%s has no kernels that verify signatures: verify on the CPU", device->about.name);
}

static int32_t verify_arguments(uint32_t scheme, const zap_span *const spans[SPANS], uint32_t count) {
  int32_t status = check_scheme(scheme);
  if (status < 0) return status;
  if (count == 0 || count > MOST_SIGNATURES) {
    return zap_fail(ZAP_E_INVALID, "a batch has 1 to %u signatures, not %u", MOST_SIGNATURES, (unsigned)count);
  }
  for (int at = 0; at < SPANS; at++) {
    if (spans[at] == NULL) return zap_fail(ZAP_E_INVALID, "a batch needs the span of its %s", span_names[at]);
  }
  if (spans[TABLE]->length / TABLE_ROW < count || spans[TABLE]->offset % sizeof(uint32_t) != 0) {
    return zap_fail(ZAP_E_INVALID, "the table of %u signatures has %u bytes or more, from a multiple of 4 on: not %u from %llu",
                    (unsigned)count, (unsigned)(count * TABLE_ROW), (unsigned)spans[TABLE]->length,
                    (unsigned long long)spans[TABLE]->offset);
  }
  if (spans[CODES]->length >= count) return ZAP_OK;
  return zap_fail(ZAP_E_INVALID, "%u bytes have no room for %u codes", (unsigned)spans[CODES]->length, (unsigned)count);
}

/* Each span's piece. Under `reading`, or on the device's thread. */
static int32_t find_pieces(struct zap_device *device, const zap_span spans[SPANS], struct zap_piece *pieces[SPANS]) {
  struct zap_resolver resolver = {.device = device};
  for (uint32_t at = 0; at < SPANS; at++) {
    int32_t status = zap_resolve(&resolver, &spans[at], span_names[at], at);
    if (status < 0) return status;
    pieces[at] = &resolver.region->piece;
  }
  return ZAP_OK;
}

/* ---- loading ---- */

struct load_job {
  struct zap_device_job base;
  uint32_t scheme;
};

static int32_t run_load(struct zap_job *job) {
  struct load_job *load = (struct load_job *)job;
  return zap_backend.verify_load(load->base.device->state, load->scheme);
}

/* Under the device's lock: starts to load, or looks how far that is. There is one scheme, so there is one job. */
static int32_t load_or_look(struct zap_device *device, uint32_t scheme) {
  if (device->closed) return zap_fail(ZAP_E_HANDLE, "the device was closed");
  if (device->loading == NULL) {
    struct load_job *job = zap_device_job_new(device, sizeof *job, run_load, NULL);
    if (job == NULL) return ZAP_E_MEMORY;
    job->scheme = scheme;
    int32_t status = zap_device_thread_post(device->thread, &job->base.job);
    if (status == ZAP_OK) device->loading = &job->base;
    else zap_object_release(&job->base.job.object);
    return status == ZAP_OK ? ZAP_E_AGAIN : status;
  }
  int32_t status = zap_device_thread_poll(device->thread, &device->loading->job);
  if (status == ZAP_OK || status == ZAP_E_AGAIN) return status;
  zap_object_release(&device->loading->job.object);
  device->loading = NULL;
  return status;
}

int32_t ZAP_UMA(verify_load)(int32_t handle, uint32_t scheme) {
  int32_t status = check_scheme(scheme);
  if (status < 0) return status;
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  status = check_kernels(device);
  if (status == ZAP_OK) {
    pthread_mutex_lock(&device->lock);
    status = load_or_look(device, scheme);
    pthread_mutex_unlock(&device->lock);
  }
  zap_device_release(device);
  return status;
}

/* ---- on the device ---- */

struct verify_job {
  struct zap_device_job base;
  uint32_t scheme;
  uint32_t count;
  zap_span spans[SPANS];
};

static int32_t run_verify(struct zap_job *job) {
  struct verify_job *verify = (struct verify_job *)job;
  struct zap_device *device = verify->base.device;
  struct zap_piece *found[SPANS], *pieces[SPANS];
  int32_t status = find_pieces(device, verify->spans, found);
  if (status < 0) return status;
  uint32_t distinct = 0;
  for (int at = 0; at < SPANS; at++) {
    bool seen = false;
    for (uint32_t each = 0; each < distinct; each++) seen = seen || pieces[each] == found[at];
    if (!seen) pieces[distinct++] = found[at];
  }
  struct zap_verification batch = {.bytes = found[BYTES]->device + verify->spans[BYTES].offset,
                                   .size = verify->spans[BYTES].length,
                                   .table = found[TABLE]->device + verify->spans[TABLE].offset,
                                   .codes = found[CODES]->device + verify->spans[CODES].offset,
                                   .scheme = verify->scheme,
                                   .count = verify->count,
                                   .pieces = pieces,
                                   .piece_count = distinct};
  struct zap_check *check = zap_check_new(device, 0, true);
  if (check == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a batch of %u signatures", (unsigned)verify->count);
  status = zap_backend.verify_begin(device->state, &batch, &check->running);
  if (status >= 0) status = zap_check_started(&verify->base, check);
  zap_object_release(&check->object);
  return status;
}

int32_t ZAP_UMA(verify_begin)(int32_t handle, uint32_t scheme, const zap_span *bytes, const zap_span *table, uint32_t count,
                              const zap_span *codes) {
  const zap_span *const spans[SPANS] = {bytes, table, codes};
  int32_t status = verify_arguments(scheme, spans, count);
  if (status < 0) return status;
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  status = check_kernels(device);
  struct verify_job *job = status < 0 ? NULL : zap_device_job_new(device, sizeof *job, run_verify, NULL);
  if (status == ZAP_OK && job == NULL) status = ZAP_E_MEMORY;
  if (job != NULL) {
    job->scheme = scheme;
    job->count = count;
    for (int at = 0; at < SPANS; at++) job->spans[at] = *spans[at];
    status = zap_device_job_run(&job->base);
    zap_object_release(&job->base.job.object);
  }
  zap_device_release(device);
  return status;
}

/* ---- its end ---- */

struct end_job {
  struct zap_device_job base;
  int32_t handle;
};

static int32_t run_end(struct zap_job *job) {
  struct end_job *end = (struct end_job *)job;
  struct zap_device *device = end->base.device;
  struct zap_check *check = (struct zap_check *)zap_handle_keep(end->handle, ZAP_KIND_CHECK);
  int32_t status;
  if (check == NULL || check->device != device || !check->verifies) {
    status = zap_fail(ZAP_E_HANDLE, "%d is no open job of this device: it has ended, or never was a verification", (int)end->handle);
  } else {
    status = zap_backend.verify_poll(device->state, check->running);
    if (status != ZAP_E_AGAIN) {
      check->running = NULL;
      zap_handle_drop(end->handle, ZAP_KIND_CHECK);
      zap_check_unlist(device, check);
    }
  }
  if (check != NULL) zap_object_release(&check->object);
  return status;
}

int32_t ZAP_UMA(verify_poll)(int32_t handle, int32_t verification) {
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  struct end_job *job = zap_device_job_new(device, sizeof *job, run_end, NULL);
  int32_t status = ZAP_E_MEMORY;
  if (job != NULL) {
    job->handle = verification;
    status = zap_device_job_run(&job->base);
    zap_object_release(&job->base.job.object);
  }
  zap_device_release(device);
  return status;
}

/* ---- on the CPU ---- */

static int32_t verify_here(struct zap_device *device, const zap_span spans[SPANS], uint32_t count) {
  struct zap_piece *pieces[SPANS];
  uint8_t *starts[SPANS];
  int32_t status = find_pieces(device, spans, pieces);
  if (status < 0) return status;
  for (int at = 0; at < SPANS; at++) {
    if (pieces[at]->host == 0) return zap_fail(ZAP_E_UNSUPPORTED, "the CPU cannot read the region of the %s", span_names[at]);
    starts[at] = (uint8_t *)(uintptr_t)(pieces[at]->host + spans[at].offset);
  }
  /* Of a page and a multiple of 4, so aligned. */
  const uint32_t *table = (const uint32_t *)(const void *)starts[TABLE];
  zap_verify_ed25519_host(starts[BYTES], spans[BYTES].length, table, starts[CODES], count);
  return ZAP_OK;
}

int32_t ZAP_UMA(verify_host)(int32_t handle, uint32_t scheme, const zap_span *bytes, const zap_span *table, uint32_t count,
                             const zap_span *codes) {
  const zap_span *const spans[SPANS] = {bytes, table, codes};
  int32_t status = verify_arguments(scheme, spans, count);
  if (status < 0) return status;
  struct zap_device *device = zap_device_keep(handle);
  if (device == NULL) return ZAP_E_HANDLE;
  /* As in check_host. */
  if ((device->about.flags & ZAP_UMA_CONCURRENT) == 0) status = ZAP_UMA(fence_to_host)(handle);
  if (status == ZAP_OK) {
    const zap_span copies[SPANS] = {*bytes, *table, *codes};
    pthread_rwlock_rdlock(&device->reading);
    status = device->closed ? zap_fail(ZAP_E_HANDLE, "the device was closed") : verify_here(device, copies, count);
    pthread_rwlock_unlock(&device->reading);
  }
  zap_device_release(device);
  return status;
}
