/* Whether this library was compiled against libdpdk: with.c and without.c, of which a build has one. */
#ifndef ZAP_DPDK_BUILT_H
#define ZAP_DPDK_BUILT_H

#include "../common/rows.h"

/* The name of its row. */
#define ZAP_DPDK_BUILT "DPDK in libzap_dpdk"

void zap_dpdk_built(struct zap_rows *rows);

#endif
