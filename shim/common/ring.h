/* Both sides of a ring of zap_ring.h, for C. No global state. */
#ifndef ZAP_DPDK_RING_H
#define ZAP_DPDK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "zap_ring.h"

_Static_assert(sizeof(zap_ring) == ZAP_RING_HEAD_BYTES, "the head of a ring");
_Static_assert(sizeof(zap_ring_entry) == ZAP_RING_ENTRY_BYTES, "an entry of a ring");

static inline size_t zap_ring_bytes(uint32_t slots) { return ZAP_RING_HEAD_BYTES + (size_t)slots * ZAP_RING_ENTRY_BYTES; }

/* Makes `at` (zap_ring_bytes of it) an empty ring. `slots`: a power of two up to ZAP_RING_SLOTS_MAX. */
static inline bool zap_ring_init(zap_ring *at, uint32_t slots) {
  if (slots == 0 || slots > ZAP_RING_SLOTS_MAX || (slots & (slots - 1)) != 0) return false;
  memset(at, 0, ZAP_RING_HEAD_BYTES);
  at->magic = ZAP_RING_MAGIC;
  at->version = ZAP_RING_VERSION;
  at->slots = slots;
  at->entry_bytes = ZAP_RING_ENTRY_BYTES;
  return true;
}

static inline zap_ring_entry *zap_ring_slot(zap_ring *ring, uint32_t slots, uint64_t number) {
  return (zap_ring_entry *)(void *)((uint8_t *)ring + ZAP_RING_HEAD_BYTES) + (number & (slots - 1));
}

/* One side's view: its own number, and what it last saw of the other's. The far side may write any nonsense into the ring. */
struct zap_ring_end {
  zap_ring *ring;
  uint32_t slots;
  uint64_t mine, seen;
};

static inline void zap_ring_attach(struct zap_ring_end *end, zap_ring *ring) {
  *end = (struct zap_ring_end){.ring = ring, .slots = ring->slots};
}

/* How many entries may be written now; looks at the far side only where fewer than `wanted` are known to be free. */
static inline uint32_t zap_ring_free(struct zap_ring_end *end, uint32_t wanted) {
  uint64_t used = end->mine - end->seen;
  if (end->slots - used < wanted) {
    uint64_t head = __atomic_load_n(&end->ring->head, __ATOMIC_ACQUIRE);
    /* A head that cannot be is not believed. */
    if (end->mine - head <= end->mine - end->seen) end->seen = head;
    used = end->mine - end->seen;
  }
  return end->slots - (uint32_t)used;
}

/* The next entry to write, where zap_ring_free said that there is one. */
static inline zap_ring_entry *zap_ring_write(struct zap_ring_end *end) { return zap_ring_slot(end->ring, end->slots, end->mine++); }

/* Lets the consumer see what was written. True where it sleeps and has to be woken. */
static inline bool zap_ring_publish(struct zap_ring_end *end) {
  /* In one order with the consumer's setting of `armed` and its second look at `tail`: one of the two sees the other. */
  __atomic_store_n(&end->ring->tail, end->mine, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&end->ring->armed, __ATOMIC_SEQ_CST) == 0) return false;
  return __atomic_exchange_n(&end->ring->armed, 0, __ATOMIC_RELAXED) != 0;
}

/* How many entries there are to read, at most the slots of the ring. */
static inline uint32_t zap_ring_ready(struct zap_ring_end *end) {
  if (end->seen == end->mine) {
    uint64_t tail = __atomic_load_n(&end->ring->tail, __ATOMIC_ACQUIRE);
    if (tail - end->mine <= end->slots) end->seen = tail;
  }
  return (uint32_t)(end->seen - end->mine);
}

static inline const zap_ring_entry *zap_ring_read(struct zap_ring_end *end) {
  return zap_ring_slot(end->ring, end->slots, end->mine++);
}

/* Gives the slots that were read back to the producer. */
static inline void zap_ring_consumed(struct zap_ring_end *end) { __atomic_store_n(&end->ring->head, end->mine, __ATOMIC_RELEASE); }

#endif
