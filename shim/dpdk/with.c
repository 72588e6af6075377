/* A build against the host's libdpdk. Asking for its version starts nothing. */
#include <rte_config.h>
#include <rte_version.h>

#include "built.h"

void zap_dpdk_built(struct zap_rows *rows) {
  /* The loader holds the two to the same ABI; the releases may differ. */
  zap_row(rows, ZAP_DPDK_BUILT, true, NULL, "built with %s, runs with %s", RTE_VER_PREFIX " " ZAP_DPDK_RELEASE, rte_version());
}
