/*
 * The part of AMD's HIP runtime that we use, declared by hand: there is no ROCm where this is built. Names, numbers and types are
 * those of hip_runtime_api.h; structures, which differ between versions, are not used at all.
 */
#ifndef ZAP_HIP_RUNTIME_H
#define ZAP_HIP_RUNTIME_H

#include "../common/backend.h"

typedef int hipError_t;

enum {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorInsufficientDriver = 35,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorNoBinaryForGpu = 209,
  hipErrorOperatingSystem = 304,
  hipErrorHostMemoryAlreadyRegistered = 712,
  hipErrorHostMemoryNotRegistered = 713,
  hipErrorNotSupported = 801,
  hipErrorUnknown = 999
};

/*
 * hipDeviceAttribute_t was put into another order with ROCm 5.0 ("to better match NV", its release notes say): from 5.0 to 7.2 these
 * numbers are the same, before they meant other things. So an older runtime is refused. hipDeviceAttributeDmaBufSupported came
 * at 93 during ROCm 7; older ones answer hipErrorInvalidValue.
 */
#define ZAP_HIP_OLDEST 50000000 /* major * 10,000,000 + minor * 100,000 + patch, as hipRuntimeGetVersion gives it */
enum {
  hipDeviceAttributeConcurrentManagedAccess = 9,
  hipDeviceAttributeIntegrated = 16,
  hipDeviceAttributeManagedMemory = 24,
  hipDeviceAttributePageableMemoryAccess = 65,
  hipDeviceAttributeDmaBufSupported = 93
};

enum {
  hipMemAttachGlobal = 1,
  hipMemcpyDeviceToHost = 2,
  hipHostMallocPortable = 1,
  hipHostMallocMapped = 2,
  hipHostMallocCoherent = 0x40000000,
  hipHostRegisterPortable = 1,
  hipHostRegisterMapped = 2,
  hipMemRangeHandleTypeDmaBufFd = 1
};

/* What every runtime from ROCm 5.0 on has. A hipDevice_t is an int, and the number that hipSetDevice takes. */
#define ZAP_HIP_REQUIRED(X)                                                      \
  X(hipInit, (unsigned flags))                                                   \
  X(hipRuntimeGetVersion, (int *version))                                        \
  X(hipGetDeviceCount, (int *count))                                             \
  X(hipSetDevice, (int device))                                                  \
  X(hipDeviceGetName, (char *name, int bytes, int device))                       \
  X(hipDeviceGetAttribute, (int *value, int attribute, int device))              \
  X(hipDeviceTotalMem, (size_t *bytes, int device))                              \
  X(hipMallocManaged, (void **address, size_t bytes, unsigned flags))            \
  X(hipMalloc, (void **address, size_t bytes))                                   \
  X(hipFree, (void *address))                                                    \
  X(hipHostMalloc, (void **address, size_t bytes, unsigned flags))               \
  X(hipHostGetDevicePointer, (void **device, void *host, unsigned flags))        \
  X(hipHostFree, (void *address))                                                \
  X(hipMemcpy, (void *to, const void *from, size_t bytes, int kind))

/* What came with ROCm 7, and what a device can do without. NULL in the table otherwise. */
#define ZAP_HIP_OPTIONAL(X)                                   \
  X(hipHostRegister, (void *host, size_t bytes, unsigned flags)) \
  X(hipHostUnregister, (void *host))                          \
  X(hipMemGetHandleForAddressRange, (void *handle, void *address, size_t bytes, int type, unsigned long long flags))

#define ZAP_HIP_MEMBER(name, parameters) hipError_t(*name) parameters;
struct zap_hip_api {
  ZAP_HIP_REQUIRED(ZAP_HIP_MEMBER)
  ZAP_HIP_OPTIONAL(ZAP_HIP_MEMBER)
  /* Unlike CUDA's, these return the text itself. */
  const char *(*hipGetErrorName)(hipError_t code);
  const char *(*hipGetErrorString)(hipError_t code);
};
#undef ZAP_HIP_MEMBER

/* Calls into the runtime; a call that hangs is known by its name. */
#define ZAP_HIP(api, call, ...) (zap_calling(#call), (api)->call(__VA_ARGS__))

/* Opens libamdhip64 at `path` and fills the table. It stays open from then on: see library.h. */
int32_t zap_hip_load(const char *path, struct zap_hip_api *api);

/* The failure of a call: its text names the call, the error and what to do. Returns the status that the error means. */
int32_t zap_hip_fail(const struct zap_hip_api *api, const char *call, hipError_t code);

#endif
