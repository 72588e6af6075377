/* Signatures on the GPU: one thread for each. All that the kernel reads and writes is the caller's. */
#include <stdlib.h>

#include "../kernels/embedded.h"
#include "cuda.h"

/* The kernel takes some 170 registers for each thread: small blocks fill a multiprocessor better. */
#define BLOCK 64u

struct running {
  CUevent event;
};

int32_t zap_cuda_verify_load(void *state, uint32_t scheme) {
  (void)scheme; /* there is one */
  struct zap_cuda *cuda = state;
  if (cuda->verify_module != NULL) return ZAP_OK;
  CUmodule module = NULL;
  CUresult code = ZAP_CUDA(&cuda->api, cuModuleLoadData, &module, zap_verify_ptx);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuModuleLoadData", code);
  code = ZAP_CUDA(&cuda->api, cuModuleGetFunction, &cuda->verify_kernel, module, "zap_verify_ed25519");
  if (code != CUDA_SUCCESS) {
    int32_t status = zap_cuda_fail(&cuda->api, "cuModuleGetFunction", code);
    (void)ZAP_CUDA(&cuda->api, cuModuleUnload, module);
    return status;
  }
  cuda->verify_module = module;
  return ZAP_OK;
}

void zap_cuda_verify_unload(struct zap_cuda *cuda) {
  if (cuda->verify_module != NULL) (void)ZAP_CUDA(&cuda->api, cuModuleUnload, cuda->verify_module);
  cuda->verify_module = NULL;
}

void zap_cuda_verify_drop(void *state, void *running) {
  struct zap_cuda *cuda = state;
  struct running *one = running;
  (void)ZAP_CUDA(&cuda->api, cuEventDestroy_v2, one->event);
  free(one);
}

static int32_t launch(struct zap_cuda *cuda, const struct zap_verification *batch, CUevent event) {
  CUdeviceptr bytes = batch->bytes, table = batch->table, codes = batch->codes;
  uint64_t size = batch->size;
  uint32_t count = batch->count;
  void *parameters[] = {&bytes, &size, &table, &codes, &count};
  CUresult code = ZAP_CUDA(&cuda->api, cuLaunchKernel, cuda->verify_kernel, (count + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0,
                           cuda->stream, parameters, NULL);
  if (code != CUDA_SUCCESS) return zap_cuda_fail(&cuda->api, "cuLaunchKernel", code);
  code = ZAP_CUDA(&cuda->api, cuEventRecord, event, cuda->stream);
  if (code == CUDA_SUCCESS) return ZAP_OK;
  /* It runs, and there is no other way to learn when it has ended. */
  (void)ZAP_CUDA(&cuda->api, cuStreamSynchronize, cuda->stream);
  return zap_cuda_fail(&cuda->api, "cuEventRecord", code);
}

int32_t zap_cuda_verify_begin(void *state, const struct zap_verification *batch, void **running) {
  struct zap_cuda *cuda = state;
  int32_t status = zap_cuda_verify_load(cuda, batch->scheme);
  if (status < 0) return status;
  struct running *one = calloc(1, sizeof *one);
  if (one == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a verification");
  CUresult code = ZAP_CUDA(&cuda->api, cuEventCreate, &one->event, CU_EVENT_DISABLE_TIMING);
  if (code != CUDA_SUCCESS) {
    free(one);
    return zap_cuda_fail(&cuda->api, "cuEventCreate", code);
  }
  status = launch(cuda, batch, one->event);
  if (status < 0) zap_cuda_verify_drop(cuda, one);
  else *running = one;
  return status;
}

int32_t zap_cuda_verify_poll(void *state, void *running) {
  struct zap_cuda *cuda = state;
  struct running *one = running;
  CUresult code = ZAP_CUDA(&cuda->api, cuEventQuery, one->event);
  if (code == CUDA_ERROR_NOT_READY) return ZAP_E_AGAIN;
  int32_t status = code == CUDA_SUCCESS ? ZAP_OK : zap_cuda_fail(&cuda->api, "cuEventQuery", code);
  zap_cuda_verify_drop(cuda, one);
  return status;
}
