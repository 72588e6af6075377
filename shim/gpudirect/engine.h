/*
 * The engine: what happens between queue pairs and the five rings of zap_gpudirect.h. One thread posts and takes completions; functions
 * of the caller's come in by a lock. engine.c is the thread and the lock, rise.c how a queue pair begins, flow.c its life after that,
 * incoming.c what is received, outgoing.c what is sent. No global state.
 *
 * What two nodes say to each other: every SEND begins with 64 bytes, struct zap_head. A message of up to eager_bytes follows its
 * head into a slab that the receiver has posted. Of a larger one the head tells where it lies: the receiver finds memory for it,
 * reads it by RDMA, and says so. Credits: a head says how many receives its sender has ever posted, and nobody sends more than that; the last few are for what
 * is no message, so that what frees memory always gets through.
 */
#ifndef ZAP_RDMA_ENGINE_H
#define ZAP_RDMA_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "../common/arena.h"
#include "../common/ring.h"
#include "device.h"
#include "zap_gpudirect.h"

#define ZAP_NONE UINT32_MAX
/* Receives that are for control alone. */
#define ZAP_CONTROL_CREDITS 8u
/* Large messages of one peer that are shown at once, either way. */
#define ZAP_OFFERS 16u
#define ZAP_SEND_SLOTS 256u
#define ZAP_HEAD_BYTES 64u

enum zap_head_kind { ZAP_HEAD_EAGER = 1, ZAP_HEAD_OFFER, ZAP_HEAD_TAKEN, ZAP_HEAD_CREDIT, ZAP_HEAD_FINISH };

/* 64 bytes, little-endian. */
struct zap_head {
  uint32_t kind;
  uint32_t length;  /* of the message */
  uint32_t credits; /* receives that the sender of this has ever posted, modulo 2^32 */
  uint32_t id;      /* of an offer: its place at the sender */
  uint64_t address; /* of an offer */
  uint32_t rkey;
  uint32_t reserved;
  uint8_t header[16]; /* the message's own first bytes: what it lies in may be out of the CPU's reach */
  uint8_t zeros[16];
};

/* Memory of one received message; its place in the table is the token. */
struct zap_block {
  uint32_t slab;   /* or ZAP_NONE: it lies in the arena */
  uint32_t length;
  uint64_t offset; /* in the arena */
  uint32_t charge; /* against the limits; 0 once it was taken */
  uint32_t flow;
  uint32_t next;
  bool out;
};

/* A message on its way out; its place in the table is the caller's token. */
struct zap_parcel {
  uint64_t address;
  uint32_t length, flow, next;
  bool busy;
};

/* A received message that waits for those before it, for memory, or to be read. */
struct zap_incoming {
  struct zap_block *block;
  uint64_t address;
  uint32_t rkey, id, length;
  uint32_t asked, had; /* bytes of it that reads were posted for, and those that have come */
  enum { ZAP_IN_READY, ZAP_IN_WANTED, ZAP_IN_READING } state;
  uint8_t verdict; /* of its header */
};

enum zap_posted_what { ZAP_POSTED_CONTROL, ZAP_POSTED_MESSAGE, ZAP_POSTED_READ, ZAP_POSTED_WINDOW, ZAP_POSTED_HIDE };

/* What a posted send is about. */
struct zap_posted {
  enum zap_posted_what what;
  uint32_t token; /* of a message; of a read, its place in `incoming`; of an end of showing, its place in `shown` */
};

/* A large message that the peer may read. */
struct zap_shown {
  struct ibv_mw *window;
  struct ibv_mr *region; /* in place of a window */
  uint32_t rkey, token;
  bool used, taken;
  bool hiding; /* its window ends when what was posted before has been sent: not before is it the caller's */
};

enum zap_flow_state {
  ZAP_FLOW_FREE,
  ZAP_FLOW_BEGUN,
  ZAP_FLOW_RISING, /* a thread of its own brings it up, and has the queue pair to itself: that may take the kernel seconds */
  ZAP_FLOW_OPEN,
  ZAP_FLOW_FLUSHING, /* in error: what was posted comes back */
  ZAP_FLOW_BURIED    /* not all came back: its memory is nobody's before the queue pair is gone */
};

/* A queue pair on its way out: destroying one may take a driver long, which nobody else should have to wait for. */
struct zap_grave {
  struct zap_grave *next;
  struct ibv_qp *qp;
  struct ibv_mw *windows[ZAP_OFFERS];
  struct zap_flow *flow; /* BURIED, or NULL */
};

enum zap_down_reason {
  ZAP_DOWN_FINISHED = 1,
  ZAP_DOWN_ABORTED = 2,
  ZAP_DOWN_PROTOCOL = 5,
  ZAP_DOWN_DEAD = 64,   /* the far end does not answer */
  ZAP_DOWN_REFUSED = 65, /* it refuses what it was sent: it is gone and its place taken, or it found a fault */
  ZAP_DOWN_BROKEN = 66,  /* the queue pair is in error */
  ZAP_DOWN_CLOSED = 67,  /* we closed it, and it did not finish in time */
  ZAP_DOWN_UNREACHABLE = 68, /* it could not be brought up */
  ZAP_DOWN_UNREGISTERED = 69 /* a message could not be registered */
};

struct zap_flow {
  enum zap_flow_state state;
  uint32_t index, generation;
  uint32_t place; /* in `there` */
  struct ibv_qp *qp;
  bool told_of; /* the caller waits for its end */
  bool draining, closing, finish_sent, finish_heard;
  uint64_t close_at;
  bool doomed;                             /* it ends as soon as it is up */
  uint32_t reason, status, error, failed; /* why it ends */
  uint64_t charged;

  /* receives */
  uint32_t posted;         /* ever, as the peer counts them */
  uint32_t posted_now;
  uint32_t told;           /* of `posted`, in the last head */
  uint32_t mere;           /* of those since then, posted in place of what brought nothing but credits */
  struct zap_incoming *incoming; /* a ring, in the order of their coming */
  uint32_t incoming_head, incoming_tail, incoming_mask;
  uint32_t reading; /* reads that are posted */
  uint32_t reads_most;
  uint32_t takens[ZAP_OFFERS]; /* to be told */
  uint32_t takens_count;
  uint32_t offers_in; /* of the peer, not told as taken */

  /* sends */
  uint32_t granted, used; /* credits: receives that the peer has posted, and how many we have used */
  uint32_t sequence;      /* where our packet numbers start */
  uint32_t first, last;   /* parcels that were not begun */
  uint32_t waiting;
  struct zap_posted posts[ZAP_SEND_SLOTS];
  uint32_t post_head, post_tail, unsignalled; /* numbers of posts */
  struct zap_shown shown[ZAP_OFFERS];
  uint32_t shown_count, taken_count; /* all, and those that the peer has taken */
  uint32_t their_eager, their_most;
  bool stalled;
};

struct zap_engine_settings {
  const struct zap_verbs *verbs;
  struct zap_hca *hca;
  struct ibv_pd *pd;
  struct ibv_mr *host; /* the region */
  struct ibv_mr *messages; /* of slabs and arena, which may lie out of the CPU's reach; else `host` again */
  uint8_t *base;
  uint64_t bytes;
  zap_ring *handoff, *returns, *sends, *dones, *events;
  uint32_t event_slots;
  uint8_t *heads; /* of receives, then of sends: ZAP_HEAD_BYTES each */
  uint8_t *slabs; /* eager_bytes each */
  uint32_t slab_count;
  uint8_t *arena;
  uint64_t arena_bytes;
  uint64_t memory_offset; /* in the region: where what may be sent begins */
  uint32_t eager_bytes, receives, flows, message_bytes;
  uint64_t receive_bytes, total_bytes, versions;
  uint32_t close_ms, timeout_ms, flags, traffic_class;
  int wake_fd;
};

struct zap_engine {
  struct zap_engine_settings settings;
  const struct zap_verbs *verbs;
  pthread_mutex_t lock;
  atomic_uint visitors;
  atomic_bool stop, ended, asleep;
  int kick_fd; /* an eventfd */
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  uint32_t inline_bytes;
  bool windows;
  uint64_t now;

  struct zap_ring_end handoff, returns, sends, dones, events;
  uint64_t taken;
  bool handed, finished, told;
  bool visited, postponed; /* the turn is a caller's, who is not kept waiting by registrations; there is one for the node's thread */

  struct zap_arena *arena;
  struct zap_block *blocks;
  uint32_t free_block;
  uint32_t free_blocks, slab_blocks; /* how many are free, and how many have a slab */
  uint32_t *handed_block;
  uint32_t *free_slabs;    /* a stack */
  uint32_t *slab_flow;     /* 1 + the flow that has posted it, or 0 */
  uint32_t free_slab_count;
  uint64_t charged, queued_bytes;

  struct zap_parcel *parcels;
  struct zap_flow *flows;
  uint32_t *there; /* indices of the flows that are not free, in any order */
  uint32_t flow_count, flows_most; /* as many as the completion queue has room for */

  /* With the lock: queue pairs for the thread that destroys them, and whether it is there. */
  struct zap_grave *graves;
  uint32_t grave_count;
  bool digging;
  atomic_uint holders; /* threads that use the engine */
  zap_gpudirect_stats counts;
};

int32_t zap_engine_create(const struct zap_engine_settings *settings, struct zap_engine **engine);
/* Polls until zap_engine_stop; ends all flows before it returns. */
void zap_engine_run(struct zap_engine *engine);
void zap_engine_stop(struct zap_engine *engine);
void zap_engine_kick(struct zap_engine *engine);
/* ZAP_E_TIMEOUT where queue pairs are still being destroyed: then all of it has to stay. */
int32_t zap_engine_finish(struct zap_engine *engine, uint32_t timeout_ms);
void zap_engine_destroy(struct zap_engine *engine);
void zap_engine_lock(struct zap_engine *engine);
void zap_engine_unlock(struct zap_engine *engine);
void zap_engine_stats(struct zap_engine *engine, zap_gpudirect_stats *stats);

/* engine.c, with the lock like all below */
zap_gpudirect_event *zap_engine_event(struct zap_engine *engine, uint32_t kind);

/* rise.c */
int32_t zap_flow_begin(struct zap_engine *engine, zap_gpudirect_offer *offer);
/* Begins to bring it up: an event tells what comes of it. */
int32_t zap_flow_accept(struct zap_engine *engine, uint32_t number, const zap_gpudirect_offer *offer);

/* flow.c */
static inline uint32_t zap_flow_number(const struct zap_flow *flow) { return flow->generation << 16 | flow->index; }
struct zap_flow *zap_flow_find(struct zap_engine *engine, uint32_t number);
void zap_flow_close(struct zap_engine *engine, struct zap_flow *flow);
/* Brings it down: nothing more is sent, its queue pair is put into error, and it ends when all that was posted has come back. */
void zap_flow_fail(struct zap_engine *engine, struct zap_flow *flow, uint32_t reason, uint32_t status);
/* Everything that is due for it. True where that was anything. */
bool zap_flow_turn(struct zap_engine *engine, struct zap_flow *flow);
void zap_flow_complete(struct zap_engine *engine, const struct ibv_wc *wc);
/* Ends it: all that was posted has come back, or it never will. */
void zap_flow_drop(struct zap_engine *engine, struct zap_flow *flow);
const char *zap_down_reason_name(uint32_t reason);

/* incoming.c */
bool zap_incoming_post(struct zap_engine *engine, struct zap_flow *flow);
void zap_incoming_received(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab, uint32_t bytes);
void zap_incoming_flushed(struct zap_engine *engine, struct zap_flow *flow, uint32_t slab);
void zap_incoming_read(struct zap_flow *flow, uint32_t place);
bool zap_incoming_turn(struct zap_engine *engine, struct zap_flow *flow);
/* The queue pair is gone: hands over what has come whole, and gives back the rest. */
void zap_incoming_end(struct zap_engine *engine, struct zap_flow *flow);
bool zap_incoming_take_back(struct zap_engine *engine);
void zap_incoming_free_slab(struct zap_engine *engine, uint32_t slab);
const char *zap_message_drop_name(uint32_t index);

/* outgoing.c */
bool zap_outgoing_take(struct zap_engine *engine);
bool zap_outgoing_turn(struct zap_engine *engine, struct zap_flow *flow);
/* All up to and with this number have been sent. */
void zap_outgoing_completed(struct zap_engine *engine, struct zap_flow *flow, uint32_t number);
/* This one has failed, and all before it have been sent. */
void zap_outgoing_failed(struct zap_engine *engine, struct zap_flow *flow, uint32_t number);
/* The peer has taken what it was shown. False where that cannot be. */
bool zap_outgoing_taken(struct zap_flow *flow, uint32_t id);
/* Fails what was not delivered. The queue pair is gone. */
void zap_outgoing_end(struct zap_engine *engine, struct zap_flow *flow);
bool zap_outgoing_idle(const struct zap_flow *flow);
/* A read of the peer's memory; false where it cannot be posted now. */
bool zap_outgoing_read(struct zap_engine *engine, struct zap_flow *flow, uint32_t place, uint64_t to, uint64_t from, uint32_t rkey, uint32_t length);
bool zap_outgoing_has_slots(const struct zap_flow *flow, uint32_t wanted);
/* In error: posts what comes back behind all that was posted, as what had been sent without a signal says nothing by itself. */
void zap_outgoing_mark(struct zap_engine *engine, struct zap_flow *flow);

#endif
