/*
 * The part of CUDA's driver API that we use, declared by hand: there is no CUDA toolkit where this is built. Names, numbers and
 * types are those of cuda.h, and part of the driver's stable ABI.
 */
#ifndef ZAP_CUDA_DRIVER_H
#define ZAP_CUDA_DRIVER_H

#include "../common/backend.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext;
typedef void *CUmodule;
typedef void *CUfunction;
typedef void *CUstream;
typedef void *CUevent;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_INSUFFICIENT_DRIVER = 35,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_OPERATING_SYSTEM = 304,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
  CUDA_ERROR_UNKNOWN = 999
};

/* CUdevice_attribute */
enum {
  CU_INTEGRATED = 18,
  CU_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_COMPUTE_CAPABILITY_MINOR = 76,
  CU_MANAGED_MEMORY = 83,
  CU_PAGEABLE_MEMORY_ACCESS = 88,
  CU_CONCURRENT_MANAGED_ACCESS = 89,
  CU_GPU_DIRECT_RDMA_SUPPORTED = 116,
  CU_DMA_BUF_SUPPORTED = 124,
  CU_HOST_ALLOC_DMA_BUF_SUPPORTED = 146
};

enum {
  CU_MEM_ATTACH_GLOBAL = 1,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
  CU_MEMHOSTREGISTER_DEVICEMAP = 2,
  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
  CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2
};

/* What every driver from CUDA 11.0 on has. */
#define ZAP_CUDA_REQUIRED(X)                                                                                          \
  X(cuInit, (unsigned flags))                                                                                         \
  X(cuDriverGetVersion, (int *version))                                                                               \
  X(cuGetErrorName, (CUresult code, const char **name))                                                               \
  X(cuGetErrorString, (CUresult code, const char **text))                                                             \
  X(cuDeviceGetCount, (int *count))                                                                                   \
  X(cuDeviceGet, (CUdevice *device, int ordinal))                                                                     \
  X(cuDeviceGetName, (char *name, int bytes, CUdevice device))                                                        \
  X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                               \
  X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                                            \
  X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                                                  \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                  \
  X(cuCtxSetCurrent, (CUcontext context))                                                                             \
  X(cuMemAllocManaged, (CUdeviceptr *address, size_t bytes, unsigned flags))                                          \
  X(cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes))                                                              \
  X(cuMemFree_v2, (CUdeviceptr address))                                                                              \
  X(cuMemcpyDtoH_v2, (void *host, CUdeviceptr device, size_t bytes))                                                  \
  X(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                                                   \
  X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *device, void *host, unsigned flags))                                  \
  X(cuMemFreeHost, (void *address))                                                                                   \
  X(cuStreamCreate, (CUstream *stream, unsigned flags))                                                               \
  X(cuStreamDestroy_v2, (CUstream stream))                                                                            \
  X(cuStreamSynchronize, (CUstream stream))                                                                           \
  X(cuEventCreate, (CUevent *event, unsigned flags))                                                                  \
  X(cuEventDestroy_v2, (CUevent event))                                                                               \
  X(cuEventRecord, (CUevent event, CUstream stream))                                                                  \
  X(cuEventQuery, (CUevent event))                                                                                    \
  X(cuModuleLoadData, (CUmodule *module, const void *image))                                                          \
  X(cuModuleUnload, (CUmodule module))                                                                                \
  X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))                                   \
  X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,   \
                     void **extra))

/* What newer ones have, and what a device can do without. NULL in the table otherwise. */
#define ZAP_CUDA_OPTIONAL(X)                                                                                          \
  X(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags))                                              \
  X(cuMemHostUnregister, (void *address))                                                                             \
  X(cuPointerSetAttribute, (const void *value, int attribute, CUdeviceptr address))                                   \
  X(cuMemGetHandleForAddressRange,                                                                                    \
    (void *handle, CUdeviceptr address, size_t bytes, int type, unsigned long long flags))

#define ZAP_CUDA_MEMBER(name, parameters) CUresult(*name) parameters;
struct zap_cuda_api {
  ZAP_CUDA_REQUIRED(ZAP_CUDA_MEMBER)
  ZAP_CUDA_OPTIONAL(ZAP_CUDA_MEMBER)
};
#undef ZAP_CUDA_MEMBER

/* Calls into the driver; a call that hangs is known by its name. */
#define ZAP_CUDA(api, call, ...) (zap_calling(#call), (api)->call(__VA_ARGS__))

/* Opens libcuda at `path` and fills the table. It stays open from then on: see library.h. */
int32_t zap_cuda_load(const char *path, struct zap_cuda_api *api);

/* The failure of a call: its text names the call, the error and what to do. Returns the status that the error means. */
int32_t zap_cuda_fail(const struct zap_cuda_api *api, const char *call, CUresult code);

#endif
