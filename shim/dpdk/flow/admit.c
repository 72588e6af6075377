#include "bytes.h"
#include "siphash.h"
#include "state.h"

/* A cookie is good for the slot of 17 seconds that it was made in, and the next one. */
#define SLOT_BITS 34
/* A candidate that its dialler does not confirm. */
#define CANDIDATE_NS UINT64_C(5000000000)

static void make_mac(const struct zap_endpoint *e, const struct zap_flow_address *from, const struct zap_datagram *d, uint32_t slot,
                     uint8_t mac[16]) {
  uint8_t text[16 + 2 + 8 + ZAP_NONCE + 1 + ZAP_FLOW_ID + 4] = {0};
  memcpy(text, from->ip, 16);
  put16(text + 16, from->port);
  put64(text + 18, d->client);
  memcpy(text + 26, d->nonce, ZAP_NONCE);
  text[42] = d->id.length;
  memcpy(text + 43, d->id.bytes, d->id.length);
  put32(text + 43 + ZAP_FLOW_ID, slot);
  zap_siphash128(e->cookie_key, text, sizeof text, mac);
}

/* Keeps nothing: all that it needs comes back with the HELLO. */
void zap_admit_init(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d) {
  struct zap_datagram cookie = {.kind = ZAP_DATAGRAM_COOKIE, .session = d->client, .slot = (uint32_t)(now >> SLOT_BITS)};
  memcpy(cookie.nonce, d->nonce, ZAP_NONCE);
  make_mac(e, from, d, cookie.slot, cookie.mac);
  zap_reply(e, from, &cookie, 0);
}

static bool cookie_is_good(const struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d) {
  if ((uint32_t)(now >> SLOT_BITS) - d->slot > 1) return false;
  uint8_t mac[16], difference = 0;
  make_mac(e, from, d, d->slot, mac);
  for (int i = 0; i < 16; i++) difference |= (uint8_t)(mac[i] ^ d->mac[i]);
  return difference == 0;
}

static void refuse(struct zap_endpoint *e, const struct zap_flow_address *from, const struct zap_datagram *d, enum zap_flow_reason reason,
                   enum zap_flow_drop why) {
  zap_drop(e, why);
  struct zap_datagram answer = {.kind = ZAP_DATAGRAM_REFUSE, .session = d->client, .reason = reason};
  memcpy(answer.nonce, d->nonce, ZAP_NONCE);
  zap_reply(e, from, &answer, 0);
}

static void welcome(struct zap_endpoint *e, const struct zap_setup *setup) {
  struct zap_datagram d = {.kind = ZAP_DATAGRAM_WELCOME, .session = setup->remote, .client = setup->local};
  memcpy(d.nonce, setup->nonce, ZAP_NONCE);
  d.id = e->settings.id;
  d.terms = setup->ours;
  zap_reply(e, &setup->address, &d, ZAP_FLOW_HEADER + setup->ours.payload - ZAP_WELCOME_BYTES);
}

void zap_candidate_forget(struct zap_endpoint *e, struct zap_candidate *candidate) {
  if (!candidate->used) return;
  zap_table_remove(&e->table, candidate->setup.local);
  candidate->used = false;
  e->stats.candidates--;
}

void zap_candidates_forget(struct zap_endpoint *e, const struct zap_flow_id *id, const struct zap_flow_address *address) {
  for (uint32_t i = 0; i < e->settings.candidates && e->stats.candidates > 0; i++) {
    struct zap_candidate *c = &e->candidates[i];
    if (c->used && (zap_id_equal(&c->setup.id, id) || zap_address_equal(&c->setup.address, address))) zap_candidate_forget(e, c);
  }
}

/* The place for a candidate from that address: its own, a free one, or that of the oldest. */
static struct zap_candidate *place_for(struct zap_endpoint *e, const struct zap_flow_address *from) {
  struct zap_candidate *best = &e->candidates[0];
  for (uint32_t i = 0; i < e->settings.candidates; i++) {
    struct zap_candidate *c = &e->candidates[i];
    if (c->used && zap_address_equal(&c->setup.address, from)) return c;
    if (best->used && (!c->used || c->since < best->since)) best = c;
  }
  return best;
}

static void consider(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d) {
  struct zap_candidate *c = place_for(e, from);
  uint32_t payload = d->terms.payload < e->settings.payload_bytes ? d->terms.payload : e->settings.payload_bytes;
  if (c->used && c->setup.remote == d->client && c->setup.ours.payload == payload && zap_address_equal(&c->setup.address, from) &&
      memcmp(c->setup.nonce, d->nonce, ZAP_NONCE) == 0) {
    welcome(e, &c->setup);
    return;
  }
  zap_candidate_forget(e, c);
  *c = (struct zap_candidate){.used = true, .since = now};
  c->setup.address = *from;
  c->setup.remote = d->client;
  memcpy(c->setup.nonce, d->nonce, ZAP_NONCE);
  c->setup.id = d->id;
  c->setup.theirs = d->terms;
  c->setup.theirs.payload = payload;
  uint32_t start = e->start_fixed ? e->start : (uint32_t)zap_random(e);
  c->setup.ours = (struct zap_terms){payload, e->settings.credits, start, e->settings.message_bytes};
  c->setup.local = zap_new_session(e, ZAP_WHAT(ZAP_IS_CANDIDATE, c - e->candidates));
  e->stats.candidates++;
  welcome(e, &c->setup);
}

void zap_admit_hello(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d) {
  if (!cookie_is_good(e, now, from, d)) {
    zap_drop(e, ZAP_DROP_COOKIE);
    return;
  }
  if (zap_id_equal(&d->id, &e->settings.id)) {
    refuse(e, from, d, ZAP_FLOW_SELF, ZAP_DROP_TWIN);
    return;
  }
  if (!zap_is_allowed(e, &d->id, from)) {
    refuse(e, from, d, ZAP_FLOW_NOT_ALLOWED, ZAP_DROP_ALLOW);
    return;
  }
  struct zap_flow *f = zap_flow_with(e, &d->id);
  if (f != NULL && !f->setup.dialled && f->setup.remote == d->client && zap_address_equal(&f->setup.address, from)) {
    welcome(e, &f->setup);
    return;
  }
  const struct zap_dial *ours = zap_dial_twin(e, &d->id, from);
  if (ours != NULL && zap_id_compare(&e->settings.id, &d->id) < 0) {
    zap_drop(e, ZAP_DROP_TWIN);
    return;
  }
  if (f == NULL && e->free_flow == NO_INDEX) {
    refuse(e, from, d, ZAP_FLOW_FULL, ZAP_DROP_FULL);
    return;
  }
  consider(e, now, from, d);
}

int zap_challenge(struct zap_endpoint *e, uint64_t now, struct zap_flow *rival, struct zap_setup *setup) {
  if (setup->challenged_at == 0) {
    setup->challenged_at = now;
  } else if (rival->heard > setup->challenged_at) {
    return 1;
  } else if (now - setup->challenged_at >= zap_ns(e->settings.challenge_us)) {
    zap_flow_end(e, rival, ZAP_FLOW_DEAD, true);
    zap_flow_reap(e);
    return -1;
  }
  rival->ask = true;
  zap_flow_poke(e, rival, now);
  return 0;
}

static void turn_away(struct zap_endpoint *e, struct zap_candidate *c, enum zap_flow_reason reason) {
  struct zap_datagram d = {.kind = ZAP_DATAGRAM_CLOSE, .session = c->setup.remote, .reason = reason, .ack = c->setup.theirs.start};
  zap_reply(e, &c->setup.address, &d, 0);
  zap_candidate_forget(e, c);
}

struct zap_flow *zap_admit_confirm(struct zap_endpoint *e, uint64_t now, struct zap_candidate *candidate) {
  if (now - candidate->since > CANDIDATE_NS) {
    zap_candidate_forget(e, candidate);
    zap_drop(e, ZAP_DROP_SESSION);
    return NULL;
  }
  struct zap_setup setup = candidate->setup;
  struct zap_dial *ours = zap_dial_twin(e, &setup.id, &setup.address);
  if (ours != NULL && zap_id_compare(&e->settings.id, &setup.id) < 0) {
    zap_drop(e, ZAP_DROP_TWIN);
    return NULL;
  }
  struct zap_flow *rival = zap_flow_with(e, &setup.id);
  if (rival != NULL && zap_address_equal(&rival->setup.address, &setup.address)) {
    zap_flow_end(e, rival, ZAP_FLOW_RESTARTED, false);
    zap_flow_reap(e);
  } else if (rival != NULL) {
    int lives = zap_challenge(e, now, rival, &candidate->setup);
    if (lives > 0) turn_away(e, candidate, ZAP_FLOW_DUPLICATE);
    if (lives >= 0) {
      zap_drop(e, ZAP_DROP_TWIN);
      return NULL;
    }
  }
  if (e->free_flow == NO_INDEX) {
    zap_drop(e, ZAP_DROP_FULL);
    turn_away(e, candidate, ZAP_FLOW_FULL);
    return NULL;
  }
  /* Its session stays in the table, for the flow. */
  candidate->used = false;
  e->stats.candidates--;
  zap_candidates_forget(e, &setup.id, &setup.address);
  uint64_t dial = 0;
  /* A callback may have ended ours meanwhile. */
  ours = zap_dial_twin(e, &setup.id, &setup.address);
  if (ours != NULL) {
    dial = ours->cookie;
    zap_dial_forget(e, ours);
  }
  return zap_flow_begin(e, now, &setup, dial);
}
