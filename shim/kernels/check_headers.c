#include "check_headers.h"

void zap_check_headers_host(const struct zap_target *targets, uint64_t versions, uint8_t *verdicts, uint32_t count) {
  for (uint32_t at = 0; at < count; at++) {
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)targets[at].address;
    verdicts[at] = zap_check_header(bytes, targets[at].length, versions);
  }
}
