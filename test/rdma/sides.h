/* What the C tests of nodes share: a node by its verbs and rings alone, as a caller in another language uses it, and messages to send. */
#ifndef ZAP_RDMA_SIDES_H
#define ZAP_RDMA_SIDES_H

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../shim/common/fail.h"
#include "../../shim/common/ring.h"
#include "../../shim/common/thread.h"
#include "../native/check.h"
#include "zap_gpudirect.h"

#define MUST(call)                                                                        \
  do {                                                                                    \
    int32_t status_ = (call);                                                             \
    if (status_ < 0) {                                                                    \
      fprintf(stderr, "%s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, (int)status_, zap_failure()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

#define MESSAGE_MOST (16u << 20)

struct side {
  int32_t handle;
  zap_gpudirect_node node;
  uint8_t *base;
  struct zap_ring_end handoff, returns, sends, dones, events;
  uint32_t flow, ups, downs, undelivered, reason, status, error, ports;
  uint64_t done, failed, received;
  uint32_t expected; /* number of the next message */
  bool keep;         /* messages are taken and not given back */
};

static inline void settings_of(zap_gpudirect_settings *s, const char *runtime, const char *device, int gid) {
  *s = (zap_gpudirect_settings){.gid_index = gid, .flows = 8, .message_bytes = MESSAGE_MOST, .eager_area = 8u << 20, .message_area = 64u << 20,
                                .pool_area = 40u << 20};
  (void)snprintf(s->runtime, sizeof s->runtime, "%s", runtime);
  (void)snprintf(s->device, sizeof s->device, "%s", device);
}

static inline int32_t wait_open(int32_t handle, zap_gpudirect_node *node) {
  int32_t status = ZAP_E_AGAIN;
  for (int i = 0; i < 20000 && (status = zap_gpudirect_opened(handle, node)) == ZAP_E_AGAIN; i++) pause_millis(1);
  return status;
}

static inline void open_side(struct side *side, const zap_gpudirect_settings *settings) {
  *side = (struct side){.handle = zap_gpudirect_open(settings)};
  MUST(side->handle);
  MUST(wait_open(side->handle, &side->node));
  side->base = (uint8_t *)(uintptr_t)side->node.address;
  zap_ring_attach(&side->handoff, (zap_ring *)(void *)(side->base + side->node.handoff_offset));
  zap_ring_attach(&side->returns, (zap_ring *)(void *)(side->base + side->node.returns_offset));
  zap_ring_attach(&side->sends, (zap_ring *)(void *)(side->base + side->node.sends_offset));
  zap_ring_attach(&side->dones, (zap_ring *)(void *)(side->base + side->node.dones_offset));
  zap_ring_attach(&side->events, (zap_ring *)(void *)(side->base + side->node.events_offset));
}

static inline void close_side(struct side *side) {
  MUST(zap_gpudirect_close(side->handle));
  int32_t status = ZAP_E_AGAIN;
  for (int i = 0; i < 20000 && (status = zap_gpudirect_closed(side->handle)) == ZAP_E_AGAIN; i++) pause_millis(1);
  MUST(status);
  CHECK_EQUAL(zap_gpudirect_flow_abort(side->handle, 1), ZAP_E_HANDLE);
  MUST(zap_gpudirect_region_free(side->node.region));
  (void)close(side->node.wake_fd);
}

static inline void hear(struct side *side);

/* Brings up a queue pair between the two. */
static inline void join(struct side *a, struct side *b) {
  zap_gpudirect_offer of_a, of_b;
  int32_t flow = zap_gpudirect_flow_begin(a->handle, &of_a);
  MUST(flow);
  a->flow = (uint32_t)flow;
  flow = zap_gpudirect_flow_begin(b->handle, &of_b);
  MUST(flow);
  b->flow = (uint32_t)flow;
  MUST(zap_gpudirect_flow_accept(a->handle, a->flow, &of_b));
  MUST(zap_gpudirect_flow_accept(b->handle, b->flow, &of_a));
  a->ups = b->ups = 0;
  for (int i = 0; i < 10000 && a->ups + b->ups < 2; i++) {
    hear(a);
    hear(b);
    pause_millis(1);
  }
  CHECK_EQUAL(a->ups, 1);
  CHECK_EQUAL(b->ups, 1);
  a->downs = b->downs = a->undelivered = b->undelivered = 0;
}

static uint32_t length_most = MESSAGE_MOST;

static inline uint32_t length_of(uint32_t number) {
  static const uint32_t lengths[] = {16, 64, 100, 1300, 4096, 8192, 8193, 65536, 20, 300000, 24, 1u << 20};
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

static inline void rouse(struct side *side, struct zap_ring_end *ring) {
  if (zap_ring_publish(ring)) MUST(zap_gpudirect_kick(side->handle));
}

static inline void send_message(struct side *side, uint32_t offset, uint32_t length, uint32_t token) {
  CHECK(zap_ring_free(&side->sends, 1) > 0);
  *zap_ring_write(&side->sends) = (zap_ring_entry){
      .address = side->node.address + side->node.pool_offset + offset, .length = length, .peer = side->flow, .token = token};
  rouse(side, &side->sends);
}

#define PLACES 64
/* Of the sender's pool area: what lies there is on its way. Messages come back in any order. */
static bool place_busy[PLACES];

static inline void hear(struct side *side) {
  while (zap_ring_ready(&side->events) > 0) {
    const uint8_t *first = (const uint8_t *)side->events.ring + ZAP_RING_HEAD_BYTES;
    zap_gpudirect_event event;
    memcpy(&event, first + (side->events.mine++ & (side->node.event_slots - 1)) * ZAP_GPUDIRECT_EVENT_BYTES, sizeof event);
    if (event.kind == ZAP_GPUDIRECT_DOWN) {
      side->downs++;
      side->reason = event.reason;
      side->status = event.status;
      side->error = event.error;
      side->undelivered += event.undelivered;
      CHECK(event.messages <= side->received + zap_ring_ready(&side->handoff));
    } else if (event.kind == ZAP_GPUDIRECT_UP) {
      side->ups++;
    } else {
      side->ports++;
    }
    zap_ring_consumed(&side->events);
  }
  while (zap_ring_ready(&side->dones) > 0) {
    const zap_ring_entry *entry = zap_ring_read(&side->dones);
    if (entry->length == 1) side->done++;
    else side->failed++;
    if (entry->token < PLACES) place_busy[entry->token] = false;
    zap_ring_consumed(&side->dones);
  }
}

static inline void give_back(struct side *side, uint32_t token) {
  CHECK(zap_ring_free(&side->returns, 1) > 0);
  *zap_ring_write(&side->returns) = (zap_ring_entry){.token = token};
  rouse(side, &side->returns);
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


/* Sends messages from one to the other, with up to `window` of them on their way, and looks at each. */
static inline void exchange(struct side *from, struct side *to, uint32_t messages, uint32_t window) {
  uint32_t sent = 0;
  uint64_t before = to->received, until = zap_now() + 60000000000ull;
  uint32_t room = (uint32_t)(from->node.pool_bytes / window) & ~63u;
  length_most = room < MESSAGE_MOST ? room : MESSAGE_MOST;
  from->done = from->failed = 0;
  to->expected = 0;
  memset(place_busy, 0, sizeof place_busy);
  while ((to->received - before < messages || from->done < messages) && zap_now() < until) {
    for (uint32_t place = 0; place < window && sent < messages; place++) {
      if (place_busy[place]) continue;
      fill(from->base + from->node.pool_offset + place * room, length_of(sent), sent);
      place_busy[place] = true;
      send_message(from, place * room, length_of(sent), place);
      sent++;
    }
    take(to);
    hear(from);
    if (from->downs + to->downs > 0) break;
    (void)sched_yield();
  }
  CHECK_EQUAL(to->received - before, messages);
  CHECK_EQUAL(from->done, messages);
  CHECK_EQUAL(from->failed, 0);
  if (from->downs + to->downs == 0) return;
  pause_millis(1000);
  hear(from);
  hear(to);
  fprintf(stderr, "went down: %u (status %u), %u (status %u)\n", from->reason, from->status, to->reason, to->status);
  exit(1);
}

#endif
