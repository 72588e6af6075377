/* The verbs of a build against the host's libdpdk. Those that are questions start nothing. */
#include <rte_config.h>
#include <rte_version.h>

#include <string.h>

#include "built.h"
#include "node.h"

void zap_dpdk_built(struct zap_rows *rows) {
  /* The loader holds the two to the same ABI; the releases may differ. */
  zap_row(rows, ZAP_DPDK_BUILT, true, NULL, "built with %s, runs with %s", RTE_VER_PREFIX " " ZAP_DPDK_RELEASE, rte_version());
}

int32_t zap_dpdk_open(const zap_dpdk_settings *settings, const zap_dpdk_allowed *allow, uint32_t allowed) {
  return zap_node_open(settings, allow, allowed);
}

int32_t zap_dpdk_opened(int32_t handle, zap_dpdk_node *node) {
  if (node == NULL) return zap_fail(ZAP_E_INVALID, "there is no place for the node");
  return zap_service_opened(handle, &zap_node_kind, node);
}

int32_t zap_dpdk_close(int32_t handle) { return zap_service_close(handle, &zap_node_kind); }

int32_t zap_dpdk_closed(int32_t handle) { return zap_service_closed(handle, &zap_node_kind); }

int32_t zap_dpdk_region_free(int32_t handle) {
  struct zap_object *region = zap_handle_close(handle, ZAP_KIND_REGION);
  if (region == NULL) return ZAP_E_HANDLE;
  zap_object_release(region);
  return ZAP_OK;
}

static int32_t status_of(enum zap_flow_status status) {
  switch (status) {
    case ZAP_FLOW_OK: return ZAP_OK;
    case ZAP_FLOW_AGAIN: return zap_fail(ZAP_E_LIMIT, "too many dials at once");
    case ZAP_FLOW_MEMORY: return zap_fail(ZAP_E_MEMORY, "out of memory");
    default: return zap_fail(ZAP_E_INVALID, "a dial that cannot be made: number, node id or address");
  }
}

int32_t zap_dpdk_dial_begin(int32_t handle, const zap_dpdk_dial *dial) {
  if (dial == NULL || dial->number == 0 || dial->port == 0 || dial->id_length > sizeof dial->id)
    return zap_fail(ZAP_E_INVALID, "a dial needs a number, an address, and a node id of at most 60 bytes");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  struct zap_flow_address to = {.port = dial->port};
  struct zap_flow_id expected = {.length = dial->id_length};
  memcpy(to.ip, dial->ip, sizeof to.ip);
  memcpy(expected.bytes, dial->id, dial->id_length);
  uint64_t now;
  struct zap_endpoint *endpoint = zap_engine_visit(zap_node_engine(node), &now);
  enum zap_flow_status status = zap_endpoint_dial(endpoint, now, &to, dial->id_length == 0 ? NULL : &expected, dial->number);
  zap_engine_leave(zap_node_engine(node));
  zap_service_release(node);
  return status_of(status);
}

int32_t zap_dpdk_dial_cancel(int32_t handle, uint32_t number) {
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  uint64_t now;
  zap_endpoint_cancel(zap_engine_visit(zap_node_engine(node), &now), number);
  zap_engine_leave(zap_node_engine(node));
  zap_service_release(node);
  return ZAP_OK;
}

int32_t zap_dpdk_flow_close(int32_t handle, uint32_t flow) {
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  uint64_t now;
  struct zap_endpoint *endpoint = zap_engine_visit(zap_node_engine(node), &now);
  /* What was given to be sent before comes first. */
  while (zap_engine_take_sends(zap_node_engine(node))) continue;
  zap_endpoint_close(endpoint, now, flow);
  zap_engine_leave(zap_node_engine(node));
  zap_service_release(node);
  return ZAP_OK;
}

int32_t zap_dpdk_flow_abort(int32_t handle, uint32_t flow) {
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  uint64_t now;
  zap_endpoint_abort(zap_engine_visit(zap_node_engine(node), &now), flow);
  zap_engine_leave(zap_node_engine(node));
  zap_service_release(node);
  return ZAP_OK;
}

int32_t zap_dpdk_neighbour(int32_t handle, const uint8_t *ip, const uint8_t *mac) {
  if (ip == NULL || mac == NULL) return zap_fail(ZAP_E_INVALID, "a neighbour has an IP and a MAC address");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  struct zap_ip of;
  memcpy(of.bytes, ip, sizeof of.bytes);
  bool set = zap_neighbours_set(&zap_node_port(node)->neighbours, &of, mac);
  zap_service_release(node);
  return set ? ZAP_OK : zap_fail(ZAP_E_LIMIT, "there is no room for a further static neighbour");
}

int32_t zap_dpdk_stats_read(int32_t handle, zap_dpdk_stats *stats) {
  if (stats == NULL) return zap_fail(ZAP_E_INVALID, "there is no place for the counters");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  zap_engine_stats(zap_node_engine(node), stats);
  struct zap_port_stats port;
  if (zap_port_stats(zap_node_port(node), &port) == ZAP_OK) {
    stats->missed = port.missed;
    stats->no_buffers = port.no_buffers;
    stats->device_errors = port.errors_in + port.errors_out;
    stats->buffers_free = port.buffers_free;
    stats->link = port.link;
    stats->mbit = port.mbit;
  }
  zap_service_release(node);
  return ZAP_OK;
}

int32_t zap_dpdk_queue_read(int32_t handle, uint32_t number, zap_dpdk_queue *queue) {
  if (queue == NULL) return zap_fail(ZAP_E_INVALID, "there is no place for the counters");
  struct zap_service *node = zap_service_use(handle, &zap_node_kind);
  if (node == NULL) return ZAP_E_HANDLE;
  const struct zap_queue *of = zap_node_queue(node, number);
  if (of == NULL) {
    zap_service_release(node);
    return zap_fail(ZAP_E_INVALID, "the port has no queue %u", number);
  }
  struct zap_queue_stats seen;
  zap_queue_stats(of, &seen);
  *queue = (zap_dpdk_queue){
      .packets_in = seen.packets_in,
      .packets_out = seen.packets_out,
      .bytes_in = seen.bytes_in,
      .bytes_out = seen.bytes_out,
      .polls = seen.polls,
      .empty_polls = seen.empty_polls,
      .idles = seen.idles,
      .no_neighbour = seen.no_neighbour,
      .no_buffer = seen.no_buffer,
      .full = seen.full,
  };
  zap_service_release(node);
  return ZAP_OK;
}

static const char *name_of(uint32_t list, uint32_t index) {
  switch (list) {
    case ZAP_DPDK_FRAME: return index < ZAP_PACKET_VERDICTS ? zap_packet_name(index) : NULL;
    case ZAP_DPDK_DATAGRAM: return index < ZAP_DROPS ? zap_flow_drop_name(index) : NULL;
    case ZAP_DPDK_MESSAGE: return zap_engine_message_drop_name(index);
    case ZAP_DPDK_REASON: return zap_flow_reason_name(index);
    default: return NULL;
  }
}

int32_t zap_dpdk_name(uint32_t list, uint32_t index, char *text, uint32_t capacity) {
  if (text == NULL || capacity == 0) return zap_fail(ZAP_E_INVALID, "there is no place for a name");
  const char *name = name_of(list, index);
  zap_text_copy(text, capacity, name == NULL ? "" : name);
  return (int32_t)strlen(text);
}

int32_t zap_dpdk_live(void) { return zap_handles_live(); }
