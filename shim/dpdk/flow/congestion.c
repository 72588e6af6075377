#include "congestion.h"

#include "bytes.h"

#define WINDOW_FIRST 32
/* Below this random loss would make every second loss a timeout. */
#define WINDOW_LEAST 4
#define WINDOW_COLLAPSED 2
#define REORDER_FIRST 3
#define REORDER_MOST 64
/* Before the first measurement. */
#define RTO_FIRST UINT64_C(20000000)

void zap_congestion_start(struct zap_congestion *c, uint32_t most, uint64_t rto_min, uint64_t rto_max, uint64_t ack_delay) {
  *c = (struct zap_congestion){
      .window = WINDOW_FIRST < most ? WINDOW_FIRST : most,
      .most = most,
      .threshold = UINT32_MAX,
      .reorder = REORDER_FIRST,
      .rto_min = rto_min,
      .rto_max = rto_max,
      .ack_delay = ack_delay,
  };
}

void zap_congestion_sample(struct zap_congestion *c, uint64_t rtt) {
  if (!c->measured) {
    c->measured = true;
    c->srtt = rtt;
    c->rttvar = rtt / 2;
    return;
  }
  uint64_t away = rtt > c->srtt ? rtt - c->srtt : c->srtt - rtt;
  c->rttvar = c->rttvar - c->rttvar / 4 + away / 4;
  c->srtt = c->srtt - c->srtt / 8 + rtt / 8;
}

void zap_congestion_acked(struct zap_congestion *c, uint32_t segments, uint32_t echoed, bool limited) {
  c->backoff = 0;
  if (c->recovering && !before(echoed, c->recovery)) c->recovering = false;
  if (c->recovering || !limited) return;
  if (c->window < c->threshold) {
    c->window += segments;
  } else {
    c->counted += segments;
    if (c->counted >= c->window) {
      c->counted -= c->window;
      c->window++;
    }
  }
  if (c->window > c->most) c->window = c->most;
  if (c->counted > c->most) c->counted = 0;
}

void zap_congestion_lost(struct zap_congestion *c, uint32_t number, uint32_t next) {
  if (c->recovering && before(number, c->recovery)) return;
  c->prior = c->window;
  c->window = c->window / 10 * 7 + c->window % 10 * 7 / 10;
  if (c->window < WINDOW_LEAST) c->window = WINDOW_LEAST;
  c->threshold = c->window;
  c->counted = 0;
  c->recovering = true;
  c->recovery = next;
}

void zap_congestion_spurious(struct zap_congestion *c) {
  if (c->reorder < REORDER_MOST) c->reorder *= 2;
  if (c->recovering && c->prior > c->window) {
    c->window = c->prior;
    c->threshold = c->prior;
  }
}

void zap_congestion_collapse(struct zap_congestion *c, uint32_t next) {
  if (c->window > WINDOW_COLLAPSED) {
    c->threshold = c->window / 2 > WINDOW_LEAST ? c->window / 2 : WINDOW_LEAST;
    c->window = WINDOW_COLLAPSED;
  }
  c->prior = 0;
  c->counted = 0;
  c->recovering = true;
  c->recovery = next;
}

uint64_t zap_congestion_timeout(const struct zap_congestion *c) {
  uint64_t base = c->measured ? c->srtt + 4 * c->rttvar + c->ack_delay : RTO_FIRST;
  if (base < c->rto_min) base = c->rto_min;
  for (uint32_t i = 0; i < c->backoff && base < c->rto_max; i++) base *= 2;
  return base < c->rto_max ? base : c->rto_max;
}

uint64_t zap_congestion_patience(const struct zap_congestion *c) {
  uint64_t base = c->measured ? c->srtt : RTO_FIRST;
  uint64_t eighths = 8 + (c->reorder - REORDER_FIRST < 8 ? c->reorder - REORDER_FIRST + 1 : 8);
  return base * eighths / 8;
}
