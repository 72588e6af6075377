#include "receiver.h"

#include "bits.h"
#include "bytes.h"

#define NEVER UINT64_MAX
/* Between two questions for the same buffer. */
#define AGAIN_NS UINT64_C(1000000)

void zap_receiver_start(struct zap_receiver *r, uint32_t start, uint32_t payload, uint32_t message_bytes) {
  memset(r->here, 0, (r->mask + 1) / 8);
  for (uint32_t i = 0; i <= r->mask; i++) r->messages[i].here = false;
  r->payload = payload;
  r->message_bytes = message_bytes;
  r->ack = r->highest = r->first = r->next = start;
  r->epoch = 0;
  r->echo = start - 1;
  r->held = 0;
  r->held_back = false;
  r->again_at = NEVER;
  r->untold = 0;
  r->at_once = false;
}

static uint32_t limit(const struct zap_receiver *r) { return r->held_back ? r->refused.first : r->ack + r->mask + 1; }

static void give_back(struct zap_receiver *r, struct zap_incoming *message, const struct zap_owner *owner) {
  message->here = false;
  r->held -= message->length;
  owner->events->unused(owner->context, owner->flow, &message->buffer);
}

void zap_receiver_stop(struct zap_receiver *r, const struct zap_owner *owner) {
  for (uint32_t i = 0; i <= r->mask && r->held > 0; i++) {
    if (r->messages[i].here) give_back(r, &r->messages[i], owner);
  }
}

/* Asks the owner. A refusal moves the limit; one for the next message lets go of everything behind it. `whole`: as need() has it. */
static bool ask(struct zap_receiver *r, uint64_t now, uint32_t message, uint32_t first, uint32_t length, const uint8_t *whole,
                const struct zap_owner *owner) {
  bool next = message == r->next;
  struct zap_incoming *record = &r->messages[message & r->mask];
  struct zap_flow_buffer buffer = {0};
  if (owner->events->need(owner->context, owner->flow, length, next, whole, &buffer)) {
    *record = (struct zap_incoming){.buffer = buffer, .length = length, .first = first, .here = true};
    record->missing = (length + r->payload - 1) / r->payload;
    r->held += length;
    return true;
  }
  r->again_at = now + AGAIN_NS;
  bool known = r->held_back && r->refused.message == message;
  if (known && (!next || r->held == 0)) return false;
  if (next) {
    zap_receiver_stop(r, owner);
    memset(r->here, 0, (r->mask + 1) / 8);
    r->highest = r->ack;
  }
  r->held_back = true;
  r->refused.message = message;
  r->refused.first = before(first, r->ack) ? r->ack : first;
  r->refused.length = length;
  r->epoch++;
  r->at_once = true;
  return false;
}

void zap_receiver_retry(struct zap_receiver *r, uint64_t now, const struct zap_owner *owner) {
  if (!r->held_back) return;
  if (!ask(r, now, r->refused.message, r->refused.first, r->refused.length, NULL, owner)) return;
  r->held_back = false;
  r->again_at = NEVER;
  r->epoch++;
  r->at_once = true;
}

/* Whether the segment's fields agree with each other and with what is known of its message. */
static bool agrees(const struct zap_receiver *r, const struct zap_datagram *s) {
  uint32_t index = s->offset / r->payload;
  if (s->length > r->message_bytes || s->offset % r->payload != 0) return false;
  if (s->payload_length != r->payload && s->offset + s->payload_length != s->length) return false;
  if (s->payload_length > r->payload) return false;
  uint32_t first = s->segment - index, ahead = s->message - r->next;
  if (ahead > r->mask) return false;
  if (ahead == 0 ? first != r->first : before(first, r->first + ahead)) return false;
  const struct zap_incoming *record = &r->messages[s->message & r->mask];
  if (record->here) return record->first == first && record->length == s->length;
  /* What an honest sender can have begun: a window of segments, a message that began before it, one that ends behind it. */
  return r->held + s->length <= (uint64_t)(r->mask + 1) * r->payload + 2 * (uint64_t)r->message_bytes;
}

static void deliver(struct zap_receiver *r, const struct zap_owner *owner) {
  for (;;) {
    struct zap_incoming *record = &r->messages[r->next & r->mask];
    if (!record->here || record->missing > 0) return;
    record->here = false;
    r->held -= record->length;
    r->next++;
    r->first += (record->length + r->payload - 1) / r->payload;
    owner->events->delivered(owner->context, owner->flow, &record->buffer, record->length);
  }
}

enum zap_segment_fate zap_receiver_take(struct zap_receiver *r, uint64_t now, const struct zap_datagram *s, const struct zap_owner *owner) {
  if (before(s->segment, r->ack) || (s->segment - r->ack <= r->mask && bit_get(r->here, r->mask, s->segment))) {
    if (before(r->echo, s->number)) r->echo = s->number;
    r->at_once = true;
    return ZAP_SEGMENT_DUPLICATE;
  }
  if (s->segment - r->ack >= limit(r) - r->ack) {
    r->at_once = true;
    return ZAP_SEGMENT_OUTSIDE;
  }
  if (!agrees(r, s)) return ZAP_SEGMENT_WRONG;
  struct zap_incoming *record = &r->messages[s->message & r->mask];
  const uint8_t *whole = s->payload_length == s->length ? s->payload : NULL;
  uint32_t first = s->segment - s->offset / r->payload;
  if (!record->here && !ask(r, now, s->message, first, s->length, whole, owner)) return ZAP_SEGMENT_REFUSED;
  if (record->missing == 0) return ZAP_SEGMENT_WRONG;
  uint8_t *to = record->buffer.bytes + s->offset;
  if (to != s->payload) memcpy(to, s->payload, s->payload_length);
  record->missing--;
  bit_set(r->here, r->mask, s->segment);
  if (before(r->echo, s->number)) r->echo = s->number;
  if (!before(s->segment, r->highest)) r->highest = s->segment + 1;
  r->untold++;
  if (s->segment != r->ack || r->highest != s->segment + 1) r->at_once = true;
  while (bit_get(r->here, r->mask, r->ack)) bit_clear(r->here, r->mask, r->ack++);
  deliver(r, owner);
  return ZAP_SEGMENT_TAKEN;
}

/* The 64 bits from n on, without those beyond the highest, whose places are others' already. */
static uint64_t word_from(const struct zap_receiver *r, uint32_t n) {
  if (!before(n, r->highest)) return 0;
  uint64_t word = bits_from(r->here, r->mask, n);
  return r->highest - n < 64 ? word & ((UINT64_C(1) << (r->highest - n)) - 1) : word;
}

void zap_receiver_tell(const struct zap_receiver *r, struct zap_datagram *to) {
  to->ack = r->ack;
  to->limit = limit(r);
  to->epoch = r->epoch;
  to->echo = r->echo;
  to->sack = word_from(r, r->ack + 1);
}

uint32_t zap_receiver_words(const struct zap_receiver *r, uint8_t *to, uint32_t most) {
  uint32_t span = r->highest - r->ack;
  if (span <= 65) return 0;
  uint32_t words = (span - 65 + 63) / 64;
  if (words > most) words = most;
  if (to == NULL) return words;
  for (uint32_t i = 0; i < words; i++) put64(to + (size_t)i * 8, word_from(r, r->ack + 65 + i * 64));
  return words;
}
