/* A build that has no DPDK, as packages for other hosts are. */
#include "built.h"

void zap_dpdk_built(struct zap_rows *rows) {
  zap_row(rows, ZAP_DPDK_BUILT, false, "On a host with libdpdk-dev, in a checkout of the library's repository:\nbun run build",
          "built without DPDK");
}
