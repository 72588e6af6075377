/* A build that has no DPDK, as packages for other hosts are: every verb says so. */
#include "built.h"
#include "zap_dpdk.h"

void zap_dpdk_built(struct zap_rows *rows) {
  zap_row(rows, ZAP_DPDK_BUILT, false, "On a host with libdpdk-dev, in a checkout of the library's repository:\nbun run build",
          "built without DPDK");
}

static int32_t none(void) { return zap_fail(ZAP_E_UNSUPPORTED, "this library was built without DPDK"); }

int32_t zap_dpdk_open(const zap_dpdk_settings *settings, const zap_dpdk_allowed *allow, uint32_t allowed) {
  (void)settings, (void)allow, (void)allowed;
  return none();
}

int32_t zap_dpdk_opened(int32_t handle, zap_dpdk_node *node) {
  (void)handle, (void)node;
  return none();
}

int32_t zap_dpdk_close(int32_t handle) {
  (void)handle;
  return none();
}

int32_t zap_dpdk_closed(int32_t handle) {
  (void)handle;
  return none();
}

int32_t zap_dpdk_region_free(int32_t region) {
  (void)region;
  return none();
}

int32_t zap_dpdk_dial_begin(int32_t handle, const zap_dpdk_dial *dial) {
  (void)handle, (void)dial;
  return none();
}

int32_t zap_dpdk_dial_cancel(int32_t handle, uint32_t number) {
  (void)handle, (void)number;
  return none();
}

int32_t zap_dpdk_flow_close(int32_t handle, uint32_t flow) {
  (void)handle, (void)flow;
  return none();
}

int32_t zap_dpdk_flow_abort(int32_t handle, uint32_t flow) {
  (void)handle, (void)flow;
  return none();
}

int32_t zap_dpdk_neighbour(int32_t handle, const uint8_t *ip, const uint8_t *mac) {
  (void)handle, (void)ip, (void)mac;
  return none();
}

int32_t zap_dpdk_stats_read(int32_t handle, zap_dpdk_stats *stats) {
  (void)handle, (void)stats;
  return none();
}

int32_t zap_dpdk_queue_read(int32_t handle, uint32_t number, zap_dpdk_queue *queue) {
  (void)handle, (void)number, (void)queue;
  return none();
}

int32_t zap_dpdk_name(uint32_t list, uint32_t index, char *text, uint32_t capacity) {
  (void)list, (void)index, (void)text, (void)capacity;
  return none();
}

int32_t zap_dpdk_live(void) { return 0; }
