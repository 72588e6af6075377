/* What an endpoint is made of, for the files of this folder. Start reading at flow.h; endpoint.c is its way in. */
#ifndef ZAP_FLOW_STATE_H
#define ZAP_FLOW_STATE_H

#include "receiver.h"
#include "sender.h"
#include "table.h"
#include "timers.h"

#define NEVER UINT64_MAX

/* What a handshake has settled, or is about to. */
struct zap_setup {
  struct zap_flow_address address;
  uint64_t local, remote; /* sessions */
  uint8_t nonce[ZAP_NONCE];
  struct zap_flow_id id;
  struct zap_terms ours, theirs; /* with the agreed payload in both */
  bool dialled;
  uint64_t challenged_at; /* another flow with that node was asked whether it lives; 0: not so */
};

enum { ZAP_IS_FLOW, ZAP_IS_DIAL, ZAP_IS_CANDIDATE };
#define ZAP_WHAT(kind, index) ((uint32_t)(kind) << 24 | (uint32_t)(index))
#define ZAP_WHAT_KIND(what) ((what) >> 24)
#define ZAP_WHAT_INDEX(what) ((what)&0xffffffu)

struct zap_flow {
  struct zap_timer timer;
  bool used, ending, tell;
  bool active; /* in the list of those that have something to transmit */
  uint32_t index, generation;
  uint32_t earlier, later; /* in that list; or the list of free ones */
  uint32_t reason, failed;
  struct zap_setup setup;
  struct zap_sender sender;
  struct zap_receiver receiver;
  uint64_t heard;    /* last datagram from the peer */
  uint64_t ack_at;   /* acknowledge by then */
  uint64_t ask_at;   /* ask for an answer then: credits, or the peer's goodbye */
  uint64_t alive_at; /* ask then whether it lives */
  uint64_t close_at;
  uint32_t asked; /* times in a row */
  bool ask, starved, closing, flushed, peer_done;
};

struct zap_candidate {
  struct zap_setup setup;
  bool used;
  uint64_t since;
};

enum zap_dial_state { ZAP_DIAL_INIT, ZAP_DIAL_HELLO, ZAP_DIAL_WELCOMED };

struct zap_dial {
  struct zap_timer timer;
  bool used, over;
  uint32_t index;
  enum zap_dial_state state;
  uint64_t cookie;
  bool expects;
  struct zap_flow_id expected;
  struct zap_setup setup;
  uint32_t slot;
  uint8_t mac[16];
  uint32_t tries; /* of this state */
  uint64_t until, again_at;
  uint32_t reason, flow; /* when over */
};

/* A flow that is no more, whose peer may not have heard so. */
struct zap_ghost {
  uint64_t local, remote, until;
  struct zap_flow_address address;
  uint32_t reason, ack;
};
#define ZAP_GHOSTS 64

/* Datagrams that are not of a flow, on their way out. */
struct zap_reply {
  struct zap_flow_address to;
  uint8_t head[ZAP_CONTROL_BYTES];
  uint32_t head_length, padding;
};
#define ZAP_REPLIES 256

struct zap_endpoint {
  struct zap_flow_settings settings;
  struct zap_flow_events events;
  void *context;
  uint8_t cookie_key[16], random_key[16];
  uint64_t random_count;
  uint64_t now;
  bool start_fixed;
  uint32_t start;

  struct zap_flow_allowed *allow;
  struct zap_flow *flows;
  uint32_t *names; /* of each flow a hash of its node id, 0 for none: what a HELLO is looked up in */
  struct zap_dial *dials;
  struct zap_candidate *candidates;
  struct zap_ghost ghosts[ZAP_GHOSTS];
  uint32_t next_ghost;
  struct zap_reply *replies;
  uint32_t replies_in, replies_out;
  uint8_t *padding; /* zeros */
  uint32_t *ending; /* flows */
  uint32_t endings;
  bool dials_over;

  uint32_t free_flow, free_last;             /* list of free places, used longest ago first */
  uint32_t active_first, active_last;        /* list of flows with something to transmit */
  bool reply_next;
  struct zap_table table;
  struct zap_timers timers;
  struct zap_flow_stats stats;
};
#define NO_INDEX UINT32_MAX

/* endpoint.c */
void zap_drop(struct zap_endpoint *e, enum zap_flow_drop why);
uint64_t zap_random(struct zap_endpoint *e);
uint64_t zap_new_session(struct zap_endpoint *e, uint32_t what);
bool zap_is_allowed(const struct zap_endpoint *e, const struct zap_flow_id *id, const struct zap_flow_address *address);
/* Queues a datagram that is no flow's, with `padding` zeros behind it. */
void zap_reply(struct zap_endpoint *e, const struct zap_flow_address *to, const struct zap_datagram *fields, uint32_t padding);
static inline uint64_t zap_ns(uint32_t us) { return (uint64_t)us * 1000; }

/* flow.c */
struct zap_flow *zap_flow_of(const struct zap_endpoint *e, uint32_t handle); /* NULL where there is none, or it ends */
uint32_t zap_flow_handle(const struct zap_flow *f);
struct zap_flow *zap_flow_with(struct zap_endpoint *e, const struct zap_flow_id *id);
/* Makes a flow of a handshake that is complete, and calls up(). NULL where there is no place. */
struct zap_flow *zap_flow_begin(struct zap_endpoint *e, uint64_t now, const struct zap_setup *setup, uint64_t dial);
void zap_flow_input(struct zap_endpoint *e, struct zap_flow *f, uint64_t now, const struct zap_datagram *d);
void zap_flow_timer(struct zap_endpoint *e, struct zap_flow *f, uint64_t now);
/* What it has to do has changed: makes callbacks that are due, and sets the timer. */
void zap_flow_settle(struct zap_endpoint *e, struct zap_flow *f, uint64_t now);
/* The same without callbacks. */
void zap_flow_poke(struct zap_endpoint *e, struct zap_flow *f, uint64_t now);
bool zap_flow_output(struct zap_endpoint *e, struct zap_flow *f, uint64_t now, struct zap_flow_output *out);
bool zap_flow_has_output(const struct zap_flow *f);
/* Ends it at the next zap_flow_reap. `tell` the peer. */
void zap_flow_end(struct zap_endpoint *e, struct zap_flow *f, enum zap_flow_reason reason, bool tell);
void zap_flow_reap(struct zap_endpoint *e);

/* admit.c: answers to dials */
void zap_admit_init(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d);
void zap_admit_hello(struct zap_endpoint *e, uint64_t now, const struct zap_flow_address *from, const struct zap_datagram *d);
/* The first datagram of a candidate's session. Returns its flow when it has become one. */
struct zap_flow *zap_admit_confirm(struct zap_endpoint *e, uint64_t now, struct zap_candidate *candidate);
void zap_candidate_forget(struct zap_endpoint *e, struct zap_candidate *candidate);
/* Candidates of that node or address. */
void zap_candidates_forget(struct zap_endpoint *e, const struct zap_flow_id *id, const struct zap_flow_address *address);
/*
 * Another flow with that node exists. Asks it whether it lives, and says what is known: 1 it does, -1 it does not (and now
 * ends), 0 not known yet.
 */
int zap_challenge(struct zap_endpoint *e, uint64_t now, struct zap_flow *rival, struct zap_setup *setup);

/* dial.c */
void zap_dial_input(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial, const struct zap_datagram *d);
void zap_dial_timer(struct zap_endpoint *e, uint64_t now, struct zap_dial *dial);
/* Ends it at the next zap_dials_reap. */
void zap_dial_end(struct zap_endpoint *e, struct zap_dial *dial, enum zap_flow_reason reason, uint32_t flow);
void zap_dials_reap(struct zap_endpoint *e);
/* Forgets it without a callback. */
void zap_dial_forget(struct zap_endpoint *e, struct zap_dial *dial);
/* Our own dial that would lead to the same node, as far as is known; NULL when there is none. */
struct zap_dial *zap_dial_twin(struct zap_endpoint *e, const struct zap_flow_id *id, const struct zap_flow_address *address);

/* For tests: numbers of new flows start here instead of anywhere. */
void zap_endpoint_start_at(struct zap_endpoint *e, uint32_t start);

#endif
