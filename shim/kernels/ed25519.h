/*
 * Batches of Ed25519 signatures, on the CPU and as a CUDA kernel: one source for both, in ed25519/. Start reading at ed25519/verify.h;
 * ed25519/codes.h has the codes and the layout of a batch.
 */
#ifndef ZAP_ED25519_H
#define ZAP_ED25519_H

#include <stdint.h>

#include "ed25519/codes.h"

/* One code for each of `count` items, whose parts lie in the `size` bytes from `bytes` on. `table` is aligned to 4 bytes. */
void zap_verify_ed25519_host(const uint8_t *bytes, uint64_t size, const uint32_t *table, uint8_t *codes, uint32_t count);

#endif
