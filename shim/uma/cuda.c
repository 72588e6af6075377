/* The CUDA backend: NVIDIA's driver API, through libcuda.so.1. Opening, closing, and what a probe sees. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first driver whose table of functions we rely on. */
#define OLDEST_DRIVER 11000

static int attribute(struct zap_cuda *cuda, int number) {
  int value = 0;
  /* A driver that does not know an attribute does not have what it stands for. */
  return ZAP_CUDA(&cuda->api, cuDeviceGetAttribute, &value, number, cuda->device) == CUDA_SUCCESS ? value : 0;
}

static void flag(struct zap_cuda *cuda, int number, uint32_t bit) {
  if (attribute(cuda, number) != 0) cuda->flags |= bit;
}

static int32_t start(struct zap_cuda *cuda) {
  CUresult code = ZAP_CUDA(&cuda->api, cuInit, 0);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuInit", code);
  int version = 0;
  code = ZAP_CUDA(&cuda->api, cuDriverGetVersion, &version);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuDriverGetVersion", code);
  if (version < OLDEST_DRIVER) {
    return zap_fail(ZAP_E_DRIVER, "the NVIDIA driver is one of CUDA %d.%d, too old: update it to CUDA %d.%d or newer", version / 1000,
                    version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
  }
  cuda->driver = (uint32_t)version;
  return ZAP_OK;
}

/* Which of the devices, and all that can be known of it without a context. */
static int32_t choose(struct zap_cuda *cuda, int32_t index, zap_uma_device *about) {
  int count = 0;
  CUresult code = ZAP_CUDA(&cuda->api, cuDeviceGetCount, &count);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuDeviceGetCount", code);
  if (count == 0) return zap_fail(ZAP_E_DEVICE, "the driver has no GPU for this process: see nvidia-smi and CUDA_VISIBLE_DEVICES");
  if (index >= count) {
    return zap_fail(ZAP_E_DEVICE, "GPU %d is not there: this process has %d, numbered from 0 (ZAP_CUDA_DEVICE says which)", (int)index,
                    count);
  }
  code = ZAP_CUDA(&cuda->api, cuDeviceGet, &cuda->device, index);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuDeviceGet", code);
  code = ZAP_CUDA(&cuda->api, cuDeviceGetName, about->name, (int)sizeof about->name, cuda->device);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuDeviceGetName", code);
  size_t bytes = 0;
  code = ZAP_CUDA(&cuda->api, cuDeviceTotalMem_v2, &bytes, cuda->device);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuDeviceTotalMem_v2", code);

  flag(cuda, CU_MANAGED_MEMORY, ZAP_UMA_MANAGED);
  flag(cuda, CU_CONCURRENT_MANAGED_ACCESS, ZAP_UMA_CONCURRENT);
  flag(cuda, CU_PAGEABLE_MEMORY_ACCESS, ZAP_UMA_PAGEABLE);
  flag(cuda, CU_INTEGRATED, ZAP_UMA_INTEGRATED);
  flag(cuda, CU_GPU_DIRECT_RDMA_SUPPORTED, ZAP_UMA_GPUDIRECT_RDMA);
  if (cuda->api.cuMemGetHandleForAddressRange != NULL) {
    flag(cuda, CU_DMA_BUF_SUPPORTED, ZAP_UMA_DMA_BUF);
    flag(cuda, CU_HOST_ALLOC_DMA_BUF_SUPPORTED, ZAP_UMA_HOST_DMA_BUF);
  }
  /* Where the CPU may not touch managed memory while a kernel runs, a receiver must not use it: it never knows when one does. */
  uint32_t both = ZAP_UMA_MANAGED | ZAP_UMA_CONCURRENT;
  about->memory = (cuda->flags & both) == both ? ZAP_MEMORY_MANAGED : ZAP_MEMORY_HOST;
  about->memory_bytes = bytes;
  about->index = (uint32_t)index;
  about->count = (uint32_t)count;
  about->driver = cuda->driver;
  about->capability =
      (uint32_t)(10 * attribute(cuda, CU_COMPUTE_CAPABILITY_MAJOR) + attribute(cuda, CU_COMPUTE_CAPABILITY_MINOR));
  return ZAP_OK;
}

/* Lets go of whatever there is; also the way back out of an `enter` that failed half-way. */
static void leave(struct zap_cuda *cuda) {
  zap_cuda_unload_kernel(cuda);
  zap_cuda_verify_unload(cuda);
  if (cuda->stream != NULL) (void)ZAP_CUDA(&cuda->api, cuStreamDestroy_v2, cuda->stream);
  cuda->stream = NULL;
  if (cuda->context != NULL) {
    (void)ZAP_CUDA(&cuda->api, cuCtxSetCurrent, NULL);
    (void)ZAP_CUDA(&cuda->api, cuDevicePrimaryCtxRelease_v2, cuda->device);
  }
  cuda->context = NULL;
}

static int32_t enter(struct zap_cuda *cuda, zap_uma_device *about) {
  CUresult code = ZAP_CUDA(&cuda->api, cuDevicePrimaryCtxRetain, &cuda->context, cuda->device);
  if (code != CUDA_SUCCESS) {
    cuda->context = NULL;
    return zap_cuda_fail(&cuda->api, "cuDevicePrimaryCtxRetain", code);
  }
  const char *call = "cuCtxSetCurrent";
  code = ZAP_CUDA(&cuda->api, cuCtxSetCurrent, cuda->context);
  if (code == CUDA_SUCCESS) {
    call = "cuStreamCreate";
    code = ZAP_CUDA(&cuda->api, cuStreamCreate, &cuda->stream, CU_STREAM_NON_BLOCKING);
    if (code != CUDA_SUCCESS) cuda->stream = NULL;
  }
  if (code != CUDA_SUCCESS) {
    int32_t status = zap_cuda_fail(&cuda->api, call, code);
    leave(cuda);
    return status;
  }
  zap_cuda_load_kernel(cuda);
  about->flags = cuda->flags;
  return ZAP_OK;
}

static int32_t open_device(const struct zap_request *request, void **state, zap_uma_device *about) {
  struct zap_cuda *cuda = calloc(1, sizeof *cuda);
  if (cuda == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a device");
  int32_t status = zap_cuda_load(request->runtime, &cuda->api);
  if (status == ZAP_OK) status = start(cuda);
  if (status == ZAP_OK) status = choose(cuda, request->index, about);
  if (status == ZAP_OK) status = enter(cuda, about);
  if (status == ZAP_OK) *state = cuda;
  else free(cuda);
  return status;
}

static void close_device(void *state) {
  leave(state);
  free(state);
}

/* ---- probe ---- */

/* The memory that a receiver would use: a piece of it is allocated, as some things show only then. */
static void probe_memory(struct zap_cuda *cuda, const zap_uma_device *about, struct zap_rows *rows) {
  const char *name = "unified memory";
  struct zap_piece piece = {.memory = about->memory, .bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
  if (zap_cuda_alloc(cuda, &piece) < 0) {
    zap_row(rows, name, false, "The driver is there but cannot give memory: see nvidia-smi for who has it.", "%s", zap_failure());
    return;
  }
  (void)zap_cuda_free(cuda, &piece);
  if (about->memory == ZAP_MEMORY_MANAGED) {
    zap_row(rows, name, true, NULL, "managed, for CPU and GPU at once");
  } else {
    zap_row(rows, name, true, NULL, "page-locked host memory: %s",
            (about->flags & ZAP_UMA_MANAGED) != 0 ? "no managed memory for CPU and GPU at once" : "no managed memory");
  }
}

static void probe_device(struct zap_cuda *cuda, const struct zap_request *request, struct zap_rows *rows) {
  if (start(cuda) < 0) {
    zap_row(rows, "CUDA driver", false, "Install a driver that fits the GPU and the kernel, then restart the host.", "%s",
            zap_failure());
    return;
  }
  zap_row(rows, "CUDA driver", true, NULL, "CUDA %u.%u", (unsigned)cuda->driver / 1000, (unsigned)cuda->driver % 1000 / 10);

  zap_uma_device about = {.flags = 0};
  if (choose(cuda, request->index, &about) < 0 || enter(cuda, &about) < 0) {
    zap_row(rows, "CUDA device", false, "Name one that nvidia-smi lists, from 0 on, in ZAP_CUDA_DEVICE.", "%s", zap_failure());
    return;
  }
  about.name[sizeof about.name - 1] = 0;
  zap_row(rows, "CUDA device", true, NULL, "%s (%u of %u), compute capability %u.%u", about.name, (unsigned)about.index,
          (unsigned)about.count, (unsigned)about.capability / 10, (unsigned)about.capability % 10);
  probe_memory(cuda, &about, rows);
  /* No reason to do without the transport: the CPU has the same check. */
  if ((about.flags & ZAP_UMA_KERNELS) != 0) zap_row(rows, "CUDA kernels", true, NULL, "loaded");
  else zap_row(rows, "CUDA kernels", true, NULL, "the CPU does their work: %s", cuda->no_kernels);
  leave(cuda);
}

static void probe(const struct zap_request *request, struct zap_rows *rows) {
  struct zap_cuda *cuda = calloc(1, sizeof *cuda);
  if (cuda == NULL) {
    zap_row(rows, "memory", false, "This host is out of memory.", "none left for a probe");
    return;
  }
  const char *name = "libcuda.so.1";
  if (zap_cuda_load(request->runtime, &cuda->api) < 0) {
    zap_row(rows, name, false, "Install or update the NVIDIA driver.", "%s", zap_failure());
  } else {
    zap_row(rows, name, true, NULL, "%s", request->runtime);
    probe_device(cuda, request, rows);
  }
  free(cuda);
}

const struct zap_backend zap_backend = {.probe = probe,
                                        .open = open_device,
                                        .close = close_device,
                                        .alloc = zap_cuda_alloc,
                                        .register_piece = zap_cuda_register,
                                        .free = zap_cuda_free,
                                        .export_piece = zap_cuda_export,
                                        .copy_to_host = zap_cuda_copy_to_host,
                                        .wait = zap_cuda_wait,
                                        .check_begin = zap_cuda_check_begin,
                                        .check_poll = zap_cuda_check_poll,
                                        .check_drop = zap_cuda_check_drop,
                                        .verify_load = zap_cuda_verify_load,
                                        .verify_begin = zap_cuda_verify_begin,
                                        .verify_poll = zap_cuda_verify_poll,
                                        .verify_drop = zap_cuda_verify_drop};
