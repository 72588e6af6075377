/*
 * The Metal backend: Apple's GPUs, through Metal.framework and the Objective-C runtime, in plain C. Opening, closing, memory, and what a
 * probe sees.
 *
 * Memory is a buffer of shared storage: CPU and GPU use the same pages, and neither has to hand them over beyond the end of a command
 * buffer. A piece's device address is the buffer's gpuAddress (macOS 13); before that Metal tells none, and the host's stands in its place.
 */
#include "metal.h"

#include <stdlib.h>
#include <unistd.h>

int32_t zap_metal_buffer(struct zap_metal *metal, uint64_t bytes, id *buffer, void **contents) {
  const struct zap_objc *objc = &metal->objc;
  NSUInteger longest = zap_send_number(objc, metal->device, objc->sel.longest);
  if (bytes > longest) {
    return zap_fail(ZAP_E_MEMORY, "%llu bytes are more than this GPU takes in one buffer (maxBufferLength %llu): ask for less",
                    (unsigned long long)bytes, (unsigned long long)longest);
  }
  *buffer = zap_send_numbers(objc, metal->device, objc->sel.new_buffer, (NSUInteger)bytes, MTLResourceStorageModeShared);
  if (*buffer == NULL) {
    return zap_fail(ZAP_E_MEMORY, "newBufferWithLength:options: gave no buffer of %llu bytes: ask for less (ZAP_UMA_POOL_BYTES)",
                    (unsigned long long)bytes);
  }
  *contents = zap_send_pointer(objc, *buffer, objc->sel.contents);
  return ZAP_OK;
}

static int32_t alloc_piece(void *state, struct zap_piece *piece) {
  struct zap_metal *metal = state;
  const struct zap_objc *objc = &metal->objc;
  if (piece->memory != ZAP_MEMORY_SHARED) {
    return zap_fail(ZAP_E_UNSUPPORTED, "Metal has no memory of kind %u, only shared buffers", (unsigned)piece->memory);
  }
  void *pool = objc->objc_autoreleasePoolPush();
  id buffer = NULL;
  void *contents = NULL;
  int32_t status = zap_metal_buffer(metal, piece->bytes, &buffer, &contents);
  if (status == ZAP_OK && (contents == NULL || (uintptr_t)contents % (uintptr_t)sysconf(_SC_PAGESIZE) != 0)) {
    objc->objc_release(buffer);
    status = zap_fail(ZAP_E_DRIVER, "newBufferWithLength:options: gave memory at %p, which is not the start of a page", contents);
  }
  if (status == ZAP_OK) {
    bool has_address = zap_responds(objc, buffer, objc->sel.address);
    piece->vendor = buffer;
    piece->host = (uint64_t)(uintptr_t)contents;
    piece->device = has_address ? zap_send_u64(objc, buffer, objc->sel.address) : piece->host;
  }
  objc->objc_autoreleasePoolPop(pool);
  return status;
}

/* A release has no way to fail. */
static int32_t free_piece(void *state, struct zap_piece *piece) {
  const struct zap_objc *objc = &((struct zap_metal *)state)->objc;
  void *pool = objc->objc_autoreleasePoolPush();
  zap_calling("objc_release");
  objc->objc_release(piece->vendor);
  objc->objc_autoreleasePoolPop(pool);
  return ZAP_OK;
}

/* ---- opening and closing; all of it inside a pool ---- */

static int32_t choose(struct zap_metal *metal, int32_t index, zap_uma_device *about) {
  const struct zap_objc *objc = &metal->objc;
  if (index > 0) return zap_fail(ZAP_E_DEVICE, "GPU %d is not there: Metal's default device is the only one used, number 0", (int)index);
  zap_calling("MTLCreateSystemDefaultDevice");
  metal->device = objc->MTLCreateSystemDefaultDevice();
  if (metal->device == NULL) {
    return zap_fail(ZAP_E_DEVICE, "MTLCreateSystemDefaultDevice gave no device: a virtual machine or container without a GPU has none");
  }
  id name = zap_send(objc, metal->device, objc->sel.name);
  const char *text = name == NULL ? NULL : zap_send_text(objc, name, objc->sel.utf8);
  zap_text_copy(about->name, sizeof about->name, text == NULL ? "a GPU without a name" : text);
  about->memory_bytes = zap_send_u64(objc, metal->device, objc->sel.working_set);
  about->memory = ZAP_MEMORY_SHARED;
  about->count = 1;
  /* Without it, what the GPU reads of a shared buffer crosses a bus each time, and this transport has no point. */
  if (zap_send_bool(objc, metal->device, objc->sel.unified)) metal->flags |= ZAP_UMA_INTEGRATED | ZAP_UMA_CONCURRENT;
  return ZAP_OK;
}

static int32_t enter(struct zap_metal *metal, zap_uma_device *about) {
  if ((metal->flags & ZAP_UMA_INTEGRATED) == 0) {
    return zap_fail(ZAP_E_UNSUPPORTED, "%s has a memory of its own (hasUnifiedMemory is NO): a Mac with Apple silicon is needed",
                    about->name);
  }
  zap_metal_load_kernel(metal);
  about->flags = metal->flags;
  return ZAP_OK;
}

/* Also the way back out of an opening that failed half-way. */
static void leave(struct zap_metal *metal) {
  zap_metal_unload_kernel(metal);
  metal->objc.objc_release(metal->device);
  metal->device = NULL;
}

static int32_t open_device(const struct zap_request *request, void **state, zap_uma_device *about) {
  struct zap_metal *metal = calloc(1, sizeof *metal);
  if (metal == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a device");
  int32_t status = zap_metal_load(request->runtime, request->support, &metal->objc);
  if (status == ZAP_OK) {
    void *pool = metal->objc.objc_autoreleasePoolPush();
    status = choose(metal, request->index, about);
    if (status == ZAP_OK) status = enter(metal, about);
    if (status < 0) leave(metal);
    metal->objc.objc_autoreleasePoolPop(pool);
  }
  if (status == ZAP_OK) *state = metal;
  else free(metal);
  return status;
}

static void close_device(void *state) {
  struct zap_metal *metal = state;
  void *pool = metal->objc.objc_autoreleasePoolPush();
  leave(metal);
  metal->objc.objc_autoreleasePoolPop(pool);
  free(metal);
}

/* ---- probe ---- */

static void probe_memory(struct zap_metal *metal, zap_uma_device *about, struct zap_rows *rows) {
  const char *name = "unified memory";
  struct zap_piece piece = {.memory = about->memory, .bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
  if (enter(metal, about) < 0) {
    zap_row(rows, name, false, "Needs a Mac with an M1 or later.", "%s", zap_failure());
  } else if (alloc_piece(metal, &piece) < 0) {
    zap_row(rows, name, false, "The device is there but cannot give memory: Activity Monitor shows who has it.", "%s", zap_failure());
  } else {
    (void)free_piece(metal, &piece);
    zap_row(rows, name, true, NULL, "shared buffers, for CPU and GPU at once");
    /* No reason to do without the transport: the CPU has the same check. */
    if ((about->flags & ZAP_UMA_KERNELS) != 0) zap_row(rows, "Metal kernels", true, NULL, "compiled");
    else zap_row(rows, "Metal kernels", true, NULL, "the CPU does their work: %s", metal->no_kernels);
  }
}

static void probe_device(struct zap_metal *metal, const struct zap_request *request, struct zap_rows *rows) {
  zap_uma_device about = {.flags = 0};
  if (choose(metal, request->index, &about) < 0) {
    zap_row(rows, "Metal device", false, "Run it on a Mac with a GPU that macOS lists in system_profiler SPDisplaysDataType.", "%s",
            zap_failure());
    return;
  }
  zap_row(rows, "Metal device", true, NULL, "%s", about.name);
  probe_memory(metal, &about, rows);
}

static void probe(const struct zap_request *request, struct zap_rows *rows) {
  struct zap_metal *metal = calloc(1, sizeof *metal);
  if (metal == NULL) {
    zap_row(rows, "memory", false, "This host is out of memory.", "none left for a probe");
    return;
  }
  const char *name = "Metal.framework";
  if (zap_metal_load(request->runtime, request->support, &metal->objc) < 0) {
    zap_row(rows, name, false, "Needs macOS 13 or later.", "%s", zap_failure());
  } else {
    zap_row(rows, name, true, NULL, "%s", request->runtime);
    void *pool = metal->objc.objc_autoreleasePoolPush();
    probe_device(metal, request, rows);
    leave(metal);
    metal->objc.objc_autoreleasePoolPop(pool);
  }
  free(metal);
}

const struct zap_backend zap_backend = {.probe = probe,
                                        .open = open_device,
                                        .close = close_device,
                                        .alloc = alloc_piece,
                                        .free = free_piece,
                                        .wait = zap_metal_wait,
                                        .check_begin = zap_metal_check_begin,
                                        .check_poll = zap_metal_check_poll,
                                        .check_drop = zap_metal_check_drop};
