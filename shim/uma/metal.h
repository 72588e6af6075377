/* What the parts of the Metal backend share: metal.c, metal_check.c. */
#ifndef ZAP_METAL_H
#define ZAP_METAL_H

#include "metal_objc.h"

struct zap_metal {
  struct zap_objc objc;
  id device;
  id queue;    /* nil where the device does not run our kernels */
  id pipeline; /* likewise */
  NSUInteger threads; /* of a group */
  uint32_t flags;     /* enum zap_uma_flag */
  char no_kernels[ZAP_TEXT_BYTES]; /* why not */
  struct zap_metal_check *running;
  struct zap_metal_check *spare;
};

/* A new buffer of shared storage, the caller's to release. `contents` is where the CPU sees it. */
int32_t zap_metal_buffer(struct zap_metal *metal, uint64_t bytes, id *buffer, void **contents);

/* Loads the kernel. Sets ZAP_UMA_KERNELS, or says in `no_kernels` why not. Needs a pool. */
void zap_metal_load_kernel(struct zap_metal *metal);
/* Gives back the kernel and what checks left for the next ones. Needs a pool. */
void zap_metal_unload_kernel(struct zap_metal *metal);

int32_t zap_metal_wait(void *state);
int32_t zap_metal_check_begin(void *state, const struct zap_batch *batch, void **running);
int32_t zap_metal_check_poll(void *state, void *running, uint8_t *verdicts);
void zap_metal_check_drop(void *state, void *running);

#endif
