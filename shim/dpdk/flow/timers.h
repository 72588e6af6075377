/* A heap of deadlines. A timer's time may be earlier than what it stands for: whoever it wakes looks, and sets it again. */
#ifndef ZAP_FLOW_TIMERS_H
#define ZAP_FLOW_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

struct zap_timer {
  uint64_t at;
  uint32_t place; /* in the heap, from 1; 0 while not there */
  uint32_t what;  /* the owner's: which of its things this is */
};

struct zap_timers {
  struct zap_timer **heap; /* heap[1] is the earliest */
  uint32_t count;
};

/* Makes the timer fire at `at` or earlier; UINT64_MAX leaves it as it is. */
void zap_timer_by(struct zap_timers *timers, struct zap_timer *timer, uint64_t at);
void zap_timer_stop(struct zap_timers *timers, struct zap_timer *timer);
/* Takes out one that is due; NULL when there is none. */
struct zap_timer *zap_timer_due(struct zap_timers *timers, uint64_t now);

#endif
