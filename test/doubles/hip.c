/*
 * Test double of AMD's HIP runtime, libamdhip64.so. It is no runtime and reaches no device. What it does is set by `double.conf` beside
 * it (README.md). It has memory, streams and events; no kernels, as this project has none for HIP.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int hipError_t;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_HANDLE = 400,
  NOT_READY = 600,
  HOST_MEMORY_ALREADY_REGISTERED = 712,
  HOST_MEMORY_NOT_REGISTERED = 713,
  NOT_SUPPORTED = 801
};

enum { DEVICES_MAX = 8 };

static bool initialized;
static _Thread_local int current_device;

static int device_count(void) {
  int64_t count = double_number("devices", 1);
  return count < 0 ? 0 : count > DEVICES_MAX ? DEVICES_MAX : (int)count;
}
static bool is_device(int device) { return device >= 0 && device < device_count(); }
static int runtime_version(void) { return (int)double_number("runtime", 60342134); }

/* Every call of the runtime initializes it where that has not happened yet. */
static hipError_t enter(const char *call) {
  if (!__atomic_exchange_n(&initialized, true, __ATOMIC_RELAXED)) double_settings_read();
  return (hipError_t)double_enter(call);
}
#define ENTER(call)                            \
  do {                                         \
    hipError_t entered = enter(call);          \
    if (entered != SUCCESS) return entered;    \
  } while (0)

/* Like an MI300X with HMM. Numbers as they are since ROCm 5.0. */
static int64_t attribute_of(int number) {
  int64_t set = double_number_of("attribute", number, -1);
  if (set >= 0) return set;
  switch (number) {
    case 3: return 1;   /* can map host memory */
    case 9: return 1;   /* concurrent managed access */
    case 13: return 1;  /* host reaches managed memory without migration */
    case 16: return 0;  /* integrated */
    case 23: return 9;  /* compute capability, after a fashion */
    case 24: return 1;  /* managed memory */
    case 56: return 1024;
    case 63: return 304;
    case 65: return 1;  /* pageable memory access */
    case 85: return 1;  /* unified addressing */
    case 87: return 64; /* threads of a wavefront */
    case 93: return runtime_version() >= 70000000 ? 1 : -1; /* dma-buf */
    case 94: return runtime_version() >= 70000000 ? 1 : -1;
    default: return number >= 0 && number <= 89 ? 0 : -1;
  }
}

static const struct named {
  hipError_t code;
  const char *name;
  const char *text;
} errors[] = {
    {SUCCESS, "hipSuccess", "no error"},
    {INVALID_VALUE, "hipErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory"},
    {3, "hipErrorNotInitialized", "initialization error"},
    {35, "hipErrorInsufficientDriver", "driver version is insufficient for runtime version"},
    {NO_DEVICE, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {INVALID_DEVICE, "hipErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_HANDLE, "hipErrorInvalidHandle", "invalid resource handle"},
    {NOT_READY, "hipErrorNotReady", "device not ready"},
    {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {HOST_MEMORY_ALREADY_REGISTERED, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "hipErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {719, "hipErrorLaunchFailure", "unspecified launch failure"},
    {NOT_SUPPORTED, "hipErrorNotSupported", "operation not supported"},
    {999, "hipErrorUnknown", "unknown error"},
};

static const char *error_text(hipError_t code, bool name) {
  for (size_t at = 0; at < sizeof errors / sizeof errors[0]; at++) {
    if (errors[at].code == code) return name ? errors[at].name : errors[at].text;
  }
  return name ? "hipErrorUnknown" : "unknown error";
}
/* Unlike CUDA's, these return the text itself. */
DOUBLE_EXPORT const char *hipGetErrorName(hipError_t code) { return error_text(code, true); }
DOUBLE_EXPORT const char *hipGetErrorString(hipError_t code) { return error_text(code, false); }

/* ---- devices ---- */

DOUBLE_EXPORT hipError_t hipInit(unsigned flags) {
  double_settings_read();
  __atomic_store_n(&initialized, true, __ATOMIC_RELAXED);
  hipError_t code = (hipError_t)double_enter("hipInit");
  if (code != SUCCESS) return code;
  if (flags != 0) return INVALID_VALUE;
  return device_count() == 0 ? NO_DEVICE : SUCCESS;
}

static hipError_t give_version(const char *call, int *version) {
  ENTER(call);
  if (version == NULL) return INVALID_VALUE;
  *version = runtime_version();
  return SUCCESS;
}
/* On AMD both are the same number. */
DOUBLE_EXPORT hipError_t hipDriverGetVersion(int *version) { return give_version("hipDriverGetVersion", version); }
DOUBLE_EXPORT hipError_t hipRuntimeGetVersion(int *version) { return give_version("hipRuntimeGetVersion", version); }

DOUBLE_EXPORT hipError_t hipGetDeviceCount(int *count) {
  ENTER("hipGetDeviceCount");
  if (count == NULL) return INVALID_VALUE;
  *count = device_count();
  return *count == 0 ? NO_DEVICE : SUCCESS;
}

DOUBLE_EXPORT hipError_t hipDeviceGet(int *device, int ordinal) {
  ENTER("hipDeviceGet");
  if (device == NULL) return INVALID_VALUE;
  if (!is_device(ordinal)) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipDeviceGetName(char *name, int capacity, int device) {
  ENTER("hipDeviceGetName");
  if (name == NULL || capacity <= 0) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  (void)snprintf(name, (size_t)capacity, "%s", double_text("name", "AMD Double"));
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipDeviceGetAttribute(int *value, int number, int device) {
  ENTER("hipDeviceGetAttribute");
  if (value == NULL) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  int64_t answer = attribute_of(number);
  if (answer < 0) return INVALID_VALUE;
  *value = (int)answer;
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipDeviceTotalMem(size_t *bytes, int device) {
  ENTER("hipDeviceTotalMem");
  if (bytes == NULL) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  *bytes = (size_t)double_number("memory", INT64_C(206141652992));
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipDeviceGetPCIBusId(char *text, int capacity, int device) {
  ENTER("hipDeviceGetPCIBusId");
  if (text == NULL || capacity < 13) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  (void)snprintf(text, (size_t)capacity, "0000:%02X:00.0", 0x0c + (unsigned)device);
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipSetDevice(int device) {
  ENTER("hipSetDevice");
  if (!is_device(device)) return INVALID_DEVICE;
  current_device = device;
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipGetDevice(int *device) {
  ENTER("hipGetDevice");
  if (device == NULL) return INVALID_VALUE;
  *device = current_device;
  return SUCCESS;
}

DOUBLE_EXPORT hipError_t hipDeviceSynchronize(void) {
  ENTER("hipDeviceSynchronize");
  return SUCCESS;
}

/* One translation unit in several files, so that each can be read in one sitting and the build stays one command. */
#include "hip_memory.h"
#include "hip_run.h"
