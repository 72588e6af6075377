#include <stdlib.h>
#include <string.h>

#include "state.h"

/* Cuts pieces from one block; without a block it only measures. */
struct arena {
  uint8_t *base;
  size_t used;
};

static void *cut(struct arena *arena, size_t count, size_t size) {
  void *piece = arena->base == NULL ? NULL : arena->base + arena->used;
  arena->used += (count * size + 63) / 64 * 64;
  return piece;
}

static uint32_t table_size(const struct zap_flow_settings *s) {
  uint32_t size = 64;
  while (size < 2 * (s->flows + s->dials + s->candidates)) size *= 2;
  return size;
}

static void cut_flow(struct arena *arena, const struct zap_flow_settings *s, struct zap_flow *f) {
  f->sender.segments = cut(arena, s->credits, sizeof *f->sender.segments);
  f->sender.lost = cut(arena, s->credits / 64, sizeof *f->sender.lost);
  f->sender.sacked = cut(arena, s->credits / 64, sizeof *f->sender.sacked);
  f->sender.messages = cut(arena, s->queue_messages, sizeof *f->sender.messages);
  f->receiver.messages = cut(arena, s->credits, sizeof *f->receiver.messages);
  f->receiver.here = cut(arena, s->credits / 64, sizeof *f->receiver.here);
  f->sender.mask = f->receiver.mask = s->credits - 1;
  f->sender.message_mask = s->queue_messages - 1;
}

static struct zap_endpoint *carve(struct arena *arena, const struct zap_flow_settings *s) {
  struct zap_endpoint measured = {0};
  struct zap_endpoint *e = cut(arena, 1, sizeof *e);
  struct zap_endpoint *into = e == NULL ? &measured : e;
  into->allow = cut(arena, s->allowed, sizeof *into->allow);
  into->dials = cut(arena, s->dials, sizeof *into->dials);
  into->candidates = cut(arena, s->candidates, sizeof *into->candidates);
  into->replies = cut(arena, ZAP_REPLIES, sizeof *into->replies);
  into->padding = cut(arena, s->payload_bytes, 1);
  into->ending = cut(arena, s->flows, sizeof *into->ending);
  into->table.mask = table_size(s) - 1;
  into->table.entries = cut(arena, table_size(s), sizeof *into->table.entries);
  into->timers.heap = cut(arena, s->flows + s->dials + 1, sizeof *into->timers.heap);
  into->names = cut(arena, s->flows, sizeof *into->names);
  into->flows = cut(arena, s->flows, sizeof *into->flows);
  if (e == NULL) {
    struct arena one = {0};
    struct zap_flow unused = {0};
    cut_flow(&one, s, &unused);
    arena->used += one.used * s->flows;
    return NULL;
  }
  for (uint32_t i = 0; i < s->flows; i++) {
    cut_flow(arena, s, &e->flows[i]);
    e->flows[i].index = i;
    e->flows[i].later = i + 1 < s->flows ? i + 1 : NO_INDEX;
  }
  return e;
}

size_t zap_endpoint_bytes(const struct zap_flow_settings *resolved) {
  struct arena arena = {0};
  (void)carve(&arena, resolved);
  return arena.used;
}

struct zap_endpoint *zap_endpoint_create(const struct zap_flow_settings *settings, const struct zap_flow_events *events, void *context,
                                         const uint8_t seed[32], uint64_t now) {
  struct zap_flow_settings resolved = *settings;
  const char *fault;
  if (zap_flow_settings_resolve(&resolved, &fault) != ZAP_FLOW_OK) return NULL;
  /* From calloc, so that pages of flows that never are stay untouched. */
  struct arena arena = {calloc(1, zap_endpoint_bytes(&resolved)), 0};
  if (arena.base == NULL) return NULL;
  struct zap_endpoint *e = carve(&arena, &resolved);
  e->settings = resolved;
  if (resolved.allow != NULL) memcpy(e->allow, resolved.allow, resolved.allowed * sizeof *e->allow);
  e->events = *events;
  e->context = context;
  memcpy(e->cookie_key, seed, 16);
  memcpy(e->random_key, seed + 16, 16);
  e->now = now;
  e->free_flow = 0;
  e->free_last = resolved.flows - 1;
  e->active_first = e->active_last = NO_INDEX;
  return e;
}

void zap_endpoint_destroy(struct zap_endpoint *e) {
  if (e == NULL) return;
  for (uint32_t i = 0; i < e->settings.dials; i++) zap_dial_end(e, &e->dials[i], ZAP_FLOW_CANCELLED, ZAP_NO_FLOW);
  for (uint32_t i = 0; i < e->settings.flows; i++) {
    if (e->flows[i].used) zap_flow_end(e, &e->flows[i], ZAP_FLOW_CANCELLED, false);
  }
  zap_flow_reap(e);
  zap_dials_reap(e);
  free(e);
}
