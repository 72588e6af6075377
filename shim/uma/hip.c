/*
 * The HIP backend: AMD's runtime, through libamdhip64.so. Opening, closing, and what a probe sees. It runs no kernels: the check of
 * headers is the CPU's here.
 */
#include "hip.h"

#include <stdlib.h>
#include <unistd.h>

static bool has(struct zap_hip *hip, int attribute) {
  int value = 0;
  /* A runtime that does not know an attribute does not have what it stands for. */
  return ZAP_HIP(&hip->api, hipDeviceGetAttribute, &value, attribute, hip->device) == hipSuccess && value != 0;
}

static int32_t start(struct zap_hip *hip, uint32_t *version) {
  hipError_t code = ZAP_HIP(&hip->api, hipInit, 0);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipInit", code);
  int number = 0;
  code = ZAP_HIP(&hip->api, hipRuntimeGetVersion, &number);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipRuntimeGetVersion", code);
  if (number < ZAP_HIP_OLDEST) {
    return zap_fail(ZAP_E_DRIVER, "the HIP runtime has version number %d, which is older than ROCm 5.0: update ROCm", number);
  }
  *version = (uint32_t)number;
  return ZAP_OK;
}

/* Which of the devices, made this thread's, and all that can be known of it. */
static int32_t choose(struct zap_hip *hip, int32_t index, zap_uma_device *about) {
  int count = 0;
  hipError_t code = ZAP_HIP(&hip->api, hipGetDeviceCount, &count);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipGetDeviceCount", code);
  if (count == 0) return zap_hip_fail(&hip->api, "hipGetDeviceCount", hipErrorNoDevice);
  if (index >= count) {
    return zap_fail(ZAP_E_DEVICE, "GPU %d is not there: this process has %d, numbered from 0 (HIP_VISIBLE_DEVICES says which)",
                    (int)index, count);
  }
  hip->device = index;
  code = ZAP_HIP(&hip->api, hipSetDevice, hip->device);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipSetDevice", code);
  code = ZAP_HIP(&hip->api, hipDeviceGetName, about->name, (int)sizeof about->name, hip->device);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipDeviceGetName", code);
  size_t bytes = 0;
  code = ZAP_HIP(&hip->api, hipDeviceTotalMem, &bytes, hip->device);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipDeviceTotalMem", code);

  hip->flags = 0;
  if (has(hip, hipDeviceAttributeManagedMemory)) hip->flags |= ZAP_UMA_MANAGED;
  if (has(hip, hipDeviceAttributeConcurrentManagedAccess)) hip->flags |= ZAP_UMA_CONCURRENT;
  if (has(hip, hipDeviceAttributePageableMemoryAccess)) hip->flags |= ZAP_UMA_PAGEABLE;
  if (has(hip, hipDeviceAttributeIntegrated)) hip->flags |= ZAP_UMA_INTEGRATED;
  if (hip->api.hipMemGetHandleForAddressRange != NULL && has(hip, hipDeviceAttributeDmaBufSupported)) {
    hip->flags |= ZAP_UMA_DMA_BUF;
  }
  /* Managed only where CPU and GPU may touch it at once; page-locked memory is that everywhere. */
  const uint32_t both = ZAP_UMA_MANAGED | ZAP_UMA_CONCURRENT;
  about->memory = (hip->flags & both) == both ? ZAP_MEMORY_MANAGED : ZAP_MEMORY_HOST;
  about->flags = hip->flags;
  about->memory_bytes = bytes;
  about->index = (uint32_t)index;
  about->count = (uint32_t)count;
  return ZAP_OK;
}

static int32_t open_device(const struct zap_request *request, void **state, zap_uma_device *about) {
  struct zap_hip *hip = calloc(1, sizeof *hip);
  if (hip == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a device");
  int32_t status = zap_hip_load(request->runtime, &hip->api);
  if (status == ZAP_OK) status = start(hip, &about->driver);
  if (status == ZAP_OK) status = choose(hip, request->index, about);
  if (status == ZAP_OK) *state = hip;
  else free(hip);
  return status;
}

/* The runtime keeps its own device for as long as the process lives: other libraries may use it. */
static void close_device(void *state) { free(state); }

/* ---- probe ---- */

/* The memory that a receiver would use: a piece of it is allocated, as some things show only then. */
static void probe_memory(struct zap_hip *hip, const zap_uma_device *about, struct zap_rows *rows) {
  const char *name = "unified memory";
  struct zap_piece piece = {.memory = about->memory, .bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
  if (zap_hip_alloc(hip, &piece) < 0) {
    zap_row(rows, name, false, "The runtime is there but cannot give memory: rocm-smi --showpids shows who has it.", "%s",
            zap_failure());
    return;
  }
  (void)zap_hip_free(hip, &piece);
  if (about->memory == ZAP_MEMORY_MANAGED) {
    zap_row(rows, name, true, NULL, "managed, for CPU and GPU at once");
  } else {
    zap_row(rows, name, true, NULL, "page-locked host memory: %s",
            (about->flags & ZAP_UMA_MANAGED) != 0 ? "no managed memory for CPU and GPU at once" : "no managed memory");
  }
}

static void probe_device(struct zap_hip *hip, const struct zap_request *request, struct zap_rows *rows) {
  uint32_t version = 0;
  if (start(hip, &version) < 0) {
    zap_row(rows, "HIP runtime", false, "Install ROCm 5.0 or newer, with a driver that fits it.", "%s", zap_failure());
    return;
  }
  zap_row(rows, "HIP runtime", true, NULL, "HIP %u.%u", (unsigned)(version / 10000000), (unsigned)(version / 100000 % 100));
  zap_uma_device about = {.flags = 0};
  if (choose(hip, request->index, &about) < 0) {
    zap_row(rows, "HIP device", false, "Let HIP_VISIBLE_DEVICES name one that rocminfo lists.", "%s", zap_failure());
    return;
  }
  about.name[sizeof about.name - 1] = 0;
  zap_row(rows, "HIP device", true, NULL, "%s (%u of %u)", about.name, (unsigned)about.index, (unsigned)about.count);
  probe_memory(hip, &about, rows);
}

static void probe(const struct zap_request *request, struct zap_rows *rows) {
  struct zap_hip *hip = calloc(1, sizeof *hip);
  if (hip == NULL) {
    zap_row(rows, "memory", false, "This host is out of memory.", "none left for a probe");
    return;
  }
  const char *name = "libamdhip64.so";
  if (zap_hip_load(request->runtime, &hip->api) < 0) {
    zap_row(rows, name, false, "Install or update ROCm's HIP runtime.", "%s", zap_failure());
  } else {
    zap_row(rows, name, true, NULL, "%s", request->runtime);
    probe_device(hip, request, rows);
  }
  free(hip);
}

const struct zap_backend zap_backend = {.probe = probe,
                                        .open = open_device,
                                        .close = close_device,
                                        .alloc = zap_hip_alloc,
                                        .register_piece = zap_hip_register,
                                        .free = zap_hip_free,
                                        .export_piece = zap_hip_export,
                                        .copy_to_host = zap_hip_copy_to_host};
