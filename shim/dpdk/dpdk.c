#include "zap_dpdk.h"

#include "built.h"

uint32_t zap_dpdk_abi(void) { return ZAP_ABI_VERSION; }

int32_t zap_dpdk_error(char *text, uint32_t capacity) { return zap_failure_copy(text, capacity); }

int32_t zap_dpdk_probe(zap_prerequisite *rows, uint32_t capacity) {
  if (rows == NULL || capacity == 0) return zap_fail(ZAP_E_INVALID, "a probe needs room for its rows");
  struct zap_rows seen = {.count = 0};
  zap_dpdk_built(&seen);
  return (int32_t)zap_rows_copy(&seen, rows, capacity);
}
