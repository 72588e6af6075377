/* A queue that sends every good packet back to where it came from, without copying it where the port takes that. */
#ifndef ZAP_DPDK_ECHO_H
#define ZAP_DPDK_ECHO_H

#include "dpdk_kit.h"

struct echo {
  struct zap_queue *queue;
  uint32_t failed; /* packets that could not be sent back */
  atomic_int kept; /* buffers that are on their way */
};

static inline void echo_sent(void *context, void *cookie) {
  struct echo *echo = context;
  atomic_fetch_sub(&echo->kept, 1);
  zap_queue_release(echo->queue, cookie);
}

static inline bool echo_packet(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now) {
  struct echo *echo = context;
  echo->queue = queue;
  struct zap_outbound datagram = {.ip = zap_packet_from(packet), .port = packet->from_port, .head = packet->payload, .head_length = 8,
                                  .payload = packet->payload + 8, .payload_length = packet->length - 8, .released = echo_sent,
                                  .context = echo, .cookie = buffer};
  atomic_fetch_add(&echo->kept, 1);
  if (packet->length >= 8 && zap_queue_send(queue, &datagram, now) == ZAP_SENT) return true;
  atomic_fetch_sub(&echo->kept, 1);
  echo->failed++;
  return false;
}

#endif
