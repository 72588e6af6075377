/*
 * Checks of headers on the GPU. Targets hold GPU addresses, which the kernel follows (Metal 3), so each region that one lies in is made
 * resident for the command buffer. What a kernel reads and writes beside the messages lies in a buffer that is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "../kernels/embedded.h"
#include "metal.h"

#define GROUP 128u
/* The smallest buffer; each has room for a power of two of spans. */
#define FEWEST 256u

/* Where the kernel's parameters go: check_headers.metal. */
enum { TARGETS = 0, VERSIONS = 1, VERDICTS = 2, COUNT = 3 };

/* A check that runs, or the buffer that one left: `capacity` targets, and behind them as many verdicts. */
struct zap_metal_check {
  struct zap_metal_check *next;
  uint32_t capacity;
  uint32_t count;
  id buffer;
  uint8_t *contents;
  id command; /* kept; NULL while spare */
};

/* ---- the kernel ---- */

static void no_kernels(struct zap_metal *metal, const char *call, const char *reason) {
  (void)zap_fail(ZAP_E_DRIVER, "%s failed: %s", call, reason);
  zap_text_copy(metal->no_kernels, sizeof metal->no_kernels, zap_failure());
}

static id compile(struct zap_metal *metal) {
  const struct zap_objc *objc = &metal->objc;
  id error = NULL;
  id source = zap_metal_string(objc, zap_check_metal);
  id name = zap_metal_string(objc, "zap_check_headers");
  if (source == NULL || name == NULL) {
    no_kernels(metal, "stringWithUTF8String:", "out of memory");
    return NULL;
  }
  id library = zap_send_ids_error(objc, metal->device, objc->sel.new_library, source, NULL, &error);
  if (library == NULL) {
    no_kernels(metal, "newLibraryWithSource:options:error:", zap_metal_reason(objc, error));
    return NULL;
  }
  id function = zap_send_id(objc, library, objc->sel.new_function, name);
  id pipeline = NULL;
  if (function == NULL) {
    no_kernels(metal, "newFunctionWithName:", "the compiled library has no zap_check_headers");
  } else {
    pipeline = zap_send_id_error(objc, metal->device, objc->sel.new_pipeline, function, &error);
    if (pipeline == NULL) no_kernels(metal, "newComputePipelineStateWithFunction:error:", zap_metal_reason(objc, error));
  }
  objc->objc_release(function);
  objc->objc_release(library);
  return pipeline;
}

static void free_check(struct zap_metal *metal, struct zap_metal_check *check) {
  metal->objc.objc_release(check->command);
  metal->objc.objc_release(check->buffer);
  free(check);
}

static int32_t new_check(struct zap_metal *metal, uint32_t count, struct zap_metal_check **out) {
  struct zap_metal_check *check = calloc(1, sizeof *check);
  if (check == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a check");
  check->capacity = FEWEST;
  while (check->capacity < count) check->capacity *= 2;
  void *contents = NULL;
  int32_t status = zap_metal_buffer(metal, check->capacity * (sizeof(struct zap_target) + 1), &check->buffer, &contents);
  if (status < 0) {
    free(check);
    return status;
  }
  check->contents = contents;
  *out = check;
  return ZAP_OK;
}

void zap_metal_load_kernel(struct zap_metal *metal) {
  const struct zap_objc *objc = &metal->objc;
  /* Its language is the first in which a kernel can follow an address that it finds in a buffer. */
  if (!zap_send_family(objc, metal->device, objc->sel.family, MTLGPUFamilyMetal3)) {
    no_kernels(metal, "supportsFamily: MTLGPUFamilyMetal3", "the GPU or macOS is older than Metal 3 (macOS 13)");
    return;
  }
  /* One of the buffers that checks will need, to see what buffers can do here. */
  if (new_check(metal, FEWEST, &metal->spare) < 0) {
    zap_text_copy(metal->no_kernels, sizeof metal->no_kernels, zap_failure());
    return;
  }
  if (!zap_responds(objc, metal->spare->buffer, objc->sel.address)) {
    no_kernels(metal, "gpuAddress", "buffers have no GPU address before macOS 13");
    return;
  }
  metal->pipeline = compile(metal);
  if (metal->pipeline == NULL) return;
  NSUInteger most = zap_send_number(objc, metal->pipeline, objc->sel.most_threads);
  metal->threads = most < GROUP ? most : GROUP;
  metal->queue = zap_send(objc, metal->device, objc->sel.new_queue);
  if (metal->queue == NULL || metal->threads == 0) {
    no_kernels(metal, "newCommandQueue", "the device gave no queue");
    return;
  }
  metal->flags |= ZAP_UMA_KERNELS;
}

void zap_metal_unload_kernel(struct zap_metal *metal) {
  while (metal->spare != NULL) {
    struct zap_metal_check *check = metal->spare;
    metal->spare = check->next;
    free_check(metal, check);
  }
  metal->objc.objc_release(metal->pipeline);
  metal->objc.objc_release(metal->queue);
  metal->pipeline = metal->queue = NULL;
}

/* ---- a check ---- */

/* A spare of that capacity or more, else a new one. */
static int32_t take(struct zap_metal *metal, uint32_t count, struct zap_metal_check **out) {
  for (struct zap_metal_check **link = &metal->spare; *link != NULL; link = &(*link)->next) {
    if ((*link)->capacity < count) continue;
    *out = *link;
    *link = (*out)->next;
    return ZAP_OK;
  }
  return new_check(metal, count, out);
}

/* It has ended. Its buffer is kept for the next one, as many as were ever in use at once. */
static void put_back(struct zap_metal *metal, struct zap_metal_check *check) {
  for (struct zap_metal_check **link = &metal->running; *link != NULL; link = &(*link)->next) {
    if (*link != check) continue;
    *link = check->next;
    break;
  }
  metal->objc.objc_release(check->command);
  check->command = NULL;
  check->next = metal->spare;
  metal->spare = check;
}

static int32_t encode(struct zap_metal *metal, struct zap_metal_check *check, const struct zap_batch *batch) {
  const struct zap_objc *objc = &metal->objc;
  id command = zap_send(objc, metal->queue, objc->sel.command);
  id encoder = command == NULL ? NULL : zap_send(objc, command, objc->sel.encoder);
  if (encoder == NULL) {
    return zap_fail(ZAP_E_DRIVER, "%s gave nothing: the GPU is out of memory, or was reset; open the device again",
                    command == NULL ? "commandBuffer" : "computeCommandEncoder");
  }
  NSUInteger verdicts = check->capacity * sizeof(struct zap_target);
  zap_send_set(objc, encoder, objc->sel.set_pipeline, metal->pipeline);
  zap_send_buffer(objc, encoder, objc->sel.set_buffer, check->buffer, 0, TARGETS);
  zap_send_bytes(objc, encoder, objc->sel.set_bytes, &batch->versions, sizeof batch->versions, VERSIONS);
  zap_send_buffer(objc, encoder, objc->sel.set_buffer, check->buffer, verdicts, VERDICTS);
  zap_send_bytes(objc, encoder, objc->sel.set_bytes, &batch->count, sizeof batch->count, COUNT);
  for (uint32_t at = 0; at < batch->piece_count; at++) {
    zap_send_use(objc, encoder, objc->sel.use, batch->pieces[at]->vendor, MTLResourceUsageRead);
  }
  MTLSize groups = {(batch->count + metal->threads - 1) / metal->threads, 1, 1};
  MTLSize group = {metal->threads, 1, 1};
  zap_send_sizes(objc, encoder, objc->sel.dispatch, groups, group);
  zap_send_void(objc, encoder, objc->sel.end);
  check->command = objc->objc_retain(command);
  zap_send_void(objc, command, objc->sel.commit);
  return ZAP_OK;
}

int32_t zap_metal_check_begin(void *state, const struct zap_batch *batch, void **running) {
  struct zap_metal *metal = state;
  void *pool = metal->objc.objc_autoreleasePoolPush();
  struct zap_metal_check *check = NULL;
  int32_t status = take(metal, batch->count, &check);
  if (status == ZAP_OK) {
    check->count = batch->count;
    memcpy(check->contents, batch->targets, batch->count * sizeof *batch->targets);
    status = encode(metal, check, batch);
    if (status == ZAP_OK) {
      check->next = metal->running;
      metal->running = check;
      *running = check;
    } else {
      put_back(metal, check);
    }
  }
  metal->objc.objc_autoreleasePoolPop(pool);
  return status;
}

int32_t zap_metal_check_poll(void *state, void *running, uint8_t *verdicts) {
  struct zap_metal *metal = state;
  const struct zap_objc *objc = &metal->objc;
  struct zap_metal_check *check = running;
  void *pool = objc->objc_autoreleasePoolPush();
  int32_t status = ZAP_E_AGAIN;
  NSUInteger now = zap_send_number(objc, check->command, objc->sel.status);
  if (now == MTLCommandBufferStatusCompleted) {
    memcpy(verdicts, check->contents + check->capacity * sizeof(struct zap_target), check->count);
    status = ZAP_OK;
  } else if (now == MTLCommandBufferStatusError) {
    const char *reason = zap_metal_reason(objc, zap_send(objc, check->command, objc->sel.error));
    status = zap_fail(ZAP_E_DRIVER, "the check's command buffer failed, %s: close the device and open it again", reason);
  }
  if (status != ZAP_E_AGAIN) put_back(metal, check);
  objc->objc_autoreleasePoolPop(pool);
  return status;
}

int32_t zap_metal_wait(void *state) {
  struct zap_metal *metal = state;
  const struct zap_objc *objc = &metal->objc;
  void *pool = objc->objc_autoreleasePoolPush();
  for (struct zap_metal_check *check = metal->running; check != NULL; check = check->next) {
    zap_send_void(objc, check->command, objc->sel.wait);
  }
  objc->objc_autoreleasePoolPop(pool);
  return ZAP_OK;
}

void zap_metal_check_drop(void *state, void *running) {
  struct zap_metal *metal = state;
  void *pool = metal->objc.objc_autoreleasePoolPush();
  put_back(metal, running);
  metal->objc.objc_autoreleasePoolPop(pool);
}
