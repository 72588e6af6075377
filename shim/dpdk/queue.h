/*
 * One queue of a port, and the thread that polls it: takes bursts, looks at each packet, answers neighbours, gives good packets to a
 * callback or to the hand-off ring, and sends. Everything about a queue happens on that thread; starting, stopping and reading
 * its counters do not. No global state.
 */
#ifndef ZAP_QUEUE_H
#define ZAP_QUEUE_H

#include "handoff.h"
#include "port.h"

/* What a thread does that finds nothing to do. */
enum zap_idle {
  ZAP_IDLE_SPIN,  /* polls on: shortest delay, and a core for itself */
  ZAP_IDLE_PAUSE, /* pauses between polls, and gives way to other threads after `idle_polls` of them */
  ZAP_IDLE_SLEEP, /* likewise, but sleeps for `sleep_us` once nothing was to be done for a millisecond, ten times as long after 100 ms */
};

struct zap_queue;

struct zap_queue_settings {
  int32_t cpu; /* -1: wherever the thread that starts it may run */
  enum zap_idle idle;
  uint32_t idle_polls; /* in a row; 0: 64 */
  uint32_t sleep_us;   /* 0: 50 */
  void *context;
  /*
   * A good packet. True: its buffer now belongs to the callee, who gives it back by zap_queue_release on this thread. Where this is
   * NULL, good packets go to `handoff`, and where that is too, they are only counted.
   */
  bool (*packet)(void *context, struct zap_queue *queue, const struct zap_packet *packet, void *buffer, uint64_t now);
  /* After each burst, also an empty one. True where it had something to do. May send. May be NULL. */
  bool (*turn)(void *context, struct zap_queue *queue, uint64_t now);
  struct zap_handoff *handoff;
  /* The peer of a packet for the ring; NULL: 0. */
  uint32_t (*peer)(void *context, const struct zap_packet *packet);
  /* The ring's consumer sleeps; may be NULL. */
  void (*wake)(void *context);
};

struct zap_queue_stats {
  uint64_t packets_in, bytes_in, packets_out, bytes_out; /* frames without their check sequence */
  uint64_t polls, empty_polls, idles;
  uint64_t verdict[ZAP_PACKET_VERDICTS]; /* by enum zap_verdict */
  uint64_t answered, asked;              /* neighbours */
  uint64_t no_neighbour, no_buffer, full; /* sends that came to nothing */
  uint64_t tokens_wrong;                 /* that the ring's consumer gave back */
};

int32_t zap_queue_start(struct zap_port *port, uint16_t number, const struct zap_queue_settings *settings, struct zap_queue **queue);
/* Waits for the thread to end, gives back what is left in its hands, and frees it. What the hand-off has out stays out. */
int32_t zap_queue_stop(struct zap_queue *queue, uint32_t timeout_ms);
void zap_queue_stats(const struct zap_queue *queue, struct zap_queue_stats *stats);

/* For a thread of the caller's own in place of ours, registered with DPDK: all three on that thread. */
int32_t zap_queue_attach(struct zap_port *port, uint16_t number, const struct zap_queue_settings *settings, struct zap_queue **queue);
bool zap_queue_poll(struct zap_queue *queue);
void zap_queue_detach(struct zap_queue *queue);

/* A datagram to send: head, then payload, together at most the port's `longest`. */
struct zap_outbound {
  struct zap_ip ip;
  uint16_t port;
  const uint8_t *head; /* copied, unless it lies where zap_queue_head said */
  uint32_t head_length;
  const uint8_t *payload;
  uint32_t payload_length;
  /*
   * Says that `payload` is no longer read; on this thread, or the one that closes the port. Called once where the datagram was taken, if it
   * was copied before zap_queue_send returns. NULL: the payload is always copied.
   */
  void (*released)(void *context, void *cookie);
  void *context, *cookie;
};

enum zap_sent {
  ZAP_SENT,
  ZAP_SENT_FULL,      /* the port takes no more now; nothing was done */
  ZAP_SENT_NO_BUFFER, /* likewise */
  ZAP_SENT_WAITING,   /* the neighbour is not known yet and was asked: try again soon; nothing was done */
  ZAP_SENT_TOO_LONG,
  ZAP_SENT_NO_ADDRESS, /* we have no address of that version */
};

/* Room for the next datagram's head (and payload), `*room` bytes, so that it need not be copied; NULL where there is no buffer. */
uint8_t *zap_queue_head(struct zap_queue *queue, uint32_t *room);
/* What was given may leave only at the end of this turn, or with zap_queue_flush. */
enum zap_sent zap_queue_send(struct zap_queue *queue, const struct zap_outbound *datagram, uint64_t now);
void zap_queue_flush(struct zap_queue *queue);
void zap_queue_release(struct zap_queue *queue, void *buffer);

#endif
