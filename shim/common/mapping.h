/*
 * Memory for a node's region: hugepages, or ordinary pages. All of it is there when the call returns, so no later access waits for a page
 * or ends in SIGBUS. A forked child neither gets nor keeps it. Linux; no global state.
 */
#ifndef ZAP_MAPPING_H
#define ZAP_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

struct zap_mapping {
  void *at; /* zeros at first; aligned to its pages */
  uint64_t bytes;
  uint64_t page_bytes;
};

/*
 * Maps `bytes`, rounded up to whole pages. With `hugepages` these are the largest that the system has enough of and that waste no more
 * than an eighth of `bytes`, else those of the default size. Ordinary ones are locked where that is allowed. ZAP_E_INVALID for no bytes
 * or far too many; ZAP_E_UNSUPPORTED where the system has no hugepages; ZAP_E_MEMORY, for hugepages with a text that says what is
 * needed, what is free, and the command that reserves more; ZAP_E_SYSTEM. May take long: the kernel writes zeros to all of it.
 */
int32_t zap_mapping_make(uint64_t bytes, bool hugepages, struct zap_mapping *out);

/* Unmaps it; one of zeros is fine. */
void zap_mapping_drop(const struct zap_mapping *mapping);

#endif
