#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "../common/fail.h"
#include "../common/thread.h"

/* Events that one call into the state machine can make, beside one for each flow and dial. */
#define EVENTS_SPARE 8u

static zap_dpdk_event *event_slot(const struct zap_engine *engine, uint64_t number) {
  uint8_t *first = (uint8_t *)engine->events.ring + ZAP_RING_HEAD_BYTES;
  return (zap_dpdk_event *)(void *)(first + (number & (engine->settings.event_slots - 1)) * ZAP_DPDK_EVENT_BYTES);
}

/* There is room: nothing that makes events is called where there might not be. */
static zap_dpdk_event *event(struct zap_engine *engine, uint32_t kind, uint32_t flow) {
  zap_dpdk_event *next = event_slot(engine, engine->events.mine++);
  *next = (zap_dpdk_event){.messages = engine->handoff.mine, .kind = kind, .flow = flow};
  engine->told = true;
  return next;
}

static bool room_for_events(struct zap_engine *engine) {
  const struct zap_flow_settings *flow = &engine->settings.flow;
  uint32_t most = 2 * (flow->flows + flow->dials) + EVENTS_SPARE;
  return zap_ring_free(&engine->events, most) >= most;
}

static void up(void *context, uint32_t flow, const struct zap_flow_peer *peer, uint64_t dial) {
  struct zap_engine *engine = context;
  engine->accounts[flow & 0xffff] = (struct zap_account){.flow = flow};
  zap_dpdk_event *told = event(engine, ZAP_DPDK_UP, flow);
  told->number = (uint32_t)dial;
  told->dialled = peer->dialled;
  told->port = peer->address.port;
  memcpy(told->ip, peer->address.ip, sizeof told->ip);
  told->id_length = peer->id.length;
  memcpy(told->id, peer->id.bytes, peer->id.length);
  told->payload_bytes = peer->payload_bytes;
}

static void down(void *context, uint32_t flow, enum zap_flow_reason reason, uint32_t undelivered) {
  struct zap_engine *engine = context;
  engine->accounts[flow & 0xffff].flow = 0;
  if (engine->hungry == flow) engine->hungry = 0;
  zap_dpdk_event *told = event(engine, ZAP_DPDK_DOWN, flow);
  told->reason = reason;
  told->undelivered = undelivered;
}

static void dialled(void *context, uint64_t dial, enum zap_flow_reason reason, uint32_t flow) {
  zap_dpdk_event *told = event(context, ZAP_DPDK_DIALLED, flow);
  told->number = (uint32_t)dial;
  told->reason = reason;
}

/* Whoever sends looks at its dones himself. */
static void has_room(void *context, uint32_t flow) {
  (void)context;
  (void)flow;
}

static uint64_t clock_of(struct zap_engine *engine, uint64_t now) {
  if (now > engine->now) engine->now = now;
  return engine->now;
}

/* At the end of everything that was done with the lock. */
static void publish(struct zap_engine *engine) {
  bool wake = false;
  /* Events first: whoever sees a message knows its flow already. */
  if (engine->told && zap_ring_publish(&engine->events)) wake = true;
  if (engine->handed && zap_ring_publish(&engine->handoff)) wake = true;
  if (engine->finished && zap_ring_publish(&engine->dones)) wake = true;
  engine->told = engine->handed = engine->finished = false;
  if (!atomic_load_explicit(&engine->ended, memory_order_relaxed))
    atomic_store_explicit(&engine->deadline, zap_endpoint_deadline(engine->endpoint), memory_order_relaxed);
  if (wake) (void)send(engine->settings.wake_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_lock(struct zap_engine_queue *queue) {
  if (queue->locked) return;
  pthread_mutex_lock(&queue->engine->lock);
  queue->locked = true;
}

static void give_lock(struct zap_engine_queue *queue) {
  publish(queue->engine);
  queue->locked = false;
  pthread_mutex_unlock(&queue->engine->lock);
}

static bool on_packet(void *context, struct zap_queue *from, const struct zap_packet *packet, void *buffer, uint64_t now) {
  (void)from;
  struct zap_engine_queue *queue = context;
  struct zap_engine *engine = queue->engine;
  take_lock(queue);
  if (!room_for_events(engine)) {
    engine->not_sent++;
    return false;
  }
  struct zap_flow_address address = {.port = packet->from_port};
  struct zap_ip ip = zap_packet_from(packet);
  memcpy(address.ip, ip.bytes, sizeof address.ip);
  engine->packet = buffer;
  engine->adopt = false;
  zap_endpoint_input(engine->endpoint, clock_of(engine, now), &address, packet->payload, packet->length);
  engine->packet = NULL;
  return engine->adopt;
}

static bool nothing_to_do(const struct zap_engine *engine, uint64_t now) {
  if (engine->pending || engine->parked_count > 0) return false;
  if (zap_engine_has_sends(engine) || zap_engine_has_returns(engine)) return false;
  return now < atomic_load_explicit(&engine->deadline, memory_order_relaxed);
}

static bool on_turn(void *context, struct zap_queue *at, uint64_t now) {
  struct zap_engine_queue *queue = context;
  struct zap_engine *engine = queue->engine;
  if (queue->number != 0) {
    /* The first queue's thread sends. */
    if (queue->locked) give_lock(queue);
    return false;
  }
  if (!queue->locked && nothing_to_do(engine, now)) return false;
  /* Whoever wants in for once must not wait until this thread has nothing to do. */
  for (int i = 0; i < 100 && !queue->locked && atomic_load_explicit(&engine->visitors, memory_order_relaxed) > 0; i++) (void)sched_yield();
  bool busy = queue->locked;
  take_lock(queue);
  now = clock_of(engine, now);
  if (zap_engine_take_back(engine)) {
    busy = true;
    if (engine->refused) {
      engine->refused = false;
      zap_endpoint_ready(engine->endpoint, now);
    }
  }
  if (zap_engine_take_sends(engine)) busy = true;
  if (room_for_events(engine)) zap_endpoint_advance(engine->endpoint, now);
  if (zap_engine_transmit(engine, at, now)) busy = true;
  give_lock(queue);
  return busy;
}

struct zap_endpoint *zap_engine_visit(struct zap_engine *engine, uint64_t *now) {
  atomic_fetch_add(&engine->visitors, 1);
  pthread_mutex_lock(&engine->lock);
  atomic_fetch_sub(&engine->visitors, 1);
  *now = clock_of(engine, zap_now());
  return engine->endpoint;
}

void zap_engine_leave(struct zap_engine *engine) {
  publish(engine);
  pthread_mutex_unlock(&engine->lock);
}

static void start_rings(struct zap_engine *engine) {
  const struct zap_engine_settings *s = &engine->settings;
  zap_ring_attach(&engine->handoff, s->handoff);
  zap_ring_attach(&engine->returns, s->returns);
  zap_ring_attach(&engine->sends, s->sends);
  zap_ring_attach(&engine->dones, s->dones);
  zap_ring_attach(&engine->events, s->events);
}

static void start_blocks(struct zap_engine *engine) {
  for (uint32_t i = 0; i < ZAP_DPDK_MESSAGES; i++) engine->blocks[i].next = i + 1 < ZAP_DPDK_MESSAGES ? i + 1 : UINT32_MAX;
}

int32_t zap_engine_create(const struct zap_engine_settings *settings, struct zap_engine **out) {
  struct zap_engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for an engine");
  engine->settings = *settings;
  (void)pthread_mutex_init(&engine->lock, NULL);
  engine->now = zap_now();
  start_rings(engine);
  engine->blocks = calloc(ZAP_DPDK_MESSAGES, sizeof *engine->blocks);
  engine->handed_block = calloc(ZAP_DPDK_MESSAGES, sizeof *engine->handed_block);
  engine->parcels = calloc(ZAP_DPDK_MESSAGES, sizeof *engine->parcels);
  engine->accounts = calloc(65536, sizeof *engine->accounts);
  int32_t status = zap_arena_create(settings->arena_bytes, &engine->arena);
  if (status == ZAP_OK && (engine->blocks == NULL || engine->handed_block == NULL || engine->parcels == NULL || engine->accounts == NULL))
    status = zap_fail(ZAP_E_MEMORY, "out of memory for an engine");
  uint8_t seed[32];
  if (status == ZAP_OK && getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed) status = zap_fail_system("getrandom");
  const char *fault = NULL;
  if (status == ZAP_OK && zap_flow_settings_resolve(&engine->settings.flow, &fault) != ZAP_FLOW_OK)
    status = zap_fail(ZAP_E_INVALID, "%s", fault);
  if (status == ZAP_OK && zap_arena_largest(engine->arena) < engine->settings.flow.message_bytes)
    status = zap_fail(ZAP_E_INVALID, "messages of %u bytes need a message area of the next power of two, and it has %llu",
                      engine->settings.flow.message_bytes, (unsigned long long)settings->arena_bytes);
  if (status == ZAP_OK) {
    start_blocks(engine);
    const struct zap_flow_events events = {
        .up = up,
        .down = down,
        .dialled = dialled,
        .need = zap_engine_need,
        .delivered = zap_engine_delivered,
        .unused = zap_engine_unused,
        .done = zap_engine_done,
        .room = has_room,
    };
    engine->endpoint = zap_endpoint_create(&engine->settings.flow, &events, engine, seed, engine->now);
    if (engine->endpoint == NULL) status = zap_fail(ZAP_E_MEMORY, "out of memory for the state of %u flows", engine->settings.flow.flows);
  }
  memset(seed, 0, sizeof seed);
  if (status != ZAP_OK) {
    zap_engine_destroy(engine);
    return status;
  }
  /* The allow-list was copied. */
  engine->settings.flow.allow = NULL;
  atomic_store(&engine->deadline, 0);
  *out = engine;
  return ZAP_OK;
}

void zap_engine_queue(struct zap_engine *engine, uint16_t number, struct zap_queue_settings *settings) {
  engine->queues[number] = (struct zap_engine_queue){.engine = engine, .number = number};
  settings->context = &engine->queues[number];
  settings->packet = on_packet;
  settings->turn = on_turn;
}

void zap_engine_add(struct zap_engine *engine, uint16_t number, struct zap_queue *queue) {
  pthread_mutex_lock(&engine->lock);
  engine->queues[number].queue = queue;
  if (engine->queue_count <= number) engine->queue_count = (uint16_t)(number + 1);
  pthread_mutex_unlock(&engine->lock);
}

void zap_engine_abort_all(struct zap_engine *engine) {
  uint64_t now;
  struct zap_endpoint *endpoint = zap_engine_visit(engine, &now);
  for (uint32_t i = 0; i < engine->settings.flow.flows; i++)
    if (engine->accounts[i].flow != 0) zap_endpoint_abort(endpoint, engine->accounts[i].flow);
  zap_engine_leave(engine);
  struct zap_flow_stats stats = {.flows = 1};
  for (int tries = 0; tries < 50 && stats.flows > 0; tries++) {
    (void)zap_engine_visit(engine, &now);
    zap_endpoint_stats(endpoint, &stats);
    zap_engine_leave(engine);
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

void zap_engine_end(struct zap_engine *engine) {
  pthread_mutex_lock(&engine->lock);
  if (!atomic_exchange(&engine->ended, true)) {
    if (engine->pending && engine->out.has_message) zap_engine_dereference(engine, (uint32_t)(engine->out.message - 1));
    engine->pending = false;
    /* Its callbacks may write more events than there is room for, and nobody reads them any more. */
    zap_endpoint_destroy(engine->endpoint);
    engine->endpoint = NULL;
  }
  pthread_mutex_unlock(&engine->lock);
}

void zap_engine_destroy(struct zap_engine *engine) {
  if (engine == NULL) return;
  if (engine->endpoint != NULL) zap_engine_end(engine);
  zap_arena_destroy(engine->arena);
  free(engine->blocks);
  free(engine->handed_block);
  free(engine->parcels);
  free(engine->accounts);
  (void)pthread_mutex_destroy(&engine->lock);
  free(engine);
}

static void count_queues(const struct zap_engine *engine, zap_dpdk_stats *stats) {
  for (uint16_t i = 0; i < engine->queue_count; i++) {
    struct zap_queue_stats seen;
    zap_queue_stats(engine->queues[i].queue, &seen);
    for (uint32_t v = 0; v < ZAP_PACKET_VERDICTS; v++) stats->verdicts[v] += seen.verdict[v];
  }
}

void zap_engine_stats(struct zap_engine *engine, zap_dpdk_stats *stats) {
  _Static_assert(ZAP_PACKET_VERDICTS <= 24 && ZAP_DROPS <= 24, "zap_dpdk_stats has room for them");
  uint64_t now;
  struct zap_flow_stats seen;
  zap_endpoint_stats(zap_engine_visit(engine, &now), &seen);
  *stats = (zap_dpdk_stats){
      .messages_in = engine->messages_in,
      .bytes_in = engine->bytes_in,
      .messages_out = seen.messages_out,
      .bytes_copied = engine->bytes_copied,
      .in_place = engine->in_place,
      .segments_out = seen.segments_out,
      .segments_again = seen.segments_again,
      .losses = seen.losses,
      .timeouts = seen.timeouts,
      .undelivered = seen.undelivered,
      .not_sent = engine->not_sent,
      .unusable_sends = engine->unusable,
      .held_bytes = zap_arena_used(engine->arena),
      .queued_messages = engine->handoff.mine - engine->taken,
      .queued_bytes = engine->queued_bytes,
      .flows = seen.flows,
      .dials = seen.dials,
      .candidates = seen.candidates,
  };
  for (uint32_t i = 0; i < ZAP_DROPS; i++) stats->datagram_drops[i] = seen.drops[i];
  memcpy(stats->message_drops, engine->message_drops, sizeof stats->message_drops);
  count_queues(engine, stats);
  zap_engine_leave(engine);
}
