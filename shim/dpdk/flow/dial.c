#include "bytes.h"
#include "state.h"

#define FIRST_WAIT_NS UINT64_C(20000000)
#define MOST_WAIT_NS UINT64_C(320000000)
/* Unanswered HELLOs before a smaller payload is tried. */
#define TRIES 5

/* Payloads for paths that carry less than our port: a usual Ethernet's, and what IPv6 promises. */
static const uint32_t rungs[] = {1384, 1168};

static void begin(struct zap_endpoint *e, struct zap_dial *dial, uint32_t payload) {
  zap_table_remove(&e->table, dial->setup.local);
  dial->setup.local = zap_new_session(e, ZAP_WHAT(ZAP_IS_DIAL, dial->index));
  put64(dial->setup.nonce, zap_random(e));
  put64(dial->setup.nonce + 8, zap_random(e));
  uint32_t start = e->start_fixed ? e->start : (uint32_t)zap_random(e);
  dial->setup.ours = (struct zap_terms){payload, e->settings.credits, start, e->settings.message_bytes};
  dial->setup.challenged_at = 0;
  dial->state = ZAP_DIAL_INIT;
  dial->tries = 0;
}

static uint32_t next_rung(const struct zap_endpoint *e, uint32_t payload) {
  for (uint32_t i = 0; i < sizeof rungs / sizeof *rungs; i++) {
    if (rungs[i] < payload) return rungs[i];
  }
  return e->settings.payload_bytes;
}

static void transmit(struct zap_endpoint *e, const struct zap_dial *dial) {
  const struct zap_setup *setup = &dial->setup;
  struct zap_datagram d = {.client = setup->local, .id = e->settings.id};
  memcpy(d.nonce, setup->nonce, ZAP_NONCE);
  uint32_t padding = 0;
  switch (dial->state) {
    case ZAP_DIAL_INIT: d.kind = ZAP_DATAGRAM_INIT; break;
    case ZAP_DIAL_HELLO:
      d.kind = ZAP_DATAGRAM_HELLO;
      d.slot = dial->slot;
      memcpy(d.mac, dial->mac, sizeof d.mac);
      d.terms = setup->ours;
      padding = ZAP_FLOW_HEADER + setup->ours.payload - ZAP_HELLO_BYTES;
      break;
    case ZAP_DIAL_WELCOMED:
      d = (struct zap_datagram){.kind = ZAP_DATAGRAM_ACK, .flags = ZAP_FLAG_ANSWER, .session = setup->remote};
      d.segment = setup->ours.start;
      d.ack = setup->theirs.start;
      d.limit = d.ack + setup->ours.credits;
      d.echo = d.ack - 1;
      break;
  }
  zap_reply(e, &setup->address, &d, padding);
}

static void arm(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial) {
  uint64_t wait = FIRST_WAIT_NS << (dial->tries < 4 ? dial->tries : 4);
  dial->again_at = now + (wait < MOST_WAIT_NS ? wait : MOST_WAIT_NS);
  zap_timer_by(&e->timers, &dial->timer, dial->again_at < dial->until ? dial->again_at : dial->until);
}

/* Another flow with that node has to be dead before ours is confirmed. */
static bool may_confirm(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial) {
  struct zap_flow *rival = zap_flow_with(e, &dial->setup.id);
  if (rival == NULL) return true;
  int lives = zap_challenge(e, now, rival, &dial->setup);
  if (lives > 0) zap_dial_end(e, dial, ZAP_FLOW_DUPLICATE, zap_flow_handle(rival));
  return lives < 0 && !dial->over;
}

void zap_dial_timer(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial) {
  if (!dial->used || dial->over) return;
  if (now >= dial->until) {
    zap_dial_end(e, dial, ZAP_FLOW_TIMEOUT, ZAP_NO_FLOW);
    return;
  }
  if (now >= dial->again_at) {
    bool waits = dial->state == ZAP_DIAL_WELCOMED && !may_confirm(e, now, dial);
    if (!dial->used || dial->over) return;
    dial->tries++;
    /* A confirmation is repeated to the end: the far end may have made a flow of it already, and a new handshake would cost that. */
    if (dial->tries >= TRIES && dial->state == ZAP_DIAL_HELLO) begin(e, dial, next_rung(e, dial->setup.ours.payload));
    if (!waits) transmit(e, dial);
  }
  arm(e, now, dial);
}

static void advance(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial, enum zap_dial_state state) {
  dial->state = state;
  dial->tries = 0;
  if (state != ZAP_DIAL_WELCOMED || may_confirm(e, now, dial)) transmit(e, dial);
  if (dial->used && !dial->over) arm(e, now, dial);
}

static void welcomed(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial, const struct zap_datagram *d) {
  struct zap_setup *setup = &dial->setup;
  if (zap_id_equal(&d->id, &e->settings.id)) {
    zap_dial_end(e, dial, ZAP_FLOW_SELF, ZAP_NO_FLOW);
  } else if (!zap_is_allowed(e, &d->id, &setup->address) || (dial->expects && !zap_id_equal(&d->id, &dial->expected))) {
    zap_dial_end(e, dial, ZAP_FLOW_NOT_ALLOWED, ZAP_NO_FLOW);
  } else if (d->terms.payload > setup->ours.payload) {
    zap_dial_end(e, dial, ZAP_FLOW_SETTINGS, ZAP_NO_FLOW);
  } else {
    setup->remote = d->client;
    setup->id = d->id;
    setup->theirs = d->terms;
    setup->ours.payload = d->terms.payload;
    advance(e, now, dial, ZAP_DIAL_WELCOMED);
  }
}

/* The far end has made a flow of it, and so do we. */
static void confirmed(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial, const struct zap_datagram *d) {
  /* Its window begins where we said, so it is an answer to our confirmation. */
  if (!may_confirm(e, now, dial)) return;
  struct zap_setup setup = dial->setup;
  uint64_t cookie = dial->cookie;
  if (e->free_flow == NO_INDEX) {
    struct zap_datagram no = {.kind = ZAP_DATAGRAM_CLOSE, .session = setup.remote, .reason = ZAP_FLOW_FULL, .ack = setup.theirs.start};
    zap_reply(e, &setup.address, &no, 0);
    zap_dial_end(e, dial, ZAP_FLOW_FULL, ZAP_NO_FLOW);
    return;
  }
  setup.dialled = true;
  dial->setup.local = 0; /* stays in the table, for the flow */
  zap_dial_forget(e, dial);
  zap_candidates_forget(e, &setup.id, &setup.address);
  struct zap_flow *f = zap_flow_begin(e, now, &setup, cookie);
  if (f != NULL) zap_flow_input(e, f, now, d);
}

void zap_dial_input(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial, const struct zap_datagram *d) {
  if (dial->over) return;
  bool named = d->kind == ZAP_DATAGRAM_COOKIE || d->kind == ZAP_DATAGRAM_WELCOME || d->kind == ZAP_DATAGRAM_REFUSE;
  if (named && memcmp(d->nonce, dial->setup.nonce, ZAP_NONCE) != 0) {
    zap_drop(e, ZAP_DROP_COOKIE);
    return;
  }
  if (d->kind == ZAP_DATAGRAM_COOKIE && dial->state == ZAP_DIAL_INIT) {
    dial->slot = d->slot;
    memcpy(dial->mac, d->mac, sizeof dial->mac);
    advance(e, now, dial, ZAP_DIAL_HELLO);
  } else if (d->kind == ZAP_DATAGRAM_WELCOME && dial->state == ZAP_DIAL_HELLO) {
    welcomed(e, now, dial, d);
  } else if (d->kind == ZAP_DATAGRAM_REFUSE && dial->state != ZAP_DIAL_INIT) {
    bool known = d->reason >= ZAP_FLOW_FULL && d->reason <= ZAP_FLOW_SETTINGS;
    zap_dial_end(e, dial, known ? (enum zap_flow_reason)d->reason : ZAP_FLOW_ABORTED, ZAP_NO_FLOW);
  } else if (dial->state == ZAP_DIAL_WELCOMED && d->kind == ZAP_DATAGRAM_CLOSE) {
    const struct zap_flow *other = zap_flow_with(e, &dial->setup.id);
    zap_dial_end(e, dial, d->reason == ZAP_FLOW_FULL ? ZAP_FLOW_FULL : ZAP_FLOW_DUPLICATE,
                 other != NULL ? zap_flow_handle(other) : ZAP_NO_FLOW);
  } else if (dial->state == ZAP_DIAL_WELCOMED && (d->kind == ZAP_DATAGRAM_DATA || d->kind == ZAP_DATAGRAM_ACK)) {
    confirmed(e, now, dial, d);
  }
}

void zap_dial_end(struct zap_endpoint *e, struct zap_dial *dial, enum zap_flow_reason reason, uint32_t flow) {
  if (!dial->used || dial->over) return;
  dial->over = true;
  dial->reason = reason;
  dial->flow = flow;
  e->dials_over = true;
}

void zap_dial_forget(struct zap_endpoint *e, struct zap_dial *dial) {
  zap_table_remove(&e->table, dial->setup.local);
  zap_timer_stop(&e->timers, &dial->timer);
  dial->used = false;
  e->stats.dials--;
}

void zap_dials_reap(struct zap_endpoint *e) {
  while (e->dials_over) {
    e->dials_over = false;
    for (uint32_t i = 0; i < e->settings.dials; i++) {
      struct zap_dial *dial = &e->dials[i];
      if (!dial->used || !dial->over) continue;
      zap_dial_forget(e, dial);
      e->events.dialled(e->context, dial->cookie, (enum zap_flow_reason)dial->reason, dial->flow);
    }
  }
}

struct zap_dial *zap_dial_twin(struct zap_endpoint *e, const struct zap_flow_id *id, const struct zap_flow_address *address) {
  for (uint32_t i = 0; i < e->settings.dials && e->stats.dials > 0; i++) {
    struct zap_dial *dial = &e->dials[i];
    if (!dial->used || dial->over) continue;
    if (zap_address_equal(&dial->setup.address, address)) return dial;
    if (dial->state == ZAP_DIAL_WELCOMED && zap_id_equal(&dial->setup.id, id)) return dial;
  }
  return NULL;
}

enum zap_flow_status zap_endpoint_dial(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *to,
                                       const struct zap_flow_id *expected, uint64_t cookie) {
  if (cookie == 0 || to->port == 0 || (expected != NULL && (expected->length == 0 || expected->length > ZAP_FLOW_ID))) return ZAP_FLOW_INVALID;
  uint32_t index = 0;
  while (index < e->settings.dials && e->dials[index].used) index++;
  if (index == e->settings.dials) return ZAP_FLOW_AGAIN;
  struct zap_dial *dial = &e->dials[index];
  *dial = (struct zap_dial){.used = true, .index = index, .cookie = cookie, .expects = expected != NULL};
  if (expected != NULL) dial->expected = *expected;
  dial->timer.what = ZAP_WHAT(ZAP_IS_DIAL, index);
  dial->setup.address = *to;
  dial->until = now + zap_ns(e->settings.handshake_us);
  e->stats.dials++;
  begin(e, dial, e->settings.payload_bytes);
  transmit(e, dial);
  arm(e, now, dial);
  return ZAP_FLOW_OK;
}

void zap_endpoint_cancel(struct zap_endpoint *e, uint64_t cookie) {
  for (uint32_t i = 0; i < e->settings.dials; i++) {
    if (e->dials[i].used && e->dials[i].cookie == cookie) zap_dial_end(e, &e->dials[i], ZAP_FLOW_CANCELLED, ZAP_NO_FLOW);
  }
}
