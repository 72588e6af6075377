/*
 * The engine: what happens between a port's queues and the five rings of zap_dpdk.h. It puts the flows' state machine (flow/flow.h) behind
 * the queues: datagrams in, whole messages out by the hand-off ring; messages in by the ring of sends, datagrams out.
 *
 * One lock guards the state machine and the engine's side of the rings. With one queue its thread is practically alone in taking it. With
 * several, each looks at its own packets without the lock and takes it once for all good packets of a burst; the first queue's
 * thread alone sends.
 *
 * engine.c is the lock and the turns, engine_in.c what is received, engine_out.c what is sent. No global state.
 */
#ifndef ZAP_ENGINE_H
#define ZAP_ENGINE_H

#include "../common/arena.h"
#include "../common/ring.h"
#include "flow/flow.h"
#include "queue.h"
#include "zap_dpdk.h"

/* Memory of one received message, from its first segment until its token is back. Its place in the table is the token. */
struct zap_block {
  void *packet;    /* the buffer that it came in, or NULL: it lies in the arena */
  uint64_t offset; /* in the arena */
  uint32_t length;
  uint32_t charge; /* against the limits; 0 once it was taken */
  uint32_t flow;
  uint32_t next; /* of those that are free */
  bool out;      /* handed over */
};

/* A message on its way out. Its place in the table is the caller's token. */
struct zap_parcel {
  uint32_t flow;
  uint32_t references; /* datagrams that the port has not let go of */
  bool busy, done, delivered;
};

/* What counts for one flow. */
struct zap_account {
  uint32_t flow; /* 0: none */
  uint64_t charged;
};

/* A datagram without a message whose neighbour is not known yet. */
struct zap_parked {
  struct zap_flow_output out;
  uint64_t until;
  uint8_t head[192];
};
#define ZAP_PARKED 32

struct zap_engine_settings {
  struct zap_flow_settings flow;
  zap_ring *handoff, *returns, *sends, *dones, *events;
  uint32_t event_slots;
  uint8_t *memory; /* where messages may lie, */
  uint64_t memory_bytes;
  uint8_t *arena; /* where they are put together, */
  uint64_t arena_bytes;
  uint64_t receive_bytes, total_bytes; /* queued, from one peer and from all */
  uint64_t versions;
  uint32_t adoptable; /* packets that messages may keep */
  int wake_fd;
};

struct zap_engine_queue {
  struct zap_engine *engine;
  struct zap_queue *queue;
  uint16_t number;
  bool locked;
};

struct zap_engine {
  struct zap_engine_settings settings;
  struct zap_endpoint *endpoint;
  pthread_mutex_t lock;
  atomic_uint visitors; /* who wait for the lock, beside the queues */
  atomic_ullong deadline;
  atomic_bool ended; /* the state machine is gone */
  uint64_t now;      /* the latest time that the state machine was told */

  struct zap_engine_queue queues[ZAP_PORT_QUEUES];
  uint16_t queue_count;

  struct zap_ring_end handoff, returns, sends, dones, events;
  uint64_t taken; /* of handoff, as far as it was accounted for */
  bool wake;
  bool handed, finished, told; /* something is to be published in handoff, dones, events */

  struct zap_arena *arena;
  struct zap_block *blocks;
  uint32_t free_block;
  uint32_t *handed_block; /* of each slot of handoff */
  uint32_t adopted;
  void *packet; /* that is being looked at, */
  bool adopt;   /* and was taken */
  struct zap_account *accounts;
  uint64_t charged, queued_bytes;
  bool refused;         /* somebody waits for memory */
  uint32_t hungry;      /* a flow whose next message found no room in the arena, */
  uint64_t hungry_since; /* and since when */

  struct zap_parcel *parcels;
  struct zap_flow_output out; /* given by the state machine and not yet taken by the port */
  bool pending;
  uint8_t head[ZAP_FLOW_HEAD_MAX];
  struct zap_parked parked[ZAP_PARKED];
  uint32_t parked_count;

  uint64_t message_drops[8], messages_in, bytes_in, bytes_copied, in_place, not_sent, unusable;
};

/* ZAP_OK, or a failure with its text. Everything that the settings point to must stay. */
int32_t zap_engine_create(const struct zap_engine_settings *settings, struct zap_engine **engine);
/* Settings for queue `number`, whose context stays the engine's. */
void zap_engine_queue(struct zap_engine *engine, uint16_t number, struct zap_queue_settings *settings);
/* Once a queue has started. */
void zap_engine_add(struct zap_engine *engine, uint16_t number, struct zap_queue *queue);
/* Ends all flows: no message is delivered any more. No queue may be running. The engine itself stays until the port is closed. */
void zap_engine_end(struct zap_engine *engine);
void zap_engine_destroy(struct zap_engine *engine);

/* For threads other than the queues': the state machine between these two calls. */
struct zap_endpoint *zap_engine_visit(struct zap_engine *engine, uint64_t *now);
void zap_engine_leave(struct zap_engine *engine);

/* Aborts all flows and gives them a moment to tell their peers. */
void zap_engine_abort_all(struct zap_engine *engine);
void zap_engine_stats(struct zap_engine *engine, zap_dpdk_stats *stats);

/* engine_in.c, with the lock */
bool zap_engine_need(void *context, uint32_t flow, uint32_t length, bool next, const uint8_t *whole, struct zap_flow_buffer *buffer);
void zap_engine_delivered(void *context, uint32_t flow, const struct zap_flow_buffer *buffer, uint32_t length);
void zap_engine_unused(void *context, uint32_t flow, const struct zap_flow_buffer *buffer);
/* Whether there may be something to take back. Without the lock. */
bool zap_engine_has_returns(const struct zap_engine *engine);
bool zap_engine_take_back(struct zap_engine *engine);
const char *zap_engine_message_drop_name(uint32_t index);

/* engine_out.c, with the lock */
void zap_engine_done(void *context, uint32_t flow, uint64_t message, bool delivered);
bool zap_engine_has_sends(const struct zap_engine *engine);
bool zap_engine_take_sends(struct zap_engine *engine);
/* The port has let go of one reference to a message. */
void zap_engine_dereference(struct zap_engine *engine, uint32_t number);
bool zap_engine_transmit(struct zap_engine *engine, struct zap_queue *queue, uint64_t now);

#endif
