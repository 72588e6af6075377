#include "bytes.h"
#include "siphash.h"
#include "state.h"

/* Questions to a peer that has no credits for us go out at least this often. */
#define ASK_MOST_NS UINT64_C(250000000)

uint32_t zap_flow_handle(const struct zap_flow *f) { return f->generation << 16 | f->index; }

static struct zap_flow *any_flow(const struct zap_endpoint *e, uint32_t handle) {
  uint32_t index = handle & 0xffff;
  if (index >= e->settings.flows) return NULL;
  struct zap_flow *f = &e->flows[index];
  return f->used && zap_flow_handle(f) == handle ? f : NULL;
}

struct zap_flow *zap_flow_of(const struct zap_endpoint *e, uint32_t handle) {
  struct zap_flow *f = any_flow(e, handle);
  return f != NULL && !f->ending ? f : NULL;
}

static uint32_t name_of(const struct zap_endpoint *e, const struct zap_flow_id *id) {
  return (uint32_t)zap_siphash(e->random_key, id->bytes, id->length) | 1;
}

struct zap_flow *zap_flow_with(struct zap_endpoint *e, const struct zap_flow_id *id) {
  uint32_t name = name_of(e, id);
  for (uint32_t i = 0; i < e->settings.flows && e->stats.flows > 0; i++) {
    if (e->names[i] != name) continue;
    struct zap_flow *f = &e->flows[i];
    if (f->used && !f->ending && zap_id_equal(&f->setup.id, id)) return f;
  }
  return NULL;
}

static struct zap_owner owner_of(const struct zap_endpoint *e, const struct zap_flow *f) {
  return (struct zap_owner){&e->events, e->context, zap_flow_handle(f)};
}

static struct zap_sender_counts counts_of(struct zap_endpoint *e) {
  struct zap_flow_stats *s = &e->stats;
  return (struct zap_sender_counts){&s->segments_again, &s->segments_out, &s->timeouts, &s->losses, &s->spurious};
}

struct zap_flow *zap_flow_begin(struct zap_endpoint *e, uint64_t now, const struct zap_setup *setup, uint64_t dial) {
  if (e->free_flow == NO_INDEX) return NULL;
  struct zap_flow *f = &e->flows[e->free_flow];
  e->free_flow = f->later;
  if (e->free_flow == NO_INDEX) e->free_last = NO_INDEX;
  uint32_t generation = f->generation + 1 < 1u << 16 ? f->generation + 1 : 1;
  struct zap_sender sender = {
      .segments = f->sender.segments,
      .lost = f->sender.lost,
      .sacked = f->sender.sacked,
      .mask = f->sender.mask,
      .messages = f->sender.messages,
      .message_mask = f->sender.message_mask,
  };
  struct zap_receiver receiver = {.messages = f->receiver.messages, .here = f->receiver.here, .mask = f->receiver.mask};
  *f = (struct zap_flow){.used = true, .index = f->index, .generation = generation, .setup = *setup, .sender = sender};
  f->receiver = receiver;
  f->timer.what = ZAP_WHAT(ZAP_IS_FLOW, f->index);
  zap_sender_start(&f->sender, setup->ours.start, setup->ours.payload, setup->theirs.credits);
  uint32_t most = setup->theirs.credits < e->settings.credits ? setup->theirs.credits : e->settings.credits;
  zap_congestion_start(&f->sender.congestion, most, zap_ns(e->settings.rto_min_us), zap_ns(e->settings.rto_max_us),
                       zap_ns(e->settings.ack_us));
  zap_receiver_start(&f->receiver, setup->theirs.start, setup->ours.payload, e->settings.message_bytes);
  f->heard = now;
  f->ack_at = f->ask_at = f->close_at = NEVER;
  f->alive_at = now + zap_ns(e->settings.keepalive_us);
  e->names[f->index] = name_of(e, &setup->id);
  e->stats.flows++;
  zap_table_change(&e->table, setup->local, f->timer.what);
  struct zap_flow_peer peer;
  (void)zap_endpoint_peer(e, zap_flow_handle(f), &peer);
  e->events.up(e->context, zap_flow_handle(f), &peer, dial);
  return f;
}

/* A flow with nothing queued tells so once it closes. */
static bool flushed(const struct zap_flow *f) { return f->closing && f->sender.head == f->sender.tail; }

static void watch(struct zap_endpoint *e, struct zap_flow *f, uint64_t now) {
  if (flushed(f) && !f->flushed) {
    f->flushed = true;
    f->ask = true;
    f->asked = 0;
    f->ask_at = NEVER;
  }
  if (!f->flushed && !zap_sender_blocked(&f->sender)) {
    f->ask_at = NEVER;
    f->asked = 0;
  } else if (f->ask_at == NEVER) {
    uint64_t wait = zap_congestion_timeout(&f->sender.congestion);
    for (uint32_t i = 0; i < f->asked && wait < ASK_MOST_NS; i++) wait *= 2;
    f->ask_at = now + (wait < ASK_MOST_NS ? wait : ASK_MOST_NS);
  }
  if (f->receiver.untold == 0 || f->receiver.at_once) {
    f->ack_at = NEVER;
  } else if (f->ack_at == NEVER) {
    const struct zap_congestion *c = &f->sender.congestion;
    uint64_t wait = zap_ns(e->settings.ack_us);
    if (c->measured && c->srtt / 4 < wait) wait = c->srtt / 4;
    f->ack_at = now + wait;
  }
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t deadline(const struct zap_endpoint *e, const struct zap_flow *f) {
  uint64_t at = least(f->sender.timeout_at, f->sender.loss_at);
  at = least(at, least(f->ack_at, f->ask_at));
  at = least(at, least(f->alive_at, f->close_at));
  return least(at, least(f->receiver.again_at, f->heard + zap_ns(e->settings.dead_us)));
}

bool zap_flow_has_output(const struct zap_flow *f) {
  if (f->ending) return false;
  return f->receiver.at_once || f->receiver.untold >= 2 || f->ask || zap_sender_ready(&f->sender);
}

static void activate(struct zap_endpoint *e, struct zap_flow *f) {
  if (f->active || !zap_flow_has_output(f)) return;
  f->active = true;
  f->earlier = e->active_last;
  f->later = NO_INDEX;
  if (e->active_last == NO_INDEX) e->active_first = f->index;
  else e->flows[e->active_last].later = f->index;
  e->active_last = f->index;
}

void zap_flow_poke(struct zap_endpoint *e, struct zap_flow *f, uint64_t now) {
  if (f->ending) return;
  watch(e, f, now);
  zap_timer_by(&e->timers, &f->timer, deadline(e, f));
  activate(e, f);
}

static void offer_room(struct zap_endpoint *e, struct zap_flow *f) {
  const struct zap_sender *s = &f->sender;
  if (!f->starved || f->closing || s->queued_bytes > e->settings.queue_bytes / 2) return;
  if (zap_sender_messages(s) > e->settings.queue_messages / 2) return;
  f->starved = false;
  e->events.room(e->context, zap_flow_handle(f));
}

static void pay_out(struct zap_endpoint *e, struct zap_flow *f) {
  uint64_t cookie;
  while (zap_sender_done(&f->sender, &cookie)) {
    e->stats.messages_out++;
    e->events.done(e->context, zap_flow_handle(f), cookie, true);
  }
  offer_room(e, f);
}

void zap_flow_settle(struct zap_endpoint *e, struct zap_flow *f, uint64_t now) {
  pay_out(e, f);
  if (flushed(f) && f->peer_done) zap_flow_end(e, f, ZAP_FLOW_FINISHED, true);
  zap_flow_poke(e, f, now);
}

static void fail(struct zap_endpoint *e, struct zap_flow *f, uint64_t cookie) {
  f->failed++;
  e->stats.undelivered++;
  e->events.done(e->context, zap_flow_handle(f), cookie, false);
}

static void begin_closing(struct zap_endpoint *e, struct zap_flow *f, uint64_t now) {
  if (f->closing) return;
  f->closing = true;
  f->close_at = now + zap_ns(e->settings.close_us);
}

/* The peer wants to close: what was begun is finished, the rest is left for another flow. */
static void peer_is_done(struct zap_endpoint *e, struct zap_flow *f, uint64_t now) {
  f->peer_done = true;
  begin_closing(e, f, now);
  uint64_t cookie;
  while (!f->ending && zap_sender_withdraw(&f->sender, &cookie)) fail(e, f, cookie);
}

static void closed_by_peer(struct zap_endpoint *e, struct zap_flow *f, const struct zap_datagram *d) {
  if (!zap_sender_acknowledge_up_to(&f->sender, d->ack)) {
    zap_drop(e, ZAP_DROP_ACK);
    return;
  }
  pay_out(e, f);
  bool known = d->reason >= ZAP_FLOW_FINISHED && d->reason <= ZAP_FLOW_SETTINGS;
  zap_flow_end(e, f, known ? (enum zap_flow_reason)d->reason : ZAP_FLOW_ABORTED, false);
}

static void take_segment(struct zap_endpoint *e, struct zap_flow *f, uint64_t now, const struct zap_datagram *d) {
  struct zap_owner owner = owner_of(e, f);
  uint32_t next = f->receiver.next;
  switch (zap_receiver_take(&f->receiver, now, d, &owner)) {
    case ZAP_SEGMENT_TAKEN: e->stats.segments_in++; break;
    case ZAP_SEGMENT_DUPLICATE: zap_drop(e, ZAP_DROP_DUPLICATE); break;
    case ZAP_SEGMENT_OUTSIDE: zap_drop(e, ZAP_DROP_WINDOW); break;
    case ZAP_SEGMENT_REFUSED: zap_drop(e, ZAP_DROP_REFUSED); break;
    case ZAP_SEGMENT_WRONG:
      zap_drop(e, ZAP_DROP_LAYOUT);
      zap_flow_end(e, f, ZAP_FLOW_PROTOCOL, true);
      break;
  }
  e->stats.messages_in += f->receiver.next - next;
}

void zap_flow_input(struct zap_endpoint *e, struct zap_flow *f, uint64_t now, const struct zap_datagram *d) {
  if (f->ending) return;
  if (d->kind == ZAP_DATAGRAM_CLOSE) {
    closed_by_peer(e, f, d);
    return;
  }
  if (d->kind != ZAP_DATAGRAM_DATA && d->kind != ZAP_DATAGRAM_ACK) return;
  struct zap_sender_counts counts = counts_of(e);
  if (!zap_sender_acknowledge(&f->sender, now, d, &counts)) {
    zap_drop(e, ZAP_DROP_ACK);
    return;
  }
  f->heard = now;
  f->alive_at = now + zap_ns(e->settings.keepalive_us);
  if (d->flags & ZAP_FLAG_ANSWER) f->receiver.at_once = true;
  if (d->kind == ZAP_DATAGRAM_DATA) take_segment(e, f, now, d);
  if ((d->flags & ZAP_FLAG_DONE) && !f->peer_done && !f->ending) peer_is_done(e, f, now);
  zap_flow_settle(e, f, now);
}

void zap_flow_timer(struct zap_endpoint *e, struct zap_flow *f, uint64_t now) {
  if (f->ending) return;
  if (now >= f->heard + zap_ns(e->settings.dead_us)) {
    zap_flow_end(e, f, ZAP_FLOW_DEAD, true);
    return;
  }
  if (now >= f->close_at) {
    zap_flow_end(e, f, ZAP_FLOW_ABORTED, true);
    return;
  }
  struct zap_sender_counts counts = counts_of(e);
  zap_sender_timer(&f->sender, now, &counts);
  if (now >= f->receiver.again_at) {
    struct zap_owner owner = owner_of(e, f);
    zap_receiver_retry(&f->receiver, now, &owner);
  }
  if (now >= f->ack_at) f->receiver.at_once = true;
  if (now >= f->ask_at) {
    f->ask = true;
    f->asked++;
    f->ask_at = NEVER;
  }
  if (now >= f->alive_at) {
    f->ask = true;
    f->alive_at = now + zap_ns(e->settings.keepalive_us) / 4;
  }
  zap_flow_settle(e, f, now);
}

bool zap_flow_output(struct zap_endpoint *e, struct zap_flow *f, uint64_t now, struct zap_flow_output *out) {
  if (!zap_flow_has_output(f)) return false;
  struct zap_datagram d = {.session = f->setup.remote, .flags = (uint16_t)(f->ask ? ZAP_FLAG_ANSWER : 0)};
  uint32_t words = zap_receiver_words(&f->receiver, NULL, f->setup.ours.payload / 8);
  bool carries = zap_sender_ready(&f->sender);
  d.kind = carries ? ZAP_DATAGRAM_DATA : ZAP_DATAGRAM_ACK;
  zap_receiver_tell(&f->receiver, &d);
  out->to = f->setup.address;
  out->flow = zap_flow_handle(f);
  out->has_message = carries;
  out->payload = NULL;
  out->payload_length = 0;
  out->message = 0;
  if (carries) {
    struct zap_sender_counts counts = counts_of(e);
    out->message = zap_sender_take(&f->sender, now, &d, &counts);
    out->payload = d.payload;
    out->payload_length = d.payload_length;
  } else {
    d.segment = f->sender.nxt;
    if (flushed(f)) d.flags |= ZAP_FLAG_DONE;
  }
  out->head_length = zap_datagram_write(&d, out->head);
  if (!carries) out->head_length += 8 * zap_receiver_words(&f->receiver, out->head + out->head_length, words);
  zap_datagram_seal(out->head, out->head_length, out->payload, out->payload_length);
  f->ask = false;
  if (!carries || words == 0) {
    f->receiver.at_once = false;
    f->receiver.untold = 0;
  }
  zap_flow_poke(e, f, now);
  return true;
}

void zap_flow_end(struct zap_endpoint *e, struct zap_flow *f, enum zap_flow_reason reason, bool tell) {
  if (f->ending) return;
  f->ending = true;
  f->reason = reason;
  f->tell = tell;
  e->ending[e->endings++] = f->index;
}

/* Says goodbye, and remembers what to say if the peer did not hear it. */
static void tell(struct zap_endpoint *e, const struct zap_flow *f) {
  uint32_t reason = f->reason < ZAP_FLOW_DEAD ? f->reason : (uint32_t)ZAP_FLOW_ABORTED;
  struct zap_datagram d = {.kind = ZAP_DATAGRAM_CLOSE, .session = f->setup.remote, .reason = reason, .ack = f->receiver.ack};
  zap_reply(e, &f->setup.address, &d, 0);
  e->ghosts[e->next_ghost++ % ZAP_GHOSTS] = (struct zap_ghost){
      .local = f->setup.local,
      .remote = f->setup.remote,
      .until = e->now + zap_ns(e->settings.dead_us),
      .address = f->setup.address,
      .reason = reason,
      .ack = f->receiver.ack,
  };
}

static void bury(struct zap_endpoint *e, struct zap_flow *f) {
  if (f->tell) tell(e, f);
  zap_table_remove(&e->table, f->setup.local);
  zap_timer_stop(&e->timers, &f->timer);
  if (f->active) {
    if (f->earlier == NO_INDEX) e->active_first = f->later;
    else e->flows[f->earlier].later = f->later;
    if (f->later == NO_INDEX) e->active_last = f->earlier;
    else e->flows[f->later].earlier = f->earlier;
    f->active = false;
  }
  struct zap_owner owner = owner_of(e, f);
  zap_receiver_stop(&f->receiver, &owner);
  uint64_t cookie;
  while (zap_sender_fail(&f->sender, &cookie)) fail(e, f, cookie);
  uint32_t handle = zap_flow_handle(f), failed = f->failed, reason = f->reason;
  f->used = false;
  e->names[f->index] = 0;
  f->later = NO_INDEX;
  if (e->free_last == NO_INDEX) e->free_flow = f->index;
  else e->flows[e->free_last].later = f->index;
  e->free_last = f->index;
  e->stats.flows--;
  e->events.down(e->context, handle, (enum zap_flow_reason)reason, failed);
}

void zap_flow_reap(struct zap_endpoint *e) {
  while (e->endings > 0) {
    struct zap_flow *f = &e->flows[e->ending[--e->endings]];
    bury(e, f);
  }
}
