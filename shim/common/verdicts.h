/* The short and stable names of what is wrong with a header, for counters: one list for every wire that drops messages. */
#ifndef ZAP_VERDICTS_H
#define ZAP_VERDICTS_H

#include <stddef.h>
#include <stdint.h>

#include "../kernels/check_headers.h"

/* NULL beyond the last one. */
static inline const char *zap_verdict_name(uint32_t verdict) {
  static const char *const names[] = {
      [ZAP_VERDICT_OK] = "ok",
      [ZAP_VERDICT_SHORT] = "short",
      [ZAP_VERDICT_MAGIC] = "magic",
      [ZAP_VERDICT_VERSION] = "version",
      [ZAP_VERDICT_SIZE] = "size",
  };
  return verdict < sizeof names / sizeof *names ? names[verdict] : NULL;
}

#endif
