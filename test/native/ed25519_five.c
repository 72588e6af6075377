#include "ed25519_both.h"

#define ZAP_FIELD_LIMBS 5
#include "../../shim/kernels/ed25519/verify.c"

void ed25519_five(const uint8_t *bytes, uint64_t size, const uint32_t *table, uint8_t *codes, uint32_t count) {
  for (uint32_t at = 0; at < count; at++) codes[at] = zap_ed25519_item(bytes, size, table + (uint64_t)at * ZAP_TABLE_STRIDE);
}
