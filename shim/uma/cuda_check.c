/* Checks of headers on the GPU. What a kernel reads and writes beside the messages lies in page-locked memory, and is kept. */
#include <stdlib.h>
#include <string.h>

#include "../kernels/embedded.h"
#include "cuda.h"

#define BLOCK 128u
/* The smallest staging; each has room for a power of two of spans. */
#define FEWEST 256u

/* `capacity` targets, and behind them as many verdicts. */
struct zap_cuda_staging {
  struct zap_cuda_staging *next;
  uint32_t capacity;
  uint32_t count; /* of the check that has it */
  void *host;
  CUdeviceptr device;
  CUevent event;
};

void zap_cuda_load_kernel(struct zap_cuda *cuda) {
  const char *call = "cuModuleLoadData";
  CUresult code = ZAP_CUDA(&cuda->api, cuModuleLoadData, &cuda->module, zap_check_ptx);
  if (code != CUDA_SUCCESS) {
    cuda->module = NULL;
  } else {
    call = "cuModuleGetFunction";
    code = ZAP_CUDA(&cuda->api, cuModuleGetFunction, &cuda->kernel, cuda->module, "zap_check_headers");
  }
  if (code == CUDA_SUCCESS) {
    /* A driver that takes this one takes the larger ones, too. */
    cuda->flags |= ZAP_UMA_KERNELS | ZAP_UMA_VERIFY;
  } else {
    (void)zap_cuda_fail(&cuda->api, call, code);
    zap_text_copy(cuda->no_kernels, sizeof cuda->no_kernels, zap_failure());
  }
}

static void free_staging(struct zap_cuda *cuda, struct zap_cuda_staging *staging) {
  if (staging->event != NULL) (void)ZAP_CUDA(&cuda->api, cuEventDestroy_v2, staging->event);
  if (staging->host != NULL) (void)ZAP_CUDA(&cuda->api, cuMemFreeHost, staging->host);
  free(staging);
}

void zap_cuda_unload_kernel(struct zap_cuda *cuda) {
  while (cuda->spare != NULL) {
    struct zap_cuda_staging *staging = cuda->spare;
    cuda->spare = staging->next;
    free_staging(cuda, staging);
  }
  if (cuda->module != NULL) (void)ZAP_CUDA(&cuda->api, cuModuleUnload, cuda->module);
  cuda->module = NULL;
}

static int32_t new_staging(struct zap_cuda *cuda, uint32_t count, struct zap_cuda_staging **out) {
  struct zap_cuda_staging *staging = calloc(1, sizeof *staging);
  if (staging == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a check");
  staging->capacity = FEWEST;
  while (staging->capacity < count) staging->capacity *= 2;
  size_t bytes = staging->capacity * (sizeof(struct zap_target) + 1);
  const char *call = "cuMemHostAlloc";
  CUresult code =
      ZAP_CUDA(&cuda->api, cuMemHostAlloc, &staging->host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (code != CUDA_SUCCESS) {
    staging->host = NULL;
  } else {
    call = "cuMemHostGetDevicePointer_v2";
    code = ZAP_CUDA(&cuda->api, cuMemHostGetDevicePointer_v2, &staging->device, staging->host, 0);
  }
  if (code == CUDA_SUCCESS) {
    call = "cuEventCreate";
    code = ZAP_CUDA(&cuda->api, cuEventCreate, &staging->event, CU_EVENT_DISABLE_TIMING);
    if (code != CUDA_SUCCESS) staging->event = NULL;
  }
  if (code != CUDA_SUCCESS) {
    int32_t status = zap_cuda_fail(&cuda->api, call, code);
    free_staging(cuda, staging);
    return status;
  }
  *out = staging;
  return ZAP_OK;
}

static int32_t take_staging(struct zap_cuda *cuda, uint32_t count, struct zap_cuda_staging **out) {
  for (struct zap_cuda_staging **link = &cuda->spare; *link != NULL; link = &(*link)->next) {
    if ((*link)->capacity < count) continue;
    *out = *link;
    *link = (*out)->next;
    return ZAP_OK;
  }
  return new_staging(cuda, count, out);
}

static void keep_staging(struct zap_cuda *cuda, struct zap_cuda_staging *staging) {
  staging->next = cuda->spare;
  cuda->spare = staging;
}

int32_t zap_cuda_wait(void *state) {
  struct zap_cuda *cuda = state;
  CUresult code = ZAP_CUDA(&cuda->api, cuStreamSynchronize, cuda->stream);
  return code == CUDA_SUCCESS ? ZAP_OK : zap_cuda_fail(&cuda->api, "cuStreamSynchronize", code);
}

int32_t zap_cuda_check_begin(void *state, const struct zap_batch *batch, void **running) {
  struct zap_cuda *cuda = state;
  struct zap_cuda_staging *staging = NULL;
  int32_t status = take_staging(cuda, batch->count, &staging);
  if (status < 0) return status;
  staging->count = batch->count;
  memcpy(staging->host, batch->targets, batch->count * sizeof *batch->targets);

  CUdeviceptr targets = staging->device;
  uint64_t versions = batch->versions;
  CUdeviceptr verdicts = staging->device + staging->capacity * sizeof(struct zap_target);
  uint32_t count = batch->count;
  void *parameters[] = {&targets, &versions, &verdicts, &count};
  CUresult code = ZAP_CUDA(&cuda->api, cuLaunchKernel, cuda->kernel, (count + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0,
                           cuda->stream, parameters, NULL);
  if (code != CUDA_SUCCESS) {
    status = zap_cuda_fail(&cuda->api, "cuLaunchKernel", code);
    keep_staging(cuda, staging);
    return status;
  }
  code = ZAP_CUDA(&cuda->api, cuEventRecord, staging->event, cuda->stream);
  if (code != CUDA_SUCCESS) {
    /* It runs, and there is no other way to learn when it has ended. */
    (void)ZAP_CUDA(&cuda->api, cuStreamSynchronize, cuda->stream);
    status = zap_cuda_fail(&cuda->api, "cuEventRecord", code);
    keep_staging(cuda, staging);
    return status;
  }
  *running = staging;
  return ZAP_OK;
}

int32_t zap_cuda_check_poll(void *state, void *running, uint8_t *verdicts) {
  struct zap_cuda *cuda = state;
  struct zap_cuda_staging *staging = running;
  CUresult code = ZAP_CUDA(&cuda->api, cuEventQuery, staging->event);
  if (code == CUDA_ERROR_NOT_READY) return ZAP_E_AGAIN;
  int32_t status = ZAP_OK;
  if (code == CUDA_SUCCESS) {
    memcpy(verdicts, (uint8_t *)staging->host + staging->capacity * sizeof(struct zap_target), staging->count);
  } else {
    status = zap_cuda_fail(&cuda->api, "cuEventQuery", code);
  }
  keep_staging(cuda, staging);
  return status;
}

void zap_cuda_check_drop(void *state, void *running) { keep_staging(state, running); }
