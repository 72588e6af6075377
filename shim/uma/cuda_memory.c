/* Pieces of memory: managed, page-locked, the GPU's own, and the caller's. */
#include <unistd.h>

#include "cuda.h"

/* What NICs map of a GPU's memory at once. */
#define GPU_PAGE (UINT64_C(64) << 10)
/* What the driver maps at once. */
#define GPU_BLOCK (UINT64_C(2) << 20)

static uint64_t host_page(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static uint64_t up_to(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static int32_t alloc_managed(struct zap_cuda *cuda, struct zap_piece *piece) {
  if ((cuda->flags & ZAP_UMA_MANAGED) == 0) return zap_fail(ZAP_E_UNSUPPORTED, "this GPU has no managed memory");
  uint64_t page = host_page(), extra = 0;
  CUdeviceptr address = 0;
  for (;;) {
    CUresult code = ZAP_CUDA(&cuda->api, cuMemAllocManaged, &address, piece->bytes + extra, CU_MEM_ATTACH_GLOBAL);
    if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuMemAllocManaged", code);
    if (address % page == 0 || extra != 0) break;
    /* No driver is known to do this, nor is it promised that none will. */
    (void)ZAP_CUDA(&cuda->api, cuMemFree_v2, address);
    extra = page;
  }
  piece->vendor = (void *)(uintptr_t)address;
  piece->host = piece->device = up_to(address, page);
  return ZAP_OK;
}

static int32_t alloc_host(struct zap_cuda *cuda, struct zap_piece *piece) {
  void *host = NULL;
  CUresult code =
      ZAP_CUDA(&cuda->api, cuMemHostAlloc, &host, piece->bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuMemHostAlloc", code);
  code = ZAP_CUDA(&cuda->api, cuMemHostGetDevicePointer_v2, &piece->device, host, 0);
  if (code != CUDA_SUCCESS) {
    int32_t status = zap_cuda_fail(&cuda->api, "cuMemHostGetDevicePointer_v2", code);
    (void)ZAP_CUDA(&cuda->api, cuMemFreeHost, host);
    return status;
  }
  piece->vendor = host;
  piece->host = (uint64_t)(uintptr_t)host;
  return ZAP_OK;
}

static int32_t alloc_device(struct zap_cuda *cuda, struct zap_piece *piece) {
  CUdeviceptr address = 0;
  uint64_t bytes = up_to(piece->bytes, GPU_PAGE);
  CUresult code = ZAP_CUDA(&cuda->api, cuMemAlloc_v2, &address, bytes);
  if (code == CUDA_SUCCESS && address % host_page() != 0) {
    /* Small ones share what the driver has mapped; a dma-buf starts at a page, and is best made of a whole one. */
    (void)ZAP_CUDA(&cuda->api, cuMemFree_v2, address);
    bytes = up_to(bytes, GPU_BLOCK);
    code = ZAP_CUDA(&cuda->api, cuMemAlloc_v2, &address, bytes);
  }
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuMemAlloc_v2", code);
  uint32_t reachable = ZAP_UMA_GPUDIRECT_RDMA | ZAP_UMA_DMA_BUF;
  if ((cuda->flags & reachable) != 0 && cuda->api.cuPointerSetAttribute != NULL) {
    /* Without it a copy may still be under way when its call has come back, and a NIC would not see it. */
    unsigned yes = 1;
    (void)ZAP_CUDA(&cuda->api, cuPointerSetAttribute, &yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
  }
  piece->vendor = (void *)(uintptr_t)address;
  piece->host = 0;
  piece->device = address;
  piece->bytes = bytes;
  return ZAP_OK;
}

int32_t zap_cuda_alloc(void *state, struct zap_piece *piece) {
  switch (piece->memory) {
    case ZAP_MEMORY_MANAGED: return alloc_managed(state, piece);
    case ZAP_MEMORY_HOST: return alloc_host(state, piece);
    case ZAP_MEMORY_DEVICE: return alloc_device(state, piece);
    default: return zap_fail(ZAP_E_UNSUPPORTED, "CUDA has no memory of kind %u", (unsigned)piece->memory);
  }
}

int32_t zap_cuda_register(void *state, struct zap_piece *piece) {
  struct zap_cuda *cuda = state;
  if (cuda->api.cuMemHostRegister_v2 == NULL || cuda->api.cuMemHostUnregister == NULL) {
    return zap_fail(ZAP_E_UNSUPPORTED, "this driver has no cuMemHostRegister_v2: update it");
  }
  void *host = (void *)(uintptr_t)piece->host;
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  CUresult code = ZAP_CUDA(&cuda->api, cuMemHostRegister_v2, host, piece->bytes, flags);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuMemHostRegister_v2", code);
  code = ZAP_CUDA(&cuda->api, cuMemHostGetDevicePointer_v2, &piece->device, host, 0);
  if (code != CUDA_SUCCESS) {
    int32_t status = zap_cuda_fail(&cuda->api, "cuMemHostGetDevicePointer_v2", code);
    (void)ZAP_CUDA(&cuda->api, cuMemHostUnregister, host);
    return status;
  }
  piece->vendor = host;
  return ZAP_OK;
}

static int32_t unregister(struct zap_cuda *cuda, const struct zap_piece *piece) {
  CUresult code = ZAP_CUDA(&cuda->api, cuMemHostUnregister, piece->vendor);
  return code == CUDA_SUCCESS ? ZAP_OK : zap_cuda_fail(&cuda->api, "cuMemHostUnregister", code);
}

int32_t zap_cuda_free(void *state, struct zap_piece *piece) {
  struct zap_cuda *cuda = state;
  if (piece->foreign) return unregister(cuda, piece);
  bool host = piece->memory == ZAP_MEMORY_HOST;
  CUresult code = host ? ZAP_CUDA(&cuda->api, cuMemFreeHost, piece->vendor)
                       : ZAP_CUDA(&cuda->api, cuMemFree_v2, (CUdeviceptr)(uintptr_t)piece->vendor);
  return code == CUDA_SUCCESS ? ZAP_OK : zap_cuda_fail(&cuda->api, host ? "cuMemFreeHost" : "cuMemFree_v2", code);
}

int32_t zap_cuda_export(void *state, const struct zap_piece *piece) {
  struct zap_cuda *cuda = state;
  uint32_t needed = 0;
  if (piece->foreign) return zap_fail(ZAP_E_UNSUPPORTED, "CUDA exports no memory as a dma-buf that was registered with it");
  if (piece->memory == ZAP_MEMORY_DEVICE) needed = ZAP_UMA_DMA_BUF;
  if (piece->memory == ZAP_MEMORY_HOST) needed = ZAP_UMA_HOST_DMA_BUF;
  if (needed == 0) return zap_fail(ZAP_E_UNSUPPORTED, "CUDA exports no managed memory as a dma-buf");
  if ((cuda->flags & needed) == 0) {
    return zap_fail(ZAP_E_UNSUPPORTED, "this GPU or driver exports no %s memory as a dma-buf",
                    piece->memory == ZAP_MEMORY_HOST ? "page-locked host" : "device");
  }
  uint64_t page = host_page();
  if (piece->device % page != 0 || piece->bytes % page != 0) {
    return zap_fail(ZAP_E_UNSUPPORTED, "a region of %llu bytes does not start at a page: export one of 2 MiB or more",
                    (unsigned long long)piece->bytes);
  }
  int fd = -1;
  CUresult code = ZAP_CUDA(&cuda->api, cuMemGetHandleForAddressRange, &fd, piece->device, piece->bytes,
                           CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuMemGetHandleForAddressRange", code);
  return fd >= 0 ? fd : zap_fail(ZAP_E_DRIVER, "cuMemGetHandleForAddressRange gave no file descriptor");
}

/*
 * What a NIC wrote before is in the copy: work that the CPU submits to the GPU is ordered behind it. The legacy stream, which this is on,
 * does not wait for ours, whose kernels the caller has waited for.
 */
int32_t zap_cuda_copy_to_host(void *state, const struct zap_piece *piece, uint64_t offset, void *host, uint64_t bytes) {
  struct zap_cuda *cuda = state;
  CUresult code = ZAP_CUDA(&cuda->api, cuMemcpyDtoH_v2, host, piece->device + offset, (size_t)bytes);
  return code == CUDA_SUCCESS ? ZAP_OK : zap_cuda_fail(&cuda->api, "cuMemcpyDtoH_v2", code);
}
