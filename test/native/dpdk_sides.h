/* What the tests of nodes share: a node by its verbs and rings alone, as a caller in another language uses it, and messages to send. */
#ifndef ZAP_DPDK_SIDES_H
#define ZAP_DPDK_SIDES_H

#include <unistd.h>

#include "dpdk_kit.h"
#include "zap_dpdk.h"

#define MESSAGE_MOST (3u << 20)

struct side {
  int32_t handle;
  zap_dpdk_node node;
  uint8_t *base;
  struct zap_ring_end handoff, returns, sends, dones, events;
  uint32_t flow, ups, downs, undelivered, reason;
  uint64_t done, failed, received;
  uint32_t expected; /* number of the next message */
};

static inline void settings_of(zap_dpdk_settings *s, const char *device, uint8_t last, uint32_t flags) {
  *s = (zap_dpdk_settings){
      .flags = flags | ZAP_DPDK_IP4,
      .ip4 = {10, 9, 0, last},
      .udp_port = KIT_PORT,
      .idle = ZAP_DPDK_YIELD,
      .start_ms = 10000,
      .packet_area = 8u << 20,
      .message_area = 16u << 20,
      .pool_area = 8u << 20,
  };
  if (getenv("ZAP_TEST_HUGEPAGES") != NULL) s->flags |= ZAP_DPDK_HUGEPAGES;
  (void)snprintf(s->device, sizeof s->device, "%s", device);
  s->id_length = (uint8_t)snprintf((char *)s->id, sizeof s->id, "node-%u", last);
}

static inline int32_t wait_open(int32_t handle, zap_dpdk_node *node) {
  int32_t status = ZAP_E_AGAIN;
  for (int i = 0; i < 20000 && (status = zap_dpdk_opened(handle, node)) == ZAP_E_AGAIN; i++) pause_millis(1);
  return status;
}

static inline void attach(struct side *side) {
  side->base = (uint8_t *)(uintptr_t)side->node.address;
  zap_ring_attach(&side->handoff, (zap_ring *)(void *)(side->base + side->node.handoff_offset));
  zap_ring_attach(&side->returns, (zap_ring *)(void *)(side->base + side->node.returns_offset));
  zap_ring_attach(&side->sends, (zap_ring *)(void *)(side->base + side->node.sends_offset));
  zap_ring_attach(&side->dones, (zap_ring *)(void *)(side->base + side->node.dones_offset));
  zap_ring_attach(&side->events, (zap_ring *)(void *)(side->base + side->node.events_offset));
}

static inline void open_side(struct side *side, const zap_dpdk_settings *settings) {
  *side = (struct side){.handle = zap_dpdk_open(settings, NULL, 0)};
  if (side->handle <= 0) MUST(side->handle);
}

static inline void close_side(struct side *side) {
  MUST(zap_dpdk_close(side->handle));
  int32_t status = ZAP_E_AGAIN;
  for (int i = 0; i < 20000 && (status = zap_dpdk_closed(side->handle)) == ZAP_E_AGAIN; i++) pause_millis(1);
  MUST(status);
  CHECK_EQUAL(zap_dpdk_closed(side->handle), ZAP_E_HANDLE);
  CHECK_EQUAL(zap_dpdk_flow_abort(side->handle, 1), ZAP_E_HANDLE);
  MUST(zap_dpdk_region_free(side->node.region));
  CHECK_EQUAL(zap_dpdk_region_free(side->node.region), ZAP_E_HANDLE);
  (void)close(side->node.wake_fd);
}

/* ---- messages ---- */

/* Longer ones are cut to this. */
static uint32_t length_most = MESSAGE_MOST;

static inline uint32_t length_of(uint32_t number) {
  static const uint32_t lengths[] = {16, 64, 100, 1300, 1408, 1409, 4096, 65536, 20, 300000, 24, MESSAGE_MOST};
  uint32_t length = lengths[number % (sizeof lengths / sizeof *lengths)];
  return length < length_most ? length : length_most;
}

static inline void fill(uint8_t *at, uint32_t length, uint32_t number) {
  const uint8_t head[8] = {0x5a, 0x41, 0x50, 0, 1, 0, 7, 0};
  memcpy(at, head, 8);
  memset(at + 8, 0, 4);
  memcpy(at + 12, &length, 4);
  for (uint32_t i = 16; i < length; i++) at[i] = (uint8_t)(number * 31 + i + (i >> 8));
}

static inline bool right(const uint8_t *at, uint32_t length, uint32_t number) {
  static uint8_t wanted[MESSAGE_MOST];
  if (length != length_of(number)) return false;
  fill(wanted, length, number);
  return memcmp(wanted, at, length) == 0;
}

static inline void send_message(struct side *side, uint32_t offset, uint32_t length, uint32_t token) {
  CHECK(zap_ring_free(&side->sends, 1) > 0);
  zap_ring_entry *entry = zap_ring_write(&side->sends);
  *entry = (zap_ring_entry){
      .address = side->node.address + side->node.pool_offset + offset, .length = length, .peer = side->flow, .token = token};
  (void)zap_ring_publish(&side->sends);
}

static inline void hear(struct side *side) {
  while (zap_ring_ready(&side->events) > 0) {
    const uint8_t *first = (const uint8_t *)side->events.ring + ZAP_RING_HEAD_BYTES;
    zap_dpdk_event event;
    memcpy(&event, first + (side->events.mine++ & (side->node.event_slots - 1)) * ZAP_DPDK_EVENT_BYTES, sizeof event);
    if (event.kind == ZAP_DPDK_UP) {
      side->flow = event.flow;
      side->ups++;
    } else if (event.kind == ZAP_DPDK_DOWN) {
      CHECK_EQUAL(event.flow, side->flow);
      side->downs++;
      side->reason = event.reason;
      side->undelivered += event.undelivered;
      CHECK(event.messages <= side->received + zap_ring_ready(&side->handoff));
    } else {
      side->reason = event.reason;
    }
    zap_ring_consumed(&side->events);
  }
  while (zap_ring_ready(&side->dones) > 0) {
    const zap_ring_entry *entry = zap_ring_read(&side->dones);
    if (entry->length == 1) side->done++;
    else side->failed++;
    zap_ring_consumed(&side->dones);
  }
}

static inline void give_back(struct side *side, uint32_t token) {
  CHECK(zap_ring_free(&side->returns, 1) > 0);
  *zap_ring_write(&side->returns) = (zap_ring_entry){.token = token};
  (void)zap_ring_publish(&side->returns);
}

/* Takes what is there, checks it, and gives it back. */
static inline void take(struct side *side) {
  hear(side);
  while (zap_ring_ready(&side->handoff) > 0) {
    zap_ring_entry entry = *zap_ring_read(&side->handoff);
    zap_ring_consumed(&side->handoff);
    CHECK_EQUAL(entry.peer, side->flow);
    CHECK(right((const uint8_t *)(uintptr_t)entry.address, entry.length, side->expected));
    side->expected++;
    side->received++;
    give_back(side, entry.token);
  }
}

/* Sends messages from one to the other, with up to `window` of them unacknowledged, and looks at each. */
static inline void exchange(struct side *from, struct side *to, uint32_t messages, uint32_t window) {
  uint32_t sent = 0;
  uint64_t before = to->received, until = zap_now() + 90000000000ull;
  uint32_t room = (uint32_t)(from->node.pool_bytes / window) & ~63u;
  length_most = room < MESSAGE_MOST ? room : MESSAGE_MOST;
  from->done = from->failed = 0;
  to->expected = 0;
  while (to->received - before < messages && zap_now() < until) {
    /* Each place of the pool area is written again when what lay there was acknowledged. */
    while (sent < messages && sent - from->done < window) {
      uint32_t at = sent % window * room;
      fill(from->base + from->node.pool_offset + at, length_of(sent), sent);
      send_message(from, at, length_of(sent), sent % ZAP_DPDK_MESSAGES);
      sent++;
    }
    take(to);
    hear(from);
    if (from->downs + to->downs > 0) break;
  }
  WAIT_UNTIL((hear(from), from->done == messages));
  CHECK_EQUAL(to->received - before, messages);
  CHECK_EQUAL(from->failed, 0);
}

static inline void dial(struct side *from, uint8_t last, uint32_t number) {
  zap_dpdk_dial dial = {.number = number, .port = KIT_PORT, .ip = {[10] = 0xff, [11] = 0xff, 10, 9, 0, last}};
  MUST(zap_dpdk_dial_begin(from->handle, &dial));
}

#endif
