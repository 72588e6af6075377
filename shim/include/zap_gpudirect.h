/* GPUDirect RDMA: a network card that writes into GPU memory. So far a probe that says that there is nothing more. */
#ifndef ZAP_GPUDIRECT_H
#define ZAP_GPUDIRECT_H

#include "zap_shim.h"

/* ZAP_ABI_VERSION of this library. Its meaning never changes. */
ZAP_EXPORT uint32_t zap_gpudirect_abi(void);

/* The text of this thread's last failure, cut to `capacity` bytes with the final zero; returns its length. */
ZAP_EXPORT int32_t zap_gpudirect_error(char *text, uint32_t capacity);

/* Fills at most `capacity` rows and returns their number. Fails only for arguments that cannot be used. */
ZAP_EXPORT int32_t zap_gpudirect_probe(zap_prerequisite *rows, uint32_t capacity);

#endif
