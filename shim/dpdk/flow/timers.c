#include "timers.h"

#include <stddef.h>

static void put(struct zap_timers *timers, uint32_t place, struct zap_timer *timer) {
  timers->heap[place] = timer;
  timer->place = place;
}

static void rise(struct zap_timers *timers, struct zap_timer *timer) {
  uint32_t place = timer->place;
  while (place > 1 && timers->heap[place / 2]->at > timer->at) {
    put(timers, place, timers->heap[place / 2]);
    place /= 2;
  }
  put(timers, place, timer);
}

static void sink(struct zap_timers *timers, struct zap_timer *timer) {
  uint32_t place = timer->place;
  for (;;) {
    uint32_t child = place * 2;
    if (child > timers->count) break;
    if (child < timers->count && timers->heap[child + 1]->at < timers->heap[child]->at) child++;
    if (timers->heap[child]->at >= timer->at) break;
    put(timers, place, timers->heap[child]);
    place = child;
  }
  put(timers, place, timer);
}

void zap_timer_by(struct zap_timers *timers, struct zap_timer *timer, uint64_t at) {
  if (at == UINT64_MAX || (timer->place != 0 && timer->at <= at)) return;
  timer->at = at;
  if (timer->place == 0) put(timers, ++timers->count, timer);
  rise(timers, timer);
}

void zap_timer_stop(struct zap_timers *timers, struct zap_timer *timer) {
  if (timer->place == 0) return;
  struct zap_timer *last = timers->heap[timers->count--];
  if (last != timer) {
    put(timers, timer->place, last);
    rise(timers, last);
    sink(timers, last);
  }
  timer->place = 0;
}

struct zap_timer *zap_timer_due(struct zap_timers *timers, uint64_t now) {
  if (timers->count == 0 || timers->heap[1]->at > now) return NULL;
  struct zap_timer *timer = timers->heap[1];
  zap_timer_stop(timers, timer);
  return timer;
}
