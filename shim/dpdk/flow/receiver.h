/*
 * The receiving half of a flow: which segments are here, the messages they belong to, and what to tell the sender.
 *
 * Payload goes straight to its place in the message's buffer. Messages are delivered in order, each once. Segments are accepted from
 * [ack, limit) alone; where the owner has no buffer the limit is the first segment of the message that it refused.
 */
#ifndef ZAP_FLOW_RECEIVER_H
#define ZAP_FLOW_RECEIVER_H

#include "wire.h"

struct zap_incoming {
  struct zap_flow_buffer buffer;
  uint32_t length;
  uint32_t first; /* segment */
  uint32_t missing;
  bool here; /* it has a buffer */
};

/* Whom to ask for buffers, and to give messages. */
struct zap_owner {
  const struct zap_flow_events *events;
  void *context;
  uint32_t flow;
};

enum zap_segment_fate {
  ZAP_SEGMENT_TAKEN,
  ZAP_SEGMENT_DUPLICATE,
  ZAP_SEGMENT_OUTSIDE, /* of the credits */
  ZAP_SEGMENT_REFUSED, /* by the owner */
  ZAP_SEGMENT_WRONG,   /* no honest sender makes it */
};

struct zap_receiver {
  struct zap_incoming *messages;
  uint64_t *here;
  uint32_t mask; /* of both */

  uint32_t payload, message_bytes;
  uint32_t ack;         /* next segment expected */
  uint32_t highest;     /* one past the highest that is here */
  uint32_t next, first; /* the message to be delivered next, and its first segment */
  uint32_t epoch, echo;
  uint64_t held; /* bytes of buffers */
  bool held_back;
  struct {
    uint32_t message, first, length;
  } refused; /* while held_back */
  uint64_t again_at; /* to ask again; UINT64_MAX: not waiting */
  /* What the sender has not been told. */
  uint32_t untold;
  bool at_once;
};

/* `start`: the peer's terms'. Its memory and mask are set before. */
void zap_receiver_start(struct zap_receiver *r, uint32_t start, uint32_t payload, uint32_t message_bytes);

/* The segment's payload is copied, unless the owner takes it as its buffer. */
enum zap_segment_fate zap_receiver_take(struct zap_receiver *r, uint64_t now, const struct zap_datagram *segment,
                                        const struct zap_owner *owner);

/* Asks again for the buffer that was refused. */
void zap_receiver_retry(struct zap_receiver *r, uint64_t now, const struct zap_owner *owner);

/* Fills in ack, limit, epoch, echo and sack. */
void zap_receiver_tell(const struct zap_receiver *r, struct zap_datagram *to);

/* The number of further words that the sack needs, at most `most`; writes them when `to` is not NULL. */
uint32_t zap_receiver_words(const struct zap_receiver *r, uint8_t *to, uint32_t most);

/* Gives all buffers back. */
void zap_receiver_stop(struct zap_receiver *r, const struct zap_owner *owner);

#endif
