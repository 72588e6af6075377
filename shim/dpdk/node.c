#include "node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_version.h>

#include "../common/fail.h"
#include "../common/mapping.h"
#include "eal.h"

#define STOP_MS 5000u

struct zap_node_region {
  struct zap_object object;
  struct zap_mapping mapping;
};

struct zap_node {
  struct zap_service service;
  zap_dpdk_node seen;
  /* The opening and closing thread's, but for the use of an open node. */
  zap_dpdk_settings settings;
  struct zap_flow_allowed *allow;
  uint32_t allowed;
  struct zap_node_region *region;
  struct zap_port *port;
  struct zap_engine *engine;
  struct zap_queue *queues[ZAP_PORT_QUEUES];
  uint16_t queue_count;
};

static void free_region(struct zap_object *object) {
  struct zap_node_region *region = (struct zap_node_region *)object;
  zap_mapping_drop(&region->mapping);
  free(region);
}

static void destroy(struct zap_service *service) {
  struct zap_node *node = (struct zap_node *)service;
  free(node->allow);
  free(node);
}

/* ---- opening ---- */

#define ADDRESSES 16

/* Cuts `text` at its commas, in place. */
static uint32_t cut_list(char *text, const char **words, uint32_t capacity) {
  uint32_t count = 0;
  for (char *rest = text, *word; count < capacity && (word = strsep(&rest, ",")) != NULL;)
    if (*word != 0) words[count++] = word;
  return count;
}

static int32_t start_environment(struct zap_node *node) {
  const zap_dpdk_settings *s = &node->settings;
  char pci[sizeof s->pci];
  const char *words[ADDRESSES];
  memcpy(pci, s->pci, sizeof pci);
  const struct zap_eal_settings settings = {
      .cpus = s->cpus[0] == 0 ? NULL : s->cpus,
      .pci = words,
      .pci_count = cut_list(pci, words, ADDRESSES),
      .memory_mib = s->memory_mib,
      .socket = s->socket,
      .hugepages = (s->flags & ZAP_DPDK_HUGEPAGES) != 0,
  };
  return zap_eal_start(&settings);
}

static uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

/* The fewest slots that always have room for what one call into the state machine can bring about. */
static uint32_t event_slots(const struct zap_flow_settings *flow) {
  uint32_t slots = 64;
  while (slots < 4 * (flow->flows + flow->dials) + 64) slots *= 2;
  return slots;
}

static void flow_settings(const struct zap_node *node, struct zap_flow_settings *flow) {
  const zap_dpdk_settings *s = &node->settings;
  *flow = (struct zap_flow_settings){
      .id.length = s->id_length,
      .allow = node->allow,
      .allowed = node->allowed,
      .strangers = (s->flags & ZAP_DPDK_STRANGERS) != 0,
      .dial_only = (s->flags & ZAP_DPDK_LISTEN) == 0,
      .message_bytes = s->message_bytes,
      .queue_messages = s->queue_messages,
      .queue_bytes = s->queue_bytes,
      .flows = s->flows == 0 ? 1024 : s->flows,
      .candidates = s->candidates,
      .handshake_us = s->handshake_ms * 1000,
      .keepalive_us = s->keepalive_ms * 1000,
      .dead_us = s->dead_ms * 1000,
      .close_us = s->close_ms * 1000,
  };
  flow->dials = flow->flows > 1024 ? 1024 : flow->flows < 64 ? 64 : flow->flows;
  memcpy(flow->id.bytes, s->id, s->id_length);
}

#define NUMA_NODES 8u

/* Where this thread's memory comes from. It is one of ours, so nobody else's does. */
static int32_t prefer(uint32_t socket) {
  const unsigned long mode = socket == 0 ? 0 : 1; /* MPOL_DEFAULT, MPOL_PREFERRED */
  unsigned long node = socket == 0 ? 0 : 1ul << (socket - 1);
  if (syscall(SYS_set_mempolicy, mode, socket == 0 ? NULL : &node, socket == 0 ? 0ul : sizeof node * 8) == 0 || socket == 0) return ZAP_OK;
  return zap_fail(ZAP_E_INVALID, "no memory can be had from NUMA node %u: %s", socket - 1, strerror(errno));
}

/* Where everything lies in the region. */
static int32_t lay_out(struct zap_node *node, const struct zap_flow_settings *flow) {
  const zap_dpdk_settings *s = &node->settings;
  zap_dpdk_node *seen = &node->seen;
  uint64_t ring = round_up(zap_ring_bytes(ZAP_DPDK_MESSAGES), 4096);
  seen->event_slots = event_slots(flow);
  uint64_t rings = 4 * ring + round_up(ZAP_RING_HEAD_BYTES + (uint64_t)seen->event_slots * ZAP_DPDK_EVENT_BYTES, 4096);
  bool huge = (s->flags & ZAP_DPDK_HUGEPAGES) != 0;
  node->region = calloc(1, sizeof *node->region);
  if (node->region == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a region");
  /* The page's size is known afterwards: as large as any that is likely. */
  uint64_t page = 2u << 20;
  uint64_t wanted = round_up(rings, page) + round_up(s->packet_area, page) + round_up(s->message_area, page) + round_up(s->pool_area, page);
  int32_t status = prefer(s->socket);
  if (status == ZAP_OK) status = zap_mapping_make(wanted, huge, &node->region->mapping);
  (void)prefer(0);
  if (status != ZAP_OK) {
    free(node->region);
    node->region = NULL;
    return status;
  }
  zap_object_init(&node->region->object, free_region);
  page = node->region->mapping.page_bytes;
  seen->address = (uint64_t)(uintptr_t)node->region->mapping.at;
  seen->bytes = node->region->mapping.bytes;
  seen->page_bytes = page;
  seen->handoff_offset = 0;
  seen->returns_offset = (uint32_t)ring;
  seen->sends_offset = (uint32_t)(2 * ring);
  seen->dones_offset = (uint32_t)(3 * ring);
  seen->events_offset = (uint32_t)(4 * ring);
  seen->packet_offset = round_up(rings, page < 4096 ? 4096 : page);
  /* With pages of a gigabyte the areas share them: only the device's part begins and ends at one. */
  seen->message_offset = seen->packet_offset + round_up(s->packet_area, 4096);
  seen->pool_offset = seen->message_offset + round_up(s->message_area, 4096);
  if (seen->pool_offset >= seen->bytes)
    return zap_fail(ZAP_E_INVALID, "%llu bytes are too few for packets, messages and a pool in pages of %llu", (unsigned long long)seen->bytes,
                    (unsigned long long)page);
  seen->pool_bytes = seen->bytes - seen->pool_offset;
  return ZAP_OK;
}

static int32_t open_port(struct zap_node *node) {
  const zap_dpdk_settings *s = &node->settings;
  zap_dpdk_node *seen = &node->seen;
  struct zap_port_settings settings = {
      .device = s->device,
      .region = (uint8_t *)node->region->mapping.at + seen->packet_offset,
      .region_bytes = seen->bytes - seen->packet_offset,
      .packet_bytes = seen->message_offset - seen->packet_offset,
      .page_bytes = seen->page_bytes,
      .mtu = s->mtu,
      .queues = s->queues,
      .slots = s->slots,
      .copy = (s->flags & ZAP_DPDK_COPY) != 0,
      .station = {.has4 = (s->flags & ZAP_DPDK_IP4) != 0, .has6 = (s->flags & ZAP_DPDK_IP6) != 0, .udp_port = s->udp_port},
      .prefix4 = s->prefix4,
      .prefix6 = s->prefix6,
      .has_gateway4 = (s->flags & ZAP_DPDK_GATEWAY4) != 0,
      .has_gateway6 = (s->flags & ZAP_DPDK_GATEWAY6) != 0,
      .gateway4 = zap_ip_from4(s->gateway4),
      .start_ms = s->start_ms,
  };
  memcpy(settings.station.ip4, s->ip4, sizeof s->ip4);
  memcpy(settings.station.ip6, s->ip6, sizeof s->ip6);
  memcpy(settings.gateway6.bytes, s->gateway6, sizeof s->gateway6);
  int32_t status = zap_port_open(&settings, &node->port);
  if (status != ZAP_OK) return status;
  const struct zap_port *port = node->port;
  seen->queues = port->queues;
  seen->own_memory = port->own_memory;
  seen->lends = port->chains;
  seen->buffers = port->buffers;
  seen->mtu = port->mtu;
  memcpy(seen->mac, port->station.mac, sizeof seen->mac);
  zap_text_copy(seen->driver, sizeof seen->driver, port->driver);
  zap_text_copy(seen->name, sizeof seen->name, port->name);
  zap_text_copy(seen->version, sizeof seen->version, rte_version());
  return ZAP_OK;
}

static int32_t make_engine(struct zap_node *node, struct zap_flow_settings *flow) {
  const zap_dpdk_settings *s = &node->settings;
  const zap_dpdk_node *seen = &node->seen;
  const struct zap_port *port = node->port;
  uint8_t *base = node->region->mapping.at;
  flow->payload_bytes = (uint32_t)port->longest - (port->station.has6 ? 20 : 0) - ZAP_FLOW_HEADER;
  node->seen.payload_bytes = flow->payload_bytes / 8 * 8;
  struct zap_engine_settings settings = {
      .flow = *flow,
      .handoff = (zap_ring *)(void *)(base + seen->handoff_offset),
      .returns = (zap_ring *)(void *)(base + seen->returns_offset),
      .sends = (zap_ring *)(void *)(base + seen->sends_offset),
      .dones = (zap_ring *)(void *)(base + seen->dones_offset),
      .events = (zap_ring *)(void *)(base + seen->events_offset),
      .event_slots = seen->event_slots,
      .memory = base + seen->packet_offset,
      .memory_bytes = seen->bytes - seen->packet_offset,
      .arena = base + seen->message_offset,
      .arena_bytes = seen->pool_offset - seen->message_offset,
      .receive_bytes = s->receive_bytes != 0 ? s->receive_bytes : 4u << 20,
      .total_bytes = s->total_bytes != 0 ? s->total_bytes : 256u << 20,
      .versions = s->versions != 0 ? s->versions : 1,
      .wake_fd = node->service.wake[0],
  };
  /* The queues keep their slots full, and each thread some more. */
  uint32_t busy = port->queues * (port->slots + 512u);
  if (!port->own_memory && port->buffers > busy) settings.adoptable = (port->buffers - busy) / 4 * 3;
  zap_ring *const rings[] = {settings.handoff, settings.returns, settings.sends, settings.dones};
  for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) (void)zap_ring_init(rings[i], ZAP_DPDK_MESSAGES);
  (void)zap_ring_init(settings.events, seen->event_slots);
  settings.events->entry_bytes = ZAP_DPDK_EVENT_BYTES;
  return zap_engine_create(&settings, &node->engine);
}

static int32_t start_queues(struct zap_node *node) {
  const zap_dpdk_settings *s = &node->settings;
  char cpus[sizeof s->queue_cpus];
  const char *words[ZAP_PORT_QUEUES];
  memcpy(cpus, s->queue_cpus, sizeof cpus);
  uint32_t named = cut_list(cpus, words, ZAP_PORT_QUEUES);
  for (uint16_t i = 0; i < node->port->queues; i++) {
    struct zap_queue_settings settings = {.cpu = -1, .idle = (enum zap_idle)s->idle, .sleep_us = s->sleep_us};
    if (i < named) {
      char *end;
      long cpu = strtol(words[i], &end, 10);
      if (*end != 0 || cpu < 0 || cpu > 65535) return zap_fail(ZAP_E_INVALID, "\"%.40s\" is no CPU's number", words[i]);
      settings.cpu = (int32_t)cpu;
    }
    zap_engine_queue(node->engine, i, &settings);
    int32_t status = zap_queue_start(node->port, i, &settings, &node->queues[i]);
    if (status != ZAP_OK) return status;
    node->queue_count = (uint16_t)(i + 1);
    zap_engine_add(node->engine, i, node->queues[i]);
  }
  return ZAP_OK;
}

/* Undoes what there is; a text that is set stays. What cannot be undone is left as it is, memory above all. */
static int32_t dismantle(struct zap_node *node) {
  int32_t status = ZAP_OK;
  while (node->queue_count > 0) {
    int32_t stopped = zap_queue_stop(node->queues[node->queue_count - 1], STOP_MS);
    if (stopped != ZAP_OK) {
      /* Its thread may still wake somebody: nothing of the node goes. */
      zap_object_keep(&node->service.object);
      return stopped;
    }
    node->queue_count--;
  }
  if (node->engine != NULL) zap_engine_end(node->engine);
  if (node->port != NULL) {
    status = zap_port_close(node->port, NULL);
    if (status == ZAP_E_TIMEOUT || status == ZAP_E_INVALID) return status;
    node->port = NULL;
  }
  zap_engine_destroy(node->engine);
  node->engine = NULL;
  if (node->region != NULL) zap_object_release(&node->region->object);
  node->region = NULL;
  return status;
}

static int32_t open_all(struct zap_service *service) {
  struct zap_node *node = (struct zap_node *)service;
  struct zap_flow_settings flow;
  flow_settings(node, &flow);
  int32_t status = start_environment(node);
  if (status == ZAP_OK) status = lay_out(node, &flow);
  if (status == ZAP_OK) status = open_port(node);
  if (status == ZAP_OK) status = make_engine(node, &flow);
  if (status == ZAP_OK) status = start_queues(node);
  if (status == ZAP_OK) {
    node->seen.region = zap_handle_open(ZAP_KIND_REGION, &node->region->object);
    if (node->seen.region < 0) status = node->seen.region;
  }
  if (status == ZAP_OK) return ZAP_OK;
  char text[ZAP_TEXT_BYTES];
  zap_text_copy(text, sizeof text, zap_failure());
  /* Whoever is late may still write there. */
  if (status == ZAP_E_TIMEOUT) node->region = NULL;
  (void)dismantle(node);
  return zap_fail(status, "%s", text);
}

static int32_t close_all(struct zap_service *service, bool unseen) {
  struct zap_node *node = (struct zap_node *)service;
  zap_engine_abort_all(node->engine);
  int32_t status = dismantle(node);
  if (unseen) zap_object_release(zap_handle_close(node->seen.region, ZAP_KIND_REGION));
  return status;
}

static void show(struct zap_service *service, void *out, int wake_fd) {
  zap_dpdk_node *seen = out;
  *seen = ((struct zap_node *)service)->seen;
  seen->wake_fd = wake_fd;
}

const struct zap_service_kind zap_node_kind = {
    .kind = ZAP_KIND_NODE, .open = open_all, .close = close_all, .show = show, .destroy = destroy};

static int32_t check(const zap_dpdk_settings *s, const zap_dpdk_allowed *allow, uint32_t allowed) {
  if (s == NULL) return zap_fail(ZAP_E_INVALID, "a node needs settings");
  if (memchr(s->device, 0, sizeof s->device) == NULL || memchr(s->pci, 0, sizeof s->pci) == NULL ||
      memchr(s->cpus, 0, sizeof s->cpus) == NULL || memchr(s->queue_cpus, 0, sizeof s->queue_cpus) == NULL)
    return zap_fail(ZAP_E_INVALID, "a text of the settings has no end");
  if (s->id_length == 0 || s->id_length > sizeof s->id) return zap_fail(ZAP_E_INVALID, "a node id has 1 to 60 bytes");
  if (!(s->flags & (ZAP_DPDK_IP4 | ZAP_DPDK_IP6))) return zap_fail(ZAP_E_INVALID, "a node needs an IP address");
  if (s->socket > NUMA_NODES) return zap_fail(ZAP_E_INVALID, "NUMA node %u: the last that is possible is %u", s->socket - 1u, NUMA_NODES - 1);
  if (s->udp_port == 0) return zap_fail(ZAP_E_INVALID, "a node needs a UDP port");
  if (s->idle > ZAP_DPDK_SLEEP) return zap_fail(ZAP_E_INVALID, "there is no back-off of number %u", s->idle);
  if (s->packet_area == 0 || s->message_area == 0 || s->pool_area == 0) return zap_fail(ZAP_E_INVALID, "an area of the region is empty");
  if ((s->packet_area | s->message_area | s->pool_area) >> 40 != 0) return zap_fail(ZAP_E_INVALID, "an area of the region is too large");
  if (s->flows > 65535) return zap_fail(ZAP_E_INVALID, "%u flows are more than 65535", s->flows);
  const uint32_t longest = UINT32_MAX / 1000;
  if (s->handshake_ms > longest || s->keepalive_ms > longest || s->dead_ms > longest || s->close_ms > longest)
    return zap_fail(ZAP_E_INVALID, "a time of the settings is longer than %u ms", longest);
  if (allowed > 0 && allow == NULL) return zap_fail(ZAP_E_INVALID, "%u entries of an allow-list that is not there", allowed);
  if (allowed > 65536) return zap_fail(ZAP_E_INVALID, "an allow-list of %u entries: at most 65536", allowed);
  for (uint32_t i = 0; i < allowed; i++)
    if (allow[i].id_length == 0 || allow[i].id_length > sizeof allow[i].id)
      return zap_fail(ZAP_E_INVALID, "entry %u of the allow-list: a node id has 1 to 60 bytes", i);
  return ZAP_OK;
}

/* NULL stays NULL: everybody; a list without entries is one: nobody. */
static bool copy_allow(struct zap_node *node, const zap_dpdk_allowed *allow, uint32_t allowed) {
  if (allow == NULL) return true;
  node->allow = calloc(allowed + 1u, sizeof *node->allow);
  if (node->allow == NULL) return false;
  node->allowed = allowed;
  for (uint32_t i = 0; i < allowed; i++) {
    struct zap_flow_allowed *to = &node->allow[i];
    to->id.length = allow[i].id_length;
    memcpy(to->id.bytes, allow[i].id, allow[i].id_length);
    to->pinned = allow[i].pinned != 0;
    to->address.port = allow[i].port;
    memcpy(to->address.ip, allow[i].ip, sizeof to->address.ip);
  }
  return true;
}

int32_t zap_node_open(const zap_dpdk_settings *settings, const zap_dpdk_allowed *allow, uint32_t allowed) {
  int32_t status = check(settings, allow, allowed);
  if (status != ZAP_OK) return status;
  struct zap_node *node = calloc(1, sizeof *node);
  if (node == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for a node");
  node->settings = *settings;
  if (copy_allow(node, allow, allowed)) return zap_service_start(&node->service, &zap_node_kind);
  free(node);
  return zap_fail(ZAP_E_MEMORY, "out of memory for an allow-list");
}

static struct zap_node *node_of(struct zap_service *service) { return (struct zap_node *)service; }

struct zap_engine *zap_node_engine(struct zap_service *service) { return node_of(service)->engine; }
struct zap_port *zap_node_port(struct zap_service *service) { return node_of(service)->port; }
struct zap_queue *zap_node_queue(struct zap_service *service, uint32_t number) {
  return number < node_of(service)->queue_count ? node_of(service)->queues[number] : NULL;
}
