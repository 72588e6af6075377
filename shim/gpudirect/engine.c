#include "engine.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../common/fail.h"
#include "../common/thread.h"

#define BATCH 32
/* Without work for this long the thread sleeps, if it may. */
#define QUIET_NS UINT64_C(50000)
#define SLEEP_MS 20
/* How often the device is asked for what it has to say beside completions. */
#define ASYNC_NS UINT64_C(5000000)
/* All queue pairs end within this when the node does, or are ended as they are. */
#define END_NS UINT64_C(2000000000)

/* ---- events and waking ---- */

zap_gpudirect_event *zap_engine_event(struct zap_engine *engine, uint32_t kind) {
  uint8_t *first = (uint8_t *)engine->events.ring + ZAP_RING_HEAD_BYTES;
  uint64_t slot = engine->events.mine++ & (engine->settings.event_slots - 1);
  zap_gpudirect_event *event = (zap_gpudirect_event *)(void *)(first + slot * ZAP_GPUDIRECT_EVENT_BYTES);
  *event = (zap_gpudirect_event){.messages = engine->handoff.mine, .kind = kind};
  engine->told = true;
  return event;
}

static void publish(struct zap_engine *engine) {
  bool wake = false;
  /* The events last: all that came before them is there. */
  if (engine->handed && zap_ring_publish(&engine->handoff)) wake = true;
  if (engine->finished && zap_ring_publish(&engine->dones)) wake = true;
  if (engine->told && zap_ring_publish(&engine->events)) wake = true;
  engine->told = engine->handed = engine->finished = false;
  if (wake) (void)send(engine->settings.wake_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void zap_engine_lock(struct zap_engine *engine) {
  atomic_fetch_add(&engine->visitors, 1);
  pthread_mutex_lock(&engine->lock);
  atomic_fetch_sub(&engine->visitors, 1);
  engine->now = zap_now();
}

void zap_engine_unlock(struct zap_engine *engine) {
  publish(engine);
  pthread_mutex_unlock(&engine->lock);
}

/* ---- one turn ---- */

struct moments {
  uint64_t now, asked;
};

static bool take_completions(struct zap_engine *engine) {
  struct ibv_wc wc[BATCH];
  engine->counts.polls++;
  int got = ibv_poll_cq(engine->cq, BATCH, wc);
  for (int i = 0; i < got; i++) {
    engine->counts.completions++;
    zap_flow_complete(engine, &wc[i]);
  }
  return got > 0;
}

/* At most so many flows can come and go before JavaScript must have read of it. */
static bool room_for_events(struct zap_engine *engine) {
  uint32_t most = engine->settings.flows + 8;
  return zap_ring_free(&engine->events, most) >= most;
}

static void take_async(struct zap_engine *engine) {
  struct ibv_context *context = engine->settings.hca->context;
  struct pollfd waiting = {.fd = context->async_fd, .events = POLLIN};
  while (poll(&waiting, 1, 0) > 0) {
    struct ibv_async_event event;
    if (engine->verbs->get_async_event(context, &event) != 0) return;
    bool down = event.event_type == IBV_EVENT_PORT_ERR, up = event.event_type == IBV_EVENT_PORT_ACTIVE;
    if ((down || up) && event.element.port_num == (int)engine->settings.hca->port) {
      engine->counts.port_events++;
      zap_engine_event(engine, ZAP_GPUDIRECT_PORT)->reason = up ? 1 : 0;
    }
    struct ibv_qp *broken = event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_ACCESS_ERR ||
                                    event.event_type == IBV_EVENT_QP_REQ_ERR
                                ? event.element.qp
                                : NULL;
    /* Then no completion comes any more, and nobody would ever hear of it. */
    bool all = event.event_type == IBV_EVENT_CQ_ERR || event.event_type == IBV_EVENT_DEVICE_FATAL;
    for (uint32_t i = 0; (all || broken != NULL) && i < engine->settings.flows; i++)
      if (engine->flows[i].qp != NULL && (all || engine->flows[i].qp == broken)) zap_flow_fail(engine, &engine->flows[i], ZAP_DOWN_BROKEN, 0);
    engine->verbs->ack_async_event(&event);
  }
}

/* What has come: from the device, and from the caller. */
static bool gather(struct zap_engine *engine) {
  bool any = take_completions(engine);
  if (zap_incoming_take_back(engine)) any = true;
  if (zap_outgoing_take(engine)) any = true;
  return any;
}

static bool turn_flows(struct zap_engine *engine) {
  bool any = false;
  /* From behind: one that ends makes way for the last. */
  for (uint32_t i = engine->flow_count; i-- > 0;)
    if (zap_flow_turn(engine, &engine->flows[engine->there[i]])) any = true;
  return any;
}

/* `at`: when it was, and when the device was last asked for what it has to say beside completions. */
static bool turn(struct zap_engine *engine, struct moments *at) {
  pthread_mutex_lock(&engine->lock);
  engine->now = at->now = zap_now();
  bool busy = false;
  if (room_for_events(engine)) {
    if (at->now - at->asked > ASYNC_NS) {
      at->asked = at->now;
      take_async(engine);
    }
    if (gather(engine)) busy = true;
    if (turn_flows(engine)) busy = true;
  }
  publish(engine);
  pthread_mutex_unlock(&engine->lock);
  return busy;
}

/* ---- sleeping ---- */

static bool has_work(const struct zap_engine *engine) {
  return __atomic_load_n(&engine->sends.ring->tail, __ATOMIC_SEQ_CST) != engine->sends.mine ||
         __atomic_load_n(&engine->returns.ring->tail, __ATOMIC_SEQ_CST) != engine->returns.mine;
}

/* Whether the caller is to kick. */
static void arm(struct zap_engine *engine, uint32_t armed) {
  __atomic_store_n(&engine->sends.ring->armed, armed, __ATOMIC_SEQ_CST);
  __atomic_store_n(&engine->returns.ring->armed, armed, __ATOMIC_SEQ_CST);
}

static void wake(struct zap_engine *engine) {
  uint64_t one = 1;
  (void)!write(engine->kick_fd, &one, sizeof one);
}

/* The caller's thread is awake already: it does what there is to do by itself, which wakes nobody, unless the node's thread is at it. */
void zap_engine_kick(struct zap_engine *engine) {
  if (pthread_mutex_trylock(&engine->lock) != 0) {
    wake(engine);
    return;
  }
  bool more = false;
  /* What depends on time alone is the node's thread's. */
  if (room_for_events(engine) && gather(engine)) {
    engine->now = zap_now();
    engine->visited = (engine->settings.flags & ZAP_GPUDIRECT_DRIVEN) == 0;
    engine->postponed = false;
    more = turn_flows(engine) && turn_flows(engine);
    engine->visited = false;
    if (engine->postponed) more = true;
    publish(engine);
  }
  /* Who is awake looks by itself. */
  if (atomic_load(&engine->asleep)) arm(engine, 1);
  if (has_work(engine)) more = true;
  pthread_mutex_unlock(&engine->lock);
  if (more) wake(engine);
}

static void drain(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof count) > 0) continue;
}

static void sleep_now(struct zap_engine *engine, struct moments *at) {
  bool driven = (engine->settings.flags & ZAP_GPUDIRECT_DRIVEN) != 0;
  bool asked = driven || ibv_req_notify_cq(engine->cq, 0) == 0;
  /* What came before that, and before `armed`, wakes nobody: this turn finds it. */
  if (!asked || turn(engine, at)) return;
  pthread_mutex_lock(&engine->lock);
  engine->counts.sleeps++;
  pthread_mutex_unlock(&engine->lock);
  struct pollfd waiting[3] = {
      {.fd = engine->channel->fd, .events = POLLIN},
      {.fd = engine->kick_fd, .events = POLLIN},
      {.fd = engine->settings.hca->context->async_fd, .events = POLLIN},
  };
  (void)poll(waiting, 3, SLEEP_MS);
  if (waiting[0].revents & POLLIN) {
    struct ibv_cq *cq;
    void *context;
    if (engine->verbs->get_cq_event(engine->channel, &cq, &context) == 0) engine->verbs->ack_cq_events(cq, 1);
  }
  if (waiting[1].revents & POLLIN) drain(engine->kick_fd);
  if (waiting[2].revents & POLLIN) at->asked = 0;
}

static void sleep_until_something(struct zap_engine *engine, struct moments *at) {
  atomic_store(&engine->asleep, true);
  arm(engine, 1);
  sleep_now(engine, at);
  atomic_store(&engine->asleep, false);
  arm(engine, 0);
}

static void end_flows(struct zap_engine *engine) {
  struct moments at = {.now = zap_now()};
  uint64_t until = at.now + END_NS;
  pthread_mutex_lock(&engine->lock);
  engine->now = zap_now();
  for (uint32_t i = 0; i < engine->settings.flows; i++)
    if (engine->flows[i].state != ZAP_FLOW_FREE) zap_flow_fail(engine, &engine->flows[i], ZAP_DOWN_CLOSED, 0);
  pthread_mutex_unlock(&engine->lock);
  while (zap_now() < until) {
    bool busy = turn(engine, &at);
    pthread_mutex_lock(&engine->lock);
    bool left = engine->flow_count > 0;
    pthread_mutex_unlock(&engine->lock);
    if (!left) break;
    if (!busy) (void)sched_yield();
  }
  pthread_mutex_lock(&engine->lock);
  for (uint32_t i = 0; i < engine->settings.flows; i++)
    if (engine->flows[i].qp != NULL && engine->flows[i].state != ZAP_FLOW_RISING) zap_flow_drop(engine, &engine->flows[i]);
  atomic_store(&engine->ended, true);
  publish(engine);
  pthread_mutex_unlock(&engine->lock);
}

void zap_engine_run(struct zap_engine *engine) {
  bool spin = (engine->settings.flags & ZAP_GPUDIRECT_SPIN) != 0, driven = (engine->settings.flags & ZAP_GPUDIRECT_DRIVEN) != 0;
  struct moments at = {.now = zap_now()};
  uint64_t busy_at = at.now;
  while (!atomic_load_explicit(&engine->stop, memory_order_relaxed)) {
    /* Whoever wants in for once must not wait until this thread has nothing to do. */
    for (int i = 0; i < 100 && atomic_load_explicit(&engine->visitors, memory_order_relaxed) > 0; i++) (void)sched_yield();
    if (turn(engine, &at)) {
      busy_at = at.now;
    } else if (!spin) {
      if (!driven && at.now - busy_at < QUIET_NS) (void)sched_yield();
      else sleep_until_something(engine, &at);
    }
  }
  end_flows(engine);
}

void zap_engine_stop(struct zap_engine *engine) {
  atomic_store(&engine->stop, true);
  wake(engine);
}

/* ---- making and unmaking ---- */

static int32_t make_queue(struct zap_engine *engine) {
  const struct zap_engine_settings *s = &engine->settings;
  engine->channel = engine->verbs->create_comp_channel(s->hca->context);
  if (engine->channel == NULL) return zap_verbs_fail("ibv_create_comp_channel", engine->settings.hca->name, errno);
  uint64_t entries = (uint64_t)s->flows * (ZAP_SEND_SLOTS + s->receives);
  if (entries > (uint64_t)s->hca->max_completions) entries = (uint64_t)s->hca->max_completions;
  engine->cq = engine->verbs->create_cq(s->hca->context, (int)entries, NULL, engine->channel, 0);
  if (engine->cq == NULL) return zap_verbs_fail("ibv_create_cq", engine->settings.hca->name, errno);
  engine->flows_most = (uint32_t)(entries / (ZAP_SEND_SLOTS + s->receives));
  return ZAP_OK;
}

static int32_t allocate(struct zap_engine *engine) {
  const struct zap_engine_settings *s = &engine->settings;
  engine->blocks = calloc(ZAP_GPUDIRECT_MESSAGES, sizeof *engine->blocks);
  engine->handed_block = calloc(ZAP_GPUDIRECT_MESSAGES, sizeof *engine->handed_block);
  engine->parcels = calloc(ZAP_GPUDIRECT_MESSAGES, sizeof *engine->parcels);
  engine->free_slabs = calloc(s->slab_count, sizeof *engine->free_slabs);
  engine->slab_flow = calloc(s->slab_count, sizeof *engine->slab_flow);
  engine->flows = calloc(s->flows, sizeof *engine->flows);
  engine->there = calloc(s->flows, sizeof *engine->there);
  if (engine->blocks == NULL || engine->handed_block == NULL || engine->parcels == NULL || engine->free_slabs == NULL ||
      engine->slab_flow == NULL || engine->flows == NULL || engine->there == NULL)
    return zap_fail(ZAP_E_MEMORY, "out of memory for an engine");
  for (uint32_t i = 0; i < ZAP_GPUDIRECT_MESSAGES; i++) engine->blocks[i].next = i + 1 < ZAP_GPUDIRECT_MESSAGES ? i + 1 : ZAP_NONE;
  engine->free_blocks = ZAP_GPUDIRECT_MESSAGES;
  for (uint32_t i = 0; i < s->slab_count; i++) engine->free_slabs[i] = s->slab_count - 1 - i;
  engine->free_slab_count = s->slab_count;
  for (uint32_t i = 0; i < s->flows; i++) engine->flows[i].index = i;
  int32_t status = zap_arena_create(s->arena_bytes, &engine->arena);
  if (status == ZAP_OK && zap_arena_largest(engine->arena) < s->message_bytes)
    status = zap_fail(ZAP_E_INVALID, "messages of %u bytes need a message area of the next power of two, and it has %llu", s->message_bytes,
                      (unsigned long long)s->arena_bytes);
  return status;
}

int32_t zap_engine_create(const struct zap_engine_settings *settings, struct zap_engine **out) {
  struct zap_engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL) return zap_fail(ZAP_E_MEMORY, "out of memory for an engine");
  engine->settings = *settings;
  engine->verbs = settings->verbs;
  (void)pthread_mutex_init(&engine->lock, NULL);
  zap_ring_attach(&engine->handoff, settings->handoff);
  zap_ring_attach(&engine->returns, settings->returns);
  zap_ring_attach(&engine->sends, settings->sends);
  zap_ring_attach(&engine->dones, settings->dones);
  zap_ring_attach(&engine->events, settings->events);
  bool wanted = (settings->flags & ZAP_GPUDIRECT_NO_WINDOWS) == 0 && (!settings->hca->soft || (settings->flags & ZAP_GPUDIRECT_WINDOWS) != 0);
  engine->windows = wanted && settings->hca->max_windows > 0;
  engine->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  int32_t status = engine->kick_fd < 0 ? zap_fail_system("eventfd") : allocate(engine);
  if (status == ZAP_OK) status = make_queue(engine);
  if (status != ZAP_OK) {
    zap_engine_destroy(engine);
    return status;
  }
  *out = engine;
  return ZAP_OK;
}

int32_t zap_engine_finish(struct zap_engine *engine, uint32_t timeout_ms) {
  for (uint32_t i = 0; i < timeout_ms && atomic_load(&engine->holders) > 0; i++)
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (atomic_load(&engine->holders) == 0) return ZAP_OK;
  return zap_fail(ZAP_E_TIMEOUT, "the driver of %s does not come back from destroying a queue pair", engine->settings.hca->name);
}

void zap_engine_destroy(struct zap_engine *engine) {
  if (engine == NULL) return;
  if (engine->cq != NULL) (void)engine->verbs->destroy_cq(engine->cq);
  if (engine->channel != NULL) (void)engine->verbs->destroy_comp_channel(engine->channel);
  if (engine->kick_fd >= 0) (void)close(engine->kick_fd);
  zap_arena_destroy(engine->arena);
  free(engine->blocks);
  free(engine->handed_block);
  free(engine->parcels);
  free(engine->free_slabs);
  free(engine->slab_flow);
  free(engine->there);
  for (uint32_t i = 0; engine->flows != NULL && i < engine->settings.flows; i++) free(engine->flows[i].incoming);
  free(engine->flows);
  (void)pthread_mutex_destroy(&engine->lock);
  free(engine);
}

void zap_engine_stats(struct zap_engine *engine, zap_gpudirect_stats *stats) {
  zap_engine_lock(engine);
  *stats = engine->counts;
  stats->held_bytes = zap_arena_used(engine->arena);
  stats->queued_messages = engine->handoff.mine - engine->taken;
  stats->queued_bytes = engine->queued_bytes;
  stats->flows = engine->flow_count;
  stats->free_slabs = engine->free_slab_count;
  zap_engine_unlock(engine);
}
