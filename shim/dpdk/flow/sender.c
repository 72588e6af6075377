#include "sender.h"

#include "bits.h"
#include "bytes.h"

#define NONE UINT16_MAX
#define NEVER UINT64_MAX
/* Segments that may be queued: far from where serial numbers turn. */
#define QUEUE_MOST (1u << 30)

enum { FREE, FLYING, LOST, SACKED };

void zap_sender_start(struct zap_sender *s, uint32_t start, uint32_t payload, uint32_t credits) {
  memset(s->lost, 0, (s->mask + 1) / 8);
  memset(s->sacked, 0, (s->mask + 1) / 8);
  for (uint32_t i = 0; i <= s->mask; i++) s->segments[i].state = FREE;
  s->payload = payload;
  s->una = s->nxt = s->end = start;
  s->limit = start + credits;
  s->epoch = 0;
  s->head = s->cursor = s->tail = start;
  s->queued_bytes = 0;
  s->number = start;
  s->echoed = start - 1;
  s->oldest = s->newest = NONE;
  s->flying = s->lost_count = 0;
  s->probe = false;
  s->timeout_at = s->loss_at = NEVER;
}

static struct zap_segment *segment_at(struct zap_sender *s, uint32_t n) { return &s->segments[n & s->mask]; }

bool zap_sender_add(struct zap_sender *s, const uint8_t *bytes, uint32_t length, uint64_t cookie) {
  uint32_t count = (length + s->payload - 1) / s->payload;
  if (s->tail - s->head > s->message_mask || s->end - s->una > QUEUE_MOST - count) return false;
  s->messages[s->tail & s->message_mask] = (struct zap_outgoing){bytes, cookie, length, s->end, count};
  s->tail++;
  s->end += count;
  s->queued_bytes += length;
  return true;
}

static void land(struct zap_sender *s, struct zap_segment *segment) {
  if (segment->earlier == NONE) s->oldest = segment->later;
  else s->segments[segment->earlier].later = segment->later;
  if (segment->later == NONE) s->newest = segment->earlier;
  else s->segments[segment->later].earlier = segment->earlier;
  s->flying--;
}

static void lose(struct zap_sender *s, uint32_t n, struct zap_segment *segment) {
  land(s, segment);
  segment->state = LOST;
  bit_set(s->lost, s->mask, n);
  s->lost_count++;
}

static uint32_t lowest_lost(const struct zap_sender *s) {
  for (uint32_t n = s->una;; n += 64) {
    uint64_t word = bits_from(s->lost, s->mask, n);
    if (word != 0) return n + bits_lowest(word);
  }
}

/* The number of a flying segment, from its place: the one in [una, una + size). */
static uint32_t number_of(const struct zap_sender *s, uint16_t place) { return s->una + ((place - s->una) & s->mask); }

/* Which segment is next to be sent; false when none may. */
static bool choose(const struct zap_sender *s, uint32_t *n) {
  bool room = s->flying < s->congestion.window || s->probe;
  if (s->lost_count > 0) {
    *n = lowest_lost(s);
    return room && before(*n, s->limit);
  }
  if (s->nxt != s->end && before(s->nxt, s->limit) && s->nxt - s->una <= s->mask) {
    *n = s->nxt;
    return room;
  }
  if (!s->probe || s->oldest == NONE) return false;
  *n = number_of(s, s->oldest);
  return before(*n, s->limit);
}

bool zap_sender_ready(const struct zap_sender *s) {
  uint32_t n;
  return choose(s, &n);
}

bool zap_sender_blocked(const struct zap_sender *s) {
  if (s->flying > 0) return false;
  if (s->lost_count > 0) return !before(lowest_lost(s), s->limit);
  return s->nxt != s->end && !before(s->nxt, s->limit);
}

uint64_t zap_sender_take(struct zap_sender *s, uint64_t now, struct zap_datagram *to, const struct zap_sender_counts *counts) {
  uint32_t n = s->nxt;
  (void)choose(s, &n);
  struct zap_segment *segment = segment_at(s, n);
  if (n == s->nxt) {
    const struct zap_outgoing *current = &s->messages[s->cursor & s->message_mask];
    *segment = (struct zap_segment){.message = (uint16_t)(s->cursor & s->message_mask)};
    s->nxt++;
    if (s->nxt == current->first + current->count) s->cursor++;
    ++*counts->first;
  } else {
    if (segment->state == LOST) {
      bit_clear(s->lost, s->mask, n);
      s->lost_count--;
    } else {
      land(s, segment);
    }
    ++*counts->again;
  }
  segment->state = FLYING;
  segment->sent_at = now;
  segment->number = s->number++;
  if (segment->sends < UINT8_MAX) segment->sends++;
  segment->earlier = s->newest;
  segment->later = NONE;
  if (s->newest == NONE) s->oldest = (uint16_t)(n & s->mask);
  else s->segments[s->newest].later = (uint16_t)(n & s->mask);
  s->newest = (uint16_t)(n & s->mask);
  s->flying++;
  s->probe = false;
  s->timeout_at = now + zap_congestion_timeout(&s->congestion);

  const struct zap_outgoing *message = &s->messages[segment->message];
  uint32_t offset = (n - message->first) * s->payload;
  to->segment = n;
  to->message = s->head + ((segment->message - s->head) & s->message_mask);
  to->length = message->length;
  to->offset = offset;
  to->number = segment->number;
  to->payload = message->bytes + offset;
  to->payload_length = message->length - offset < s->payload ? message->length - offset : s->payload;
  return message->cookie;
}

struct news {
  uint32_t count;
  uint64_t rtt; /* 0: no sample */
  bool spurious;
};

/* A segment that was not acknowledged so far is now. */
static void arrived(struct zap_sender *s, uint64_t now, uint32_t n, uint32_t echo, struct news *news) {
  struct zap_segment *segment = segment_at(s, n);
  if (segment->state == FLYING) {
    land(s, segment);
    if (segment->number == echo) news->rtt = now - segment->sent_at;
    /* Its last datagram is not among those that arrived: an earlier one was, which we had taken for lost. */
    if (segment->sends > 1 && before(echo, segment->number)) news->spurious = true;
  } else if (segment->state == LOST) {
    bit_clear(s->lost, s->mask, n);
    s->lost_count--;
    news->spurious = true;
  }
  if (segment->state != SACKED) news->count++;
}

static void advance(struct zap_sender *s, uint64_t now, uint32_t ack, uint32_t echo, struct news *news) {
  for (; s->una != ack; s->una++) {
    arrived(s, now, s->una, echo, news);
    segment_at(s, s->una)->state = FREE;
    bit_clear(s->sacked, s->mask, s->una);
  }
}

static void sack(struct zap_sender *s, uint64_t now, const struct zap_datagram *ack, struct news *news) {
  uint32_t words = ack->kind == ZAP_DATAGRAM_ACK ? ack->payload_length / 8 : 0;
  uint32_t n = ack->ack + 1;
  for (uint32_t i = 0; i <= words && before(n, s->nxt); i++, n += 64) {
    uint64_t word = i == 0 ? ack->sack : get64(ack->payload + (size_t)(i - 1) * 8);
    if (s->nxt - n < 64) word &= (UINT64_C(1) << (s->nxt - n)) - 1;
    word &= ~bits_from(s->sacked, s->mask, n);
    for (; word != 0; word &= word - 1) {
      uint32_t which = n + bits_lowest(word);
      arrived(s, now, which, ack->echo, news);
      segment_at(s, which)->state = SACKED;
      bit_set(s->sacked, s->mask, which);
    }
  }
}

/* The receiver has let go of what it had beyond `ack`, or takes less than before. */
static void change_of_mind(struct zap_sender *s, const struct zap_datagram *ack) {
  s->epoch = ack->epoch;
  s->limit = ack->limit;
  for (uint32_t n = s->una; n != s->nxt; n++) {
    struct zap_segment *segment = segment_at(s, n);
    if (segment->state == SACKED) {
      segment->state = LOST;
      bit_clear(s->sacked, s->mask, n);
      bit_set(s->lost, s->mask, n);
      s->lost_count++;
    } else if (segment->state == FLYING && !before(n, s->limit)) {
      lose(s, n, segment);
    }
  }
}

static void detect(struct zap_sender *s, uint64_t now, const struct zap_sender_counts *counts) {
  s->loss_at = NEVER;
  uint64_t patience = zap_congestion_patience(&s->congestion);
  while (s->oldest != NONE) {
    struct zap_segment *segment = &s->segments[s->oldest];
    if (!before(segment->number, s->echoed)) break;
    if (s->echoed - segment->number < s->congestion.reorder && now - segment->sent_at < patience) {
      s->loss_at = segment->sent_at + patience;
      break;
    }
    uint32_t number = segment->number;
    lose(s, number_of(s, s->oldest), segment);
    zap_congestion_lost(&s->congestion, number, s->number);
    ++*counts->losses;
  }
}

static void rearm(struct zap_sender *s, uint64_t now) {
  s->timeout_at = s->flying > 0 ? now + zap_congestion_timeout(&s->congestion) : NEVER;
}

bool zap_sender_acknowledge(struct zap_sender *s, uint64_t now, const struct zap_datagram *ack, const struct zap_sender_counts *counts) {
  if (before(ack->ack, s->una)) return true; /* overtaken by a later one */
  if (ack->ack - s->una > s->nxt - s->una || before(s->number - 1, ack->echo)) return false;
  struct news news = {0};
  bool limited = s->flying + s->lost_count >= s->congestion.window;
  advance(s, now, ack->ack, ack->echo, &news);
  if (before(s->epoch, ack->epoch)) change_of_mind(s, ack);
  if (ack->epoch == s->epoch) {
    if (before(s->limit, ack->limit)) s->limit = ack->limit;
    sack(s, now, ack, &news);
  }
  if (before(s->echoed, ack->echo)) s->echoed = ack->echo;
  if (news.rtt > 0) zap_congestion_sample(&s->congestion, news.rtt);
  if (news.spurious) {
    zap_congestion_spurious(&s->congestion);
    ++*counts->spurious;
  }
  if (news.count > 0) {
    zap_congestion_acked(&s->congestion, news.count, s->echoed, limited);
    s->probe = false;
  }
  if (news.count > 0 || s->flying == 0) rearm(s, now);
  detect(s, now, counts);
  if (s->flying == 0) s->timeout_at = NEVER;
  return true;
}

bool zap_sender_acknowledge_up_to(struct zap_sender *s, uint32_t ack) {
  if (before(ack, s->una)) return true;
  if (ack - s->una > s->nxt - s->una) return false;
  struct news news = {0};
  advance(s, 0, ack, s->echoed, &news);
  return true;
}

void zap_sender_timer(struct zap_sender *s, uint64_t now, const struct zap_sender_counts *counts) {
  if (now >= s->loss_at) {
    detect(s, now, counts);
    if (s->flying == 0) s->timeout_at = NEVER;
  }
  if (now < s->timeout_at) return;
  ++*counts->timeouts;
  s->congestion.backoff++;
  if (s->congestion.backoff > 1) {
    while (s->oldest != NONE) lose(s, number_of(s, s->oldest), &s->segments[s->oldest]);
    zap_congestion_collapse(&s->congestion, s->number);
    s->timeout_at = NEVER;
    s->loss_at = NEVER;
    return;
  }
  s->probe = true;
  rearm(s, now);
}

bool zap_sender_done(struct zap_sender *s, uint64_t *cookie) {
  if (s->head == s->tail) return false;
  const struct zap_outgoing *message = &s->messages[s->head & s->message_mask];
  if (before(s->una, message->first + message->count)) return false;
  return zap_sender_fail(s, cookie);
}

bool zap_sender_fail(struct zap_sender *s, uint64_t *cookie) {
  if (s->head == s->tail) return false;
  const struct zap_outgoing *message = &s->messages[s->head & s->message_mask];
  *cookie = message->cookie;
  s->queued_bytes -= message->length;
  s->head++;
  return true;
}

bool zap_sender_withdraw(struct zap_sender *s, uint64_t *cookie) {
  if (s->head == s->tail) return false;
  const struct zap_outgoing *message = &s->messages[(s->tail - 1) & s->message_mask];
  if (before(message->first, s->nxt)) return false;
  *cookie = message->cookie;
  s->queued_bytes -= message->length;
  s->end = message->first;
  s->tail--;
  return true;
}
