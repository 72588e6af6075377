/* What a queue is made of, for queue.c (receiving, turns, threads) and queue_send.c. */
#ifndef ZAP_QUEUE_PARTS_H
#define ZAP_QUEUE_PARTS_H

#include <rte_config.h>
#include <rte_mbuf.h>

#include "../common/fail.h"
#include "queue.h"

#define ZAP_QUEUE_BURST 32

struct zap_queue {
  struct zap_port *port;
  struct zap_queue_settings settings;
  uint16_t number;
  bool registered;
  struct rte_mbuf *spare; /* the next head */
  uint32_t lent;          /* payloads that the port has not let go of */
  uint64_t asked_at;      /* and when it was last told to */
  struct rte_mbuf *leaving[ZAP_QUEUE_BURST];
  uint16_t leaves;
  uint32_t empty;   /* polls in a row */
  uint64_t busy_at; /* the last that was not */
  /* The last neighbour that was sent to. */
  struct zap_ip hop;
  struct zap_neighbour_found found;
  unsigned generation;
  struct zap_queue_stats stats;
  /* For the thread of our own. */
  atomic_bool stop;
  atomic_int started; /* 0: not yet; 1: polls; below: failed with that status */
  atomic_bool ended;
  char text[ZAP_TEXT_BYTES];
};

/* Only this thread writes them; others may look at any time. */
static inline void zap_queue_count(uint64_t *counter, uint64_t by) { __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED); }

/* Takes in what a neighbour has to say, and answers. */
void zap_queue_hear(struct zap_queue *queue, const struct zap_packet *packet, uint64_t now);

#endif
