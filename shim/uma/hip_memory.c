/* Pieces of memory: managed, page-locked, the GPU's own, and the caller's. */
#include <unistd.h>

#include "hip.h"

/* Every allocation of the runtime starts at a page; nothing promises it, and all that comes after relies on it. */
static int32_t check_page(const char *call, const void *address) {
  if ((uintptr_t)address % (uintptr_t)sysconf(_SC_PAGESIZE) == 0) return ZAP_OK;
  return zap_fail(ZAP_E_DRIVER, "%s gave memory at %p, which is not the start of a page: please report this ROCm", call, address);
}

static int32_t alloc_managed(struct zap_hip *hip, struct zap_piece *piece) {
  /* Without HMM the runtime would give host memory under the name of managed memory. */
  if ((hip->flags & ZAP_UMA_MANAGED) == 0) return zap_fail(ZAP_E_UNSUPPORTED, "this GPU or kernel has no managed memory (HMM)");
  void *address = NULL;
  hipError_t code = ZAP_HIP(&hip->api, hipMallocManaged, &address, piece->bytes, hipMemAttachGlobal);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipMallocManaged", code);
  int32_t status = check_page("hipMallocManaged", address);
  if (status < 0) {
    (void)ZAP_HIP(&hip->api, hipFree, address);
    return status;
  }
  piece->vendor = address;
  piece->host = piece->device = (uint64_t)(uintptr_t)address;
  return ZAP_OK;
}

static int32_t alloc_host(struct zap_hip *hip, struct zap_piece *piece) {
  void *host = NULL;
  void *device = NULL;
  /* Coherent, so that what either side writes is there for the other without an end of a kernel in between. */
  const unsigned flags = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;
  hipError_t code = ZAP_HIP(&hip->api, hipHostMalloc, &host, piece->bytes, flags);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipHostMalloc", code);
  int32_t status = check_page("hipHostMalloc", host);
  if (status == ZAP_OK) {
    code = ZAP_HIP(&hip->api, hipHostGetDevicePointer, &device, host, 0);
    if (code != hipSuccess) status = zap_hip_fail(&hip->api, "hipHostGetDevicePointer", code);
  }
  if (status < 0) {
    (void)ZAP_HIP(&hip->api, hipHostFree, host);
    return status;
  }
  piece->vendor = host;
  piece->host = (uint64_t)(uintptr_t)host;
  piece->device = (uint64_t)(uintptr_t)device;
  return ZAP_OK;
}

static int32_t alloc_device(struct zap_hip *hip, struct zap_piece *piece) {
  void *address = NULL;
  hipError_t code = ZAP_HIP(&hip->api, hipMalloc, &address, piece->bytes);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipMalloc", code);
  piece->vendor = address;
  piece->host = 0;
  piece->device = (uint64_t)(uintptr_t)address;
  return ZAP_OK;
}

int32_t zap_hip_alloc(void *state, struct zap_piece *piece) {
  switch (piece->memory) {
    case ZAP_MEMORY_MANAGED: return alloc_managed(state, piece);
    case ZAP_MEMORY_HOST: return alloc_host(state, piece);
    case ZAP_MEMORY_DEVICE: return alloc_device(state, piece);
    default: return zap_fail(ZAP_E_UNSUPPORTED, "HIP has no memory of kind %u", (unsigned)piece->memory);
  }
}

int32_t zap_hip_register(void *state, struct zap_piece *piece) {
  struct zap_hip *hip = state;
  if (hip->api.hipHostRegister == NULL || hip->api.hipHostUnregister == NULL) {
    return zap_fail(ZAP_E_UNSUPPORTED, "this ROCm has no hipHostRegister: update it");
  }
  void *host = (void *)(uintptr_t)piece->host;
  void *device = NULL;
  hipError_t code = ZAP_HIP(&hip->api, hipHostRegister, host, piece->bytes, hipHostRegisterPortable | hipHostRegisterMapped);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipHostRegister", code);
  code = ZAP_HIP(&hip->api, hipHostGetDevicePointer, &device, host, 0);
  if (code != hipSuccess) {
    int32_t status = zap_hip_fail(&hip->api, "hipHostGetDevicePointer", code);
    (void)ZAP_HIP(&hip->api, hipHostUnregister, host);
    return status;
  }
  piece->vendor = host;
  piece->device = (uint64_t)(uintptr_t)device;
  return ZAP_OK;
}

static int32_t unregister(struct zap_hip *hip, const struct zap_piece *piece) {
  hipError_t code = ZAP_HIP(&hip->api, hipHostUnregister, piece->vendor);
  return code == hipSuccess ? ZAP_OK : zap_hip_fail(&hip->api, "hipHostUnregister", code);
}

int32_t zap_hip_free(void *state, struct zap_piece *piece) {
  struct zap_hip *hip = state;
  if (piece->foreign) return unregister(hip, piece);
  bool host = piece->memory == ZAP_MEMORY_HOST;
  hipError_t code =
      host ? ZAP_HIP(&hip->api, hipHostFree, piece->vendor) : ZAP_HIP(&hip->api, hipFree, piece->vendor);
  return code == hipSuccess ? ZAP_OK : zap_hip_fail(&hip->api, host ? "hipHostFree" : "hipFree", code);
}

int32_t zap_hip_export(void *state, const struct zap_piece *piece) {
  struct zap_hip *hip = state;
  if (piece->memory != ZAP_MEMORY_DEVICE) {
    return zap_fail(ZAP_E_UNSUPPORTED, "HIP exports only the GPU's own memory as a dma-buf");
  }
  if ((hip->flags & ZAP_UMA_DMA_BUF) == 0) {
    return zap_fail(ZAP_E_UNSUPPORTED, "this GPU or ROCm exports no memory as a dma-buf: ROCm 7 or newer is needed");
  }
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (piece->device % page != 0) {
    return zap_fail(ZAP_E_UNSUPPORTED, "a region of %llu bytes does not start at a page: export one of 2 MiB or more",
                    (unsigned long long)piece->bytes);
  }
  int fd = -1;
  hipError_t code = ZAP_HIP(&hip->api, hipMemGetHandleForAddressRange, &fd, piece->vendor, piece->bytes,
                            hipMemRangeHandleTypeDmaBufFd, 0);
  if (code != hipSuccess) return zap_hip_fail(&hip->api, "hipMemGetHandleForAddressRange", code);
  return fd >= 0 ? fd : zap_fail(ZAP_E_DRIVER, "hipMemGetHandleForAddressRange gave no file descriptor");
}

int32_t zap_hip_copy_to_host(void *state, const struct zap_piece *piece, uint64_t offset, void *host, uint64_t bytes) {
  struct zap_hip *hip = state;
  const void *from = (const void *)(uintptr_t)(piece->device + offset);
  hipError_t code = ZAP_HIP(&hip->api, hipMemcpy, host, from, (size_t)bytes, hipMemcpyDeviceToHost);
  return code == hipSuccess ? ZAP_OK : zap_hip_fail(&hip->api, "hipMemcpy", code);
}
