/*
 * Memory that a device may write to: one registration of a whole area, by one of the methods of zap_gpudirect.h, and what to say where it
 * fails. No global state.
 */
#ifndef ZAP_RDMA_REGISTRATION_H
#define ZAP_RDMA_REGISTRATION_H

#include "verbs.h"
#include "zap_gpudirect.h"

struct zap_area {
  uint64_t address; /* of the GPU's own memory: its device address, which is what the NIC is told as well */
  uint64_t bytes;
  uint32_t method; /* enum zap_gpudirect_method, not 0 */
  int32_t dma_buf; /* of DMA_BUF: a descriptor of all of it, from its start on */
};

/* "dma-buf"; "" where that is none. */
const char *zap_method_name(uint32_t method);

/*
 * Registers it. The failure's text names the call, the errno, size, address, method and the likely cause; status ZAP_E_UNSUPPORTED where
 * device, driver or libibverbs cannot at all. `device` is the name of the RDMA device.
 */
int32_t zap_register_area(const struct zap_verbs *verbs, struct ibv_pd *pd, const char *device, const struct zap_area *area, int access,
                          struct ibv_mr **region);

/* Whether an area can be what it is said to be: address, size, method, descriptor. ZAP_E_INVALID where not. */
int32_t zap_check_area(const struct zap_area *area);

#endif
