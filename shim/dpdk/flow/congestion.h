/*
 * How much may be in flight, and how long an answer takes: RFC 6298 for the round trip; slow start, one segment a round trip
 * above that, and a cut to seven tenths at most once per round trip in which something was lost. No clock of its own.
 */
#ifndef ZAP_FLOW_CONGESTION_H
#define ZAP_FLOW_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

struct zap_congestion {
  uint32_t window; /* segments */
  uint32_t most;   /* it never grows beyond that */
  uint32_t threshold, counted, prior;
  bool recovering;
  uint32_t recovery; /* losses of datagrams before this number are of the cut that was made already */
  bool measured;
  uint64_t srtt, rttvar; /* ns */
  uint32_t reorder;      /* so many later datagrams must have come before one counts as lost; grows when that was wrong */
  uint32_t backoff;      /* timeouts in a row */
  uint64_t rto_min, rto_max, ack_delay;
};

void zap_congestion_start(struct zap_congestion *c, uint32_t most, uint64_t rto_min, uint64_t rto_max, uint64_t ack_delay);
void zap_congestion_sample(struct zap_congestion *c, uint64_t rtt);
/* `segments` were newly acknowledged; `echoed` is the highest datagram that arrived. `limited`: the window was what held us back. */
void zap_congestion_acked(struct zap_congestion *c, uint32_t segments, uint32_t echoed, bool limited);
/* Datagram `number` was lost; `next` is the number that will be sent next. */
void zap_congestion_lost(struct zap_congestion *c, uint32_t number, uint32_t next);
/* A segment taken for lost was not. */
void zap_congestion_spurious(struct zap_congestion *c);
/* Nothing was heard for two timeouts in a row. */
void zap_congestion_collapse(struct zap_congestion *c, uint32_t next);
/* Time until a timeout, backed off. */
uint64_t zap_congestion_timeout(const struct zap_congestion *c);
/* A datagram older than this, and overtaken, is lost. */
uint64_t zap_congestion_patience(const struct zap_congestion *c);

#endif
