/*
 * A world of simulated hosts for the protocol of shim/dpdk/flow: virtual time, a network that misbehaves as told, and applications
 * that know what has to arrive. Everything follows from one seed.
 */
#ifndef ZAP_FLOW_SIM_H
#define ZAP_FLOW_SIM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../shim/dpdk/flow/state.h"

#define SECOND UINT64_C(1000000000)
#define MILLI UINT64_C(1000000)
#define MICRO UINT64_C(1000)

#define HOSTS 4
/* Longest message of the simulations. */
#define SIM_MESSAGE (1u << 20)

struct faults {
  double loss, duplicate, reorder, corrupt;
  uint64_t delay, jitter;
  uint64_t rate;  /* bytes a second of each host's link; 0: no limit */
  uint64_t queue; /* bytes that wait for it */
};

struct packet {
  uint64_t at, order;
  struct zap_flow_address from, to;
  uint32_t length;
  uint8_t *bytes;
};

/* One direction of one flow, as its sender knows it. */
struct stream {
  uint64_t id;
  uint32_t accepted, succeeded, failed, delivered;
  bool over;
};

/* A message that was accepted and is not done. */
struct sent {
  uint8_t *bytes;
  uint32_t length, stream, index;
  bool live;
};

/* What a host knows of one of its flows. */
struct link {
  uint32_t handle;
  uint32_t out;    /* stream that we send */
  uint32_t in;     /* stream that we receive, once its first message has come */
  bool has_in, starved, closing;
  int peer;
};

struct host {
  struct sim *sim;
  int index;
  struct zap_endpoint *endpoint;
  struct zap_flow_address address;
  struct zap_flow_id id;
  struct link links[64];
  uint64_t redial_at[HOSTS];
  bool dialling[HOSTS];
  uint32_t to_send[HOSTS]; /* messages still to be accepted for each peer */
  uint64_t held, pool;     /* bytes of buffers, and how many may be */
  uint64_t refuse_until;
  uint64_t linkfree; /* when its transmitter is free again */
  struct zap_flow_buffer unread[256]; /* delivered and not freed */
  uint32_t unread_count;
  uint64_t read_at;
  uint64_t back_at; /* while gone */
  bool dial_only;
};

struct sim {
  uint64_t seed, random, now, order;
  struct faults faults;
  bool cut[HOSTS][HOSTS]; /* partition: from, to */
  struct packet *packets; /* a heap */
  uint32_t packet_count, packet_room;
  struct stream *streams;
  uint32_t stream_count, stream_room;
  struct sent *sent;
  uint32_t sent_count, sent_room;
  struct host hosts[HOSTS];
  int host_count;
  struct zap_flow_settings settings;
  uint32_t longest;   /* message */
  bool start_high;    /* numbers near 2^32 */
  bool dial_both;
  double in_place; /* how often a message is kept where its datagram lies */
  const struct packet *input; /* the one that is being input, if any */
  bool input_kept;            /* by its receiver, which frees it */
  struct zap_flow_allowed allow[HOSTS + 1];
  bool steady;        /* nothing that may end a flow */
  bool calm;          /* faults are over */
  uint64_t done_messages, lost_messages, datagrams;
  uint64_t kept_messages, dial_only_drops, stranger_flows;
  struct packet replays[64]; /* what an attacker kept */
  bool failed;
  bool loud;
};

#define SIM_CHECK(sim, condition)                                                                                       \
  do {                                                                                                                  \
    if (!(condition)) {                                                                                                 \
      fprintf(stderr, "%s:%d: seed %llu at %.6f s: not so: %s\n", __FILE__, __LINE__, (unsigned long long)(sim)->seed, \
              (double)(sim)->now / 1e9, #condition);                                                                    \
      (sim)->failed = true;                                                                                             \
    }                                                                                                                   \
  } while (0)

/* flow_sim_net.c */
uint64_t sim_random(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound);
bool sim_chance(struct sim *sim, double probability);
void sim_transmit(struct sim *sim, struct host *host, const struct zap_flow_output *out);
/* A datagram that comes from nowhere. */
void sim_inject(struct sim *sim, const struct zap_flow_address *from, const struct zap_flow_address *to, const uint8_t *bytes,
                uint32_t length, uint64_t at);
void sim_attack(struct sim *sim);
bool sim_next_packet(struct sim *sim, struct packet *packet);
struct host *sim_host_at(struct sim *sim, const struct zap_flow_address *address);
void sim_network_free(struct sim *sim);

/* flow_sim_app.c */
void host_start(struct host *host);
/* Without a word to anybody. */
void host_stop(struct host *host);
/* Dials, sends, reads. Returns when it wants to be called again. */
uint64_t host_work(struct host *host);
/* Transmits what there is. */
void host_drain(struct host *host);
/* Whether all that it had to send is accepted and done with. */
bool host_idle(const struct host *host);
/* Checks what has to hold in every state. */
void host_check(struct host *host);
void sim_streams_check(struct sim *sim);

/* flow_sim_run.c: runs until `until`, or until all are idle. */
void sim_run(struct sim *sim, uint64_t until, bool until_idle);

#endif
