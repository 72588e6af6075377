/*
 * The sending half of a flow: messages that wait, segments in flight, what of them is acknowledged, lost, or due again.
 *
 * A segment in [una, nxt) is flying, lost (to be sent again), or selectively acknowledged ("sacked"). Flying ones form a list in the order of
 * sending. Every DATA datagram has a number of its own; the echo of the highest one that arrived tells exactly which were overtaken,
 * also among segments that were sent more than once. Amortised constant time per segment and acknowledgement.
 */
#ifndef ZAP_FLOW_SENDER_H
#define ZAP_FLOW_SENDER_H

#include "congestion.h"
#include "wire.h"

struct zap_segment {
  uint64_t sent_at;
  uint32_t number; /* of the datagram that carried it last */
  uint16_t message;
  uint16_t earlier, later; /* in the list of flying ones */
  uint8_t state;
  uint8_t sends;
};

struct zap_outgoing {
  const uint8_t *bytes;
  uint64_t cookie;
  uint32_t length;
  uint32_t first, count; /* segments */
};

struct zap_sender {
  struct zap_segment *segments;
  uint64_t *lost, *sacked;
  uint32_t mask; /* of the three above */
  struct zap_outgoing *messages;
  uint32_t message_mask;

  uint32_t payload;
  uint32_t una, nxt, end;      /* segments: oldest not acknowledged, next new one, end of the queue */
  uint32_t limit, epoch;       /* the peer's */
  uint32_t head, cursor, tail; /* messages: oldest not done, the one of nxt, end of the queue */
  uint64_t queued_bytes;
  uint32_t number, echoed; /* datagrams: next, highest that arrived */
  uint16_t oldest, newest; /* flying */
  uint32_t flying, lost_count;
  bool probe;                   /* send one segment whatever the window says */
  uint64_t timeout_at, loss_at; /* UINT64_MAX: not running */
  struct zap_congestion congestion;
};

/* What the endpoint counts. */
struct zap_sender_counts {
  uint64_t *again, *first, *timeouts, *losses, *spurious;
};

/* `start`: our own terms'. `credits`: the peer's. The memory of the five pointers is set before, their masks too. */
void zap_sender_start(struct zap_sender *s, uint32_t start, uint32_t payload, uint32_t credits);

/* The number of segments that the window may have at once. */
static inline uint32_t zap_sender_room(const struct zap_sender *s) { return s->mask + 1; }

static inline uint32_t zap_sender_messages(const struct zap_sender *s) { return s->tail - s->head; }

/* False where there is no room for another message. */
bool zap_sender_add(struct zap_sender *s, const uint8_t *bytes, uint32_t length, uint64_t cookie);

/* Whether there is a segment that may be sent now. */
bool zap_sender_ready(const struct zap_sender *s);

/* The peer's credits are all that keeps it from sending. */
bool zap_sender_blocked(const struct zap_sender *s);

/* Fills in the segment's fields of `to`, and its bytes; returns the message's cookie. Only when ready. */
uint64_t zap_sender_take(struct zap_sender *s, uint64_t now, struct zap_datagram *to, const struct zap_sender_counts *counts);

/* An acknowledgement with `words` further words of its sack. False where it acknowledges what was never sent; nothing is changed then. */
bool zap_sender_acknowledge(struct zap_sender *s, uint64_t now, const struct zap_datagram *ack, const struct zap_sender_counts *counts);

/* The cumulative part alone, of a CLOSE. */
bool zap_sender_acknowledge_up_to(struct zap_sender *s, uint32_t ack);

/* When timeout_at or loss_at has come. */
void zap_sender_timer(struct zap_sender *s, uint64_t now, const struct zap_sender_counts *counts);

/* The next message that is acknowledged in whole; false when there is none. */
bool zap_sender_done(struct zap_sender *s, uint64_t *cookie);

/* The oldest message, acknowledged or not; for a flow that ends. */
bool zap_sender_fail(struct zap_sender *s, uint64_t *cookie);

/* The youngest message if none of it was sent yet. */
bool zap_sender_withdraw(struct zap_sender *s, uint64_t *cookie);

#endif
