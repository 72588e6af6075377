/* Messages to be sent, and the datagrams that the state machine makes of them and of its own. Everything here has the engine's lock. */
#include "engine.h"

#include <string.h>

/* Of one turn: others want their turn, and acknowledgements come in meanwhile. */
#define SENDS_MOST 512
#define DATAGRAMS_MOST 128
#define PARKED_NS UINT64_C(250000000)

static void finish(struct zap_engine *engine, uint32_t number, uint32_t flow, bool delivered) {
  zap_ring_entry *entry = zap_ring_write(&engine->dones);
  *entry = (zap_ring_entry){.token = number, .peer = flow, .length = delivered ? 1 : 0};
  engine->finished = true;
}

static void settle(struct zap_engine *engine, uint32_t number) {
  struct zap_parcel *parcel = &engine->parcels[number];
  if (!parcel->done || parcel->references > 0) return;
  parcel->busy = false;
  finish(engine, number, parcel->flow, parcel->delivered);
}

void zap_engine_done(void *context, uint32_t flow, uint64_t message, bool delivered) {
  (void)flow;
  struct zap_engine *engine = context;
  uint32_t number = (uint32_t)(message - 1);
  engine->parcels[number].done = true;
  engine->parcels[number].delivered = delivered;
  settle(engine, number);
}

void zap_engine_dereference(struct zap_engine *engine, uint32_t number) {
  engine->parcels[number].references--;
  settle(engine, number);
}

bool zap_engine_has_sends(const struct zap_engine *engine) {
  return __atomic_load_n(&engine->sends.ring->tail, __ATOMIC_RELAXED) != engine->sends.mine;
}

/* False: not now, and nothing was done. */
static bool take_send(struct zap_engine *engine, const zap_ring_entry *entry) {
  const struct zap_engine_settings *settings = &engine->settings;
  uint32_t number = entry->token;
  uint64_t at = entry->address - (uint64_t)(uintptr_t)settings->memory;
  /* A number that is in use, or none at all, cannot even be given back. */
  if (number >= ZAP_DPDK_MESSAGES || engine->parcels[number].busy) {
    engine->unusable++;
    return true;
  }
  enum zap_flow_status status = ZAP_FLOW_INVALID;
  if (at < settings->memory_bytes && entry->length <= settings->memory_bytes - at)
    status = zap_endpoint_send(engine->endpoint, entry->peer, settings->memory + at, entry->length, (uint64_t)number + 1);
  if (status == ZAP_FLOW_AGAIN) return false;
  if (status != ZAP_FLOW_OK) {
    if (status != ZAP_FLOW_GONE) engine->unusable++;
    finish(engine, number, entry->peer, false);
    return true;
  }
  engine->parcels[number] = (struct zap_parcel){.flow = entry->peer, .busy = true};
  return true;
}

bool zap_engine_take_sends(struct zap_engine *engine) {
  uint32_t ready = zap_ring_ready(&engine->sends), taken = 0;
  if (ready > SENDS_MOST) ready = SENDS_MOST;
  while (taken < ready) {
    zap_ring_entry entry = *zap_ring_slot(engine->sends.ring, engine->sends.slots, engine->sends.mine);
    if (!take_send(engine, &entry)) break;
    engine->sends.mine++;
    taken++;
  }
  if (taken > 0) zap_ring_consumed(&engine->sends);
  return taken > 0;
}

/* A thread may hold the engine's lock here, or come from the port with it free. */
static void released(void *context, void *cookie) {
  struct zap_engine_queue *queue = context;
  struct zap_engine *engine = queue->engine;
  uint32_t number = (uint32_t)(uintptr_t)cookie;
  if (queue->locked) {
    zap_engine_dereference(engine, number);
    return;
  }
  pthread_mutex_lock(&engine->lock);
  zap_engine_dereference(engine, number);
  /* It may have been all that the caller's token was waiting for. */
  zap_engine_leave(engine);
}

static enum zap_sent transmit(struct zap_engine *engine, struct zap_queue *queue, const struct zap_flow_output *out, uint64_t now) {
  struct zap_outbound datagram = {
      .port = out->to.port,
      .head = out->head,
      .head_length = out->head_length,
      .payload = out->payload,
      .payload_length = out->payload_length,
  };
  memcpy(datagram.ip.bytes, out->to.ip, sizeof datagram.ip.bytes);
  if (out->has_message) {
    datagram.released = released;
    datagram.context = &engine->queues[0];
    datagram.cookie = (void *)(uintptr_t)(out->message - 1);
  }
  return zap_queue_send(queue, &datagram, now);
}

/* What carries no message waits for its neighbour: a handshake would else begin with a pause. */
static bool park(struct zap_engine *engine, uint64_t now) {
  struct zap_flow_output *out = &engine->out;
  if (out->has_message || engine->parked_count == ZAP_PARKED || out->head_length > sizeof engine->parked[0].head) return false;
  struct zap_parked *parked = &engine->parked[engine->parked_count++];
  parked->out = *out;
  parked->until = now + PARKED_NS;
  memcpy(parked->head, out->head, out->head_length);
  return true;
}

static bool transmit_parked(struct zap_engine *engine, struct zap_queue *queue, uint64_t now) {
  uint32_t kept = 0, sent = 0;
  for (uint32_t i = 0; i < engine->parked_count; i++) {
    struct zap_parked *parked = &engine->parked[i];
    parked->out.head = parked->head;
    enum zap_sent fate = now < parked->until ? transmit(engine, queue, &parked->out, now) : ZAP_SENT_TOO_LONG;
    if (fate == ZAP_SENT) sent++;
    else if (fate == ZAP_SENT_TOO_LONG || fate == ZAP_SENT_NO_ADDRESS) engine->not_sent++;
    else engine->parked[kept++] = *parked;
  }
  engine->parked_count = kept;
  return sent > 0;
}

bool zap_engine_transmit(struct zap_engine *engine, struct zap_queue *queue, uint64_t now) {
  bool busy = engine->parked_count > 0 && transmit_parked(engine, queue, now);
  for (int i = 0; i < DATAGRAMS_MOST; i++) {
    struct zap_flow_output *out = &engine->out;
    if (!engine->pending) {
      out->head = engine->head;
      if (!zap_endpoint_output(engine->endpoint, now, out)) break;
      if (out->has_message) engine->parcels[out->message - 1].references++;
      engine->pending = true;
    }
    enum zap_sent fate = transmit(engine, queue, out, now);
    if (fate == ZAP_SENT_FULL || fate == ZAP_SENT_NO_BUFFER) break;
    engine->pending = false;
    busy = true;
    if (fate == ZAP_SENT) continue;
    /* As good as lost on the way: it is sent again in time. */
    if (fate != ZAP_SENT_WAITING || !park(engine, now)) engine->not_sent++;
    if (out->has_message) zap_engine_dereference(engine, (uint32_t)(out->message - 1));
  }
  return busy;
}
