/* What the parts of the CUDA backend share: cuda.c, cuda_memory.c, cuda_check.c, cuda_verify.c. */
#ifndef ZAP_CUDA_H
#define ZAP_CUDA_H

#include "cuda_driver.h"

struct zap_cuda {
  struct zap_cuda_api api;
  CUdevice device;
  CUcontext context; /* the device's primary one, which other libraries in this process share */
  CUstream stream;   /* the only one: what it has done, all has done */
  CUmodule module;   /* NULL where the device does not run our kernels */
  CUfunction kernel;
  CUmodule verify_module; /* NULL until a signature is to be verified */
  CUfunction verify_kernel;
  uint32_t flags; /* enum zap_uma_flag */
  uint32_t driver;
  char no_kernels[ZAP_TEXT_BYTES]; /* why not */
  struct zap_cuda_staging *spare;
};

int32_t zap_cuda_alloc(void *state, struct zap_piece *piece);
int32_t zap_cuda_register(void *state, struct zap_piece *piece);
int32_t zap_cuda_free(void *state, struct zap_piece *piece);
int32_t zap_cuda_export(void *state, const struct zap_piece *piece);
int32_t zap_cuda_copy_to_host(void *state, const struct zap_piece *piece, uint64_t offset, void *host, uint64_t bytes);

/* Loads the kernel. Sets ZAP_UMA_KERNELS, or says in `no_kernels` why not. */
void zap_cuda_load_kernel(struct zap_cuda *cuda);
/* Gives back the kernel and what checks left for the next ones. */
void zap_cuda_unload_kernel(struct zap_cuda *cuda);

int32_t zap_cuda_wait(void *state);
int32_t zap_cuda_check_begin(void *state, const struct zap_batch *batch, void **running);
int32_t zap_cuda_check_poll(void *state, void *running, uint8_t *verdicts);
void zap_cuda_check_drop(void *state, void *running);

/* The kernel is not loaded with the device: the driver takes seconds to compile it, and few devices are opened for it. */
int32_t zap_cuda_verify_load(void *state, uint32_t scheme);
int32_t zap_cuda_verify_begin(void *state, const struct zap_verification *batch, void **running);
int32_t zap_cuda_verify_poll(void *state, void *running);
void zap_cuda_verify_drop(void *state, void *running);
void zap_cuda_verify_unload(struct zap_cuda *cuda);

#endif
