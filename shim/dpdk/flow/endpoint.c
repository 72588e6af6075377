#include "bytes.h"
#include "siphash.h"
#include "state.h"

void zap_drop(struct zap_endpoint *e, enum zap_flow_drop why) { e->stats.drops[why]++; }

uint64_t zap_random(struct zap_endpoint *e) {
  uint8_t count[8];
  put64(count, e->random_count++);
  return zap_siphash(e->random_key, count, sizeof count);
}

uint64_t zap_new_session(struct zap_endpoint *e, uint32_t what) {
  uint64_t session;
  uint32_t other;
  do session = zap_random(e);
  while (session == 0 || zap_table_find(&e->table, session, &other));
  zap_table_add(&e->table, session, what);
  return session;
}

bool zap_is_allowed(const struct zap_endpoint *e, const struct zap_flow_id *id, const struct zap_flow_address *address) {
  if (e->settings.allow == NULL) return true;
  bool known = false;
  for (uint32_t i = 0; i < e->settings.allowed; i++) {
    const struct zap_flow_allowed *entry = &e->allow[i];
    if (!zap_id_equal(&entry->id, id)) continue;
    known = true;
    if (!entry->pinned) return true;
    bool port = entry->address.port == 0 || entry->address.port == address->port;
    if (port && memcmp(entry->address.ip, address->ip, sizeof address->ip) == 0) return true;
  }
  return !known && e->settings.strangers;
}

void zap_reply(struct zap_endpoint *e, const struct zap_flow_address *to, const struct zap_datagram *fields, uint32_t padding) {
  if (e->replies_in - e->replies_out == ZAP_REPLIES) {
    zap_drop(e, ZAP_DROP_REPLY);
    return;
  }
  struct zap_reply *reply = &e->replies[e->replies_in++ % ZAP_REPLIES];
  reply->to = *to;
  reply->head_length = zap_datagram_write(fields, reply->head);
  reply->padding = padding;
}

/* Time in which nobody called us is not held against peers. */
static void mind_the_gap(struct zap_endpoint *e, uint64_t now) {
  uint64_t gap = now - e->now;
  e->now = now;
  if (gap < zap_ns(e->settings.dead_us) / 4) return;
  for (uint32_t i = 0; i < e->settings.flows && e->stats.flows > 0; i++) {
    if (e->flows[i].used) e->flows[i].heard += gap;
  }
}

static void enter(struct zap_endpoint *e, uint64_t now) {
  if (now > e->now) mind_the_gap(e, now);
}

static void leave(struct zap_endpoint *e) {
  while (e->endings > 0 || e->dials_over) {
    zap_flow_reap(e);
    zap_dials_reap(e);
  }
}

/* A datagram for a session that is no more: its peer may have missed the goodbye. */
static void ghost_input(struct zap_endpoint *e, const struct zap_flow_address *from, const struct zap_datagram *d) {
  for (uint32_t i = 0; i < ZAP_GHOSTS; i++) {
    const struct zap_ghost *ghost = &e->ghosts[i];
    if (ghost->local != d->session || e->now >= ghost->until || d->session == 0) continue;
    if (!zap_address_equal(&ghost->address, from) || d->kind == ZAP_DATAGRAM_CLOSE) break;
    struct zap_datagram close = {.kind = ZAP_DATAGRAM_CLOSE, .session = ghost->remote, .reason = ghost->reason, .ack = ghost->ack};
    zap_reply(e, from, &close, 0);
    return;
  }
  zap_drop(e, ZAP_DROP_SESSION);
}

static void session_input(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d) {
  uint32_t what;
  if (!zap_table_find(&e->table, d->session, &what)) {
    ghost_input(e, from, d);
    return;
  }
  uint32_t index = ZAP_WHAT_INDEX(what), kind = ZAP_WHAT_KIND(what);
  const struct zap_setup *setup = kind == ZAP_IS_FLOW   ? &e->flows[index].setup
                                  : kind == ZAP_IS_DIAL ? &e->dials[index].setup
                                                        : &e->candidates[index].setup;
  if (!zap_address_equal(&setup->address, from)) {
    zap_drop(e, ZAP_DROP_ADDRESS);
    return;
  }
  if (kind == ZAP_IS_DIAL) {
    zap_dial_input(e, now, &e->dials[index], d);
    return;
  }
  struct zap_flow *f = &e->flows[index];
  if (kind == ZAP_IS_CANDIDATE) {
    if (d->kind == ZAP_DATAGRAM_CLOSE) {
      zap_candidate_forget(e, &e->candidates[index]);
      return;
    }
    f = d->kind == ZAP_DATAGRAM_DATA || d->kind == ZAP_DATAGRAM_ACK ? zap_admit_confirm(e, now, &e->candidates[index]) : NULL;
  }
  if (f != NULL) zap_flow_input(e, f, now, d);
}

void zap_endpoint_input(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const uint8_t *bytes, uint32_t length) {
  enter(e, now);
  e->stats.datagrams_in++;
  e->stats.bytes_in += length;
  struct zap_datagram d;
  enum zap_flow_drop why;
  if (!zap_datagram_read(&d, bytes, length, &why)) {
    zap_drop(e, why);
    return;
  }
  bool dials = d.kind == ZAP_DATAGRAM_INIT || d.kind == ZAP_DATAGRAM_HELLO;
  if (dials && e->settings.dial_only) zap_drop(e, ZAP_DROP_DIAL_ONLY);
  else if (d.kind == ZAP_DATAGRAM_INIT) zap_admit_init(e, now, from, &d);
  else if (d.kind == ZAP_DATAGRAM_HELLO) zap_admit_hello(e, now, from, &d);
  else session_input(e, now, from, &d);
  leave(e);
}

void zap_endpoint_advance(struct zap_endpoint *e, uint64_t now) {
  enter(e, now);
  leave(e);
  for (struct zap_timer *timer = zap_timer_due(&e->timers, now); timer != NULL; timer = zap_timer_due(&e->timers, now)) {
    uint32_t index = ZAP_WHAT_INDEX(timer->what);
    if (ZAP_WHAT_KIND(timer->what) == ZAP_IS_FLOW) zap_flow_timer(e, &e->flows[index], now);
    else zap_dial_timer(e, now, &e->dials[index]);
    leave(e);
  }
}

static bool output_reply(struct zap_endpoint *e, struct zap_flow_output *out) {
  if (e->replies_in == e->replies_out) return false;
  const struct zap_reply *reply = &e->replies[e->replies_out++ % ZAP_REPLIES];
  memcpy(out->head, reply->head, reply->head_length);
  out->to = reply->to;
  out->head_length = reply->head_length;
  out->payload = e->padding;
  out->payload_length = reply->padding;
  out->has_message = false;
  out->flow = ZAP_NO_FLOW;
  out->message = 0;
  zap_datagram_seal(out->head, out->head_length, out->payload, out->payload_length);
  return true;
}

static bool output_flow(struct zap_endpoint *e, uint64_t now, struct zap_flow_output *out) {
  while (e->active_first != NO_INDEX) {
    struct zap_flow *f = &e->flows[e->active_first];
    e->active_first = f->later;
    if (f->later == NO_INDEX) e->active_last = NO_INDEX;
    else e->flows[f->later].earlier = NO_INDEX;
    f->active = false;
    /* It goes to the end of the list if there is more. */
    if (zap_flow_output(e, f, now, out)) return true;
  }
  return false;
}

bool zap_endpoint_output(struct zap_endpoint *e, uint64_t now, struct zap_flow_output *out) {
  enter(e, now);
  /* In turns: neither a flood of dials nor busy flows keep the other waiting. */
  e->reply_next = !e->reply_next;
  bool any = e->reply_next ? output_reply(e, out) || output_flow(e, now, out) : output_flow(e, now, out) || output_reply(e, out);
  if (!any) return false;
  e->stats.datagrams_out++;
  e->stats.bytes_out += out->head_length + out->payload_length;
  return true;
}

uint64_t zap_endpoint_deadline(const struct zap_endpoint *e) {
  if (e->active_first != NO_INDEX || e->replies_in != e->replies_out || e->endings > 0 || e->dials_over) return 0;
  return e->timers.count > 0 ? e->timers.heap[1]->at : NEVER;
}

enum zap_flow_status zap_endpoint_send(struct zap_endpoint *e, uint32_t flow, const uint8_t *bytes, uint32_t length, uint64_t message) {
  struct zap_flow *f = zap_flow_of(e, flow);
  if (f == NULL || f->closing) return ZAP_FLOW_GONE;
  if (bytes == NULL || length == 0) return ZAP_FLOW_INVALID;
  if (length > e->settings.message_bytes || length > f->setup.theirs.message) return ZAP_FLOW_TOO_LARGE;
  bool full = f->sender.queued_bytes > 0 && f->sender.queued_bytes + length > e->settings.queue_bytes;
  if (full || !zap_sender_add(&f->sender, bytes, length, message)) {
    f->starved = true;
    return ZAP_FLOW_AGAIN;
  }
  zap_flow_poke(e, f, e->now);
  return ZAP_FLOW_OK;
}

void zap_endpoint_close(struct zap_endpoint *e, uint64_t now, uint32_t flow) {
  struct zap_flow *f = zap_flow_of(e, flow);
  if (f == NULL || f->closing) return;
  f->closing = true;
  f->close_at = now + zap_ns(e->settings.close_us);
  zap_flow_poke(e, f, now);
}

void zap_endpoint_abort(struct zap_endpoint *e, uint32_t flow) {
  struct zap_flow *f = zap_flow_of(e, flow);
  if (f != NULL) zap_flow_end(e, f, ZAP_FLOW_ABORTED, true);
}

void zap_endpoint_ready(struct zap_endpoint *e, uint64_t now) {
  for (uint32_t i = 0; i < e->settings.flows && e->stats.flows > 0; i++) {
    struct zap_flow *f = &e->flows[i];
    if (!f->used || f->ending || !f->receiver.held_back) continue;
    f->receiver.again_at = now;
    zap_timer_by(&e->timers, &f->timer, now);
  }
}

bool zap_endpoint_peer(const struct zap_endpoint *e, uint32_t flow, struct zap_flow_peer *peer) {
  const struct zap_flow *f = zap_flow_of(e, flow);
  if (f == NULL) return false;
  const struct zap_sender *s = &f->sender;
  *peer = (struct zap_flow_peer){
      .id = f->setup.id,
      .address = f->setup.address,
      .dialled = f->setup.dialled,
      .payload_bytes = f->setup.ours.payload,
      .window = s->congestion.window,
      .credits = s->limit - s->una,
      .flying = s->flying,
      .rtt_us = (uint32_t)(s->congestion.srtt / 1000),
      .rttvar_us = (uint32_t)(s->congestion.rttvar / 1000),
      .queued_messages = zap_sender_messages(s),
      .queued_bytes = s->queued_bytes,
      .held_bytes = f->receiver.held,
  };
  return true;
}

void zap_endpoint_stats(const struct zap_endpoint *e, struct zap_flow_stats *stats) { *stats = e->stats; }

void zap_endpoint_start_at(struct zap_endpoint *e, uint32_t start) {
  e->start_fixed = true;
  e->start = start;
}
