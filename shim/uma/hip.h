/* What the parts of the HIP backend share: hip.c, hip_memory.c. */
#ifndef ZAP_HIP_H
#define ZAP_HIP_H

#include "hip_runtime.h"

struct zap_hip {
  struct zap_hip_api api;
  int device;
  uint32_t flags; /* enum zap_uma_flag */
};

int32_t zap_hip_alloc(void *state, struct zap_piece *piece);
int32_t zap_hip_register(void *state, struct zap_piece *piece);
int32_t zap_hip_free(void *state, struct zap_piece *piece);
int32_t zap_hip_export(void *state, const struct zap_piece *piece);
int32_t zap_hip_copy_to_host(void *state, const struct zap_piece *piece, uint64_t offset, void *host, uint64_t bytes);

#endif
