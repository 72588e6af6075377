/* Where there is no RDMA to be had (the verbs are Linux's): every verb says so. */
#include "zap_gpudirect.h"

#include "../common/rows.h"

uint32_t zap_gpudirect_abi(void) { return ZAP_ABI_VERSION; }

int32_t zap_gpudirect_error(char *text, uint32_t capacity) { return zap_failure_copy(text, capacity); }

static int32_t none(void) { return zap_fail(ZAP_E_UNSUPPORTED, "RDMA verbs are there on Linux alone"); }

int32_t zap_gpudirect_probe(const char *runtime, const char *device, uint32_t port, int32_t gid_index, zap_prerequisite *rows,
                             uint32_t capacity) {
  if (runtime == NULL || device == NULL || rows == NULL || capacity == 0)
    return zap_fail(ZAP_E_INVALID, "a probe needs the path of libibverbs, a device or none, and room for its rows");
  (void)port, (void)gid_index;
  struct zap_rows seen = {.count = 0};
  zap_row(&seen, "ibverbs", false, "Needs Linux.", "there are no RDMA verbs on this system");
  return (int32_t)zap_rows_copy(&seen, rows, capacity);
}

int32_t zap_gpudirect_probe_memory(const char *runtime, const char *device, uint32_t method, uint64_t address, uint64_t bytes,
                                   int32_t dma_buf_fd) {
  (void)runtime, (void)device, (void)method, (void)address, (void)bytes, (void)dma_buf_fd;
  return none();
}

int32_t zap_gpudirect_open(const zap_gpudirect_settings *settings) {
  (void)settings;
  return none();
}

int32_t zap_gpudirect_opened(int32_t handle, zap_gpudirect_node *node) {
  (void)handle, (void)node;
  return none();
}

int32_t zap_gpudirect_close(int32_t handle) {
  (void)handle;
  return none();
}

int32_t zap_gpudirect_closed(int32_t handle) {
  (void)handle;
  return none();
}

int32_t zap_gpudirect_region_free(int32_t region) {
  (void)region;
  return none();
}

int32_t zap_gpudirect_flow_begin(int32_t handle, zap_gpudirect_offer *offer) {
  (void)handle, (void)offer;
  return none();
}

int32_t zap_gpudirect_flow_accept(int32_t handle, uint32_t flow, const zap_gpudirect_offer *offer) {
  (void)handle, (void)flow, (void)offer;
  return none();
}

int32_t zap_gpudirect_flow_close(int32_t handle, uint32_t flow) {
  (void)handle, (void)flow;
  return none();
}

int32_t zap_gpudirect_flow_abort(int32_t handle, uint32_t flow) {
  (void)handle, (void)flow;
  return none();
}

int32_t zap_gpudirect_kick(int32_t handle) {
  (void)handle;
  return none();
}

int32_t zap_gpudirect_stats_read(int32_t handle, zap_gpudirect_stats *stats) {
  (void)handle, (void)stats;
  return none();
}

int32_t zap_gpudirect_name(uint32_t list, uint32_t index, char *text, uint32_t capacity) {
  (void)list, (void)index, (void)text, (void)capacity;
  return none();
}

int32_t zap_gpudirect_live(void) { return 0; }
