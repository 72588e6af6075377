/* DPDK: a network device driven from user space. So far a probe that says that there is nothing more. */
#ifndef ZAP_DPDK_H
#define ZAP_DPDK_H

#include "zap_shim.h"

/* ZAP_ABI_VERSION of this library. Its meaning never changes. */
ZAP_EXPORT uint32_t zap_dpdk_abi(void);

/* The text of this thread's last failure, cut to `capacity` bytes with the final zero; returns its length. */
ZAP_EXPORT int32_t zap_dpdk_error(char *text, uint32_t capacity);

/* Fills at most `capacity` rows and returns their number. Fails only for arguments that cannot be used. */
ZAP_EXPORT int32_t zap_dpdk_probe(zap_prerequisite *rows, uint32_t capacity);

#endif
