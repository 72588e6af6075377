/*
 * Test double of NVIDIA's driver library, libcuda.so.1. It is no driver and reaches no device: memory is host memory, and a
 * "kernel" is the host's build of one of this project's own. What it does is set by `double.conf` beside it (README.md).
 *
 * It is stricter than a driver where a driver is forgiving: what a program may not rely on, fails or is reported as a fault.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "double.h"
#include "kernels.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX_VERSION = 222,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  CONTEXT_IS_DESTROYED = 709,
  HOST_MEMORY_ALREADY_REGISTERED = 712,
  HOST_MEMORY_NOT_REGISTERED = 713,
  NOT_SUPPORTED = 801
};

enum { DEVICES_MAX = 8, STACK_MAX = 8 };

typedef struct context {
  uint32_t retains;
  CUdevice device;
} context;

static context contexts[DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
/* The first error of a kernel: every later call answers it, as with a real context that is corrupt. */
static CUresult sticky;

static _Thread_local context *stack[STACK_MAX];
static _Thread_local uint32_t depth; /* number of entries; the top is the current context */

static context *current(void) { return depth == 0 ? NULL : stack[depth - 1]; }

static CUresult enter(const char *call) {
  CUresult code = (CUresult)double_enter(call);
  if (code != SUCCESS) return code;
  return initialized ? SUCCESS : NOT_INITIALIZED;
}

/* For calls that need a current context, which all that handle memory, streams and kernels do. */
static CUresult enter_context(const char *call) {
  CUresult code = enter(call);
  if (code != SUCCESS) return code;
  context *now = current();
  if (now == NULL) {
    double_report("fault: %s without a current context", call);
    return INVALID_CONTEXT;
  }
  if (now->retains == 0) {
    double_report("fault: %s after its context was released", call);
    return CONTEXT_IS_DESTROYED;
  }
  return __atomic_load_n(&sticky, __ATOMIC_RELAXED);
}

#define ENTER(call)                                         \
  do {                                                      \
    CUresult entered = enter(call);                         \
    if (entered != SUCCESS) return entered;                 \
  } while (0)
#define ENTER_CONTEXT(call)                                 \
  do {                                                      \
    CUresult entered = enter_context(call);                 \
    if (entered != SUCCESS) return entered;                 \
  } while (0)

static int device_count(void) {
  int64_t count = double_number("devices", 1);
  return count < 0 ? 0 : count > DEVICES_MAX ? DEVICES_MAX : (int)count;
}
static bool is_device(CUdevice device) { return device >= 0 && device < device_count(); }
static int driver_version(void) { return (int)double_number("driver", 12080); }

#include "cuda_tables.h"

/* What a device answers, the behaviour file first. -1 where this driver does not know the number. */
static int64_t attribute_of(int number) {
  int64_t set = double_number_of("attribute", number, -1);
  if (set >= 0) return set;
  for (size_t at = 0; at < sizeof attributes / sizeof attributes[0]; at++) {
    if (attributes[at].number == number) return driver_version() < attributes[at].since ? -1 : attributes[at].value;
  }
  return number >= 1 && number < 124 ? 0 : -1;
}

/* ---- errors ---- */

static CUresult error_text(CUresult code, const char **out, bool name) {
  if (out == NULL) return INVALID_VALUE;
  *out = NULL;
  for (size_t at = 0; at < sizeof errors / sizeof errors[0]; at++) {
    if (errors[at].code == code) *out = name ? errors[at].name : errors[at].text;
  }
  return *out == NULL ? INVALID_VALUE : SUCCESS;
}
DOUBLE_EXPORT CUresult cuDriverGetVersion(int *version);
DOUBLE_EXPORT CUresult cuGetErrorName(CUresult code, const char **out) { return error_text(code, out, true); }
DOUBLE_EXPORT CUresult cuGetErrorString(CUresult code, const char **out) { return error_text(code, out, false); }

/* ---- devices and their primary contexts ---- */

/* A double of libibverbs in this process finds zap_double_cuda_backing by its name alone. */
static void show_to_all(void) {
  Dl_info here;
  if (dladdr((void *)(uintptr_t)&cuDriverGetVersion, &here) != 0 && here.dli_fname != NULL)
    (void)dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

DOUBLE_EXPORT CUresult cuInit(unsigned flags) {
  double_settings_read();
  CUresult code = (CUresult)double_enter("cuInit");
  if (code != SUCCESS) return code;
  if (flags != 0) return INVALID_VALUE;
  if (device_count() == 0) return NO_DEVICE;
  initialized = true;
  show_to_all();
  double_memory_strict(attribute_of(89) == 0);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDriverGetVersion(int *version) {
  CUresult code = (CUresult)double_enter("cuDriverGetVersion");
  if (code != SUCCESS) return code;
  if (version == NULL) return INVALID_VALUE;
  *version = driver_version();
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER("cuDeviceGetCount");
  if (count == NULL) return INVALID_VALUE;
  *count = device_count();
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER("cuDeviceGet");
  if (device == NULL) return INVALID_VALUE;
  if (!is_device(ordinal)) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGetName(char *name, int capacity, CUdevice device) {
  ENTER("cuDeviceGetName");
  if (name == NULL || capacity <= 0) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  (void)snprintf(name, (size_t)capacity, "%s", double_text("name", "NVIDIA Double"));
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device) {
  ENTER("cuDeviceGetAttribute");
  if (value == NULL) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  int64_t answer = attribute_of(number);
  if (answer < 0) return INVALID_VALUE;
  *value = (int)answer;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER("cuDeviceTotalMem_v2");
  if (bytes == NULL) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  *bytes = (size_t)double_number("memory", INT64_C(150121545728));
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDeviceGetPCIBusId(char *text, int capacity, CUdevice device) {
  ENTER("cuDeviceGetPCIBusId");
  if (text == NULL || capacity < 13) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  unsigned domain = (unsigned)attribute_of(50) & 0xffff;
  unsigned bus = ((unsigned)attribute_of(33) + (unsigned)device) & 0xff;
  (void)snprintf(text, (size_t)capacity, "%04X:%02X:%02X.0", domain, bus, (unsigned)attribute_of(34) & 0xff);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDevicePrimaryCtxRetain(context **out, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain");
  if (out == NULL) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  pthread_mutex_lock(&lock);
  contexts[device].device = device;
  contexts[device].retains += 1;
  *out = &contexts[device];
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

static void things_free_all(context *owner, uint32_t counts[]);

/* Waits, then takes away everything that is left, as the end of a context does; and says what was left. */
static void context_end(context *ended) {
  uint32_t counts[4] = {0};
  uint64_t bytes = 0;
  double_drain();
  double_memory_settled();
  things_free_all(ended, counts);
  uint32_t blocks = double_memory_free_all(ended, &bytes);
  sticky = SUCCESS;
  double_report("release device=%d blocks=%u bytes=%llu streams=%u events=%u modules=%u faults=%llu", ended->device, blocks,
                (unsigned long long)bytes, counts[0], counts[1], counts[2], (unsigned long long)double_faults());
}

DOUBLE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER("cuDevicePrimaryCtxRelease_v2");
  if (!is_device(device)) return INVALID_DEVICE;
  pthread_mutex_lock(&lock);
  bool held = contexts[device].retains > 0;
  bool last = held && --contexts[device].retains == 0;
  pthread_mutex_unlock(&lock);
  if (!held) {
    double_report("fault: cuDevicePrimaryCtxRelease_v2 without a retain");
    return INVALID_CONTEXT;
  }
  if (last) context_end(&contexts[device]);
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  ENTER("cuDevicePrimaryCtxGetState");
  if (flags == NULL || active == NULL) return INVALID_VALUE;
  if (!is_device(device)) return INVALID_DEVICE;
  *flags = 0;
  *active = contexts[device].retains > 0;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  ENTER("cuDevicePrimaryCtxSetFlags_v2");
  if (!is_device(device)) return INVALID_DEVICE;
  return flags > 0x1ff ? INVALID_VALUE : SUCCESS;
}

static bool is_context(const context *one) { return one >= contexts && one < contexts + DEVICES_MAX; }

DOUBLE_EXPORT CUresult cuCtxSetCurrent(context *one) {
  ENTER("cuCtxSetCurrent");
  if (one != NULL && !is_context(one)) return INVALID_CONTEXT;
  if (one != NULL && one->retains == 0) {
    double_report("fault: cuCtxSetCurrent of a released context");
    return CONTEXT_IS_DESTROYED;
  }
  if (one == NULL) {
    if (depth > 0) depth -= 1;
  } else {
    if (depth == 0) depth = 1;
    stack[depth - 1] = one;
  }
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxGetCurrent(context **out) {
  ENTER("cuCtxGetCurrent");
  if (out == NULL) return INVALID_VALUE;
  *out = current();
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxPushCurrent_v2(context *one) {
  ENTER("cuCtxPushCurrent_v2");
  if (!is_context(one) || one->retains == 0 || depth == STACK_MAX) return INVALID_CONTEXT;
  stack[depth++] = one;
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxPopCurrent_v2(context **out) {
  ENTER("cuCtxPopCurrent_v2");
  if (depth == 0) return INVALID_CONTEXT;
  depth -= 1;
  if (out != NULL) *out = stack[depth];
  return SUCCESS;
}

DOUBLE_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER_CONTEXT("cuCtxGetDevice");
  if (device == NULL) return INVALID_VALUE;
  *device = current()->device;
  return SUCCESS;
}

/* One translation unit in several files, so that each can be read in one sitting and the build stays one command. */
#include "cuda_memory.h"
#include "cuda_run.h"
#include "cuda_launch.h"
