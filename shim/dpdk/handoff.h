/*
 * The producer's side of a hand-off: the two rings of zap_ring.h, and which buffer each token stands for. One thread uses it. What the
 * consumer writes is not believed: a token that is not out is counted and passed over.
 */
#ifndef ZAP_HANDOFF_H
#define ZAP_HANDOFF_H

#include "../common/ring.h"

struct zap_handoff {
  struct zap_ring_end out, back;
  uint32_t tokens, spares; /* all, and those that are not out */
  void **buffer;           /* of each token that is out, else NULL */
  uint32_t *spare;
  uint64_t nonsense; /* tokens that came back and were not out */
  /* What to add to an address of ours so that the consumer can use it; 0 where both see the same. */
  uint64_t shift;
};

/* Both rings must be initialised, and stay. As many entries can be out as the return ring has slots. Fails with ZAP_E_MEMORY. */
int32_t zap_handoff_init(struct zap_handoff *handoff, zap_ring *out, zap_ring *back);
void zap_handoff_destroy(struct zap_handoff *handoff);

/* How many entries can be handed over now. */
static inline uint32_t zap_handoff_room(struct zap_handoff *handoff, uint32_t wanted) {
  uint32_t room = zap_ring_free(&handoff->out, wanted);
  return room < handoff->spares ? room : handoff->spares;
}

/* Where there is room. Seen by the consumer after zap_ring_publish(&handoff->out). */
static inline void zap_handoff_push(struct zap_handoff *handoff, void *buffer, const uint8_t *at, uint32_t length, uint32_t peer,
                                    uint64_t stamp) {
  uint32_t token = handoff->spare[--handoff->spares];
  handoff->buffer[token] = buffer;
  zap_ring_entry *entry = zap_ring_write(&handoff->out);
  entry->address = (uint64_t)(uintptr_t)at + handoff->shift;
  entry->length = length;
  entry->peer = peer;
  entry->stamp = stamp;
  entry->token = token;
  entry->reserved = 0;
}

/* Takes up to `capacity` buffers back. */
static inline uint32_t zap_handoff_take(struct zap_handoff *handoff, void **buffers, uint32_t capacity) {
  uint32_t ready = zap_ring_ready(&handoff->back), count = 0;
  if (ready == 0) return 0;
  if (ready > capacity) ready = capacity;
  for (uint32_t i = 0; i < ready; i++) {
    uint32_t token = __atomic_load_n(&zap_ring_read(&handoff->back)->token, __ATOMIC_RELAXED);
    if (token >= handoff->tokens || handoff->buffer[token] == NULL) {
      handoff->nonsense++;
      continue;
    }
    buffers[count++] = handoff->buffer[token];
    handoff->buffer[token] = NULL;
    handoff->spare[handoff->spares++] = token;
  }
  zap_ring_consumed(&handoff->back);
  return count;
}

#endif
