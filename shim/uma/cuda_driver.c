#include "cuda_driver.h"

#include "../common/library.h"

#define MINIMUM "the driver of CUDA 11.0 (450.36) or a newer one"

int32_t zap_cuda_load(const char *path, struct zap_cuda_api *api) {
#define REQUIRED(name, parameters) {#name, offsetof(struct zap_cuda_api, name), false},
#define OPTIONAL(name, parameters) {#name, offsetof(struct zap_cuda_api, name), true},
  static const struct zap_symbol symbols[] = {ZAP_CUDA_REQUIRED(REQUIRED) ZAP_CUDA_OPTIONAL(OPTIONAL)};
#undef REQUIRED
#undef OPTIONAL
  void *library = NULL;
  zap_calling("opening libcuda.so.1");
  int32_t status = zap_library_open(path, &library);
  if (status < 0) return status;
  status = zap_library_fill(library, path, MINIMUM, symbols, sizeof symbols / sizeof symbols[0], api);
  if (status < 0) zap_library_close(library);
  return status;
}

static int32_t status_of(CUresult code) {
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY: return ZAP_E_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return ZAP_E_DEVICE;
    case CUDA_ERROR_NOT_SUPPORTED: return ZAP_E_UNSUPPORTED;
    default: return ZAP_E_DRIVER;
  }
}

static const char *advice_for(CUresult code) {
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY: return "ask for less (ZAP_UMA_POOL_BYTES), or free memory: nvidia-smi shows who has it";
    case CUDA_ERROR_DEINITIALIZED: return "this process is ending";
    case CUDA_ERROR_STUB_LIBRARY: return "this libcuda.so.1 is the CUDA toolkit's stub: take the driver's own";
    case CUDA_ERROR_INSUFFICIENT_DRIVER: return "update the NVIDIA driver";
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return "another process has the GPU to itself (nvidia-smi -c 0 ends that)";
    case CUDA_ERROR_NO_DEVICE: return "nvidia-smi must list a GPU, and CUDA_VISIBLE_DEVICES must not hide it";
    case CUDA_ERROR_INVALID_DEVICE: return "nvidia-smi lists the GPUs that there are";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX: return "the GPU is older than this library's kernels, which need compute capability 7.0";
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND: return "install the driver's libnvidia-ptxjitcompiler.so.1, in a container too";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: return "update the NVIDIA driver";
    case CUDA_ERROR_OPERATING_SYSTEM: return "look at dmesg and at this process's limits (ulimit -l)";
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: return "somebody in this process has registered that memory before";
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: return "somebody else in this process has unregistered that memory";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED: return "a kernel failed and took the device with it: close it and open it again";
    case CUDA_ERROR_NOT_PERMITTED: return "this user or container may not use the GPU that way";
    case CUDA_ERROR_SYSTEM_NOT_READY: return "start nvidia-fabricmanager, and see that it runs";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: return "libcuda.so.1 and the kernel's driver are of different versions: restart the host";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: return "take the forward-compatibility libcuda.so.1 out of LD_LIBRARY_PATH";
    default: return "look at dmesg and nvidia-smi; after an update of the driver, restart the host";
  }
}

int32_t zap_cuda_fail(const struct zap_cuda_api *api, const char *call, CUresult code) {
  const char *name = NULL, *text = NULL;
  if (api->cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) name = "an error without a name";
  if (api->cuGetErrorString(code, &text) != CUDA_SUCCESS || text == NULL) text = "unknown";
  return zap_fail(status_of(code), "%s failed with %s (%d), %s: %s", call, name, code, text, advice_for(code));
}
