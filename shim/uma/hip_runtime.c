#include "hip_runtime.h"

#include "../common/library.h"

#define MINIMUM "the HIP runtime of ROCm 5.0 or a newer one"

int32_t zap_hip_load(const char *path, struct zap_hip_api *api) {
#define REQUIRED(name, parameters) {#name, offsetof(struct zap_hip_api, name), false},
#define OPTIONAL(name, parameters) {#name, offsetof(struct zap_hip_api, name), true},
  static const struct zap_symbol symbols[] = {ZAP_HIP_REQUIRED(REQUIRED) ZAP_HIP_OPTIONAL(OPTIONAL) REQUIRED(hipGetErrorName, )
                                                  REQUIRED(hipGetErrorString, )};
#undef REQUIRED
#undef OPTIONAL
  void *library = NULL;
  zap_calling("opening libamdhip64.so");
  int32_t status = zap_library_open(path, &library);
  if (status < 0) return status;
  /* Not closed where a function is missing: this library starts others as it is loaded, and they do not survive their end. */
  return zap_library_fill(library, path, MINIMUM, symbols, sizeof symbols / sizeof symbols[0], api);
}

static int32_t status_of(hipError_t code) {
  switch (code) {
    case hipErrorOutOfMemory: return ZAP_E_MEMORY;
    case hipErrorNoDevice:
    case hipErrorInvalidDevice: return ZAP_E_DEVICE;
    case hipErrorNotSupported: return ZAP_E_UNSUPPORTED;
    default: return ZAP_E_DRIVER;
  }
}

static const char *advice_for(hipError_t code) {
  switch (code) {
    case hipErrorOutOfMemory: return "ask for less (ZAP_UMA_POOL_BYTES), or free memory: rocm-smi --showpids shows who has it";
    case hipErrorInsufficientDriver: return "update the amdgpu driver to one that fits this ROCm";
    case hipErrorNotInitialized:
    case hipErrorNoDevice:
      return "rocminfo must list a GPU, this user must be able to open /dev/kfd and /dev/dri/renderD* (groups render and video), "
             "and neither HIP_VISIBLE_DEVICES nor ROCR_VISIBLE_DEVICES may hide it";
    case hipErrorInvalidDevice: return "rocminfo lists the GPUs that there are";
    case hipErrorNoBinaryForGpu: return "this ROCm does not support the GPU";
    case hipErrorOperatingSystem: return "look at dmesg and at this process's limits (ulimit -l)";
    case hipErrorHostMemoryAlreadyRegistered: return "somebody in this process has registered that memory before";
    case hipErrorHostMemoryNotRegistered: return "somebody else in this process has unregistered that memory";
    case hipErrorNotSupported: return "this GPU, driver or ROCm cannot do that";
    default: return "look at dmesg and rocm-smi; after an update of the driver, restart the host";
  }
}

int32_t zap_hip_fail(const struct zap_hip_api *api, const char *call, hipError_t code) {
  const char *name = api->hipGetErrorName(code);
  const char *text = api->hipGetErrorString(code);
  return zap_fail(status_of(code), "%s failed with %s (%d), %s: %s", call, name == NULL ? "an error without a name" : name, code,
                  text == NULL ? "unknown" : text, advice_for(code));
}
